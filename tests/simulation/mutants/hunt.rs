//! A run made for one kind of history: one writer, recoverers, and a trouble that a profile plans.

use std::sync::Arc;
use std::time::Duration;

use bookie_client::{LedgerWriter, NewLedger};
use bookie_metadata::Txn;
use bytes::Bytes;
use hulse_proto::entry::EntryClass;
use hulse_proto::id::{Offset, OwnerEpoch, PartitionId, TopicId};
use hulse_proto::ledger::{LedgerKind, Quorums};
use hulse_proto::mutant::Mutant;
use rand::Rng;
use tests_harness::{Process, Run, World, WorldSetup, runtime};
use tokio::time::sleep;

use super::profiles::Profile;
use crate::ledger::{Book, append, finish, recover_all};

/// One seed.
pub fn hunt(seed: u64, whole_trace: bool, profile: &Profile, mutant: Option<Mutant>) -> Run {
    let quorums = Quorums {
        ensemble: 3,
        write: 3,
        ack: 2,
    };
    runtime().block_on(async move {
        let setup = WorldSetup {
            seed,
            whole_trace,
            quorums,
            bookies: profile.bookies,
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
    let writer = tokio::spawn(write(
        world.clone(),
        process.clone(),
        book.clone(),
        profile.appends,
    ));
    sleep(Duration::from_millis(rng.random_range(100..1_000))).await;
    (profile.trouble)(world, &mut rng);
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
    finish(world, &book, vec![(process, writer)]).await
}

/// Appends to one ledger, about once in 10 ms, and stays.
async fn write(
    world: Arc<World>,
    process: Process,
    book: Book,
    appends: u32,
) -> Option<LedgerWriter> {
    let mut rng = world.seeds.stream(process.name());
    let new = NewLedger {
        kind: LedgerKind::Log,
        partition: PartitionId {
            topic: TopicId(world.seeds.id("topic")),
            index: 0,
        },
        owner_epoch: OwnerEpoch(1),
        base_offset: Offset(0),
    };
    let client = world.client(&process);
    let create = client.create(new, |ledger| {
        book.open(ledger);
        Txn::default()
    });
    let writer = process.heard(create).await?.ok()?;
    for number in 0..appends {
        if writer.ended().borrow().is_some() {
            break;
        }
        sleep(Duration::from_millis(rng.random_range(0..20))).await;
        process.heard(writer.room(EntryClass::Data)).await?;
        let body = Bytes::from(format!("{number} of {}", rng.random::<u64>()));
        append(&world, &process, &book, &writer, number.into(), body);
    }
    Some(writer)
}
