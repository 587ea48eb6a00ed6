//! Requests about the broker and the cell: versions, brokers, producer ids.

use std::sync::Arc;

use hulse_proto::error::{Fault, Reason};
use kafka_protocol::messages::api_versions_response::ApiVersion;
use kafka_protocol::messages::describe_cluster_response::DescribeClusterBroker;
use kafka_protocol::messages::find_coordinator_response::Coordinator;
use kafka_protocol::messages::{
    ApiKey, ApiVersionsRequest, ApiVersionsResponse, DescribeClusterRequest,
    DescribeClusterResponse, FindCoordinatorRequest, FindCoordinatorResponse,
    InitProducerIdRequest, InitProducerIdResponse,
};
use serving_broker::{Action, Resource};

use super::begin::Outcome;
use crate::error_code;
use crate::link::Link;
use crate::wire::{APIS, Asked, Broken, Request, text};

/// Brokers are described, not controllers.
const ENDPOINTS_OF_BROKERS: i8 = 1;
/// UNSUPPORTED_ENDPOINT_TYPE.
const UNSUPPORTED_ENDPOINT_TYPE: i16 = 115;
/// First version that asks for several coordinators at once.
const COORDINATORS_FROM: i16 = 4;
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

/// The brokers: this one.
pub(super) fn cluster(link: &Arc<Link>, mut request: Request) -> Result<Outcome, Broken> {
    let message: DescribeClusterRequest = request.decode()?;
    let mut response = DescribeClusterResponse::default()
        .with_cluster_id(text(link.served.cluster_id.clone()))
        .with_controller_id(link.served.node_id.into())
        .with_cluster_authorized_operations(NO_OPERATIONS);
    if let Err(fault) = link.front().allow(Action::Describe, Resource::Cell) {
        response.error_code = error_code::of_request(fault.reason);
        response.error_message = Some(text(fault.message));
    } else if message.endpoint_type != ENDPOINTS_OF_BROKERS {
        response.error_code = UNSUPPORTED_ENDPOINT_TYPE;
        response.error_message = Some(text("this broker tells of brokers only"));
        response.endpoint_type = message.endpoint_type;
    } else {
        let broker = DescribeClusterBroker::default()
            .with_broker_id(link.served.node_id.into())
            .with_host(text(link.host.clone()))
            .with_port(i32::from(link.port));
        response.brokers = vec![broker];
    }
    Ok(Outcome::message(request.asked(), &response))
}

/// Where groups and transactions are coordinated: nowhere yet.
///
/// Old clients ask also where they only assign, and pass every other error on to the application, so they are told that there is no
/// coordinator now. From version 4 on, which the clients speak that ask for a group's sake, the answer says what is the matter.
pub(super) fn coordinator(mut request: Request) -> Result<Outcome, Broken> {
    const NOBODY: (i32, i32) = (-1, -1);
    let message: FindCoordinatorRequest = request.decode()?;
    let why = text("this release has no groups and no transactions; assign partitions");
    let mut response = FindCoordinatorResponse::default();
    if request.version < COORDINATORS_FROM {
        response = response
            .with_error_code(error_code::COORDINATOR_NOT_AVAILABLE)
            .with_node_id(NOBODY.0.into())
            .with_port(NOBODY.1);
        response.error_message = (request.version > 0).then_some(why);
    } else {
        let refused = message.coordinator_keys.into_iter().map(|key| {
            Coordinator::default()
                .with_key(key)
                .with_error_code(error_code::UNSUPPORTED_VERSION)
                .with_error_message(Some(why.clone()))
                .with_node_id(NOBODY.0.into())
                .with_port(NOBODY.1)
        });
        response.coordinators = refused.collect();
    }
    Ok(Outcome::message(request.asked(), &response))
}

/// A producer id. Without transactions each request gets a new one; idempotent producers raise their epoch by themselves
/// (serving.md C1).
pub(super) async fn init_producer_id(
    link: &Arc<Link>,
    mut request: Request,
) -> Result<Outcome, Broken> {
    let message: InitProducerIdRequest = request.decode()?;
    let given = match message.transactional_id {
        Some(_) => Err(Fault::new(
            Reason::InvalidRequest,
            "this broker has no transactions yet; send without a transactional id",
        )),
        None => link.front().new_producer_id().await,
    };
    let response = InitProducerIdResponse::default();
    let response = match given {
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
    Ok(Outcome::message(request.asked(), &response))
}
