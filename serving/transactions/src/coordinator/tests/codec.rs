//! Live equals replay, and bytes that lie.

use proptest::prelude::*;

use super::*;
use crate::RecordError;

fn ids() -> impl Strategy<Value = Arc<str>> {
    prop::sample::select(vec!["a", "b", "ä-long-name"]).prop_map(Arc::from)
}

fn versions() -> impl Strategy<Value = Version> {
    prop::sample::select(vec![Version::Tv1, Version::Tv2])
}

fn participants() -> impl Strategy<Value = BTreeMap<Participant, Parts>> {
    let one = (any::<bool>(), 0..3_u128, 0..4_u32, any::<(bool, bool)>());
    let one = one.prop_map(|(groups, topic, index, (data, acks))| {
        let partition = partition(topic, index);
        let participant = match groups {
            true => Participant::Groups(partition),
            false => Participant::Partition(partition),
        };
        (participant, Parts { data, acks })
    });
    prop::collection::btree_map(
        one.clone().prop_map(|(key, _)| key),
        one.prop_map(|(_, v)| v),
        0..4,
    )
}

fn change() -> impl Strategy<Value = Change> {
    let producers = || (0..4_i64, 0..4_i16).prop_map(|(id, epoch)| producer(id, epoch));
    let began = (
        any::<i64>(),
        producers(),
        -1..4_i64,
        -1..4_i16,
        any::<u32>(),
    );
    let began = began.prop_map(
        |(at, producer, previous, last_epoch, timeout_ms)| Change::Began {
            at,
            producer,
            previous: ProducerId(previous),
            last_epoch,
            timeout_ms,
        },
    );
    let added = (any::<i64>(), versions(), participants());
    let added = added.prop_map(|(at, version, participants)| Change::Added {
        at,
        version,
        participants,
    });
    let decided = (
        any::<i64>(),
        any::<bool>(),
        versions(),
        producers(),
        -1..4_i64,
        -1..4_i16,
    );
    let decided =
        decided.prop_map(
            |(at, commit, version, producer, next, last_epoch)| Change::Decided {
                at,
                commit,
                version,
                producer,
                next: ProducerId(next),
                last_epoch,
            },
        );
    let completed = any::<i64>().prop_map(|at| Change::Completed { at });
    prop_oneof![3 => began, 4 => added, 3 => decided, 3 => completed, 1 => Just(Change::Gone)]
}

fn deltas() -> impl Strategy<Value = Vec<Delta>> {
    let delta = prop::collection::vec((ids(), change()), 0..6).prop_map(Delta);
    prop::collection::vec(delta, 0..12)
}

proptest! {
    #[test]
    fn replay_equals_live_from_any_snapshot(deltas in deltas(), at in any::<prop::sample::Index>()) {
        let at = at.index(deltas.len() + 1);
        let (mut live, mut replayed) = (TransactionsShard::default(), TransactionsShard::default());
        for (number, delta) in deltas.iter().enumerate() {
            if number == at {
                replayed = TransactionsShard::decode(&live.encode()).unwrap();
            }
            live.apply(delta);
            replayed.apply(&Delta::decode(&delta.encode()).unwrap());
        }
        prop_assert_eq!(&TransactionsShard::decode(&live.encode()).unwrap(), &live);
        prop_assert_eq!(replayed, live);
    }

    #[test]
    fn roundtrip_delta(deltas in deltas()) {
        for delta in deltas {
            prop_assert_eq!(Delta::decode(&delta.encode()).unwrap(), delta);
        }
    }

    /// Bytes that are cut off or changed are refused, or read as something that is written as the same bytes again.
    #[test]
    fn decode_rejects_or_reads_damaged_bytes(
        deltas in deltas(), cut in any::<prop::sample::Index>(), flip in any::<(prop::sample::Index, u8)>(),
    ) {
        let mut state = TransactionsShard::default();
        deltas.iter().for_each(|delta| state.apply(delta));
        let mut bytes = state.encode().to_vec();
        prop_assert!(TransactionsShard::decode(&bytes[..cut.index(bytes.len())]).is_err());
        let place = flip.0.index(bytes.len());
        bytes[place] ^= flip.1;
        if let Ok(read) = TransactionsShard::decode(&bytes) {
            prop_assert_eq!(&TransactionsShard::decode(&read.encode()).unwrap(), &read);
        }
        for delta in &deltas {
            let mut bytes = delta.encode().to_vec();
            let place = flip.0.index(bytes.len());
            bytes[place] ^= flip.1;
            if let Ok(read) = Delta::decode(&bytes) {
                prop_assert_eq!(&Delta::decode(&read.encode()).unwrap(), &read);
                state.apply(&read);
            }
        }
    }
}

#[test]
fn counts_that_lie_are_refused_before_anything_is_allocated() {
    let huge = [&[1][..], &u32::MAX.to_le_bytes()].concat();
    let refused = TransactionsShard::decode(&huge);
    assert!(matches!(refused, Err(RecordError::CutOff { .. })));
    let added = [
        &[1, 1, 1, 0, b'a'][..],
        &[0; 8],
        &[1],
        &u32::MAX.to_le_bytes(),
    ]
    .concat();
    assert!(matches!(
        Delta::decode(&added),
        Err(RecordError::CutOff { .. })
    ));
    assert_eq!(Delta::decode(&[9]), Err(RecordError::Version(9)));
    assert_eq!(
        TransactionsShard::decode(&[]),
        Err(RecordError::CutOff {
            found: 0,
            expected: 1
        })
    );
}
