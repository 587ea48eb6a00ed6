//! Replication factors and `min.insync.replicas`.

use kafka_protocol::messages::CreateTopicsRequest;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};

use super::world::*;
use crate::error_code;

#[tokio::test(start_paused = true)]
async fn more_copies_than_bookies_are_refused_and_the_cells_number_is_told() {
    let world = World::new().await;
    let mut client = world.connect();
    let min_insync = |value: &'static str| {
        CreatableTopicConfig::default()
            .with_name(str("min.insync.replicas"))
            .with_value(Some(str(value)))
    };
    for (name, factor, configs, code) in [
        ("a", 3, vec![], error_code::INVALID_REPLICATION_FACTOR),
        ("b", 0, vec![], error_code::INVALID_REPLICATION_FACTOR),
        (
            "c",
            1,
            vec![min_insync("2")],
            error_code::INVALID_REPLICATION_FACTOR,
        ),
        ("d", 1, vec![min_insync("none")], error_code::INVALID_CONFIG),
        ("e", -1, vec![min_insync("1")], error_code::NONE),
        ("f", 1, vec![], error_code::NONE),
    ] {
        let topic = CreatableTopic::default()
            .with_name(topic_name(name))
            .with_num_partitions(1)
            .with_replication_factor(factor)
            .with_configs(configs);
        let request = CreateTopicsRequest::default().with_topics(vec![topic]);
        let made = client.ask(7, &request).await.topics.remove(0);
        assert_eq!(made.error_code, code, "{name}: {made:?}");
        if code == error_code::NONE {
            assert_eq!(made.replication_factor, 1);
        }
        if name == "a" {
            let why = made.error_message.unwrap();
            assert!(why.contains("one is registered"), "{why:?}");
        }
    }
}
