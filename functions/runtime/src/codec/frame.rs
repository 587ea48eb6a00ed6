//! The frame around each piece.
//!
//! | bytes | field |
//! |---|---|
//! | 0..4 | magic `HFN1` |
//! | 4 | version, 1 |
//! | 5 | kind: 1 delta, 2 meta, 3 pointer, 4 snapshot |
//! | 6..8 | 0 |
//! | 8..16 | fingerprint of the function |
//! | 16..20 | length of the body |
//! | 20..24 | CRC32C of bytes 0..20 and the body |
//! | 24.. | body |

use bytes::Bytes;
use hulse_proto::entry::Crc32c;

use super::{CodecError, Reader};
use crate::id::Fingerprint;

/// `HFN1`, little endian.
pub const MAGIC: u32 = u32::from_le_bytes(*b"HFN1");
/// The version that is written and read.
pub const VERSION: u8 = 1;
/// Bytes before the body.
pub const FRAME_BYTES: usize = 24;
const CHECKSUM_AT: usize = 20;

/// What a frame holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// Changed rows of one table.
    Delta = 1,
    /// End of an epoch: offsets, watermarks, counters.
    Meta = 2,
    /// Where a snapshot lies.
    Pointer = 3,
    /// A whole state.
    Snapshot = 4,
}

/// A checked frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// Of this kind.
    pub kind: FrameKind,
    /// Written by this function.
    pub fingerprint: Fingerprint,
    /// What it holds.
    pub body: Bytes,
}

impl Frame {
    /// Encodes it.
    ///
    /// # Errors
    /// `TooLong`: the body is 4 GiB or more.
    pub fn encode(&self) -> Result<Bytes, CodecError> {
        let length = u32::try_from(self.body.len()).map_err(|_| CodecError::TooLong {
            bytes: self.body.len(),
        })?;
        let mut out = Vec::with_capacity(FRAME_BYTES + self.body.len());
        out.extend(MAGIC.to_le_bytes());
        out.extend([VERSION, self.kind as u8, 0, 0]);
        out.extend(self.fingerprint.0.to_le_bytes());
        out.extend(length.to_le_bytes());
        let checksum = checksum(&out, &self.body);
        out.extend(checksum.to_le_bytes());
        out.extend_from_slice(&self.body);
        Ok(out.into())
    }

    /// Decodes one that fills `bytes`.
    ///
    /// # Errors
    /// [`CodecError`]: not a frame, of another version, damaged, cut, or followed by something.
    pub fn decode(bytes: &Bytes) -> Result<Self, CodecError> {
        let mut reader = Reader::new(bytes);
        let magic = reader.u32()?;
        if magic != MAGIC {
            return Err(CodecError::Magic { found: magic });
        }
        let version = reader.u8()?;
        if version != VERSION {
            return Err(CodecError::Version {
                found: version,
                supported: VERSION,
            });
        }
        let kind = reader.u8()?;
        let reserved = reader.u16()?;
        let fingerprint = Fingerprint(reader.u64()?);
        let length = reader.u32()? as usize;
        let found = reader.u32()?;
        let body = reader.bytes(length)?;
        reader.end()?;
        let computed = checksum(&bytes[..CHECKSUM_AT], &body);
        if found != computed {
            return Err(CodecError::Checksum { found, computed });
        }
        let kind = match (kind, reserved) {
            (1, 0) => FrameKind::Delta,
            (2, 0) => FrameKind::Meta,
            (3, 0) => FrameKind::Pointer,
            (4, 0) => FrameKind::Snapshot,
            _ => {
                let value = u64::from(kind) | u64::from(reserved) << 8;
                return Err(CodecError::Field {
                    field: "kind",
                    value,
                });
            }
        };
        Ok(Self {
            kind,
            fingerprint,
            body,
        })
    }
}

fn checksum(head: &[u8], body: &[u8]) -> u32 {
    let mut crc = Crc32c::default();
    crc.update(head);
    crc.update(body);
    crc.finish()
}

/// Makes length and checksum of a frame right again: for whoever damages frames on purpose.
#[cfg(any(test, feature = "testing"))]
pub fn repair(frame: &mut [u8]) {
    if frame.len() >= FRAME_BYTES {
        let length = (frame.len() - FRAME_BYTES) as u32;
        frame[CHECKSUM_AT - 4..CHECKSUM_AT].copy_from_slice(&length.to_le_bytes());
        let (head, body) = frame.split_at(FRAME_BYTES);
        let checksum = checksum(&head[..CHECKSUM_AT], body);
        frame[CHECKSUM_AT..FRAME_BYTES].copy_from_slice(&checksum.to_le_bytes());
    }
}
