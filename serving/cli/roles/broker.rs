//! `hulse broker`: a broker of a cluster. It has no disk: records are with the bookies, everything else is in etcd.
//!
//! Order of a start: addresses, etcd, cell record, bookies, name in metadata, listeners. At the end listeners drain and partitions close
//! first, and the name is given back last: whoever looks a partition up is not sent to another broker before this one let it go.

use bookie_client::RegisteredBookies;
use bookie_metadata::{LeaseId, Op};
use hulse_proto::time::WallClock as _;
use hulse_proto::wire::{Message as _, metadata as wire};
use serving_broker::{Lease, ServeError, serve_with};
use std::sync::Arc;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::ground::Ground;
use super::memory::Memory;
use super::ports::{Places, Ports};
use super::presence::{Claim, LEASE, Presence, PresenceError, Registered};
use super::seams::SystemClock;
use super::serving::{Advertised, StorageReports, cannot_listen, served};
use super::{banner, bookies, failures, kafka, process, serving};
use crate::arguments::{Broker, Globals};
use crate::commands::config::for_broker;
use crate::config::Config;
use crate::failure::{Failure, Stop};
use crate::output::Output;

/// Runs a broker until it is asked to end.
///
/// # Errors
/// It cannot start, or its listeners failed.
pub(crate) fn run(broker: &Broker, globals: &Globals, output: Output) -> Result<(), Stop> {
    let config = for_broker(globals, flags(broker))?.config;
    process::run(config, globals, output, async |config, shutdown, began| {
        let started = Box::pin(Server::start(config, &shutdown)).await?;
        let Some(server) = started else {
            return Ok(());
        };
        process::tell(output, server.banner(began, output));
        Box::pin(server.wait()).await
    })
}

fn flags(broker: &Broker) -> Vec<(&'static str, &'static str, String)> {
    let given = [
        ("node.name", "--name", &broker.name),
        ("metadata.endpoints", "--metadata", &broker.metadata),
        ("listen.grpc", "--grpc", &broker.grpc),
        ("listen.http", "--http", &broker.http),
        ("listen.kafka", "--kafka", &broker.kafka),
    ];
    given
        .into_iter()
        .filter_map(|(key, flag, text)| Some((key, flag, text.clone()?)))
        .collect()
}

/// The broker's key.
struct Keys {
    /// Other processes could have the name.
    claimed: bool,
    key: String,
    node: wire::Node,
    /// Cancelled when it is to end: others get its partitions from then on.
    shutdown: CancellationToken,
    told: Arc<Notify>,
    /// What its partitions go by.
    lease: Lease,
}

impl Registered for Keys {
    fn ops(&self, lease: LeaseId) -> Vec<Op> {
        let mut node = self.node.clone();
        node.clock_ms = SystemClock.now_ms();
        self.mode().clone_into(&mut node.mode);
        vec![Op::Put {
            key: self.key.clone(),
            value: node.encode_to_vec().into(),
            lease: Some(lease),
        }]
    }

    fn mode(&self) -> &'static str {
        match self.shutdown.is_cancelled() {
            true => "draining",
            false => "normal",
        }
    }

    fn changed(&self) -> Option<Arc<Notify>> {
        Some(Arc::clone(&self.told))
    }

    // A partition is lost by the answer of a bookie or of metadata, never by the end of a lease (ARCHITECTURE D6).
    fn standing(&self, _: bool) {}

    fn asks(&self) {
        self.lease.asks();
    }

    fn renewed(&self, anew: bool) {
        match anew {
            true => self.lease.began(),
            false => self.lease.renewed(),
        }
    }

    fn claim(&self) -> Option<Claim> {
        self.claimed.then(|| Claim {
            key: self.key.clone(),
            boot: self.node.boot_uuid.clone(),
        })
    }
}

/// A broker that others know of, and that serves nobody yet.
pub(super) struct Known {
    config: Config,
    memory: Memory,
    ports: Ports,
    at: Places,
    ground: Ground,
    bookies: RegisteredBookies,
    advertised: Advertised,
    lease: Lease,
    presence: JoinHandle<Result<(), PresenceError>>,
    leave: CancellationToken,
    shutdown: CancellationToken,
}

impl Known {
    /// A broker with these listeners, over this ground. `folded`: in one process with all others of its cell, so that nobody else can
    /// have its name.
    ///
    /// # Errors
    /// Metadata do not answer, or its name cannot be had.
    pub(super) async fn register(
        (config, memory, ports): (Config, Memory, Ports),
        mut ground: Ground,
        folded: bool,
        shutdown: CancellationToken,
    ) -> Result<Self, Failure> {
        let at = ports.places()?;
        let metadata_at = ground.at.clone();
        let bookies = bookies::of_cluster(Arc::clone(&ground.metadata)).await;
        let bookies = bookies.map_err(|error| failures::metadata(&error, &metadata_at))?;
        let advertised = Advertised::new(&config, (at.grpc, at.http), ground.uuid());
        let advertised = advertised.with_kafka(&ports.kafka);
        let lease = Lease::of(Arc::clone(&ground.clock), LEASE);
        let keys = Keys {
            lease: lease.clone(),
            claimed: !folded,
            key: format!("node/broker/{}", ground.name),
            node: advertised.node(),
            shutdown: shutdown.clone(),
            told: Arc::default(),
        };
        let (ending, told) = (shutdown.clone(), Arc::clone(&keys.told));
        tokio::spawn(async move {
            ending.cancelled().await;
            told.notify_one();
        });
        let presence = Presence::register(Arc::clone(&ground.metadata), keys).await;
        let presence = presence.map_err(|error| failures::presence(&error, &metadata_at))?;
        let leave = CancellationToken::new();
        let presence = tokio::spawn(presence.keep(leave.clone()));
        Ok(Self {
            config,
            memory,
            ports,
            at,
            ground,
            bookies,
            advertised,
            lease,
            presence,
            leave,
            shutdown,
        })
    }

    /// Serves from now on.
    pub(super) fn serve(mut self) -> Server {
        let Ports { grpc, http, kafka } = self.ports;
        let kafka = kafka::listeners(kafka, self.memory.brokers, || self.ground.seed());
        let metadata_at = self.ground.at.clone();
        let broker = serving::broker(
            (&self.config, self.memory),
            self.ground,
            Arc::new(self.bookies),
            (self.advertised, self.lease),
            StorageReports::default(),
        );
        let serving = serve_with(broker, grpc, http, kafka, self.shutdown.clone());
        Server {
            config: self.config,
            metadata_at,
            at: self.at,
            serving: tokio::spawn(serving),
            presence: self.presence,
            leave: self.leave,
            shutdown: self.shutdown,
        }
    }
}

/// A running broker.
pub(super) struct Server {
    config: Config,
    /// Where its metadata are, for failures.
    metadata_at: String,
    pub(super) at: Places,
    serving: JoinHandle<Result<(), ServeError>>,
    presence: JoinHandle<Result<(), PresenceError>>,
    /// Ends the presence, after the listeners.
    leave: CancellationToken,
    shutdown: CancellationToken,
}

impl Server {
    /// `None`: the end was asked for before etcd answered.
    async fn start(config: Config, shutdown: &CancellationToken) -> Result<Option<Self>, Failure> {
        let memory = Memory::split(&config)?;
        let ports = Ports::bind(&config)?;
        let Some(ground) = Ground::in_cluster(&config, shutdown).await? else {
            return Ok(None);
        };
        let parts = (config, memory, ports);
        let known = Known::register(parts, ground, false, shutdown.clone());
        Ok(Some(known.await?.serve()))
    }

    fn banner(&self, began: Instant, output: Output) -> Vec<String> {
        let Places { grpc, http, kafka } = &self.at;
        let kafka = kafka.iter().map(|at| ("kafka", at.to_string()));
        let places: Vec<_> = [("clients", format!("grpc://{grpc}"))]
            .into_iter()
            .chain(kafka)
            .chain([("health", format!("http://{http}/readyz"))])
            .collect();
        let what = ("broker", &self.config);
        banner::role(what, &places, began.elapsed(), output)
    }

    /// Serves until the end is asked for or something fails, then closes everything.
    ///
    /// # Errors
    /// Its name or a listener failed.
    pub(super) async fn wait(mut self) -> Result<(), Failure> {
        let at = self.metadata_at.clone();
        let broken = tokio::select! {
            biased;
            ended = &mut self.serving => {
                self.leave.cancel();
                // It ends by itself; a panic in it was logged.
                drop(self.presence.await);
                return served(ended);
            }
            ended = &mut self.presence => match ended {
                Ok(Ok(())) => cannot_listen("the broker's lease is not renewed any more"),
                Ok(Err(error)) => failures::presence(&error, &at),
                Err(error) => cannot_listen(error),
            },
        };
        self.shutdown.cancel();
        served(self.serving.await).and(Err(broken))
    }
}
