//! What is remembered of records that came back: how often they failed, why, and until when they wait (serving.md B1, B3.8, B3.10).

use std::collections::BTreeMap;

use hulse_proto::time::TimestampMs;

use crate::range::OffsetRange;

/// Why a record came back last. A closed set, so that it is one byte in a delta.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Why {
    /// It did not fail.
    #[default]
    None,
    /// The consumer said so.
    Rejected,
    /// Its lock ended without an answer.
    LockExpired,
    /// The consumer's connection broke.
    Crashed,
}

/// How far a record is on its way into the dead-letter topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Letter {
    /// Not at all.
    #[default]
    None,
    /// The consumer asked for it, whatever the number of attempts.
    Wanted,
    /// Its copy has this sequence; a copy that is sent again, also by the next owner, has the same (B3.11).
    Numbered(u64),
}

/// What is durable of a record besides whether it is acked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Mark {
    /// Attempts that failed.
    pub failed: u16,
    /// The last reason.
    pub why: Why,
    /// Dead letter.
    pub letter: Letter,
    /// Not delivered before, by the owner's clock; 0: at once.
    pub retry_at: TimestampMs,
}

impl Mark {
    /// Says nothing, so it is not kept.
    pub fn is_empty(&self) -> bool {
        *self == Self::default()
    }
}

/// Marks by range: equal neighbours are one, empty ones are none, so that equal contents are equal values.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Marks(BTreeMap<u64, (u64, Mark)>);

impl Marks {
    /// Replaces the marks of a range. O(log n + ranges touched).
    pub fn set(&mut self, range: OffsetRange, mark: Mark) {
        if range.is_empty() {
            return;
        }
        self.clear(range);
        if mark.is_empty() {
            return;
        }
        let (mut first, mut end) = (range.first.0, range.end.0);
        if let Some((&at, &(until, before))) = self.0.range(..first).next_back()
            && until == first
            && before == mark
        {
            self.0.remove(&at);
            first = at;
        }
        if let Some(&(until, behind)) = self.0.get(&end)
            && behind == mark
        {
            self.0.remove(&end);
            end = until;
        }
        self.0.insert(first, (end, mark));
    }

    /// Forgets the marks of a range.
    pub fn clear(&mut self, range: OffsetRange) {
        if range.is_empty() {
            return;
        }
        let (first, end) = (range.first.0, range.end.0);
        while let Some((&at, &(until, mark))) = self.0.range(..end).next_back() {
            if until <= first {
                break;
            }
            self.0.remove(&at);
            if at < first {
                self.0.insert(at, (first, mark));
            }
            if until > end {
                self.0.insert(end, (until, mark));
            }
        }
    }

    /// Of one record.
    pub fn get(&self, offset: u64) -> Mark {
        match self.0.range(..=offset).next_back() {
            Some((_, (end, mark))) if *end > offset => *mark,
            _ => Mark::default(),
        }
    }

    /// The whole of `range` in pieces of equal marks, in order; what has none has the empty one.
    pub fn pieces(&self, range: OffsetRange) -> Vec<(OffsetRange, Mark)> {
        if self.0.is_empty() && !range.is_empty() {
            return vec![(range, Mark::default())];
        }
        let mut pieces = Vec::new();
        let (mut at, end) = (range.first.0, range.end.0);
        while at < end {
            let here = self.0.range(..=at).next_back();
            let here = here.filter(|(_, (until, _))| *until > at);
            let (until, mark) = match here {
                Some((_, (until, mark))) => (*until, *mark),
                None => {
                    let next = self.0.range(at..).next();
                    (next.map_or(end, |(first, _)| *first), Mark::default())
                }
            };
            let until = until.min(end);
            pieces.push((OffsetRange::new(at, until), mark));
            at = until;
        }
        pieces
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = (OffsetRange, Mark)> + '_ {
        self.0
            .iter()
            .map(|(first, (end, mark))| (OffsetRange::new(*first, *end), *mark))
    }

    /// How many ranges.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// None.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}
