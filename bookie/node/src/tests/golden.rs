//! The formats of version 1, byte for byte: files that were not made by this code (`proto/golden/make.py`). A change that these tests
//! see breaks every disk.

use hulse_proto::entry::{EntryDigest, EntryHeader, crc32c};
use hulse_proto::id::{CellId, EntryId, FenceToken, Incarnation, LedgerId, NodeName};
use std::sync::Arc;
use std::time::Duration;
use uuid::Uuid;

use super::support::*;
use crate::disk::Disk;
use crate::disk::memory::{MemoryDisk, Survival};
use crate::identity::{Boot, Identity, read_boot, read_identity, write_boot, write_identity};
use crate::log::footer::{
    Footer, FooterLedger, FooterRun, FooterSlot, TRAILER_BYTES, Trailer, decode_page, encode_pages,
    encode_tail,
};
use crate::log::format::{DiskIdentity, FileHeader, GroupHeader, file_name, name_of};
use crate::log::group::{GroupBuilder, Placement};
use crate::log::record::{EntryRecord, FRAME_BYTES, Records};
use crate::log::{DamagedRange, DamagedRun, FileKind, LedgerRow, LimboKind, LogPosition, Record};
use crate::step::StepNode;
use crate::{NodeConfig, SyncMode};

const SALT: u64 = 0x0123_4567_89ab_cdef;
const LEDGER: LedgerId = LedgerId(9);

macro_rules! golden {
    ($name:literal) => {
        include_bytes!(concat!("../../golden/v1/", $name))
    };
}

fn identity() -> DiskIdentity {
    DiskIdentity {
        cell: CellId(Uuid::from_bytes([1; 16])),
        incarnation: Incarnation(Uuid::from_bytes([2; 16])),
        disk: Uuid::from_bytes([3; 16]),
    }
}

fn header(kind: FileKind, file: u64, replaces: Vec<u64>) -> FileHeader {
    FileHeader {
        kind,
        identity: identity(),
        file,
        salt: SALT,
        created_at: 1_700_000_000_000,
        file_bytes: 1 << 28,
        replaces,
        counts_as: None,
    }
}

#[test]
fn file_headers_of_version_1_are_read_and_written() {
    let log = header(FileKind::Log, 5, vec![]);
    let compacted = header(FileKind::Compacted, 7, vec![2, 3, 5]);
    for (bytes, header) in [
        (&golden!("file_header_log")[..], log),
        (&golden!("file_header_compacted")[..], compacted),
    ] {
        assert_eq!(FileHeader::decode(bytes).as_ref(), Ok(&header));
        assert_eq!(header.encode(), bytes);
    }
}

fn records() -> Vec<Record> {
    vec![
        Record::Fence {
            ledger: LEDGER,
            token: FenceToken(3),
        },
        Record::Limbo {
            ledger: LEDGER,
            kind: LimboKind::Stale,
            boot: 4,
        },
        Record::LimboClear {
            ledger: LEDGER,
            boot: 5,
        },
        Record::Tombstone { ledger: LEDGER },
        Record::DeadBelow {
            below: LedgerId(10),
        },
        Record::SealMark {
            file: 6,
            end: 1 << 20,
        },
        Record::KnownDamage(DamagedRange {
            file: 6,
            first: 4096,
            end: u64::MAX,
        }),
        Record::FilesRemoved { first: 2, end: 5 },
        Record::Ledger(LedgerRow {
            ledger: LEDGER,
            contacted: true,
            confirmed_end: EntryId(44),
            fence: FenceToken(2),
            ..LedgerRow::default()
        }),
        Record::Ledger(LedgerRow {
            ledger: LedgerId(11),
            deleted: true,
            limbo: [0, 7, 0],
            ..LedgerRow::default()
        }),
        Record::SnapshotEnd { ledgers: 2 },
    ]
}

/// What is written for people.
fn notes() -> Vec<Record> {
    vec![
        Record::DamagedEntries(DamagedRun {
            ledger: LEDGER,
            first: EntryId(7),
            end: EntryId(9),
            file: 4,
        }),
        Record::DamageCovered(DamagedRange {
            file: 6,
            first: 4096,
            end: u64::MAX,
        }),
    ]
}

fn digest(header_crc: u32, payload_crc: u32) -> EntryDigest {
    EntryDigest {
        header_crc,
        payload_crc,
    }
}

/// Bytes of the records of the two ledgers in `group_of_entries`.
const FIRST_BYTES: u64 = 2 * (28 + 76) + (24 + 2 * 56 + 4) + 5 + (24 + 56 + 4) + 6;
const SECOND_BYTES: u64 = 28 + 76 + (24 + 4) + 6;

/// Ledger, entry, confirmed end, the writer's own.
const ENTRIES: [(u64, u64, u64, bool); 3] = [(9, 0, 0, true), (9, 1, 1, false), (12, 7, 7, false)];

/// Finds the records of a group and builds it anew.
fn regroup(bytes: &[u8], offset: u64) -> (GroupHeader, Vec<Record>) {
    let header = GroupHeader::decode(bytes, SALT, offset).unwrap();
    let area = header.body(bytes).unwrap();
    let mut builder = GroupBuilder::new(Vec::new());
    let mut found = Vec::new();
    for placed in Records::new(area).map(Result::unwrap) {
        match placed.record {
            Record::Entry(_) => {
                builder.push_bytes(&area[placed.at..placed.at + placed.bytes]);
            }
            record => {
                builder.push(&record);
            }
        }
        found.push(placed.record);
    }
    let mut group = builder.finish();
    let again = group.place(&Placement {
        salt: SALT,
        sequence: header.sequence,
        offset,
        synced: header.synced,
    });
    assert_eq!(again, header);
    assert_eq!(group.placed(), bytes);
    (header, found)
}

#[test]
fn groups_and_records_of_version_1_are_read_and_written() {
    let (header, found) = regroup(golden!("group_of_records"), 12_288);
    let synced = LogPosition {
        file: 4,
        offset: 8192,
    };
    assert_eq!((header.sequence, header.synced), (41, synced));
    assert_eq!(found, records());
    let (header, found) = regroup(golden!("group_of_notes"), 20_480);
    assert_eq!((header.sequence, found), (43, notes()));
    let (header, found) = regroup(golden!("group_of_entries"), 8192);
    assert_eq!(header.records, 3);
    let expected = ENTRIES.map(|(ledger, entry, confirmed_end, normal)| {
        (
            LedgerId(ledger),
            EntryId(entry),
            EntryId(confirmed_end),
            normal,
        )
    });
    let found = found.iter().map(|record| match record {
        Record::Entry(EntryRecord {
            ledger,
            entry,
            confirmed_end,
            normal,
            ..
        }) => (*ledger, *entry, *confirmed_end, *normal),
        other => panic!("{other:?}"),
    });
    assert_eq!(found.collect::<Vec<_>>(), expected);
    let (header, found) = regroup(golden!("group_mark"), 16_384);
    assert_eq!((header.sequence, found.len()), (42, 0));
}

#[test]
fn footer_of_version_1_is_read_and_written() {
    let bytes = &golden!("footer")[..];
    let group = &golden!("group_of_entries")[..];
    // What the slots say of the group is what stands there.
    let (mut at, mut slots) = (64, Vec::new());
    for _ in ENTRIES {
        let content = u32::from_le_bytes(group[at..at + 4].try_into().unwrap());
        let header = EntryHeader::decode(&group[at + FRAME_BYTES..]).unwrap();
        let found = header.digest();
        slots.push(FooterSlot {
            offset: 8192 + at as u32,
            bytes: content + FRAME_BYTES as u32,
            digest: digest(found.header_crc, found.payload_crc),
        });
        at += FRAME_BYTES + content as usize;
    }
    assert_eq!(decode_page(bytes, SALT, 0).unwrap()[..3], slots);
    let run = |first, entries| FooterRun {
        first: EntryId(first),
        entries,
    };
    let all = records();
    let expected = Footer {
        header: header(FileKind::Log, 5, vec![]),
        first_sequence: 40,
        next_sequence: 43,
        end: 20_480,
        snapshot_end: 8192,
        ledgers: vec![
            FooterLedger {
                ledger: LEDGER,
                bytes: FIRST_BYTES,
                confirmed_end: EntryId(0),
                normal: true,
                runs: vec![run(0, 2)],
            },
            FooterLedger {
                ledger: LedgerId(12),
                bytes: SECOND_BYTES,
                confirmed_end: EntryId(0),
                normal: false,
                runs: vec![run(7, 1)],
            },
        ],
        damage: vec![DamagedRange {
            file: 5,
            first: 4096,
            end: 8192,
        }],
        state: vec![all[0], all[3], all[7]],
    };
    let trailer = &bytes[bytes.len() - TRAILER_BYTES..];
    let trailer = Trailer::decode(trailer, bytes.len() as u64).unwrap();
    let from = trailer.directory_at().unwrap() as usize;
    let directory = &bytes[from..from + trailer.directory_bytes as usize];
    let footer = Footer::decode_directory(directory, &trailer).unwrap();
    assert_eq!(footer, expected);
    let mut again = encode_pages(SALT, &slots);
    again.extend(encode_tail(&footer, 0));
    assert_eq!(again, bytes);
}

#[test]
fn identity_and_boot_of_version_1_are_read_and_written() {
    let disk = MemoryDisk::default();
    for (name, bytes) in [
        ("identity", &golden!("identity")[..]),
        ("boot", &golden!("boot")[..]),
    ] {
        let file: Arc<dyn crate::disk::DiskFile> = disk.create(name, 0).unwrap();
        file.write_at(0, bytes).unwrap();
    }
    let of_disk = identity();
    let expected = Identity {
        cell: of_disk.cell,
        name: NodeName::new("bookie-1").unwrap(),
        incarnation: of_disk.incarnation,
        disk: of_disk.disk,
        sync: SyncMode::Interval(Duration::from_millis(250)),
        registered: true,
    };
    let boot = Boot {
        counter: 17,
        kernel: "0f1e2d3c".to_owned(),
        clean: true,
    };
    assert_eq!(read_identity(&disk).unwrap(), Some(expected.clone()));
    assert_eq!(read_boot(&disk).unwrap(), boot);
    let other = MemoryDisk::default();
    write_identity(&other, &expected).unwrap();
    write_boot(&other, &boot).unwrap();
    for name in ["identity", "boot"] {
        let read = |disk: &MemoryDisk| disk.open(name).unwrap().read_at(0, 4096).unwrap();
        assert_eq!(read(&other), read(&disk));
    }
}

#[test]
fn log_with_an_entry_of_another_version_refuses_the_start() {
    for version in [0, 2] {
        let disk = disk_of_version_1();
        let name = file_name(3);
        let file = disk.open(&name).unwrap();
        let mut bytes = file.read_at(0, 20_480).unwrap();
        bytes[12_288 + 64 + FRAME_BYTES] = version;
        let records = &bytes[12_288 + 64..];
        let used = FRAME_BYTES + u32::from_le_bytes(records[..4].try_into().unwrap()) as usize;
        let body = crc32c(&records[..used]);
        let header = &mut bytes[12_288..12_288 + 64];
        header[56..60].copy_from_slice(&body.to_le_bytes());
        let crc = crc32c(&header[..60]);
        header[60..].copy_from_slice(&crc.to_le_bytes());
        disk.overwrite(&name, 0, &bytes);
        let refused = StepNode::open(config(), Arc::new(disk), 1, &[]).err();
        let words = format!(
            "log file {name} at 12288: entry has format version {version}; this build reads version 1; start the version that wrote it"
        );
        assert_eq!(refused.unwrap().to_string(), words);
    }
}

/// A whole disk: a compacted file that took file 0's place, a sealed file with a snapshot of the state, and an open one.
pub(super) fn disk_of_version_1() -> MemoryDisk {
    let disk = MemoryDisk::default();
    for (name, bytes) in [
        ("identity", &golden!("disk/identity")[..]),
        ("boot", golden!("disk/boot")),
        (&file_name(1), golden!("disk/00000000000000000001.log")),
        (
            &name_of(FileKind::Compacted, 2),
            golden!("disk/00000000000000000002.cmp"),
        ),
        (&file_name(3), golden!("disk/00000000000000000003.log")),
    ] {
        let file = disk.create(name, 0).unwrap();
        file.write_at(0, bytes).unwrap();
        file.sync().unwrap();
    }
    disk.sync_dir().unwrap();
    disk
}

/// A node for it.
pub(super) fn config_of_version_1() -> NodeConfig {
    NodeConfig {
        cell: identity().cell,
        ..config()
    }
}

#[test]
fn disk_of_version_1_starts_serves_and_goes_on() {
    let config = config_of_version_1();
    let mut rig = Rig::on(disk_of_version_1(), config.clone(), &[]);
    for _ in 0..2 {
        assert!(rig.node.damage().is_empty(), "{:?}", rig.node.damage());
        let mut bodies = Vec::new();
        for (ledger, number) in [(9, 0), (9, 1), (9, 2), (12, 7)] {
            let request = read(rig.to(ledger), number, number + 1);
            let found = rig.node.read(&request).unwrap().remove(0);
            bodies.push((found.confirmed_end, found.entry.body()));
        }
        let expected = [
            (EntryId(0), "first"),
            (EntryId(1), "second"),
            (EntryId(2), "third"),
            (EntryId(7), "copied"),
        ];
        let expected = expected.map(|(end, body)| (end, bytes::Bytes::from(body)));
        assert_eq!(bodies, expected);
        let state = rig.node.core().state();
        assert_eq!(state.ledgers[&LedgerId(13)].fence, FenceToken(6));
        assert_eq!(state.ledgers[&LEDGER].confirmed_end, EntryId(2));
        assert!(rig.is_dead(10) && rig.is_dead(14) && !rig.is_dead(12));
        rig = rig.reopen(config.clone(), Survival::Nothing, &[]);
    }
    rig.store(50, 0..3, 100);
    rig.check();
}
