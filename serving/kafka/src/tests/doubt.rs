//! A broker that hears nothing of metadata, and whose partition another one took over: no client is told where the log ended here.

use std::time::Duration;

use hulse_proto::id::{NodeName, PartitionId};
use kafka_protocol::messages::list_offsets_request::{ListOffsetsPartition, ListOffsetsTopic};
use kafka_protocol::messages::offset_for_leader_epoch_request::{
    OffsetForLeaderPartition, OffsetForLeaderTopic,
};
use kafka_protocol::messages::{ListOffsetsRequest, OffsetForLeaderEpochRequest};
use serving_broker::testing::MemoryBroker;
use tokio::time::{sleep, timeout};

use super::world::*;
use crate::error_code;

const LEASE: Duration = Duration::from_secs(3);

async fn latest(client: &mut Client, topic: &str) -> (i16, i64) {
    let partition = ListOffsetsPartition::default().with_timestamp(-1);
    let topic = ListOffsetsTopic::default()
        .with_name(topic_name(topic))
        .with_partitions(vec![partition]);
    let request = ListOffsetsRequest::default()
        .with_replica_id((-1).into())
        .with_topics(vec![topic]);
    let answer = client.ask(4, &request).await;
    let found = &answer.topics[0].partitions[0];
    (found.error_code, found.offset)
}

async fn end_of_epoch(client: &mut Client, topic: &str) -> (i16, i64) {
    let partition = OffsetForLeaderPartition::default()
        .with_current_leader_epoch(1)
        .with_leader_epoch(1);
    let topic = OffsetForLeaderTopic::default()
        .with_topic(topic_name(topic))
        .with_partitions(vec![partition]);
    let request = OffsetForLeaderEpochRequest::default()
        .with_replica_id((-1).into())
        .with_topics(vec![topic]);
    let answer = client.ask(3, &request).await;
    let found = &answer.topics[0].partitions[0];
    (found.error_code, found.end_offset)
}

struct Cut {
    world: World,
    other: std::sync::Arc<serving_broker::Front>,
    partition: PartitionId,
}

impl Cut {
    /// A topic of one record, and from now on metadata are silent and the lease is over.
    async fn new() -> Self {
        let cell = MemoryBroker::default();
        let world = World::over(cell.leased(LEASE), |_| {}).await;
        world.memory.lease.asks();
        world.memory.lease.began();
        let other = cell.front(|config| config.name = NodeName::new("broker-2").unwrap());
        let mut client = world.connect();
        assert_eq!(client.create("t", 1, &[]).await, 0);
        client.produce("t", one(10)).await;
        let name = "t".parse().unwrap();
        let topic = world.front.topics().hint(&name).expect("it was used");
        let partition = topic.partition_ids().next().unwrap();
        world.memory.metadata.silence();
        sleep(LEASE).await;
        Self {
            world,
            other,
            partition,
        }
    }

    async fn overtaken(&self) {
        let open = self.other.partitions().open(self.partition).await.unwrap();
        open.produce(one(10)).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn client_at_the_end_is_led_away_from_a_broker_that_was_overtaken() {
    let cut = Cut::new().await;
    let mut client = cut.world.connect();
    assert_eq!(latest(&mut client, "t").await, (error_code::NONE, 1));
    assert_eq!(end_of_epoch(&mut client, "t").await, (error_code::NONE, 1));
    assert_eq!(client.fetch("t", 1).await.error_code, error_code::NONE);
    cut.overtaken().await;
    // What was looked at a moment ago is good enough for who comes again and again, and for nobody else.
    assert_eq!(client.fetch("t", 1).await.error_code, error_code::NONE);
    assert_eq!(latest(&mut client, "t").await.0, error_code::NOT_LEADER);
    let fetched = client.fetch("t", 1).await;
    assert_eq!(fetched.error_code, error_code::NOT_LEADER);
}

#[tokio::test(start_paused = true)]
async fn client_that_was_further_is_not_told_to_begin_anew() {
    let cut = Cut::new().await;
    let mut client = cut.world.connect();
    let fetched = client.fetch("t", 2).await;
    assert_eq!(fetched.error_code, error_code::OFFSET_OUT_OF_RANGE);
    cut.overtaken().await;
    let fetched = client.fetch("t", 2).await;
    assert_eq!(fetched.error_code, error_code::NOT_LEADER);
}

#[tokio::test(start_paused = true)]
async fn end_of_an_epoch_is_not_told_by_a_broker_that_was_overtaken() {
    let cut = Cut::new().await;
    let mut client = cut.world.connect();
    cut.overtaken().await;
    let told = end_of_epoch(&mut client, "t").await;
    assert_eq!(told.0, error_code::NOT_LEADER);
}

#[tokio::test(start_paused = true)]
async fn fetch_that_waits_is_answered_when_its_partition_is_overtaken() {
    let cut = Cut::new().await;
    let mut client = cut.world.connect();
    let waiting = fetch("t", &[(0, 1)])
        .with_max_wait_ms(60_000)
        .with_min_bytes(1);
    client.send(4, &waiting).await;
    sleep(Duration::from_secs(5)).await;
    cut.overtaken().await;
    let answer = client.receive::<kafka_protocol::messages::FetchRequest>(4);
    let answer = timeout(Duration::from_secs(3), answer).await;
    let answer = answer.expect("it is looked at while it waits");
    let found = &answer.responses[0].partitions[0];
    assert_eq!(found.error_code, error_code::NOT_LEADER);
}
