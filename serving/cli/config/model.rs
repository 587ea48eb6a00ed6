//! The values: one struct per table of `hulse.toml`. Defaults are those of ARCHITECTURE §5.
//!
//! What each key means is said once, in [`super::keys`].

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use hulse_proto::ledger::Quorums;
use hulse_proto::limits::BATCH_BYTES_MAX;
use serde::{Deserialize, Serialize};

use super::kafka::KafkaListen;
use super::units::{ByteSize, MemoryBudget, OrOff, Period, SyncMode};

/// Configuration of one node.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Config {
    pub(crate) node: Node,
    pub(crate) listen: Listen,
    pub(crate) metadata: Metadata,
    pub(crate) broker: Broker,
    pub(crate) retention: Retention,
    pub(crate) backlog_quota: BacklogQuota,
    pub(crate) groups: Groups,
    pub(crate) bookie: Bookie,
    pub(crate) upkeep: Upkeep,
    pub(crate) balance: Balance,
    pub(crate) memory: Memory,
    pub(crate) security: Security,
    pub(crate) log: Log,
}

/// `[node]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Node {
    pub(crate) data_dir: PathBuf,
    pub(crate) name: String,
    pub(crate) zone: String,
}

/// `[listen]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Listen {
    pub(crate) grpc: SocketAddr,
    pub(crate) http: SocketAddr,
    pub(crate) advertise: String,
    pub(crate) kafka: Vec<KafkaListen>,
    pub(crate) bookie: SocketAddr,
    pub(crate) bookie_advertise: String,
}

/// `[metadata]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Metadata {
    pub(crate) endpoints: Vec<String>,
    pub(crate) prefix: String,
}

/// `[broker]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Broker {
    pub(crate) max_batch_size: ByteSize,
    pub(crate) auto_create_topics: bool,
    pub(crate) default_partitions: u32,
    pub(crate) producer_expiry: Period,
    pub(crate) ledger_roll_size: ByteSize,
    pub(crate) ledger_roll_age: Period,
    pub(crate) drain_rate: u32,
    pub(crate) replication: Replication,
}

/// `[broker.replication]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Replication {
    pub(crate) ensemble: u32,
    pub(crate) write_quorum: u32,
    pub(crate) ack_quorum: u32,
}

/// `[retention]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Retention {
    pub(crate) time: OrOff<Period>,
    pub(crate) size: OrOff<ByteSize>,
    pub(crate) check_interval: Period,
}

/// `[backlog_quota]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct BacklogQuota {
    pub(crate) size: OrOff<ByteSize>,
    pub(crate) age: OrOff<Period>,
    pub(crate) policy: String,
}

/// `[groups]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Groups {
    pub(crate) session_timeout: Period,
    pub(crate) heartbeat_interval: Period,
    pub(crate) max_idle: Period,
    pub(crate) initial_rebalance_delay: Period,
    pub(crate) offsets_retention: Period,
}

/// `[bookie]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Bookie {
    pub(crate) data_dir: PathBuf,
    pub(crate) sync: SyncMode,
    pub(crate) log_file_size: ByteSize,
    pub(crate) queue_size: ByteSize,
    pub(crate) disk_reserve: MemoryBudget,
    pub(crate) gc_interval: Period,
    pub(crate) gc_percent_max: u8,
    pub(crate) compaction_rate: ByteSize,
    pub(crate) scrub_interval: Period,
}

/// `[upkeep]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Upkeep {
    pub(crate) lost_after: Period,
    pub(crate) audit_interval: Period,
    pub(crate) copy_rate: ByteSize,
}

/// `[balance]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Balance {
    pub(crate) interval: OrOff<Period>,
    pub(crate) spread_percent: u32,
    pub(crate) cooldown: Period,
}

/// `[memory]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Memory {
    pub(crate) budget: MemoryBudget,
}

/// `[security]`
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Security {
    pub(crate) allow_anonymous: bool,
}

/// `[log]`
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Log {
    pub(crate) level: String,
    pub(crate) format: String,
}

impl Default for Node {
    fn default() -> Self {
        Self {
            data_dir: "./hulse-data".into(),
            name: "node-1".to_owned(),
            zone: String::new(),
        }
    }
}

impl Default for Listen {
    fn default() -> Self {
        Self {
            grpc: SocketAddr::from(([127, 0, 0, 1], 7400)),
            http: SocketAddr::from(([127, 0, 0, 1], 7480)),
            advertise: "auto".to_owned(),
            kafka: vec![KafkaListen::default()],
            bookie: SocketAddr::from(([127, 0, 0, 1], 7410)),
            bookie_advertise: "auto".to_owned(),
        }
    }
}

impl Default for Metadata {
    fn default() -> Self {
        Self {
            endpoints: Vec::new(),
            prefix: "hulse/".to_owned(),
        }
    }
}

impl Default for Broker {
    fn default() -> Self {
        Self {
            max_batch_size: ByteSize(BATCH_BYTES_MAX as u64),
            auto_create_topics: true,
            default_partitions: 1,
            producer_expiry: Period(Duration::from_secs(24 * 3600)),
            ledger_roll_size: ByteSize(1 << 30),
            ledger_roll_age: Period(Duration::from_secs(4 * 3600)),
            drain_rate: 200,
            replication: Replication::default(),
        }
    }
}

impl Default for Replication {
    fn default() -> Self {
        Self {
            ensemble: 1,
            write_quorum: 1,
            ack_quorum: 1,
        }
    }
}

impl Default for Retention {
    fn default() -> Self {
        Self {
            time: OrOff::At(Period(Duration::from_secs(7 * 24 * 3600))),
            size: OrOff::Off,
            check_interval: Period(Duration::from_secs(60)),
        }
    }
}

impl Default for BacklogQuota {
    fn default() -> Self {
        Self {
            size: OrOff::Off,
            age: OrOff::Off,
            policy: "hold".to_owned(),
        }
    }
}

impl Default for Groups {
    fn default() -> Self {
        Self {
            session_timeout: Period(Duration::from_secs(45)),
            heartbeat_interval: Period(Duration::from_secs(5)),
            max_idle: Period(Duration::from_secs(300)),
            initial_rebalance_delay: Period(Duration::from_secs(3)),
            offsets_retention: Period(Duration::from_secs(7 * 24 * 3600)),
        }
    }
}

impl Default for Bookie {
    fn default() -> Self {
        Self {
            data_dir: "bookie".into(),
            sync: SyncMode::Always,
            log_file_size: ByteSize(256 << 20),
            queue_size: ByteSize(64 << 20),
            disk_reserve: MemoryBudget::Share(2),
            gc_interval: Period(Duration::from_secs(600)),
            gc_percent_max: 10,
            compaction_rate: ByteSize(64 << 20),
            scrub_interval: Period(Duration::from_secs(7 * 24 * 3600)),
        }
    }
}

impl Default for Upkeep {
    fn default() -> Self {
        Self {
            lost_after: Period(Duration::from_secs(600)),
            audit_interval: Period(Duration::from_secs(60)),
            copy_rate: ByteSize(64 << 20),
        }
    }
}

impl Default for Balance {
    fn default() -> Self {
        Self {
            interval: OrOff::At(Period(Duration::from_secs(30))),
            spread_percent: 10,
            cooldown: Period(Duration::from_secs(600)),
        }
    }
}

impl Default for Memory {
    fn default() -> Self {
        Self {
            budget: MemoryBudget::Share(25),
        }
    }
}

impl Default for Log {
    fn default() -> Self {
        Self {
            level: "info".to_owned(),
            format: "text".to_owned(),
        }
    }
}

impl Config {
    /// The quorums of a cell that this node would make (ARCHITECTURE D4).
    pub(crate) fn quorums(&self) -> Quorums {
        let replication = &self.broker.replication;
        Quorums {
            ensemble: replication.ensemble,
            write: replication.write_quorum,
            ack: replication.ack_quorum,
        }
    }

    /// What one process alone cannot do, as [`Config::validate`] tells it: it has so many bookies, and an entry that needs more would
    /// wait for ever.
    pub(crate) fn validate_standalone(&self, bookies: u32) -> Vec<(&'static str, String)> {
        let replication = &self.broker.replication;
        let elsewhere = (!self.metadata.endpoints.is_empty()).then(|| {
            let why = "a standalone server keeps its metadata itself; `hulse broker` and `hulse bookie` use etcd";
            ("metadata.endpoints", why.to_owned())
        });
        [
            ("broker.replication.ensemble", replication.ensemble),
            ("broker.replication.write_quorum", replication.write_quorum),
            ("broker.replication.ack_quorum", replication.ack_quorum),
        ]
        .into_iter()
        .filter(|(_, copies)| *copies > bookies)
        .map(|(path, copies)| {
            let has = match bookies {
                1 => "one".to_owned(),
                more => more.to_string(),
            };
            let why = format!("{copies} bookies are asked for, and a standalone server has {has}");
            (path, why)
        })
        .chain(elsewhere)
        .collect()
    }

    /// What a node of a cluster cannot be without, as [`Config::validate`] tells it.
    pub(crate) fn validate_in_cluster(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        if self.metadata.endpoints.is_empty() {
            let why = "a node of a cluster needs etcd; write e.g. [\"http://127.0.0.1:2379\"]";
            faults.push(("metadata.endpoints", why.to_owned()));
        }
        faults
    }

    /// As [`Config::validate_in_cluster`], for a bookie.
    pub(crate) fn validate_bookie(&self) -> Vec<(&'static str, String)> {
        let mut faults = self.validate_in_cluster();
        let address = self.listen.bookie;
        if !address.ip().is_loopback() && !self.security.allow_anonymous {
            faults.push(("listen.bookie", can_be_reached(address)));
        }
        if address == self.listen.http && address.port() != 0 {
            let why = format!("{address} is listen.http's address too");
            faults.push(("listen.bookie", why));
        }
        faults
    }

    /// What no single key can show: every fault, as (key, words).
    pub(crate) fn validate(&self) -> Vec<(&'static str, String)> {
        let mut faults = Vec::new();
        if !self.quorums().valid() {
            let why = "quorums must be 1 <= ack_quorum <= write_quorum <= ensemble";
            faults.push(("broker.replication.ensemble", why.to_owned()));
        }
        let kafka = self.listen.kafka.iter();
        let kafka = kafka.map(|listener| ("listen.kafka", listener.bind));
        let listeners: Vec<(&str, SocketAddr)> = [
            ("listen.grpc", self.listen.grpc),
            ("listen.http", self.listen.http),
        ]
        .into_iter()
        .chain(kafka)
        .collect();
        for &(key, address) in &listeners {
            if !address.ip().is_loopback() && !self.security.allow_anonymous {
                faults.push((key, can_be_reached(address)));
            }
        }
        for (index, &(key, address)) in listeners.iter().enumerate() {
            let same = |(_, other): &&(&str, SocketAddr)| *other == address && address.port() != 0;
            if let Some((first, _)) = listeners[..index].iter().find(same) {
                faults.push((key, format!("{address} is {first}'s address too")));
            }
        }
        let (session, heartbeat) = (
            self.groups.session_timeout.0,
            self.groups.heartbeat_interval.0,
        );
        if heartbeat > session / 2 {
            let why = "must fit twice into groups.session_timeout, so that one lost heartbeat ends no member";
            faults.push(("groups.heartbeat_interval", why.to_owned()));
        }
        if self.bookie.data_dir.is_absolute() {
            let why = "must be relative to node.data_dir, so that both move together";
            faults.push(("bookie.data_dir", why.to_owned()));
        }
        faults
    }
}

fn can_be_reached(address: SocketAddr) -> String {
    format!(
        "{address} can be reached from other machines and there is no authentication; \
         use a loopback address, or set security.allow_anonymous = true"
    )
}
