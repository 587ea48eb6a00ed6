//! Fetch sessions (KIP-227), as a client uses them.

use kafka_protocol::messages::FetchResponse;
use kafka_protocol::messages::fetch_request::ForgottenTopic;

use super::world::*;
use crate::error_code;

/// (partition, records) of what is told.
fn told(response: &FetchResponse) -> Vec<(i32, usize)> {
    let partitions = response
        .responses
        .iter()
        .flat_map(|topic| &topic.partitions);
    partitions
        .map(|partition| (partition.partition_index, records(partition).len()))
        .collect()
}

#[tokio::test(start_paused = true)]
async fn session_tells_changes_only() {
    let world = World::new().await;
    let (mut client, mut writer) = (world.connect(), world.connect());
    writer.create("t", 3, &[]).await;
    let mut full = fetch("t", &[(0, 0), (1, 0), (2, 0)]);
    full.session_epoch = 0;
    let response = client.ask(11, &full).await;
    let session = response.session_id;
    assert!(session > 0 && response.error_code == 0);
    assert_eq!(
        told(&response),
        [(0, 0), (1, 0), (2, 0)],
        "the first answer tells everything"
    );
    let go_on = |epoch| {
        let mut request = fetch("t", &[]);
        request.topics.clear();
        request.session_id = session;
        request.session_epoch = epoch;
        request
    };
    assert_eq!(told(&client.ask(11, &go_on(1)).await), []);
    writer.ask(9, &produce("t", -1, vec![(1, one(5))])).await;
    assert_eq!(told(&client.ask(11, &go_on(2)).await), [(1, 1)]);
    // The client has moved on in one partition and forgets another.
    let mut moved = go_on(3);
    moved.topics = fetch("t", &[(1, 1)]).topics;
    moved.forgotten_topics_data = vec![
        ForgottenTopic::default()
            .with_topic(topic_name("t"))
            .with_partitions(vec![2]),
    ];
    assert_eq!(told(&client.ask(11, &moved).await), []);
    writer
        .ask(9, &produce("t", -1, vec![(2, one(5)), (0, one(5))]))
        .await;
    let response = client.ask(11, &go_on(4)).await;
    assert_eq!(response.session_id, session);
    assert_eq!(told(&response), [(0, 1)], "the forgotten one is not told");
    // A wrong epoch, then the session is still there.
    let response = client.ask(11, &go_on(9)).await;
    assert_eq!(response.error_code, error_code::INVALID_FETCH_SESSION_EPOCH);
    assert_eq!(client.ask(11, &go_on(5)).await.error_code, 0);
    // It ends with a last full fetch.
    let mut last = fetch("t", &[(0, 0)]);
    last.session_id = session;
    assert_eq!(client.ask(11, &last).await.session_id, 0);
    let response = client.ask(11, &go_on(6)).await;
    assert_eq!(response.error_code, error_code::FETCH_SESSION_ID_NOT_FOUND);
}

#[tokio::test(start_paused = true)]
async fn error_of_a_partition_is_told_in_each_answer_until_it_is_gone() {
    let world = World::new().await;
    let mut client = world.connect();
    client.create("t", 1, &[]).await;
    let mut full = fetch("t", &[(0, 5)]);
    full.session_epoch = 0;
    let session = client.ask(11, &full).await.session_id;
    for epoch in 1..4 {
        let mut request = fetch("t", &[]);
        request.topics.clear();
        request.session_id = session;
        request.session_epoch = epoch;
        let response = client.ask(11, &request).await;
        let partition = &response.responses[0].partitions[0];
        assert_eq!(partition.error_code, error_code::OFFSET_OUT_OF_RANGE);
    }
}

#[tokio::test(start_paused = true)]
async fn sessions_are_bounded_and_old_ones_make_room() {
    let world = World::new().await;
    let mut client = world.connect();
    client.look_up("t").await;
    let mut full = fetch("t", &[(0, 0)]);
    full.session_epoch = 0;
    let mut given = 0;
    for _ in 0..1_100 {
        let response = client.ask(11, &full).await;
        assert_eq!(response.error_code, 0);
        given += i32::from(response.session_id != 0);
    }
    assert_eq!(given, 1_000, "those beyond go on without a session");
    tokio::time::sleep(std::time::Duration::from_secs(121)).await;
    assert!(client.ask(11, &full).await.session_id > 0);
}
