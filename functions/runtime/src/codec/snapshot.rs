//! Snapshots: a frame around epoch `u64`, tables `u16`, chunks `u32`, each: table `u16`, length `u32`, rows by the table's codec.

use std::sync::Arc;

use bytes::Bytes;
use hulse_proto::entry::crc32c;

use super::changelog::Pointer;
use super::frame::{Frame, FrameKind};
use super::{CodecError, Reader};
use crate::id::Fingerprint;
use crate::state::{RowChange, RowCodec, State, StateDelta};

/// Rows of one chunk.
const CHUNK_ROWS: usize = 8192;
/// Bytes of a chunk before its rows.
const CHUNK_HEAD_BYTES: usize = 6;

/// Codecs of a function's tables, by number.
pub type RowCodecs = Vec<Arc<dyn RowCodec>>;

/// A decoded snapshot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Snapshot {
    /// The state is that after this epoch.
    pub epoch: u64,
    /// Written by this function.
    pub fingerprint: Fingerprint,
    /// The rows.
    pub state: State,
}

impl Snapshot {
    /// Encodes one.
    ///
    /// # Errors
    /// [`CodecError`]: a row is not its table's, or the state has 4 GiB or more.
    pub fn encode(&self, codecs: &RowCodecs) -> Result<Bytes, CodecError> {
        let mut chunks = Vec::new();
        for (number, codec) in (0u16..).zip(codecs) {
            let mut rows = self.state.table(usize::from(number)).iter();
            loop {
                let some: Vec<RowChange> = rows
                    .by_ref()
                    .take(CHUNK_ROWS)
                    .map(|(key, value)| (key.clone(), Some(value.clone())))
                    .collect();
                if some.is_empty() {
                    break;
                }
                chunks.push((number, codec.encode(&some)?));
            }
        }
        let too_long = |bytes: usize| CodecError::TooLong { bytes };
        let mut body = Vec::new();
        body.extend(self.epoch.to_le_bytes());
        let tables = u16::try_from(codecs.len()).map_err(|_| too_long(codecs.len()))?;
        body.extend(tables.to_le_bytes());
        let count = u32::try_from(chunks.len()).map_err(|_| too_long(chunks.len()))?;
        body.extend(count.to_le_bytes());
        for (number, rows) in chunks {
            body.extend(number.to_le_bytes());
            let length = u32::try_from(rows.len()).map_err(|_| too_long(rows.len()))?;
            body.extend(length.to_le_bytes());
            body.extend_from_slice(&rows);
        }
        let frame = Frame {
            kind: FrameKind::Snapshot,
            fingerprint: self.fingerprint,
            body: body.into(),
        };
        frame.encode()
    }

    /// Decodes one.
    ///
    /// # Errors
    /// [`CodecError`]; `Field` also when it has other tables than there are codecs, or holds a deletion.
    pub fn decode(bytes: &Bytes, codecs: &RowCodecs) -> Result<Self, CodecError> {
        let frame = Frame::decode(bytes)?;
        if frame.kind != FrameKind::Snapshot {
            return Err(field("kind", frame.kind as u64));
        }
        let mut reader = Reader::new(&frame.body);
        let epoch = reader.u64()?;
        let tables = reader.u16()?;
        if usize::from(tables) != codecs.len() {
            return Err(field("tables", tables.into()));
        }
        let mut state = State::new(codecs.len());
        for _ in 0..reader.count(CHUNK_HEAD_BYTES)? {
            let number = reader.u16()?;
            let length = reader.u32()? as usize;
            let rows = reader.bytes(length)?;
            let codec = codecs.get(usize::from(number));
            let codec = codec.ok_or(field("table", number.into()))?;
            let mut delta = StateDelta::default();
            delta.tables.resize_with(codecs.len(), Default::default);
            delta.tables[usize::from(number)] = codec.decode(&rows)?.into_iter().collect();
            let deleted = |table: &crate::state::TableDelta| table.values().any(Option::is_none);
            if delta.tables.iter().any(deleted) {
                return Err(field("deleted row of table", number.into()));
            }
            state.fold(delta);
        }
        reader.end()?;
        Ok(Self {
            epoch,
            fingerprint: frame.fingerprint,
            state,
        })
    }

    /// Decodes the one that a pointer names.
    ///
    /// # Errors
    /// As [`Snapshot::decode`]; also when length, checksum or epoch are not the pointer's.
    pub fn open(bytes: &Bytes, pointer: &Pointer, codecs: &RowCodecs) -> Result<Self, CodecError> {
        if bytes.len() as u64 != pointer.bytes {
            return Err(field("length", bytes.len() as u64));
        }
        let computed = crc32c(bytes);
        if computed != pointer.checksum {
            return Err(CodecError::Checksum {
                found: pointer.checksum,
                computed,
            });
        }
        let snapshot = Self::decode(bytes, codecs)?;
        match snapshot.epoch == pointer.epoch {
            true => Ok(snapshot),
            false => Err(field("epoch", snapshot.epoch)),
        }
    }
}

fn field(field: &'static str, value: u64) -> CodecError {
    CodecError::Field { field, value }
}
