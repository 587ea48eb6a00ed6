//! The window: records that were read and are not processed, as runs of equal ones. What is missing between them is processed, so
//! this is also the set of acked ranges, at 24 bytes a run (about 44 in the tree), and acked ranges cost nothing more.

use std::collections::BTreeMap;

use crate::facts::KeyHash;
use crate::range::OffsetRange;

/// Where the records of a run are (serving.md B3). The first eight are AVAILABLE.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum State {
    /// Being put somewhere else; never seen between two calls.
    Loose,
    /// Of any consumer.
    Shared,
    /// Of the consumer that has their slot.
    Member,
    /// Their slot is blocked.
    Stalled,
    /// So is one of the slots of their stamp.
    StalledStamp,
    /// Of any consumer that holds nothing else (B3.9).
    Suspect,
    /// Slots of their stamp belong to several consumers: hashes of each are needed.
    Hashless,
    /// Not before a time.
    Delayed,
    /// Maybe held by a consumer of the owner before (B3.14).
    Grace,
    /// ACQUIRED.
    Held,
    /// Acked or skipped, not durable yet.
    Acking,
    /// Given back, and its count is not durable yet.
    Returning,
    /// DEAD_LETTERING.
    Dying,
    /// Dead, and it stays.
    Parked,
}

impl State {
    pub(crate) fn is_available(self) -> bool {
        self <= Self::Delayed
    }

    /// Could go out now, if somebody took it.
    pub(crate) fn is_waiting(self) -> bool {
        self >= Self::Shared && self <= Self::Hashless
    }
}

/// No hold.
pub(crate) const NO_HOLD: u32 = u32::MAX;
/// It has a hash.
pub(crate) const KEYED: u8 = 1;
/// It counts as held for its slots.
pub(crate) const COUNTED: u8 = 2;

/// Records in a row of which all is equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) len: u32,
    /// Who has it, or had it last.
    pub(crate) hold: u32,
    /// Deliveries by this owner.
    pub(crate) seen: u16,
    /// Both inclusive; equal, unless all that is known is a stamp.
    pub(crate) hashes: (KeyHash, KeyHash),
    pub(crate) state: State,
    pub(crate) flags: u8,
}

impl Run {
    pub(crate) fn has(&self, flag: u8) -> bool {
        self.flags & flag != 0
    }

    /// Both inclusive; `None`: no key.
    pub(crate) fn slots(&self) -> Option<(usize, usize)> {
        let (first, last) = self.hashes;
        self.has(KEYED)
            .then_some((usize::from(first >> 4), usize::from(last >> 4)))
    }
}

/// The runs of a window, by their first offset.
#[derive(Debug, Default)]
pub(crate) struct Runs {
    runs: BTreeMap<u64, Run>,
    records: u64,
    /// Processed ranges between runs, and behind the last one.
    gaps: usize,
    /// The window ends here.
    next: u64,
}

impl Runs {
    pub(crate) fn new(base: u64) -> Self {
        Self {
            next: base,
            ..Self::default()
        }
    }

    pub(crate) fn get(&self, first: u64) -> Run {
        self.runs[&first]
    }

    pub(crate) fn get_mut(&mut self, first: u64) -> &mut Run {
        self.runs.get_mut(&first).expect("callers name runs")
    }

    /// Everything below is processed.
    pub(crate) fn base(&self) -> u64 {
        self.runs
            .first_key_value()
            .map_or(self.next, |(first, _)| *first)
    }

    /// The window ends here.
    pub(crate) fn next(&self) -> u64 {
        self.next
    }

    pub(crate) fn records(&self) -> u64 {
        self.records
    }

    pub(crate) fn gaps(&self) -> usize {
        self.gaps
    }

    pub(crate) fn len(&self) -> usize {
        self.runs.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (u64, &Run)> {
        self.runs.iter().map(|(first, run)| (*first, run))
    }

    /// The run that holds `offset`.
    pub(crate) fn at(&self, offset: u64) -> Option<(u64, Run)> {
        let (first, run) = self.runs.range(..=offset).next_back()?;
        (first + u64::from(run.len) > offset).then_some((*first, *run))
    }

    /// Firsts of the runs that begin in `range`.
    pub(crate) fn firsts(&self, range: OffsetRange) -> Vec<u64> {
        if range.is_empty() {
            return Vec::new();
        }
        let runs = self.runs.range(range.first.0..range.end.0);
        runs.map(|(first, _)| *first).collect()
    }

    /// Cuts the run that holds `offset` in two, unless it begins there; answers the state of what now begins there.
    pub(crate) fn split(&mut self, offset: u64) -> Option<State> {
        let (first, run) = self.at(offset).filter(|(first, _)| *first < offset)?;
        let left = (offset - first) as u32;
        self.get_mut(first).len = left;
        let rest = Run {
            len: run.len - left,
            ..run
        };
        self.runs.insert(offset, rest);
        Some(run.state)
    }

    /// Adds one at the end of the window or behind it; what lies between is processed.
    pub(crate) fn push(&mut self, first: u64, run: Run) {
        self.advance(first);
        self.records += u64::from(run.len);
        self.next = first + u64::from(run.len);
        self.runs.insert(first, run);
    }

    /// The window ends at `to`, and what it takes in is processed.
    pub(crate) fn advance(&mut self, to: u64) {
        if to <= self.next {
            return;
        }
        if let Some((first, run)) = self.runs.last_key_value()
            && first + u64::from(run.len) == self.next
        {
            self.gaps += 1;
        }
        self.next = to;
    }

    /// Takes a whole run out: it is processed.
    pub(crate) fn remove(&mut self, first: u64) -> Run {
        let run = self.runs.remove(&first).expect("callers name runs");
        let end = first + u64::from(run.len);
        let before = self.runs.range(..first).next_back();
        let before = before.map(|(first, run)| first + u64::from(run.len));
        let behind = self.runs.range(end..).next().map(|(first, _)| *first);
        let was = usize::from(before.is_some_and(|before| before != first))
            + usize::from(behind.unwrap_or(self.next) != end);
        self.gaps = self.gaps - was + usize::from(before.is_some());
        self.records -= u64::from(run.len);
        run
    }

    /// Joins the run at `first` with the one before it, if they are equal.
    pub(crate) fn join_back(&mut self, first: u64) {
        let run = self.get(first);
        let Some((&at, before)) = self.runs.range_mut(..first).next_back() else {
            return;
        };
        let equal = Run {
            len: run.len,
            ..*before
        } == run;
        if equal && at + u64::from(before.len) == first {
            before.len += run.len;
            self.runs.remove(&first);
        }
    }

    /// What is processed from the base up to the end of the window, in order. O(runs).
    pub(crate) fn acked(&self) -> Vec<OffsetRange> {
        let mut acked = Vec::new();
        let mut at = self.base();
        for (first, run) in self.iter() {
            if first > at {
                acked.push(OffsetRange::new(at, first));
            }
            at = first + u64::from(run.len);
        }
        if at < self.next {
            acked.push(OffsetRange::new(at, self.next));
        }
        acked
    }
}

const _: () = assert!(size_of::<Run>() <= 16);
