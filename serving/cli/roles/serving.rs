//! The broker of a process, whatever carries its calls to bookies.

use std::net::SocketAddr;
use std::sync::Arc;

use bookie_client::{BookieDirectory, ClientConfig, LedgerClient};
use hulse_proto::wire::metadata as wire;
use serving_broker::{
    BacklogLimits, BalanceLimits, Broker, BrokerConfig, DrainOrder, GroupsConfig, Lease, Limits,
    Metrics, Partitions, PartitionsConfig, QuotaAction, ServeError, StorageDamage, StorageMode,
    Topics, TopicsConfig,
};
use tokio::net::TcpListener;
use tokio::task::JoinError;
use uuid::Uuid;

use super::build_info;
use super::ground::Ground;
use super::memory::Memory;
use super::seams::{connections_max, open_files_max};
use crate::config::{BacklogQuota, Balance, Config, Groups, KafkaListen, Period};
use crate::failure::{Code, Failure};

/// Who this broker is to others.
pub(super) struct Advertised {
    /// `host:port` that clients are told to dial.
    pub(super) endpoint: String,
    /// `host:port` of its metrics and health.
    pub(super) http: String,
    /// This start of it.
    pub(super) boot: Uuid,
    /// Where Kafka's clients of other brokers are sent to.
    kafka: Vec<wire::KafkaPlace>,
}

impl Advertised {
    /// At the address of this listener, unless the configuration names another.
    pub(super) fn new(config: &Config, (grpc, http): (SocketAddr, SocketAddr), boot: Uuid) -> Self {
        Self {
            endpoint: advertised(&config.listen.advertise, grpc),
            http: beside(&config.listen.advertise, http),
            boot,
            kafka: Vec::new(),
        }
    }

    /// With these listeners of the Kafka wire.
    pub(super) fn with_kafka(mut self, bound: &[(KafkaListen, TcpListener)]) -> Self {
        let place = |(listener, socket): &(KafkaListen, TcpListener)| {
            let at = advertised(&listener.advertise, socket.local_addr().ok()?);
            let (host, port) = at.rsplit_once(':')?;
            Some(wire::KafkaPlace {
                listener: listener.name.clone(),
                // An IPv6 address stands in brackets beside a port, and without them where clients read it.
                host: host.trim_matches(['[', ']']).to_owned(),
                port: port.parse().ok()?,
            })
        };
        self.kafka = bound.iter().filter_map(place).collect();
        self
    }

    /// The value of `node/broker/{name}`, but for the date.
    pub(super) fn node(&self) -> wire::Node {
        wire::Node {
            boot_uuid: bytes::Bytes::copy_from_slice(self.boot.as_bytes()),
            endpoint: self.endpoint.clone(),
            boot_counter: 0,
            clock_ms: 0,
            mode: "normal".to_owned(),
            http: self.http.clone(),
            kafka: self.kafka.clone(),
        }
    }
}

/// What others are told to dial. A listener on every address is told as loopback: others need the key.
pub(super) fn advertised(said: &str, at: SocketAddr) -> String {
    match said {
        "auto" if at.ip().is_unspecified() => format!("127.0.0.1:{}", at.port()),
        "auto" => at.to_string(),
        address => address.to_owned(),
    }
}

/// Where others reach the HTTP of a node whose clients or brokers are told to dial `said`: on the same host.
pub(super) fn beside(said: &str, http: SocketAddr) -> String {
    match said.rsplit_once(':') {
        Some((host, _)) if !http.ip().is_loopback() => format!("{host}:{}", http.port()),
        _ => advertised("auto", http),
    }
}

/// Where a listener listens.
pub(super) fn local(listener: &TcpListener) -> Result<SocketAddr, Failure> {
    listener.local_addr().map_err(|error| {
        Failure::new(Code::Address, "a listener has no address")
            .why(error)
            .object("listeners")
            .next("start it again")
    })
}

/// What a bookie of the same process says of itself; one elsewhere says it on its own HTTP port.
#[derive(Default)]
pub(super) struct StorageReports {
    /// Whether it takes records.
    pub(super) mode: Option<StorageMode>,
    /// What it knows to be damaged.
    pub(super) damage: Option<StorageDamage>,
}

/// Wires a broker to bookies.
pub(super) fn broker(
    (config, memory): (&Config, Memory),
    mut ground: Ground,
    bookies: Arc<dyn BookieDirectory>,
    (advertised, lease): (Advertised, Lease),
    storage: StorageReports,
) -> Broker {
    let mut client = ClientConfig::new(config.quorums());
    client.inflight_bytes_max = client.inflight_bytes_max.min(memory.in_flight as usize);
    let client = LedgerClient::new(
        ground.cell,
        client,
        Arc::clone(&ground.metadata),
        bookies,
        Arc::clone(&ground.clock),
        ground.seed(),
    );
    // Whatever the cell says: a topic may ask for more copies.
    let follower = client.clone();
    tokio::spawn(async move { follower.follow_departures().await });
    let settings = settings(config, memory, &ground, advertised.endpoint);
    let partitions = PartitionsConfig {
        metadata: Arc::clone(&ground.metadata),
        client,
        clock: Arc::clone(&ground.clock),
        boot: advertised.boot,
        lease,
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
        storage_mode: storage.mode,
        storage_damage: storage.damage,
        order: DrainOrder::default(),
        whole_cell: false,
    }
}

fn settings(config: &Config, memory: Memory, ground: &Ground, advertised: String) -> BrokerConfig {
    let files = open_files_max() / u64::from(memory.brokers);
    let (connections, _) = connections_max(files, config.listen.kafka.len());
    BrokerConfig {
        max_batch_bytes: config.broker.max_batch_size.0 as usize,
        ingress_bytes: memory.ingress as usize,
        connections_max: connections,
        read_ahead_bytes: memory.reads as usize,
        default_partitions: config.broker.default_partitions,
        auto_create_topics: config.broker.auto_create_topics,
        producer_expiry: config.broker.producer_expiry.0,
        ledger_roll_bytes: config.broker.ledger_roll_size.0,
        ledger_roll_age: config.broker.ledger_roll_age.0,
        drain_rate: config.broker.drain_rate,
        retention: Limits {
            time: config.retention.time.limit().map(|period| period.0),
            bytes: config.retention.size.limit().map(|size| size.0),
        },
        retention_interval: config.retention.check_interval.0,
        backlog: backlog(&config.backlog_quota),
        groups: groups(&config.groups),
        balance: balance(&config.balance),
        tail_cache_bytes: memory.tail as usize,
        ..BrokerConfig::new(ground.name.clone(), advertised)
    }
}

/// Members of groups.
fn groups(groups: &Groups) -> GroupsConfig {
    let ms = |period: Period| u64::try_from(period.0.as_millis()).unwrap_or(u64::MAX);
    let short = |period| u32::try_from(ms(period)).unwrap_or(u32::MAX);
    let known = GroupsConfig::default();
    GroupsConfig {
        initial_rebalance_delay_ms: short(groups.initial_rebalance_delay),
        consumer_session_ms: short(groups.session_timeout),
        consumer_heartbeat_ms: short(groups.heartbeat_interval),
        idle_max_ms: ms(groups.max_idle),
        idle_grace_ms: known.idle_grace_ms.min(ms(groups.max_idle)),
        offsets_retention_ms: ms(groups.offsets_retention),
        ..known
    }
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

/// How partitions are spread over brokers.
fn balance(balance: &Balance) -> BalanceLimits {
    BalanceLimits {
        interval: balance.interval.limit().map(|period| period.0),
        spread_percent: balance.spread_percent,
        cooldown: balance.cooldown.0,
    }
}

/// How the listeners ended.
pub(super) fn served(ended: Result<Result<(), ServeError>, JoinError>) -> Result<(), Failure> {
    let why = match ended {
        Ok(Ok(())) => return Ok(()),
        Ok(Err(error)) => error.to_string(),
        Err(error) => error.to_string(),
    };
    Err(cannot_listen(why))
}

/// A listener that failed.
pub(super) fn cannot_listen(why: impl std::fmt::Display) -> Failure {
    Failure::new(Code::Address, "the server cannot listen any more")
        .why(why)
        .object("listeners")
        .next("start it again; look at the limits of the process")
}
