//! The cell as an operator sees it: its nodes, and how its copies are. It is read from metadata, but for the load, which
//! brokers are asked for; by whichever broker is asked.

use std::collections::BTreeMap;

use bookie_metadata::cell::read_cell;
use bookie_metadata::{MetadataError, list_all};
use bytes::Bytes;
use hulse_proto::error::{ErrorKind, Fault, Reason};
use hulse_proto::ledger::Quorums;
use hulse_proto::wire::{Message as _, metadata as wire, v1};

use super::front::Front;
use crate::keys::{BROKERS, PARTS};
use crate::topics::Topic;

impl Front {
    /// Everything that metadata say of the cell and its nodes. `partitions`: also of each partition's owner.
    ///
    /// # Errors
    /// `METADATA_UNAVAILABLE`; `DATA_DAMAGED` when something there cannot be read.
    pub(super) async fn cluster(
        &self,
        partitions: bool,
    ) -> Result<v1::DescribeClusterResponse, Fault> {
        let cell = read_cell(&*self.metadata).await;
        let cell = cell.map_err(|error| unreadable(error.kind(), &error))?;
        let cell = cell.ok_or_else(|| unreadable(ErrorKind::Corrupt, &"the cell has no record"))?;
        let of_bookies = self.bookies().await?;
        let mut brokers = self.brokers_described().await?;
        if partitions {
            self.count_partitions(&mut brokers).await?;
        }
        let (loads, balance) = self.loads_shown().await;
        for (name, (broker, _)) in &mut brokers {
            if let Some(told) = loads.get(name) {
                (broker.load, broker.open) = (Some(told.load), Some(told.open));
            }
        }
        let quorums = cell.settings.quorums;
        Ok(v1::DescribeClusterResponse {
            cell_uuid: Bytes::copy_from_slice(cell.cell.0.as_bytes()),
            ensemble: quorums.ensemble,
            write_quorum: quorums.write,
            ack_quorum: quorums.ack,
            created_at_ms: cell.created_at_ms,
            brokers: brokers.into_values().map(|(broker, _)| broker).collect(),
            bookies: of_bookies.bookies,
            upkeep: of_bookies.upkeep,
            answered_by: self.config.name.to_string(),
            now_ms: self.partitions.with.clock.now_ms(),
            largest_ensemble: self.demanding(quorums.ensemble, |topic| topic.ensemble),
            largest_ack_quorum: self.demanding(quorums.ack, |topic| topic.ack),
            balance,
        })
    }

    /// A topic that asks for more than the cell gives.
    fn demanding(&self, cell: u32, of: impl Fn(Quorums) -> u32) -> Option<v1::DemandingTopic> {
        let asks = |topic: &Topic| topic.quorums.map_or(0, &of);
        let (topic, bookies) = self.topics.largest(asks)?;
        (bookies > cell).then(|| v1::DemandingTopic {
            topic: topic.to_string(),
            bookies,
        })
    }

    /// What nodes say of themselves while they run, by name.
    async fn live(&self, prefix: &str) -> Result<BTreeMap<String, wire::Node>, Fault> {
        let rows = list_all(&*self.metadata, prefix).await.map_err(metadata)?;
        let each = rows.into_iter().map(|row| {
            let name = row.key[prefix.len()..].to_owned();
            let node = wire::Node::decode(row.value);
            node.map(|node| (name, node))
                .map_err(|error| unreadable(ErrorKind::Corrupt, &format!("{}: {error}", row.key)))
        });
        each.collect()
    }

    /// Brokers and their present lives, by name.
    async fn brokers_described(
        &self,
    ) -> Result<BTreeMap<String, (v1::BrokerDescription, Bytes)>, Fault> {
        let live = self.live(BROKERS).await?.into_iter();
        let each = live.map(|(name, node)| {
            let described = v1::BrokerDescription {
                name: name.clone(),
                endpoint: node.endpoint,
                http: node.http,
                registered_ms: node.clock_ms,
                partitions: None,
                draining: node.mode == "draining",
                load: None,
                open: None,
            };
            (name, (described, node.boot_uuid))
        });
        Ok(each.collect())
    }

    async fn count_partitions(
        &self,
        brokers: &mut BTreeMap<String, (v1::BrokerDescription, Bytes)>,
    ) -> Result<(), Fault> {
        for (broker, _) in brokers.values_mut() {
            broker.partitions = Some(0);
        }
        let rows = list_all(&*self.metadata, PARTS).await;
        for row in rows.map_err(metadata)? {
            let Ok(partition) = wire::Partition::decode(row.value) else {
                continue;
            };
            match brokers.get_mut(&partition.owner) {
                Some((broker, boot)) if *boot == partition.owner_boot => {
                    broker.partitions = broker.partitions.map(|count| count + 1);
                }
                _ => {}
            }
        }
        Ok(())
    }
}

fn metadata(error: MetadataError) -> Fault {
    unreadable(error.kind(), &error)
}

fn unreadable(kind: ErrorKind, why: &dyn std::fmt::Display) -> Fault {
    let reason = match kind {
        ErrorKind::Corrupt => Reason::DataDamaged,
        ErrorKind::OutcomeUnknown => Reason::MetadataUnknown,
        _ => Reason::MetadataUnavailable,
    };
    Fault::new(reason, why.to_string())
}
