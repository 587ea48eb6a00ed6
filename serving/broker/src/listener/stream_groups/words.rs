//! From the wire to the coordinator's words and back.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{Offset, PartitionId, TopicId};
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::group_down::Item;
use serving_groups::{GroupError, NewOffset, Partitions, limits};

use super::placing::Placed;
use crate::listener::wire::{invalid, partition};

/// "Of the last processed record nothing is known."
const NO_EPOCH: i32 = -1;

/// The fault of a coordinator's refusal. Never is a group that is only loading said to be missing (serving.md B2.6).
pub(in crate::listener) fn fault_of(error: &GroupError) -> Fault {
    let reason = match error {
        GroupError::InvalidGroup => Reason::InvalidName,
        GroupError::InvalidRequest(_)
        | GroupError::InvalidSession
        | GroupError::UnsupportedAssignor
        | GroupError::InvalidPattern
        | GroupError::OffsetMetadataTooLarge => Reason::InvalidRequest,
        GroupError::GroupNotFound => Reason::SubscriptionNotFound,
        GroupError::NonEmptyGroup
        | GroupError::SubscribedToTopic
        | GroupError::InconsistentProtocol
        | GroupError::IllegalGeneration => Reason::PreconditionFailed,
        GroupError::GroupFull | GroupError::GroupTooLarge => Reason::Overloaded,
        GroupError::UnreleasedInstance => Reason::ConsumerExists,
        GroupError::UnknownMember
        | GroupError::MemberIdRequired(_)
        | GroupError::FencedInstance
        | GroupError::FencedMemberEpoch => Reason::MemberFenced,
        GroupError::StaleMemberEpoch => Reason::NotOwned,
        GroupError::RebalanceInProgress | GroupError::Busy => Reason::PartitionLoading,
    };
    let cause = match error {
        GroupError::UnknownMember => Some("session"),
        GroupError::FencedInstance => Some("instance"),
        GroupError::FencedMemberEpoch => Some("epoch"),
        _ => None,
    };
    let fault = Fault::new(reason, error.to_string());
    match cause {
        Some(cause) => fault.with("cause", cause),
        None => fault,
    }
}

/// The member's application stood still for too long.
pub(super) fn idle() -> Fault {
    let words = "the application took no record for too long though some waited, so that the member lost its partitions; join again when records are taken";
    Fault::new(Reason::MemberFenced, words).with("cause", "idle")
}

/// Partitions by topic.
///
/// # Errors
/// `INVALID_REQUEST`: an identity that is none, or more than a member can have.
pub(super) fn partitions(wire: &[v1::TopicPartitions]) -> Result<Partitions, Fault> {
    let count: usize = wire.iter().map(|topic| topic.indexes.len()).sum();
    if count > limits::ASSIGNED_PARTITIONS_MAX {
        let max = limits::ASSIGNED_PARTITIONS_MAX;
        return Err(invalid(format!(
            "{count} partitions are more than the {max} that a group may have"
        )));
    }
    let mut all = Partitions::new();
    for topic in wire {
        let id = TopicId::from_slice(&topic.topic_uuid);
        let id = id.ok_or_else(|| invalid("topic_uuid is not 16 bytes"))?;
        let indexes = topic.indexes.iter();
        all.extend(indexes.map(|index| PartitionId {
            topic: id,
            index: *index,
        }));
    }
    Ok(all)
}

/// What is to be committed.
///
/// # Errors
/// `INVALID_REQUEST`.
pub(super) fn offsets(wire: Vec<v1::CommittedTo>) -> Result<Vec<NewOffset>, Fault> {
    let offsets = wire.into_iter().map(|offset| {
        Ok(NewOffset {
            partition: partition(offset.partition.as_ref())?,
            offset: Offset(offset.offset),
            leader_epoch: offset.leader_epoch.unwrap_or(NO_EPOCH),
            metadata: offset.metadata.map(Into::into),
        })
    });
    offsets.collect()
}

pub(super) fn to_wire(id: PartitionId) -> Option<v1::Partition> {
    Some(v1::Partition {
        topic_uuid: id.topic.to_bytes(),
        index: id.index,
    })
}

/// All that a member has.
pub(super) fn assignment(epoch: i32, placed: Vec<Placed>) -> Item {
    let partitions = placed.into_iter().map(|placed| v1::AssignedPartition {
        partition: to_wire(placed.partition),
        topic: placed.topic.as_str().to_owned(),
        begin: placed.begin.0,
    });
    Item::Assignment(v1::GroupAssignment {
        epoch,
        partitions: partitions.collect(),
    })
}

/// What a coordinator says of the partitions of a commit.
pub(super) type Results = Vec<(PartitionId, Result<(), GroupError>)>;

/// What became of a commit: in the order of `asked`.
pub(super) fn committed(
    commit_id: u64,
    asked: &[PartitionId],
    refused: &BTreeSet<PartitionId>,
    result: Result<Results, Fault>,
) -> Item {
    let (fault, results) = match result {
        Ok(results) => (None, results.into_iter().collect()),
        Err(fault) => (Some(fault.to_wire()), BTreeMap::new()),
    };
    let offsets = asked.iter().map(|id| {
        let fault = match results.get(id) {
            _ if refused.contains(id) => Some(not_held()),
            Some(Err(error)) => Some(fault_of(error)),
            _ => None,
        };
        v1::OffsetCommitted {
            partition: to_wire(*id),
            fault: fault.map(|fault| fault.to_wire()),
        }
    });
    Item::Committed(v1::OffsetsCommitted {
        commit_id,
        offsets: offsets.collect(),
        fault,
    })
}

fn not_held() -> Fault {
    let words = "the partition is not, or no more, this member's; what was processed of it may be processed again by another one";
    Fault::new(Reason::NotOwned, words)
}

/// A name that a client gives, shared.
pub(super) fn optional(text: String) -> Option<Arc<str>> {
    (!text.is_empty()).then(|| text.into())
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::*;

    #[test]
    fn member_that_is_out_is_told_why_and_never_that_its_group_is_missing() {
        for (error, cause) in [
            (GroupError::UnknownMember, "session"),
            (GroupError::FencedMemberEpoch, "epoch"),
            (GroupError::FencedInstance, "instance"),
        ] {
            let fault = fault_of(&error);
            assert_eq!(fault.reason, Reason::MemberFenced);
            assert_eq!(fault.details.get("cause").map(String::as_str), Some(cause));
        }
        assert!(fault_of(&GroupError::Busy).reason.is_retryable());
    }

    #[test]
    fn partitions_with_an_identity_that_is_none_are_refused() {
        let topic = |uuid: &'static [u8]| v1::TopicPartitions {
            topic_uuid: Bytes::from_static(uuid),
            indexes: vec![3, 1, 3],
        };
        assert!(partitions(&[topic(&[1; 15])]).is_err());
        assert_eq!(partitions(&[topic(&[1; 16])]).unwrap().len(), 2);
        let many = v1::TopicPartitions {
            topic_uuid: Bytes::from_static(&[1; 16]),
            indexes: vec![0; limits::ASSIGNED_PARTITIONS_MAX + 1],
        };
        assert!(partitions(&[many]).is_err());
    }
}
