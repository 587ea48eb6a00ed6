//! The cell and its nodes.

use hulse_proto::wire::v1;

use super::bookies::{Bookie, Upkeep};
use super::handle::Admin;
use crate::error::Error;

/// A cell, as the broker that answered found it in metadata.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Cluster {
    /// Its identity, 16 bytes.
    pub cell: Vec<u8>,
    /// Bookies of a ledger, copies of an entry, and copies before an answer.
    pub quorums: (u32, u32, u32),
    /// Brokers that run, by name.
    pub brokers: Vec<Broker>,
    /// Bookies that were ever registered, by name.
    pub bookies: Vec<Bookie>,
    /// How the copies are; `None`: nobody has looked yet.
    pub upkeep: Option<Upkeep>,
    /// The broker that answered.
    pub answered_by: String,
    /// Its clock, ms since 1970.
    pub now_ms: i64,
    /// The topic that asks for the largest ensemble, and for how many bookies, if that is more than `quorums` has.
    pub largest_ensemble: Option<(String, u32)>,
    /// The topic that asks for the largest ack quorum, likewise.
    pub largest_ack_quorum: Option<(String, u32)>,
}

/// A broker that runs.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Broker {
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
    /// It gives its partitions away, and gets none.
    pub draining: bool,
}

impl Admin {
    /// The cell and its nodes. `partitions`: also how many partitions each broker owned last, which looks at every partition.
    ///
    /// # Errors
    /// Why it could not be asked.
    pub async fn cluster(&self, partitions: bool) -> Result<Cluster, Error> {
        let request = v1::DescribeClusterRequest { partitions };
        let answer = self.ask(request, |mut admin, request| async move {
            admin.describe_cluster(request).await
        });
        let answer = answer.await?;
        Ok(Cluster {
            cell: answer.cell_uuid.to_vec(),
            quorums: (answer.ensemble, answer.write_quorum, answer.ack_quorum),
            brokers: answer.brokers.into_iter().map(broker).collect(),
            bookies: answer.bookies.into_iter().map(Bookie::from_wire).collect(),
            upkeep: answer.upkeep.map(Upkeep::from_wire),
            answered_by: answer.answered_by,
            now_ms: answer.now_ms,
            largest_ensemble: answer.largest_ensemble.map(demanding),
            largest_ack_quorum: answer.largest_ack_quorum.map(demanding),
        })
    }
}

fn demanding(wire: v1::DemandingTopic) -> (String, u32) {
    (wire.topic, wire.bookies)
}

fn broker(wire: v1::BrokerDescription) -> Broker {
    Broker {
        name: wire.name,
        endpoint: wire.endpoint,
        http: wire.http,
        registered_ms: wire.registered_ms,
        partitions: wire.partitions,
        draining: wire.draining,
    }
}
