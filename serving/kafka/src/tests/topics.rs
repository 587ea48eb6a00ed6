//! Topics: found, made, grown, deleted, described.

use kafka_protocol::messages::create_partitions_request::CreatePartitionsTopic;
use kafka_protocol::messages::create_topics_request::{CreatableReplicaAssignment, CreatableTopic};
use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::describe_configs_response::DescribeConfigsResourceResult;
use kafka_protocol::messages::describe_topic_partitions_request::{Cursor, TopicRequest};
use kafka_protocol::messages::describe_topic_partitions_response::DescribeTopicPartitionsResponsePartition;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::{
    CreatePartitionsRequest, CreateTopicsRequest, DeleteTopicsRequest, DescribeConfigsRequest,
    DescribeTopicPartitionsRequest, MetadataRequest,
};
use uuid::Uuid;

use super::world::*;
use crate::error_code;

#[tokio::test(start_paused = true)]
async fn metadata_has_all_topics_none_or_those_asked_for() {
    let world = World::new().await;
    let mut client = world.connect();
    for name in ["a", "acme/shop/b"] {
        assert_eq!(client.create(name, 2, &[]).await, 0);
    }
    for version in 0..=13 {
        let all = match version {
            0 => Some(vec![]),
            _ => None,
        };
        let all = MetadataRequest::default().with_topics(all);
        let response = client.ask(version, &all).await;
        let mut names: Vec<_> = response
            .topics
            .iter()
            .map(|topic| topic.name.as_ref().unwrap().to_string())
            .collect();
        names.sort();
        assert_eq!(names, ["a", "acme/shop/b"], "version {version}");
        assert_eq!(response.brokers[0].host.as_str(), "10.1.2.3");
        let partition = &response.topics[0].partitions[1];
        assert_eq!(partition.leader_id, response.brokers[0].node_id);
        if version > 0 {
            let none = MetadataRequest::default().with_topics(Some(vec![]));
            let response = client.ask(version, &none).await;
            assert!(response.topics.is_empty() && !response.brokers.is_empty());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn missing_topic_is_made_only_where_client_and_broker_allow_it() {
    let closed = World::with(|config| config.auto_create_topics = false).await;
    assert_eq!(closed.connect().look_up("t").await.error_code, 3);
    let world = World::with(|config| config.default_partitions = 3).await;
    let mut client = world.connect();
    let topic = MetadataRequestTopic::default().with_name(Some(topic_name("t")));
    let careful = MetadataRequest::default()
        .with_topics(Some(vec![topic]))
        .with_allow_auto_topic_creation(false);
    assert_eq!(client.ask(9, &careful).await.topics[0].error_code, 3);
    let made = client.look_up("t").await;
    assert_eq!((made.error_code, made.partitions.len()), (0, 3));
    let by_id = MetadataRequestTopic::default().with_topic_id(made.topic_id);
    let by_id = MetadataRequest::default().with_topics(Some(vec![by_id]));
    let found = &client.ask(12, &by_id).await.topics[0];
    assert_eq!(found.name, Some(topic_name("t")));
    let unknown = MetadataRequestTopic::default().with_topic_id(Uuid::from_u128(1));
    let unknown = MetadataRequest::default().with_topics(Some(vec![unknown]));
    for version in 10..=13 {
        let found = &client.ask(version, &unknown).await.topics[0];
        assert_eq!(found.error_code, error_code::UNKNOWN_TOPIC_ID);
    }
    assert_eq!(client.look_up("wrong name").await.error_code, 17);
}

fn wanted(name: &str, partitions: i32) -> CreatableTopic {
    CreatableTopic::default()
        .with_name(topic_name(name))
        .with_num_partitions(partitions)
        .with_replication_factor(1)
}

#[tokio::test(start_paused = true)]
async fn topics_are_made_in_every_version_and_described_as_they_are() {
    let world = World::new().await;
    let mut client = world.connect();
    for version in 2..=7 {
        let name = format!("t{version}");
        let request = CreateTopicsRequest::default()
            .with_topics(vec![wanted(&name, 4)])
            .with_validate_only(true);
        assert_eq!(client.ask(version, &request).await.topics[0].error_code, 0);
        assert!(
            client.ask(version, &request).await.topics[0].error_code == 0,
            "nothing was made"
        );
        let request = request.with_validate_only(false);
        let response = client.ask(version, &request).await;
        let made = &response.topics[0];
        assert_eq!(made.error_code, 0);
        assert_eq!(made.error_message, None);
        if version >= 5 {
            assert_eq!((made.num_partitions, made.replication_factor), (4, 1));
            let configs = made.configs.as_ref().unwrap();
            assert!(
                configs
                    .iter()
                    .any(|config| config.name.as_str() == "cleanup.policy")
            );
        }
        if version >= 7 {
            assert_eq!(client.look_up(&name).await.topic_id, made.topic_id);
        }
        assert_eq!(client.ask(version, &request).await.topics[0].error_code, 36);
        let request = request.with_validate_only(true);
        assert_eq!(client.ask(version, &request).await.topics[0].error_code, 36);
    }
}

#[tokio::test(start_paused = true)]
async fn topics_that_cannot_be_are_refused_with_their_codes() {
    let world = World::new().await;
    let mut client = world.connect();
    for (name, partitions, configs, code) in [
        ("a b", 1, vec![], error_code::INVALID_TOPIC),
        ("t", 0, vec![], error_code::INVALID_PARTITIONS),
        ("t", -2, vec![], error_code::INVALID_PARTITIONS),
        ("t", 1_000_000, vec![], error_code::INVALID_PARTITIONS),
        (
            "t",
            1,
            vec![("cleanup.policy", "compact")],
            error_code::INVALID_CONFIG,
        ),
        (
            "t",
            1,
            vec![("no.such.key", "1")],
            error_code::INVALID_CONFIG,
        ),
        (
            "t",
            1,
            vec![("message.timestamp.type", "Never")],
            error_code::INVALID_CONFIG,
        ),
        (
            "t",
            -1,
            vec![("cleanup.policy", "delete"), ("retention.ms", "-1")],
            0,
        ),
    ] {
        assert_eq!(
            client.create(name, partitions, &configs).await,
            code,
            "{name} {configs:?}"
        );
    }
    let twice = CreateTopicsRequest::default().with_topics(vec![wanted("x", 1), wanted("x", 1)]);
    let response = client.ask(5, &twice).await;
    assert!(
        response
            .topics
            .iter()
            .all(|topic| topic.error_code == error_code::INVALID_REQUEST)
    );
    assert_eq!(response.topics.len(), 1, "each once");
    let assigned = |indexes: &[i32]| {
        let assignments = indexes.iter().map(|index| {
            CreatableReplicaAssignment::default()
                .with_partition_index(*index)
                .with_broker_ids(vec![1.into()])
        });
        let topic = wanted("y", -1).with_assignments(assignments.collect());
        CreateTopicsRequest::default().with_topics(vec![topic])
    };
    let gap = client.ask(5, &assigned(&[0, 2])).await;
    assert_eq!(
        gap.topics[0].error_code,
        error_code::INVALID_REPLICA_ASSIGNMENT
    );
    let dense = client.ask(5, &assigned(&[1, 0])).await;
    assert_eq!(
        (dense.topics[0].error_code, dense.topics[0].num_partitions),
        (0, 2)
    );
}

#[tokio::test(start_paused = true)]
async fn deleted_topic_is_gone_and_made_again_is_another() {
    let world = World::new().await;
    let mut client = world.connect();
    for version in 1..=6 {
        let first = client.look_up("t").await;
        client.produce("t", one(5)).await;
        let request = match version {
            6 => DeleteTopicsRequest::default().with_topics(vec![
                DeleteTopicState::default().with_name(Some(topic_name("t"))),
            ]),
            _ => DeleteTopicsRequest::default().with_topic_names(vec![topic_name("t")]),
        };
        let response = client.ask(version, &request).await;
        assert_eq!(response.responses[0].error_code, 0, "version {version}");
        assert_eq!(
            client.ask(version, &request).await.responses[0].error_code,
            3
        );
        assert_eq!(client.fetch("t", 0).await.error_code, 3);
        let second = client.look_up("t").await;
        assert_ne!(first.topic_id, second.topic_id);
        assert_eq!(client.fetch("t", 0).await.high_watermark, 0);
        let gone = DeleteTopicsRequest::default().with_topics(vec![
            DeleteTopicState::default().with_topic_id(first.topic_id),
        ]);
        let response = client.ask(6, &gone).await;
        assert_eq!(
            response.responses[0].error_code,
            error_code::UNKNOWN_TOPIC_ID
        );
    }
}

#[tokio::test(start_paused = true)]
async fn topics_grow_and_never_shrink() {
    let world = World::new().await;
    let mut client = world.connect();
    client.create("t", 2, &[]).await;
    let to = |count| {
        let topic = CreatePartitionsTopic::default()
            .with_name(topic_name("t"))
            .with_count(count)
            .with_assignments(None);
        CreatePartitionsRequest::default().with_topics(vec![topic])
    };
    for version in 0..=3 {
        let count = 3 + i32::from(version);
        let checked = client
            .ask(version, &to(count).with_validate_only(true))
            .await;
        assert_eq!(checked.results[0].error_code, 0);
        let response = client.ask(version, &to(count)).await;
        assert_eq!(response.results[0].error_code, 0);
        assert_eq!(client.look_up("t").await.partitions.len() as i32, count);
        for wrong in [count, 1, -1, 1 << 30] {
            let response = client.ask(version, &to(wrong)).await;
            assert_eq!(
                response.results[0].error_code,
                error_code::INVALID_PARTITIONS
            );
        }
    }
    let request = produce("t", -1, vec![(5, one(1))]);
    let response = client.ask(9, &request).await;
    assert_eq!(response.responses[0].partition_responses[0].error_code, 0);
}

#[tokio::test(start_paused = true)]
async fn configs_tell_what_holds() {
    let world = World::new().await;
    let mut client = world.connect();
    client
        .create("t", 1, &[("message.timestamp.type", "LogAppendTime")])
        .await;
    let resource = |kind, name: &str| {
        DescribeConfigsResource::default()
            .with_resource_type(kind)
            .with_resource_name(str(name))
            .with_configuration_keys(None)
    };
    for version in 1..=4 {
        let request = DescribeConfigsRequest::default()
            .with_include_synonyms(true)
            .with_include_documentation(version >= 4)
            .with_resources(vec![
                resource(2, "t"),
                resource(4, "1"),
                resource(2, "nobody"),
                resource(4, "2"),
                resource(8, "x"),
            ]);
        let response = client.ask(version, &request).await;
        let codes: Vec<i16> = response.results.iter().map(|one| one.error_code).collect();
        assert_eq!(codes, [0, 0, 3, 42, 42]);
        let first = &response.results[0];
        assert_eq!(first.error_message, None);
        if version >= 3 {
            let documented = |one: &DescribeConfigsResourceResult| one.documentation.is_some();
            assert_eq!(first.configs.iter().any(documented), version >= 4);
        }
        let value = |at: usize, name: &str| {
            let configs = &response.results[at].configs;
            let config = configs.iter().find(|config| config.name.as_str() == name);
            config.map(|config| {
                (
                    config.value.as_ref().unwrap().to_string(),
                    config.config_source,
                )
            })
        };
        assert_eq!(
            value(0, "message.timestamp.type"),
            Some(("LogAppendTime".to_owned(), 1))
        );
        assert_eq!(value(0, "min.insync.replicas"), Some(("1".to_owned(), 5)));
        assert_eq!(value(1, "num.partitions"), Some(("1".to_owned(), 4)));
    }
    let keys = Some(vec![str("max.message.bytes"), str("unknown")]);
    let request = DescribeConfigsRequest::default()
        .with_resources(vec![resource(2, "t").with_configuration_keys(keys)]);
    assert_eq!(client.ask(4, &request).await.results[0].configs.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn partitions_are_described_in_pages() {
    let world = World::new().await;
    let mut client = world.connect();
    client.create("a", 3, &[]).await;
    client.create("b", 4, &[]).await;
    let topics =
        ["b", "a", "nobody"].map(|name| TopicRequest::default().with_name(topic_name(name)));
    let mut request = DescribeTopicPartitionsRequest::default()
        .with_topics(topics.to_vec())
        .with_response_partition_limit(2);
    let mut seen = Vec::new();
    for _ in 0..10 {
        let response = client.ask(0, &request).await;
        for topic in &response.topics {
            let name = topic.name.as_ref().unwrap().to_string();
            if topic.error_code != 0 {
                seen.push((name, i32::from(topic.error_code)));
                continue;
            }
            let lists = |one: &DescribeTopicPartitionsResponsePartition| {
                one.eligible_leader_replicas.is_some() && one.last_known_elr.is_some()
            };
            assert!(topic.partitions.iter().all(lists), "Java takes no null");
            seen.extend(
                topic
                    .partitions
                    .iter()
                    .map(|one| (name.clone(), one.partition_index)),
            );
        }
        let Some(next) = response.next_cursor else {
            break;
        };
        request.cursor = Some(
            Cursor::default()
                .with_topic_name(next.topic_name)
                .with_partition_index(next.partition_index),
        );
    }
    let names: Vec<_> = seen
        .iter()
        .map(|(name, index)| format!("{name}{index}"))
        .collect();
    assert_eq!(names, ["a0", "a1", "a2", "b0", "b1", "b2", "b3", "nobody3"]);
}

#[tokio::test(start_paused = true)]
async fn topics_are_told_by_the_names_that_were_asked_for() {
    let world = World::new().await;
    let mut client = world.connect();
    let long = "public/default/x";
    let made = client.look_up(long).await;
    assert_eq!(made.name, Some(topic_name(long)));
    assert_eq!(client.look_up("x").await.name, Some(topic_name("x")));
    let asked = TopicRequest::default().with_name(topic_name(long));
    let request = DescribeTopicPartitionsRequest::default()
        .with_topics(vec![asked])
        .with_response_partition_limit(10);
    let described = &client.ask(0, &request).await.topics[0];
    assert_eq!(described.name, Some(topic_name(long)));
    let gone = DeleteTopicState::default().with_name(Some(topic_name(long)));
    let request = DeleteTopicsRequest::default().with_topics(vec![gone]);
    let gone = &client.ask(6, &request).await.responses[0];
    assert_eq!(
        (gone.error_code, gone.name.clone()),
        (0, Some(topic_name(long)))
    );
}

#[tokio::test(start_paused = true)]
async fn what_is_named_a_thousand_times_is_told_once() {
    let world = World::new().await;
    let mut client = world.connect();
    client.create("t", 100, &[]).await;
    let topic = MetadataRequestTopic::default().with_name(Some(topic_name("t")));
    let request = MetadataRequest::default().with_topics(Some(vec![topic; 1_000]));
    assert_eq!(client.ask(9, &request).await.topics.len(), 1);
    let broker = DescribeConfigsResource::default()
        .with_resource_type(4)
        .with_resource_name(str("1"))
        .with_configuration_keys(None);
    let request = DescribeConfigsRequest::default().with_resources(vec![broker; 1_000]);
    assert_eq!(client.ask(4, &request).await.results.len(), 1);
    let request = CreateTopicsRequest::default().with_topics(vec![wanted("u", 1); 1_000]);
    let request = request.with_validate_only(true);
    assert_eq!(client.ask(7, &request).await.topics.len(), 1);
    let gone = DeleteTopicState::default().with_name(Some(topic_name("nobody")));
    let request = DeleteTopicsRequest::default().with_topics(vec![gone; 1_000]);
    assert_eq!(client.ask(6, &request).await.responses.len(), 1);
    let more = CreatePartitionsTopic::default().with_name(topic_name("t"));
    let request = CreatePartitionsRequest::default().with_topics(vec![more; 1_000]);
    assert_eq!(client.ask(3, &request).await.results.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn answers_of_many_rows_are_made_while_few_others_are() {
    let world = World::new().await;
    let mut client = world.connect();
    client.create("small", 100, &[]).await;
    client.create("large", 300, &[]).await;
    let all = world.served.large.available_permits() as u32;
    let others = world.served.large.clone().acquire_many_owned(all).await;
    assert_eq!(client.look_up("small").await.partitions.len(), 100);
    let topic = MetadataRequestTopic::default().with_name(Some(topic_name("large")));
    let metadata = MetadataRequest::default().with_topics(Some(vec![topic]));
    let names = (0..40).map(|number| wanted(&format!("t{number}"), 1));
    let checked = CreateTopicsRequest::default()
        .with_topics(names.collect())
        .with_validate_only(true);
    client.send(9, &metadata).await;
    client.send(7, &checked).await;
    let wait = std::time::Duration::from_secs(5);
    let early = tokio::time::timeout(wait, tokio::io::AsyncReadExt::read_u8(&mut client.stream));
    assert!(early.await.is_err());
    drop(others);
    let told = client.receive::<MetadataRequest>(9).await;
    assert_eq!(told.topics[0].partitions.len(), 300);
    assert_eq!(
        client.receive::<CreateTopicsRequest>(7).await.topics.len(),
        40
    );
}

#[tokio::test(start_paused = true)]
async fn answer_of_more_rows_than_there_may_be_says_so_of_those_beyond() {
    let world = World::new().await;
    let mut client = world.connect();
    let names: Vec<String> = (0..22).map(|number| format!("t{number:02}")).collect();
    for name in &names {
        client.create(name, 10_000, &[]).await;
    }
    let topics = names
        .iter()
        .map(|name| MetadataRequestTopic::default().with_name(Some(topic_name(name))));
    let request = MetadataRequest::default().with_topics(Some(topics.collect()));
    let told = client.ask(12, &request).await.topics;
    let rows: usize = told.iter().map(|topic| topic.partitions.len()).sum();
    assert_eq!((rows, told.len()), (190_000, 22));
    let beyond = told[19..].iter().map(|topic| topic.error_code);
    assert!({ beyond }.all(|code| code == error_code::INVALID_REQUEST));
    // All of them are told, to one at a time.
    let all = MetadataRequest::default().with_topics(None);
    let turn = world.served.longest.clone().acquire_owned().await;
    client.send(13, &all).await;
    let wait = std::time::Duration::from_secs(5);
    let early = tokio::time::timeout(wait, tokio::io::AsyncReadExt::read_u8(&mut client.stream));
    assert!(early.await.is_err());
    drop(turn);
    let response = client.receive::<MetadataRequest>(13).await;
    let rows = response.topics.iter().map(|topic| topic.partitions.len());
    assert_eq!((response.error_code, rows.sum()), (0, 220_000));
    assert_eq!(world.served.longest.available_permits(), 1);
}

#[tokio::test(start_paused = true)]
async fn all_topics_are_told_as_those_that_are_asked_for_in_every_version() {
    let world = World::new().await;
    let mut client = world.connect();
    for version in 0..=13 {
        let none = (version == 0).then(Vec::new);
        let all = MetadataRequest::default().with_topics(none);
        let names: Vec<String> = (0..version).map(|number| format!("t{number:02}")).collect();
        let topics = names
            .iter()
            .map(|name| MetadataRequestTopic::default().with_name(Some(topic_name(name))));
        let named = MetadataRequest::default().with_topics(Some(topics.collect()));
        let told = client.ask(version, &all).await;
        assert_eq!(told.topics.len(), version as usize);
        if version > 0 {
            assert_eq!(told, client.ask(version, &named).await, "{version}");
        }
        client.create(&format!("t{version:02}"), 2, &[]).await;
    }
    // More than are told at all; not told in part.
    for number in 0..100 {
        client.create(&format!("w{number}"), 10_000, &[]).await;
    }
    let all = MetadataRequest::default().with_topics(None);
    let response = client.ask(13, &all).await;
    assert_eq!(response.error_code, error_code::INVALID_REQUEST);
    assert!(response.topics.is_empty());
}
