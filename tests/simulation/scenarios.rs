//! Cases of public troubles as scripted histories: real partitions over real storage nodes, in virtual time.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use hulse_proto::batch::{BatchBuilder, Compression, RecordRef};
use hulse_proto::id::Offset;
use hulse_proto::ledger::Quorums;
use tests_harness::reader::read_all;
use tests_harness::{
    BrokerSizes, Cluster, Manner, PowerLoss, Producer, Run, World, WorldSetup, runtime,
};
use tokio::task::JoinHandle;
use tokio::time::{sleep, timeout};

use crate::partition::finish;

pub(crate) const REPLICATED: Quorums = Quorums {
    ensemble: 3,
    write: 3,
    ack: 2,
};

async fn cluster(quorums: Quorums, roll_bytes: u64) -> Arc<Cluster> {
    let setup = WorldSetup {
        seed: 3,
        whole_trace: true,
        quorums,
        bookies: quorums.ensemble,
        mutant: None,
    };
    let world = Arc::new(World::new(setup));
    world.start_bookies().await;
    let sizes = BrokerSizes {
        roll_bytes,
        roll_age: Duration::from_secs(3_600),
        tail_bytes: 0,
    };
    Cluster::start(&world, sizes)
}

pub(crate) fn producer(
    cluster: &Arc<Cluster>,
    number: u32,
    batches: u32,
    pause_ms: u64,
) -> JoinHandle<()> {
    let manner = Manner {
        number,
        idempotent: true,
        batches,
        pause_ms,
        gives_up: false,
        echoes: false,
        strays: false,
    };
    tokio::spawn(Producer::new(cluster, manner).run())
}

pub(crate) async fn all_sent(cluster: &Cluster, producer: JoinHandle<()>) {
    let ended = timeout(Duration::from_secs(120), producer).await;
    assert!(
        matches!(ended, Ok(Ok(()))),
        "STUCK\n{}",
        cluster.world.trace.text()
    );
}

pub(crate) async fn all_is_well(cluster: &Arc<Cluster>) -> Run {
    cluster.world.heal().await;
    let run = finish(cluster).await;
    assert!(
        run.violations.is_empty(),
        "{}\n{:#?}",
        run.text,
        run.violations
    );
    run
}

/// LD-03, first form: two of three bookies stand still while batches are under way.
#[test]
fn retry_of_a_batch_that_two_silent_bookies_missed_is_stored_once() {
    runtime().block_on(async {
        let cluster = cluster(REPLICATED, 1 << 30).await;
        let world = &cluster.world;
        all_sent(&cluster, producer(&cluster, 0, 99, 20)).await;
        let before = cluster.truth().stored();
        for bookie in ["k2", "k3"] {
            for broker in ["b0.0", "b1.0"] {
                world.network.cut(broker, bookie);
                world.network.cut(bookie, broker);
            }
        }
        let waiting = producer(&cluster, 1, 10, 0);
        // Longer than the writer waits for an ack quorum: its owner stops, and its clients hear of an unknown fate.
        sleep(Duration::from_secs(9)).await;
        assert_eq!(
            cluster.truth().stored(),
            before,
            "told of an entry on one bookie of three"
        );
        world.network.mend();
        all_sent(&cluster, waiting).await;
        all_sent(&cluster, producer(&cluster, 2, 41, 0)).await;
        let run = all_is_well(&cluster).await;
        assert!(run.stored > before as u64);
    });
}

/// LD-03, second form: the ledger cannot be rolled, because no ensemble can be formed.
#[test]
fn batches_behind_a_roll_that_finds_no_bookies_are_stored_once() {
    runtime().block_on(async {
        let cluster = cluster(REPLICATED, 2_000).await;
        all_sent(&cluster, producer(&cluster, 0, 20, 0)).await;
        cluster.world.starved.store(true, Ordering::Relaxed);
        let waiting = producer(&cluster, 1, 60, 0);
        sleep(Duration::from_secs(5)).await;
        cluster.world.starved.store(false, Ordering::Relaxed);
        all_sent(&cluster, waiting).await;
        all_is_well(&cluster).await;
    });
}

/// LD-09, first form: every bookie loses its power at once, again and again, under load.
#[test]
fn power_loss_of_all_bookies_loses_nothing_that_was_acknowledged() {
    for quorums in [
        REPLICATED,
        Quorums {
            ensemble: 1,
            write: 1,
            ack: 1,
        },
    ] {
        runtime().block_on(async {
            let cluster = cluster(quorums, 20_000).await;
            let sending = producer(&cluster, 0, 400, 4);
            for _ in 0..12 {
                sleep(Duration::from_millis(330)).await;
                for bookie in &cluster.world.bookies {
                    bookie.crash(PowerLoss::Yes);
                }
            }
            all_sent(&cluster, sending).await;
            all_is_well(&cluster).await;
        });
    }
}

/// LD-09, second form: one bookie loses its power, another stands still, then the owner dies.
#[test]
fn power_loss_of_one_bookie_and_death_of_the_owner_lose_nothing() {
    runtime().block_on(async {
        let cluster = cluster(REPLICATED, 20_000).await;
        let sending = producer(&cluster, 0, 300, 4);
        sleep(Duration::from_millis(400)).await;
        cluster.world.bookies[0].crash(PowerLoss::Yes);
        cluster.world.network.cut("b0.0", "k2");
        sleep(Duration::from_millis(200)).await;
        cluster.replace(0);
        sleep(Duration::from_secs(20)).await;
        cluster.world.network.mend();
        all_sent(&cluster, sending).await;
        all_is_well(&cluster).await;
    });
}

/// LD-11: fail-overs do not move the end of the log, and nothing is copied as new.
#[test]
fn failover_neither_repeats_records_nor_moves_the_end() {
    runtime().block_on(async {
        let cluster = cluster(REPLICATED, 20_000).await;
        all_sent(&cluster, producer(&cluster, 0, 1, 0)).await;
        let mut end = shown(&cluster).await;
        for round in 0..4 {
            cluster.replace(round);
            cluster.prefer(round + 1);
            assert_eq!(shown(&cluster).await, end, "after fail-over {round}");
            if round == 0 {
                all_sent(&cluster, producer(&cluster, 1, 100, 2)).await;
                end = shown(&cluster).await;
            }
            let bookie = &cluster.world.bookies[round % 3];
            bookie.hold_down(PowerLoss::Yes);
            sleep(Duration::from_millis(500)).await;
            bookie.start().await;
        }
        all_is_well(&cluster).await;
    });
}

/// How many records a read from the start shows, and where the log ends.
async fn shown(cluster: &Arc<Cluster>) -> (usize, Offset) {
    for _ in 0..100 {
        if let Some((_, handle)) = cluster.route(false).await {
            let log = read_all(cluster, &handle)
                .await
                .expect("an open partition is readable");
            return (log.len(), handle.offsets().high_watermark);
        }
        sleep(Duration::from_millis(200)).await;
    }
    panic!(
        "the partition does not open\n{}",
        cluster.world.trace.text()
    );
}

/// ST-06, first step: a bookie is killed thirty times in the middle of its groups and always starts by itself.
#[test]
fn bookie_with_a_torn_tail_always_starts_and_has_everything_it_confirmed() {
    runtime().block_on(async {
        let cluster = cluster(
            Quorums {
                ensemble: 1,
                write: 1,
                ack: 1,
            },
            1 << 30,
        )
        .await;
        let sending = producer(&cluster, 0, 600, 8);
        for round in 0..30 {
            sleep(Duration::from_millis(37 + round * 5)).await;
            let loss = if round % 3 == 0 {
                PowerLoss::No
            } else {
                PowerLoss::Yes
            };
            let bookie = &cluster.world.bookies[0];
            bookie.hold_down(loss);
            bookie.start().await;
            assert!(bookie.is_up());
        }
        all_sent(&cluster, sending).await;
        all_is_well(&cluster).await;
    });
}

/// ARCHITECTURE D6: with metadata silent, an open partition goes on, also when one bookie of three dies meanwhile.
#[test]
fn produce_goes_on_while_metadata_is_silent_and_a_bookie_is_dead() {
    runtime().block_on(async {
        let cluster = cluster(REPLICATED, 1 << 30).await;
        let world = &cluster.world;
        all_sent(&cluster, producer(&cluster, 0, 50, 4)).await;
        world.faults.silence();
        let silent = producer(&cluster, 1, 100, 4);
        sleep(Duration::from_millis(100)).await;
        world.bookies[1].hold_down(PowerLoss::Yes);
        all_sent(&cluster, silent).await;
        assert_eq!(cluster.broker(0).partitions.open_count(), 1);
        world.faults.speak();
        all_is_well(&cluster).await;
    });
}

/// The records of an owner that stands still while another takes over: what it is told afterwards by its bookies is not success.
#[test]
fn owner_that_was_paused_confirms_nothing_after_the_take_over() {
    runtime().block_on(async {
        let cluster = cluster(REPLICATED, 1 << 30).await;
        all_sent(&cluster, producer(&cluster, 0, 30, 4)).await;
        let (old, handle) = cluster.route(false).await.unwrap();
        let before = handle.offsets().high_watermark;
        old.process.pause();
        cluster.prefer(1);
        all_sent(&cluster, producer(&cluster, 1, 30, 4)).await;
        let (_, fresh) = cluster.route(false).await.unwrap();
        assert!(fresh.leader_epoch() > handle.leader_epoch());
        old.process.resume();
        // Straight to the old owner's handle, as a client would that has not looked up the owner again.
        let mut builder = BatchBuilder::new(Compression::None).unwrap();
        let record = RecordRef {
            timestamp: 0,
            key: None,
            value: Some(b"9|0"),
            headers: &[],
        };
        builder.push(&record).unwrap();
        let answer = old
            .process
            .heard(handle.produce(builder.build(None)))
            .await
            .unwrap();
        assert!(answer.is_err(), "{answer:?}");
        assert!(handle.ended().is_some());
        assert_eq!(handle.offsets().high_watermark, before);
        all_is_well(&cluster).await;
    });
}
