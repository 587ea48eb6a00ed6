//! What a read is after, before and after its places are known.

use hulse_proto::id::EntryId;

use super::entries::ColdRun;
use super::runs::Slot;

/// Consecutive entries of a ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// Of files that are not sealed: the places.
    Hot(Vec<Slot>),
    /// Of a sealed file: where its slots say the places.
    Cold(ColdRun),
}

/// Consecutive entries that are held, and how much of them is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Wanted {
    /// The first.
    pub first: EntryId,
    /// Where they are, in order, without gaps.
    pub parts: Vec<Part>,
    /// Enough when the entries reach this many bytes; the first one counts as fitting.
    pub bytes: u64,
    /// What each entry counts when only its head is read.
    pub head_bytes: Option<u32>,
}

impl Wanted {
    /// The file in which this entry is looked for, if it is among them.
    pub fn file_of(&self, entry: EntryId) -> Option<u32> {
        let mut at = self.first.0;
        for part in &self.parts {
            let entries = match part {
                Part::Hot(slots) => slots.len() as u64,
                Part::Cold(run) => u64::from(run.entries),
            };
            let inside = entry.0.checked_sub(at)?;
            if inside < entries {
                return Some(match part {
                    Part::Hot(slots) => slots[inside as usize].location.file,
                    Part::Cold(run) => run.file,
                });
            }
            at += entries;
        }
        None
    }
}

/// An entry of a ledger and where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Located {
    /// Its number.
    pub entry: EntryId,
    /// Where, and what it must be.
    pub slot: Slot,
}
