//! Snappy as Kafka has it: one raw block (librdkafka and most others), or the frame of the Java library: 16 bytes of head, then blocks
//! with their lengths in front.
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 8 | magic |
//! | 8 | 4 | version, big-endian |
//! | 12 | 4 | lowest version that reads it |
//! | 16 | 4 | length of a block; the block; and so on |

use super::{BatchError, Compression};
use crate::limits::BATCH_DECOMPRESSED_BYTES_MAX;

/// First bytes of the frame. No raw block begins so: its length would be followed by a copy from before its beginning.
const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
/// Magic and two versions.
const HEAD_BYTES: usize = 16;

/// Unpacks either form; at most [`BATCH_DECOMPRESSED_BYTES_MAX`], and no more than the bytes that are there can become.
///
/// # Errors
/// `DecodedTooLarge`, `Decompress`.
pub(super) fn unpack(packed: &[u8]) -> Result<Vec<u8>, BatchError> {
    let mut out = Vec::new();
    let Some(framed) = packed.strip_prefix(&MAGIC) else {
        block(packed, &mut out)?;
        return Ok(out);
    };
    let mut rest = framed
        .get(HEAD_BYTES - MAGIC.len()..)
        .ok_or_else(|| damaged("the frame's head is cut off"))?;
    while !rest.is_empty() {
        let cut_off = || damaged("a block is cut off");
        let (length, blocks) = rest.split_first_chunk::<4>().ok_or_else(cut_off)?;
        let length = u32::from_be_bytes(*length) as usize;
        let (one, after) = blocks.split_at_checked(length).ok_or_else(cut_off)?;
        block(one, &mut out)?;
        rest = after;
    }
    out.shrink_to_fit();
    Ok(out)
}

/// Appends what one block unpacks to. It names its length, which is believed only as far as its bytes can become so many.
fn block(packed: &[u8], out: &mut Vec<u8>) -> Result<(), BatchError> {
    let length = snap::raw::decompress_len(packed).map_err(damaged)?;
    let max = BATCH_DECOMPRESSED_BYTES_MAX;
    if out.len() + length > max {
        return Err(BatchError::DecodedTooLarge { max });
    }
    if length as u64 > packed.len() as u64 * Compression::Snappy.expansion_max() {
        return Err(damaged("a block names more bytes than it can hold"));
    }
    let begin = out.len();
    out.resize(begin + length, 0);
    let written = snap::raw::Decoder::new()
        .decompress(packed, &mut out[begin..])
        .map_err(damaged)?;
    out.truncate(begin + written);
    Ok(())
}

fn damaged(why: impl std::fmt::Display) -> BatchError {
    Compression::Snappy.damaged(why)
}
