//! The word that sends a client to another broker: a fault whose details name it.

use hulse_proto::error::{Fault, Reason};
use hulse_proto::wire::v1;

/// Names of the details.
const PARTITION: &str = "partition";
const BROKER: &str = "broker";
const ENDPOINT: &str = "endpoint";
const EPOCH: &str = "leader_epoch";
const REVISION: &str = "revision";

/// PARTITION_MOVED, with the way.
pub(crate) fn moved_to(owner: &v1::PartitionOwner) -> Fault {
    let words = format!(
        "broker {} at {} serves partition {}; ask there",
        owner.broker, owner.endpoint, owner.index
    );
    Fault::new(Reason::PartitionMoved, words)
        .with(PARTITION, owner.index)
        .with(BROKER, &owner.broker)
        .with(ENDPOINT, &owner.endpoint)
        .with(EPOCH, owner.leader_epoch)
        .with(REVISION, owner.revision)
}

/// The way that such a fault names; `None` where it only says "not here".
pub(crate) fn owner_of(fault: &Fault) -> Option<v1::PartitionOwner> {
    let detail = |name| fault.details.get(name);
    Some(v1::PartitionOwner {
        index: detail(PARTITION)?.parse().ok()?,
        endpoint: detail(ENDPOINT)?.clone(),
        leader_epoch: detail(EPOCH)?.parse().ok()?,
        broker: detail(BROKER)?.clone(),
        revision: detail(REVISION)?.parse().ok()?,
    })
}
