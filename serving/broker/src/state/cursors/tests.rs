//! Cursors against a model, and live against replay.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use hulse_proto::id::{Offset, OwnerEpoch, PartitionId, SubscriptionId, TopicId};
use proptest::prelude::*;
use serving_dispatch::{Letter, Mark, Why};
use uuid::Uuid;

use super::*;
use crate::state::{MetaRecord, MetaRecordKind, MetaState, PartitionState, StateFold};

fn range(first: u64, end: u64) -> OffsetRange {
    OffsetRange {
        first: Offset(first),
        end: Offset(end),
    }
}

fn id(number: u8) -> SubscriptionId {
    SubscriptionId(Uuid::from_u128(u128::from(number)))
}

fn mark() -> impl Strategy<Value = Mark> {
    let why = [Why::None, Why::Rejected, Why::LockExpired, Why::Crashed];
    let letter = prop_oneof![
        3 => Just(Letter::None),
        1 => Just(Letter::Wanted),
        1 => any::<u64>().prop_map(Letter::Numbered),
    ];
    let why = prop::sample::select(why.to_vec());
    (0..4_u16, why, letter, -1..9_i64).prop_map(|(failed, why, letter, retry_at)| Mark {
        failed,
        why,
        letter,
        retry_at,
    })
}

fn change() -> impl Strategy<Value = Change> {
    let ranges = prop::collection::vec((0..60_u64, 1..9_u64), 0..5);
    prop_oneof![
        2 => (any::<bool>(), 0..50_u64, "[a-z]{1,9}").prop_map(|(hold, base, name)| Change::Made(NewCursor {
            name: name.into(),
            hold,
            base: Offset(base),
            at: 7,
        })),
        8 => (0..60_u64, ranges).prop_map(|(to, ranges)| Change::Acked {
            at: 8,
            to: Offset(if to < 30 { 0 } else { to }),
            ranges: ranges.into_iter().map(|(first, count)| range(first, first + count)).collect(),
        }),
        2 => (0..60_u64, any::<u32>(), any::<bool>()).prop_map(|(base, state_epoch, keep_acked)| Change::Moved {
            at: 9,
            base: Offset(base),
            state_epoch,
            keep_acked,
        }),
        1 => Just(Change::Removed),
        1 => any::<bool>().prop_map(Change::Hold),
        1 => (0..9_u64).prop_map(Change::Evicted),
        1 => (0..9_u64).prop_map(groups),
        1 => (0..9_u64).prop_map(Change::Letters),
        3 => prop::collection::vec((0..60_u64, 1..9_u64, mark()), 1..4).prop_map(|marks| {
            let marks = marks.into_iter();
            Change::Marked(marks.map(|(first, count, mark)| (range(first, first + count), mark)).collect())
        }),
    ]
}

/// A group of a coordinator shard commits an offset; no cursor is touched.
fn groups(offset: u64) -> Change {
    let committed = serving_groups::Change::Committed {
        partition: hulse_proto::id::PartitionId {
            topic: hulse_proto::id::TopicId(uuid::Uuid::from_u128(3)),
            index: 1,
        },
        offset: serving_groups::CommittedOffset {
            offset: Offset(offset),
            leader_epoch: 2,
            metadata: None,
            at: 9,
        },
    };
    let delta = serving_groups::Delta(vec![("g".into(), committed)]);
    Change::Groups(std::sync::Arc::new(delta))
}

fn delta() -> impl Strategy<Value = CursorDelta> {
    prop::collection::vec((0..3_u8, change()), 1..4).prop_map(|changes| {
        let changes = changes.into_iter().map(|(of, change)| (id(of), change));
        CursorDelta(changes.collect())
    })
}

/// The model: every offset below 100 that is processed.
type Model = BTreeMap<SubscriptionId, BTreeSet<u64>>;

fn model(model: &mut Model, of: SubscriptionId, change: &Change) {
    match change {
        Change::Made(new) => {
            model.entry(of).or_insert_with(|| (0..new.base.0).collect());
        }
        Change::Removed => {
            model.remove(&of);
        }
        Change::Acked { to, ranges, .. } => {
            if let Some(acked) = model.get_mut(&of) {
                acked.extend(0..to.0);
                acked.extend(ranges.iter().flat_map(|range| range.first.0..range.end.0));
            }
        }
        Change::Moved {
            base, keep_acked, ..
        } => {
            if let Some(acked) = model.get_mut(&of) {
                if !keep_acked {
                    acked.clear();
                }
                acked.extend(0..base.0);
            }
        }
        Change::Hold(_)
        | Change::Evicted(_)
        | Change::Groups(_)
        | Change::Marked(_)
        | Change::Letters(_) => {}
    }
}

fn check(cursors: &Cursors, model: &Model) {
    assert_eq!(cursors.len(), model.len());
    for (of, cursor) in cursors.iter() {
        let acked = &model[&of];
        for (range, mark) in cursor.marks().iter() {
            assert!(!mark.is_empty());
            let offsets = range.first.0..range.end.0;
            assert!(
                offsets.into_iter().all(|at| !acked.contains(&at)),
                "a mark of what is processed"
            );
        }
        let base = (0..).find(|offset| !acked.contains(offset)).unwrap();
        assert_eq!(cursor.base, Offset(base), "base of {cursor:?}");
        let above: BTreeSet<u64> = acked.iter().copied().filter(|at| *at > base).collect();
        let ranges: Vec<_> = cursor.acked().iter().collect();
        let held: BTreeSet<u64> = ranges.iter().flat_map(|r| r.first.0..r.end.0).collect();
        assert_eq!(held, above);
        assert_eq!(cursor.acked().offsets(), above.len() as u64);
        for pair in ranges.windows(2) {
            assert!(pair[0].end < pair[1].first, "{ranges:?}");
        }
        for (from, to) in [(0, 100), (10, 40), (35, 36)] {
            let left = (base.max(from)..to)
                .filter(|at| !acked.contains(at))
                .count();
            assert_eq!(cursor.backlog(Offset(from), Offset(to)), left as u64);
            let missing: u64 = cursor
                .acked()
                .missing(range(base.max(from), to))
                .iter()
                .map(OffsetRange::len)
                .sum();
            assert_eq!(missing, left as u64);
        }
    }
    let holding = cursors.iter().filter(|(_, cursor)| cursor.hold);
    assert_eq!(
        cursors.held_from(),
        holding.map(|(_, cursor)| cursor.base).min()
    );
}

proptest! {
    #[test]
    fn cursor_is_what_was_acknowledged(deltas in prop::collection::vec(delta(), 1..40)) {
        let (mut cursors, mut expected) = (Cursors::default(), Model::new());
        for delta in &deltas {
            cursors.apply(delta);
            for (of, change) in &delta.0 {
                model(&mut expected, *of, change);
            }
            check(&cursors, &expected);
        }
    }

    /// A snapshot anywhere, deltas after it, and an owner that dies in the middle of another snapshot: the same state.
    #[test]
    fn live_equals_replay(deltas in prop::collection::vec(delta(), 1..40), snapshot in 0..40_usize, torn in 0..40_usize) {
        let partition = PartitionId { topic: TopicId(Uuid::from_u128(9)), index: 1 };
        let epoch = OwnerEpoch(3);
        let mut live = PartitionState::<Cursors>::default();
        let mut chain: Vec<Bytes> = Vec::new();
        for (at, delta) in deltas.iter().enumerate() {
            let records = live.snapshot_in_chunks(partition, epoch, 40);
            if at == snapshot {
                chain.extend(records.iter().map(MetaRecord::encode));
            } else if at == torn && records.len() > 1 {
                chain.extend(records[1..].iter().map(MetaRecord::encode));
            }
            let number = live.state_applied + 1;
            let kind = MetaRecordKind::Delta { number, bytes: Cursors::encode_delta(delta) };
            chain.push(MetaRecord { partition, epoch, kind }.encode());
            live.apply_meta(number, delta);
        }
        let mut fold = StateFold::new(partition);
        for body in &chain {
            fold.fold(body).unwrap();
        }
        prop_assert_eq!(fold.finish(), live);
    }

    #[test]
    fn roundtrip_of_a_delta_and_of_all_cursors(deltas in prop::collection::vec(delta(), 1..20)) {
        let mut cursors = Cursors::default();
        for delta in &deltas {
            let bytes = Cursors::encode_delta(delta);
            prop_assert_eq!(&Cursors::decode_delta(&bytes).unwrap(), delta);
            let sizes: usize = delta.0.iter().map(|(_, change)| CursorDelta::bytes_of(change)).sum();
            prop_assert_eq!(sizes, bytes.len());
            cursors.apply(delta);
        }
        prop_assert_eq!(Cursors::decode(&cursors.encode()).unwrap(), cursors);
    }

    #[test]
    fn decode_rejects_what_is_cut_off_or_foreign(delta in delta(), cut in 1..40_usize, noise in prop::collection::vec(any::<u8>(), 0..80)) {
        let bytes = Cursors::encode_delta(&delta);
        if cut < bytes.len() {
            // Either an error, or the changes that are whole.
            if let Ok(less) = Cursors::decode_delta(&bytes[..bytes.len() - cut]) {
                prop_assert!(less.0.len() < delta.0.len());
            }
        }
        // Whatever it is, it does not panic and allocates no more than it was given.
        let _ = Cursors::decode_delta(&noise);
        let _ = Cursors::decode(&noise);
    }
}

fn hex(text: &str) -> Vec<u8> {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pairs = digits.chunks(2);
    pairs
        .map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap())
        .collect()
}

/// The bytes in state ledgers, which other builds read.
#[test]
fn bytes_of_deltas_and_snapshots_are_as_they_were_frozen() {
    const ID: &str = "00000000000000000000000000000001";
    let change = |change| CursorDelta(vec![(id(1), change)]);
    let made = change(Change::Made(NewCursor {
        name: "a/b/s".into(),
        hold: true,
        base: Offset(5),
        at: 7,
    }));
    let acked = change(Change::Acked {
        at: 8,
        to: Offset(6),
        ranges: vec![range(9, 11)],
    });
    let moved = change(Change::Moved {
        at: 9,
        base: Offset(3),
        state_epoch: 2,
        keep_acked: true,
    });
    let frozen = [
        (
            &made,
            format!("00 {ID} 01 0500000000000000 0700000000000000 0500 612f622f73"),
        ),
        (
            &acked,
            format!(
                "01 {ID} 0800000000000000 0600000000000000 01000000 0900000000000000 0b00000000000000"
            ),
        ),
        (
            &moved,
            format!("02 {ID} 0900000000000000 0300000000000000 02000000 01"),
        ),
        (&change(Change::Removed), format!("03 {ID}")),
        (&change(Change::Hold(false)), format!("04 {ID} 00")),
    ];
    for (delta, bytes) in frozen {
        assert_eq!(Cursors::encode_delta(delta), hex(&bytes), "{delta:?}");
        assert_eq!(&Cursors::decode_delta(&hex(&bytes)).unwrap(), delta);
    }
    let mut cursors = Cursors::default();
    cursors.apply(&made);
    cursors.apply(&acked);
    let snapshot = format!(
        "01000000 {ID} 01 0600000000000000 00000000 0700000000000000 0800000000000000 0500 612f622f73
         01000000 0900000000000000 0b00000000000000"
    );
    assert_eq!(cursors.encode(), hex(&snapshot));
    assert_eq!(Cursors::decode(&hex(&snapshot)).unwrap(), cursors);
}

/// Case SU-07: an ack in the middle of a batch is one of those records and of no others.
#[test]
fn cumulative_and_individual_acks_end_inside_a_batch() {
    let mut cursors = Cursors::default();
    let new = NewCursor {
        name: "a/b/s".into(),
        hold: true,
        base: Offset(0),
        at: 1,
    };
    cursors.apply_change(id(1), &Change::Made(new));
    let acked = |to, ranges: &[(u64, u64)]| Change::Acked {
        at: 2,
        to: Offset(to),
        ranges: ranges
            .iter()
            .map(|(first, end)| range(*first, *end))
            .collect(),
    };
    cursors.apply_change(id(1), &acked(4, &[]));
    assert_eq!(cursors.get(id(1)).unwrap().base, Offset(4));
    cursors.apply_change(id(1), &acked(0, &[(6, 7), (8, 9)]));
    let cursor = cursors.get(id(1)).unwrap();
    assert_eq!((cursor.base, cursor.acked().len()), (Offset(4), 2));
    assert_eq!(cursor.behind(2, Offset(0), Offset(10)), Offset(6));
    assert_eq!(cursor.behind(3, Offset(0), Offset(10)), Offset(8));
    assert_eq!(cursor.behind(99, Offset(0), Offset(10)), Offset(10));
    cursors.apply_change(id(1), &acked(0, &[(4, 6), (7, 8)]));
    let cursor = cursors.get(id(1)).unwrap();
    assert_eq!((cursor.base, cursor.acked().len()), (Offset(9), 0));
}
