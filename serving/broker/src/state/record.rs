//! The body of a META entry.
//!
//! | at | bytes | field |
//! |---|---|---|
//! | 0 | 1 | version (1) |
//! | 1 | 1 | kind: 0 delta, 1 snapshot chunk |
//! | 2 | 16 | topic uuid |
//! | 18 | 4 | partition |
//! | 22 | 4 | leader epoch of the writer |
//! | 26 | 8 | delta: its number in the state, from 1; chunk: number of the last delta in the snapshot (state_applied) |
//! | 34 | 8 | chunk only: end offset of the log in the snapshot (log_applied) |
//! | 42 | 4 | chunk only: index |
//! | 46 | 4 | chunk only: count |
//! | … | | the delta, or the chunk's part of the snapshot |
//!
//! Little-endian. The entry's checksums cover it. Version 1 is frozen, with all that its deltas and snapshots say.

use bytes::{Buf, BufMut, Bytes, BytesMut};
use hulse_proto::id::{Offset, OwnerEpoch, PartitionId, TopicId};

/// The version that is written, and the only one that is read.
const FORMAT_VERSION: u8 = 1;
const DELTA_HEADER_BYTES: usize = 34;
const CHUNK_HEADER_BYTES: usize = 50;
/// Most chunks of one snapshot (1 GiB).
pub(crate) const CHUNKS_MAX: u32 = 1024;

/// A META entry's body, decoded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MetaRecord {
    /// Whose state it is.
    pub partition: PartitionId,
    /// Which owner wrote it.
    pub epoch: OwnerEpoch,
    /// Delta or chunk.
    pub kind: MetaRecordKind,
}

/// What a META entry holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MetaRecordKind {
    /// One change.
    Delta {
        /// From 1, dense.
        number: u64,
        /// Encoded by the state.
        bytes: Bytes,
    },
    /// A part of a snapshot.
    Chunk {
        /// End offset of the log in it.
        log_applied: Offset,
        /// Number of the last delta in it.
        state_applied: u64,
        /// From 0.
        index: u32,
        /// At least 1.
        count: u32,
        /// The part.
        bytes: Bytes,
    },
}

/// Why bytes are not what they should be.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// Too short.
    #[error("record is cut off: {found} bytes of at least {expected}")]
    CutOff {
        /// There.
        found: usize,
        /// Needed.
        expected: usize,
    },
    /// Another version.
    #[error("record has format version {0}; this build reads version {FORMAT_VERSION}")]
    Version(u8),
    /// A field that cannot be.
    #[error("record field {field} cannot be {found}")]
    Field {
        /// Which.
        field: &'static str,
        /// What.
        found: u64,
    },
}

impl From<serving_groups::RecordError> for RecordError {
    fn from(error: serving_groups::RecordError) -> Self {
        match error {
            serving_groups::RecordError::CutOff { found, expected } => {
                Self::CutOff { found, expected }
            }
            serving_groups::RecordError::Version(version) => Self::Version(version),
            serving_groups::RecordError::Field { field, found } => Self::Field { field, found },
        }
    }
}

impl MetaRecord {
    /// The bytes.
    pub fn encode(&self) -> Bytes {
        let mut out = BytesMut::with_capacity(CHUNK_HEADER_BYTES);
        out.put_u8(FORMAT_VERSION);
        out.put_u8(matches!(self.kind, MetaRecordKind::Chunk { .. }).into());
        out.put_slice(self.partition.topic.0.as_bytes());
        out.put_u32_le(self.partition.index);
        out.put_u32_le(self.epoch.0);
        match &self.kind {
            MetaRecordKind::Delta { number, bytes } => {
                out.put_u64_le(*number);
                out.put_slice(bytes);
            }
            MetaRecordKind::Chunk {
                log_applied,
                state_applied,
                index,
                count,
                bytes,
            } => {
                out.put_u64_le(*state_applied);
                out.put_u64_le(log_applied.0);
                out.put_u32_le(*index);
                out.put_u32_le(*count);
                out.put_slice(bytes);
            }
        }
        out.freeze()
    }

    /// Reads a body.
    ///
    /// # Errors
    /// [`RecordError`]; nothing is allocated.
    pub fn decode(body: &Bytes) -> Result<Self, RecordError> {
        if body.len() < DELTA_HEADER_BYTES {
            return Err(RecordError::CutOff {
                found: body.len(),
                expected: DELTA_HEADER_BYTES,
            });
        }
        let mut rest = &body[..];
        let version = rest.get_u8();
        if version != FORMAT_VERSION {
            return Err(RecordError::Version(version));
        }
        let kind = rest.get_u8();
        let topic = TopicId(uuid::Uuid::from_u128(rest.get_u128()));
        let partition = PartitionId {
            topic,
            index: rest.get_u32_le(),
        };
        let epoch = OwnerEpoch(rest.get_u32_le());
        let number = rest.get_u64_le();
        let kind = match kind {
            0 => MetaRecordKind::Delta {
                number,
                bytes: body.slice(DELTA_HEADER_BYTES..),
            },
            1 if body.len() < CHUNK_HEADER_BYTES => {
                return Err(RecordError::CutOff {
                    found: body.len(),
                    expected: CHUNK_HEADER_BYTES,
                });
            }
            1 => {
                let log_applied = Offset(rest.get_u64_le());
                let (index, count) = (rest.get_u32_le(), rest.get_u32_le());
                if count == 0 || count > CHUNKS_MAX || index >= count {
                    return Err(RecordError::Field {
                        field: "chunk count",
                        found: u64::from(count),
                    });
                }
                let bytes = body.slice(CHUNK_HEADER_BYTES..);
                MetaRecordKind::Chunk {
                    log_applied,
                    state_applied: number,
                    index,
                    count,
                    bytes,
                }
            }
            other => {
                return Err(RecordError::Field {
                    field: "kind",
                    found: u64::from(other),
                });
            }
        };
        Ok(Self {
            partition,
            epoch,
            kind,
        })
    }
}

pub(super) fn need(bytes: &[u8], len: usize) -> Result<(), RecordError> {
    if bytes.len() < len {
        Err(RecordError::CutOff {
            found: bytes.len(),
            expected: len,
        })
    } else {
        Ok(())
    }
}
