//! The bookie's log: header of a file, and a group with its records. What a disk gives back is as untrusted as a wire.

use bookie_node::log::format::{
    BLOCK_BYTES, DiskIdentity, FileHeader, GROUP_HEADER_BYTES, GroupHeader, LogPosition,
};
use bookie_node::log::group::{GroupBuilder, Placement};
use bookie_node::log::record::{FRAME_BYTES, Records};
use bookie_node::log::{DamagedRange, LimboKind, Record};
use bytes::Bytes;
use hulse_proto::bookie::Origin;
use hulse_proto::entry::{Entry, HEADER_BYTES, crc32c};
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

/// The header of one file.
pub fn file_headers() -> Seeds {
    let uuid = |bytes: [u8; 16]| Incarnation::from_slice(&bytes).expect("16 bytes");
    let header = FileHeader {
        identity: DiskIdentity {
            cell: CellId(uuid([1; 16]).0),
            incarnation: uuid([2; 16]),
            disk: uuid([3; 16]).0,
        },
        file: 7,
        salt: SALT,
        created_at: 1_700_000_000_000,
        file_bytes: 1 << 30,
    };
    vec![("file", header.encode())]
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
    builder.finish().place(&placement)[..bytes].to_vec()
}

/// A mark, a group of every small record, and one of entries.
pub fn groups() -> Seeds {
    let ledger = LedgerId(9);
    let small = [
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
    ];
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
            placed(7, |group| {
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
