//! What all parts of a process stand on: metadata, clock, chance, name and cell, and what is counted.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bookie_metadata::cell::{CellSettings, ensure_cell};
use bookie_metadata::{
    EmbeddedOptions, EmbeddedStore, EtcdOptions, EtcdStore, MetadataError, MetadataStore,
};
use hulse_proto::error::ErrorKind;
use hulse_proto::id::{CellId, NodeName};
use hulse_proto::time::WallClock;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;
use rand::{RngCore as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;
use uuid::{Builder, Uuid};

use super::failures;
use super::seams::{SystemClock, seed};
use crate::config::Config;
use crate::failure::Failure;

/// Shards of the coordinators of groups and transactions, fixed with the cell (serving.md, bootstrap).
const GROUP_SHARDS: u32 = 64;
const TRANSACTION_SHARDS: u32 = 64;
/// Between two looks for etcd.
const LOOK_AGAIN: Duration = Duration::from_millis(500);
/// That it is waited for is said this often.
const SAY_EVERY: Duration = Duration::from_secs(5);

/// What all parts of one process share.
pub(super) struct Ground {
    pub(super) metadata: Arc<dyn MetadataStore>,
    pub(super) clock: Arc<dyn WallClock>,
    pub(super) name: NodeName,
    pub(super) cell: CellId,
    pub(super) rng: ChaCha12Rng,
    pub(super) registry: Registry,
    /// Where its metadata are, for failures.
    pub(super) at: String,
}

/// The store in this file, which nobody else has.
///
/// # Errors
/// It cannot be opened.
pub(super) fn embedded(path: &Path) -> Result<Arc<dyn MetadataStore>, Failure> {
    let store = EmbeddedStore::open(path, EmbeddedOptions::default());
    let store = store.map_err(|error| failures::open(&error, path))?;
    Ok(Arc::new(store))
}

impl Ground {
    /// Over the cluster's etcd; waits until it answers. `None`: the end was asked for meanwhile.
    ///
    /// # Errors
    /// etcd refuses what we ask, or the node does not fit its cell.
    pub(super) async fn in_cluster(
        config: &Config,
        shutdown: &CancellationToken,
    ) -> Result<Option<Self>, Failure> {
        let at = config.metadata.endpoints.join(", ");
        let options = EtcdOptions::new(
            config.metadata.endpoints.clone(),
            config.metadata.prefix.clone(),
        );
        let store = EtcdStore::new(options).map_err(|error| failures::metadata(&error, &at))?;
        let etcd = store.clone();
        let store: Arc<dyn MetadataStore> = Arc::new(store);
        let ready = tokio::select! {
            biased;
            () = shutdown.cancelled() => return Ok(None),
            ready = answers(&*store, &at) => ready,
        };
        ready.map_err(|error| failures::metadata(&error, &at))?;
        let mut ground = Self::over(store, config, at).await?;
        let outdated = Gauge::default();
        ground.registry.register(
            "hulse_metadata_outdated_endpoints",
            "Endpoints of etcd that ran, at the start, a release whose leader may end leases when it wakes",
            outdated.clone(),
        );
        // The start waits for nobody who does not say it.
        tokio::spawn(tell_outdated(etcd, outdated));
        Ok(Some(ground))
    }

    /// Over this store, which is at `at`.
    ///
    /// # Errors
    /// The node does not fit its cell.
    pub(super) async fn over(
        metadata: Arc<dyn MetadataStore>,
        config: &Config,
        at: String,
    ) -> Result<Self, Failure> {
        let mut rng = ChaCha12Rng::from_seed(seed()?);
        let clock: Arc<dyn WallClock> = Arc::new(SystemClock);
        let wanted = CellSettings {
            quorums: config.quorums(),
            group_shards: GROUP_SHARDS,
            transaction_shards: TRANSACTION_SHARDS,
        };
        let new_uuid = CellId(random_uuid(&mut rng));
        let record = ensure_cell(&*metadata, wanted, new_uuid, clock.now_ms()).await;
        let record = record.map_err(|error| failures::cell(&error, &at))?;
        Ok(Self {
            metadata,
            clock,
            name: NodeName::new(&config.node.name).expect("the configuration is checked"),
            cell: record.cell,
            rng,
            registry: Registry::default(),
            at,
        })
    }

    pub(super) fn uuid(&mut self) -> Uuid {
        random_uuid(&mut self.rng)
    }

    pub(super) fn seed(&mut self) -> [u8; 32] {
        let mut seed = [0; 32];
        self.rng.fill_bytes(&mut seed);
        seed
    }
}

fn random_uuid(rng: &mut ChaCha12Rng) -> Uuid {
    let mut bytes = [0; 16];
    rng.fill_bytes(&mut bytes);
    Builder::from_random_bytes(bytes).into_uuid()
}

/// Warns of endpoints whose release may end leases wrongly.
async fn tell_outdated(etcd: EtcdStore, outdated: Gauge) {
    for told in etcd.versions().await {
        match &told.version {
            Ok(version) if told.ends_leases() => {
                outdated.inc();
                let endpoint = &told.endpoint;
                tracing::warn!(%endpoint, version, "this etcd may end leases that were renewed, when a leader that was frozen wakes; upgrade to 3.4.31, 3.5.13 or newer");
            }
            Ok(_) => {}
            Err(error) => {
                tracing::debug!(endpoint = told.endpoint, %error, "an endpoint of etcd does not tell its release");
            }
        }
    }
}

/// Waits until the store answers; says so now and then.
async fn answers(store: &dyn MetadataStore, at: &str) -> Result<(), MetadataError> {
    let mut said: Option<Instant> = None;
    loop {
        match store.get(bookie_metadata::cell::CELL_KEY).await {
            Ok(_) => return Ok(()),
            Err(error) if error.kind() != ErrorKind::Unavailable => return Err(error),
            Err(error) => {
                if said.is_none_or(|at| at.elapsed() >= SAY_EVERY) {
                    said = Some(Instant::now());
                    tracing::warn!(%error, at, "waiting for the metadata store");
                }
            }
        }
        sleep(LOOK_AGAIN).await;
    }
}
