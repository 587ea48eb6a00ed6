//! Offsets from … to …, and sets of them as disjoint ranges.

use std::collections::BTreeMap;

use hulse_proto::id::Offset;

/// Offsets from `first` up to, and without, `end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OffsetRange {
    /// The first.
    pub first: Offset,
    /// Exclusive.
    pub end: Offset,
}

impl OffsetRange {
    /// From raw numbers.
    pub fn new(first: u64, end: u64) -> Self {
        Self {
            first: Offset(first),
            end: Offset(end),
        }
    }

    /// How many offsets; 0 for one that is upside down.
    pub fn len(&self) -> u64 {
        self.end.0.saturating_sub(self.first.0)
    }

    /// Holds none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What lies in both.
    #[must_use]
    pub fn within(&self, other: Self) -> Self {
        Self {
            first: self.first.max(other.first),
            end: self.end.min(other.end),
        }
    }

    /// Holds this offset.
    pub fn contains(&self, offset: Offset) -> bool {
        self.first <= offset && offset < self.end
    }
}

/// Disjoint ranges that do not touch, in order, and how many offsets they hold.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OffsetRanges {
    /// End by first.
    ranges: BTreeMap<u64, u64>,
    offsets: u64,
}

impl OffsetRanges {
    /// Adds a range; answers how many of its offsets are new. O(log n + ranges swallowed).
    pub fn insert(&mut self, range: OffsetRange) -> u64 {
        if range.is_empty() {
            return 0;
        }
        let (mut first, mut end) = (range.first.0, range.end.0);
        let mut swallowed = 0;
        // Every range that overlaps or touches, from the last one backwards.
        while let Some((&at, &until)) = self.ranges.range(..=end).next_back() {
            if until < first {
                break;
            }
            self.ranges.remove(&at);
            swallowed += until - at;
            (first, end) = (first.min(at), end.max(until));
        }
        self.ranges.insert(first, end);
        let new = end - first - swallowed;
        self.offsets += new;
        new
    }

    /// Drops every offset of `range`.
    pub fn remove(&mut self, range: OffsetRange) {
        let (first, end) = (range.first.0, range.end.0);
        if range.is_empty() {
            return;
        }
        while let Some((&at, &until)) = self.ranges.range(..end).next_back() {
            if until <= first {
                break;
            }
            self.ranges.remove(&at);
            if at < first {
                self.ranges.insert(at, first);
            }
            if until > end {
                self.ranges.insert(end, until);
            }
            self.offsets -= until.min(end) - at.max(first);
        }
    }

    /// Drops every offset below `to`; answers how many there were.
    pub fn remove_below(&mut self, to: Offset) -> u64 {
        let mut gone = 0;
        while let Some((&first, &end)) = self.ranges.first_key_value() {
            if first >= to.0 {
                break;
            }
            self.ranges.remove(&first);
            gone += end.min(to.0) - first;
            if end > to.0 {
                self.ranges.insert(to.0, end);
            }
        }
        self.offsets -= gone;
        gone
    }

    /// Takes the first range out if it begins at or below `at`; answers its end.
    pub fn take_first_at(&mut self, at: Offset) -> Option<Offset> {
        let (&first, &end) = self.ranges.first_key_value()?;
        if first > at.0 {
            return None;
        }
        self.ranges.remove(&first);
        self.offsets -= end - first;
        Some(Offset(end))
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = OffsetRange> + '_ {
        self.ranges.iter().map(|(first, end)| OffsetRange {
            first: Offset(*first),
            end: Offset(*end),
        })
    }

    /// What lies in `within`, cut to it, in order.
    pub fn within(&self, within: OffsetRange) -> impl Iterator<Item = OffsetRange> + '_ {
        let before = self.ranges.range(..within.first.0).next_back();
        let from = match before {
            Some((&first, &end)) if end > within.first.0 => first,
            _ => within.first.0,
        };
        // A range that is upside down holds nothing.
        let until = within.end.0.max(from);
        self.ranges
            .range(from..until)
            .map(move |(first, end)| OffsetRange {
                first: Offset((*first).max(within.first.0)),
                end: Offset((*end).min(within.end.0)),
            })
            .filter(|range| !range.is_empty())
    }

    /// Some offset of `range` is in the set.
    pub(crate) fn touches(&self, range: OffsetRange) -> bool {
        let before = self.ranges.range(..range.end.0).next_back();
        !range.is_empty() && before.is_some_and(|(_, end)| *end > range.first.0)
    }

    /// What of `within` is not in the set, in order.
    pub fn missing(&self, within: OffsetRange) -> Vec<OffsetRange> {
        let mut missing = Vec::new();
        let mut at = within.first;
        for range in self.within(within) {
            if range.first > at {
                let gap = OffsetRange {
                    first: at,
                    end: range.first,
                };
                missing.push(gap);
            }
            at = range.end;
        }
        if at < within.end {
            missing.push(OffsetRange {
                first: at,
                end: within.end,
            });
        }
        missing
    }

    /// Nothing at or above it is in the set; `None`: nothing is.
    pub fn last_end(&self) -> Option<Offset> {
        self.ranges.last_key_value().map(|(_, end)| Offset(*end))
    }

    /// How many ranges.
    pub fn len(&self) -> usize {
        self.ranges.len()
    }

    /// Holds none.
    pub fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    /// How many offsets.
    pub fn offsets(&self) -> u64 {
        self.offsets
    }
}

impl FromIterator<OffsetRange> for OffsetRanges {
    fn from_iter<I: IntoIterator<Item = OffsetRange>>(ranges: I) -> Self {
        let mut all = Self::default();
        for range in ranges {
            all.insert(range);
        }
        all
    }
}
