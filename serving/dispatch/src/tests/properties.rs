//! Sets of offsets and marks behave as maps of single offsets, and folds of deltas as one state.

use std::collections::{BTreeMap, BTreeSet};

use hulse_proto::id::Offset;
use proptest::prelude::*;

use crate::runs::{NO_HOLD, Run, Runs, State};
use crate::*;

fn piece() -> impl Strategy<Value = (u64, u64)> {
    (0..60u64, 0..12u64).prop_map(|(first, len)| (first, first + len))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn ranges_are_sets_of_offsets(edits in proptest::collection::vec((any::<bool>(), piece()), 1..30)) {
        let (mut ranges, mut plain) = (OffsetRanges::default(), BTreeSet::new());
        for (add, (first, end)) in edits {
            let range = OffsetRange::new(first, end);
            if add {
                let new = (first..end).filter(|it| !plain.contains(it)).count() as u64;
                prop_assert_eq!(ranges.insert(range), new);
                plain.extend(first..end);
            } else {
                ranges.remove(range);
                plain.retain(|it| !(first..end).contains(it));
            }
            let all: BTreeSet<u64> = ranges.iter().flat_map(|it| it.first.0..it.end.0).collect();
            prop_assert_eq!(&all, &plain);
            let missing = ranges.missing(OffsetRange::new(10, 40));
            let missing: BTreeSet<u64> = missing.iter().flat_map(|it| it.first.0..it.end.0).collect();
            let expected: BTreeSet<u64> = (10..40).filter(|it| !plain.contains(it)).collect();
            prop_assert_eq!(missing, expected);
        }
        let joined: OffsetRanges = ranges.iter().collect();
        prop_assert_eq!(joined, ranges);
    }

    #[test]
    fn marks_are_maps_of_offsets(edits in proptest::collection::vec((0..4u16, piece()), 1..30)) {
        let (mut marks, mut plain) = (Marks::default(), BTreeMap::new());
        for (failed, (first, end)) in edits {
            let mark = Mark { failed, ..Mark::default() };
            marks.set(OffsetRange::new(first, end), mark);
            for offset in first..end {
                plain.insert(offset, failed);
            }
            plain.retain(|_, failed| *failed > 0);
            for offset in 0..80 {
                let expected = plain.get(&offset).copied().unwrap_or(0);
                prop_assert_eq!(marks.get(offset).failed, expected);
            }
            let pieces = marks.pieces(OffsetRange::new(5, 50));
            let lens: u64 = pieces.iter().map(|(range, _)| range.len()).sum();
            prop_assert_eq!(lens, 45);
            prop_assert!(pieces.windows(2).all(|it| it[0].0.end == it[1].0.first));
            prop_assert!(pieces.iter().all(|(range, mark)| marks.get(range.first.0) == *mark));
        }
        // Equal contents are equal values, however they came to be.
        let mut anew = Marks::default();
        for (offset, failed) in &plain {
            let mark = Mark { failed: *failed, ..Mark::default() };
            anew.set(OffsetRange::new(*offset, offset + 1), mark);
        }
        prop_assert_eq!(anew, marks);
    }

    #[test]
    fn window_counts_its_gaps(cuts in proptest::collection::vec(0..100u64, 1..60)) {
        let mut runs = Runs::new(0);
        let run = |len: u32| Run {
            len,
            hold: NO_HOLD,
            seen: 0,
            hashes: (0, 0),
            state: State::Shared,
            flags: 0,
        };
        for n in 0..10 {
            runs.push(n * 10, run(10));
        }
        let mut left: BTreeSet<u64> = (0..100).collect();
        for offset in cuts {
            if left.remove(&offset) {
                runs.split(offset);
                runs.split(offset + 1);
                runs.remove(offset);
            }
            prop_assert_eq!(runs.acked().len(), runs.gaps());
            prop_assert_eq!(runs.records(), left.len() as u64);
            prop_assert_eq!(runs.base(), left.first().copied().unwrap_or(100));
        }
    }

    /// What was said twice, or in one delta instead of two, is the same state.
    #[test]
    fn deltas_say_facts(acks in proptest::collection::vec(piece(), 1..20), marked in piece()) {
        let mark = Mark { failed: 1, ..Mark::default() };
        let marks = vec![(OffsetRange::new(marked.0, marked.1), mark)];
        let delta = |acked: Vec<OffsetRange>| QueueDelta {
            marks: marks.clone(),
            acked,
            ..QueueDelta::default()
        };
        let ranges: Vec<_> = acks.iter().map(|(first, end)| OffsetRange::new(*first, *end)).collect();
        let (mut one, mut many) = (QueueState::new(Offset(3)), QueueState::new(Offset(3)));
        let set: OffsetRanges = ranges.iter().copied().collect();
        one.apply(&delta(set.iter().collect()));
        for range in ranges {
            many.apply(&delta(vec![range]));
            many.apply(&delta(vec![range]));
        }
        prop_assert_eq!(&one, &many);
        prop_assert!(one.acked.iter().all(|range| range.first > one.base));
        prop_assert!(one.marks.iter().all(|(range, _)| range.first >= one.base));
    }
}
