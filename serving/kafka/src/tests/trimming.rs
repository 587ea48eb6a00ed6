//! DeleteRecords, and how long records stay.

use std::time::Duration;

use hulse_proto::batch::Compression;
use kafka_protocol::messages::alter_configs_request::{AlterConfigsResource, AlterableConfig};
use kafka_protocol::messages::delete_records_request::{
    DeleteRecordsPartition, DeleteRecordsTopic,
};
use kafka_protocol::messages::describe_configs_request::DescribeConfigsResource;
use kafka_protocol::messages::incremental_alter_configs_request as incremental;
use kafka_protocol::messages::{
    AlterConfigsRequest, DeleteRecordsRequest, DescribeConfigsRequest,
    IncrementalAlterConfigsRequest, ProduceRequest,
};

use super::world::*;
use crate::error_code;

/// Low watermark and error of a trim of partition 0.
async fn trim(client: &mut Client, version: i16, topic: &str, offset: i64) -> (i64, i16) {
    let partition = DeleteRecordsPartition::default().with_offset(offset);
    let topic = DeleteRecordsTopic::default()
        .with_name(topic_name(topic))
        .with_partitions(vec![partition]);
    let request = DeleteRecordsRequest::default()
        .with_topics(vec![topic])
        .with_timeout_ms(1000);
    let response = client.ask(version, &request).await;
    let found = &response.topics[0].partitions[0];
    (found.low_watermark, found.error_code)
}

#[tokio::test(start_paused = true)]
async fn deleted_records_are_out_of_range_and_the_rest_is_read() {
    let world = World::new().await;
    let mut client = world.connect();
    client.look_up("t").await;
    for time in 0..10 {
        client
            .produce("t", batch(Compression::None, &[(time, b"v")]))
            .await;
    }
    for (version, offset, expected) in [
        (0, 3, (3, 0)),
        (1, 2, (3, 0)),
        (2, 11, (-1, error_code::OFFSET_OUT_OF_RANGE)),
        (2, -2, (-1, error_code::OFFSET_OUT_OF_RANGE)),
        (2, 5, (5, 0)),
    ] {
        assert_eq!(trim(&mut client, version, "t", offset).await, expected);
    }
    let found = client.fetch("t", 4).await;
    assert_eq!(found.error_code, error_code::OFFSET_OUT_OF_RANGE);
    let found = client.fetch("t", 5).await;
    assert_eq!(
        (
            found.error_code,
            found.log_start_offset,
            found.high_watermark
        ),
        (0, 5, 10)
    );
    assert_eq!(trim(&mut client, 2, "t", -1).await, (10, 0));
    assert_eq!(
        trim(&mut client, 2, "nobody", -1).await,
        (-1, error_code::UNKNOWN_TOPIC_OR_PARTITION)
    );
    let world = world.restarted().await;
    let mut client = world.connect();
    client.look_up("t").await;
    let found = client.fetch("t", 9).await;
    assert_eq!(found.error_code, error_code::OFFSET_OUT_OF_RANGE);
}

/// What is behind it on its connection is done while it waits for metadata, and is not part of "all that is there".
#[tokio::test(start_paused = true)]
async fn deletion_of_records_holds_up_no_later_request_and_takes_nothing_of_it() {
    let world = World::new().await;
    let mut client = world.connect();
    client.look_up("t").await;
    for time in 0..10 {
        client
            .produce("t", batch(Compression::None, &[(time, b"v")]))
            .await;
    }
    let silence = Duration::from_secs(2);
    world.memory.slow_changes(silence);
    let began = tokio::time::Instant::now();
    let partition = DeleteRecordsPartition::default().with_offset(-1);
    let topic = DeleteRecordsTopic::default()
        .with_name(topic_name("t"))
        .with_partitions(vec![partition]);
    let delete = DeleteRecordsRequest::default()
        .with_topics(vec![topic])
        .with_timeout_ms(1000);
    client.send(2, &delete).await;
    client.send(9, &produce("t", -1, vec![(0, one(10))])).await;
    let mut other = world.connect();
    while other.fetch("t", 9).await.high_watermark < 11 {
        tokio::task::yield_now().await;
    }
    assert!(began.elapsed() < silence, "it is stored meanwhile");
    let deleted = client.receive::<DeleteRecordsRequest>(2).await;
    assert!(began.elapsed() >= silence);
    let deleted = &deleted.topics[0].partitions[0];
    assert_eq!((deleted.low_watermark, deleted.error_code), (10, 0));
    let stored = client.receive::<ProduceRequest>(9).await;
    let stored = &stored.responses[0].partition_responses[0];
    assert_eq!((stored.base_offset, stored.error_code), (10, 0));
}

/// Value and source of a config of topic `t`.
async fn told(client: &mut Client, name: &str) -> (String, i8) {
    let resource = DescribeConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(str("t"))
        .with_configuration_keys(Some(vec![str(name)]));
    let request = DescribeConfigsRequest::default().with_resources(vec![resource]);
    let response = client.ask(4, &request).await;
    let config = &response.results[0].configs[0];
    assert!(!config.read_only);
    (
        config.value.as_ref().unwrap().to_string(),
        config.config_source,
    )
}

async fn change(client: &mut Client, name: &str, operation: i8, value: Option<&str>) -> i16 {
    let config = incremental::AlterableConfig::default()
        .with_name(str(name))
        .with_config_operation(operation)
        .with_value(value.map(str));
    let resource = incremental::AlterConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(str("t"))
        .with_configs(vec![config]);
    let request = IncrementalAlterConfigsRequest::default().with_resources(vec![resource]);
    client.ask(1, &request).await.responses[0].error_code
}

#[tokio::test(start_paused = true)]
async fn retention_is_told_and_changed() {
    const WEEK: &str = "604800000";
    let world = World::new().await;
    let mut client = world.connect();
    client.create("t", 1, &[("retention.bytes", "5000")]).await;
    let unlimited = ("-1".to_owned(), 1);
    assert_eq!(
        told(&mut client, "retention.ms").await,
        (WEEK.to_owned(), 5)
    );
    assert_eq!(
        told(&mut client, "retention.bytes").await,
        ("5000".to_owned(), 1)
    );
    assert_eq!(change(&mut client, "retention.ms", 0, Some("-1")).await, 0);
    assert_eq!(told(&mut client, "retention.ms").await, unlimited);
    assert_eq!(change(&mut client, "retention.bytes", 1, None).await, 0);
    assert_eq!(
        told(&mut client, "retention.bytes").await,
        ("-1".to_owned(), 5)
    );
    for (name, operation, value) in [
        ("retention.ms", 0, Some("soon")),
        ("retention.ms", 0, Some("-2")),
        ("retention.ms", 2, Some("1")),
        ("cleanup.policy", 0, Some("compact")),
        ("no.such.thing", 0, Some("1")),
    ] {
        let code = change(&mut client, name, operation, value).await;
        assert_eq!(code, error_code::INVALID_CONFIG, "{name} {value:?}");
    }
    assert_eq!(
        change(&mut client, "cleanup.policy", 0, Some("delete")).await,
        0
    );
    // What is not named goes back to what holds by itself.
    let config = AlterableConfig::default()
        .with_name(str("retention.bytes"))
        .with_value(Some(str("7")));
    let resource = AlterConfigsResource::default()
        .with_resource_type(2)
        .with_resource_name(str("t"))
        .with_configs(vec![config]);
    let request = AlterConfigsRequest::default().with_resources(vec![resource]);
    assert_eq!(client.ask(2, &request).await.responses[0].error_code, 0);
    assert_eq!(
        told(&mut client, "retention.ms").await,
        (WEEK.to_owned(), 5)
    );
    assert_eq!(
        told(&mut client, "retention.bytes").await,
        ("7".to_owned(), 1)
    );
}
