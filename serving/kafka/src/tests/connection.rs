//! Connections: order, bounds, ends.

use std::time::Duration;

use bytes::{BufMut, Bytes, BytesMut};
use futures::future::join_all;
use hulse_proto::batch::Compression;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    ApiKey, FetchRequest, ListOffsetsRequest, MetadataRequest, ProduceRequest,
};
use tokio::io::AsyncWriteExt;
use tokio::time::Instant;

use super::world::*;
use crate::error_code;

#[tokio::test(start_paused = true)]
async fn pipelined_requests_are_answered_and_stored_in_their_order() {
    // Case OR-03: a topic that is not open yet, batches of nine and of one.
    let world = World::new().await;
    let mut client = world.connect();
    client.create("t", 1, &[]).await;
    let mut expected = Vec::new();
    for round in 0..60_u32 {
        let count = if round % 2 == 0 { 9 } else { 1 };
        let values: Vec<Vec<u8>> = (0..count)
            .map(|n| format!("{round}-{n}").into_bytes())
            .collect();
        let records: Vec<(i64, &[u8])> = values.iter().map(|value| (1, &value[..])).collect();
        let sent = batch(Compression::None, &records);
        client.send(9, &produce("t", -1, vec![(0, sent)])).await;
        client.send(9, &MetadataRequest::default()).await;
        client.send(11, &fetch("t", &[(0, 0)])).await;
        expected.extend(values);
        // The answers are looked at late, as they fit the pipe.
        if round % 3 == 2 {
            for _ in 0..3 {
                let response = client.receive::<ProduceRequest>(9).await;
                assert_eq!(response.responses[0].partition_responses[0].error_code, 0);
                client.receive::<MetadataRequest>(9).await;
                client.receive::<FetchRequest>(11).await;
            }
        }
    }
    let found = values(&client.fetch("t", 0).await);
    assert_eq!(found, expected);
}

#[tokio::test(start_paused = true)]
async fn unknown_requests_and_versions_end_the_connection() {
    let world = World::new().await;
    for (key, version) in [
        (ApiKey::Produce as i16, 2),
        (ApiKey::Produce as i16, 14),
        (ApiKey::Fetch as i16, 3),
        (ApiKey::Fetch as i16, 18),
        (ApiKey::JoinGroup as i16, 10),
        (ApiKey::FindCoordinator as i16, 5),
        (ApiKey::Heartbeat as i16, 5),
        (ApiKey::DescribeAcls as i16, 1),
        (ApiKey::SaslHandshake as i16, 1),
        (ApiKey::ApiVersions as i16, -1),
        (-1, 0),
        (999, 0),
    ] {
        let mut client = world.connect();
        let mut frame = BytesMut::new();
        frame.put_u32(30);
        frame.put_i16(key);
        frame.put_i16(version);
        frame.put_i32(1);
        frame.put_i16(-1);
        frame.put_slice(&[0; 20]);
        client.stream.write_all(&frame).await.unwrap();
        assert!(
            client.frame().await.is_none(),
            "key {key} version {version}"
        );
    }
}

#[tokio::test(start_paused = true)]
async fn frames_of_impossible_lengths_end_the_connection_before_their_bytes() {
    let world = World::new().await;
    for (length, key) in [
        (-1, 3),
        (0, 3),
        (7, 3),
        (i32::MAX, 0),
        ((16 << 20) + 1, 0),
        ((8 << 20) + 1, 1),
    ] {
        let mut client = world.connect();
        let mut opening = BytesMut::new();
        opening.put_i32(length);
        opening.put_i16(key);
        client.stream.write_all(&opening).await.unwrap();
        assert!(client.frame().await.is_none(), "{length}");
    }
}

/// What is no batch, which nobody looks at before it is complete.
fn junk(bytes: usize) -> Bytes {
    vec![0; bytes].into()
}

#[tokio::test(start_paused = true)]
async fn frame_that_stands_still_is_given_up_and_its_room_is_free() {
    let world = World::new().await;
    let all = world.front.config().ingress_bytes;
    for (bytes, sent, time) in [
        (1 << 19, 2, 30),
        (1 << 19, 5, 30),
        (1 << 19, 300, 30),
        (1 << 19, 1 << 18, 33),
        (4 << 20, 100, 5),
        (4 << 20, 1 << 20, 8),
    ] {
        let mut client = world.connect();
        let request = frame(9, &produce("t", -1, vec![(0, junk(bytes))]), 1);
        let began = Instant::now();
        client.stream.write_all(&request[..sent]).await.unwrap();
        tokio::time::sleep(Duration::from_millis(1)).await;
        let is_free = world.front.try_room(all).is_some();
        assert_eq!(
            is_free,
            sent < 16 << 10,
            "who only names a length holds nothing"
        );
        assert!(client.frame().await.is_none());
        assert_eq!(began.elapsed().as_secs(), time, "{sent} of {bytes}");
        assert!(world.front.try_room(all).is_some());
    }
}

#[tokio::test(start_paused = true)]
async fn frame_that_comes_at_a_pace_is_taken_and_one_that_trickles_is_not() {
    let world = World::new().await;
    let mut client = world.connect();
    client.look_up("t").await;
    for (rate, taken) in [(300 << 10, true), (100 << 10, false)] {
        let mut client = world.connect();
        let request = frame(9, &produce("t", -1, vec![(0, junk(3 << 20))]), 1);
        let mut went = true;
        for second in request.chunks(rate) {
            went &= client.stream.write_all(second).await.is_ok();
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(went && client.frame().await.is_some(), taken, "{rate}");
    }
}

#[tokio::test(start_paused = true)]
async fn produce_frame_takes_no_more_than_a_part_of_the_room() {
    let world = World::with(|config| config.ingress_bytes = 32 << 20).await;
    for (length, goes_on) in [(8 << 20, true), ((8 << 20) + 1, false)] {
        let mut client = world.connect();
        let mut opening = BytesMut::new();
        opening.put_i32(length);
        opening.put_i16(ApiKey::Produce as i16);
        client.stream.write_all(&opening).await.unwrap();
        let wait = Duration::from_millis(1);
        let closed = tokio::time::timeout(wait, client.frame()).await.is_ok();
        assert_eq!(closed, !goes_on, "{length}");
    }
}

#[tokio::test(start_paused = true)]
async fn idle_connection_is_closed_after_ten_minutes_and_not_before() {
    let world = World::new().await;
    let mut client = world.connect();
    client.look_up("t").await;
    tokio::time::sleep(Duration::from_secs(599)).await;
    client.look_up("t").await;
    let began = Instant::now();
    assert!(client.frame().await.is_none());
    assert_eq!(began.elapsed().as_secs(), 600);
}

#[tokio::test(start_paused = true)]
async fn client_that_goes_away_leaves_no_waiting_fetch_behind() {
    let world = World::new().await;
    let mut client = world.connect();
    client.look_up("t").await;
    let idle = world.served.waiting.available_permits();
    client
        .send(11, &fetch("t", &[(0, 0)]).with_max_wait_ms(60_000))
        .await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(world.served.waiting.available_permits() < idle);
    drop(client);
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert_eq!(world.served.waiting.available_permits(), idle);
}

#[tokio::test(start_paused = true)]
async fn producers_together_hold_no_more_than_the_ingress_budget() {
    let world = World::with(|config| config.ingress_bytes = 256 << 10).await;
    let mut first = world.connect();
    first.look_up("t").await;
    first.produce("t", one(1)).await;
    world.memory.bookie.hold(true);
    // Each one's first batch waits for the bookie; nothing more is read of the second.
    let mut senders = Vec::new();
    for _ in 0..8 {
        let mut client = world.connect();
        senders.push(tokio::spawn(async move {
            for _ in 0..2 {
                let request = produce("t", -1, vec![(0, one(100 << 10))]);
                client.send(9, &request).await;
            }
            let mut answers = Vec::new();
            for _ in 0..2 {
                answers.push(client.receive::<ProduceRequest>(9).await);
            }
            answers
        }));
    }
    tokio::time::sleep(Duration::from_millis(300)).await;
    let held = world.front.metrics().ingress_bytes().get();
    assert!((150 << 10..=256 << 10).contains(&held), "{held}");
    // Who asks for little does not wait behind them.
    let began = Instant::now();
    assert_eq!(first.look_up("t").await.error_code, 0);
    first.fetch("t", 0).await;
    assert!(began.elapsed().is_zero());
    world.memory.bookie.hold(false);
    let mut throttled = 0;
    for answers in join_all(senders).await {
        for answer in answers.unwrap() {
            assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
            throttled += i32::from(answer.throttle_time_ms > 0);
        }
    }
    assert!(throttled > 0, "who waited for room is told so");
}

#[tokio::test(start_paused = true)]
async fn frame_that_waits_long_for_room_does_not_make_its_connection_idle() {
    let world = World::with(|config| config.ingress_bytes = 4 << 20).await;
    let mut client = world.connect();
    client.look_up("t").await;
    let all = world.front.room(4 << 20).await;
    let request = produce("t", -1, vec![(0, one(100 << 10))]);
    let sent = async {
        client.send(9, &request).await;
        client.receive::<ProduceRequest>(9).await
    };
    let freed = async {
        tokio::time::sleep(Duration::from_secs(1_300)).await;
        drop(all);
    };
    let (answer, ()) = tokio::join!(sent, freed);
    assert_eq!(answer.responses[0].partition_responses[0].error_code, 0);
}

#[tokio::test(start_paused = true)]
async fn decoded_requests_together_hold_no_more_than_their_share_of_memory() {
    let world = World::new().await;
    let mut client = world.connect();
    client.look_up("t").await;
    let all = world.served.decoded.available_permits();
    let held = world
        .served
        .decoded
        .clone()
        .acquire_many_owned(all as u32 - 1_000_000);
    let held = held.await.unwrap();
    // Of 512 bytes each: the first has room, also a small one that needs none.
    let ask = |count| {
        let indexes: Vec<(i32, i64)> = (0..count).map(|index| (index, 0)).collect();
        fetch("nobody", &indexes)
    };
    client.ask(11, &ask(1_500)).await;
    client.ask(11, &ask(20)).await;
    client.send(11, &ask(3_000)).await;
    let early = tokio::time::timeout(Duration::from_secs(5), client.frame()).await;
    assert!(early.is_err(), "it has no room");
    drop(held);
    assert!(client.frame().await.is_some());
    assert_eq!(world.served.decoded.available_permits(), all);
}

#[tokio::test(start_paused = true)]
async fn failed_requests_are_counted_as_such() {
    let world = World::new().await;
    let mut client = world.connect();
    client.look_up("t").await;
    client.produce("t", one(1)).await;
    client.produce("nobody", one(1)).await;
    client.fetch("nobody", 0).await;
    let metrics = world.front.metrics();
    for (api, code, count) in [
        ("Kafka.Metadata", "OK", 1),
        ("Kafka.Produce", "OK", 1),
        ("Kafka.Produce", "UNKNOWN_TOPIC_OR_PARTITION", 1),
        ("Kafka.Fetch", "UNKNOWN_TOPIC_OR_PARTITION", 1),
    ] {
        assert_eq!(metrics.requests_ended(api, code), count, "{api} {code}");
    }
}

#[tokio::test(start_paused = true)]
async fn draining_broker_answers_what_it_took_and_closes() {
    let world = World::new().await;
    let mut client = world.connect();
    client.look_up("t").await;
    client
        .send(11, &fetch("t", &[(0, 0)]).with_max_wait_ms(60_000))
        .await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    world.front.drain().cancel();
    client.receive::<FetchRequest>(11).await;
    assert!(client.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn request_of_a_hundred_thousand_elements_is_refused() {
    let world = World::new().await;
    let mut client = world.connect();
    client.look_up("t").await;
    let indexes: Vec<(i32, i64)> = (0..99_998).map(|index| (index, 0)).collect();
    let response = client.ask(11, &fetch("nobody", &indexes)).await;
    assert_eq!(response.responses[0].partitions.len(), 99_998);
    let mut body = BytesMut::new();
    body.put_i16(ApiKey::ListOffsets as i16);
    body.put_i16(1);
    body.put_i32(1);
    body.put_i16(-1);
    body.put_i32(-1);
    body.put_i32(i32::MAX);
    let mut frame = BytesMut::new();
    frame.put_u32(body.len() as u32);
    frame.put_slice(&body);
    client.stream.write_all(&frame).await.unwrap();
    assert!(client.frame().await.is_none());
    let _ = ListOffsetsRequest::default();
}

#[tokio::test(start_paused = true)]
async fn long_name_that_would_be_repeated_for_each_partition_ends_the_connection() {
    let world = World::new().await;
    let name = "n".repeat(1_000);
    let mut client = world.connect();
    client.send(11, &fetch(&name, &[(0, 0), (1, 0)])).await;
    assert!(client.frame().await.is_none());
    client = world.connect();
    client.send(9, &produce(&name, -1, vec![(0, one(1))])).await;
    assert!(client.frame().await.is_none());
    // Where it is said once, and where it is hardly too long, there is an answer.
    client = world.connect();
    let invalid = error_code::INVALID_TOPIC;
    assert_eq!(client.look_up(&name).await.error_code, invalid);
    let answer = client.produce(&name[..300], one(1)).await;
    assert_eq!(answer.error_code, invalid);
}

#[tokio::test(start_paused = true)]
async fn answers_behind_one_that_is_not_ready_are_bounded() {
    let world = World::new().await;
    let mut client = world.connect();
    client.create("wide", 5_000, &[]).await;
    let metadata = || {
        let topic = MetadataRequestTopic::default().with_name(Some(topic_name("wide")));
        MetadataRequest::default().with_topics(Some(vec![topic]))
    };
    world.memory.slow_openings(Duration::from_secs(2));
    let row = ListOffsetsPartition::default().with_timestamp(-1);
    let topic = ListOffsetsTopic::default().with_name(topic_name("wide"));
    let places = ListOffsetsRequest::default().with_topics(vec![topic.with_partitions(vec![row])]);
    client.send(7, &places).await;
    for _ in 0..100 {
        client.send(9, &metadata()).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let made = world.front.metrics().requests_ended("Kafka.Metadata", "OK");
    let bytes = 26 * 5_000;
    assert!(
        (2..=(1 << 20) / bytes + 2).contains(&(made as usize)),
        "{made}"
    );
    client.receive::<ListOffsetsRequest>(7).await;
    for _ in 0..100 {
        let response = client.receive::<MetadataRequest>(9).await;
        assert_eq!(response.topics[0].partitions.len(), 5_000);
    }
}

#[tokio::test(start_paused = true)]
async fn rows_of_an_answer_have_room_until_they_are_written() {
    let world = World::new().await;
    let mut client = world.connect();
    client.look_up("t").await;
    let all = world.served.decoded.available_permits();
    let free = || world.served.decoded.available_permits();
    let indexes: Vec<i32> = (0..2_000).collect();
    let fetched: Vec<(i32, i64)> = indexes.iter().map(|index| (*index, 0)).collect();
    let produced = indexes.iter().map(|index| (*index, Bytes::new())).collect();
    client.send(12, &fetch("nobody", &fetched)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(free() < all, "more than the pipe holds is written");
    client.receive::<FetchRequest>(12).await;
    client.send(9, &produce("nobody", -1, produced)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert!(free() < all);
    let answer = client.receive::<ProduceRequest>(9).await;
    let rows = answer.responses[0].partition_responses.iter();
    let said: Vec<bool> = rows.map(|row| row.error_message.is_some()).collect();
    assert!(said[0] && !said[1..].contains(&true), "words are said once");
    client.look_up("t").await;
    assert_eq!(free(), all);
}

#[tokio::test(start_paused = true)]
async fn large_frames_that_are_slow_leave_room_for_small_ones() {
    let world = World::new().await;
    let mut client = world.connect();
    client.look_up("t").await;
    let largest = world.front.config().ingress_bytes / 4 - 1_000;
    let request = frame(9, &produce("t", -1, vec![(0, junk(largest))]), 1);
    let mut slow: Vec<_> = (0..8).map(|_| world.connect()).collect();
    for other in &mut slow {
        other.stream.write_all(&request[..20_000]).await.unwrap();
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    let began = Instant::now();
    assert_eq!(client.produce("t", one(500_000)).await.error_code, 0);
    assert!(began.elapsed() < Duration::from_secs(1));
    // Those that are given up make room for the next, and a whole one is taken.
    tokio::time::sleep(Duration::from_secs(20)).await;
    client
        .send(9, &produce("t", -1, vec![(0, junk(largest))]))
        .await;
    let answer = client.receive::<ProduceRequest>(9).await;
    assert_ne!(answer.responses[0].partition_responses[0].error_code, 0);
}
