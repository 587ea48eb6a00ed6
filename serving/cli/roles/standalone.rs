//! `hulse standalone`: every role in one process. Embedded metadata, calls instead of sockets between broker and bookie (ARCHITECTURE
//! D13). With several brokers or bookies it is [`Folded`], the roles of a cluster in one process.
//!
//! Order of a start: addresses, directory, metadata, cell record, bookie, presence, broker. Nothing of it waits for a clock, and what
//! needs the directory begins only when the addresses are ours. The end goes the other way: listeners drain, partitions close, the
//! lease ends, the bookie marks a clean stop.

use std::sync::Arc;

use bookie_metadata::{LeaseId, Op};
use bookie_node::BookieNode;
use hulse_proto::bookie::BookieCalls;
use hulse_proto::id::NodeName;
use hulse_proto::time::WallClock as _;
use hulse_proto::wire::Message as _;
use hulse_proto::wire::metadata as wire;
use serving_broker::{Broker, Lease, serve_with};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::banner::Banner;
use super::bookies::LocalBookies;
use super::data_dir::{self, DataDir, prepare};
use super::folded::{Folded, Layout};
use super::ground::{self, Ground};
use super::memory::Memory;
use super::ports::{Places, Ports};
use super::presence::{Presence, PresenceError, Registered};
use super::seams::SystemClock;
use super::serving::{Advertised, StorageReports, served};
use super::{damage, failures, kafka, process, serving, storage};
use crate::arguments::{Globals, Standalone};
use crate::commands::config::for_standalone;
use crate::config::{Config, Place};
use crate::failure::{Failure, Stop};
use crate::output::Output;

/// Runs a server until it is asked to end.
///
/// # Errors
/// It cannot start, or its storage failed.
pub(crate) fn run(standalone: &Standalone, globals: &Globals, output: Output) -> Result<(), Stop> {
    let (brokers, asked) = (standalone.brokers.unwrap_or(1), standalone.bookies);
    let bookies = |config: &Config| data_dir::bookies(config, asked);
    let (loaded, bookies) = for_standalone(globals, flags(standalone), bookies)?;
    let moved = loaded.origin("listen.bookie") != Place::Default;
    process::run(
        loaded.config,
        globals,
        output,
        async |config, shutdown, began| {
            if brokers > 1 || bookies > 1 {
                let layout = Layout::new(config, (brokers, bookies), moved)?;
                let server = Box::pin(Folded::start(layout, shutdown)).await?;
                process::tell(output, server.lines(began, output));
                return Box::pin(server.wait()).await;
            }
            let server = Box::pin(Server::start(config, shutdown)).await?;
            process::tell(output, server.banner(began).lines(output));
            Box::pin(server.wait()).await
        },
    )
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

/// The broker's and the bookie's keys.
struct Both {
    bookie: Arc<BookieNode>,
    name: NodeName,
    broker: wire::Node,
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
        vec![broker, self.bookie.lease_op(lease, &self.broker.endpoint)]
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
    at: Places,
    dir: DataDir,
    bookie: Arc<BookieNode>,
    serving: tokio::task::JoinHandle<Result<(), serving_broker::ServeError>>,
    presence: tokio::task::JoinHandle<Result<(), PresenceError>>,
    /// Ends the presence, after the listeners.
    leave: CancellationToken,
    shutdown: CancellationToken,
}

impl Server {
    async fn start(config: Config, shutdown: CancellationToken) -> Result<Self, Failure> {
        let memory = Memory::split(&config)?;
        let ports = Ports::bind(&config)?;
        let places = ports.places()?;
        let Ports { grpc, http, kafka } = ports;
        let dir = prepare(&config, 1)?;
        let metadata = ground::embedded(&dir.metadata)?;
        let at = dir.metadata.display().to_string();
        let mut ground = Ground::over(metadata, &config, at).await?;
        let bookie = storage::start(&config, dir.bookie(), &mut ground, true).await?;
        let advertised = Advertised::new(&config, (places.grpc, places.http), ground.uuid());
        let advertised = advertised.with_kafka(&kafka);
        let both = Both {
            bookie: Arc::clone(&bookie),
            name: ground.name.clone(),
            broker: advertised.node(),
        };
        let presence = Presence::register(Arc::clone(&ground.metadata), both).await;
        let presence =
            presence.map_err(|error| failures::presence(&error, &dir.metadata.display()))?;
        let leave = CancellationToken::new();
        let presence = tokio::spawn(presence.keep(leave.clone()));
        let kafka = kafka::listeners(kafka, memory.brokers, || ground.seed());
        let broker = broker(&config, memory, ground, &bookie, advertised);
        let serving = serve_with(broker, grpc, http, kafka, shutdown.clone());
        let serving = tokio::spawn(serving);
        Ok(Self {
            config,
            memory,
            at: places,
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
            bookies: &[],
            broker: &self.at,
            brokers: &[],
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
            Some(why) => Err(failures::storage(why, self.dir.bookie())),
            None => served(ended).and(closed),
        }
    }

    async fn close(&mut self) -> Result<(), Failure> {
        self.leave.cancel();
        // It ends by itself, and claims no name; a panic in it was logged.
        drop((&mut self.presence).await);
        let stopped = self.bookie.shutdown().await;
        stopped.map_err(|error| failures::storage(error, self.dir.bookie()))
    }
}

/// A broker whose bookie is called directly.
fn broker(
    config: &Config,
    memory: Memory,
    ground: Ground,
    bookie: &Arc<BookieNode>,
    advertised: Advertised,
) -> Broker {
    let calls: Arc<dyn BookieCalls> = bookie.clone();
    let full = Arc::clone(bookie);
    let damage = damage::told(Arc::clone(bookie), config.bookie.scrub_interval.0);
    let bookies = LocalBookies::new(Arc::clone(&ground.metadata), ground.name.clone(), calls);
    let reports = StorageReports {
        mode: Some(Arc::new(move || full.mode())),
        damage: Some(damage),
    };
    serving::broker(
        (config, memory),
        ground,
        Arc::new(bookies),
        // No other broker can be in a cell whose metadata are in this process.
        (advertised, Lease::none()),
        reports,
    )
}
