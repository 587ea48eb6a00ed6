//! A run made for one kind of history: one writer, recoverers, and a trouble that a profile plans.

use std::sync::Arc;
use std::time::Duration;

use hulse_proto::ledger::Quorums;
use hulse_proto::mutant::Mutant;
use rand::Rng;
use rand_chacha::ChaCha12Rng;
use tests_harness::{Process, Run, World, WorldSetup, runtime};
use tokio::time::sleep;

use crate::ledger::{Book, Writer, finish, recover_all};

/// What a run is made of.
pub struct Profile {
    /// E, Qw, Qa.
    pub quorums: (u32, u32, u32),
    /// Bookies besides the ensemble.
    pub spares: u32,
    /// The writer's appends, and the longest pause between two, ms.
    pub appends: (u32, u64),
    /// Recoverers.
    pub recoverers: u32,
    /// They begin this long after the trouble, ms.
    pub delay: std::ops::Range<u64>,
    /// Plans what goes wrong, from now on.
    pub trouble: fn(&Arc<World>, &mut ChaCha12Rng),
    /// Until the world heals.
    pub fire: Duration,
}

/// One seed.
pub fn hunt(seed: u64, whole_trace: bool, profile: &Profile, mutant: Option<Mutant>) -> Run {
    let (ensemble, write, ack) = profile.quorums;
    let quorums = Quorums {
        ensemble,
        write,
        ack,
    };
    runtime().block_on(async move {
        let setup = WorldSetup {
            seed,
            whole_trace,
            quorums,
            bookies: ensemble + profile.spares,
            mutant,
        };
        play(&Arc::new(World::new(setup)), profile).await
    })
}

async fn play(world: &Arc<World>, profile: &Profile) -> Run {
    let mut rng = world.seeds.stream("hunt");
    world.start_bookies().await;
    let book = Book::default();
    let process = Process::new("w0");
    let writer = Writer {
        world: world.clone(),
        process: process.clone(),
        book: book.clone(),
        rng: world.seeds.stream(process.name()),
        appends: profile.appends.0,
        pause_ms: profile.appends.1,
    };
    let writer = tokio::spawn(writer.run());
    sleep(Duration::from_millis(rng.random_range(100..1_000))).await;
    (profile.trouble)(world, &mut rng);
    for number in 0..profile.recoverers {
        let process = Process::new(format!("r{number}"));
        let wait = Duration::from_millis(rng.random_range(profile.delay.clone()));
        tokio::spawn(recover_all(world.clone(), process, book.clone(), wait));
    }
    sleep(profile.fire).await;
    world.heal().await;
    finish(world, &book, vec![(process, writer)]).await
}
