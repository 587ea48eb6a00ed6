//! What a member of a group hands out and tells.

use std::fmt;
use std::ops::{Deref, Range};
use std::sync::Arc;
use std::time::Duration;

use hulse_proto::id::PartitionId;

use crate::consumer::SkipReason;
use crate::error::Error;
use crate::reader::ReadRecord;

/// A record of one of the member's partitions. It reads as a [`ReadRecord`]; cheap to clone.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamRecord {
    /// Full name of its topic.
    pub topic: Arc<str>,
    /// The record.
    pub record: ReadRecord,
    pub(super) at: PartitionId,
    /// Which time the partition was this member's.
    pub(super) number: u64,
}

impl Deref for StreamRecord {
    type Target = ReadRecord;

    fn deref(&self) -> &ReadRecord {
        &self.record
    }
}

/// A partition, as people name it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct StreamPartition {
    /// Full name of the topic.
    pub topic: Arc<str>,
    /// Its index.
    pub index: u32,
}

impl fmt::Display for StreamPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.topic, self.index)
    }
}

/// What a member hands out.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum StreamItem {
    /// A record.
    Record(StreamRecord),
    /// Something else, in its place among the records.
    Note(StreamNote),
}

/// What there is to be told between the records.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub enum StreamNote {
    /// These partitions are this member's from now on, each from where the group is.
    Assigned(Vec<StreamPartition>),
    /// These partitions go to other members: nothing more of them is handed out. Commit what was processed of them; they are given back
    /// with the next call for records.
    Revoked(Vec<StreamPartition>),
    /// These partitions are others' already: the member was fenced. What was handed out of them and is not committed is handed out by
    /// others, too.
    Lost {
        /// Which.
        partitions: Vec<StreamPartition>,
        /// Why.
        why: Error,
    },
    /// Offsets that are not handed out, with the reason.
    Skipped {
        /// Of which partition.
        partition: StreamPartition,
        /// Which; the end is exclusive.
        offsets: Range<u64>,
        /// Why.
        why: SkipReason,
    },
    /// The application took no record for long though some wait: unless it does, the member loses its partitions after `grace`.
    Idle {
        /// How long it keeps them.
        grace: Duration,
    },
    /// A partition cannot be read; it is tried further where the error may pass by.
    Unreadable {
        /// Which.
        partition: StreamPartition,
        /// Why.
        why: Error,
    },
}

/// What a member has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct StreamStats {
    /// Records handed out.
    pub records: u64,
    /// Offsets that were named as skipped because they were lost or trimmed.
    pub offsets_gone: u64,
    /// Times that the member joined its group: once, and once more after each time it was fenced.
    pub joins: u64,
    /// Partitions that it has.
    pub partitions: u64,
}
