//! What a task wants, and what it hears.

use std::collections::BTreeMap;

use bytes::Bytes;
use hulse_proto::time::TimestampMs;

use crate::id::InputPartition;
use crate::record::{Fetched, OutputRecord};

/// One thing to be done. While it is under way the task wants nothing else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Take the transactional id: ends the predecessor's transaction and its right to make others (InitProducerId). Answered by
    /// [`Event::Fenced`].
    Fence,
    /// Read the group's offsets of these partitions, with none pending (OffsetFetch with require_stable). Answered by
    /// [`Event::Offsets`].
    ReadOffsets(Vec<InputPartition>),
    /// Read the changelog, read_committed, from here; none: from its start. Answered by [`Event::Page`].
    ReadChangelog {
        /// First offset.
        from: Option<u64>,
    },
    /// Read a snapshot. Answered by [`Event::Snapshot`].
    ReadSnapshot {
        /// Name of the object.
        path: String,
    },
    /// Read records, read_committed. Answered by [`Event::Fetched`].
    Fetch {
        /// Where to go on in each partition.
        from: BTreeMap<InputPartition, u64>,
        /// Records at most.
        rows_max: usize,
        /// Bytes at most, but one record at least.
        bytes_max: usize,
    },
    /// Begin a transaction. Answered by [`Event::Done`].
    Begin,
    /// Write these in the transaction. Answered by [`Event::Done`].
    Produce(Vec<OutputRecord>),
    /// Append these to the changelog in the transaction. Answered by [`Event::Appended`].
    Append(Vec<Bytes>),
    /// Commit these offsets in the transaction (TxnOffsetCommit). Answered by [`Event::Done`].
    CommitOffsets(BTreeMap<InputPartition, u64>),
    /// End the transaction (EndTxn). Answered by [`Event::Done`].
    Commit,
}

/// The right to write under a transactional id. Ordered: who came later is greater.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Producer {
    /// Producer id.
    pub id: i64,
    /// Its epoch.
    pub epoch: i16,
}

/// Some of a changelog.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Page {
    /// With their offsets.
    pub records: Vec<(u64, Bytes)>,
    /// Where to go on.
    pub next: u64,
    /// Nothing committed stood behind it when it was read.
    pub is_last: bool,
}

/// Why something was not done, or may not have been.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// A newer producer holds the transactional id. Final.
    Fenced,
    /// No answer, or a retriable error: it is unknown whether it was done.
    Unknown,
}

/// What came of an effect.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Done, durably.
    Done,
    /// The transactional id is ours.
    Fenced(Producer),
    /// The group's offsets; partitions without one are left out.
    Offsets(BTreeMap<InputPartition, u64>),
    /// Some of the changelog.
    Page(Page),
    /// A snapshot; none if there is no such object.
    Snapshot(Option<Bytes>),
    /// What was read, and what the time is.
    Fetched {
        /// At most one entry per partition.
        fetched: Vec<Fetched>,
        /// What the epoch will call now.
        now: TimestampMs,
    },
    /// The changelog has them; this is the offset of the last.
    Appended {
        /// Of the last record.
        last: u64,
    },
    /// Not done, or unknown.
    Failed(Trouble),
}
