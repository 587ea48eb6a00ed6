//! Requests about the broker and the cell: versions, brokers, producer ids.

use std::sync::Arc;

use hulse_proto::error::Reason;
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, DescribeClusterRequest,
    DescribeClusterResponse, InitProducerIdRequest, InitProducerIdResponse,
};
use serving_broker::{Action, Resource};

use super::stage::Outcome;
use crate::error_code;
use crate::link::Link;
use crate::wire::{APIS, Asked, Broken, Request, text};

/// Brokers are described, not controllers.
const ENDPOINTS_OF_BROKERS: i8 = 1;
/// "Not told."
pub(crate) const NO_OPERATIONS: i32 = i32::MIN;

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

/// A producer id. Without transactions each request gets a new one; idempotent producers raise their epoch by themselves
/// (serving.md C1).
pub(super) async fn init_producer_id(
    link: &Arc<Link>,
    mut request: Request,
) -> Result<Outcome, Broken> {
    let message: InitProducerIdRequest = request.decode()?;
    let response = InitProducerIdResponse::default();
    if let Some(id) = &message.transactional_id {
        link.not_served(id.as_str());
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
