//! The way to the coordinator, and what its refusals are called on this wire (serving.md E4, B6, B7).

use std::sync::Arc;

use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::PartitionId;
use kafka_protocol::protocol::StrBytes;
use serving_groups::{Answer, Client, GroupError, Request};
use tokio::time::Instant;
use uuid::Uuid;

use crate::error_code::{self, Code};
use crate::link::Link;
use crate::wire;

/// Asks the coordinator; an answer, or the code of why there is none.
pub(super) async fn ask(link: &Link, request: Request) -> Result<Answer, Code> {
    link.front().ask_group(request).await.map_err(|fault| {
        link.front().metrics().fault(fault.reason);
        of_fault(&fault)
    })
}

/// Clients look for the coordinator anew, or ask it again; never is a group that is only loading said to be missing (B2.6).
pub(super) fn of_fault(fault: &Fault) -> Code {
    match fault.reason {
        Reason::PartitionMoved | Reason::ShuttingDown => error_code::NOT_COORDINATOR,
        Reason::PermissionDenied => error_code::GROUP_AUTHORIZATION_FAILED,
        // The name is one of another type (serving.md B1).
        Reason::SubscriptionExists | Reason::SubscriptionDeleting => {
            error_code::INCONSISTENT_GROUP_PROTOCOL
        }
        Reason::DataDamaged | Reason::Internal => error_code::UNKNOWN,
        _ => error_code::COORDINATOR_LOAD_IN_PROGRESS,
    }
}

/// The code of a coordinator's refusal.
pub(super) fn of_error(error: &GroupError) -> Code {
    match error {
        GroupError::InvalidGroup => error_code::INVALID_GROUP_ID,
        GroupError::InvalidRequest(_) => error_code::INVALID_REQUEST,
        GroupError::GroupNotFound => error_code::GROUP_ID_NOT_FOUND,
        GroupError::NonEmptyGroup => error_code::NON_EMPTY_GROUP,
        GroupError::GroupFull | GroupError::GroupTooLarge => error_code::GROUP_MAX_SIZE_REACHED,
        GroupError::UnknownMember => error_code::UNKNOWN_MEMBER_ID,
        GroupError::MemberIdRequired(_) => error_code::MEMBER_ID_REQUIRED,
        GroupError::FencedInstance => error_code::FENCED_INSTANCE_ID,
        GroupError::UnreleasedInstance => error_code::UNRELEASED_INSTANCE_ID,
        GroupError::IllegalGeneration => error_code::ILLEGAL_GENERATION,
        GroupError::RebalanceInProgress => error_code::REBALANCE_IN_PROGRESS,
        GroupError::InconsistentProtocol => error_code::INCONSISTENT_GROUP_PROTOCOL,
        GroupError::InvalidSession => error_code::INVALID_SESSION_TIMEOUT,
        GroupError::FencedMemberEpoch => error_code::FENCED_MEMBER_EPOCH,
        GroupError::StaleMemberEpoch => error_code::STALE_MEMBER_EPOCH,
        GroupError::UnsupportedAssignor => error_code::UNSUPPORTED_ASSIGNOR,
        GroupError::InvalidPattern => error_code::INVALID_REGULAR_EXPRESSION,
        GroupError::OffsetMetadataTooLarge => error_code::OFFSET_METADATA_TOO_LARGE,
        GroupError::SubscribedToTopic => error_code::GROUP_SUBSCRIBED_TO_TOPIC,
        GroupError::Busy => error_code::COORDINATOR_LOAD_IN_PROGRESS,
    }
}

/// The code of what became of a part.
pub(super) fn of_result(result: &Result<(), GroupError>) -> Code {
    result.as_ref().map_or_else(of_error, |()| error_code::NONE)
}

/// An answer of another kind than was asked for is a bug, which the code says.
pub(super) fn unexpected(answer: &Answer) -> Code {
    tracing::error!(?answer, "the coordinator answered something else");
    error_code::UNKNOWN
}

pub(super) fn name(text: &StrBytes) -> Arc<str> {
    text.as_str().into()
}

pub(super) fn optional(text: Option<&StrBytes>) -> Option<Arc<str>> {
    text.map(name)
}

pub(super) fn told(text: &Arc<str>) -> StrBytes {
    wire::text(text.to_string())
}

/// A time of the wire; negative ones are none.
pub(super) fn ms(time: i32) -> u32 {
    u32::try_from(time).unwrap_or(0)
}

/// Who speaks.
pub(super) fn client(link: &Link, called: &str) -> Client {
    Client {
        id: called.into(),
        host: link.peer.ip().to_canonical().to_string().into(),
    }
}

/// A partition by the name of its topic.
pub(super) async fn partition(
    link: &Link,
    topic: &str,
    index: i32,
    until: Instant,
) -> Result<PartitionId, Code> {
    let unknown = error_code::UNKNOWN_TOPIC_OR_PARTITION;
    let found = link.topic(topic, Uuid::nil(), until).await;
    let topic = found.map_err(|fault| match fault.reason {
        Reason::MetadataUnavailable => error_code::COORDINATOR_LOAD_IN_PROGRESS,
        reason => error_code::of_request(reason),
    })?;
    match u32::try_from(index) {
        Ok(index) if index < topic.partitions => Ok(PartitionId {
            topic: topic.id,
            index,
        }),
        _ => Err(unknown),
    }
}
