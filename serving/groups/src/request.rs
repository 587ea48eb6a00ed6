//! What a coordinator is asked.

use std::collections::BTreeSet;
use std::sync::Arc;

use bytes::Bytes;
use hulse_proto::id::{Offset, PartitionId, TopicId};
use hulse_proto::time::TimestampMs;

use crate::topics::{Partitions, TopicsView};

/// The time of an input.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Now {
    /// Passing time in ms; never falls. All timers know this one only.
    pub passed_ms: u64,
    /// The date, for committed offsets.
    pub wall_ms: TimestampMs,
}

/// Names a request; the caller's choice, one of its own for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What happens to a coordinator shard.
#[derive(Debug, Clone)]
pub enum Input {
    /// A request. It is answered exactly once, unless it is said to be gone.
    Request(RequestId, Request),
    /// Nobody waits for this answer any more (serving.md D2.15).
    Gone(RequestId),
    /// The topics as they are now.
    Topics(Arc<TopicsView>),
    /// These topics are deleted: their offsets go (B2.11).
    Deleted(BTreeSet<TopicId>),
    /// What a member's application does.
    Progress(Progress),
    /// Time has passed: due at [`crate::Coordinator::due`].
    Tick,
    /// All deltas up to this number are durable.
    Confirmed(u64),
}

/// What is known of a member's application (amendment "Livelock guard"). A member of which nothing is said is not judged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Progress {
    /// Its group.
    pub group: Arc<str>,
    /// Which.
    pub member: Arc<str>,
    /// It took a record since the last word.
    pub took: bool,
    /// Records wait for it.
    pub waiting: bool,
}

/// A request.
#[derive(Debug, Clone)]
pub enum Request {
    /// Classic: join.
    Join(Box<Join>),
    /// Classic: ask for the assignment, or as the leader bring it.
    Sync(Sync),
    /// Classic: heartbeat.
    Beat(Beat),
    /// Classic: leave, for one or several.
    Leave(Leave),
    /// Heartbeat of the newer protocol (KIP-848), and of gRPC members (serving.md B8).
    Member(Box<MemberBeat>),
    /// Commit offsets.
    Commit(Commit),
    /// Read offsets.
    Fetch(FetchOffsets),
    /// Where a group begins on a topic.
    Begin(Begin),
    /// Remove offsets.
    DeleteOffsets {
        /// Whose.
        group: Arc<str>,
        /// Which.
        partitions: Vec<PartitionId>,
    },
    /// Remove a group without members, with its offsets.
    Delete {
        /// Which.
        group: Arc<str>,
    },
    /// All groups.
    List,
    /// One group.
    Describe {
        /// Which.
        group: Arc<str>,
    },
}

/// Who speaks, for people.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Client {
    /// What it calls itself.
    pub id: Arc<str>,
    /// From where.
    pub host: Arc<str>,
}

/// A protocol of a classic member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Protocol {
    /// Its name, such as `range`.
    pub name: Arc<str>,
    /// What the leader gets, unchanged (case KA-06).
    pub metadata: Bytes,
}

/// JoinGroup.
#[derive(Debug, Clone)]
pub struct Join {
    /// Which group.
    pub group: Arc<str>,
    /// Empty: no id yet.
    pub member: Arc<str>,
    /// Static member (KIP-345).
    pub instance: Option<Arc<str>>,
    /// Who.
    pub client: Client,
    /// Session, ms.
    pub session_ms: u32,
    /// How long it may take to join again, ms.
    pub rebalance_ms: u32,
    /// Such as `consumer`.
    pub protocol_type: Arc<str>,
    /// In order of preference.
    pub protocols: Vec<Protocol>,
    /// It understands MEMBER_ID_REQUIRED (v4).
    pub id_required: bool,
    /// It understands that a leader may have nothing to assign (v9).
    pub skip_assignment: bool,
}

/// SyncGroup.
#[derive(Debug, Clone)]
pub struct Sync {
    /// Which group.
    pub group: Arc<str>,
    /// Who.
    pub member: Arc<str>,
    /// Static member.
    pub instance: Option<Arc<str>>,
    /// Of which generation.
    pub generation: i32,
    /// As it was told (v5).
    pub protocol_type: Option<Arc<str>>,
    /// As it was told (v5).
    pub protocol: Option<Arc<str>>,
    /// From the leader: the bytes for each member.
    pub assignments: Vec<(Arc<str>, Bytes)>,
}

/// Heartbeat.
#[derive(Debug, Clone)]
pub struct Beat {
    /// Which group.
    pub group: Arc<str>,
    /// Who.
    pub member: Arc<str>,
    /// Static member.
    pub instance: Option<Arc<str>>,
    /// Of which generation.
    pub generation: i32,
}

/// LeaveGroup.
#[derive(Debug, Clone)]
pub struct Leave {
    /// Which group.
    pub group: Arc<str>,
    /// Who.
    pub members: Vec<Leaver>,
}

/// One that leaves.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Leaver {
    /// Empty: the one that has the static id.
    pub member: Arc<str>,
    /// Static member.
    pub instance: Option<Arc<str>>,
}

/// ConsumerGroupHeartbeat. `None`: as before.
#[derive(Debug, Clone, Default)]
pub struct MemberBeat {
    /// Which group.
    pub group: Arc<str>,
    /// Empty: no id yet (v0, joining).
    pub member: Arc<str>,
    /// 0 joins, −1 leaves, −2 leaves and keeps its place (static).
    pub epoch: i32,
    /// Static member.
    pub instance: Option<Arc<str>>,
    /// Where it is.
    pub rack: Option<Arc<str>>,
    /// Who.
    pub client: Client,
    /// How long it may take to give partitions up, ms.
    pub rebalance_ms: Option<u32>,
    /// Topic names.
    pub topics: Option<BTreeSet<Arc<str>>>,
    /// A pattern of topic names; empty: none any more.
    pub pattern: Option<Arc<str>>,
    /// The assignor it would like.
    pub assignor: Option<Arc<str>>,
    /// What it has now.
    pub owned: Option<Partitions>,
}

/// OffsetCommit.
#[derive(Debug, Clone)]
pub struct Commit {
    /// Which group.
    pub group: Arc<str>,
    /// Empty: none.
    pub member: Arc<str>,
    /// Static member.
    pub instance: Option<Arc<str>>,
    /// Generation or member epoch; negative: not a member.
    pub epoch: i32,
    /// It can speak of member epochs (v9).
    pub member_epochs: bool,
    /// A member of the newer protocol that is to commit what it has, and nothing else. Kafka's members may commit any partition.
    pub held_only: bool,
    /// What.
    pub offsets: Vec<NewOffset>,
}

/// An offset to be committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NewOffset {
    /// Of which partition.
    pub partition: PartitionId,
    /// The next one to be processed.
    pub offset: Offset,
    /// Of the last processed record; −1: not said.
    pub leader_epoch: i32,
    /// The client's own; empty and none are not the same (D2.13).
    pub metadata: Option<Arc<str>>,
}

/// OffsetFetch.
#[derive(Debug, Clone)]
pub struct FetchOffsets {
    /// Which group.
    pub group: Arc<str>,
    /// Who asks, with its epoch (v9); `None`: nobody of the group.
    pub member: Option<(Arc<str>, i32)>,
    /// `None`: all that are committed.
    pub partitions: Option<Vec<PartitionId>>,
}

/// Where a group begins on a topic of which it has no offsets (serving.md B2.12). It is answered like a read of the offsets that are named:
/// with what is committed from then on.
#[derive(Debug, Clone)]
pub struct Begin {
    /// Which group; of the newer protocol.
    pub group: Arc<str>,
    /// Who says it.
    pub member: Arc<str>,
    /// Which topic.
    pub topic: TopicId,
    /// Of its partitions.
    pub offsets: Vec<(PartitionId, Offset)>,
    /// They came after the group had begun on the topic: counts for those without an offset. Else it counts only where the group has no
    /// offset of the topic at all.
    pub later: bool,
}
