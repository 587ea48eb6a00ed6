//! What a delta of a staging store says.

use std::collections::BTreeSet;

use hulse_proto::id::{Offset, TopicId};
use hulse_proto::time::TimestampMs;

use super::item::{Decision, Item, ItemId};
use crate::producer::Producer;

/// Changes that become durable together.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Delta(pub Vec<Change>);

/// One change. One of an item that is not there, or does not stand so, changes nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Change {
    /// Who publishes, from now on; sequences begin anew.
    Publisher(Producer),
    /// An item came.
    Added(ItemId, Item),
    /// It is decided.
    Decided {
        /// Which.
        id: ItemId,
        /// How.
        decision: Decision,
        /// When a rolled back one is forgotten.
        forget_at: TimestampMs,
    },
    /// A check was sent.
    Checked {
        /// Which.
        id: ItemId,
        /// How many, with this one.
        checks: u16,
        /// The next one.
        due: TimestampMs,
    },
    /// It is published under this sequence.
    Publishing {
        /// Which.
        id: ItemId,
        /// The target's next one.
        sequence: i32,
    },
    /// It is published, or its copy is where an operator finds it.
    Done {
        /// Which.
        id: ItemId,
        /// When it is forgotten.
        forget_at: TimestampMs,
    },
    /// These topics are gone: what was to go there is discarded.
    TargetsGone(BTreeSet<TopicId>),
    /// Its payload was appended anew.
    Renewed {
        /// Which.
        id: ItemId,
        /// Where.
        place: Offset,
    },
    /// An operator takes a discarded half message up again; it is checked anew.
    Resumed {
        /// Which.
        id: ItemId,
        /// The first check.
        due: TimestampMs,
    },
    /// Nobody asks for it any more.
    Forgotten(ItemId),
}
