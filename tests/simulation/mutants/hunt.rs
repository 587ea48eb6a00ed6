//! A run made for one kind of history: one writer, recoverers, and a trouble that a profile plans.

use std::sync::Arc;
use std::time::Duration;

use hulse_proto::mutant::Mutant;
use rand::Rng;
use tests_harness::{Process, Run, World};
use tokio::time::sleep;

use super::profiles::Profile;
use super::scene::{fill, in_cell};
use crate::ledger::{Book, finish, recover_all};

/// One seed.
pub fn hunt(seed: u64, whole_trace: bool, profile: &Profile, mutant: Option<Mutant>) -> Run {
    in_cell(seed, whole_trace, (profile.bookies, mutant), |world| {
        play(world, profile)
    })
}

async fn play(world: Arc<World>, profile: &Profile) -> Run {
    let mut rng = world.seeds.stream("hunt");
    let book = Book::default();
    let process = Process::new("w0");
    let chance = world.seeds.stream(process.name());
    let filling = fill(
        world.clone(),
        process.clone(),
        book.clone(),
        (chance, profile.appends),
    );
    let writer = tokio::spawn(filling);
    sleep(Duration::from_millis(rng.random_range(100..1_000))).await;
    (profile.trouble)(&world, &mut rng);
    for number in 0..profile.recoverers {
        let process = Process::new(format!("r{number}"));
        let wait = rng.random_range(profile.delay.0..profile.delay.1);
        let recovery = recover_all(
            world.clone(),
            process.clone(),
            book.clone(),
            Duration::from_millis(wait),
        );
        tokio::spawn(recovery);
        if let Some(life) = profile.life_max {
            let life = wait + rng.random_range(0..life);
            tokio::spawn(async move {
                sleep(Duration::from_millis(life)).await;
                process.kill();
            });
        }
    }
    sleep(profile.fire).await;
    world.heal().await;
    finish(&world, &book, vec![(process, writer)]).await
}
