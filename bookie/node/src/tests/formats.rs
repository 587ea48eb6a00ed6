//! Round trips and refusals of the log's formats.

use hulse_proto::bookie::Origin;
use hulse_proto::id::{CellId, EntryId, FenceToken, Incarnation, LedgerId};
use proptest::prelude::*;
use uuid::Uuid;

use super::support::entry;
use crate::log::format::{
    DiskIdentity, FileHeader, FileHeaderError, FileKind, GroupError, GroupHeader, LogPosition,
    REPLACES_MAX, file_name, file_number, kind_and_number, name_of, side_name, side_number,
};
use crate::log::group::{GroupBuilder, Placement};
use crate::log::record::{RecordError, Records};
use crate::log::{DamagedRange, DamagedRun, LedgerRow, LimboKind, Record};

fn file_header() -> FileHeader {
    FileHeader {
        kind: FileKind::Compacted,
        identity: DiskIdentity {
            cell: CellId(Uuid::from_u128(1)),
            incarnation: Incarnation(Uuid::from_u128(2)),
            disk: Uuid::from_u128(3),
        },
        file: 4,
        salt: 5,
        created_at: 6,
        file_bytes: 7,
        replaces: vec![1, 3],
        counts_as: None,
    }
}

/// A placed group of one of each record.
fn group() -> (Vec<u8>, Vec<Record>) {
    let ledger = LedgerId(9);
    let records = vec![
        Record::Fence {
            ledger,
            token: FenceToken(3),
        },
        Record::Limbo {
            ledger,
            kind: LimboKind::Stale,
            boot: 2,
        },
        Record::LimboClear { ledger, boot: 2 },
        Record::Tombstone { ledger },
        Record::DeadBelow { below: ledger },
        Record::SealMark { file: 1, end: 4096 },
        Record::KnownDamage(DamagedRange {
            file: 1,
            first: 2,
            end: 3,
        }),
        Record::FilesRemoved { first: 3, end: 5 },
        Record::Ledger(LedgerRow {
            ledger,
            contacted: true,
            fence: FenceToken(4),
            ..LedgerRow::default()
        }),
        Record::Ledger(LedgerRow {
            ledger,
            deleted: true,
            limbo: [0, 0, 7],
            ..LedgerRow::default()
        }),
        Record::SnapshotEnd { ledgers: 2 },
        Record::DamagedEntries(DamagedRun {
            ledger,
            first: EntryId(7),
            end: EntryId(9),
            file: 4,
        }),
        Record::DamageCovered(DamagedRange {
            file: 1,
            first: 2,
            end: u64::MAX,
        }),
    ];
    let mut builder = GroupBuilder::new(Vec::new());
    for record in &records {
        builder.push(record);
    }
    builder.push_entry(&entry(9, 1, 300), Origin::Normal, EntryId(1));
    let mut bytes = builder.finish();
    let placement = Placement {
        salt: 5,
        sequence: 8,
        offset: 8192,
        synced: LogPosition { file: 1, offset: 2 },
    };
    bytes.place(&placement);
    (bytes.placed().to_vec(), records)
}

#[test]
fn roundtrip_file_header() {
    let header = file_header();
    assert_eq!(FileHeader::decode(&header.encode()), Ok(header));
    assert!(matches!(
        FileHeader::decode(&[0; 100]),
        Err(FileHeaderError::CutOff(100))
    ));
    let full = FileHeader {
        replaces: (0..REPLACES_MAX as u64).collect(),
        counts_as: Some(0),
        ..file_header()
    };
    assert_eq!(FileHeader::decode(&full.encode()), Ok(full));
}

#[test]
fn header_of_another_version_or_of_a_needed_feature_is_refused() {
    for (at, error) in [
        (8, FileHeaderError::Version(2)),
        (12, FileHeaderError::Features(2)),
    ] {
        let mut bytes = file_header().encode();
        bytes[at] = 2;
        let crc = hulse_proto::entry::crc32c(&bytes[..4092]);
        bytes[4092..].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(FileHeader::decode(&bytes), Err(error));
    }
    // Those that may be ignored are.
    let mut bytes = file_header().encode();
    bytes[16] = 2;
    let crc = hulse_proto::entry::crc32c(&bytes[..4092]);
    bytes[4092..].copy_from_slice(&crc.to_le_bytes());
    assert_eq!(FileHeader::decode(&bytes), Ok(file_header()));
}

#[test]
fn roundtrip_group() {
    let (bytes, records) = group();
    let header = GroupHeader::decode(&bytes, 5, 8192).unwrap();
    assert_eq!((header.sequence, header.records), (8, 14));
    assert_eq!(header.synced, LogPosition { file: 1, offset: 2 });
    let found: Vec<_> = Records::new(header.body(&bytes).unwrap())
        .map(Result::unwrap)
        .collect();
    assert_eq!(
        found[..13]
            .iter()
            .map(|placed| placed.record)
            .collect::<Vec<_>>(),
        records
    );
    let Record::Entry(last) = found[13].record else {
        panic!()
    };
    assert_eq!(last.digest, entry(9, 1, 300).header().digest());
    assert_eq!((last.confirmed_end, last.normal), (EntryId(1), true));
}

#[test]
fn group_of_another_place_or_salt_is_refused() {
    let (bytes, _) = group();
    assert_eq!(
        GroupHeader::decode(&bytes, 6, 8192),
        Err(GroupError::Absent)
    );
    assert_eq!(
        GroupHeader::decode(&bytes, 5, 4096),
        Err(GroupError::Misplaced(8192))
    );
}

#[test]
fn unknown_optional_record_is_skipped_and_unknown_required_refused() {
    let mut area = Vec::new();
    Record::Tombstone {
        ledger: LedgerId(1),
    }
    .encode(&mut area);
    let len = area.len();
    for (flags, expected) in [
        (1, None),
        (
            0,
            Some(RecordError::Unknown {
                kind: 99,
                version: 1,
            }),
        ),
    ] {
        let mut other = area.clone();
        other[4] = 99;
        other[5] = flags;
        let mut covered = other[..24].to_vec();
        covered.extend(&other[28..]);
        other[24..28].copy_from_slice(&hulse_proto::entry::crc32c(&covered).to_le_bytes());
        other.extend(&area);
        let found: Vec<_> = Records::new(&other).collect();
        match expected {
            None => assert!(matches!(&found[..], [Ok(placed)] if placed.at == len)),
            Some(error) => assert_eq!(found, [Err(error)]),
        }
    }
}

#[test]
fn file_names_sort_by_number() {
    assert_eq!(file_number(&file_name(77)), Some(77));
    assert!(file_name(9) < file_name(10));
    let compacted = name_of(FileKind::Compacted, 5);
    assert_eq!(file_number(&compacted), None);
    assert_eq!(kind_and_number(&compacted), Some((FileKind::Compacted, 5)));
    assert_eq!(kind_and_number(&file_name(5)), Some((FileKind::Log, 5)));
    assert_eq!(side_number(&side_name(5)), Some(5));
    assert_eq!(kind_and_number(&side_name(5)), None);
    for name in [
        "1.log",
        "00000000000000000001.tmp",
        "0000000000000000000x.log",
        "",
    ] {
        assert_eq!(file_number(name), None);
    }
}

proptest! {
    #[test]
    fn decode_rejects_any_flipped_bit_of_a_file_header(at in 0..4096_usize, bit in 0..8_u8) {
        let mut bytes = file_header().encode();
        bytes[at] ^= 1 << bit;
        prop_assert_eq!(FileHeader::decode(&bytes), Err(FileHeaderError::Damaged));
    }

    #[test]
    fn decode_rejects_any_flipped_bit_of_a_group(at in any::<prop::sample::Index>(), bit in 0..8_u8) {
        let (mut bytes, _) = group();
        let used = 64 + GroupHeader::decode(&bytes, 5, 8192).unwrap().body_bytes as usize;
        bytes[at.index(used)] ^= 1 << bit;
        let judged = GroupHeader::decode(&bytes, 5, 8192);
        prop_assert!(judged.and_then(|header| header.body(&bytes).map(drop)).is_err());
    }

    #[test]
    fn records_of_any_bytes_end_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let found = Records::new(&bytes).count();
        prop_assert!(found <= bytes.len());
    }
}
