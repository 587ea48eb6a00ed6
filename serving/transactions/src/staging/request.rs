//! What a staging store is asked and told, and what it wants done.

use std::collections::BTreeSet;
use std::sync::Arc;

use hulse_proto::id::{Offset, PartitionId, TopicId};
use hulse_proto::time::TimestampMs;

use super::change::Delta;
use super::item::{Decision, Item, ItemId};
use crate::error::TxnError;
use crate::producer::Producer;

/// Names a request; the caller's choice, one of its own for each.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// What happens to a store.
#[derive(Debug, Clone)]
pub enum Input {
    /// A request. It is answered exactly once.
    Request(RequestId, Request),
    /// Sessions of a group of producers are there, or none is.
    Sessions {
        /// Which.
        group: Arc<str>,
        /// Some.
        online: bool,
    },
    /// A check was sent, or could not be.
    Checked {
        /// Which item.
        id: ItemId,
        /// It was sent.
        sent: bool,
    },
    /// The target answered, or did not.
    Published(ItemId, PublishOutcome),
    /// The copy of a discarded item is durable, or is not.
    Copied {
        /// Which.
        id: ItemId,
        /// It is.
        durable: bool,
    },
    /// The identity of the publisher: nobody else ever has it.
    Publisher(Producer),
    /// These topics are deleted.
    TargetsGone(BTreeSet<TopicId>),
    /// The log below could go, if nothing stood there.
    MakeRoom {
        /// Below.
        below: Offset,
    },
    /// A payload was appended anew, or could not be.
    Renewed {
        /// Whose.
        id: ItemId,
        /// Where; `None`: nowhere.
        place: Option<Offset>,
    },
    /// All deltas up to this number are durable.
    Confirmed(u64),
    /// Time has passed: due at [`super::Staging::due`].
    Tick,
}

/// What became of an item at its target.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishOutcome {
    /// It is durable there, now or since before.
    Published,
    /// The target's topic is deleted, by its identity.
    TargetGone,
    /// Nobody knows, or not now: it is sent again, under the same sequence.
    Unknown,
}

/// A request. Payloads are durable in the store's log before they are spoken of.
#[derive(Debug, Clone)]
pub enum Request {
    /// A half message.
    Prepare {
        /// Its id.
        id: ItemId,
        /// Where it is to go.
        target: PartitionId,
        /// Whose sessions are asked.
        group: Arc<str>,
        /// The first check, ms from now.
        check_after_ms: u32,
        /// It is discarded when so many checks had no answer.
        checks_max: u16,
    },
    /// A message for later.
    Schedule {
        /// Its id.
        id: ItemId,
        /// Where it is to go.
        target: PartitionId,
        /// When.
        due: TimestampMs,
    },
    /// A half message is decided; a scheduled one is recalled by a rollback.
    Resolve {
        /// Which.
        id: ItemId,
        /// Else rollback.
        commit: bool,
    },
    /// A discarded half message is checked anew.
    Resume {
        /// Which.
        id: ItemId,
    },
    /// One of them.
    Describe {
        /// Which.
        id: ItemId,
    },
}

/// The answer to a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Answer {
    /// It is kept, durably.
    Kept(Result<ItemId, TxnError>),
    /// It is decided so, durably.
    Resolved(Result<(), TxnError>),
    /// It is taken up again, durably.
    Resumed(Result<(), TxnError>),
    /// One of them.
    Described(Result<Box<Item>, TxnError>),
}

/// What a store wants done.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Append this to the state chain. Numbers are dense and in order. When it fails, this store ends: the next one replays.
    Append {
        /// From 1 after what was replayed.
        number: u64,
        /// What.
        delta: Delta,
    },
    /// The answer to a request. Everything that it rests on is durable.
    Answer(RequestId, Answer),
    /// Ask a live session of the group, whichever, what became of it; say whether the question was sent.
    Check {
        /// Which.
        id: ItemId,
        /// Whom.
        group: Arc<str>,
        /// Where the payload stands.
        place: Offset,
        /// Which check, from 1.
        attempt: u16,
    },
    /// Append the payload to the target, as one batch of this producer with this sequence; say what became of it. Those of one target
    /// in order.
    Publish {
        /// Which.
        id: ItemId,
        /// Where.
        target: PartitionId,
        /// Where the payload stands.
        place: Offset,
        /// As whom.
        publisher: Producer,
        /// As which.
        sequence: i32,
    },
    /// Copy it to where an operator finds it, and say so. Copies may come twice.
    Discard {
        /// Which.
        id: ItemId,
        /// Where the payload stands.
        place: Offset,
        /// What was decided.
        decision: Decision,
    },
    /// Append the payload to the log anew, and say where.
    Renew {
        /// Which.
        id: ItemId,
        /// Where it stands.
        place: Offset,
    },
    /// Fetch an identity for the publisher.
    WantPublisher,
}
