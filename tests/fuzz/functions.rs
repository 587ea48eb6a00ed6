//! What functions write down of themselves: records of a changelog, and snapshots of a state. A log and an object store give them
//! back, and neither is trusted.

use std::sync::Arc;

use bytes::Bytes;
use functions_runtime::codec::changelog::{ChangelogRecord, Delta, Meta, Pointer};
use functions_runtime::codec::frame;
use functions_runtime::codec::snapshot::{RowCodecs, Snapshot};
use functions_runtime::state::{PlainRows, RowCodec, State, StateDelta};
use functions_runtime::{Fingerprint, InputPartition};

use crate::seeds::Seeds;

const FINGERPRINT: Fingerprint = Fingerprint(0x0123_4567_89ab_cdef);

fn codecs() -> RowCodecs {
    vec![Arc::new(PlainRows), Arc::new(PlainRows)]
}

/// A record of a changelog, with the rows of a delta.
pub fn changelog(input: &[u8]) -> bool {
    let Ok((record, fingerprint)) = ChangelogRecord::decode(&Bytes::copy_from_slice(input)) else {
        return false;
    };
    let encoded = record
        .encode(fingerprint)
        .expect("what was decoded fits its fields");
    assert_eq!(encoded, input);
    if let ChangelogRecord::Delta(delta) = record
        && let Ok(rows) = PlainRows.decode(&delta.rows)
    {
        assert_eq!(PlainRows.encode(&rows), Ok(delta.rows));
    }
    true
}

/// A snapshot.
pub fn snapshot(input: &[u8]) -> bool {
    let Ok(snapshot) = Snapshot::decode(&Bytes::copy_from_slice(input), &codecs()) else {
        return false;
    };
    let encoded = snapshot
        .encode(&codecs())
        .expect("what was decoded fits its fields");
    assert_eq!(Snapshot::decode(&encoded, &codecs()), Ok(snapshot));
    true
}

/// Makes length and checksum right again.
pub fn repair(input: &mut [u8]) {
    frame::repair(input);
}

fn rows() -> Vec<(Bytes, Option<Bytes>)> {
    let key = |number: u8| Bytes::from(vec![number; 3]);
    vec![
        (key(1), Some(Bytes::from_static(b"one"))),
        (key(2), None),
        (key(3), Some(Bytes::new())),
    ]
}

/// Records of each kind.
pub fn changelogs() -> Seeds {
    let mut meta = Meta::start(
        (0..3)
            .map(|partition| {
                let at = InputPartition {
                    input: 1,
                    partition,
                };
                (at, 40 + u64::from(partition))
            })
            .collect(),
    );
    (meta.epoch, meta.epoch_time, meta.deltas) = (9, 1_700_000_000_000, 1);
    let delta = Delta {
        epoch: 9,
        table: 1,
        chunk: 0,
        rows: PlainRows.encode(&rows()).expect("small rows fit"),
    };
    let pointer = Pointer {
        epoch: 8,
        changelog_end: 77,
        bytes: 1000,
        checksum: 5,
        path: "fn/a/1/0/0/7-3-8.snapshot".to_owned(),
    };
    let encode = |record: ChangelogRecord| {
        record
            .encode(FINGERPRINT)
            .expect("a small record fits")
            .into()
    };
    vec![
        ("delta", encode(ChangelogRecord::Delta(delta))),
        ("meta", encode(ChangelogRecord::Meta(meta))),
        ("pointer", encode(ChangelogRecord::Pointer(pointer))),
    ]
}

/// An empty state, and one with rows in both tables.
pub fn snapshots() -> Seeds {
    let with = |name, tables: [Vec<_>; 2]| {
        let mut state = State::new(2);
        let tables = tables.map(|rows: Vec<(Bytes, Option<Bytes>)>| rows.into_iter().collect());
        state.fold(StateDelta {
            tables: tables.into(),
        });
        let snapshot = Snapshot {
            epoch: 9,
            fingerprint: FINGERPRINT,
            state,
        };
        (
            name,
            snapshot
                .encode(&codecs())
                .expect("a small state fits")
                .into(),
        )
    };
    vec![
        with("empty", [Vec::new(), Vec::new()]),
        with("rows", [rows(), rows()]),
    ]
}
