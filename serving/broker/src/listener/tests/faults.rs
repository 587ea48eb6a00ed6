//! What clients see when metadata are silent, storage does not answer, or they send nonsense themselves.

use std::time::Duration;

use bookie_metadata::testing::Fate;
use bytes::Bytes;
use hulse_proto::wire::v1::{self, produce_down::Item, produce_up};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::session::Session;
use super::world::{World, partition, plain, stamped};

#[tokio::test]
async fn open_partitions_go_on_while_metadata_are_unavailable() {
    let world = World::new().await;
    let topic = world.topic("a", 2).await;
    let mut session = Session::on(&world, &topic).await;
    session.batch(0, 0, plain(1, 10)).await;
    assert_eq!(session.word().await, "ack 0.0 [0]");
    world.metadata.choose(|_| Fate::Unavailable);
    session.batch(0, 1, plain(1, 10)).await;
    assert_eq!(session.word().await, "ack 0.1 [1]");
    let mut other = Session::open(&world).await;
    other.lane(0, &topic, 0, v1::Acks::Quorum, -1).await;
    assert_eq!(
        other.word().await,
        "opened 0",
        "an open partition needs no metadata"
    );
    other.lane(1, &topic, 1, v1::Acks::Quorum, -1).await;
    assert_eq!(other.word().await, "closed 1 METADATA_UNAVAILABLE");
    let resolve = v1::ResolveRequest {
        topics: vec!["a".to_owned()],
        auto_create: true,
    };
    let resolved = world
        .lookup()
        .resolve(resolve)
        .await
        .unwrap()
        .into_inner()
        .topics;
    assert_eq!(resolved[0].partitions.len(), 2);
    world.metadata.choose(|_| Fate::Pass);
    tokio::time::sleep(Duration::from_millis(300)).await;
    other.lane(1, &topic, 1, v1::Acks::Quorum, -1).await;
    assert_eq!(other.word().await, "opened 1", "it heals");
}

#[tokio::test]
async fn batch_of_unknown_fate_is_said_to_be_so_and_found_again_after_reopening() {
    let world = World::new().await;
    let topic = world.topic("a", 1).await;
    let mut session = Session::open(&world).await;
    session.lane(0, &topic, 0, v1::Acks::Quorum, 42).await;
    assert_eq!(session.word().await, "opened 0");
    session.batch(0, 0, stamped(42, 0)).await;
    assert_eq!(session.word().await, "ack 0.0 [0]");
    world.bookie.hold(true);
    session.batch(0, 1, stamped(42, 1)).await;
    let Item::Nack(nack) = session.next().await else {
        panic!("no Nack")
    };
    let fault = nack.fault.unwrap();
    assert_eq!(
        (fault.fate(), &*fault.reason),
        (v1::Fate::Unknown, "STORAGE_UNKNOWN")
    );
    assert_eq!(session.word().await, "closed 0 STORAGE_UNKNOWN");
    world.bookie.hold(false);
    session.lane(1, &topic, 0, v1::Acks::Quorum, 42).await;
    let Item::Opened(opened) = session.next().await else {
        panic!("not opened")
    };
    assert_eq!(
        (
            opened.leader_epoch,
            opened.last_sequence,
            opened.next_offset
        ),
        (2, 1, 2)
    );
    session.batch(1, 0, stamped(42, 1)).await;
    let Item::Ack(ack) = session.next().await else {
        panic!("no Ack")
    };
    assert_eq!(
        (ack.batches[0].duplicate, ack.batches[0].base_offset),
        (true, 1)
    );
    session.batch(1, 1, stamped(42, 2)).await;
    assert_eq!(session.word().await, "ack 1.1 [2]");
}

/// Storage.md D1, ST-03: a full disk is said to be one within a second or two, reading goes on, and so does producing once there is room.
#[tokio::test]
async fn full_disk_is_said_to_be_one_and_producing_goes_on_when_there_is_room() {
    let world = World::new().await;
    let topic = world.topic("a", 2).await;
    let mut session = Session::open(&world).await;
    session.lane(0, &topic, 0, v1::Acks::Quorum, 42).await;
    assert_eq!(session.word().await, "opened 0");
    session.batch(0, 0, stamped(42, 0)).await;
    assert_eq!(session.word().await, "ack 0.0 [0]");
    world.bookie.fill(true);
    let begun = tokio::time::Instant::now();
    session.batch(0, 1, stamped(42, 1)).await;
    let Item::Nack(nack) = session.next().await else {
        panic!("no Nack")
    };
    assert!(begun.elapsed() < Duration::from_secs(2));
    let fault = nack.fault.unwrap();
    assert_eq!(
        (fault.fate(), &*fault.reason, fault.retry_after_ms),
        (v1::Fate::NotApplied, "STORAGE_FULL", 1_000)
    );
    // Another partition has no ledger yet, and none can be made for its records.
    session.lane(1, &topic, 1, v1::Acks::Quorum, -1).await;
    assert_eq!(session.word().await, "opened 1");
    session.batch(1, 0, plain(1, 10)).await;
    assert_eq!(session.word().await, "nack 1.0 STORAGE_FULL");
    // The lane stays open: its client sends the batch again.
    session.resume(0, 1).await;
    session.batch(0, 1, stamped(42, 1)).await;
    assert_eq!(session.word().await, "nack 0.1 STORAGE_FULL");
    let read = v1::ReadRequest {
        partition: partition(&topic, 0),
        ..v1::ReadRequest::default()
    };
    let mut read = world.log().read(read).await.unwrap().into_inner();
    let found = read.message().await.unwrap().unwrap().item;
    assert!(matches!(found, Some(v1::read_response::Item::Batches(_))));
    world.bookie.fill(false);
    tokio::time::sleep(Duration::from_millis(2_500)).await;
    for (lane, seq, batch, word) in [
        (0, 1, stamped(42, 1), "ack 0.1 [1]"),
        (1, 0, plain(1, 10), "ack 1.0 [0]"),
    ] {
        session.resume(lane, seq).await;
        session.batch(lane, seq, batch).await;
        assert_eq!(session.word().await, word);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_of_random_items_end_alone_and_without_a_panic() {
    let world = World::new().await;
    let topic = world.topic("a", 3).await;
    for seed in 0..60 {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let mut session = Session::open(&world).await;
        for _ in 0..rng.random_range(1..300) {
            session.try_send(random_item(&mut rng, &topic)).await;
        }
        session.finish();
        // Whatever was sent, the session comes to an end, by itself or with a fault.
        while let Ok(Some(_)) = session.end().await {}
    }
    let mut healthy = Session::on(&world, &topic).await;
    healthy.batch(0, 0, plain(1, 10)).await;
    assert!(healthy.word().await.starts_with("ack 0.0"));
    let metrics = world.get("/metrics").await;
    assert!(metrics.contains("hulse_panics_total 0"), "{metrics}");
    assert!(metrics.contains("hulse_produce_sessions 1"), "{metrics}");
    assert!(metrics.contains("hulse_produce_lanes 1"), "{metrics}");
    assert!(
        metrics.contains("hulse_ingress_in_flight_bytes 0"),
        "{metrics}"
    );
}

fn random_item(rng: &mut ChaCha12Rng, topic: &Bytes) -> produce_up::Item {
    let lane = rng.random_range(0..4);
    let seq = if rng.random_bool(0.05) {
        rng.random()
    } else {
        rng.random_range(0..8)
    };
    match rng.random_range(0..100) {
        0..25 => {
            let mut target = partition(topic, rng.random_range(0..4));
            if rng.random_bool(0.1) {
                target = None;
            }
            produce_up::Item::Open(v1::OpenLane {
                lane,
                partition: target,
                acks: rng.random_range(0..4),
                producer_id: rng.random_range(-2..2),
                producer_epoch: rng.random_range(-2..2),
            })
        }
        25..70 => {
            let batch = match rng.random_range(0..4) {
                0 => Bytes::from(vec![rng.random(); rng.random_range(0..200)]),
                1 => stamped(rng.random_range(0..2), rng.random_range(0..5)),
                _ => plain(rng.random_range(1..4), 10),
            };
            produce_up::Item::Batch(v1::ProduceBatch { lane, seq, batch })
        }
        70..80 => produce_up::Item::Resume(v1::ResumeLane {
            lane,
            from_seq: seq,
        }),
        80..90 => produce_up::Item::Flush(v1::FlushLane { lane, seq }),
        90..98 => produce_up::Item::Close(v1::CloseLane { lane }),
        _ => produce_up::Item::Heartbeat(v1::Heartbeat {}),
    }
}
