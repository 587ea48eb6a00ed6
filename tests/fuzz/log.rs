//! The bookie's log: header of a file, a group with its records, the footer of a file and a page of its slots. What a disk gives back
//! is as untrusted as a wire.

use bookie_node::log::footer::{
    Footer, FooterLedger, FooterRun, FooterSlot, PAGE_SLOTS, TRAILER_BYTES, Trailer, decode_page,
    encode_pages, encode_tail,
};
use bookie_node::log::format::{
    BLOCK_BYTES, DiskIdentity, FileHeader, FileKind, GROUP_HEADER_BYTES, GroupHeader, LogPosition,
};
use bookie_node::log::group::{GroupBuilder, Placement};
use bookie_node::log::record::{FRAME_BYTES, Records};
use bookie_node::log::{DamagedRange, DamagedRun, LedgerRow, LimboKind, Record};
use bytes::Bytes;
use hulse_proto::bookie::Origin;
use hulse_proto::entry::{Entry, EntryDigest, HEADER_BYTES, crc32c};
use hulse_proto::id::{CellId, EntryId, FenceToken, Incarnation, LedgerId};

use crate::decoders::repair_entry_header;
use crate::seeds::{self, Seeds};

/// Salt of the file that the groups stand in.
const SALT: u64 = 0x0123_4567_89ab_cdef;
/// Where each group stands in it.
const OFFSET: u64 = 3 * BLOCK_BYTES as u64;
/// Type byte of an entry's record, whose checksum leaves the content out.
const KIND_ENTRY: u8 = 1;

/// The first block of a log file.
pub fn file_header(input: &[u8]) -> bool {
    let Ok(header) = FileHeader::decode(input) else {
        return false;
    };
    assert_eq!(FileHeader::decode(&header.encode()), Ok(header));
    true
}

/// Makes the block's checksum right again.
pub fn repair_file_header(input: &mut [u8]) {
    if let Some(block) = input.get_mut(..BLOCK_BYTES) {
        let (body, stored) = block.split_at_mut(BLOCK_BYTES - 4);
        stored.copy_from_slice(&crc32c(body).to_le_bytes());
    }
}

/// A group at its place, and every record in it.
pub fn group(input: &[u8]) -> bool {
    let Ok(header) = GroupHeader::decode(input, SALT, OFFSET) else {
        return false;
    };
    assert_eq!(
        GroupHeader::decode(&header.encode(SALT), SALT, OFFSET),
        Ok(header)
    );
    assert_eq!(header.padded_bytes() % BLOCK_BYTES as u64, 0);
    let Ok(area) = header.body(input) else {
        return false;
    };
    let mut end = 0;
    for record in Records::new(area) {
        let Ok(placed) = record else {
            return false;
        };
        assert!(placed.at >= end, "records overlap");
        end = placed.at + placed.bytes;
        assert!(end <= area.len(), "a record leaves its group");
        if !matches!(placed.record, Record::Entry(_)) {
            let mut again = Vec::new();
            placed.record.encode(&mut again);
            let first = Records::new(&again).next();
            assert_eq!(
                first.map(|found| found.map(|found| found.record)),
                Some(Ok(placed.record))
            );
        }
    }
    true
}

/// Makes place, lengths and checksums right again, those of the records included.
pub fn repair_group(input: &mut [u8]) {
    if input.len() < GROUP_HEADER_BYTES {
        return;
    }
    let (header, body) = input.split_at_mut(GROUP_HEADER_BYTES);
    let claimed = u32::from_le_bytes([header[24], header[25], header[26], header[27]]) as usize;
    let length = claimed.min(body.len());
    let body = &mut body[..length];
    repair_records(body);
    header[16..24].copy_from_slice(&OFFSET.to_le_bytes());
    header[24..28].copy_from_slice(&(length as u32).to_le_bytes());
    header[56..60].copy_from_slice(&crc32c(body).to_le_bytes());
    let crc = crc32c(&header[..GROUP_HEADER_BYTES - 4]);
    header[GROUP_HEADER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
}

fn repair_records(mut rest: &mut [u8]) {
    while rest.len() >= FRAME_BYTES {
        let claimed = u32::from_le_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
        if claimed > rest.len() - FRAME_BYTES {
            return;
        }
        let (record, behind) = rest.split_at_mut(FRAME_BYTES + claimed);
        let (frame, content) = record.split_at_mut(FRAME_BYTES);
        let crc_at = FRAME_BYTES - 4;
        let crc = if frame[4] == KIND_ENTRY {
            repair_entry_header(content);
            crc32c(&frame[..crc_at])
        } else {
            crc32c(&[&frame[..crc_at], content].concat())
        };
        frame[crc_at..].copy_from_slice(&crc.to_le_bytes());
        rest = behind;
    }
}

fn a_file_header(kind: FileKind, replaces: Vec<u64>) -> FileHeader {
    let uuid = |bytes: [u8; 16]| Incarnation::from_slice(&bytes).expect("16 bytes");
    FileHeader {
        kind,
        identity: DiskIdentity {
            cell: CellId(uuid([1; 16]).0),
            incarnation: uuid([2; 16]),
            disk: uuid([3; 16]).0,
        },
        file: 7,
        salt: SALT,
        created_at: 1_700_000_000_000,
        file_bytes: 1 << 30,
        counts_as: replaces.last().map(|_| 0),
        replaces,
    }
}

/// The headers of a log file and of a compacted one.
pub fn file_headers() -> Seeds {
    vec![
        ("file", a_file_header(FileKind::Log, vec![]).encode()),
        (
            "compacted",
            a_file_header(FileKind::Compacted, vec![2, 3, 5]).encode(),
        ),
    ]
}

/// A footer in a file of its own: pages, directory, trailer.
pub fn footer(input: &[u8]) -> bool {
    let Some(at) = input.len().checked_sub(TRAILER_BYTES) else {
        return false;
    };
    let Some(trailer) = Trailer::decode(&input[at..], input.len() as u64) else {
        return false;
    };
    let from = trailer.directory_at().expect("it was checked") as usize;
    let directory = &input[from..from + trailer.directory_bytes as usize];
    let Some(footer) = Footer::decode_directory(directory, &trailer) else {
        return false;
    };
    let pages = footer.entries().div_ceil(PAGE_SLOTS as u64);
    assert_eq!(pages, u64::from(trailer.pages));
    let again = encode_tail(&footer, trailer.pages_at);
    let end = again.len() as u64;
    let trailer = Trailer::decode(&again[again.len() - TRAILER_BYTES..], from as u64 + end);
    let trailer = trailer.expect("what was decoded encodes to a valid trailer");
    let directory = &again[..trailer.directory_bytes as usize];
    assert_eq!(Footer::decode_directory(directory, &trailer), Some(footer));
    true
}

/// Makes the checksums of directory and trailer right again, and the place of the one in the other.
pub fn repair_footer(input: &mut [u8]) {
    let Some(at) = input.len().checked_sub(TRAILER_BYTES) else {
        return;
    };
    let (body, trailer) = input.split_at_mut(at);
    let number = |bytes: &[u8]| u64::from_le_bytes(bytes.try_into().expect("8 bytes"));
    let pages = u64::from(u32::from_le_bytes(
        trailer[12..16].try_into().expect("4 bytes"),
    ));
    let from = number(&trailer[24..32]).saturating_add(pages * BLOCK_BYTES as u64);
    let end = from.saturating_add(number(&trailer[32..40]));
    let inside = from as usize..end as usize;
    if end <= body.len() as u64 && from <= end {
        repair_file_header(&mut body[inside.clone()]);
        let crc = crc32c(&body[inside]);
        trailer[40..44].copy_from_slice(&crc.to_le_bytes());
    }
    let crc = crc32c(&trailer[..TRAILER_BYTES - 4]);
    trailer[TRAILER_BYTES - 4..].copy_from_slice(&crc.to_le_bytes());
}

fn slots(count: u32) -> Vec<FooterSlot> {
    let slot = |number: u32| FooterSlot {
        offset: 4096 + number * 300,
        bytes: 290,
        digest: EntryDigest {
            header_crc: number * 7,
            payload_crc: !number,
        },
    };
    (0..count).map(slot).collect()
}

fn whole_footer(footer: &Footer, slots: &[FooterSlot]) -> Vec<u8> {
    let mut bytes = encode_pages(SALT, slots);
    bytes.extend(encode_tail(footer, 0));
    bytes
}

/// A footer of nothing, and one of everything.
pub fn footers() -> Seeds {
    let empty = Footer {
        header: a_file_header(FileKind::Log, vec![]),
        first_sequence: 3,
        next_sequence: 4,
        end: 8192,
        snapshot_end: 0,
        ledgers: vec![],
        damage: vec![],
        state: vec![],
    };
    let run = |first, entries| FooterRun {
        first: EntryId(first),
        entries,
    };
    let ledger = |ledger, normal, runs| FooterLedger {
        ledger: LedgerId(ledger),
        bytes: 4000,
        confirmed_end: EntryId(9),
        normal,
        runs,
    };
    let full = Footer {
        header: a_file_header(FileKind::Compacted, vec![1, 2]),
        snapshot_end: 8192,
        ledgers: vec![
            ledger(1, true, vec![run(0, 200), run(300, 1)]),
            ledger(9, false, vec![run(7, 99)]),
        ],
        damage: vec![DamagedRange {
            file: 7,
            first: 4096,
            end: u64::MAX,
        }],
        state: small_records(),
        ..empty.clone()
    };
    vec![
        ("empty", whole_footer(&empty, &[])),
        ("full", whole_footer(&full, &slots(300))),
    ]
}

/// A page of slots.
pub fn page(input: &[u8]) -> bool {
    let Some(slots) = decode_page(input, SALT, 0) else {
        return false;
    };
    assert_eq!(slots.len(), PAGE_SLOTS);
    let again = encode_pages(SALT, &slots);
    assert_eq!(decode_page(&again, SALT, 0), Some(slots));
    true
}

/// Makes the page's checksum right again, and whose it is.
pub fn repair_page(input: &mut [u8]) {
    if let Some(block) = input.get_mut(..BLOCK_BYTES) {
        let (body, tail) = block.split_at_mut(BLOCK_BYTES - 16);
        tail[..8].copy_from_slice(&SALT.to_le_bytes());
        tail[8..12].copy_from_slice(&0_u32.to_le_bytes());
        let crc = crc32c(&[body, &tail[..12]].concat());
        tail[12..].copy_from_slice(&crc.to_le_bytes());
    }
}

/// A full page and one of a single slot.
pub fn pages() -> Seeds {
    vec![
        ("full", encode_pages(SALT, &slots(PAGE_SLOTS as u32))),
        ("one", encode_pages(SALT, &slots(1))),
    ]
}

fn placed(records: u64, fill: impl FnOnce(&mut GroupBuilder)) -> Vec<u8> {
    let mut builder = GroupBuilder::new(Vec::new());
    fill(&mut builder);
    let placement = Placement {
        salt: SALT,
        sequence: 40 + records,
        offset: OFFSET,
        synced: LogPosition {
            file: 7,
            offset: OFFSET,
        },
    };
    // Without the padding, in which damage would mostly be lost.
    let bytes = builder.bytes();
    let mut group = builder.finish();
    group.place(&placement);
    group.placed()[..bytes].to_vec()
}

fn small_records() -> Vec<Record> {
    let ledger = LedgerId(9);
    vec![
        Record::Fence {
            ledger,
            token: FenceToken(3),
        },
        Record::Limbo {
            ledger,
            kind: LimboKind::Damage,
            boot: 4,
        },
        Record::LimboClear { ledger, boot: 5 },
        Record::Tombstone { ledger },
        Record::DeadBelow { below: ledger },
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
            ledger,
            contacted: true,
            deleted: false,
            confirmed_end: EntryId(44),
            fence: FenceToken(2),
            limbo_cleared: 0,
            limbo: [0, 3, 0],
        }),
        Record::SnapshotEnd { ledgers: 1 },
        Record::DamagedEntries(DamagedRun {
            ledger,
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

/// A mark, a group of every small record, and one of entries.
pub fn groups() -> Seeds {
    let small = small_records();
    let entries: Vec<Entry> = seeds::entries()
        .into_iter()
        .map(|(_, bytes)| Entry::decode(Bytes::from(bytes)).expect("a seed is valid"))
        .collect();
    assert!(
        entries
            .iter()
            .all(|entry| entry.header().entry_len() > HEADER_BYTES)
    );
    let token = FenceToken(3);
    let origins = [
        Origin::Normal,
        Origin::Recovery { token },
        Origin::Copy { bound: EntryId(9) },
    ];
    vec![
        ("mark", placed(0, |_| ())),
        (
            "small",
            placed(10, |group| {
                for record in &small {
                    group.push(record);
                }
            }),
        ),
        (
            "entries",
            placed(3, |group| {
                for (entry, origin) in entries.iter().zip(origins) {
                    group.push_entry(entry, origin, EntryId(2));
                }
            }),
        ),
    ]
}
