//! A partition as its owner judges it: serving.md C2, checks 3 to 6. No I/O.

use std::collections::{BTreeMap, VecDeque};

use hulse_proto::batch::ProducerStamp;
use hulse_proto::error::Reason;

/// Batches of a producer that are recognised when they come again.
const KEPT: usize = 5;

#[derive(Debug, Default)]
pub(crate) struct Partition {
    producers: BTreeMap<i64, Known>,
    next_offset: u64,
}

#[derive(Debug)]
struct Known {
    epoch: i16,
    kept: VecDeque<Kept>,
}

#[derive(Debug, Clone, Copy)]
struct Kept {
    first: i32,
    last: i32,
    base_offset: u64,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Stored(u64),
    Duplicate(u64),
    Refused(Reason),
}

impl Partition {
    pub(crate) fn next_offset(&self) -> u64 {
        self.next_offset
    }

    /// Last epoch and last sequence of a producer; −1 when nothing is known.
    pub(crate) fn last(&self, producer: i64) -> (i32, i32) {
        let known = self.producers.get(&producer);
        known.map_or((-1, -1), |known| {
            let last = known.kept.back().map_or(-1, |kept| kept.last);
            (known.epoch.into(), last)
        })
    }

    /// The state of every producer expires.
    pub(crate) fn forget_producers(&mut self) {
        self.producers.clear();
    }

    /// Judges a batch and stores it when it is right.
    pub(crate) fn take(&mut self, stamp: Option<ProducerStamp>, records: u32) -> Verdict {
        let base_offset = self.next_offset;
        if let Some(stamp) = stamp {
            if let Some(verdict) = self.check(stamp, records) {
                return verdict;
            }
            self.keep(stamp, records, base_offset);
        }
        self.next_offset += u64::from(records);
        Verdict::Stored(base_offset)
    }

    fn check(&self, stamp: ProducerStamp, records: u32) -> Option<Verdict> {
        let known = self.producers.get(&stamp.id.0)?;
        if stamp.epoch < known.epoch {
            return Some(Verdict::Refused(Reason::FencedEpoch));
        }
        if stamp.epoch > known.epoch {
            let wrong = stamp.base_sequence != 0;
            return wrong.then_some(Verdict::Refused(Reason::OutOfOrderSequence));
        }
        let (first, last) = (stamp.base_sequence, last_of(stamp.base_sequence, records));
        let mut kept = known.kept.iter();
        if let Some(same) = kept.find(|kept| (kept.first, kept.last) == (first, last)) {
            return Some(Verdict::Duplicate(same.base_offset));
        }
        let newest = known.kept.back()?.last;
        if first == newest.wrapping_add(1) & i32::MAX {
            return None;
        }
        Some(Verdict::Refused(if first <= newest && last > newest {
            Reason::SequenceOverlap
        } else {
            Reason::OutOfOrderSequence
        }))
    }

    fn keep(&mut self, stamp: ProducerStamp, records: u32, base_offset: u64) {
        let known = self.producers.entry(stamp.id.0).or_insert(Known {
            epoch: stamp.epoch,
            kept: VecDeque::new(),
        });
        if known.epoch != stamp.epoch {
            known.epoch = stamp.epoch;
            known.kept.clear();
        }
        if known.kept.len() == KEPT {
            known.kept.pop_front();
        }
        known.kept.push_back(Kept {
            first: stamp.base_sequence,
            last: last_of(stamp.base_sequence, records),
            base_offset,
        });
    }
}

fn last_of(first: i32, records: u32) -> i32 {
    ((i64::from(first) + i64::from(records) - 1) & i64::from(i32::MAX)) as i32
}
