//! Fetch: limits, waiting, order (case KA-05).

use std::time::Duration;

use bytes::Bytes;
use hulse_proto::batch::Compression;
use kafka_protocol::messages::FetchRequest;
use kafka_protocol::messages::fetch_response::PartitionData;
use tokio::time::Instant;

use super::world::*;
use crate::error_code;

/// Partition 0 of the first topic.
fn data(response: &kafka_protocol::messages::FetchResponse) -> &PartitionData {
    &response.responses[0].partitions[0]
}

#[tokio::test(start_paused = true)]
async fn every_version_answers_with_records_and_offsets() {
    let world = World::new().await;
    let mut client = world.connect();
    let id = client.look_up("t").await.topic_id;
    client
        .produce("t", batch(Compression::None, &[(1, b"a"), (2, b"b")]))
        .await;
    client.produce("t", one(9 << 10)).await;
    for version in 4..=17 {
        let mut request = fetch("t", &[(0, 0)]);
        if version >= 13 {
            request.topics[0].topic_id = id;
            request.topics[0].topic = topic_name("");
        }
        let response = client.ask(version, &request).await;
        assert_eq!((response.error_code, response.session_id), (0, 0));
        let topic = &response.responses[0];
        match version >= 13 {
            true => assert_eq!(topic.topic_id, id),
            false => assert_eq!(topic.topic, topic_name("t")),
        }
        let data = data(&response);
        assert_eq!(
            (
                data.error_code,
                data.high_watermark,
                data.last_stable_offset
            ),
            (0, 3, 3)
        );
        if version >= 5 {
            assert_eq!(data.log_start_offset, 0);
        }
        assert_eq!(values(data).len(), 3, "version {version}");
    }
}

#[tokio::test(start_paused = true)]
async fn offset_within_a_batch_gets_the_whole_batch_and_outside_the_log_an_error() {
    let world = World::new().await;
    let mut client = world.connect();
    client.look_up("t").await;
    client
        .produce(
            "t",
            batch(Compression::None, &[(1, b"a"), (2, b"b"), (3, b"c")]),
        )
        .await;
    let found = client.fetch("t", 1).await;
    assert_eq!(values(&found), ["a", "b", "c"]);
    assert!(records(&client.fetch("t", 3).await).is_empty());
    for offset in [4, -1, i64::MAX] {
        let found = client.fetch("t", offset).await;
        assert_eq!(found.error_code, error_code::OFFSET_OUT_OF_RANGE);
        assert_eq!((found.log_start_offset, found.high_watermark), (0, 3));
    }
}

#[tokio::test(start_paused = true)]
async fn first_batch_comes_whole_however_small_the_limits_are() {
    let world = World::new().await;
    let mut client = world.connect();
    client.look_up("t").await;
    for bytes in [126 << 10, 900 << 10, 10] {
        client.produce("t", one(bytes)).await;
    }
    for (partition, whole) in [(1, 1 << 20), (1 << 10, 1 << 20), (1 << 20, 1 << 10), (0, 0)] {
        let mut next = 0;
        let mut sizes = Vec::new();
        while next < 3 {
            let mut request = fetch("t", &[(0, next)]).with_max_bytes(whole);
            request.topics[0].partitions[0].partition_max_bytes = partition;
            let response = client.ask(11, &request).await;
            let got = records(data(&response));
            assert_eq!(got.len(), 1);
            sizes.push(got[0].2.len());
            next = got[0].0 as i64 + 1;
        }
        assert_eq!(sizes, [126 << 10, 900 << 10, 10]);
    }
}

#[tokio::test(start_paused = true)]
async fn no_partition_starves_behind_one_that_is_always_full() {
    let world = World::new().await;
    let mut client = world.connect();
    client.create("t", 3, &[]).await;
    for index in 0..3 {
        for _ in 0..4 {
            let request = produce("t", -1, vec![(index, one(20 << 10))]);
            client.ask(9, &request).await;
        }
    }
    let mut next = [0; 3];
    for _ in 0..12 {
        let wanted: Vec<(i32, i64)> = (0..3).zip(next).collect();
        let request = fetch("t", &wanted).with_max_bytes(1 << 10);
        let response = client.ask(11, &request).await;
        let with_records: Vec<_> = response.responses[0]
            .partitions
            .iter()
            .filter(|partition| !records(partition).is_empty())
            .collect();
        assert_eq!(with_records.len(), 1, "the limit lets one in");
        next[with_records[0].partition_index as usize] += 1;
    }
    assert_eq!(next, [4; 3]);
}

#[tokio::test(start_paused = true)]
async fn full_answer_reads_no_further_and_the_next_begins_with_what_was_left_out() {
    let world = World::new().await;
    let mut client = world.connect();
    client.create("t", 4, &[]).await;
    for (index, bytes) in [(0, 6_000), (1, 6_000), (2, 100), (3, 100)] {
        let request = produce("t", -1, vec![(index, one(bytes))]);
        client.ask(9, &request).await;
    }
    let mut next = [0; 4];
    for expected in [vec![0], vec![1, 2, 3]] {
        let wanted: Vec<(i32, i64)> = (0..4).zip(next).collect();
        // As many bytes as can never come: an answer that is full does not wait for them.
        let request = fetch("t", &wanted)
            .with_max_bytes(10_000)
            .with_min_bytes(10_000)
            .with_max_wait_ms(30_000);
        let began = Instant::now();
        let response = client.ask(11, &request).await;
        if expected.len() == 1 {
            assert!(began.elapsed().is_zero(), "nothing more fits");
        }
        let partitions = response.responses[0].partitions.iter();
        let with_records = partitions.filter(|one| !records(one).is_empty());
        let given: Vec<i32> = with_records.map(|one| one.partition_index).collect();
        assert_eq!(given, expected);
        for index in given {
            next[index as usize] += 1;
        }
    }
}

fn waiting(topic: &str, offset: i64, wait: i32) -> FetchRequest {
    fetch(topic, &[(0, offset)]).with_max_wait_ms(wait)
}

#[tokio::test(start_paused = true)]
async fn fetch_at_the_end_waits_as_long_as_it_may_and_no_longer() {
    let world = World::new().await;
    let mut client = world.connect();
    client.look_up("t").await;
    let began = Instant::now();
    let response = client.ask(11, &waiting("t", 0, 500)).await;
    assert!(records(data(&response)).is_empty());
    assert_eq!(began.elapsed().as_millis(), 500);
    // What is less than wanted is given at the end of the wait too.
    client.produce("t", one(10)).await;
    let began = Instant::now();
    let response = client
        .ask(11, &waiting("t", 0, 500).with_min_bytes(1 << 20))
        .await;
    assert_eq!(records(data(&response)).len(), 1);
    assert_eq!(began.elapsed().as_millis(), 500);
    // Nothing is waited for where nothing must be there, or something is wrong.
    let began = Instant::now();
    client
        .ask(11, &waiting("t", 1, 500).with_min_bytes(0))
        .await;
    client.ask(11, &waiting("t", 7, 500)).await;
    client.ask(11, &waiting("nobody", 0, 500)).await;
    assert_eq!(began.elapsed().as_millis(), 0);
}

#[tokio::test(start_paused = true)]
async fn record_that_comes_wakes_the_fetch_that_waits_for_it() {
    let world = World::new().await;
    let (mut reader, mut writer) = (world.connect(), world.connect());
    writer.create("t", 2, &[]).await;
    let began = Instant::now();
    let wanted = fetch("t", &[(0, 0), (1, 0)]).with_max_wait_ms(500);
    reader.send(11, &wanted).await;
    tokio::time::sleep(Duration::from_millis(200)).await;
    writer.produce("t", one(10)).await;
    let response = reader.receive::<FetchRequest>(11).await;
    assert_eq!(records(data(&response)).len(), 1);
    assert_eq!(began.elapsed().as_millis(), 200);
}

#[tokio::test(start_paused = true)]
async fn fetch_waits_until_the_least_bytes_are_there() {
    let world = World::new().await;
    let (mut reader, mut writer) = (world.connect(), world.connect());
    writer.look_up("t").await;
    let began = Instant::now();
    reader
        .send(11, &waiting("t", 0, 10_000).with_min_bytes(5_000))
        .await;
    for _ in 0..10 {
        tokio::time::sleep(Duration::from_millis(100)).await;
        writer.produce("t", one(1_000)).await;
    }
    let response = reader.receive::<FetchRequest>(11).await;
    assert_eq!(records(data(&response)).len(), 5);
    assert_eq!(
        began.elapsed().as_millis(),
        1_000,
        "it answered before, at the fifth record"
    );
}

#[tokio::test(start_paused = true)]
async fn request_behind_a_waiting_fetch_ends_its_wait() {
    let world = World::new().await;
    let mut client = world.connect();
    client.look_up("t").await;
    let began = Instant::now();
    client.send(11, &waiting("t", 0, 30_000)).await;
    tokio::time::sleep(Duration::from_millis(100)).await;
    client.send(9, &produce("t", -1, vec![(0, one(3))])).await;
    let response = client.receive::<FetchRequest>(11).await;
    assert!(records(data(&response)).is_empty());
    client
        .receive::<kafka_protocol::messages::ProduceRequest>(9)
        .await;
    assert_eq!(began.elapsed().as_millis(), 100);
}

#[tokio::test(start_paused = true)]
async fn partition_that_ends_answers_its_waiting_fetch_at_once() {
    let world = World::new().await;
    let (mut reader, mut other) = (world.connect(), world.connect());
    other.look_up("t").await;
    other.produce("t", one(1)).await;
    let began = Instant::now();
    reader.send(11, &waiting("t", 1, 30_000)).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    let name = kafka_protocol::messages::delete_topics_request::DeleteTopicState::default()
        .with_name(Some(topic_name("t")));
    let request = kafka_protocol::messages::DeleteTopicsRequest::default().with_topics(vec![name]);
    assert_eq!(other.ask(6, &request).await.responses[0].error_code, 0);
    let response = reader.receive::<FetchRequest>(11).await;
    assert_eq!(data(&response).error_code, 3);
    assert!(began.elapsed() < Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn answers_to_readers_hold_no_more_than_their_share_of_memory() {
    let world = World::with(|config| {
        config.read_ahead_bytes = 1 << 20;
        config.max_batch_bytes = 256 << 10;
    })
    .await;
    let mut writer = world.connect();
    writer.look_up("t").await;
    for _ in 0..8 {
        writer.produce("t", one(200 << 10)).await;
    }
    // Readers that ask and do not read.
    let mut silent: Vec<Client> = (0..20).map(|_| world.connect()).collect();
    for reader in &mut silent {
        reader
            .send(11, &fetch("t", &[(0, 0)]).with_max_wait_ms(1_000))
            .await;
    }
    tokio::time::sleep(Duration::from_millis(500)).await;
    let left = world.front.read_ahead().available_permits();
    assert!(left < 256 << 10, "{left} bytes are left");
    // They are given up, and others are served again.
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!(world.front.read_ahead().available_permits(), 1 << 20);
    let mut reader = world.connect();
    let response = reader.ask(11, &fetch("t", &[(0, 0)])).await;
    assert!(!records(data(&response)).is_empty());
    for mut reader in silent {
        while let Some(frame) = reader.frame().await {
            let _: Bytes = frame;
        }
    }
}

#[tokio::test(start_paused = true)]
async fn slow_reader_is_given_up_though_it_takes_a_byte_now_and_then() {
    let world = World::with(|config| config.read_ahead_bytes = 4 << 20).await;
    let mut reader = world.connect();
    reader.look_up("t").await;
    reader.produce("t", one(1 << 20)).await;
    reader.send(11, &fetch("t", &[(0, 0)])).await;
    for _ in 0..6 {
        tokio::time::sleep(Duration::from_secs(10)).await;
        let _ = tokio::io::AsyncReadExt::read_u8(&mut reader.stream).await;
    }
    let left = world.front.read_ahead().available_permits();
    assert_eq!(left, 4 << 20, "what it held is free");
    assert!(reader.frame().await.is_none());
}

#[tokio::test(start_paused = true)]
async fn readers_that_do_not_listen_do_not_starve_others() {
    let world = World::with(|config| {
        config.read_ahead_bytes = 1 << 20;
        config.max_batch_bytes = 256 << 10;
    })
    .await;
    let (mut writer, mut reader) = (world.connect(), world.connect());
    writer.create("large", 1, &[]).await;
    writer.create("small", 1, &[]).await;
    for _ in 0..8 {
        writer.produce("large", one(200 << 10)).await;
    }
    for _ in 0..4 {
        writer.produce("small", one(30 << 10)).await;
    }
    let all = 1 << 20;
    let held = world.front.read_ahead().clone().acquire_many_owned(all);
    let held = held.await.unwrap();
    // Small batches come in small answers, soon.
    let began = Instant::now();
    let mut next = 0;
    while next < 4 {
        let found = reader.ask(11, &waiting("small", next, 5_000)).await;
        let found = records(data(&found));
        assert!((1..3).contains(&found.len()), "{} records", found.len());
        next += found.len() as i64;
    }
    assert!(began.elapsed() < Duration::from_secs(1));
    // A large one waits for its room, as long as its fetch may, or until it comes.
    let began = Instant::now();
    let found = reader.ask(11, &waiting("large", 0, 5_000)).await;
    assert!(records(data(&found)).is_empty());
    assert_eq!(began.elapsed().as_secs(), 5);
    reader.send(11, &waiting("large", 0, 30_000)).await;
    tokio::time::sleep(Duration::from_secs(2)).await;
    drop(held);
    let found = reader.receive::<FetchRequest>(11).await;
    assert!(!records(data(&found)).is_empty());
    assert_eq!(began.elapsed().as_secs(), 7);
}

#[tokio::test(start_paused = true)]
async fn connection_has_one_answer_without_room_at_a_time() {
    let world = World::new().await;
    let mut client = world.connect();
    client.look_up("t").await;
    client.produce("t", one(40 << 10)).await;
    let all = world.front.read_ahead().available_permits() as u32;
    let held = world.front.read_ahead().clone().acquire_many_owned(all);
    let held = held.await.unwrap();
    // The answers wait behind a produce that is not confirmed.
    world.memory.bookie.hold(true);
    client.send(9, &produce("t", -1, vec![(0, one(1))])).await;
    for _ in 0..3 {
        client.send(11, &waiting("t", 0, 1_000)).await;
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.memory.bookie.hold(false);
    client
        .receive::<kafka_protocol::messages::ProduceRequest>(9)
        .await;
    let mut given = 0;
    for _ in 0..3 {
        let found = client.receive::<FetchRequest>(11).await;
        given += records(data(&found)).len();
    }
    assert_eq!(given, 1);
    drop(held);
}
