//! What a delta of a shard says.

use std::collections::BTreeMap;
use std::sync::Arc;

use hulse_proto::id::{PartitionId, TopicId};
use hulse_proto::time::TimestampMs;

use super::classic::ClassicGroup;
use super::consumer::{Current, MemberFacts};
use super::group::CommittedOffset;
use crate::topics::Partitions;

/// Changes that become durable together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Delta(pub Vec<(Arc<str>, Change)>);

/// One change of one group; a group that is not there is made by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// A generation of the classic protocol is complete; what the group was before, but for its offsets, is gone.
    Classic {
        /// The coordinator's clock.
        at: TimestampMs,
        /// All of it.
        group: ClassicGroup,
    },
    /// The group is of the newer protocol, and at this epoch.
    Epoch {
        /// The coordinator's clock; counts where the group has no members.
        at: TimestampMs,
        /// Which.
        epoch: i32,
        /// Who assigns.
        assignor: Arc<str>,
        /// Its topics and their partitions.
        topics: BTreeMap<TopicId, u32>,
    },
    /// A member said this of itself; one that is not there is made.
    Member {
        /// Which.
        member: Arc<str>,
        /// What.
        facts: MemberFacts,
    },
    /// The target of these members; the others' stays.
    Target {
        /// At this epoch.
        epoch: i32,
        /// By member.
        members: BTreeMap<Arc<str>, Partitions>,
    },
    /// A member has this.
    Current {
        /// Which.
        member: Arc<str>,
        /// What.
        current: Current,
    },
    /// A member is gone, with its target and what it held.
    MemberGone {
        /// The coordinator's clock.
        at: TimestampMs,
        /// Which.
        member: Arc<str>,
    },
    /// An offset is committed.
    Committed {
        /// Of which partition.
        partition: PartitionId,
        /// What.
        offset: CommittedOffset,
    },
    /// An offset is gone.
    OffsetGone {
        /// Of which partition.
        partition: PartitionId,
    },
    /// The group is gone, with all of it.
    Gone,
}
