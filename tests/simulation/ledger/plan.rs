//! One run: draws its shape, lets it go wrong, heals the world, judges.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use hulse_proto::id::LedgerId;
use hulse_proto::ledger::Quorums;
use hulse_proto::mutant::Mutant;
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha12Rng;
use tests_harness::chaos::{Chaos, Victims};
use tests_harness::{Outcome, Process, Run, World, WorldSetup, runtime};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::book::Book;
use super::judge::judge;
use super::recoverer::{recover_all, recover_healed};
use super::writer::{Writer, append};

/// E, Qw, Qa, most often first.
const QUORUMS: [(u32, u32, u32); 7] = [
    (3, 3, 2),
    (1, 1, 1),
    (3, 3, 2),
    (1, 1, 1),
    (2, 2, 2),
    (3, 3, 3),
    (3, 2, 2),
];
/// Virtual time under fire.
const FIRE: Duration = Duration::from_secs(7);
/// Longer than any append waits.
const SETTLE: Duration = Duration::from_secs(8);

/// One seed.
pub fn run(seed: u64, whole: bool) -> Run {
    run_with(seed, whole, None)
}

/// One seed, with a mutant.
pub fn run_with(seed: u64, whole_trace: bool, mutant: Option<Mutant>) -> Run {
    let mut rng = tests_harness::Seeds(seed).stream("plan");
    let (ensemble, write, ack) = *QUORUMS.choose(&mut rng).expect("there are quorums");
    let quorums = Quorums {
        ensemble,
        write,
        ack,
    };
    let bookies = ensemble + rng.random_range(0..2);
    runtime().block_on(async move {
        let setup = WorldSetup {
            seed,
            whole_trace,
            quorums,
            bookies,
            mutant,
        };
        let world = Arc::new(World::new(setup));
        play(&world, rng).await
    })
}

type Writers = Vec<(Process, JoinHandle<Option<bookie_client::LedgerWriter>>)>;

async fn play(world: &Arc<World>, mut rng: ChaCha12Rng) -> Run {
    let mut chaos = Chaos::draw(world.seeds.stream("chaos"));
    chaos.arm(world);
    world.start_bookies().await;
    chaos.begin(world);
    let (book, victims) = (Book::default(), Victims::default());
    let writers = start_writers(world, &book, &victims, &mut rng);
    for number in 0..rng.random_range(0..5) {
        let process = Process::new(format!("r{number}"));
        victims
            .lock()
            .expect("no panic under this lock")
            .push(process.clone());
        let wait = Duration::from_millis(rng.random_range(100..6_000));
        tokio::spawn(recover_all(world.clone(), process, book.clone(), wait));
    }
    chaos.run(world, &victims, FIRE).await;
    world.heal().await;
    finish(world, &book, writers).await
}

fn start_writers(
    world: &Arc<World>,
    book: &Book,
    victims: &Victims,
    rng: &mut ChaCha12Rng,
) -> Writers {
    let count = rng.random_range(1..3);
    let start = |number: u32| {
        let process = Process::new(format!("w{number}"));
        victims
            .lock()
            .expect("no panic under this lock")
            .push(process.clone());
        let writer = Writer {
            world: world.clone(),
            process: process.clone(),
            book: book.clone(),
            rng: world.seeds.stream(process.name()),
            appends: rng.random_range(1..200),
            pause_ms: *[2, 60, 300].choose(rng).expect("three paces"),
        };
        (process, tokio::spawn(writer.run()))
    };
    (0..count).map(start).collect()
}

/// Recovers every ledger of the book in a healed world, lets its writers try once more, and judges.
pub async fn finish(world: &Arc<World>, book: &Book, writers: Writers) -> Run {
    let process = Process::new("final");
    let mut closed = Vec::new();
    for ledger in book.ledgers() {
        if let Some(metadata) = recover_healed(world, &process, book, ledger).await {
            closed.push((ledger, metadata));
        }
    }
    zombies(world, book, writers).await;
    sleep(SETTLE).await;
    for (ledger, metadata) in &closed {
        judge(world, &process, book, *ledger, metadata).await;
    }
    world.check_copies();
    world.finish(stored(book))
}

/// Writers that still live try once more, after everything was closed.
async fn zombies(world: &Arc<World>, book: &Book, writers: Writers) {
    for (process, task) in writers {
        process.resume();
        if !task.is_finished() {
            // It goes on by itself.
            continue;
        }
        let Ok(Some(writer)) = task.await else {
            continue;
        };
        let next = writer.metadata().base_offset.0 + writer.appended_end().0;
        append(
            world,
            &process,
            book,
            &writer,
            next,
            Bytes::from_static(b"zombie"),
        );
        tokio::spawn(async move {
            // The handle stays open while the append is on its way.
            sleep(SETTLE).await;
            drop(writer);
        });
    }
}

fn stored(book: &Book) -> u64 {
    let of = |ledger: LedgerId| {
        let page = book.page(ledger);
        page.appends
            .values()
            .filter(|told| matches!(told.outcome, Outcome::Ok(_)))
            .count() as u64
    };
    book.ledgers().into_iter().map(of).sum()
}
