//! Partitions that are being opened, which takes time: what is told, what waits, what may not be overtaken.

use std::time::Duration;

use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::{FetchRequest, ListOffsetsRequest, ProduceRequest};
use tokio::time::Instant;

use super::world::*;
use crate::error_code;

/// A topic of two partitions with a record in the first, in another life of the broker, where openings take seconds.
async fn slow_world() -> World {
    let world = World::new().await;
    let mut client = world.connect();
    assert_eq!(client.create("t", 2, &[]).await, 0);
    assert_eq!(client.produce("t", one(1)).await.error_code, 0);
    let world = world.restarted().await;
    world.connect().look_up("t").await;
    world.memory.slow_openings(Duration::from_secs(2));
    world
}

fn places(partitions: &[i32]) -> ListOffsetsRequest {
    let partitions = partitions.iter().map(|index| {
        ListOffsetsPartition::default()
            .with_partition_index(*index)
            .with_timestamp(-1)
    });
    let topic = ListOffsetsTopic::default()
        .with_name(topic_name("t"))
        .with_partitions(partitions.collect());
    ListOffsetsRequest::default().with_topics(vec![topic])
}

#[tokio::test(start_paused = true)]
async fn epoch_told_while_a_partition_is_being_opened_is_the_one_under_which_it_opens() {
    let world = slow_world().await;
    let (mut opener, mut client) = (world.connect(), world.connect());
    opener.send(12, &fetch("t", &[(0, 0)])).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    let told = client.look_up("t").await.partitions[0].leader_epoch;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let mut request = fetch("t", &[(0, 0)]);
    request.topics[0].partitions[0].current_leader_epoch = told;
    let response = client.ask(12, &request).await;
    assert_eq!(response.responses[0].partitions[0].error_code, 0);
}

#[tokio::test(start_paused = true)]
async fn produce_to_a_partition_that_is_being_opened_is_told_to_look_again_in_time() {
    let world = slow_world().await;
    let mut client = world.connect();
    let began = Instant::now();
    let request = produce("t", -1, vec![(0, one(1))]).with_timeout_ms(200);
    let response = client.ask(9, &request).await;
    let code = response.responses[0].partition_responses[0].error_code;
    assert_eq!(
        (code, began.elapsed().as_millis()),
        (error_code::NOT_LEADER, 200)
    );
    // The opening went on.
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.memory.slow_openings(Duration::ZERO);
    let began = Instant::now();
    let answer = client.produce("t", one(1)).await;
    assert_eq!((answer.error_code, answer.base_offset), (0, 1));
    assert_eq!(began.elapsed().as_millis(), 0);
}

#[tokio::test(start_paused = true)]
async fn fetch_does_not_wait_longer_for_a_closed_partition_than_for_records() {
    let world = slow_world().await;
    let mut client = world.connect();
    world.memory.slow_openings(Duration::ZERO);
    client.fetch("t", 0).await;
    world.memory.slow_openings(Duration::from_secs(60));
    for (wait, took) in [(0, 100), (300, 300)] {
        let began = Instant::now();
        let request = fetch("t", &[(0, 0), (1, 0)]).with_max_wait_ms(wait);
        let response = client.ask(12, &request).await;
        assert_eq!(began.elapsed().as_millis(), took);
        let partitions = &response.responses[0].partitions;
        assert_eq!(records(&partitions[0]).len(), 1);
        assert_eq!(partitions[1].error_code, error_code::NOT_LEADER);
    }
}

#[tokio::test(start_paused = true)]
async fn batch_behind_one_that_met_a_closed_partition_is_not_stored_before_it() {
    let world = slow_world().await;
    let mut client = world.connect();
    let refused = produce("t", -1, vec![(0, stamped(7, 0, 0))]).with_timeout_ms(200);
    let response = client.ask(9, &refused).await;
    let code = response.responses[0].partition_responses[0].error_code;
    assert_eq!(code, error_code::NOT_LEADER);
    tokio::time::sleep(Duration::from_secs(5)).await;
    // Sent before the refusal was heard.
    for sequence in [1, 2] {
        let answer = client.produce("t", stamped(7, 0, sequence)).await;
        assert_eq!(answer.error_code, 45, "{sequence}");
    }
    // Others are not concerned, and all goes on in order.
    assert_eq!(client.produce("t", stamped(8, 0, 5)).await.base_offset, 1);
    for sequence in 0..3 {
        let answer = client.produce("t", stamped(7, 0, sequence)).await;
        let offset = 2 + i64::from(sequence);
        assert_eq!((answer.error_code, answer.base_offset), (0, offset));
    }
}

#[tokio::test(start_paused = true)]
async fn batch_behind_one_whose_partition_ended_waits_for_it() {
    let world = World::new().await;
    let mut client = world.connect();
    client.look_up("t").await;
    client.produce("t", one(1)).await;
    world.memory.bookie.hold(true);
    let answer = client.produce("t", stamped(7, 0, 0)).await;
    assert_eq!(answer.error_code, error_code::REQUEST_TIMED_OUT);
    world.memory.bookie.hold(false);
    // Sent before the failure was heard.
    assert_eq!(client.produce("t", stamped(7, 0, 1)).await.error_code, 45);
    for sequence in 0..2 {
        let answer = client.produce("t", stamped(7, 0, sequence)).await;
        let offset = 1 + i64::from(sequence);
        assert_eq!((answer.error_code, answer.base_offset), (0, offset));
    }
}

#[tokio::test(start_paused = true)]
async fn batches_that_are_not_waited_for_keep_their_room() {
    const ROOM: usize = 1 << 20;
    let world = World::with(|config| config.ingress_bytes = ROOM).await;
    let mut client = world.connect();
    client.look_up("t").await;
    client.produce("t", one(1)).await;
    world.memory.bookie.hold(true);
    let request = produce("t", -1, vec![(0, one(1))]).with_timeout_ms(200);
    let response = client.ask(9, &request).await;
    let code = response.responses[0].partition_responses[0].error_code;
    assert_eq!(code, error_code::REQUEST_TIMED_OUT);
    client.send(9, &request).await;
    tokio::time::sleep(Duration::from_millis(10)).await;
    drop(client);
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(world.front.try_room(ROOM).is_none());
    world.memory.bookie.hold(false);
    tokio::time::sleep(Duration::from_millis(10)).await;
    assert!(world.front.try_room(ROOM).is_some());
}

#[tokio::test(start_paused = true)]
async fn place_that_takes_its_time_stops_nothing_behind_it() {
    let world = slow_world().await;
    let (mut client, mut other) = (world.connect(), world.connect());
    world.memory.slow_openings(Duration::ZERO);
    assert_eq!(other.produce("t", one(1)).await.error_code, 0);
    world.memory.slow_openings(Duration::from_secs(2));
    client.send(7, &places(&[1])).await;
    client.send(9, &produce("t", -1, vec![(0, one(1))])).await;
    client.send(12, &fetch("t", &[(0, 0)])).await;
    tokio::time::sleep(Duration::from_millis(1)).await;
    assert_eq!(other.fetch("t", 0).await.high_watermark, 3);
    let response = client.receive::<ListOffsetsRequest>(7).await;
    assert_eq!(response.topics[0].partitions[0].error_code, 0);
    client.receive::<ProduceRequest>(9).await;
    client.receive::<FetchRequest>(12).await;
}

#[tokio::test(start_paused = true)]
async fn partition_that_is_asked_for_twice_has_no_place() {
    let world = World::new().await;
    let mut client = world.connect();
    assert_eq!(client.create("t", 3, &[]).await, 0);
    let response = client.ask(7, &places(&[0, 1, 2, 1])).await;
    let rows = response.topics[0].partitions.iter();
    let codes: Vec<i16> = rows.map(|row| row.error_code).collect();
    let twice = error_code::INVALID_REQUEST;
    assert_eq!(codes, [0, twice, 0, twice]);
}
