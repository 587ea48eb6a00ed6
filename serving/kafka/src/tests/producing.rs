//! Produce: what is stored, what is answered, what is refused.

use std::time::Duration;

use bytes::Bytes;
use hulse_proto::batch::Compression;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{PartitionId, TopicId};
use kafka_protocol::messages::{ProduceRequest, TransactionalId};
use serving_broker::testing::refuse_batches;

use super::world::*;
use crate::error_code;

fn code(response: &kafka_protocol::messages::ProduceResponse) -> i16 {
    response.responses[0].partition_responses[0].error_code
}

#[tokio::test(start_paused = true)]
async fn fetched_bytes_are_sent_bytes_but_for_offset_and_epoch() {
    let world = World::new().await;
    let mut client = world.connect();
    client.look_up("t").await;
    for (index, codec) in [Compression::None, Compression::Lz4, Compression::Zstd]
        .into_iter()
        .enumerate()
    {
        let sent = batch(codec, &[(5, b"a"), (6, b"b")]);
        let answer = client.produce("t", sent.clone()).await;
        assert_eq!(
            (answer.error_code, answer.base_offset),
            (0, 2 * index as i64)
        );
        let data = client.fetch("t", answer.base_offset).await;
        let got = data.records.unwrap();
        assert_eq!(got[16..], sent[16..], "{codec}");
        assert_eq!(got[8..12], sent[8..12]);
        assert_eq!(got[..8], answer.base_offset.to_be_bytes());
        assert_eq!(data.high_watermark, answer.base_offset + 2);
    }
}

#[tokio::test(start_paused = true)]
async fn every_served_version_stores() {
    let world = World::new().await;
    let mut client = world.connect();
    let id = client.look_up("t").await.topic_id;
    for version in 3..=13 {
        let mut request = produce("t", -1, vec![(0, one(10))]);
        if version >= 13 {
            request.topic_data[0].topic_id = id;
            request.topic_data[0].name = topic_name("");
        }
        let response = client.ask(version, &request).await;
        let partition = &response.responses[0].partition_responses[0];
        assert_eq!(partition.error_code, 0, "version {version}");
        assert_eq!(partition.base_offset, i64::from(version) - 3);
    }
}

/// The batch with one more attribute, and the checksum of that.
fn with_attribute(batch: &[u8], attribute: u8) -> Bytes {
    let mut batch = batch.to_vec();
    batch[22] |= attribute;
    repacked(&batch, &batch[61..])
}

#[tokio::test(start_paused = true)]
async fn wrong_batches_have_their_codes_and_nothing_is_stored() {
    let world = World::new().await;
    let mut client = world.connect();
    client.look_up("t").await;
    let good = one(10);
    let mut damaged = good.to_vec();
    *damaged.last_mut().unwrap() ^= 1;
    let twice = [&good[..], &good[..]].concat();
    let mut transactional = good.to_vec();
    transactional[22] |= 1 << 4;
    let mut old = good.to_vec();
    old[16] = 1;
    let wrong: [(Bytes, i16); 5] = [
        (damaged.into(), 2),
        (twice.into(), 2),
        (old.into(), 2),
        (Bytes::new(), error_code::INVALID_RECORD),
        (Bytes::from_static(b"not a batch"), 2),
    ];
    for (batch, expected) in &wrong {
        let answer = client.produce("t", batch.clone()).await;
        assert_eq!(answer.error_code, *expected);
        assert_eq!(answer.base_offset, -1);
        assert!(answer.error_message.is_some());
    }
    // What a broker says of its batches: who wrote their times, and when their tombstones go.
    client
        .create("append", 1, &[("message.timestamp.type", "LogAppendTime")])
        .await;
    for (topic, attribute, expected) in [
        ("t", 1 << 3, error_code::INVALID_RECORD),
        ("t", 1 << 6, error_code::INVALID_RECORD),
        ("append", 1 << 6, error_code::INVALID_RECORD),
        ("append", 1 << 3, 0),
    ] {
        let batch = with_attribute(&good, attribute);
        let answer = client.produce(topic, batch).await;
        assert_eq!(answer.error_code, expected, "{topic} {attribute}");
    }
    let tiny = World::with(|config| config.max_batch_bytes = 1 << 10).await;
    let mut other = tiny.connect();
    other.look_up("t").await;
    assert_eq!(other.produce("t", one(2 << 10)).await.error_code, 10);
    assert_eq!(client.fetch("t", 0).await.high_watermark, 0);
}

#[tokio::test(start_paused = true)]
async fn unknown_topic_partition_acks_and_transaction_have_their_codes() {
    let world = World::new().await;
    let mut client = world.connect();
    client.look_up("t").await;
    let unknown = produce("nobody", -1, vec![(0, one(1))]);
    assert_eq!(code(&client.ask(9, &unknown).await), 3);
    for index in [1, -1, i32::MAX] {
        let request = produce("t", -1, vec![(index, one(1))]);
        assert_eq!(code(&client.ask(9, &request).await), 3, "{index}");
    }
    let named = produce("a/b", -1, vec![(0, one(1))]);
    assert_eq!(
        code(&client.ask(9, &named).await),
        error_code::INVALID_TOPIC
    );
    for acks in [2, -2] {
        let request = produce("t", acks, vec![(0, one(1))]);
        assert_eq!(code(&client.ask(9, &request).await), 21);
    }
    let request: ProduceRequest =
        produce("t", -1, vec![(0, one(1))]).with_transactional_id(Some(TransactionalId(str("x"))));
    assert_eq!(
        code(&client.ask(9, &request).await),
        error_code::INVALID_REQUEST
    );
    let mut by_id = produce("", -1, vec![(0, one(1))]);
    by_id.topic_data[0].topic_id = uuid::Uuid::from_u128(5);
    let refused = client.ask(13, &by_id).await;
    assert_eq!(code(&refused), error_code::UNKNOWN_TOPIC_ID);
    // The topic is known, its partition is not.
    by_id.topic_data[0].topic_id = client.look_up("t").await.topic_id;
    by_id.topic_data[0].partition_data[0].index = 1;
    assert_eq!(code(&client.ask(13, &by_id).await), 3);
}

#[tokio::test(start_paused = true)]
async fn zstd_is_refused_for_versions_that_do_not_know_it() {
    let world = World::new().await;
    let mut client = world.connect();
    client.look_up("t").await;
    let zstd = batch(Compression::Zstd, &[(1, b"z")]);
    let request = produce("t", -1, vec![(0, zstd)]);
    assert_eq!(
        code(&client.ask(6, &request).await),
        error_code::UNSUPPORTED_COMPRESSION
    );
    assert_eq!(code(&client.ask(7, &request).await), 0);
    let fetch = fetch("t", &[(0, 0)]);
    let data = client.ask(9, &fetch).await.responses[0].partitions[0].clone();
    assert_eq!(data.error_code, error_code::UNSUPPORTED_COMPRESSION);
    let data = client.ask(10, &fetch).await.responses[0].partitions[0].clone();
    assert_eq!(
        (data.error_code, values(&data)),
        (0, vec![Bytes::from("z")])
    );
}

#[tokio::test(start_paused = true)]
async fn resent_batches_of_an_idempotent_producer_get_their_first_offsets() {
    let world = World::new().await;
    let mut client = world.connect();
    client.look_up("t").await;
    for sequence in 0..6 {
        let answer = client.produce("t", stamped(7, 0, sequence)).await;
        assert_eq!(
            (answer.error_code, answer.base_offset),
            (0, i64::from(sequence))
        );
    }
    for sequence in 1..6 {
        let answer = client.produce("t", stamped(7, 0, sequence)).await;
        assert_eq!(
            (answer.error_code, answer.base_offset),
            (0, i64::from(sequence))
        );
    }
    // The sixth last is out of the window, and one is missing before the other.
    for sequence in [0, 9] {
        assert_eq!(
            client
                .produce("t", stamped(7, 0, sequence))
                .await
                .error_code,
            45
        );
    }
    assert_eq!(client.produce("t", stamped(7, 1, 0)).await.error_code, 0);
    assert_eq!(client.produce("t", stamped(7, 0, 6)).await.error_code, 47);
    assert_eq!(client.fetch("t", 0).await.high_watermark, 7);
}

#[tokio::test(start_paused = true)]
async fn without_acks_there_is_no_answer_and_an_error_ends_the_connection() {
    let world = World::new().await;
    let mut client = world.connect();
    client.look_up("t").await;
    let request = produce("t", 0, vec![(0, one(1))]);
    client.stream_only(9, &request).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(client.fetch("t", 0).await.high_watermark, 1);
    let wrong = produce("nobody", 0, vec![(0, one(1))]);
    client.stream_only(9, &wrong).await;
    assert!(client.frame().await.is_none(), "the connection is closed");
}

#[tokio::test(start_paused = true)]
async fn batch_that_is_not_confirmed_in_the_given_time_is_answered_as_such() {
    let world = World::new().await;
    let mut client = world.connect();
    client.look_up("t").await;
    client.produce("t", one(1)).await;
    world.memory.bookie.hold(true);
    let request = produce("t", -1, vec![(0, one(1))]).with_timeout_ms(200);
    let began = tokio::time::Instant::now();
    assert_eq!(
        code(&client.ask(9, &request).await),
        error_code::REQUEST_TIMED_OUT
    );
    assert_eq!(began.elapsed().as_millis(), 200);
}

#[tokio::test(start_paused = true)]
async fn topic_of_append_time_keeps_the_owners_clock_and_says_so() {
    let world = World::new().await;
    let mut client = world.connect();
    let config = [("message.timestamp.type", "LogAppendTime")];
    assert_eq!(client.create("t", 1, &config).await, 0);
    world.memory.wall.set(1_800_000_000_000);
    for codec in [Compression::None, Compression::Zstd] {
        let answer = client
            .produce("t", batch(codec, &[(5, b"a"), (9, b"b")]))
            .await;
        assert_eq!(answer.error_code, 0);
        let time = answer.log_append_time_ms;
        assert!(time >= 1_800_000_000_000, "{time}");
        let data = client.fetch("t", answer.base_offset).await;
        let times: Vec<i64> = records(&data).iter().map(|(_, time, _)| *time).collect();
        assert_eq!(times, [time, time]);
    }
    // Also in another life of the owner.
    let world = world.restarted().await;
    let mut client = world.connect();
    let answer = client
        .produce("t", batch(Compression::None, &[(5, b"c")]))
        .await;
    assert!(answer.log_append_time_ms >= 1_800_000_000_000);
    client.look_up("plain").await;
    assert_eq!(client.produce("plain", one(1)).await.log_append_time_ms, -1);
}

/// A producer that is held up by a backlog tries again by itself, and what it sends ahead meanwhile does not overtake.
#[tokio::test(start_paused = true)]
async fn producer_behind_a_backlog_is_told_to_try_again_and_why() {
    let world = World::new().await;
    let mut client = world.connect();
    let id = client.look_up("t").await.topic_id;
    let first = client.produce("t", stamped(7, 0, 0)).await;
    assert_eq!(first.error_code, 0);
    let partition = PartitionId {
        topic: TopicId(id),
        index: 0,
    };
    let open = world.front.partitions().opened(partition).unwrap();
    let words = "subscription public/default/slow keeps too much";
    refuse_batches(&open, Some(Fault::new(Reason::BacklogExceeded, words)));
    let refused = client.produce("t", stamped(7, 0, 1)).await;
    assert_eq!(refused.error_code, error_code::NOT_ENOUGH_REPLICAS);
    assert_eq!(refused.error_message.unwrap().as_str(), words);
    refuse_batches(&open, None);
    let ahead = client.produce("t", stamped(7, 0, 2)).await;
    assert_eq!(ahead.error_code, error_code::OUT_OF_ORDER_SEQUENCE_NUMBER);
    for (sequence, offset) in [(1, 1), (2, 2)] {
        let stored = client.produce("t", stamped(7, 0, sequence)).await;
        assert_eq!((stored.error_code, stored.base_offset), (0, offset));
    }
}
