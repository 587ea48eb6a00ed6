//! Requests about the broker and the cell: versions, brokers, producer ids.

use std::sync::Arc;

use hulse_proto::error::Reason;
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, DescribeClusterRequest,
    DescribeClusterResponse, FindCoordinatorRequest, FindCoordinatorResponse,
    InitProducerIdRequest, InitProducerIdResponse,
};
use serving_broker::{Action, Resource};

use super::rows::once;
use super::stage::Outcome;
use crate::error_code;
use crate::link::Link;
use crate::wire::{APIS, Asked, Broken, Request, text};

/// Brokers are described, not controllers.
const ENDPOINTS_OF_BROKERS: i8 = 1;
/// First version that asks for several coordinators at once.
const COORDINATORS_FROM: i16 = 4;
/// Key type of groups; transactional ids have another.
const GROUPS: i8 = 0;
/// "Not told."
pub(super) const NO_OPERATIONS: i32 = i32::MIN;

fn versions(error_code: i16) -> ApiVersionsResponse {
    let told = APIS.iter().map(|api| {
        ApiVersion::default()
            .with_api_key(api.key as i16)
            .with_min_version(api.told_from)
            .with_max_version(api.to)
    });
    ApiVersionsResponse::default()
        .with_error_code(error_code)
        .with_api_keys(told.collect())
}

/// Which requests are served.
pub(super) fn api_versions(mut request: Request) -> Result<Outcome, Broken> {
    request.decode::<ApiVersionsRequest>()?;
    Ok(Outcome::message(
        request.asked(),
        &versions(error_code::NONE),
    ))
}

/// The same in the oldest form, for a client that asked in a newer one than is known: it asks again (serving.md D2.1).
pub(crate) fn older_versions(correlation: i32) -> Outcome {
    let asked = Asked {
        key: ApiKey::ApiVersions,
        version: 0,
        correlation,
    };
    Outcome::message(asked, &versions(error_code::UNSUPPORTED_VERSION))
}

/// The brokers that serve this wire.
pub(super) async fn cluster(link: &Arc<Link>, mut request: Request) -> Result<Outcome, Broken> {
    let message: DescribeClusterRequest = request.decode()?;
    let mut response = DescribeClusterResponse::default()
        .with_cluster_id(text(link.served.cluster_id.clone()))
        .with_controller_id(link.served.node_id.into())
        .with_cluster_authorized_operations(NO_OPERATIONS);
    if let Err(fault) = link.front().allow(Action::Describe, Resource::Cell) {
        response.error_code = error_code::of_request(fault.reason);
        response.error_message = Some(text(fault.message));
    } else if message.endpoint_type != ENDPOINTS_OF_BROKERS {
        response.error_code = error_code::UNSUPPORTED_ENDPOINT_TYPE;
        response.error_message = Some(text("this broker tells of brokers only"));
        response.endpoint_type = message.endpoint_type;
    } else {
        let nodes = link.nodes().await;
        let brokers = nodes.all().map(|node| {
            DescribeClusterBroker::default()
                .with_broker_id(node.id.into())
                .with_host(text(node.host.clone()))
                .with_port(i32::from(node.port))
        });
        response.brokers = brokers.collect();
    }
    let code = response.error_code;
    Ok(Outcome::message(request.asked(), &response).with_code(code))
}

/// Where groups and transactions are coordinated: here, where neither is served yet.
///
/// Every client knows from the table of versions that it cannot join a group here, and says so at once; but old ones never get that
/// far without a coordinator. They ask for it also where they only assign partitions, try for ever on "there is none now", and hand
/// every other error to an application that did nothing wrong. So nobody is told an error.
pub(super) fn coordinator(link: &Link, mut request: Request) -> Result<Outcome, Broken> {
    let message: FindCoordinatorRequest = request.decode()?;
    for (group, name) in looked_up(&message, request.version) {
        link.not_served(if group { "group" } else { "transactional id" }, name);
    }
    let node_id = link.served.node_id.into();
    let (host, port) = (text(link.host.clone()), i32::from(link.port));
    let mut response = FindCoordinatorResponse::default().with_error_message(None);
    if request.version < COORDINATORS_FROM {
        response = response
            .with_node_id(node_id)
            .with_host(host)
            .with_port(port);
    } else {
        let keys = once(message.coordinator_keys, Clone::clone);
        let here = keys.into_iter().map(|key| {
            Coordinator::default()
                .with_key(key)
                .with_error_message(None)
                .with_node_id(node_id)
                .with_host(host.clone())
                .with_port(port)
        });
        response.coordinators = here.collect();
    }
    Ok(Outcome::message(request.asked(), &response))
}

/// What the coordinator is asked for of: whether it is a group, and its name.
fn looked_up(message: &FindCoordinatorRequest, version: i16) -> impl Iterator<Item = (bool, &str)> {
    let one = (version < COORDINATORS_FROM).then_some(&message.key);
    let names = one.into_iter().chain(&message.coordinator_keys);
    names.map(|name| (message.key_type == GROUPS, name.as_str()))
}

/// A producer id. Without transactions each request gets a new one; idempotent producers raise their epoch by themselves
/// (serving.md C1).
pub(super) async fn init_producer_id(
    link: &Arc<Link>,
    mut request: Request,
) -> Result<Outcome, Broken> {
    let message: InitProducerIdRequest = request.decode()?;
    let response = InitProducerIdResponse::default();
    if let Some(id) = &message.transactional_id {
        link.not_served("transactional id", id.as_str());
        link.front().metrics().fault(Reason::InvalidRequest);
        // The one code that ends both Java's producer and librdkafka's; the latter asks for ever after INVALID_REQUEST.
        let code = error_code::TRANSACTIONAL_ID_AUTHORIZATION_FAILED;
        let response = response
            .with_error_code(code)
            .with_producer_id((-1).into())
            .with_producer_epoch(-1);
        return Ok(Outcome::message(request.asked(), &response).with_code(code));
    }
    let response = match link.front().new_producer_id().await {
        Ok(id) => response
            .with_producer_id(id.0.into())
            .with_producer_epoch(0),
        Err(fault) => {
            link.front().metrics().fault(fault.reason);
            response
                .with_error_code(error_code::of_request(fault.reason))
                .with_producer_id((-1).into())
                .with_producer_epoch(-1)
        }
    };
    let code = response.error_code;
    Ok(Outcome::message(request.asked(), &response).with_code(code))
}
