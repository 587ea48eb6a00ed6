//! `hulse bookie`: a storage node of a cluster. Its disk is formatted beforehand (`hulse bookie format`, storage.md C1).
//!
//! Order of a start: addresses, etcd, cell record, name in metadata, disk, calls. The end goes the other way: the name is given back, so
//! that nobody places a ledger here any more; calls that were taken are answered; the log is closed and the stop marked clean.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};

use bookie_metadata::{LeaseId, Op};
use bookie_node::{BookieNode, OsDisk};
use bookie_transport::{ServeLimits, Served};
use bytes::Bytes;
use hulse_proto::time::WallClock as _;
use hulse_proto::wire::{Message as _, metadata as wire};
use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;
use serving_broker::{Probes, RestartRole, StorageMode, accept, serve_probes};
use tokio::net::TcpListener;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use super::ground::Ground;
use super::ports::{BookiePorts, bind_bookie};
use super::presence::{Claim, Presence, PresenceError, Registered};
use super::seams::{SystemClock, connections_max, open_files_max};
use super::serving::{advertised, beside, cannot_listen, local};
use super::{banner, build_info, failures, process, storage, upkeep};
use crate::arguments::{Bookie, BookieCommand, BookieNode as Flags, Globals};
use crate::commands::config::for_bookie;
use crate::config::Config;
use crate::failure::{Failure, Stop};
use crate::output::Output;

/// Runs a bookie until it is asked to end, or formats its directory.
///
/// # Errors
/// It cannot start, or its storage failed.
pub(crate) fn run(bookie: &Bookie, globals: &Globals, output: Output) -> Result<(), Stop> {
    match &bookie.command {
        Some(BookieCommand::Format(node)) => return make(Making::Format, node, globals, output),
        Some(BookieCommand::Replace(node)) => return make(Making::Replace, node, globals, output),
        None => {}
    }
    let config = for_bookie(globals, flags(&bookie.node))?.config;
    process::run(config, globals, output, async |config, shutdown, began| {
        let started = Box::pin(Server::start(config, &shutdown)).await?;
        let Some(server) = started else {
            return Ok(());
        };
        process::tell(output, server.banner(began, output));
        Box::pin(server.wait(shutdown)).await
    })
}

fn flags(node: &Flags) -> Vec<(&'static str, &'static str, String)> {
    let data = node.data.as_ref().map(|path| path.display().to_string());
    let given = [
        ("node.data_dir", "--data", data),
        ("node.name", "--name", node.name.clone()),
        ("node.zone", "--zone", node.zone.clone()),
        ("metadata.endpoints", "--metadata", node.metadata.clone()),
        ("listen.bookie", "--listen", node.listen.clone()),
        ("listen.http", "--http", node.http.clone()),
        ("bookie.sync", "--sync", node.sync.clone()),
    ];
    given
        .into_iter()
        .filter_map(|(key, flag, text)| Some((key, flag, text?)))
        .collect()
}

fn directory(config: &Config) -> PathBuf {
    config.node.data_dir.join(&config.bookie.data_dir)
}

/// How a directory becomes a bookie's.
#[derive(Debug, Clone, Copy)]
enum Making {
    /// `hulse bookie format`
    Format,
    /// `hulse bookie replace`
    Replace,
}

fn make(making: Making, node: &Flags, globals: &Globals, output: Output) -> Result<(), Stop> {
    let config = for_bookie(globals, flags(node))?.config;
    process::run(config, globals, output, async |config, shutdown, _| {
        let Some(mut ground) = Ground::in_cluster(&config, &shutdown).await? else {
            return Ok(());
        };
        let path = directory(&config);
        let refused = |error| failures::bookie(&error, &path);
        let disk = OsDisk::open(&path).map_err(|error| refused(error.into()))?;
        let _lock = bookie_node::Disk::lock(&disk).map_err(|error| refused(error.into()))?;
        let node = storage::node_config(&config, &ground);
        let mut rng = ChaCha12Rng::from_seed(ground.seed());
        let metadata = &*ground.metadata;
        let made = match making {
            Making::Format => bookie_node::format(&node, &disk, metadata, &mut rng).await,
            Making::Replace => bookie_node::replace(&node, &disk, metadata, &mut rng).await,
        };
        let identity = made.map_err(refused)?;
        output.say(&format!(
            "{} is bookie {} of cell {}, incarnation {}",
            path.display(),
            identity.name,
            identity.cell,
            identity.incarnation
        ));
        Ok(())
    })
}

/// The bookie's key. It is claimed before the disk is touched, so that a copy of a disk changes nothing while the other one lives.
struct Keys {
    /// Other processes could have the name.
    claimed: bool,
    key: String,
    boot: Bytes,
    endpoint: String,
    /// `host:port` of its metrics and health.
    http: String,
    /// Once it has started.
    bookie: OnceLock<Arc<BookieNode>>,
    started: Arc<Notify>,
}

impl Keys {
    fn new(ground: &mut Ground, endpoint: String, http: String, claimed: bool) -> Self {
        Self {
            claimed,
            key: format!("node/bookie/{}", ground.name),
            boot: Bytes::copy_from_slice(ground.uuid().as_bytes()),
            endpoint,
            http,
            bookie: OnceLock::new(),
            started: Arc::new(Notify::new()),
        }
    }
}

impl Registered for Arc<Keys> {
    fn ops(&self, lease: LeaseId) -> Vec<Op> {
        let bookie = self.bookie.get();
        let value = wire::Node {
            boot_uuid: self.boot.clone(),
            endpoint: self.endpoint.clone(),
            boot_counter: bookie.map_or(0, |bookie| bookie.status().boot_counter),
            clock_ms: SystemClock.now_ms(),
            mode: self.mode().to_owned(),
            http: self.http.clone(),
            kafka: Vec::new(),
        };
        vec![Op::Put {
            key: self.key.clone(),
            value: value.encode_to_vec().into(),
            lease: Some(lease),
        }]
    }

    fn mode(&self) -> &'static str {
        self.bookie.get().map_or("starting", |bookie| bookie.mode())
    }

    fn standing(&self, stands: bool) {
        if let Some(bookie) = self.bookie.get() {
            let why = "the bookie's lease has ended; it is being registered again";
            bookie.refuse_data((!stands).then(|| why.to_owned()));
        }
    }

    fn changed(&self) -> Option<Arc<Notify>> {
        Some(Arc::clone(&self.started))
    }

    fn claim(&self) -> Option<Claim> {
        self.claimed.then(|| Claim {
            key: self.key.clone(),
            boot: self.boot.clone(),
        })
    }
}

/// A running bookie.
pub(super) struct Server {
    config: Config,
    /// Where its metadata are, for failures.
    metadata_at: String,
    pub(super) calls_at: SocketAddr,
    pub(super) http_at: SocketAddr,
    bookie: Arc<BookieNode>,
    probes: Arc<Probes>,
    presence: JoinHandle<Result<(), PresenceError>>,
    /// Ends the presence.
    leave: CancellationToken,
    calls: JoinHandle<Result<(), String>>,
    /// No more calls are taken.
    leaving: CancellationToken,
    http: JoinHandle<std::io::Result<()>>,
    http_stop: CancellationToken,
    upkeep: JoinHandle<()>,
    /// Ends upkeep.
    upkeep_stop: CancellationToken,
}

impl Server {
    /// `None`: the end was asked for before etcd answered.
    async fn start(config: Config, shutdown: &CancellationToken) -> Result<Option<Self>, Failure> {
        let ports = bind_bookie(&config)?;
        storage::look(&directory(&config))?;
        let Some(ground) = Ground::in_cluster(&config, shutdown).await? else {
            return Ok(None);
        };
        Self::over(config, ports, ground, false).await.map(Some)
    }

    /// A bookie with these listeners, over this ground. `folded`: in one process with all others of its cell, so that nobody else can
    /// have its name, and an empty directory is formatted.
    ///
    /// # Errors
    /// Its name, its disk or its address cannot be had.
    pub(super) async fn over(
        config: Config,
        (calls, http): BookiePorts,
        mut ground: Ground,
        folded: bool,
    ) -> Result<Self, Failure> {
        let (calls_at, http_at) = (local(&calls)?, local(&http)?);
        let at = ground.at.clone();
        let endpoint = advertised(&config.listen.bookie_advertise, calls_at);
        let keys = Arc::new(Keys::new(
            &mut ground,
            endpoint,
            beside(&config.listen.bookie_advertise, http_at),
            !folded,
        ));
        let metadata = Arc::clone(&ground.metadata);
        let presence = Presence::register(metadata, Arc::clone(&keys)).await;
        let presence = presence.map_err(|error| failures::presence(&error, &at))?;
        let leave = CancellationToken::new();
        let presence = tokio::spawn(presence.keep(leave.clone()));
        let started = storage::start(&config, &directory(&config), &mut ground, folded).await;
        let bookie = match started {
            Ok(bookie) => bookie,
            Err(failure) => {
                // The name is free for whoever it belongs to.
                leave.cancel();
                drop(presence.await);
                return Err(failure);
            }
        };
        let (connections, _) = connections_max(open_files_max(), 0);
        build_info::register(&mut ground.registry, &config);
        let upkeep_stop = CancellationToken::new();
        let upkeep = upkeep::start(&config, &mut ground, upkeep_stop.clone());
        let full = Arc::clone(&bookie);
        let mode: StorageMode = Arc::new(move || full.mode());
        let probes = Probes::new(Arc::new(ground.registry), ground.metadata, Some(mode));
        probes.set_role(match folded {
            true => RestartRole::WholeCell,
            false => RestartRole::Bookie(bookie.member().bookie.clone()),
        });
        let http_stop = CancellationToken::new();
        let stop = http_stop.clone();
        let http = tokio::spawn(serve_probes(http, Arc::clone(&probes), connections, stop));
        let leaving = CancellationToken::new();
        let calls = serve_calls(calls, connections, &bookie, leaving.clone());
        // From now on it may be placed. Set once: nobody else has these keys.
        let _ = keys.bookie.set(Arc::clone(&bookie));
        keys.started.notify_one();
        probes.set_serving(true);
        tracing::info!(bookie = %bookie.member().bookie, listening = %calls_at, "serving");
        Ok(Self {
            config,
            metadata_at: at,
            calls_at,
            http_at,
            bookie,
            probes,
            presence,
            leave,
            calls,
            leaving,
            http,
            http_stop,
            upkeep,
            upkeep_stop,
        })
    }

    fn banner(&self, began: Instant, output: Output) -> Vec<String> {
        let places = [
            ("calls", self.calls_at.to_string()),
            ("health", format!("http://{}/readyz", self.http_at)),
            ("data", directory(&self.config).display().to_string()),
        ];
        let what = ("bookie", &self.config);
        banner::role(what, &places, began.elapsed(), output)
    }

    /// Serves until the end is asked for or something fails, then closes everything.
    ///
    /// # Errors
    /// Its name, its storage or a listener failed.
    pub(super) async fn wait(mut self, shutdown: CancellationToken) -> Result<(), Failure> {
        let path = directory(&self.config);
        let at = self.metadata_at.clone();
        let mut failed = self.bookie.failed();
        let broken = tokio::select! {
            biased;
            () = shutdown.cancelled() => None,
            why = failed.wait_for(Option::is_some) => {
                let why = why.ok().and_then(|why| why.clone()).unwrap_or_default();
                Some(failures::storage(why, &path))
            }
            ended = &mut self.presence => match ended {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(failures::presence(&error, &at)),
                Err(error) => Some(cannot_listen(error)),
            },
            ended = &mut self.calls => Some(match ended {
                Ok(Ok(())) => cannot_listen("the listener ended by itself"),
                Ok(Err(error)) => cannot_listen(error),
                Err(error) => cannot_listen(error),
            }),
            ended = &mut self.http => Some(match ended {
                Ok(Ok(())) => cannot_listen("the listener ended by itself"),
                Ok(Err(error)) => cannot_listen(error),
                Err(error) => cannot_listen(error),
            }),
        };
        let closed = self.close().await;
        let closed = closed.map_err(|error| failures::storage(error, &path));
        broken.map_or(closed, Err)
    }

    async fn close(self) -> Result<(), bookie_node::StartError> {
        self.probes.set_serving(false);
        self.upkeep_stop.cancel();
        self.leave.cancel();
        self.leaving.cancel();
        // What has ended by itself has ended; a panic was logged.
        if !self.presence.is_finished() {
            drop(self.presence.await);
        }
        if !self.calls.is_finished() {
            drop(self.calls.await);
        }
        drop(self.upkeep.await);
        let stopped = self.bookie.shutdown().await;
        self.http_stop.cancel();
        if !self.http.is_finished() {
            self.http.abort();
        }
        stopped
    }
}

fn serve_calls(
    listener: TcpListener,
    connections: usize,
    bookie: &Arc<BookieNode>,
    leaving: CancellationToken,
) -> JoinHandle<Result<(), String>> {
    let served = Served {
        name: bookie.member().bookie.clone(),
        calls: bookie.clone(),
        limits: ServeLimits::default(),
        leaving,
    };
    let serving = bookie_transport::serve(accept(listener, connections), served);
    tokio::spawn(async move { serving.await.map_err(|error| error.to_string()) })
}
