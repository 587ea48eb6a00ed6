//! Several brokers: clients are told of all, and who leads what.

use kafka_protocol::messages::describe_topic_partitions_request::TopicRequest;
use kafka_protocol::messages::{DescribeClusterRequest, DescribeTopicPartitionsRequest};
use serving_broker::testing::MemoryBroker;

use super::world::*;
use crate::error_code;

#[tokio::test(start_paused = true)]
async fn leader_of_each_partition_is_its_owner_and_the_other_refuses_it() {
    let world = World::new().await;
    let mut client = world.connect();
    assert_eq!(client.create("t", 16, &[]).await, 0);
    let memory = &world.memory;
    memory
        .register("broker-1", 0, "h1:7400", Some(("k1", 1)))
        .await;
    memory
        .register("broker-2", 1, "h2:7400", Some(("k2", 9092)))
        .await;
    memory.register("broker-3", 2, "h3:7400", None).await;
    MemoryBroker::follow(&world.front).await;
    let cluster = client.ask(0, &DescribeClusterRequest::default()).await;
    let nodes: Vec<_> = cluster
        .brokers
        .iter()
        .map(|node| (node.broker_id.0, node.host.to_string(), node.port))
        .collect();
    // This one as the client reached it; the third does not serve this wire.
    let (us, other) = (nodes[0].0, nodes[1].0);
    let expected = [
        (us, "10.1.2.3".to_owned(), 9092),
        (other, "k2".to_owned(), 9092),
    ];
    assert_eq!(nodes, expected);
    let topic = client.look_up("t").await;
    let mut seen = [0; 3];
    for partition in &topic.partitions {
        let fetched = client
            .ask(4, &fetch("t", &[(partition.partition_index, 0)]))
            .await;
        let code = fetched.responses[0].partitions[0].error_code;
        let leader = partition.leader_id.0;
        let kind = [us, other, -1].iter().position(|id| *id == leader).unwrap();
        seen[kind] += 1;
        // Where nobody that is reached leads, clients ask again.
        let told = [
            error_code::NONE,
            error_code::NONE,
            error_code::LEADER_NOT_AVAILABLE,
        ];
        assert_eq!(partition.error_code, told[kind]);
        let expected = if leader == us {
            error_code::NONE
        } else {
            error_code::NOT_LEADER
        };
        assert_eq!(code, expected, "{partition:?}");
    }
    assert!(seen.iter().all(|count| *count > 0), "{seen:?}");
    let asked = TopicRequest::default().with_name(topic_name("t"));
    let request = DescribeTopicPartitionsRequest::default()
        .with_topics(vec![asked])
        .with_response_partition_limit(100);
    let described = client.ask(0, &request).await;
    let leaders = described.topics[0].partitions.iter().map(|of| of.leader_id);
    let known = topic.partitions.iter().map(|of| of.leader_id);
    assert!(leaders.eq(known));
}
