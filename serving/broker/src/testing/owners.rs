//! Brokers among others, without their listeners: who owns what, and planned hand-overs.

use hulse_proto::error::Fault;
use hulse_proto::id::{NodeName, OwnerEpoch, PartitionId};
use hulse_proto::wire::v1;

use crate::Partitions;
use crate::partition::{Claim, PartitionPolicy};

/// What is to be handed over, and to whom.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandedOver {
    /// The partition.
    pub partition: PartitionId,
    /// The broker that is to have it.
    pub to: NodeName,
    /// Where clients find that one.
    pub endpoint: String,
}

/// From now on these partitions know the brokers that are registered, and whose each is, as those of a broker that is served.
pub fn follow(partitions: &Partitions) {
    let owners = partitions.with.owners.clone();
    owners.begin();
    let partitions = partitions.clone();
    tokio::spawn(async move { owners.run(&partitions).await });
}

/// True once they do.
pub fn knows_owners(partitions: &Partitions) -> bool {
    let owners = &partitions.with.owners;
    owners.knows_holders() || owners.alone()
}

/// As a broker hands a partition over that is open here, or opens for it; `take` asks the new owner, which answers its epoch.
///
/// # Errors
/// Those of opening, and of `take`.
pub async fn hand_over(
    partitions: &Partitions,
    goal: HandedOver,
    take: impl AsyncFnOnce(OwnerEpoch) -> Result<OwnerEpoch, Fault>,
) -> Result<OwnerEpoch, Fault> {
    let open = partitions.open(goal.partition).await?;
    let epoch = open.leader_epoch();
    let owner = v1::PartitionOwner {
        index: goal.partition.index,
        endpoint: goal.endpoint,
        leader_epoch: epoch.0 + 1,
        broker: goal.to.as_str().to_owned(),
        revision: partitions.with.owners.revision().0,
    };
    partitions
        .give(goal.partition, epoch, &owner, take(epoch))
        .await
}

/// As a broker takes a partition that the owner of this epoch hands over; the epoch under which it serves.
///
/// # Errors
/// Those of opening.
pub async fn take(
    partitions: &Partitions,
    partition: PartitionId,
    epoch: OwnerEpoch,
) -> Result<OwnerEpoch, Fault> {
    let claim = Claim::HandedOver(epoch);
    let policy = PartitionPolicy::default();
    let open = partitions.open_claimed(partition, policy, claim).await?;
    Ok(open.leader_epoch())
}
