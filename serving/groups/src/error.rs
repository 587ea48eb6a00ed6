//! Why a coordinator refuses.

use std::sync::Arc;

use hulse_proto::error::ErrorKind;

/// A refusal; each has its own code on Kafka's wire. Nothing of the request was applied.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// The name is empty or too long.
    #[error("the name of the group is empty or too long")]
    InvalidGroup,
    /// A field is missing, contradicts another, or is too large.
    #[error("the request is malformed: {0}")]
    InvalidRequest(&'static str),
    /// There is no such group.
    #[error("there is no such group")]
    GroupNotFound,
    /// The group has members.
    #[error("the group has members")]
    NonEmptyGroup,
    /// The group has as many members as it may.
    #[error("the group has as many members as it may")]
    GroupFull,
    /// What the group's members say takes more room than a group may.
    #[error("what the members of the group say is too large")]
    GroupTooLarge,
    /// The member is not in the group: it joins anew.
    #[error("the member is not in the group")]
    UnknownMember,
    /// The member joins again by this id.
    #[error("join again as {0}")]
    MemberIdRequired(Arc<str>),
    /// Another process took this static id over.
    #[error("another process has this static id")]
    FencedInstance,
    /// The member that has this static id has not left.
    #[error("the member that has this static id has not left")]
    UnreleasedInstance,
    /// The generation is not the group's.
    #[error("the generation is not the group's")]
    IllegalGeneration,
    /// The group is between two generations: the member joins again.
    #[error("the group is being rebalanced")]
    RebalanceInProgress,
    /// No protocol is common to the member and the group.
    #[error("no protocol is common to the member and the group")]
    InconsistentProtocol,
    /// The session is shorter or longer than may be.
    #[error("the session is shorter or longer than may be")]
    InvalidSession,
    /// The member's epoch is not the one the coordinator has: it gives everything up and joins anew.
    #[error("the epoch of the member is fenced")]
    FencedMemberEpoch,
    /// The epoch does not cover this partition, or is not the member's.
    #[error("the epoch of the member is stale")]
    StaleMemberEpoch,
    /// No such server-side assignor.
    #[error("no such assignor")]
    UnsupportedAssignor,
    /// The pattern is none, or too large.
    #[error("the pattern of topic names is not understood")]
    InvalidPattern,
    /// The metadata of an offset are too long.
    #[error("the metadata of the offset are too long")]
    OffsetMetadataTooLarge,
    /// The group is subscribed to the topic.
    #[error("the group is subscribed to the topic")]
    SubscribedToTopic,
    /// More deltas are under way than may be: retry.
    #[error("the coordinator is busy")]
    Busy,
}

impl GroupError {
    /// What the caller does.
    pub fn kind(&self) -> ErrorKind {
        match self {
            Self::InvalidGroup
            | Self::InvalidRequest(_)
            | Self::InconsistentProtocol
            | Self::InvalidSession
            | Self::UnsupportedAssignor
            | Self::InvalidPattern
            | Self::OffsetMetadataTooLarge => ErrorKind::Invalid,
            Self::GroupNotFound => ErrorKind::NotFound,
            Self::NonEmptyGroup
            | Self::SubscribedToTopic
            | Self::UnreleasedInstance
            | Self::UnknownMember
            | Self::MemberIdRequired(_)
            | Self::IllegalGeneration
            | Self::StaleMemberEpoch => ErrorKind::Conflict,
            Self::FencedInstance | Self::FencedMemberEpoch => ErrorKind::Fenced,
            Self::GroupFull | Self::GroupTooLarge => ErrorKind::Overloaded,
            Self::RebalanceInProgress | Self::Busy => ErrorKind::Unavailable,
        }
    }
}
