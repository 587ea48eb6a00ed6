//! A set of offsets as disjoint ranges in order. Neighbours melt, so that what is taken in order is one range.

use std::collections::BTreeMap;
use std::ops::Range;

/// By first offset: the exclusive end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(in crate::consumer) struct RangeSet {
    ranges: BTreeMap<u64, u64>,
    len: u64,
}

impl RangeSet {
    /// Adds a range; what is there already stays once.
    pub(in crate::consumer) fn insert(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        // The usual case: the next offset behind the last range.
        if let Some(mut last) = self.ranges.last_entry()
            && *last.get() == range.start
        {
            *last.get_mut() = range.end;
            self.len += range.end - range.start;
            return;
        }
        let (mut first, mut end) = (range.start, range.end);
        let before = self.ranges.range(..=first).next_back();
        if let Some((&start, &stop)) = before
            && stop >= first
        {
            first = start;
        }
        let touched: Vec<(u64, u64)> = self
            .ranges
            .range(first..=end)
            .map(|(&start, &stop)| (start, stop))
            .collect();
        for (start, stop) in touched {
            self.ranges.remove(&start);
            self.len -= stop - start;
            end = end.max(stop);
        }
        self.ranges.insert(first, end);
        self.len += end - first;
    }

    /// Takes a range out.
    pub(in crate::consumer) fn remove(&mut self, range: Range<u64>) {
        if range.is_empty() {
            return;
        }
        let from = self.ranges.range(..=range.start).next_back();
        let from = from.map_or(range.start, |(&start, _)| start);
        let touched: Vec<(u64, u64)> = self
            .ranges
            .range(from..range.end)
            .filter(|(_, stop)| **stop > range.start)
            .map(|(&start, &stop)| (start, stop))
            .collect();
        for (start, stop) in touched {
            self.ranges.remove(&start);
            self.len -= stop - start;
            for (start, stop) in [(start, range.start), (range.end, stop)] {
                if start < stop {
                    self.ranges.insert(start, stop);
                    self.len += stop - start;
                }
            }
        }
    }

    /// Takes out what `other` holds.
    pub(in crate::consumer) fn remove_all(&mut self, other: &Self) {
        let Some((&first, _)) = self.ranges.first_key_value() else {
            return;
        };
        let from = other.ranges.range(..=first).next_back();
        let from = from.map_or(first, |(&start, _)| start);
        for (&start, &stop) in other.ranges.range(from..self.end()) {
            self.remove(start..stop);
        }
    }

    /// Takes out everything below `end`.
    pub(in crate::consumer) fn remove_below(&mut self, end: u64) {
        self.remove(0..end);
    }

    /// Takes out and answers what lies below `end`.
    pub(in crate::consumer) fn split_below(&mut self, end: u64) -> Self {
        let mut below = Self::default();
        for range in self.iter().take_while(|range| range.start < end) {
            below.insert(range.start..range.end.min(end));
        }
        self.remove_below(end);
        below
    }

    pub(in crate::consumer) fn contains(&self, offset: u64) -> bool {
        let before = self.ranges.range(..=offset).next_back();
        before.is_some_and(|(_, end)| *end > offset)
    }

    pub(in crate::consumer) fn iter(&self) -> impl Iterator<Item = Range<u64>> + '_ {
        self.ranges.iter().map(|(&first, &end)| first..end)
    }

    /// How many offsets.
    pub(in crate::consumer) fn len(&self) -> u64 {
        self.len
    }

    /// How many ranges.
    pub(in crate::consumer) fn count(&self) -> usize {
        self.ranges.len()
    }

    pub(in crate::consumer) fn is_empty(&self) -> bool {
        self.ranges.is_empty()
    }

    pub(in crate::consumer) fn clear(&mut self) {
        self.ranges.clear();
        self.len = 0;
    }

    /// Behind the last offset; 0: empty.
    pub(in crate::consumer) fn end(&self) -> u64 {
        self.ranges.last_key_value().map_or(0, |(_, end)| *end)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use rand::{Rng, SeedableRng};
    use rand_chacha::ChaCha8Rng;

    use super::*;

    #[test]
    fn ranges_agree_with_a_plain_set_of_offsets() {
        for seed in 0..200 {
            let mut rng = ChaCha8Rng::seed_from_u64(seed);
            let (mut ranges, mut plain) = (RangeSet::default(), BTreeSet::new());
            for _ in 0..60 {
                let first = rng.random_range(0..40);
                let range = first..first + rng.random_range(0..12);
                match rng.random_range(0..6) {
                    4 => {
                        let mut other = RangeSet::default();
                        other.insert(range.clone());
                        other.insert(range.end + 2..range.end + 5);
                        other.insert(0..first / 4);
                        plain.retain(|offset| !other.contains(*offset));
                        ranges.remove_all(&other);
                    }
                    0..3 => {
                        plain.extend(range.clone());
                        ranges.insert(range);
                    }
                    3 => {
                        plain.retain(|offset| !range.contains(offset));
                        ranges.remove(range);
                    }
                    _ => {
                        let below = ranges.split_below(first);
                        let expected: BTreeSet<u64> =
                            plain.iter().copied().filter(|o| *o < first).collect();
                        assert_eq!(below.iter().flatten().collect::<BTreeSet<_>>(), expected);
                        plain.retain(|offset| *offset >= first);
                    }
                }
                let found: Vec<u64> = ranges.iter().flatten().collect();
                assert_eq!(
                    found,
                    plain.iter().copied().collect::<Vec<_>>(),
                    "seed {seed}"
                );
                assert_eq!(ranges.len(), plain.len() as u64);
                assert_eq!(ranges.end(), plain.last().map_or(0, |last| last + 1));
                assert!((0..60).all(|offset| ranges.contains(offset) == plain.contains(&offset)));
                let mut pairs = ranges.iter().zip(ranges.iter().skip(1));
                assert!(pairs.all(|(a, b)| a.end < b.start), "neighbours melt");
            }
        }
    }
}
