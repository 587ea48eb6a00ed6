//! What a broker is told at start.

use std::time::Duration;

use hulse_proto::id::NodeName;
use hulse_proto::mutant::Mutation;

use crate::backlogs::BacklogLimits;
use crate::balance::BalanceLimits;
use crate::retention::Limits;

/// What one broker is told. Values only; collaborators go through constructors.
#[derive(Debug, Clone)]
pub struct BrokerConfig {
    /// Its name; kept in `part/` keys and answered to clients.
    pub name: NodeName,
    /// "host:port" under which clients reach its gRPC listener.
    pub advertised: String,
    /// Largest record batch taken, bytes (at most `limits::BATCH_BYTES_MAX`).
    pub max_batch_bytes: usize,
    /// Connections of clients at once; the process has file descriptors for more.
    pub connections_max: usize,
    /// Bytes of produce requests that may be in the broker at once; more are not read from the sockets.
    pub ingress_bytes: usize,
    /// Bytes that reads hold ahead of their connections over all clients; beyond it each goes on in small steps.
    pub read_ahead_bytes: usize,
    /// Records that one consumer may have without an ack before nothing more is delivered to it.
    pub unacked_records_max: u32,
    /// Partitions of a topic made without a count.
    pub default_partitions: u32,
    /// Whether a producer's look-up makes a missing topic.
    pub auto_create_topics: bool,
    /// An idle producer's state is forgotten after this long (ARCHITECTURE §5: 24 h).
    pub producer_expiry: Duration,
    /// A log ledger is rolled at this size.
    pub ledger_roll_bytes: u64,
    /// A log ledger with data is rolled at this age.
    pub ledger_roll_age: Duration,
    /// The first entry of a log ledger is followed by a snapshot of the partition's state when a take-over would have so many entries
    /// to replay; fewer are read faster than a snapshot's ledger is made, and thousands of partitions have no more than a handful.
    pub snapshot_entries_min: u64,
    /// How long records stay in topics that say nothing.
    pub retention: Limits,
    /// How often what retention lets go is looked for.
    pub retention_interval: Duration,
    /// How much subscriptions may keep of topics that say nothing.
    pub backlog: BacklogLimits,
    /// How partitions are spread over brokers by load.
    pub balance: BalanceLimits,
    /// Bytes of recent entries kept in memory over all partitions.
    pub tail_cache_bytes: usize,
    /// Partitions a second that are given away when the broker leaves or is drained.
    pub drain_rate: u32,
    /// Members of groups, and offsets.
    pub groups: serving_groups::GroupsConfig,
    /// For tests: a rule that is switched off.
    pub mutation: Mutation,
}

impl BrokerConfig {
    /// The defaults of ARCHITECTURE §5 for a broker of this name and address.
    pub fn new(name: NodeName, advertised: impl Into<String>) -> Self {
        Self {
            name,
            advertised: advertised.into(),
            max_batch_bytes: hulse_proto::limits::BATCH_BYTES_MAX,
            connections_max: 10_000,
            ingress_bytes: 64 << 20,
            read_ahead_bytes: 64 << 20,
            unacked_records_max: 5_000,
            default_partitions: 1,
            auto_create_topics: true,
            producer_expiry: Duration::from_secs(24 * 3600),
            ledger_roll_bytes: 1 << 30,
            ledger_roll_age: Duration::from_secs(4 * 3600),
            snapshot_entries_min: 256,
            retention: Limits {
                time: Some(Duration::from_secs(7 * 24 * 3600)),
                bytes: None,
            },
            retention_interval: Duration::from_secs(60),
            backlog: BacklogLimits::default(),
            drain_rate: 200,
            balance: BalanceLimits::default(),
            tail_cache_bytes: 64 << 20,
            groups: serving_groups::GroupsConfig::default(),
            mutation: Mutation::default(),
        }
    }
}
