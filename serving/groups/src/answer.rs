//! What a coordinator answers and asks for.

use std::sync::Arc;

use bytes::Bytes;
use hulse_proto::id::PartitionId;

use crate::error::GroupError;
use crate::request::{Client, Leaver, RequestId};
use crate::state::{CommittedOffset, Delta};
use crate::topics::Partitions;

/// What a coordinator wants done.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Append this to the state chain. Numbers are dense and in order. When it fails, this coordinator ends: the next one replays.
    Append {
        /// From 1 after what was replayed.
        number: u64,
        /// What.
        delta: Delta,
    },
    /// The answer to a request. Everything that it rests on is durable.
    Answer(RequestId, Answer),
    /// Members of this group that wait (gRPC, B8) may have something new to hear: let them beat now.
    Changed(Arc<str>),
    /// The application of a member stands still with records waiting.
    Idle {
        /// Its group.
        group: Arc<str>,
        /// Which.
        member: Arc<str>,
        /// It lost its partitions; `false`: it is warned.
        fenced: bool,
    },
}

/// What became of each part of a request; or of all of it.
pub type PerPart<P, T = ()> = Result<Vec<(P, Result<T, GroupError>)>, GroupError>;

/// The answer to a request of the same name.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// To a join.
    Joined(Result<Joined, GroupError>),
    /// To a sync.
    Synced(Result<Synced, GroupError>),
    /// To a heartbeat.
    Beat(Result<(), GroupError>),
    /// To a leave; for each that was named.
    Left(PerPart<Leaver>),
    /// To a heartbeat of the newer protocol.
    Member(Result<MemberAnswer, GroupError>),
    /// To a commit; for each that was named.
    Committed(PerPart<PartitionId>),
    /// To a read of offsets; `None`: none is committed.
    Fetched(Result<Vec<(PartitionId, Option<CommittedOffset>)>, GroupError>),
    /// To a removal of offsets; for each that was named.
    OffsetsDeleted(PerPart<PartitionId>),
    /// To a removal.
    Deleted(Result<(), GroupError>),
    /// All groups, by name.
    Listed(Vec<Listing>),
    /// One group.
    Described(Result<Description, GroupError>),
}

/// A member got into a generation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Joined {
    /// Its id.
    pub member: Arc<str>,
    /// Which generation.
    pub generation: i32,
    /// Such as `consumer`.
    pub protocol_type: Arc<str>,
    /// The one that all have.
    pub protocol: Arc<str>,
    /// Who assigns; empty: the coordinator.
    pub leader: Arc<str>,
    /// It is the leader, and what is assigned stays (KIP-814).
    pub skip_assignment: bool,
    /// For the leader: everybody, with the bytes of the chosen protocol.
    pub members: Vec<JoinedMember>,
}

/// A member as the leader sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JoinedMember {
    /// Its id.
    pub member: Arc<str>,
    /// Static member.
    pub instance: Option<Arc<str>>,
    /// Its bytes.
    pub metadata: Bytes,
}

/// What a classic member got.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Synced {
    /// Such as `consumer`.
    pub protocol_type: Arc<str>,
    /// The one that all have.
    pub protocol: Arc<str>,
    /// The leader's bytes for it.
    pub assignment: Bytes,
}

/// What a member of the newer protocol hears.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberAnswer {
    /// Its id.
    pub member: Arc<str>,
    /// Its epoch from now on.
    pub epoch: i32,
    /// Beat so often.
    pub heartbeat_ms: u32,
    /// What it has from now on; `None`: as before.
    pub assigned: Option<Partitions>,
}

/// What a group does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupState {
    /// No members.
    Empty,
    /// Classic: members join.
    PreparingRebalance,
    /// Classic: the leader assigns.
    CompletingRebalance,
    /// Newer protocol: the target is older than the group.
    Assigning,
    /// Newer protocol: members are on their way to the target.
    Reconciling,
    /// Everybody has what it should.
    Stable,
}

/// How a group speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum GroupType {
    /// Classic protocol, or offsets only.
    Classic,
    /// KIP-848.
    Consumer,
}

/// A group in a list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// Its name.
    pub group: Arc<str>,
    /// Such as `consumer`; empty: none.
    pub protocol_type: Arc<str>,
    /// What it does.
    pub state: GroupState,
    /// How it speaks.
    pub kind: GroupType,
}

/// A group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Description {
    /// As in a list.
    pub listing: Listing,
    /// The protocol of a classic group, the assignor of another; empty: none.
    pub protocol: Arc<str>,
    /// Generation, or epoch of the group.
    pub epoch: i32,
    /// Epoch of the target.
    pub target_epoch: i32,
    /// By id.
    pub members: Vec<MemberDescription>,
}

/// A member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MemberDescription {
    /// Its id.
    pub member: Arc<str>,
    /// Static member.
    pub instance: Option<Arc<str>>,
    /// Where it is.
    pub rack: Option<Arc<str>>,
    /// Who.
    pub client: Client,
    /// Generation, or its own epoch.
    pub epoch: i32,
    /// Classic: its bytes of the chosen protocol.
    pub metadata: Bytes,
    /// Classic: the leader's bytes for it.
    pub assignment: Bytes,
    /// Newer protocol: topic names.
    pub topics: Vec<Arc<str>>,
    /// Newer protocol: the pattern of topic names.
    pub pattern: Option<Arc<str>>,
    /// Newer protocol: what it has.
    pub assigned: Partitions,
    /// Newer protocol: what it shall have.
    pub target: Partitions,
    /// It speaks the classic protocol.
    pub classic: bool,
}
