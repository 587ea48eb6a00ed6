//! Produce.Session.

use std::collections::BTreeMap;

use bytes::Bytes;
use hulse_proto::error::Reason;
use hulse_proto::limits::{MESSAGE_BYTES_MAX, PROTOCOL_VERSION};
use hulse_proto::wire::v1::{self, produce_down::Item, produce_up};

use super::session::Session;
use super::world::{World, fault, plain, reason, stamped};

#[tokio::test]
async fn session_without_hello_or_of_another_version_is_ended_alone() {
    let world = World::new().await;
    let mut healthy = Session::open(&world).await;
    let mut silent = Session::silent(&world).await;
    silent.flush(0, 0).await;
    assert_eq!(reason(silent.end().await), Reason::InvalidRequest);
    let mut newer = Session::silent(&world).await;
    newer.hello(PROTOCOL_VERSION + 1).await;
    let fault = fault(newer.end().await);
    assert_eq!(fault.reason, Reason::UnsupportedVersion);
    assert_eq!(
        fault.details["protocol_version"],
        PROTOCOL_VERSION.to_string()
    );
    let mut twice = Session::open(&world).await;
    twice.hello(PROTOCOL_VERSION).await;
    assert_eq!(reason(twice.end().await), Reason::InvalidRequest);
    healthy
        .send(produce_up::Item::Heartbeat(v1::Heartbeat {}))
        .await;
    assert!(
        matches!(healthy.next().await, Item::Heartbeat(_)),
        "the others live on"
    );
}

#[tokio::test]
async fn welcome_names_the_limits() {
    let world = World::new().await;
    let mut session = Session::silent(&world).await;
    session.hello(PROTOCOL_VERSION).await;
    let Item::Welcome(welcome) = session.next().await else {
        panic!("no Welcome")
    };
    assert_eq!(
        (welcome.max_batch_bytes, welcome.max_inflight_batches),
        (4 << 20, 5)
    );
    assert_eq!(
        (welcome.max_inflight_bytes, &*welcome.broker),
        (32 << 20, "broker-1")
    );
    let Item::Credit(credit) = session.next().await else {
        panic!("no Credit")
    };
    assert_eq!(credit.bytes, welcome.max_inflight_bytes);
}

#[tokio::test]
async fn wrong_opens_close_their_lane_only() {
    let world = World::new().await;
    let topic = world.topic("a", 1).await;
    let mut session = Session::on(&world, &topic).await;
    let unknown = Bytes::from(vec![9; 16]);
    let quorum = v1::Acks::Quorum;
    session
        .lane(1, &Bytes::from_static(b"short"), 0, quorum, -1)
        .await;
    assert_eq!(session.word().await, "closed 1 INVALID_REQUEST");
    session.lane(1, &unknown, 0, quorum, -1).await;
    assert_eq!(session.word().await, "closed 1 TOPIC_NOT_FOUND");
    session.lane(1, &topic, 7, quorum, -1).await;
    assert_eq!(session.word().await, "closed 1 PARTITION_NOT_FOUND");
    session.lane(1, &topic, 0, v1::Acks::Unspecified, -1).await;
    assert_eq!(session.word().await, "closed 1 INVALID_REQUEST");
    session.lane(1, &topic, 0, v1::Acks::None, 5).await;
    assert_eq!(session.word().await, "closed 1 INVALID_REQUEST");
    session.lane(1, &topic, 0, quorum, -7).await;
    assert_eq!(session.word().await, "closed 1 INVALID_REQUEST");
    session.batch(1, 0, plain(1, 10)).await;
    session.batch(0, 0, plain(1, 10)).await;
    assert_eq!(
        session.word().await,
        "ack 0.0 [0]",
        "what came for the closed lane is dropped"
    );
}

#[tokio::test]
async fn items_for_a_lane_that_never_was_are_refused() {
    let world = World::new().await;
    let mut session = Session::open(&world).await;
    session.batch(3, 0, plain(1, 10)).await;
    assert_eq!(session.word().await, "nack 3.0 INVALID_REQUEST");
    session.resume(3, 0).await;
    assert_eq!(session.word().await, "closed 3 INVALID_REQUEST");
    session.close_lane(3).await;
    assert_eq!(session.word().await, "closed 3 -");
}

#[tokio::test]
async fn gap_is_refused_and_resume_goes_on_in_order() {
    let world = World::new().await;
    let topic = world.topic("a", 1).await;
    let mut session = Session::on(&world, &topic).await;
    session.batch(0, 0, plain(3, 10)).await;
    assert_eq!(session.word().await, "ack 0.0 [0]");
    session.batch(0, 2, plain(1, 10)).await;
    session.batch(0, 3, plain(1, 10)).await;
    assert_eq!(session.word().await, "nack 0.2 INVALID_REQUEST");
    assert_eq!(session.word().await, "nack 0.3 NACKED_BEFORE");
    session.resume(0, 1).await;
    session.batch(0, 1, plain(2, 10)).await;
    session.batch(0, 2, plain(1, 10)).await;
    session.flush(0, 2).await;
    let mut words = vec![session.word().await];
    while words.last().is_none_or(|word| !word.starts_with("flushed")) {
        words.push(session.word().await);
    }
    let together = words == ["ack 0.1 [3, 5]", "flushed 0.2"];
    assert!(
        together || words == ["ack 0.1 [3]", "ack 0.2 [5]", "flushed 0.2"],
        "{words:?}"
    );
}

#[tokio::test]
async fn corrupt_and_oversized_batches_are_refused_and_the_lane_can_go_on() {
    let world = World::with(|config| config.max_batch_bytes = 10_000).await;
    let topic = world.topic("a", 1).await;
    let mut session = Session::on(&world, &topic).await;
    session.batch(0, 0, plain(1, 20_000)).await;
    assert_eq!(session.word().await, "nack 0.0 BATCH_TOO_LARGE");
    session.resume(0, 0).await;
    let mut bytes = plain(1, 10).to_vec();
    *bytes.last_mut().unwrap() ^= 1;
    session.batch(0, 0, bytes.into()).await;
    assert_eq!(session.word().await, "nack 0.0 BATCH_CORRUPT");
    for garbage in [
        Bytes::new(),
        Bytes::from(vec![0; 61]),
        Bytes::from(vec![255; 500]),
    ] {
        session.resume(0, 0).await;
        session.batch(0, 0, garbage).await;
        assert_eq!(session.word().await, "nack 0.0 BATCH_CORRUPT");
    }
    session.resume(0, 0).await;
    session.batch(0, 0, stamped(5, 0)).await;
    assert_eq!(
        session.word().await,
        "nack 0.0 INVALID_REQUEST",
        "not this lane's producer"
    );
    session.resume(0, 0).await;
    session.batch(0, 0, plain(1, 10)).await;
    assert_eq!(session.word().await, "ack 0.0 [0]");
}

#[tokio::test]
async fn message_above_the_limit_ends_the_session_with_a_reason() {
    let world = World::new().await;
    let topic = world.topic("a", 1).await;
    let mut session = Session::on(&world, &topic).await;
    session
        .batch(0, 0, Bytes::from(vec![0; MESSAGE_BYTES_MAX + 1]))
        .await;
    assert_eq!(reason(session.end().await), Reason::InvalidRequest);
    let mut other = Session::on(&world, &topic).await;
    other.batch(0, 0, plain(1, 10)).await;
    assert_eq!(other.word().await, "ack 0.0 [0]");
}

#[tokio::test]
async fn idempotent_producer_is_told_what_is_durable_and_duplicates_are_marked() {
    let world = World::new().await;
    let topic = world.topic("a", 1).await;
    let mut session = Session::open(&world).await;
    session.lane(0, &topic, 0, v1::Acks::Quorum, 42).await;
    let Item::Opened(opened) = session.next().await else {
        panic!("not opened")
    };
    assert_eq!(
        (opened.last_epoch, opened.last_sequence, opened.next_offset),
        (-1, -1, 0)
    );
    session.batch(0, 0, stamped(42, 0)).await;
    assert_eq!(session.word().await, "ack 0.0 [0]");
    session.batch(0, 1, stamped(42, 0)).await;
    let Item::Ack(ack) = session.next().await else {
        panic!("no Ack")
    };
    assert_eq!(
        (ack.batches[0].duplicate, ack.batches[0].base_offset),
        (true, 0)
    );
    session.batch(0, 2, stamped(42, 7)).await;
    assert_eq!(session.word().await, "nack 0.2 OUT_OF_ORDER_SEQUENCE");
    let mut again = Session::open(&world).await;
    again.lane(9, &topic, 0, v1::Acks::Quorum, 42).await;
    let Item::Opened(opened) = again.next().await else {
        panic!("not opened")
    };
    assert_eq!(
        (opened.last_epoch, opened.last_sequence, opened.next_offset),
        (0, 0, 1)
    );
}

#[tokio::test]
async fn acks_none_is_silent_flushes_and_tells_of_a_failure_by_closing() {
    let world = World::new().await;
    let topic = world.topic("a", 1).await;
    let mut session = Session::open(&world).await;
    session.lane(0, &topic, 0, v1::Acks::None, -1).await;
    assert_eq!(session.word().await, "opened 0");
    for seq in 0..50 {
        session.batch(0, seq, plain(1, 10)).await;
    }
    session.flush(0, 49).await;
    assert_eq!(session.word().await, "flushed 0.49");
    session.batch(0, 50, Bytes::from_static(b"garbage")).await;
    assert_eq!(session.word().await, "closed 0 BATCH_CORRUPT");
}

#[tokio::test]
async fn deleted_topic_closes_running_lanes_with_the_reason() {
    let world = World::new().await;
    let topic = world.topic("a", 2).await;
    let mut session = Session::on(&world, &topic).await;
    session.lane(1, &topic, 1, v1::Acks::None, -1).await;
    assert_eq!(session.word().await, "opened 1");
    session.batch(0, 0, plain(1, 10)).await;
    assert_eq!(session.word().await, "ack 0.0 [0]");
    let request = v1::DeleteTopicRequest {
        name: "a".to_owned(),
        topic_uuid: bytes::Bytes::new(),
    };
    world.admin().delete_topic(request).await.unwrap();
    let mut words = [session.word().await, session.word().await];
    words.sort();
    assert_eq!(
        words,
        ["closed 0 TOPIC_DELETING", "closed 1 TOPIC_DELETING"]
    );
    session.lane(2, &topic, 0, v1::Acks::Quorum, -1).await;
    assert_eq!(session.word().await, "closed 2 TOPIC_NOT_FOUND");
    let second = world.topic("a", 1).await;
    assert_ne!(second, topic);
    session.lane(3, &second, 0, v1::Acks::Quorum, -1).await;
    assert_eq!(session.word().await, "opened 3");
    session.batch(3, 0, plain(1, 10)).await;
    assert_eq!(
        session.word().await,
        "ack 3.0 [0]",
        "nothing of the old topic is left"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousand_lanes_share_one_session() {
    let world = World::new().await;
    let topic = world.topic("a", 1000).await;
    let mut session = Session::open(&world).await;
    for lane in 0..1000 {
        session.lane(lane, &topic, lane, v1::Acks::Quorum, -1).await;
        for seq in 0..3 {
            session.batch(lane, seq, plain(1, 10)).await;
        }
        session.close_lane(lane).await;
    }
    let mut acked: BTreeMap<u32, u64> = BTreeMap::new();
    let (mut opened, mut closed) = (0, 0);
    while closed < 1000 {
        match session.next().await {
            Item::Opened(_) => opened += 1,
            Item::Ack(ack) => {
                let next = acked.entry(ack.lane).or_default();
                assert_eq!(*next, ack.first_seq);
                *next += ack.batches.len() as u64;
            }
            Item::Closed(lane) => {
                assert_eq!((lane.fault, acked[&lane.lane]), (None, 3));
                closed += 1;
            }
            Item::Credit(_) | Item::Heartbeat(_) => {}
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(opened, 1000);
}

#[tokio::test]
async fn broker_full_of_bytes_stops_reading_and_goes_on_when_they_are_stored() {
    let world = World::with(|config| {
        config.ingress_bytes = 100_000;
        config.max_batch_bytes = 50_000;
    })
    .await;
    let topic = world.topic("a", 1).await;
    let mut session = Session::on(&world, &topic).await;
    session.batch(0, 0, plain(1, 10)).await;
    assert_eq!(session.word().await, "ack 0.0 [0]");
    let mut other = Session::on(&world, &topic).await;
    world.bookie.hold(true);
    for seq in 1..4 {
        session.batch(0, seq, plain(1, 40_000)).await;
    }
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    other.batch(0, 0, plain(1, 40_000)).await;
    world.bookie.hold(false);
    session.flush(0, 3).await;
    let mut words = Vec::new();
    while words
        .last()
        .is_none_or(|word: &String| !word.starts_with("flushed"))
    {
        words.push(session.word().await);
    }
    assert!(
        words.iter().all(|word| !word.starts_with("nack")),
        "{words:?}"
    );
    assert!(other.word().await.starts_with("ack 0.0"));
}

#[tokio::test]
async fn client_that_is_done_gets_every_answer_before_the_end() {
    let world = World::new().await;
    let topic = world.topic("a", 1).await;
    let mut session = Session::on(&world, &topic).await;
    for seq in 0..5 {
        session.batch(0, seq, plain(1, 10)).await;
    }
    session.finish();
    let mut acked = 0;
    while let Some(item) = session.end().await.unwrap() {
        if let Item::Ack(ack) = item {
            acked += ack.batches.len();
        }
    }
    assert_eq!(acked, 5);
}

#[tokio::test]
async fn shutdown_answers_what_was_taken_and_says_so() {
    let mut world = World::new().await;
    let topic = world.topic("a", 1).await;
    let mut session = Session::on(&world, &topic).await;
    session.batch(0, 0, plain(1, 10)).await;
    assert_eq!(session.word().await, "ack 0.0 [0]");
    world.bookie.hold(true);
    session.batch(0, 1, plain(1, 10)).await;
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    world.stop();
    tokio::time::sleep(std::time::Duration::from_millis(100)).await;
    world.bookie.hold(false);
    assert_eq!(session.word().await, "ack 0.1 [1]");
    assert_eq!(reason(session.end().await), Reason::ShuttingDown);
    world.stopped().await;
}
