//! Acknowledgements of one partition on their way to a receipt.
//!
//! What is asked for while others are under way is collected into one ack, so their number follows the broker's speed and not the
//! application's. An ack is sent only for offsets that this attachment has delivered, or that the broker takes on the strength of the
//! attachment before (`acks_to`): after a break it is sent again, and so one that was handed over right before a cut is neither forgotten
//! nor believed (case SU-07). Records that come again meanwhile are recognised here ([`AckBook::pends`]) and not handed out.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use hulse_proto::wire::v1;

use super::fate::{AckFate, Acknowledgement};
use super::ranges::RangeSet;
use crate::error::Error;

/// Acks of one partition that are under way at once, where the broker allows as many.
const UNDER_WAY_MAX: usize = 4;
/// Ranges of one ack, where the broker allows as many.
const RANGES_MAX: usize = 1000;

/// What a broker allows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::consumer) struct AckLimits {
    pub(in crate::consumer) under_way: usize,
    pub(in crate::consumer) ranges: usize,
}

impl AckLimits {
    /// Of a broker's words; 0: it does not say.
    pub(in crate::consumer) fn of(welcome: &v1::ConsumeWelcome) -> Self {
        let at_most = |found: u32, own: usize| match found as usize {
            0 => own,
            found => found.min(own),
        };
        Self {
            under_way: at_most(welcome.acks_waiting_max, UNDER_WAY_MAX),
            ranges: at_most(welcome.ack_ranges_max, RANGES_MAX),
        }
    }
}

#[derive(Debug)]
enum What {
    Ranges(RangeSet),
    /// Everything below `end`, for the sake of these records.
    Below {
        end: u64,
        records: RangeSet,
    },
}

#[derive(Debug)]
struct Batch {
    what: What,
    fate: Arc<AckFate>,
    /// Its number and ranges, while it is under way.
    sent: Option<(u64, Vec<Range<u64>>)>,
}

/// The book of one partition.
#[derive(Debug, Default)]
pub(in crate::consumer) struct AckBook {
    batches: VecDeque<Batch>,
    next_id: u64,
    /// Everything below was asked for in this attachment.
    sent_below: u64,
}

/// One ack to be sent.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::consumer) struct Ack {
    pub(in crate::consumer) id: u64,
    pub(in crate::consumer) ranges: Vec<Range<u64>>,
    pub(in crate::consumer) cumulative: bool,
}

/// How the ranges of a receipt were judged.
#[derive(Debug, Default)]
pub(in crate::consumer) struct Judged {
    /// To be sent again after a wait.
    pub(in crate::consumer) retry: bool,
    /// Durable now.
    pub(in crate::consumer) taken: Vec<Range<u64>>,
    /// Records that were refused for good.
    pub(in crate::consumer) refused: RangeSet,
}

impl AckBook {
    /// Asks for offsets.
    pub(in crate::consumer) fn add_range(&mut self, range: Range<u64>) -> Acknowledgement {
        if let Some(Batch {
            what: What::Ranges(ranges),
            fate,
            sent: None,
        }) = self.batches.back_mut()
            && ranges.count() < RANGES_MAX
        {
            ranges.insert(range.clone());
            return fate.of(range);
        }
        let mut ranges = RangeSet::default();
        ranges.insert(range.clone());
        self.begin(What::Ranges(ranges), range)
    }

    /// Asks for several ranges that have one fate.
    pub(in crate::consumer) fn add_unit(
        &mut self,
        ranges: RangeSet,
        whole: Range<u64>,
    ) -> Acknowledgement {
        self.begin(What::Ranges(ranges), whole)
    }

    /// The records that wait for their receipt.
    pub(in crate::consumer) fn records(&self) -> RangeSet {
        let mut records = RangeSet::default();
        for batch in &self.batches {
            let (What::Ranges(found) | What::Below { records: found, .. }) = &batch.what;
            found.iter().for_each(|range| records.insert(range));
        }
        records
    }

    /// Asks for everything below `end`, which is for the sake of `records`.
    pub(in crate::consumer) fn add_below(
        &mut self,
        end: u64,
        records: RangeSet,
    ) -> Acknowledgement {
        let own = end.saturating_sub(1)..end;
        if let Some(Batch {
            what:
                What::Below {
                    end: below,
                    records: before,
                },
            fate,
            sent: None,
        }) = self.batches.back_mut()
        {
            *below = end.max(*below);
            records.iter().for_each(|range| before.insert(range));
            return fate.of(own);
        }
        self.begin(What::Below { end, records }, own)
    }

    fn begin(&mut self, what: What, own: Range<u64>) -> Acknowledgement {
        let fate = AckFate::new();
        let acknowledgement = fate.of(own);
        self.batches.push_back(Batch {
            what,
            fate,
            sent: None,
        });
        acknowledgement
    }

    /// The acknowledgement of an offset that was asked for before, if it is still under way.
    pub(in crate::consumer) fn find(&self, offset: u64) -> Option<Acknowledgement> {
        let mut batches = self.batches.iter().rev();
        let batch = batches.find(|batch| batch.what.contains(offset))?;
        Some(batch.fate.of(offset..offset + 1))
    }

    /// True while the offset waits for its receipt.
    pub(in crate::consumer) fn pends(&self, offset: u64) -> bool {
        let mut batches = self.batches.iter();
        batches.any(|batch| batch.what.contains(offset))
    }

    /// Takes out what waits for its receipt.
    pub(in crate::consumer) fn strip(&self, offsets: &mut RangeSet) {
        for batch in &self.batches {
            match &batch.what {
                What::Below { end, .. } => offsets.remove_below(*end),
                What::Ranges(ranges) => ranges.iter().for_each(|range| offsets.remove(range)),
            }
        }
    }

    /// Behind the last record that waits for its receipt; 0: none does.
    pub(in crate::consumer) fn end(&self) -> u64 {
        let ends = self.batches.iter().map(|batch| match &batch.what {
            What::Ranges(ranges) => ranges.end(),
            What::Below { end, .. } => *end,
        });
        ends.max().unwrap_or(0)
    }

    /// Nothing waits.
    pub(in crate::consumer) fn is_idle(&self) -> bool {
        self.batches.is_empty()
    }

    /// What can be sent now: everything below `covered` was delivered.
    pub(in crate::consumer) fn send(&mut self, covered: u64, limits: AckLimits) -> Vec<Ack> {
        let mut acks = Vec::new();
        let mut under_way = self.batches.iter().filter(|b| b.sent.is_some()).count();
        let mut at = 0;
        while at < self.batches.len() && under_way < limits.under_way {
            let batch = &mut self.batches[at];
            if batch.sent.is_none() {
                let cut_below = (covered > self.sent_below).then_some(covered);
                if let Some(rest) = batch.split(covered, cut_below, limits.ranges) {
                    self.batches.insert(at + 1, rest);
                }
                let batch = &mut self.batches[at];
                let ranges = batch.what.ranges();
                if ranges.last().is_some_and(|last| last.end <= covered) {
                    let id = self.next_id;
                    self.next_id += 1;
                    let cumulative = matches!(batch.what, What::Below { .. });
                    if cumulative {
                        self.sent_below = self.sent_below.max(ranges[0].end);
                    }
                    batch.sent = Some((id, ranges.clone()));
                    acks.push(Ack {
                        id,
                        ranges,
                        cumulative,
                    });
                    under_way += 1;
                }
            }
            at += 1;
        }
        acks
    }

    /// Takes a receipt. `None`: it answers nothing.
    pub(in crate::consumer) fn receipt(
        &mut self,
        receipt: &v1::AckReceipt,
        error: impl Fn(v1::AckStatus) -> Error,
    ) -> Option<Judged> {
        let mine = |batch: &Batch| {
            batch
                .sent
                .as_ref()
                .is_some_and(|(id, _)| *id == receipt.ack_id)
        };
        let Some(at) = self.batches.iter().position(mine) else {
            // It became void while it was under way.
            return (receipt.ack_id < self.next_id).then(Judged::default);
        };
        let (_, ranges) = self.batches[at].sent.take()?;
        if receipt.statuses.len() != ranges.len() {
            return None;
        }
        let mut judged = Judged::default();
        let batch = &mut self.batches[at];
        for (range, status) in ranges.into_iter().zip(&receipt.statuses) {
            let status = v1::AckStatus::try_from(*status).unwrap_or_default();
            match status {
                v1::AckStatus::Ok => {
                    batch.what.remove(&range);
                    judged.taken.push(range);
                }
                v1::AckStatus::Retry | v1::AckStatus::Unknown => judged.retry = true,
                refused => {
                    batch.what.records_in(&range, &mut judged.refused);
                    batch.what.remove(&range);
                    batch.fate.refuse(range, error(refused));
                }
            }
        }
        self.drop_done();
        Some(judged)
    }

    /// The link broke: nothing is under way any more.
    pub(in crate::consumer) fn link_lost(&mut self) {
        self.batches.iter_mut().for_each(|batch| batch.sent = None);
        self.sent_below = 0;
    }

    /// The broker says what is processed: everything below `base`, and `acked`.
    pub(in crate::consumer) fn processed(&mut self, base: u64, acked: &[v1::OffsetRange]) {
        for batch in self.batches.iter_mut().filter(|batch| batch.sent.is_none()) {
            batch.what.remove(&(0..base));
            for range in acked {
                if matches!(batch.what, What::Ranges(_)) {
                    batch.what.remove(&(range.first..range.end));
                }
            }
        }
        self.drop_done();
    }

    /// Refuses everything that waits.
    pub(in crate::consumer) fn refuse_all(&mut self, error: &Error) {
        for batch in std::mem::take(&mut self.batches) {
            let possibly = batch.sent.is_some() || error.possibly_written();
            let error = error.clone().with_possibly_written(possibly);
            batch.fate.refuse(0..u64::MAX, error);
            batch.fate.answer();
        }
    }

    /// Refuses what is not under way.
    pub(in crate::consumer) fn refuse_unsent(&mut self, error: &Error) {
        let unsent = |batch: &Batch| batch.sent.is_none();
        for batch in self.batches.iter().filter(|batch| unsent(batch)) {
            batch.fate.refuse(0..u64::MAX, error.clone());
            batch.fate.answer();
        }
        self.batches.retain(|batch| !unsent(batch));
    }

    fn drop_done(&mut self) {
        self.batches.retain(|batch| {
            let done = batch.what.is_empty();
            if done {
                batch.fate.answer();
            }
            !done
        });
    }
}

impl Batch {
    /// Cuts off what cannot go with the next ack: what was not delivered yet, and what is too much for one.
    fn split(&mut self, covered: u64, below: Option<u64>, ranges_max: usize) -> Option<Self> {
        let what = match &mut self.what {
            What::Below { end, records } => {
                let below = below.filter(|below| below < end)?;
                let sendable = records.split_below(below);
                What::Below {
                    end: std::mem::replace(end, below),
                    records: std::mem::replace(records, sendable),
                }
            }
            What::Ranges(ranges) => {
                let cut = ranges
                    .iter()
                    .nth(ranges_max)
                    .map_or(covered, |range| covered.min(range.start));
                if ranges.end() <= cut {
                    return None;
                }
                let sendable = ranges.split_below(cut);
                if sendable.is_empty() {
                    return None;
                }
                What::Ranges(std::mem::replace(ranges, sendable))
            }
        };
        self.fate.split();
        Some(Self {
            what,
            fate: Arc::clone(&self.fate),
            sent: None,
        })
    }
}

impl What {
    fn contains(&self, offset: u64) -> bool {
        match self {
            Self::Ranges(ranges) => ranges.contains(offset),
            Self::Below { end, .. } => offset < *end,
        }
    }

    fn ranges(&self) -> Vec<Range<u64>> {
        match self {
            Self::Ranges(ranges) => ranges.iter().collect(),
            Self::Below { end, .. } => std::iter::once(0..*end).collect(),
        }
    }

    /// Adds what of it lies in `range`.
    fn records_in(&self, range: &Range<u64>, found: &mut RangeSet) {
        let (Self::Ranges(records) | Self::Below { records, .. }) = self;
        for record in records.iter() {
            found.insert(record.start.max(range.start)..record.end.min(range.end));
        }
    }

    /// These are processed.
    fn remove(&mut self, range: &Range<u64>) {
        match self {
            Self::Ranges(ranges) => ranges.remove(range.clone()),
            Self::Below { end, records } => {
                records.remove(range.clone());
                if range.start == 0 && *end <= range.end {
                    *end = 0;
                }
            }
        }
    }

    fn is_empty(&self) -> bool {
        match self {
            Self::Ranges(ranges) => ranges.is_empty(),
            Self::Below { end, .. } => *end == 0,
        }
    }
}
