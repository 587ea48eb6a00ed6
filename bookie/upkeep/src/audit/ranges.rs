//! Sets of entries as ranges that rise and do not touch. Pure.

use std::ops::Range;

/// What of `range` the runs leave out. Runs rise.
pub(super) fn gaps(range: Range<u64>, runs: impl Iterator<Item = Range<u64>>) -> Vec<Range<u64>> {
    let mut gaps = Vec::new();
    let mut at = range.start;
    for run in runs {
        let (first, end) = (run.start.max(at), run.end.min(range.end));
        if first >= end {
            continue;
        }
        gaps.push(at..first);
        at = end;
    }
    gaps.push(at..range.end);
    gaps.retain(|gap| gap.start < gap.end);
    gaps
}

/// What is in both.
pub(super) fn both(one: &[Range<u64>], other: &[Range<u64>]) -> Vec<Range<u64>> {
    let mut common = Vec::new();
    let (mut left, mut right) = (one.iter().peekable(), other.iter().peekable());
    while let (Some(a), Some(b)) = (left.peek(), right.peek()) {
        let (start, end) = (a.start.max(b.start), a.end.min(b.end));
        if start < end {
            common.push(start..end);
        }
        match a.end < b.end {
            true => drop(left.next()),
            false => drop(right.next()),
        }
    }
    common
}

/// What is in `one` and not in `other`.
pub(super) fn without(one: &[Range<u64>], other: &[Range<u64>]) -> Vec<Range<u64>> {
    let left = one
        .iter()
        .flat_map(|range| gaps(range.clone(), other.iter().cloned()));
    left.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    #[expect(clippy::single_range_in_vec_init, reason = "one range is meant")]
    fn sets_are_cut_and_taken_away_by_ranges() {
        let one = [2..8, 10..20];
        let other = [0..3, 5..11, 19..30];
        assert_eq!(both(&one, &other), [2..3, 5..8, 10..11, 19..20]);
        assert_eq!(without(&one, &other), [3..5, 11..19]);
        assert_eq!(without(&one, &[]), one);
        assert_eq!(both(&one, &[]), []);
        assert_eq!(gaps(0..9, [2..4, 8..20].into_iter()), [0..2, 4..8]);
        assert_eq!(gaps(0..9, std::iter::empty()), [0..9]);
    }
}
