//! `hulse standalone`: every role in one process. Embedded metadata, calls instead of sockets between broker and bookie (ARCHITECTURE
//! D13).
//!
//! Order of a start: addresses, directory, metadata, cell record, bookie, presence, broker. Nothing of it waits for a clock, and what
//! needs the directory begins only when the addresses are ours. The end goes the other way: listeners drain, partitions close, the
//! lease ends, the bookie marks a clean stop.

use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use bookie_client::{ClientConfig, LedgerClient};
use bookie_metadata::cell::{CellSettings, ensure_cell};
use bookie_metadata::{EmbeddedOptions, EmbeddedStore, LeaseId, MetadataStore, Op};
use bookie_node::{BookieNode, NodeConfig, NodeMetrics, NodeSeams, OsDisk};
use hulse_proto::bookie::BookieCalls;
use hulse_proto::id::{CellId, NodeName};
use hulse_proto::time::WallClock;
use hulse_proto::wire::Message as _;
use hulse_proto::wire::metadata as wire;
use prometheus_client::registry::Registry;
use rand::{RngCore as _, SeedableRng as _};
use rand_chacha::ChaCha12Rng;
use serving_broker::{
    BacklogLimits, Broker, BrokerConfig, Limits, Metrics, Partitions, PartitionsConfig,
    QuotaAction, Topics, TopicsConfig, serve_with,
};
use tokio::net::TcpListener;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use uuid::{Builder, Uuid};

use super::banner::Banner;
use super::bookies::LocalBookies;
use super::data_dir::{DataDir, prepare};
use super::memory::Memory;
use super::ports::Ports;
use super::presence::{Presence, Registered};
use super::seams::{SystemClock, connections_max, kernel_boot_id, open_files_max, seed};
use super::{build_info, damage, failures, kafka, logging, signals};
use crate::arguments::{Globals, Standalone};
use crate::commands::config::for_standalone;
use crate::config::{BacklogQuota, Config, MemoryBudget, SyncMode};
use crate::failure::{Code, Failure, Stop};
use crate::output::Output;

/// Shards of the coordinators of groups and transactions, fixed with the cell (serving.md, bootstrap).
const GROUP_SHARDS: u32 = 64;
const TRANSACTION_SHARDS: u32 = 64;

/// Runs a server until it is asked to end.
///
/// # Errors
/// It cannot start, or its storage failed.
pub(crate) fn run(standalone: &Standalone, globals: &Globals, output: Output) -> Result<(), Stop> {
    let began = Instant::now();
    let config = for_standalone(globals, flags(standalone))?.config;
    logging::of_server(&config, globals.verbose, output);
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .enable_all()
        .build();
    let runtime = runtime.map_err(|error| {
        Failure::new(Code::File, "cannot start a runtime")
            .why(error)
            .object("the process")
            .next("look at the limits of the process")
    })?;
    runtime.block_on(async {
        let shutdown = CancellationToken::new();
        signals::cancel_on_signal(shutdown.clone(), output)?;
        let server = Box::pin(Server::start(config, shutdown)).await?;
        if !output.quiet {
            for line in server.banner(began).lines(output) {
                output.tell(&line);
            }
        }
        Box::pin(server.wait()).await?;
        Ok(())
    })
}

fn flags(standalone: &Standalone) -> Vec<(&'static str, &'static str, String)> {
    let data = standalone
        .data
        .as_ref()
        .map(|path| path.display().to_string());
    let given = [
        ("node.data_dir", "--data", data),
        ("listen.grpc", "--grpc", standalone.grpc.clone()),
        ("listen.http", "--http", standalone.http.clone()),
        ("listen.kafka", "--kafka", standalone.kafka.clone()),
        ("bookie.sync", "--sync", standalone.sync.clone()),
    ];
    given
        .into_iter()
        .filter_map(|(key, flag, text)| Some((key, flag, text?)))
        .collect()
}

impl From<MemoryBudget> for bookie_node::DiskReserve {
    fn from(reserve: MemoryBudget) -> Self {
        match reserve {
            MemoryBudget::Share(percent) => Self::Percent(percent),
            MemoryBudget::Size(size) => Self::Bytes(size.0),
        }
    }
}

impl From<SyncMode> for bookie_node::SyncMode {
    fn from(mode: SyncMode) -> Self {
        match mode {
            SyncMode::Always => Self::Always,
            SyncMode::Interval(period) => Self::Interval(period.0),
            SyncMode::Off => Self::Off,
        }
    }
}

/// The broker's and the bookie's keys.
struct Both {
    bookie: Arc<BookieNode>,
    name: NodeName,
    broker: wire::Node,
    /// Where clients reach the process.
    endpoint: String,
}

impl Registered for Both {
    fn ops(&self, lease: LeaseId) -> Vec<Op> {
        let mut broker = self.broker.clone();
        broker.clock_ms = SystemClock.now_ms();
        let broker = Op::Put {
            key: format!("node/broker/{}", self.name),
            value: broker.encode_to_vec().into(),
            lease: Some(lease),
        };
        vec![broker, self.bookie.lease_op(lease, &self.endpoint)]
    }

    fn mode(&self) -> &'static str {
        self.bookie.mode()
    }

    fn standing(&self, stands: bool) {
        let why = "the node's lease has ended; it is being registered again";
        self.bookie.refuse_data((!stands).then(|| why.to_owned()));
    }
}

/// A running server.
struct Server {
    config: Config,
    memory: Memory,
    grpc: SocketAddr,
    http: SocketAddr,
    kafka: Vec<SocketAddr>,
    dir: DataDir,
    bookie: Arc<BookieNode>,
    serving: tokio::task::JoinHandle<Result<(), serving_broker::ServeError>>,
    presence: tokio::task::JoinHandle<()>,
    /// Ends the presence, after the listeners.
    leave: CancellationToken,
    shutdown: CancellationToken,
}

/// What all parts of one process share.
struct Ground {
    metadata: Arc<dyn MetadataStore>,
    clock: Arc<dyn WallClock>,
    name: NodeName,
    cell: CellId,
    rng: ChaCha12Rng,
    registry: Registry,
}

impl Ground {
    fn uuid(&mut self) -> Uuid {
        random_uuid(&mut self.rng)
    }

    fn seed(&mut self) -> [u8; 32] {
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

impl Server {
    async fn start(config: Config, shutdown: CancellationToken) -> Result<Self, Failure> {
        let memory = Memory::split(&config)?;
        let Ports { grpc, http, kafka } = Ports::bind(&config)?;
        let (grpc_at, http_at) = (local(&grpc)?, local(&http)?);
        let kafka_at = kafka
            .iter()
            .map(|(_, listener)| local(listener))
            .collect::<Result<Vec<_>, _>>()?;
        let dir = prepare(&config)?;
        let mut ground = ground(&config, &dir).await?;
        let bookie = start_bookie(&config, &dir, &mut ground).await?;
        let advertised = advertised(&config, grpc_at);
        let boot = ground.uuid();
        let both = Both {
            bookie: Arc::clone(&bookie),
            name: ground.name.clone(),
            broker: wire::Node {
                boot_uuid: bytes::Bytes::copy_from_slice(boot.as_bytes()),
                endpoint: advertised.clone(),
                boot_counter: 0,
                clock_ms: 0,
                mode: "normal".to_owned(),
            },
            endpoint: advertised.clone(),
        };
        let presence = Presence::register(Arc::clone(&ground.metadata), both).await;
        let presence = presence.map_err(|error| failures::metadata(&error, &dir.metadata))?;
        let leave = CancellationToken::new();
        let presence = tokio::spawn(presence.keep(leave.clone()));
        let kafka = kafka::listeners(kafka, || ground.seed());
        let broker = broker((&config, memory), ground, &bookie, (advertised, boot));
        let serving = serve_with(broker, grpc, http, kafka, shutdown.clone());
        let serving = tokio::spawn(serving);
        Ok(Self {
            config,
            memory,
            grpc: grpc_at,
            http: http_at,
            kafka: kafka_at,
            dir,
            bookie,
            serving,
            presence,
            leave,
            shutdown,
        })
    }

    fn banner(&self, began: Instant) -> Banner<'_> {
        Banner {
            config: &self.config,
            memory: self.memory.line(),
            grpc: self.grpc,
            http: self.http,
            kafka: &self.kafka,
            ready_in: began.elapsed(),
        }
    }

    /// Serves until the end is asked for or something fails, then closes everything.
    async fn wait(mut self) -> Result<(), Failure> {
        let mut failed = self.bookie.failed();
        let broken = tokio::select! {
            biased;
            why = failed.wait_for(Option::is_some) => why.ok().and_then(|why| why.clone()),
            ended = &mut self.serving => {
                // Listeners end by themselves only when they fail, or when the end was asked for.
                self.close().await?;
                return served(ended);
            }
        };
        self.shutdown.cancel();
        let ended = (&mut self.serving).await;
        let closed = self.close().await;
        match broken {
            Some(why) => Err(failures::storage(why, &self.dir.bookie)),
            None => served(ended).and(closed),
        }
    }

    async fn close(&mut self) -> Result<(), Failure> {
        self.leave.cancel();
        // It ends by itself; a panic in it was logged.
        drop((&mut self.presence).await);
        let stopped = self.bookie.shutdown().await;
        stopped.map_err(|error| failures::storage(error, &self.dir.bookie))
    }
}

fn served(
    ended: Result<Result<(), serving_broker::ServeError>, tokio::task::JoinError>,
) -> Result<(), Failure> {
    let why = match ended {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    };
    Err(
        Failure::new(Code::Address, "the server cannot listen any more")
            .why(why)
            .object("listeners")
            .next("start it again; look at the limits of the process"),
    )
}

/// The quota of topics that say nothing.
fn backlog(quota: &BacklogQuota) -> BacklogLimits {
    BacklogLimits {
        bytes: quota.size.limit().map(|size| size.0),
        time: quota.age.limit().map(|period| period.0),
        // The table of keys has let no other word in.
        action: match quota.policy.as_str() {
            "reject" => QuotaAction::Reject,
            "evict" => QuotaAction::Evict,
            _ => QuotaAction::Hold,
        },
    }
}

fn local(listener: &TcpListener) -> Result<SocketAddr, Failure> {
    listener.local_addr().map_err(|error| {
        Failure::new(Code::Address, "a listener has no address")
            .why(error)
            .object("listeners")
            .next("start it again")
    })
}

/// What clients are told to dial. A listener on every address is told as loopback: others need listen.advertise.
fn advertised(config: &Config, grpc: SocketAddr) -> String {
    match config.listen.advertise.as_str() {
        "auto" if grpc.ip().is_unspecified() => format!("127.0.0.1:{}", grpc.port()),
        "auto" => grpc.to_string(),
        address => address.to_owned(),
    }
}

async fn ground(config: &Config, dir: &DataDir) -> Result<Ground, Failure> {
    let path: &Path = &dir.metadata;
    let store = EmbeddedStore::open(path, EmbeddedOptions::default());
    let store = store.map_err(|error| failures::open(&error, path))?;
    let metadata: Arc<dyn MetadataStore> = Arc::new(store);
    let mut rng = ChaCha12Rng::from_seed(seed()?);
    let clock: Arc<dyn WallClock> = Arc::new(SystemClock);
    let wanted = CellSettings {
        quorums: config.quorums(),
        group_shards: GROUP_SHARDS,
        transaction_shards: TRANSACTION_SHARDS,
    };
    let new_uuid = CellId(random_uuid(&mut rng));
    let record = ensure_cell(&*metadata, wanted, new_uuid, clock.now_ms()).await;
    let record = record.map_err(|error| failures::cell(&error, path))?;
    let name = NodeName::new(&config.node.name).expect("the configuration is checked");
    Ok(Ground {
        metadata,
        clock,
        name,
        cell: record.cell,
        rng,
        registry: Registry::default(),
    })
}

async fn start_bookie(
    config: &Config,
    dir: &DataDir,
    ground: &mut Ground,
) -> Result<Arc<BookieNode>, Failure> {
    let disk = OsDisk::open(&dir.bookie);
    let disk = disk.map_err(|error| failures::bookie(&error.into(), &dir.bookie))?;
    let node = NodeConfig {
        format_if_empty: true,
        sync: config.bookie.sync.into(),
        kernel_boot_id: kernel_boot_id(),
        file_bytes: config.bookie.log_file_size.0,
        queue_bytes_max: config.bookie.queue_size.0,
        disk_reserve: config.bookie.disk_reserve.into(),
        gc_interval: config.bookie.gc_interval.0,
        gc_percent_max: config.bookie.gc_percent_max,
        background_rate: config.bookie.compaction_rate.0,
        scrub_interval: config.bookie.scrub_interval.0,
        ..NodeConfig::new(ground.cell, ground.name.clone())
    };
    let seams = NodeSeams {
        disk: Arc::new(disk),
        metadata: Arc::clone(&ground.metadata),
        clock: Arc::clone(&ground.clock),
        rng: ChaCha12Rng::from_seed(ground.seed()),
        metrics: NodeMetrics::new(&mut ground.registry),
    };
    let started = Box::pin(BookieNode::start(node, seams)).await;
    started.map_err(|error| failures::bookie(&error, &dir.bookie))
}

/// Wires a broker to the bookie of this process.
fn broker(
    (config, memory): (&Config, Memory),
    mut ground: Ground,
    bookie: &Arc<BookieNode>,
    (advertised, boot): (String, Uuid),
) -> Broker {
    let calls: Arc<dyn BookieCalls> = bookie.clone();
    let full = Arc::clone(bookie);
    let damage = damage::told(Arc::clone(bookie), config.bookie.scrub_interval.0);
    let bookies = LocalBookies::new(Arc::clone(&ground.metadata), ground.name.clone(), calls);
    let mut client = ClientConfig::new(config.quorums());
    client.inflight_bytes_max = client.inflight_bytes_max.min(memory.in_flight as usize);
    let client = LedgerClient::new(
        ground.cell,
        client,
        Arc::clone(&ground.metadata),
        Arc::new(bookies),
        Arc::clone(&ground.clock),
        ground.seed(),
    );
    let (connections, _) = connections_max(open_files_max(), config.listen.kafka.len());
    let settings = BrokerConfig {
        max_batch_bytes: config.broker.max_batch_size.0 as usize,
        ingress_bytes: memory.ingress as usize,
        connections_max: connections,
        read_ahead_bytes: memory.reads as usize,
        default_partitions: config.broker.default_partitions,
        auto_create_topics: config.broker.auto_create_topics,
        producer_expiry: config.broker.producer_expiry.0,
        ledger_roll_bytes: config.broker.ledger_roll_size.0,
        ledger_roll_age: config.broker.ledger_roll_age.0,
        retention: Limits {
            time: config.retention.time.limit().map(|period| period.0),
            bytes: config.retention.size.limit().map(|size| size.0),
        },
        retention_interval: config.retention.check_interval.0,
        backlog: backlog(&config.backlog_quota),
        tail_cache_bytes: memory.tail as usize,
        ..BrokerConfig::new(ground.name.clone(), advertised)
    };
    let partitions = PartitionsConfig {
        metadata: Arc::clone(&ground.metadata),
        client,
        clock: Arc::clone(&ground.clock),
        boot,
    };
    let topics = TopicsConfig {
        default_partitions: settings.default_partitions,
        auto_create: settings.auto_create_topics,
        seed: ground.seed(),
    };
    build_info::register(&mut ground.registry, config);
    let metrics = Metrics::register(&mut ground.registry);
    Broker {
        partitions: Partitions::new(&settings, partitions),
        topics: Topics::new(
            Arc::clone(&ground.metadata),
            topics,
            Arc::clone(&ground.clock),
        ),
        config: settings,
        metadata: ground.metadata,
        metrics: Arc::new(metrics),
        registry: Arc::new(ground.registry),
        clock: ground.clock,
        storage_mode: Some(Arc::new(move || full.mode())),
        storage_damage: Some(damage),
    }
}
