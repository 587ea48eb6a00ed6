//! Metadata keys of brokers, of partitions and their chains (storage.md, amendment "who holds what").

use hulse_proto::id::{PartitionId, TopicId};
use hulse_proto::ledger::LedgerKind;
use uuid::Uuid;

/// Keys of brokers that live, each followed by its name; bound to their leases.
pub(crate) const BROKERS: &str = "node/broker/";

/// Keys of [`partition_key`] of all partitions.
pub(crate) const PARTS: &str = "part/";

/// Owner epoch of a partition. Never bound to a lease.
pub(crate) fn partition_key(partition: PartitionId) -> String {
    format!("{PARTS}{}/{:05}", partition.topic, partition.index)
}

/// Keys of [`pin_key`] of all partitions.
pub(crate) const PINS: &str = "pin/";

/// To whom a partition goes when nobody holds it.
pub(crate) fn pin_key(partition: PartitionId) -> String {
    format!("{PINS}{}/{:05}", partition.topic, partition.index)
}

/// The partition of a key, by what follows the prefix of its kind: `{uuid}/{index}`.
pub(crate) fn partition_of(key: &str) -> Option<PartitionId> {
    let (topic, index) = key.split_once('/')?;
    Some(PartitionId {
        topic: TopicId(Uuid::parse_str(topic).ok()?),
        index: index.parse().ok()?,
    })
}

/// The keys of [`partition_key`] of all partitions of one topic.
pub(crate) fn topic_prefix(topic: TopicId) -> String {
    format!("{PARTS}{topic}/")
}

/// All chunks of one chain.
pub(crate) fn chain_prefix(partition: PartitionId, kind: LedgerKind) -> String {
    let kind = match kind {
        LedgerKind::Log => "log",
        LedgerKind::State => "state",
    };
    format!("chain/{}/{:05}/{kind}/", partition.topic, partition.index)
}

/// One chunk; zero-padded so that chunks list in order.
pub(crate) fn chain_key(partition: PartitionId, kind: LedgerKind, chunk: u64) -> String {
    format!("{}{chunk:010}", chain_prefix(partition, kind))
}
