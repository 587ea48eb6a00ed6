//! One storage node that answers before it syncs, and loses its power: the end of a log is gone, and its start is not, which
//! metadata keep. What is stored afterwards must be readable (storage.md P6; the rest of what is lost is the mode's price).

use std::sync::Arc;
use std::time::Duration;

use bookie_node::SyncMode;
use bytes::Bytes;
use hulse_proto::batch::{BatchBuilder, BatchHeader, Compression, RecordRef};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{LedgerId, Offset};
use hulse_proto::ledger::Quorums;
use hulse_proto::mutant::Mutant;
use rand::Rng;
use rand::seq::IndexedRandom;
use serving_broker::PartitionHandle;
use tests_harness::{
    BrokerSizes, Cluster, PowerLoss, Run, SimBroker, World, WorldSetup, runtime, trace,
};
use tokio::time::{sleep, timeout};

const ONE: Quorums = Quorums {
    ensemble: 1,
    write: 1,
    ack: 1,
};
/// Tries to open the partition after a loss.
const OPEN_TRIES: u32 = 60;
/// Nothing takes longer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(20);

/// One seed.
pub fn run(seed: u64, whole: bool) -> Run {
    run_with(seed, whole, None)
}

/// One seed, with a mutant.
pub fn run_with(seed: u64, whole_trace: bool, mutant: Option<Mutant>) -> Run {
    runtime().block_on(async move {
        let world = Arc::new(World::new(WorldSetup {
            seed,
            whole_trace,
            quorums: ONE,
            bookies: 1,
            mutant,
        }));
        play(&world).await
    })
}

async fn play(world: &Arc<World>) -> Run {
    let mut rng = world.seeds.stream("lost tails");
    let mode = match rng.random_bool(0.5) {
        true => SyncMode::Off,
        false => SyncMode::Interval(Duration::from_millis(rng.random_range(20..800))),
    };
    world.set_sync(mode);
    world.start_bookies().await;
    let sizes = BrokerSizes {
        roll_bytes: *[600, 1 << 30].choose(&mut rng).expect("two sizes"),
        roll_age: Duration::from_secs(3_600),
        tail_bytes: 0,
    };
    let cluster = Cluster::start(world, sizes);
    let mut stored = 0;
    for round in 0..rng.random_range(1..4_u32) {
        let Some(handle) = opened(&cluster).await else {
            break;
        };
        for _ in 0..rng.random_range(1..25) {
            stored += u64::from(is_stored_and_read(&cluster, &handle).await);
            sleep(Duration::from_millis(rng.random_range(0..60))).await;
        }
        let end = handle.offsets().high_watermark.0;
        let to = match rng.random_range(0..3) {
            0 => None,
            _ => Some(Offset(rng.random_range(0..=end))),
        };
        let trimmed = timeout(ANSWER_TIMEOUT, handle.trim(to)).await;
        trace!(world.trace, "round {round}: trimmed to {to:?}: {trimmed:?}");
        sleep(Duration::from_millis(rng.random_range(0..300))).await;
        world.bookies[0].crash(PowerLoss::Yes);
        for place in 0..2 {
            cluster.replace(place);
        }
    }
    if let Some(handle) = opened(&cluster).await {
        stored += u64::from(is_stored_and_read(&cluster, &handle).await);
    }
    world.finish(stored)
}

/// Entries of closed ledgers may be gone, too: an operator gives them up, as the fault says, and that must help.
async fn opened(cluster: &Arc<Cluster>) -> Option<PartitionHandle> {
    let mut last = None;
    for _ in 0..OPEN_TRIES {
        let broker = cluster.broker(0);
        match broker.open(cluster.partition).await {
            Some(Ok(handle)) => return Some(handle),
            Some(Err(fault)) => {
                if fault.reason == Reason::DataDamaged {
                    give_up(cluster, &broker, &fault).await;
                }
                last = Some(fault);
            }
            None => {}
        }
        sleep(Duration::from_millis(200)).await;
    }
    let violations = &cluster.world.violations;
    violations.add(format!(
        "STUCK: does not open after a loss of power: {last:?}"
    ));
    None
}

async fn give_up(cluster: &Cluster, broker: &SimBroker, fault: &Fault) {
    let named = fault.details.get("ledger");
    let Some(ledger) = named.and_then(|number| number.parse().ok()) else {
        let violations = &cluster.world.violations;
        return violations.add(format!("damage without a ledger: {fault}"));
    };
    let accepted = broker.partitions.accept_loss(LedgerId(ledger), None);
    let accepted = timeout(ANSWER_TIMEOUT, accepted).await;
    trace!(
        cluster.world.trace,
        "the operator gives up what ledger {ledger} has lost: {accepted:?}"
    );
    cluster.world.counts.add("losses that were accepted");
}

/// Stores a record, which must be read where its receipt says.
async fn is_stored_and_read(cluster: &Cluster, handle: &PartitionHandle) -> bool {
    let violations = &cluster.world.violations;
    let produced = timeout(ANSWER_TIMEOUT, handle.produce(record())).await;
    let Ok(Ok(produced)) = produced else {
        trace!(cluster.world.trace, "not stored: {produced:?}");
        return false;
    };
    let base = produced.base_offset;
    let read = timeout(ANSWER_TIMEOUT, handle.read(base, 1 << 20)).await;
    let found = match &read {
        Ok(Ok(chunk)) => chunk.batches.iter().any(|batch| {
            BatchHeader::view(&batch.bytes).is_ok_and(|header| header.base_offset == base)
        }),
        _ => false,
    };
    violations.check(found, || {
        let offsets = handle.offsets();
        format!("INVISIBLE a record is stored at {base} and not read there: {offsets:?}, {read:?}")
    });
    found
}

fn record() -> Bytes {
    let mut builder = BatchBuilder::new(Compression::None).expect("no compression is always there");
    let record = RecordRef {
        timestamp: 0,
        key: None,
        value: Some(b"v"),
        headers: &[],
    };
    builder.push(&record).expect("a small record fits");
    builder.build(None)
}
