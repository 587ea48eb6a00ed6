//! Segments in object storage: a block with its entries, an index, the directory and the trailer. What a store gives back is as untrusted
//! as a wire.

use bookie_tier::format::{Block, Directory, Index, TRAILER_BYTES, Trailer};
use bytes::Bytes;
use hulse_proto::entry::crc32c;
use hulse_proto::id::{EntryId, Offset};

use crate::seeds::Seeds;

const GOLDEN: &[u8] = include_bytes!("../../bookie/tier/golden/v1/segment");
/// Length of a block's header.
const BLOCK_HEADER: usize = 48;

/// A block and every entry in it.
pub fn block(input: &[u8]) -> bool {
    let Ok(block) = Block::decode(Bytes::copy_from_slice(input)) else {
        return false;
    };
    let header = *block.header();
    assert_eq!(header.block_bytes(), input.len());
    let mut next = header.first;
    for entry in block.entries() {
        let Ok(entry) = entry else {
            return false;
        };
        assert_eq!(
            (entry.header().ledger, entry.header().entry),
            (header.ledger, next)
        );
        next = next.next();
    }
    assert_eq!(next, header.end());
    let mut entries = block.entries();
    assert_eq!(entries.seek(EntryId(u64::MAX)), Ok(()));
    assert!(entries.next().is_none());
    true
}

/// Makes lengths and checksums of the block right again.
pub fn repair_block(input: &mut [u8]) {
    if input.len() < BLOCK_HEADER {
        return;
    }
    let (header, body) = input.split_at_mut(BLOCK_HEADER);
    header[36..40].copy_from_slice(&(body.len() as u32).to_le_bytes());
    header[40..44].copy_from_slice(&crc32c(body).to_le_bytes());
    let crc = crc32c(&header[..44]);
    header[44..48].copy_from_slice(&crc.to_le_bytes());
}

/// An index, and that every look-up stays inside.
pub fn index(input: &[u8]) -> bool {
    let Ok(index) = Index::decode(input) else {
        return false;
    };
    assert_eq!(index.encode().as_deref(), Ok(input));
    let blocks = index.blocks.len();
    for (number, row) in index.blocks.iter().enumerate() {
        assert_eq!(index.block_of(row.first), Some(number));
        assert!(row.first < index.end_of(number));
    }
    for found in [
        index.block_of(EntryId(u64::MAX)),
        index.block_of_offset(Offset(u64::MAX)),
        index.block_of_offset(index.head.base_offset),
        index.block_at_time(0),
    ] {
        assert!(found.is_none_or(|found| found < blocks));
    }
    assert!(index.place().start < index.place().end);
    true
}

/// A directory.
pub fn directory(input: &[u8]) -> bool {
    let Ok(directory) = Directory::decode(input) else {
        return false;
    };
    assert_eq!(directory.encode().as_deref(), Ok(input));
    for row in &directory.rows {
        assert_eq!(directory.row(row.ledger), Some(row));
        assert!(row.index().start < row.index().end || row.index_bytes == 0);
    }
    true
}

/// Makes the checksum at the end right again.
pub fn repair_sealed(input: &mut [u8]) {
    if let Some(end) = input.len().checked_sub(4) {
        let crc = crc32c(&input[..end]);
        input[end..].copy_from_slice(&crc.to_le_bytes());
    }
}

/// The trailer.
pub fn trailer(input: &[u8]) -> bool {
    let Ok(trailer) = Trailer::decode(input) else {
        return false;
    };
    assert_eq!(Trailer::decode(&trailer.encode()), Ok(trailer));
    assert!(trailer.directory_at < trailer.object_bytes);
    true
}

/// Makes the trailer's checksum right again.
pub fn repair_trailer(input: &mut [u8]) {
    if input.len() == TRAILER_BYTES {
        let crc = crc32c(&input[..44]);
        input[44..48].copy_from_slice(&crc.to_le_bytes());
    }
}

fn parts() -> (Trailer, Vec<u8>, Directory) {
    let trailer = Trailer::decode(&GOLDEN[GOLDEN.len() - TRAILER_BYTES..]);
    let trailer = trailer.expect("the golden segment ends with one");
    let at = trailer.directory_at as usize;
    let bytes = GOLDEN[at..at + trailer.directory_bytes as usize].to_vec();
    let directory = Directory::decode(&bytes).expect("the golden segment has one");
    (trailer, bytes, directory)
}

fn index_bytes(ledger: usize) -> Vec<u8> {
    let range = parts().2.rows[ledger].index();
    GOLDEN[range.start as usize..range.end as usize].to_vec()
}

/// Blocks of the golden segment.
pub fn blocks() -> Seeds {
    let index = Index::decode(&index_bytes(0)).expect("the golden segment has one");
    let block = |number: usize| {
        let row = index.blocks[number];
        GOLDEN[row.at as usize..][..row.bytes as usize].to_vec()
    };
    vec![("data", block(0)), ("control", block(1))]
}

/// Its indexes.
pub fn indexes() -> Seeds {
    vec![("aborted", index_bytes(0)), ("plain", index_bytes(1))]
}

/// Its directory.
pub fn directories() -> Seeds {
    vec![("two", parts().1)]
}

/// Its trailer.
pub fn trailers() -> Seeds {
    vec![("golden", parts().0.encode().to_vec())]
}
