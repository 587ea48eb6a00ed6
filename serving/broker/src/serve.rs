//! Runs a broker's listeners: from "not ready" over "serving" to a shutdown that answers what was taken.
//!
//! Shutdown: readiness goes, partitions are handed over to other brokers where there are any (at the pace of `broker.drain_rate`, and at
//! most 20 s longer than that takes: `listener::handing`), nothing new is accepted, sessions answer what they hold and end with
//! SHUTTING_DOWN, reads end, then the partitions close. What is not done after [`DRAIN_MAX`] is cut off; clients then know of no answer,
//! which is the truth.

use std::sync::Arc;
use std::time::Duration;

use bookie_metadata::MetadataStore;
use hulse_proto::time::WallClock;
use prometheus_client::registry::Registry;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

use crate::backlogs::Watch;
use crate::drain_order::DrainOrder;
use crate::expiry::Expiry;
use crate::http::{Probes, StorageMode, serve_probes};
use crate::listener::{Front, FrontParts, Services, WireListener, accept, set_serving};
use crate::metrics::Metrics;
use crate::restart::RestartRole;
use crate::retention::Sweep;
use crate::settling::Settling;
use crate::subscriptions::Orphans;
use crate::topics::Topics;
use crate::{BrokerConfig, Partitions, StorageDamage};

/// Longest wait for sessions and reads at shutdown.
const DRAIN_MAX: Duration = Duration::from_secs(10);
/// Longest wait for connections to close once nothing runs on them.
const CLOSE_MAX: Duration = Duration::from_secs(1);
/// The number of open partitions is counted this often.
const COUNT_EVERY: Duration = Duration::from_secs(1);
/// Ledgers whose deletion was cut short are looked for this often.
const SWEEP_EVERY: Duration = Duration::from_secs(600);

/// A broker says that it is ready after so long, also when metadata do not tell of the others.
const KNOWN_MAX: Duration = Duration::from_secs(2);

/// A broker that is ready to be served. Built by the command line.
pub struct Broker {
    /// What it was told at start.
    pub config: BrokerConfig,
    /// The partitions it may open.
    pub partitions: Partitions,
    /// The topics of the cell.
    pub topics: Topics,
    /// The metadata store.
    pub metadata: Arc<dyn MetadataStore>,
    /// Metrics, registered in `registry`.
    pub metrics: Arc<Metrics>,
    /// What `/metrics` shows.
    pub registry: Arc<Registry>,
    /// The wall.
    pub clock: Arc<dyn WallClock>,
    /// How full the disk of the bookie in this process is, if there is one.
    pub storage_mode: Option<StorageMode>,
    /// What that bookie knows of damage.
    pub storage_damage: Option<StorageDamage>,
    /// The operator's order to give everything away; who registers the broker tells the others of it.
    pub order: DrainOrder,
    /// The whole cell is in this process, and ends with it.
    pub whole_cell: bool,
}

/// Why a broker could not go on serving.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The gRPC listener failed.
    #[error("gRPC listener failed: {0}")]
    Grpc(#[source] tonic::transport::Error),
    /// The HTTP listener failed.
    #[error("HTTP listener failed: {0}")]
    Http(#[source] std::io::Error),
    /// A listener's task ended by itself, which is a bug.
    #[error("a listener ended by itself: {0}")]
    Ended(#[source] tokio::task::JoinError),
}

/// Serves both listeners until `shutdown`, then drains. Needs a multi-thread tokio runtime or a current-thread one.
///
/// # Errors
/// A listener failed; the broker was drained as far as it could be.
pub async fn serve(
    broker: Broker,
    grpc: TcpListener,
    http: TcpListener,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    serve_with(broker, grpc, http, Vec::new(), shutdown).await
}

/// As [`serve`], with listeners of other wires beside it. They see the drain on the front they are given, and are waited for like
/// sessions.
///
/// # Errors
/// As [`serve`].
pub async fn serve_with(
    broker: Broker,
    grpc: TcpListener,
    http: TcpListener,
    others: Vec<Box<dyn WireListener>>,
    shutdown: CancellationToken,
) -> Result<(), ServeError> {
    let metadata = broker.metadata.clone();
    let probes = Probes::new(broker.registry, metadata, broker.storage_mode);
    probes.set_role(match broker.whole_cell {
        true => RestartRole::WholeCell,
        false => RestartRole::Broker(broker.config.name.clone()),
    });
    let front = Front::new(FrontParts {
        config: broker.config,
        partitions: broker.partitions,
        topics: broker.topics,
        metadata: broker.metadata,
        metrics: broker.metrics,
        storage_damage: broker.storage_damage,
        order: broker.order,
    });
    let owners = front.partitions.with.owners.clone();
    owners.begin();
    let services = Services::new(&front).await;
    let health = services.health();
    // The HTTP listener outlives the drain, so that its probes can tell of it.
    let http_stop = CancellationToken::new();
    let mut http_server = tokio::spawn(serve_probes(
        http,
        probes.clone(),
        front.config.connections_max,
        http_stop.clone(),
    ));
    let grpc_stop = CancellationToken::new();
    let serving = services.serve(
        accept(grpc, front.config.connections_max),
        grpc_stop.clone().cancelled_owned(),
    );
    let mut grpc_server = tokio::spawn(serving);
    let background = tokio::spawn(background(front.clone(), shutdown.clone()));
    let balancing = tokio::spawn(front.clone().balance_brokers(shutdown.clone()));
    // Until the very end: while partitions are handed over, others must be known.
    let following = tokio::spawn({
        let (owners, partitions) = (owners.clone(), front.partitions.clone());
        async move { owners.run(&partitions).await }
    });
    for other in others {
        front.tasks.spawn(other.serve(front.clone()));
    }
    owners.known_within(KNOWN_MAX).await;
    set_serving(&health, true).await;
    probes.set_serving(true);
    tracing::info!(broker = %front.config.name, advertised = %front.config.advertised, "serving");

    let failed = end_of(&shutdown, &mut grpc_server, &mut http_server).await;
    probes.set_serving(false);
    set_serving(&health, false).await;
    if failed.is_none() {
        front.leave().await;
    }
    grpc_stop.cancel();
    drain(&front).await;
    background.abort();
    balancing.abort();
    following.abort();
    cut(&mut grpc_server).await;
    http_stop.cancel();
    cut(&mut http_server).await;
    tracing::info!(broker = %front.config.name, "stopped serving");
    failed.map_or(Ok(()), Err)
}

/// Waits for a listener that was told to stop. Connections of clients that do not hang up are cut.
async fn cut<T>(server: &mut JoinHandle<T>) {
    if !server.is_finished() {
        drop(tokio::time::timeout(CLOSE_MAX, &mut *server).await);
        server.abort();
    }
}

/// Waits until the end is asked for, or a listener fails, which is answered.
async fn end_of(
    shutdown: &CancellationToken,
    grpc: &mut JoinHandle<Result<(), tonic::transport::Error>>,
    http: &mut JoinHandle<std::io::Result<()>>,
) -> Option<ServeError> {
    tokio::select! {
        biased;
        () = shutdown.cancelled() => None,
        ended = grpc => match ended {
            Ok(result) => result.err().map(ServeError::Grpc),
            Err(error) => Some(ServeError::Ended(error)),
        },
        ended = http => match ended {
            Ok(result) => result.err().map(ServeError::Http),
            Err(error) => Some(ServeError::Ended(error)),
        },
    }
}

async fn drain(front: &Front) {
    front.drain.cancel();
    front.tasks.close();
    if tokio::time::timeout(DRAIN_MAX, front.tasks.wait())
        .await
        .is_err()
    {
        tracing::warn!(left = front.tasks.len(), "sessions and reads are cut off");
    }
    front.partitions.close_all().await;
    front.kill.cancel();
}

/// What a broker does besides answering: topics are watched, unfinished deletions are finished, what retention lets go is trimmed,
/// subscriptions are kept within their quotas, cursors that nobody has are removed, names of groups that are gone are free again, partitions of dead owners whose copies are lacking
/// are opened, the gauge is kept, loads are counted.
async fn background(front: Arc<Front>, shutdown: CancellationToken) {
    let remover = Arc::new(front.partitions.clone());
    let count = async {
        loop {
            front
                .metrics
                .partitions()
                .set(front.partitions.open_count() as i64);
            tokio::time::sleep(COUNT_EVERY).await;
        }
    };
    let sweep = async {
        loop {
            if let Err(fault) = front.partitions.sweep_deleting().await {
                tracing::warn!(%fault, "ledgers that were being deleted are left for the next look");
            }
            tokio::time::sleep(SWEEP_EVERY).await;
        }
    };
    let retention = Sweep::new(
        front.partitions.clone(),
        front.topics.clone(),
        front.config.retention,
        front.config.retention_interval,
    );
    let backlogs = Watch::new(
        front.partitions.clone(),
        front.topics.clone(),
        front.metrics.clone(),
        front.config.backlog,
        front.backlogs.clone(),
    );
    let expiry = Expiry::new(
        front.partitions.clone(),
        front.subscriptions.clone(),
        front.topics.clone(),
        front.metrics.clone(),
    );
    let orphans = Orphans::new(front.partitions.clone(), front.subscriptions.clone());
    let settling = Settling::new(front.partitions.clone(), front.topics.clone());
    tokio::select! {
        biased;
        () = shutdown.cancelled() => {}
        _ = async { tokio::join!(front.topics.run(remover, shutdown.clone()), count, sweep, retention.run(), backlogs.run(), expiry.run(), orphans.run(), settling.run(), front.clone().follow_order(), front.clone().count_idle_members(), front.sample_loads(), front.sweep_group_names()) } => {}
    }
}
