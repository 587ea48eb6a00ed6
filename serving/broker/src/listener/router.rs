//! Puts the services together on one gRPC server with the settings of dependencies.md §1.5.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::Stream;
use hulse_proto::limits::MESSAGE_BYTES_MAX;
use hulse_proto::wire::{DESCRIPTORS, v1};
use tokio::io::{AsyncRead, AsyncWrite};
use tonic::server::NamedService;
use tonic::transport::Server;
use tonic::transport::server::{Connected, Router};
use tonic_health::ServingStatus;
use tonic_health::server::HealthReporter;

use super::admin::AdminService;
use super::consuming::ConsumeService;
use super::front::Front;
use super::identity::TxnService;
use super::lookup::LookupService;
use super::peers::PeersService;
use super::produce::ProduceService;
use super::reading::LogService;
use super::stream_groups::StreamGroupsService;
use super::subscriptions::SubscriptionsService;

/// Largest HTTP/2 frame.
const FRAME_BYTES: u32 = 256 << 10;
/// Unread bytes per stream and per connection that a sender may have out.
const WINDOW_BYTES: (u32, u32) = (1 << 20, 2 << 20);
/// Streams of one connection: a reader has one per partition.
const STREAMS_MAX: u32 = 4096;
/// A silent connection is asked this often, and ended when it does not answer.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(5));

type Lookup = v1::lookup_server::LookupServer<LookupService>;
type Produce = v1::produce_server::ProduceServer<ProduceService>;
type Log = v1::log_server::LogServer<LogService>;
type Consume = v1::consume_server::ConsumeServer<ConsumeService>;
type StreamGroups = v1::stream_groups_server::StreamGroupsServer<StreamGroupsService>;
type Subscriptions = v1::subscriptions_server::SubscriptionsServer<SubscriptionsService>;
type Txn = v1::txn_server::TxnServer<TxnService>;
type Peers = v1::peers_server::PeersServer<PeersService>;
type Admin = v1::admin_server::AdminServer<AdminService>;

/// The services of one broker on one server, and whether health says that they serve.
pub(crate) struct Services {
    router: Router,
    health: HealthReporter,
}

impl Services {
    /// Puts them together; health says "not serving" until [`Services::set_serving`].
    pub(crate) async fn new(front: &Arc<Front>) -> Self {
        let health = HealthReporter::new();
        let checks = tonic_health::pb::health_server::HealthServer::new(
            tonic_health::server::HealthService::from_health_reporter(health.clone()),
        );
        let reflection = tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .register_encoded_file_descriptor_set(tonic_health::pb::FILE_DESCRIPTOR_SET)
            .build_v1()
            .expect("the descriptors were made by this build");
        let router = Server::builder()
            .max_frame_size(FRAME_BYTES)
            .initial_stream_window_size(WINDOW_BYTES.0)
            .initial_connection_window_size(WINDOW_BYTES.1)
            .max_concurrent_streams(STREAMS_MAX)
            .http2_keepalive_interval(Some(KEEP_ALIVE.0))
            .http2_keepalive_timeout(Some(KEEP_ALIVE.1))
            .add_service(checks)
            .add_service(reflection)
            .add_service(Lookup::new(LookupService(front.clone())))
            .add_service(
                Produce::new(ProduceService(front.clone()))
                    .max_decoding_message_size(MESSAGE_BYTES_MAX),
            )
            .add_service(Log::new(LogService(front.clone())))
            .add_service(Consume::new(ConsumeService(front.clone())))
            .add_service(StreamGroups::new(StreamGroupsService(front.clone())))
            .add_service(Subscriptions::new(SubscriptionsService(front.clone())))
            .add_service(Txn::new(TxnService(front.clone())))
            .add_service(Peers::new(PeersService(front.clone())))
            .add_service(Admin::new(AdminService(front.clone())));
        let services = Self { router, health };
        set_serving(&services.health, false).await;
        services
    }

    /// The switch of health, which outlives the server.
    pub(crate) fn health(&self) -> HealthReporter {
        self.health.clone()
    }

    /// Serves connections until `stop`, then lets the open ones come to their end.
    ///
    /// # Errors
    /// The listener failed.
    pub(crate) async fn serve<I, C>(
        self,
        incoming: I,
        stop: impl Future<Output = ()>,
    ) -> Result<(), tonic::transport::Error>
    where
        I: Stream<Item = std::io::Result<C>>,
        C: AsyncRead + AsyncWrite + Connected + Unpin + Send + 'static,
    {
        self.router
            .serve_with_incoming_shutdown(incoming, stop)
            .await
    }
}

/// What health says of the server and of each service.
pub(crate) async fn set_serving(health: &HealthReporter, serving: bool) {
    let status = if serving {
        ServingStatus::Serving
    } else {
        ServingStatus::NotServing
    };
    let names = [
        "",
        Lookup::NAME,
        Produce::NAME,
        Log::NAME,
        Consume::NAME,
        StreamGroups::NAME,
        Subscriptions::NAME,
        Txn::NAME,
        Admin::NAME,
    ];
    for name in names {
        health.set_service_status(name, status).await;
    }
}
