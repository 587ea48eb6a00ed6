//! What a consumer hands out and tells.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::{Deref, Range};

use super::core::{ConsumerNote, Place};
use crate::reader::ReadRecord;

/// A record of a subscription. It reads as a [`ReadRecord`]; its place makes it acknowledgeable.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceivedRecord {
    /// The record.
    pub record: ReadRecord,
    /// This consumer handed it out before: the application may have done its work already.
    pub redelivery: bool,
    pub(super) place: Place,
}

impl Deref for ReceivedRecord {
    type Target = ReadRecord;

    fn deref(&self) -> &ReadRecord {
        &self.record
    }
}

/// What `next` hands out: records, and what there is to be told between them.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Consumed {
    /// A record.
    Record(ReceivedRecord),
    /// Something else, in its place among the records.
    Note(ConsumerNote),
}

/// What a closed consumer leaves: records that were handed out and of which no receipt says that they are acknowledged. They will be
/// delivered again.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[must_use = "these records will be delivered again"]
pub struct Unacknowledged {
    /// By partition: ranges of offsets, in order, ends exclusive.
    pub offsets: BTreeMap<u32, Vec<Range<u64>>>,
}

impl Unacknowledged {
    /// Everything was acknowledged.
    pub fn is_empty(&self) -> bool {
        self.offsets.is_empty()
    }

    /// How many offsets.
    pub fn len(&self) -> u64 {
        let ranges = self.offsets.values().flatten();
        ranges.map(|range| range.end - range.start).sum()
    }
}

impl fmt::Display for Unacknowledged {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing");
        }
        for (index, (partition, ranges)) in self.offsets.iter().enumerate() {
            let separator = if index == 0 { "" } else { "; " };
            write!(f, "{separator}partition {partition}:")?;
            for range in ranges {
                match range.end - range.start {
                    1 => write!(f, " {}", range.start)?,
                    _ => write!(f, " {} to {}", range.start, range.end - 1)?,
                }
            }
        }
        Ok(())
    }
}

/// What a consumer has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsumerStats {
    /// Records handed out.
    pub records: u64,
    /// Of these, records that had been handed out before.
    pub redeliveries: u64,
    /// Offsets that were named as skipped because they were lost or trimmed.
    pub offsets_gone: u64,
    /// Handed out and not acknowledged now.
    pub unacked_records: u64,
    /// Bytes of batches that wait to be handed out now.
    pub waiting_bytes: u64,
    /// Times that a partition was attached: the first one of each, and each one after a break.
    pub attachments: u64,
}
