//! Versions, brokers, producer ids.

use bytes::{Buf, BufMut, BytesMut};
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, DescribeClusterRequest,
    FindCoordinatorRequest, InitProducerIdRequest, ResponseHeader,
};
use kafka_protocol::protocol::Decodable;
use tokio::io::AsyncWriteExt;

use super::world::*;
use crate::error_code;
use crate::wire::APIS;

#[tokio::test(start_paused = true)]
async fn versions_are_told_in_every_version_that_is_served() {
    let world = World::new().await;
    let mut client = world.connect();
    for version in 0..=4 {
        let request = match version {
            3.. => ApiVersionsRequest::default()
                .with_client_software_name(str("test"))
                .with_client_software_version(str("1")),
            _ => ApiVersionsRequest::default(),
        };
        let response = client.ask(version, &request).await;
        assert_eq!(response.error_code, 0);
        let told: Vec<_> = response
            .api_keys
            .iter()
            .map(|api| (api.api_key, api.min_version, api.max_version))
            .collect();
        assert_eq!(told.len(), APIS.len());
        // Produce from 0, or librdkafka sends uncompressed (KAFKA-18659).
        assert!(told.contains(&(ApiKey::Produce as i16, 0, 13)), "{told:?}");
        assert!(told.contains(&(ApiKey::Fetch as i16, 4, 17)), "{told:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn unknown_version_of_versions_is_answered_in_the_oldest_form_and_the_connection_goes_on() {
    let world = World::new().await;
    let mut client = world.connect();
    for version in [5, 127, i16::MAX] {
        let mut frame = BytesMut::new();
        frame.put_u32(20);
        frame.put_i16(ApiKey::ApiVersions as i16);
        frame.put_i16(version);
        frame.put_i32(77);
        // A body of a form that nobody knows yet.
        frame.put_slice(&[0xff; 12]);
        client.stream.write_all(&frame).await.unwrap();
        let mut answer = client.frame().await.unwrap();
        assert_eq!(
            ResponseHeader::decode(&mut answer, 0)
                .unwrap()
                .correlation_id,
            77
        );
        let response = ApiVersionsResponse::decode(&mut answer, 0).unwrap();
        assert_eq!(response.error_code, error_code::UNSUPPORTED_VERSION);
        let own = response.api_keys.iter().find(|api| api.api_key == 18);
        assert_eq!(
            own.map(|api| (api.min_version, api.max_version)),
            Some((0, 4))
        );
        assert!(!answer.has_remaining());
    }
    assert_eq!(client.look_up("first").await.error_code, 0);
}

#[tokio::test(start_paused = true)]
async fn cluster_has_this_broker_at_the_address_that_was_dialled() {
    let world = World::new().await;
    let mut client = world.connect();
    for version in 0..=2 {
        let request = DescribeClusterRequest::default();
        let response = client.ask(version, &request).await;
        assert_eq!(response.error_code, 0);
        let broker = &response.brokers[0];
        assert_eq!((broker.host.as_str(), broker.port), ("10.1.2.3", 9092));
        assert_eq!(response.controller_id, broker.broker_id);
    }
    let controllers = DescribeClusterRequest::default().with_endpoint_type(2);
    assert_eq!(client.ask(1, &controllers).await.error_code, 115);
}

#[tokio::test(start_paused = true)]
async fn producer_ids_are_never_given_twice_and_transactions_are_refused() {
    let world = World::new().await;
    let mut client = world.connect();
    let plain = InitProducerIdRequest::default().with_transactional_id(None);
    let mut given = Vec::new();
    for version in 0..=5 {
        let response = client.ask(version, &plain).await;
        assert_eq!((response.error_code, response.producer_epoch), (0, 0));
        given.push(response.producer_id);
    }
    given.sort();
    given.dedup();
    assert_eq!(given.len(), 6);
    let request = InitProducerIdRequest::default().with_transactional_id(Some(str("t").into()));
    let refused = client.ask(4, &request).await;
    // A code that ends librdkafka's producer too: it asks again for ever after most others.
    let code = error_code::TRANSACTIONAL_ID_AUTHORIZATION_FAILED;
    assert_eq!((refused.error_code, refused.producer_id.0), (code, -1));
}

#[tokio::test(start_paused = true)]
async fn coordinator_of_groups_of_a_lone_broker_is_this_one() {
    let world = World::new().await;
    let mut client = world.connect();
    let here = |host: &str, port: i32| assert_eq!((host, port), ("10.1.2.3", 9092));
    for version in 0..=3 {
        let request = FindCoordinatorRequest::default().with_key(str("g"));
        let response = client.ask(version, &request).await;
        assert_eq!(response.error_code, error_code::NONE);
        here(&response.host, response.port);
    }
    let keys = vec![str("g"), str("h"), str("g")];
    let request = FindCoordinatorRequest::default().with_coordinator_keys(keys);
    let response = client.ask(4, &request).await;
    assert_eq!(response.coordinators.len(), 2, "each once");
    for coordinator in &response.coordinators {
        assert_eq!(coordinator.error_code, error_code::NONE);
        here(&coordinator.host, coordinator.port);
    }
}

#[tokio::test(start_paused = true)]
async fn nothing_is_committed_in_any_version() {
    let world = World::new().await;
    let mut client = world.connect();
    for version in 1..=9 {
        let response = client
            .ask(version, &super::versions::offsets_of_a_group(version))
            .await;
        let one = response.topics.iter().flat_map(|topic| &topic.partitions);
        let one = one.map(|found| (found.partition_index, found.committed_offset));
        let topics = response.groups.iter().flat_map(|group| &group.topics);
        let several = topics.flat_map(|topic| &topic.partitions);
        let several = several.map(|found| (found.partition_index, found.committed_offset));
        let told: Vec<_> = one.chain(several).collect();
        assert_eq!(told, [(0, -1), (1, -1)], "version {version}");
    }
}
