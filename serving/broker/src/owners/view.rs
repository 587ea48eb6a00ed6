//! What metadata said of brokers, holders and pins, folded. No I/O.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bookie_metadata::{Revision, Versioned, WatchEvent};
use bytes::Bytes;
use hulse_proto::id::{NodeName, OwnerEpoch, PartitionId};
use hulse_proto::wire::Message as _;
use hulse_proto::wire::metadata as wire;

use super::rule::{Holder, KafkaPlace, LiveBroker, LiveBrokers, Verdict, owner};
use crate::keys::partition_of;
pub(super) use crate::keys::{BROKERS, PARTS, PINS};

/// A life of a broker that holds partitions; shared, since thousands name the same.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Life {
    broker: NodeName,
    boot: Bytes,
}

/// A partition's key, as it was last heard of.
#[derive(Debug, Clone)]
struct Held {
    by: Arc<Life>,
    epoch: OwnerEpoch,
    revision: Revision,
}

/// What was heard. Bounded by the brokers and the partitions of the cell.
#[derive(Debug, Default)]
pub(super) struct View {
    live: LiveBrokers,
    /// The brokers were listed at least once.
    knows_brokers: bool,
    held: BTreeMap<PartitionId, Held>,
    /// The partitions' keys were listed at least once.
    knows_holders: bool,
    pins: BTreeMap<PartitionId, NodeName>,
    lives: BTreeSet<Arc<Life>>,
    /// The newest that was heard of.
    revision: Revision,
}

/// What the shell does about a change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Change {
    /// Somebody won this epoch of the partition.
    Won(PartitionId, Holder),
    /// Its key is gone: the topic was deleted.
    Gone(PartitionId),
}

impl View {
    pub(super) fn live(&self) -> &LiveBrokers {
        &self.live
    }

    pub(super) fn knows_brokers(&self) -> bool {
        self.knows_brokers
    }

    pub(super) fn knows_holders(&self) -> bool {
        self.knows_holders
    }

    pub(super) fn revision(&self) -> Revision {
        self.revision
    }

    /// A whole listing of one kind, of this revision: what is not in it is gone.
    pub(super) fn list(&mut self, prefix: &str, rows: &[Versioned], at: Revision) -> Vec<Change> {
        let mut before = BTreeMap::new();
        match prefix {
            BROKERS => {
                self.live.clear();
                self.knows_brokers = true;
            }
            PARTS => {
                before = std::mem::take(&mut self.held);
                self.lives.clear();
                self.knows_holders = true;
            }
            _ => self.pins.clear(),
        }
        self.revision = self.revision.max(at);
        let mut changes: Vec<_> = rows.iter().filter_map(|row| self.put(row)).collect();
        // Deleted while no watch was up.
        for row in rows {
            let key = row.key.strip_prefix(PARTS).and_then(partition_of);
            key.map(|partition| before.remove(&partition));
        }
        changes.extend(before.into_keys().map(Change::Gone));
        changes
    }

    /// One change of what is watched.
    pub(super) fn apply(&mut self, event: &WatchEvent) -> Option<Change> {
        match event {
            WatchEvent::Put(row) => self.put(row),
            WatchEvent::Deleted { key, revision } => {
                self.revision = self.revision.max(*revision);
                self.deleted(key)
            }
        }
    }

    fn put(&mut self, row: &Versioned) -> Option<Change> {
        self.revision = self.revision.max(row.version);
        if let Some(name) = row.key.strip_prefix(BROKERS) {
            let read = NodeName::new(name).ok().zip(live_broker(row));
            match read {
                Some((name, broker)) => drop(self.live.insert(name, broker)),
                None => tracing::warn!(key = row.key, "a broker's record cannot be read"),
            }
            return None;
        }
        if let Some(key) = row.key.strip_prefix(PINS) {
            let pin = wire::Pin::decode(&row.value[..]).ok();
            let pin = pin.and_then(|pin| NodeName::new(&pin.broker).ok());
            if let Some((partition, pin)) = partition_of(key).zip(pin) {
                self.pins.insert(partition, pin);
            }
            return None;
        }
        let partition = partition_of(row.key.strip_prefix(PARTS)?)?;
        let record = wire::Partition::decode(&row.value[..]).ok()?;
        let Some(holder) = holder(&record, row.version) else {
            self.held.remove(&partition);
            return None;
        };
        let held = Held {
            by: self.life(&holder),
            epoch: holder.epoch,
            revision: holder.revision,
        };
        self.held.insert(partition, held);
        Some(Change::Won(partition, holder))
    }

    fn deleted(&mut self, key: &str) -> Option<Change> {
        if let Some(name) = key.strip_prefix(BROKERS) {
            self.live.remove(&NodeName::new(name).ok()?);
            return None;
        }
        if let Some(key) = key.strip_prefix(PINS) {
            self.pins.remove(&partition_of(key)?);
            return None;
        }
        let partition = partition_of(key.strip_prefix(PARTS)?)?;
        self.held.remove(&partition);
        Some(Change::Gone(partition))
    }

    fn life(&mut self, holder: &Holder) -> Arc<Life> {
        let life = Life {
            broker: holder.broker.clone(),
            boot: holder.boot.clone(),
        };
        if let Some(known) = self.lives.get(&life) {
            return Arc::clone(known);
        }
        let life = Arc::new(life);
        self.lives.insert(Arc::clone(&life));
        life
    }

    /// Who holds a partition, as it was last heard of.
    pub(super) fn holder(&self, partition: PartitionId) -> Option<Holder> {
        let held = self.held.get(&partition)?;
        Some(Holder {
            broker: held.by.broker.clone(),
            boot: held.by.boot.clone(),
            epoch: held.epoch,
            revision: held.revision,
        })
    }

    /// The owner, when this is what its key says.
    pub(super) fn owner(
        &self,
        partition: PartitionId,
        holder: Option<&Holder>,
    ) -> Option<(Verdict<'_>, &LiveBroker)> {
        let pin = self.pins.get(&partition);
        let verdict = owner(partition, holder, pin, &self.live)?;
        let broker = self.live.get(verdict.broker)?;
        Some((verdict, broker))
    }

    /// Who would get a partition that nobody holds, of these.
    pub(super) fn heir<'a>(
        &self,
        partition: PartitionId,
        among: &'a LiveBrokers,
    ) -> Option<&'a NodeName> {
        let pin = self.pins.get(&partition);
        owner(partition, None, pin, among).map(|verdict| verdict.broker)
    }

    /// The partitions that a life of a broker holds.
    pub(super) fn held_ids(&self, broker: &NodeName, boot: &Bytes) -> Vec<PartitionId> {
        let of = |held: &Held| held.by.broker == *broker && held.by.boot == *boot;
        let held = self.held.iter().filter(|(_, held)| of(held));
        held.map(|(id, _)| *id).collect()
    }

    /// How many partitions each life of a broker holds.
    pub(super) fn held_by(&self, broker: &NodeName, boot: &Bytes) -> usize {
        let of = |held: &&Held| held.by.broker == *broker && held.by.boot == *boot;
        self.held.values().filter(of).count()
    }
}

/// The key of a broker that lives.
pub(super) fn node_key(broker: &NodeName) -> String {
    format!("{BROKERS}{broker}")
}

/// What a partition's key says; `None` where nobody ever opened it.
pub(crate) fn holder(record: &wire::Partition, revision: Revision) -> Option<Holder> {
    Some(Holder {
        broker: NodeName::new(&record.owner).ok()?,
        boot: record.owner_boot.clone(),
        epoch: OwnerEpoch(record.owner_epoch),
        revision,
    })
}

fn live_broker(row: &Versioned) -> Option<LiveBroker> {
    let node = wire::Node::decode(&row.value[..]).ok()?;
    let kafka = node.kafka.into_iter().filter_map(|place| {
        Some(KafkaPlace {
            listener: place.listener,
            host: place.host,
            port: u16::try_from(place.port).ok()?,
        })
    });
    Some(LiveBroker {
        boot: node.boot_uuid,
        endpoint: node.endpoint.into(),
        draining: node.mode == "draining",
        kafka: kafka.collect(),
        revision: row.version,
    })
}

#[cfg(test)]
mod tests {
    use hulse_proto::id::TopicId;
    use uuid::Uuid;

    use super::*;

    fn row(index: u32, epoch: u32) -> Versioned {
        let record = wire::Partition {
            owner_epoch: epoch,
            owner: "broker-1".to_owned(),
            owner_boot: Bytes::from_static(b"boot"),
        };
        Versioned {
            key: format!("{PARTS}{}/{index}", Uuid::from_u128(7)),
            value: record.encode_to_vec().into(),
            version: Revision(9),
            lease: None,
        }
    }

    #[test]
    fn partition_that_was_deleted_while_no_watch_was_up_is_gone_by_the_next_listing() {
        let mut view = View::default();
        view.list(PARTS, &[row(0, 3), row(1, 3)], Revision(9));
        let changes = view.list(PARTS, &[row(1, 4)], Revision(12));
        let partition = |index| PartitionId {
            topic: TopicId(Uuid::from_u128(7)),
            index,
        };
        assert_eq!(changes.len(), 2, "{changes:?}");
        assert!(
            matches!(&changes[0], Change::Won(of, holder) if *of == partition(1) && holder.epoch == OwnerEpoch(4))
        );
        assert_eq!(changes[1], Change::Gone(partition(0)));
        assert_eq!(view.holder(partition(0)), None);
    }
}
