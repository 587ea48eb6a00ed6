//! Places by time (case KA-03) and by epoch.

use hulse_proto::batch::Compression;
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::offset_for_leader_epoch_response::EpochEndOffset;
use kafka_protocol::messages::{ListOffsetsRequest, OffsetForLeaderEpochRequest};

use super::world::*;
use crate::error_code;

const NONE: (i64, i64) = (-1, -1);

async fn place(client: &mut Client, topic: &str, time: i64) -> (i64, i64) {
    let partition = ListOffsetsPartition::default().with_timestamp(time);
    let topic = ListOffsetsTopic::default()
        .with_name(topic_name(topic))
        .with_partitions(vec![partition]);
    let request = ListOffsetsRequest::default()
        .with_replica_id((-1).into())
        .with_topics(vec![topic]);
    let mut answers = Vec::new();
    for version in 1..=10 {
        let response = client.ask(version, &request).await;
        let found = &response.topics[0].partitions[0];
        assert_eq!(found.error_code, 0, "time {time}");
        if version >= 4 {
            assert_eq!(found.leader_epoch, if found.offset < 0 { -1 } else { 1 });
        }
        answers.push((found.offset, found.timestamp));
    }
    answers.dedup();
    assert_eq!(answers.len(), 1, "versions differ: {answers:?}");
    answers[0]
}

/// KAFKA_STORAGE_ERROR makes clients ask again without a word; after CORRUPT_MESSAGE in a fetch they tell their applications.
#[tokio::test(start_paused = true)]
async fn consumer_of_a_damaged_partition_is_led_to_where_it_hears_of_it() {
    let world = World::new().await;
    let mut client = world.connect();
    client.look_up("t").await;
    for time in 0..3 {
        client
            .produce("t", batch(Compression::None, &[(time, b"v")]))
            .await;
    }
    let world = world.damaged("t").await;
    let mut client = world.connect();
    client.look_up("t").await;
    for (time, code, offset) in [
        (-2, error_code::NONE, 0),
        (-4, error_code::NONE, 0),
        (-1, error_code::KAFKA_STORAGE_ERROR, -1),
        (7, error_code::KAFKA_STORAGE_ERROR, -1),
    ] {
        let partition = ListOffsetsPartition::default().with_timestamp(time);
        let topic = ListOffsetsTopic::default()
            .with_name(topic_name("t"))
            .with_partitions(vec![partition]);
        let request = ListOffsetsRequest::default()
            .with_replica_id((-1).into())
            .with_topics(vec![topic]);
        let response = client.ask(10, &request).await;
        let found = &response.topics[0].partitions[0];
        assert_eq!((found.error_code, found.offset), (code, offset), "{time}");
    }
    let found = client.fetch("t", 0).await;
    assert_eq!(found.error_code, error_code::CORRUPT_MESSAGE);
}

/// Right below the damage all is as ever; right at it, and above, the client hears of it, and never of an offset out of range, which
/// would have it begin elsewhere.
#[tokio::test(start_paused = true)]
async fn consumer_of_a_damaged_partition_gets_what_is_below_and_hears_where_the_doubt_begins() {
    let mut world = World::new().await;
    for life in 0..2 {
        let mut client = world.connect();
        client.look_up("t").await;
        for time in 0..3 {
            client
                .produce("t", batch(Compression::None, &[(10 * life + time, b"v")]))
                .await;
        }
        world = match life {
            0 => world.restarted().await,
            _ => world.damaged("t").await,
        };
    }
    let mut client = world.connect();
    client.look_up("t").await;
    for _ in 0..2 {
        for offset in 0..3 {
            let found = client.fetch("t", offset).await;
            assert_eq!(found.error_code, error_code::NONE, "{offset}");
            let records = found.records.unwrap();
            let first = i64::from_be_bytes(records[..8].try_into().unwrap());
            assert_eq!(first, offset, "{offset}");
        }
        for offset in [3, 4, 6, 7, 99] {
            let found = client.fetch("t", offset).await;
            assert_eq!(found.error_code, error_code::CORRUPT_MESSAGE, "{offset}");
        }
        tokio::time::advance(std::time::Duration::from_secs(3)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn times_of_single_records_find_the_first_that_is_not_older() {
    let world = World::new().await;
    let mut client = world.connect();
    client.look_up("t").await;
    assert_eq!(place(&mut client, "t", -3).await, NONE, "an empty log");
    for time in [2, 4, 6, 8] {
        client
            .produce("t", batch(Compression::None, &[(time, b"v")]))
            .await;
    }
    for (asked, offset) in [
        (0, 0),
        (1, 0),
        (2, 0),
        (3, 1),
        (4, 1),
        (5, 2),
        (6, 2),
        (7, 3),
        (8, 3),
    ] {
        assert_eq!(
            place(&mut client, "t", asked).await,
            (offset, 2 * offset + 2),
            "{asked}"
        );
    }
    assert_eq!(place(&mut client, "t", 9).await, NONE);
    assert_eq!(place(&mut client, "t", -1).await, (4, -1), "latest");
    for earliest in [-2, -4] {
        assert_eq!(place(&mut client, "t", earliest).await, (0, -1));
    }
    assert_eq!(
        place(&mut client, "t", -3).await,
        (3, 8),
        "the highest time"
    );
    assert_eq!(place(&mut client, "t", -5).await, NONE, "nothing is tiered");
    assert_eq!(place(&mut client, "t", -77).await, NONE);
}

#[tokio::test(start_paused = true)]
async fn times_within_a_compressed_batch_find_the_exact_record() {
    let world = World::new().await;
    let mut client = world.connect();
    client.look_up("t").await;
    let records: Vec<(i64, &[u8])> = (1..=20).map(|time| (time, &b"v"[..])).collect();
    client
        .produce("t", batch(Compression::Zstd, &records))
        .await;
    for time in 1..=20 {
        assert_eq!(place(&mut client, "t", time).await, (time - 1, time));
    }
    assert_eq!(place(&mut client, "t", 21).await, NONE);
}

#[tokio::test(start_paused = true)]
async fn batch_that_unpacks_to_too_much_is_found_by_its_first_offset() {
    let world = World::new().await;
    let mut client = world.connect();
    client.look_up("t").await;
    client.produce("t", one(1)).await;
    let sound = batch(Compression::Zstd, &[(1_000, b"v"), (1_069, b"v")]);
    // A frame of 65 MiB: blocks of one byte that is said 128 KiB times, the last one with its mark.
    let mut packed = vec![0x28, 0xb5, 0x2f, 0xfd, 0, 0x50];
    for block in 1..=520 {
        let head: u32 = u32::from(block == 520) | 1 << 1 | (128 << 10) << 3;
        packed.extend_from_slice(&head.to_le_bytes()[..3]);
        packed.push(0);
    }
    let stored = client.produce("t", repacked(&sound, &packed)).await;
    assert_eq!((stored.error_code, stored.base_offset), (0, 1));
    assert_eq!(place(&mut client, "t", 1_069).await, (1, 1_069));
}

#[tokio::test(start_paused = true)]
async fn times_out_of_order_find_the_first_in_the_log() {
    let world = World::new().await;
    let mut client = world.connect();
    client.look_up("one").await;
    client.look_up("four").await;
    let times: [(i64, &[u8]); 4] = [(5, b"v"), (1, b"v"), (9, b"v"), (3, b"v")];
    client
        .produce("one", batch(Compression::None, &times))
        .await;
    for time in times {
        client
            .produce("four", batch(Compression::None, &[time]))
            .await;
    }
    for topic in ["one", "four"] {
        assert_eq!(place(&mut client, topic, 5).await, (0, 5));
        assert_eq!(place(&mut client, topic, 6).await, (2, 9));
        assert_eq!(place(&mut client, topic, 10).await, NONE);
        assert_eq!(place(&mut client, topic, -3).await, (2, 9));
    }
}

async fn end_of(client: &mut Client, epoch: i32, current: i32) -> EpochEndOffset {
    let partition = OffsetForLeaderPartition::default()
        .with_current_leader_epoch(current)
        .with_leader_epoch(epoch);
    let topic = OffsetForLeaderTopic::default()
        .with_topic(topic_name("t"))
        .with_partitions(vec![partition]);
    let request = OffsetForLeaderEpochRequest::default().with_topics(vec![topic]);
    let mut last = None;
    for version in 2..=4 {
        let response = client.ask(version, &request).await;
        let found = response.topics[0].partitions[0].clone();
        assert!(last.is_none_or(|last| last == found));
        last = Some(found);
    }
    last.unwrap()
}

#[tokio::test(start_paused = true)]
async fn epochs_end_where_the_next_owner_began() {
    let mut world = World::new().await;
    // Records of the first and the third owner; the second stored nothing.
    for (life, records) in [(0, 3), (1, 0), (2, 2)] {
        if life > 0 {
            world = world.restarted().await;
        }
        let mut client = world.connect();
        client.look_up("t").await;
        client.fetch("t", 0).await;
        for _ in 0..records {
            assert_eq!(client.produce("t", one(1)).await.error_code, 0);
        }
    }
    let mut client = world.connect();
    for (asked, epoch, end) in [
        (0, 0, 0),
        (1, 1, 3),
        (2, 1, 3),
        (3, 3, 5),
        (4, -1, -1),
        (-1, -1, -1),
    ] {
        let found = end_of(&mut client, asked, -1).await;
        assert_eq!(
            (found.error_code, found.leader_epoch, found.end_offset),
            (0, epoch, end),
            "{asked}"
        );
    }
    assert_eq!(
        end_of(&mut client, 1, 2).await.error_code,
        error_code::FENCED_LEADER_EPOCH
    );
    assert_eq!(
        end_of(&mut client, 1, 4).await.error_code,
        error_code::UNKNOWN_LEADER_EPOCH
    );
    assert_eq!(end_of(&mut client, 1, 3).await.error_code, 0);
}

#[tokio::test(start_paused = true)]
async fn told_epoch_of_a_closed_partition_is_that_under_which_it_opens() {
    let mut world = World::new().await;
    let mut last = 0;
    for life in 0..3 {
        let mut client = world.connect();
        let told = client.look_up("t").await.partitions[0].leader_epoch;
        assert!(told > last, "it never goes down");
        let request = fetch("t", &[(0, 0)]);
        let mut with_epoch = request;
        with_epoch.topics[0].partitions[0].current_leader_epoch = told;
        let data = client.ask(12, &with_epoch).await.responses[0].partitions[0].clone();
        assert_eq!(data.error_code, 0, "life {life}");
        assert_eq!(client.look_up("t").await.partitions[0].leader_epoch, told);
        last = told;
        world = world.restarted().await;
    }
    // A client of an earlier life is told who leads now.
    let mut client = world.connect();
    let mut old = fetch("t", &[(0, 0)]);
    old.topics[0].partitions[0].current_leader_epoch = 1;
    old.topics[0].topic_id = client.look_up("t").await.topic_id;
    old.topics[0].topic = topic_name("");
    let response = client.ask(16, &old).await;
    let data = &response.responses[0].partitions[0];
    assert_eq!(data.error_code, error_code::FENCED_LEADER_EPOCH);
    assert_eq!(data.current_leader.leader_epoch, last + 1);
    assert_eq!(response.node_endpoints[0].host.as_str(), "10.1.2.3");
}
