//! What the hunts have in common: a cell of E = Qw = 3, Qa = 2, a ledger that is filled, a partition with one producer, and its end.

use std::sync::Arc;
use std::time::Duration;

use bookie_client::LedgerWriter;
use bookie_metadata::Txn;
use bytes::Bytes;
use hulse_proto::entry::EntryClass;
use hulse_proto::ledger::Quorums;
use hulse_proto::mutant::Mutant;
use rand::Rng;
use rand_chacha::ChaCha12Rng;
use tests_harness::{
    BrokerSizes, Cluster, Manner, Process, Producer, Run, World, WorldSetup, runtime,
};
use tokio::task::JoinHandle;
use tokio::time::sleep;

use crate::ledger::{Book, append, new_ledger};
use crate::partition::{Consumers, finish_with, wait_for};

const QUORUMS: Quorums = Quorums {
    ensemble: 3,
    write: 3,
    ack: 2,
};

/// One seed in a cell of so many bookies, which are up and in which nothing goes wrong yet.
pub fn in_cell<F: Future<Output = Run>>(
    seed: u64,
    whole_trace: bool,
    (bookies, mutant): (u32, Option<Mutant>),
    play: impl FnOnce(Arc<World>) -> F,
) -> Run {
    runtime().block_on(async move {
        let world = Arc::new(World::new(WorldSetup {
            seed,
            whole_trace,
            quorums: QUORUMS,
            bookies,
            mutant,
        }));
        world.start_bookies().await;
        Box::pin(play(world)).await
    })
}

/// Appends to a new ledger, about once in 10 ms, and leaves it open.
pub async fn fill(
    world: Arc<World>,
    process: Process,
    book: Book,
    (mut rng, appends): (ChaCha12Rng, u32),
) -> Option<LedgerWriter> {
    let client = world.client(&process);
    let create = client.create(new_ledger(&world), |ledger| {
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

/// A partition whose ledgers are rolled at this size only, and a producer of so many batches.
pub fn produced(
    world: &Arc<World>,
    roll_bytes: u64,
    (batches, pause_ms): (u32, u64),
) -> (Arc<Cluster>, JoinHandle<()>) {
    let sizes = BrokerSizes {
        roll_bytes,
        roll_age: Duration::from_secs(3600),
        tail_bytes: 1 << 20,
    };
    let cluster = Cluster::start(world, sizes);
    let manner = Manner {
        number: 0,
        idempotent: true,
        batches,
        pause_ms,
        gives_up: false,
        echoes: false,
        strays: false,
    };
    let producer = tokio::spawn(Producer::new(&cluster, manner).run());
    (cluster, producer)
}

/// The world heals, the producer ends, and what the partition shows is judged.
pub async fn heal_and_judge(
    cluster: &Arc<Cluster>,
    producer: JoinHandle<()>,
    consumers: Option<&Consumers>,
) -> Run {
    let world = &cluster.world;
    world.heal().await;
    let supervisor = tokio::spawn(cluster.clone().keep_alive());
    wait_for(world, vec![producer]).await;
    if let Some(consumers) = consumers {
        consumers.stop();
    }
    supervisor.abort();
    finish_with(cluster, consumers).await
}
