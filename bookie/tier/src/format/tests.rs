//! Segments as bytes: the frozen form, the way back, and what is refused.

use bytes::Bytes;
use hulse_proto::entry::Entry;
use hulse_proto::id::{EntryId, LedgerId, Offset, ProducerId, SegmentId};
use hulse_proto::tier::AbortedRange;
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::segment::{LedgerPlan, SegmentError, SegmentWriter, Written};
use crate::testing::{ClosedLedger, closed_ledger};

const SEGMENT: SegmentId = SegmentId(Uuid::from_bytes([8; 16]));
const GOLDEN: &[u8] = include_bytes!("../../golden/v1/segment");

fn plan(ledger: &ClosedLedger) -> LedgerPlan {
    LedgerPlan::new(ledger.ledger, &ledger.metadata, None).expect("it is closed and settled")
}

fn write(ledgers: &[ClosedLedger], block_bytes: usize) -> (Bytes, Written) {
    let mut writer = SegmentWriter::new(SEGMENT, block_bytes);
    let mut out = Vec::new();
    for ledger in ledgers {
        writer.begin(plan(ledger)).unwrap();
        for entry in &ledger.entries {
            writer.push(entry, &mut out).unwrap();
        }
        writer.end(&mut out).unwrap();
    }
    let written = writer.finish(&mut out).unwrap();
    (Bytes::from(out.concat()), written)
}

fn slice(object: &Bytes, range: std::ops::Range<u64>) -> Bytes {
    object.slice(range.start as usize..range.end as usize)
}

fn directory(object: &Bytes) -> Directory {
    let trailer = Trailer::decode(&object[object.len() - TRAILER_BYTES..]).unwrap();
    assert_eq!(trailer.object_bytes, object.len() as u64);
    let end = trailer.directory_at + u64::from(trailer.directory_bytes);
    let bytes = slice(object, trailer.directory_at..end);
    assert_eq!(seal_of(&bytes), trailer.directory_crc);
    Directory::decode(&bytes).unwrap()
}

fn read(object: &Bytes, row: &DirectoryRow) -> (Index, Vec<Entry>) {
    let bytes = slice(object, row.index());
    assert_eq!(seal_of(&bytes), row.index_crc);
    let index = Index::decode(&bytes).unwrap();
    assert_eq!(index.place(), row.first_byte..row.index_at);
    let mut entries = Vec::new();
    for (number, found) in index.blocks.iter().enumerate() {
        let range = found.at..found.at + u64::from(found.bytes);
        let block = Block::decode(slice(object, range)).unwrap();
        assert_eq!(block.header().body_crc, found.crc);
        assert_eq!(
            (block.header().first, block.header().end()),
            (found.first, index.end_of(number))
        );
        entries.extend(block.entries().map(Result::unwrap));
    }
    (index, entries)
}

fn same(found: &[Entry], written: &[Entry]) -> bool {
    let key = |entry: &Entry| (*entry.header(), entry.envelope(), entry.body());
    found.iter().map(key).eq(written.iter().map(key))
}

#[test]
fn segment_of_version_1_is_read_and_written() {
    let golden = Bytes::from_static(GOLDEN);
    let rows = directory(&golden).rows;
    assert_eq!(
        rows.iter().map(|row| row.ledger.0).collect::<Vec<_>>(),
        [9, 11]
    );
    let mut writer = SegmentWriter::new(SEGMENT, 1);
    let mut out = Vec::new();
    for row in &rows {
        let (index, entries) = read(&golden, row);
        let (head, aborted) = (index.head, index.aborted.clone());
        writer.begin(LedgerPlan { head, aborted }).unwrap();
        entries
            .iter()
            .for_each(|entry| writer.push(entry, &mut out).unwrap());
        writer.end(&mut out).unwrap();
    }
    writer.finish(&mut out).unwrap();
    assert_eq!(out.concat(), GOLDEN);
    assert_ne!(rows[0].index_crc, rows[1].index_crc);
    let (index, entries) = read(&golden, &rows[0]);
    let time = 1_700_000_000_000;
    assert_eq!(entries[1].body(), "a marker");
    assert_eq!(
        (index.blocks[0].min_timestamp, index.blocks[0].max_timestamp),
        (-1, time + 5)
    );
    assert_eq!(
        (index.blocks[1].min_timestamp, index.blocks[1].max_timestamp),
        (-1, -1)
    );
    assert_eq!(index.blocks[1].running_max_timestamp, time + 5);
    assert_eq!(index.head.base_offset, Offset(50));
    assert_eq!(index.head.totals.end, EntryId(2));
    let aborted = AbortedRange {
        first: Offset(50),
        end: Offset(54),
        producer: ProducerId(4711),
    };
    assert_eq!(index.aborted, [aborted]);
}

#[test]
fn parts_of_another_version_are_refused_by_its_number() {
    let golden = Bytes::from_static(GOLDEN);
    let row = directory(&golden).rows[0];
    let version = |mut bytes: Vec<u8>, at: usize| {
        bytes[at] = 2;
        bytes
    };
    let index = version(slice(&golden, row.index()).to_vec(), 4);
    let found = Index::decode(&index);
    assert_eq!(
        found,
        Err(FormatError::Version {
            part: "index",
            found: 2
        })
    );
    let block = Block::decode(version(golden.to_vec(), 4).into()).unwrap_err();
    assert_eq!(
        block,
        FormatError::Version {
            part: "block",
            found: 2
        }
    );
    let trailer = version(golden[golden.len() - TRAILER_BYTES..].to_vec(), 40);
    let found = Trailer::decode(&trailer);
    assert_eq!(
        found,
        Err(FormatError::Version {
            part: "trailer",
            found: 2
        })
    );
}

#[test]
fn index_finds_blocks_by_entry_offset_and_time() {
    let ledger = closed_ledger(LedgerId(5), Offset(100), &[400; 10]);
    let (object, written) = write(&[ledger], 1200);
    let (index, _) = read(&object, &written.directory.rows[0]);
    assert_eq!(index.blocks.len(), 5);
    let entry = |entry| index.block_of(EntryId(entry));
    assert_eq!(
        [entry(0), entry(1), entry(2), entry(9)],
        [Some(0), Some(0), Some(1), Some(4)]
    );
    assert_eq!([entry(10), entry(u64::MAX)], [None, None]);
    let offset = |offset| index.block_of_offset(Offset(offset));
    assert_eq!(
        [offset(99), offset(100), offset(105), offset(106)],
        [None, Some(0), Some(0), Some(1)]
    );
    assert_eq!([offset(129), offset(130)], [Some(4), None]);
    let time = |time| index.block_at_time(time);
    assert_eq!(
        [
            time(i64::MIN),
            time(1005),
            time(1006),
            time(9005),
            time(9006)
        ],
        [Some(0), Some(0), Some(1), Some(4), None]
    );
}

#[test]
fn long_entry_has_a_block_of_its_own() {
    let bodies = [10, 5000, 10, 10];
    let ledger = closed_ledger(LedgerId(5), Offset(0), &bodies);
    let (object, written) = write(std::slice::from_ref(&ledger), 1000);
    let (index, entries) = read(&object, &written.directory.rows[0]);
    let firsts: Vec<u64> = index.blocks.iter().map(|row| row.first.0).collect();
    assert_eq!(firsts, [0, 1, 2]);
    assert!(same(&entries, &ledger.entries));
}

#[test]
fn entries_go_on_where_they_are_sought() {
    let ledger = closed_ledger(LedgerId(5), Offset(0), &[20; 8]);
    let (object, written) = write(&[ledger], 1 << 20);
    let (index, _) = read(&object, &written.directory.rows[0]);
    let place = index.place();
    let mut entries = Block::decode(slice(&object, place)).unwrap().entries();
    entries.seek(EntryId(5)).unwrap();
    assert_eq!(entries.next_entry(), EntryId(5));
    assert_eq!(entries.next().unwrap().unwrap().header().entry, EntryId(5));
    entries.seek(EntryId(100)).unwrap();
    assert!(entries.next().is_none());
}

#[test]
fn writer_refuses_what_is_not_the_whole_ledger() {
    let ledger = closed_ledger(LedgerId(5), Offset(9), &[30; 4]);
    let missing = |entries: &[Entry]| {
        let (mut writer, mut out) = (SegmentWriter::new(SEGMENT, 100), Vec::new());
        writer.begin(plan(&ledger)).unwrap();
        let pushed = entries
            .iter()
            .try_for_each(|entry| writer.push(entry, &mut out));
        pushed.and_then(|()| writer.end(&mut out)).unwrap_err()
    };
    let not_next = |expected| SegmentError::NotNext {
        ledger: LedgerId(5),
        expected: EntryId(expected),
    };
    let entries = &ledger.entries;
    assert_eq!(missing(&entries[1..]), not_next(0));
    assert_eq!(
        missing(&[entries[0].clone(), entries[2].clone()]),
        not_next(1)
    );
    assert_eq!(missing(&entries[..3]), not_next(3));
    let twice = [&entries[..1], &entries[..1]].concat();
    assert_eq!(missing(&twice), not_next(1));
    let another = closed_ledger(LedgerId(5), Offset(10), &[30; 4]);
    let moved = missing(&another.entries);
    assert!(
        matches!(
            moved,
            SegmentError::Offsets {
                found: Offset(10),
                ..
            }
        ),
        "{moved}"
    );
    let stranger = closed_ledger(LedgerId(6), Offset(9), &[30; 4]);
    assert_eq!(missing(&stranger.entries), not_next(0));
    // The same offsets and lengths with other bytes in the middle.
    let other = closed_ledger(LedgerId(5), Offset(9), &[30, 31, 30, 30]);
    let mixed = [&entries[..1], &other.entries[1..2], &entries[2..]].concat();
    assert_eq!(
        missing(&mixed),
        SegmentError::Totals {
            ledger: LedgerId(5)
        }
    );
}

#[test]
fn ledger_that_was_closed_with_other_totals_is_refused() {
    let whole = closed_ledger(LedgerId(5), Offset(0), &[30; 4]);
    let changes: [fn(&mut hulse_proto::ledger::ClosedTotals); 4] = [
        |totals| totals.bytes += 1,
        |totals| totals.digest ^= 1,
        |totals| totals.record_count += 1,
        |totals| totals.offset_span += 1,
    ];
    for change in changes {
        let mut ledger = whole.clone();
        change(ledger.metadata.closed.as_mut().unwrap());
        let (mut writer, mut out) = (SegmentWriter::new(SEGMENT, 100), Vec::new());
        writer.begin(plan(&ledger)).unwrap();
        ledger
            .entries
            .iter()
            .for_each(|entry| writer.push(entry, &mut out).unwrap());
        assert_eq!(
            writer.end(&mut out),
            Err(SegmentError::Totals {
                ledger: LedgerId(5)
            })
        );
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn roundtrip_gives_every_entry_back(
        bodies in proptest::collection::vec(proptest::collection::vec(0_usize..3000, 1..20), 1..6),
        block_bytes in 1_usize..8000,
    ) {
        let ledgers = bodies.iter().zip(1..).map(|(bodies, number)| {
            closed_ledger(LedgerId(number * 3), Offset(number * 1000), bodies)
        });
        let ledgers: Vec<ClosedLedger> = ledgers.collect();
        let (object, written) = write(&ledgers, block_bytes);
        prop_assert_eq!(written.object_bytes, object.len() as u64);
        let directory = directory(&object);
        prop_assert_eq!(&directory, &written.directory);
        for ledger in &ledgers {
            let (index, entries) = read(&object, directory.row(ledger.ledger).unwrap());
            prop_assert!(same(&entries, &ledger.entries));
            prop_assert_eq!(Some(index.head.totals), ledger.metadata.closed);
        }
    }

    #[test]
    fn decode_rejects_every_flip(at in any::<prop::sample::Index>(), bit in 0_u8..8) {
        let golden = Bytes::from_static(GOLDEN);
        let at = at.index(golden.len());
        let mut bytes = golden.to_vec();
        bytes[at] ^= 1 << bit;
        let flipped = Bytes::from(bytes);
        let whole = directory(&golden);
        let inside = |range: &std::ops::Range<u64>| range.contains(&(at as u64));
        let trailer = golden.len() - TRAILER_BYTES;
        for row in &whole.rows {
            if inside(&row.index()) {
                prop_assert!(Index::decode(&slice(&flipped, row.index())).is_err());
            }
            let index = Index::decode(&slice(&golden, row.index())).unwrap();
            for block in index.blocks {
                let range = block.at..block.at + u64::from(block.bytes);
                if inside(&range) {
                    prop_assert!(Block::decode(slice(&flipped, range)).is_err());
                }
            }
        }
        if at >= trailer {
            prop_assert!(Trailer::decode(&flipped[trailer..]).is_err());
        }
    }

    #[test]
    fn decode_rejects_lengths_that_are_cut(cut in 1_usize..200) {
        let golden = Bytes::from_static(GOLDEN);
        let row = directory(&golden).rows[0];
        let bytes = slice(&golden, row.index());
        let cut = cut.min(bytes.len());
        prop_assert!(Index::decode(&bytes[..bytes.len() - cut]).is_err());
        prop_assert!(Block::decode(golden.slice(..golden.len() - cut)).is_err());
        let start = golden.len() - TRAILER_BYTES + cut.min(TRAILER_BYTES);
        prop_assert!(Trailer::decode(&golden[start..]).is_err());
    }
}
