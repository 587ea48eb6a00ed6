//! What is written is read back; what is damaged is refused.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

use crate::codec::CodecError;
use crate::codec::changelog::{ChangelogRecord, Counters, Delta, Meta, Pointer};
use crate::codec::frame::{FRAME_BYTES, repair};
use crate::codec::snapshot::{RowCodecs, Snapshot};
use crate::id::{Fingerprint, InputPartition};
use crate::state::{PlainRows, RowChange, RowCodec, State, StateDelta};
use crate::watermark::{Progress, Watermarks};

fn bytes() -> impl Strategy<Value = Bytes> {
    vec(any::<u8>(), 0..40).prop_map(Bytes::from)
}

fn rows() -> impl Strategy<Value = Vec<RowChange>> {
    vec((bytes(), proptest::option::of(bytes())), 0..20)
}

fn meta() -> impl Strategy<Value = Meta> {
    let partition = (any::<u16>(), any::<u32>())
        .prop_map(|(input, partition)| InputPartition { input, partition });
    let progress =
        (any::<i64>(), any::<bool>()).prop_map(|(watermark, idle)| Progress { watermark, idle });
    let partitions = btree_map(partition, (any::<u64>(), progress), 0..6);
    let counters = any::<[u64; 5]>().prop_map(|[rows, late, dead, skipped, future]| Counters {
        rows,
        late,
        dead,
        skipped,
        future,
    });
    (any::<(u64, i64, u32, i64)>(), partitions, counters).prop_map(
        |((epoch, epoch_time, deltas, stage), partitions, counters)| Meta {
            epoch,
            epoch_time,
            deltas,
            offsets: partitions
                .iter()
                .map(|(at, (next, _))| (*at, *next))
                .collect(),
            watermarks: Watermarks {
                stage,
                partitions: partitions
                    .iter()
                    .map(|(at, (_, progress))| (*at, *progress))
                    .collect(),
            },
            counters,
        },
    )
}

fn record() -> impl Strategy<Value = ChangelogRecord> {
    let delta = (any::<(u64, u16, u32)>(), bytes()).prop_map(|((epoch, table, chunk), rows)| {
        ChangelogRecord::Delta(Delta {
            epoch,
            table,
            chunk,
            rows,
        })
    });
    let pointer = (any::<(u64, u64, u64, u32)>(), "[a-z/0-9é]{0,30}").prop_map(
        |((epoch, changelog_end, bytes, checksum), path)| {
            ChangelogRecord::Pointer(Pointer {
                epoch,
                changelog_end,
                bytes,
                checksum,
                path,
            })
        },
    );
    prop_oneof![delta, meta().prop_map(ChangelogRecord::Meta), pointer]
}

fn codecs() -> RowCodecs {
    vec![Arc::new(PlainRows), Arc::new(PlainRows)]
}

fn state(tables: [BTreeMap<Bytes, Bytes>; 2]) -> State {
    let mut state = State::new(2);
    let tables = tables.into_iter().map(|table| {
        table
            .into_iter()
            .map(|(key, value)| (key, Some(value)))
            .collect()
    });
    state.fold(StateDelta {
        tables: tables.collect(),
    });
    state
}

proptest! {
    #[test]
    fn roundtrip_of_rows(rows in rows()) {
        let encoded = PlainRows.encode(&rows).unwrap();
        prop_assert_eq!(PlainRows.decode(&encoded), Ok(rows));
    }

    #[test]
    fn roundtrip_of_changelog_records(record in record(), fingerprint in any::<u64>()) {
        let fingerprint = Fingerprint(fingerprint);
        let encoded = record.encode(fingerprint).unwrap();
        prop_assert_eq!(ChangelogRecord::decode(&encoded), Ok((record, fingerprint)));
    }

    #[test]
    fn roundtrip_of_snapshots(epoch in any::<u64>(), first in btree_map(bytes(), bytes(), 0..20), second in btree_map(bytes(), bytes(), 0..3)) {
        let snapshot = Snapshot { epoch, fingerprint: Fingerprint(3), state: state([first, second]) };
        let encoded = snapshot.encode(&codecs()).unwrap();
        prop_assert_eq!(Snapshot::decode(&encoded, &codecs()), Ok(snapshot));
    }

    #[test]
    fn decode_rejects_every_damaged_byte_and_every_cut(record in record(), at in any::<prop::sample::Index>(), bit in 0..8u8) {
        let encoded = record.encode(Fingerprint(1)).unwrap();
        let mut damaged = encoded.to_vec();
        damaged[at.index(encoded.len())] ^= 1 << bit;
        prop_assert!(ChangelogRecord::decode(&damaged.into()).is_err());
        prop_assert!(ChangelogRecord::decode(&encoded.slice(..at.index(encoded.len()))).is_err());
        let longer = [&encoded[..], &[0]].concat();
        prop_assert!(ChangelogRecord::decode(&longer.into()).is_err());
    }

    #[test]
    fn decode_rejects_without_panic_whatever_has_a_right_checksum(body in vec(any::<u8>(), 0..200), kind in 0..6u8) {
        let mut frame = ChangelogRecord::Delta(Delta { epoch: 1, table: 0, chunk: 0, rows: Bytes::new() })
            .encode(Fingerprint(1)).unwrap()[..FRAME_BYTES].to_vec();
        frame.extend(body);
        frame[5] = kind;
        repair(&mut frame);
        let frame = Bytes::from(frame);
        let _ = ChangelogRecord::decode(&frame);
        let _ = Snapshot::decode(&frame, &codecs());
        let _ = PlainRows.decode(&frame);
    }
}

#[test]
fn snapshot_of_other_tables_is_refused() {
    let snapshot = Snapshot {
        epoch: 1,
        fingerprint: Fingerprint(3),
        state: state(Default::default()),
    };
    let encoded = snapshot.encode(&codecs()).unwrap();
    let one: RowCodecs = vec![Arc::new(PlainRows)];
    let refused = Snapshot::decode(&encoded, &one);
    let tables = CodecError::Field {
        field: "tables",
        value: 2,
    };
    assert_eq!(refused, Err(tables));
}

#[test]
fn newer_version_is_refused_by_its_number() {
    let record = ChangelogRecord::Meta(Meta::start(BTreeMap::new()));
    let mut encoded = record.encode(Fingerprint(1)).unwrap().to_vec();
    encoded[4] = 2;
    repair(&mut encoded);
    let refused = ChangelogRecord::decode(&encoded.into()).unwrap_err();
    assert_eq!(
        refused.to_string(),
        "has format version 2; this program reads 1"
    );
}

#[test]
fn many_rows_are_announced_and_nothing_is_allocated() {
    let rows = Bytes::from_static(&[255, 255, 255, 255, 0, 0, 0, 0]);
    assert!(matches!(
        PlainRows.decode(&rows),
        Err(CodecError::Truncated { .. })
    ));
}
