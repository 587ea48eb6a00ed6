//! The cell and its nodes.

use hulse_proto::wire::v1;

use super::handle::Admin;
use crate::error::Error;

/// A cell, as the broker that answered found it in metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ClusterInfo {
    /// Its identity, 16 bytes.
    pub cell: Vec<u8>,
    /// Bookies of a ledger, copies of an entry, and copies before an answer.
    pub quorums: (u32, u32, u32),
    /// Brokers that run, by name.
    pub brokers: Vec<BrokerInfo>,
    /// Bookies that were ever registered, by name.
    pub bookies: Vec<BookieInfo>,
    /// How the copies are; `None`: nobody has looked yet.
    pub upkeep: Option<UpkeepInfo>,
    /// The broker that answered.
    pub answered_by: String,
    /// Its clock, ms since 1970.
    pub now_ms: i64,
}

/// A broker that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BrokerInfo {
    /// Name.
    pub name: String,
    /// Where clients reach it.
    pub endpoint: String,
    /// `host:port` of its metrics and health; empty: not told.
    pub http: String,
    /// Its clock when it registered, ms since 1970.
    pub registered_ms: i64,
    /// Partitions that it owned last, where that was asked for.
    pub partitions: Option<u64>,
}

/// A bookie that is or was.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BookieInfo {
    /// Name.
    pub name: String,
    /// Identity of its disk, 16 bytes.
    pub incarnation: Vec<u8>,
    /// `active`, `read-only`, `draining`, `retired` or `lost`.
    pub state: String,
    /// What fails together with it; may be empty.
    pub zone: String,
    /// What it says of itself while it runs; empty: it does not run.
    pub mode: String,
    /// Where brokers reach it.
    pub endpoint: String,
    /// `host:port` of its metrics and health; empty: not told.
    pub http: String,
    /// Ledgers that name it, as upkeep saw last.
    pub ledgers: Option<u64>,
    /// And about how many bytes of them.
    pub bytes: Option<u64>,
}

/// What the planner of upkeep found last.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UpkeepInfo {
    /// The bookie whose process plans.
    pub planner: String,
    /// When, ms since 1970.
    pub at_ms: i64,
    /// Complete passes over all ledgers.
    pub passes: u64,
    /// Ledgers there are.
    pub ledgers: u64,
    /// Ledgers with fewer good copies than they should have.
    pub lacking_ledgers: u64,
    /// Since when there have been any without a break, ms since 1970.
    pub lacking_since_ms: Option<i64>,
    /// About how much is to be copied, also what only moves.
    pub bytes_to_copy: u64,
    /// How fast that goes.
    pub bytes_per_second: u64,
    /// Places that cannot be repaired now; not all where there are many.
    pub blocked: Vec<BlockedInfo>,
    /// All such places.
    pub blocked_count: u64,
}

/// A place that cannot be repaired now.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BlockedInfo {
    /// Number of the ledger.
    pub ledger: u64,
    /// Of the fragment.
    pub first_entry: u64,
    /// Whose copy it is.
    pub bookie: String,
    /// `settling`, `waiting`, `no-target`, `unreadable` or `failing`.
    pub kind: String,
    /// In words.
    pub why: String,
}

impl Admin {
    /// The cell and its nodes. `partitions`: also how many partitions each broker owned last, which looks at every partition.
    ///
    /// # Errors
    /// Why it could not be asked.
    pub async fn cluster(&self, partitions: bool) -> Result<ClusterInfo, Error> {
        let request = v1::DescribeClusterRequest { partitions };
        let answer = self.ask(request, |mut admin, request| async move {
            admin.describe_cluster(request).await
        });
        let answer = answer.await?;
        Ok(ClusterInfo {
            cell: answer.cell_uuid.to_vec(),
            quorums: (answer.ensemble, answer.write_quorum, answer.ack_quorum),
            brokers: answer.brokers.into_iter().map(broker).collect(),
            bookies: answer.bookies.into_iter().map(bookie).collect(),
            upkeep: answer.upkeep.map(upkeep),
            answered_by: answer.answered_by,
            now_ms: answer.now_ms,
        })
    }

    /// An operator's word on a bookie: it becomes `active`, `read-only`, `draining` or `lost`.
    ///
    /// # Errors
    /// BOOKIE_NOT_FOUND, PRECONDITION_FAILED, …; or the outcome is unknown.
    pub async fn change_bookie(&self, name: &str, state: &str) -> Result<BookieInfo, Error> {
        let request = v1::ChangeBookieRequest {
            name: name.to_owned(),
            state: state.to_owned(),
        };
        let answer = self.change(request, |mut admin, request| async move {
            admin.change_bookie(request).await
        });
        let changed = answer.await?.bookie;
        changed
            .map(bookie)
            .ok_or_else(|| Error::wrong_answer("no bookie"))
    }
}

fn broker(wire: v1::BrokerDescription) -> BrokerInfo {
    BrokerInfo {
        name: wire.name,
        endpoint: wire.endpoint,
        http: wire.http,
        registered_ms: wire.registered_ms,
        partitions: wire.partitions,
    }
}

fn bookie(wire: v1::BookieDescription) -> BookieInfo {
    BookieInfo {
        name: wire.name,
        incarnation: wire.incarnation.to_vec(),
        state: wire.state,
        zone: wire.zone,
        mode: wire.mode,
        endpoint: wire.endpoint,
        http: wire.http,
        ledgers: wire.ledgers,
        bytes: wire.bytes,
    }
}

fn upkeep(wire: v1::UpkeepDescription) -> UpkeepInfo {
    let blocked = wire.blocked.into_iter().map(|blocked| BlockedInfo {
        ledger: blocked.ledger,
        first_entry: blocked.first_entry,
        bookie: blocked.bookie,
        kind: blocked.kind,
        why: blocked.why,
    });
    UpkeepInfo {
        blocked: blocked.collect(),
        planner: wire.planner,
        at_ms: wire.at_ms,
        passes: wire.passes,
        ledgers: wire.ledgers,
        lacking_ledgers: wire.lacking_ledgers,
        lacking_since_ms: (wire.lacking_since_ms != 0).then_some(wire.lacking_since_ms),
        bytes_to_copy: wire.bytes_to_copy,
        bytes_per_second: wire.bytes_per_second,
        blocked_count: wire.blocked_count,
    }
}
