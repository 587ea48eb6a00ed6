//! Records of consumer groups: deltas and snapshots of a coordinator shard.

use serving_groups::{Delta, ShardState};

/// Both forms with every kind of change and every field that may be missing.
const DELTA: &str = include_str!("../../serving/groups/golden/delta-v1.hex");
const SNAPSHOT: &str = include_str!("../../serving/groups/golden/snapshot-v1.hex");

/// A delta that is read is written the same, and folds into a shard whose snapshot can be read.
pub fn delta(input: &[u8]) -> bool {
    let Ok(delta) = Delta::decode(input) else {
        return false;
    };
    assert_eq!(Delta::decode(&delta.encode()).as_ref(), Ok(&delta));
    let mut state = ShardState::default();
    state.apply(&delta);
    assert!(ShardState::decode(&state.encode()).is_ok());
    true
}

/// A snapshot that is read is written the same.
pub fn snapshot(input: &[u8]) -> bool {
    let Ok(state) = ShardState::decode(input) else {
        return false;
    };
    assert_eq!(ShardState::decode(&state.encode()), Ok(state));
    true
}

fn bytes(hex: &str) -> Vec<u8> {
    let digits: Vec<u8> = hex
        .bytes()
        .filter_map(|digit| char::from(digit).to_digit(16))
        .map(|digit| digit as u8)
        .collect();
    digits
        .chunks(2)
        .map(|pair| (pair[0] << 4) | pair[1])
        .collect()
}

/// Version 1 of a delta.
pub fn deltas() -> Vec<(&'static str, Vec<u8>)> {
    vec![("every-change", bytes(DELTA)), ("none", vec![1])]
}

/// Version 1 of a snapshot.
pub fn snapshots() -> Vec<(&'static str, Vec<u8>)> {
    vec![
        ("every-kind", bytes(SNAPSHOT)),
        ("none", vec![1, 0, 0, 0, 0]),
    ]
}
