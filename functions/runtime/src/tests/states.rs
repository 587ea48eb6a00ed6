//! The overlay against a plain map; limits.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;

use crate::state::{ROW_OVERHEAD, State, StateTxn};
use crate::{Limits, OperatorError};

fn key(number: u8) -> Bytes {
    Bytes::from(vec![number / 8, number % 8])
}

proptest! {
    #[test]
    fn overlay_reads_as_a_map_would_and_folds_into_one(
        epochs in proptest::collection::vec(proptest::collection::vec((0..40u8, proptest::option::of(any::<u8>()), any::<bool>()), 0..20), 1..6),
        range in (0..40u8, 0..40u8),
    ) {
        let mut state = State::new(1);
        let mut model: BTreeMap<Bytes, Bytes> = BTreeMap::new();
        for epoch in epochs {
            let committed = epoch.first().is_none_or(|(_, _, committed)| *committed);
            let mut after = model.clone();
            let mut txn = StateTxn::new(&state, &Limits::default());
            for (number, value, _) in epoch {
                match value {
                    Some(value) => {
                        txn.put(0, key(number), vec![value; value as usize % 3].into()).unwrap();
                        after.insert(key(number), vec![value; value as usize % 3].into());
                    }
                    None => {
                        txn.delete(0, key(number)).unwrap();
                        after.remove(&key(number));
                    }
                }
                prop_assert_eq!(txn.get(0, &key(number)), after.get(&key(number)));
            }
            let all: Vec<_> = txn.range(0, &[], None).collect();
            prop_assert_eq!(all, after.iter().collect::<Vec<_>>());
            let (from, end) = (key(range.0), key(range.1));
            let some: Vec<_> = txn.range(0, &from, Some(&end)).map(|(key, _)| key.clone()).collect();
            let expected: Vec<_> = after.keys().filter(|key| **key >= from && **key < end).cloned().collect();
            prop_assert_eq!(some, expected);
            prop_assert_eq!(txn.last_key(0), after.keys().last());
            let delta = txn.into_delta();
            if committed {
                state.fold(delta);
                model = after;
            }
            prop_assert_eq!(state.table(0), &model);
            let bytes: usize = model.iter().map(|(key, value)| ROW_OVERHEAD + key.len() + value.len()).sum();
            prop_assert_eq!(state.bytes(), bytes);
        }
    }
}

#[test]
fn state_past_its_limit_is_refused_by_name_and_shrinking_is_not() {
    let limits = Limits {
        state_bytes_max: 2 * (ROW_OVERHEAD + 4),
        ..Limits::default()
    };
    let mut state = State::new(1);
    let mut txn = StateTxn::new(&state, &limits);
    for number in 0..2 {
        txn.put(0, key(number), Bytes::from_static(b"ab")).unwrap();
    }
    let refused = txn.put(0, key(2), Bytes::from_static(b"ab"));
    assert!(
        matches!(
            refused,
            Err(OperatorError::OverLimit {
                limit: "state_bytes_max",
                ..
            })
        ),
        "{refused:?}"
    );
    assert_eq!(txn.get(0, &key(2)), None);
    txn.delete(0, key(0)).unwrap();
    txn.put(0, key(2), Bytes::from_static(b"ab")).unwrap();
    state.fold(txn.into_delta());
    assert_eq!((state.rows(), state.bytes()), (2, limits.state_bytes_max));
}

#[test]
fn overlay_past_its_limit_is_refused_by_name() {
    let limits = Limits {
        epoch_overlay_bytes_max: ROW_OVERHEAD + 4,
        ..Limits::default()
    };
    let state = State::new(1);
    let mut txn = StateTxn::new(&state, &limits);
    txn.put(0, key(0), Bytes::from_static(b"ab")).unwrap();
    txn.put(0, key(0), Bytes::from_static(b"cd")).unwrap();
    let refused = txn.put(0, key(1), Bytes::new());
    assert!(
        matches!(
            refused,
            Err(OperatorError::OverLimit {
                limit: "epoch_overlay_bytes_max",
                ..
            })
        ),
        "{refused:?}"
    );
}

#[test]
fn frozen_state_does_not_change_with_the_live_one() {
    let mut state = State::new(1);
    let mut txn = StateTxn::new(&state, &Limits::default());
    txn.put(0, key(1), Bytes::from_static(b"old")).unwrap();
    state.fold(txn.into_delta());
    let frozen = state.clone();
    let mut txn = StateTxn::new(&state, &Limits::default());
    txn.put(0, key(1), Bytes::from_static(b"new")).unwrap();
    state.fold(txn.into_delta());
    assert_eq!(
        frozen.table(0).get(&key(1)).map(Bytes::as_ref),
        Some(&b"old"[..])
    );
}
