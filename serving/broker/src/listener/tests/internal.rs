//! The cell's own topics: lists of all topics leave them out, and clients neither produce, read, consume nor delete there, by name or by
//! identity.

use hulse_proto::error::Reason;
use hulse_proto::id::{NodeName, TopicName};
use hulse_proto::wire::v1;

use super::consumer::{Consumer, attach};
use super::session::Session;
use super::world::{World, partition, reason};
use crate::BrokerConfig;

const NAME: &str = "hulse/internal/groups";

async fn listed(world: &World, namespace: &str) -> Vec<String> {
    let list = v1::ListTopicsRequest {
        namespace: namespace.to_owned(),
        ..Default::default()
    };
    let page = world.admin().list_topics(list).await.unwrap().into_inner();
    page.topics.into_iter().map(|topic| topic.name).collect()
}

#[tokio::test]
async fn topic_of_the_cell_is_hidden_and_not_for_clients() {
    let world = World::new().await;
    world.topic("greetings", 1).await;
    let name: TopicName = NAME.parse().unwrap();
    // Another broker made it: this one has never heard of it.
    let other = NodeName::new("broker-2").unwrap();
    let other = BrokerConfig::new(other, "127.0.0.1:1".to_owned());
    let other = world.memory.broker(other);
    let made = other.topics.create(&name, 4).await.unwrap();
    let id = made.id.to_bytes();

    let mut session = Session::open(&world).await;
    session.lane(0, &id, 0, v1::Acks::Quorum, -1).await;
    assert_eq!(session.word().await, "closed 0 PERMISSION_DENIED");
    session.lane(1, &id, 0, v1::Acks::Quorum, -1).await;
    assert_eq!(session.word().await, "closed 1 PERMISSION_DENIED");

    let mut consumer = Consumer::open(&world).await;
    let refused = consumer.refused(attach(&id, "s")).await;
    assert_eq!(refused, "PERMISSION_DENIED");

    let offsets = v1::OffsetsRequest {
        partition: partition(&id, 1),
        ..Default::default()
    };
    let denied = reason(world.log().offsets(offsets).await);
    assert_eq!(denied, Reason::PermissionDenied);
    let read = v1::ReadRequest {
        partition: partition(&id, 1),
        ..Default::default()
    };
    let denied = reason(world.log().read(read).await);
    assert_eq!(denied, Reason::PermissionDenied);

    let delete = v1::DeleteTopicRequest {
        name: NAME.to_owned(),
        topic_uuid: id.clone(),
    };
    let denied = reason(world.admin().delete_topic(delete).await);
    assert_eq!(denied, Reason::PermissionDenied);

    assert_eq!(listed(&world, "").await, ["public/default/greetings"]);
    // Operators see it when they ask for it.
    assert_eq!(listed(&world, "hulse/internal").await, [NAME]);
    let describe = v1::DescribeTopicRequest {
        name: NAME.to_owned(),
    };
    assert!(world.admin().describe_topic(describe).await.is_ok());
}
