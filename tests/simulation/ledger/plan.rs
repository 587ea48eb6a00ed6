//! One run: draws its shape, lets it go wrong, heals the world, judges.

use std::sync::Arc;
use std::time::Duration;

use bookie_node::SyncMode;
use bytes::Bytes;
use hulse_proto::id::LedgerId;
use hulse_proto::mutant::Mutant;
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha12Rng;
use tests_harness::chaos::{Chaos, Victims};
use tests_harness::{Outcome, Process, Run, Shape, Upkeep, World, WorldSetup, runtime};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use super::book::Book;
use super::judge::judge;
use super::recoverer::{recover_all, recover_healed};
use super::start;
use super::writer::{Writer, append};

/// E, Qw, Qa, each as often as it is listed.
const SHAPES: [(u32, u32, u32); 11] = [
    (3, 3, 2),
    (3, 3, 2),
    (3, 3, 2),
    (3, 3, 2),
    (1, 1, 1),
    (2, 2, 2),
    (3, 3, 3),
    (4, 4, 3),
    (4, 4, 3),
    (3, 3, 1),
    (3, 2, 2),
];
/// Virtual time under fire.
const FIRE: Duration = Duration::from_secs(7);
/// Longer than any append waits, and than any message is late.
const SETTLE: Duration = Duration::from_secs(62);

/// One seed.
pub fn run(seed: u64, whole: bool) -> Run {
    run_with(seed, whole, None)
}

/// One seed, with a mutant.
pub fn run_with(seed: u64, whole_trace: bool, mutant: Option<Mutant>) -> Run {
    let mut rng = tests_harness::Seeds(seed).stream("plan");
    let Shape { quorums, bookies } = Shape::draw(&mut rng, &SHAPES);
    runtime().block_on(async move {
        let setup = WorldSetup {
            seed,
            whole_trace,
            quorums,
            bookies,
            mutant,
        };
        let world = Arc::new(World::new(setup));
        Box::pin(play(&world, rng)).await
    })
}

type Writers = Vec<(Process, JoinHandle<Option<bookie_client::LedgerWriter>>)>;

async fn play(world: &Arc<World>, mut rng: ChaCha12Rng) -> Run {
    let mut chaos = Chaos::draw(world.seeds.stream("chaos"));
    world.set_sync(sync_mode(&mut rng));
    world.start_bookies().await;
    let (book, victims) = (Book::default(), Victims::default());
    if rng.random_bool(0.3) {
        Box::pin(start::build(
            world,
            &book,
            &victims,
            world.seeds.stream("start"),
        ))
        .await;
    }
    chaos.arm(world);
    chaos.begin(world);
    let writers = start_writers(world, &book, &victims, &mut rng);
    start_recoverers(world, &book, &victims, &mut rng);
    let upkeep = new_process(&victims, "u0");
    if rng.random_bool(0.4) {
        tokio::spawn(Upkeep::new(world, upkeep.clone()).run());
    }
    chaos.run(world, &victims, FIRE).await;
    world.heal().await;
    upkeep.kill();
    for process in victims.lock().expect("no panic under this lock").iter() {
        process.pardon();
    }
    finish(world, &book, writers).await
}

/// Mostly what is confirmed is durable; else power failures may lose it (amended B5).
fn sync_mode(rng: &mut ChaCha12Rng) -> SyncMode {
    match rng.random_range(0..20) {
        0 => SyncMode::Off,
        1..3 => SyncMode::Interval(Duration::from_millis(rng.random_range(20..800))),
        _ => SyncMode::Always,
    }
}

fn new_process(victims: &Victims, name: impl Into<Arc<str>>) -> Process {
    let process = Process::new(name);
    victims
        .lock()
        .expect("no panic under this lock")
        .push(process.clone());
    process
}

/// None to four; in some runs three begin at the same moment.
fn start_recoverers(world: &Arc<World>, book: &Book, victims: &Victims, rng: &mut ChaCha12Rng) {
    let together = rng.random_bool(0.3);
    let count = if together { 3 } else { rng.random_range(0..5) };
    let first = rng.random_range(100..6_000);
    for number in 0..count {
        let process = new_process(victims, format!("r{number}"));
        let wait = match together {
            true => first + rng.random_range(0..30),
            false => rng.random_range(100..6_000),
        };
        let wait = Duration::from_millis(wait);
        tokio::spawn(recover_all(world.clone(), process, book.clone(), wait));
    }
}

fn start_writers(
    world: &Arc<World>,
    book: &Book,
    victims: &Victims,
    rng: &mut ChaCha12Rng,
) -> Writers {
    let count = rng.random_range(1..3);
    let start = |number: u32| {
        let process = new_process(victims, format!("w{number}"));
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
    for ledger in book.ledgers() {
        recover_healed(world, &process, book, ledger).await;
    }
    zombies(world, book, writers).await;
    // Whatever is late arrives, and changes nothing any more.
    sleep(SETTLE).await;
    world.faults.land_all().await;
    for ledger in book.ledgers() {
        // A writer that was left alone may have rolled on.
        recover_healed(world, &process, book, ledger).await;
    }
    for (ledger, metadata) in world.store.ledgers() {
        judge(world, &process, book, LedgerId(ledger), &metadata).await;
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
