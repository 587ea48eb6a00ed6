//! How the rows of a table are written down. An operator whose rows in memory promise nothing to the next version (rows of Arrow's
//! row format, say) brings its own codec.

use bytes::Bytes;

use crate::codec::{CodecError, Reader};

/// A changed row: its key and its new value, or none if it was deleted.
pub type RowChange = (Bytes, Option<Bytes>);

/// Writes and reads changes of the rows of one table. Chunks of both deltas and snapshots are made of it.
pub trait RowCodec: Send + Sync {
    /// Encodes rows. What one version wrote each later one reads, or the fingerprint of the operator changes.
    ///
    /// # Errors
    /// [`CodecError`] if a row is not one of this table: a defect of the operator.
    fn encode(&self, rows: &[RowChange]) -> Result<Bytes, CodecError>;

    /// Decodes what [`RowCodec::encode`] wrote. The input is checked: it comes from a log or an object store.
    ///
    /// # Errors
    /// [`CodecError`] that says what is wrong. Nothing large is allocated before lengths are checked.
    fn decode(&self, bytes: &Bytes) -> Result<Vec<RowChange>, CodecError>;
}

/// Rows that are bytes anyway: count, then per row the length of the key, the key, 1 + the length of the value (0: deleted), the
/// value. Lengths are `u32`, little endian.
#[derive(Debug, Clone, Copy, Default)]
pub struct PlainRows;

/// Two lengths.
const ROW_BYTES_MIN: usize = 8;

impl RowCodec for PlainRows {
    fn encode(&self, rows: &[RowChange]) -> Result<Bytes, CodecError> {
        let mut out = Vec::new();
        out.extend(length(rows.len())?.to_le_bytes());
        for (key, value) in rows {
            out.extend(length(key.len())?.to_le_bytes());
            out.extend_from_slice(key);
            let tag = value
                .as_ref()
                .map_or(Ok(0), |value| length(value.len() + 1))?;
            out.extend(tag.to_le_bytes());
            out.extend_from_slice(value.as_deref().unwrap_or_default());
        }
        Ok(out.into())
    }

    fn decode(&self, bytes: &Bytes) -> Result<Vec<RowChange>, CodecError> {
        let mut reader = Reader::new(bytes);
        let count = reader.count(ROW_BYTES_MIN)?;
        let mut rows = Vec::with_capacity(count);
        for _ in 0..count {
            let key = reader.u32()? as usize;
            let key = reader.bytes(key)?;
            let tag = reader.u32()? as usize;
            let value = tag.checked_sub(1).map(|value| reader.bytes(value));
            rows.push((key, value.transpose()?));
        }
        reader.end()?;
        Ok(rows)
    }
}

fn length(value: usize) -> Result<u32, CodecError> {
    u32::try_from(value).map_err(|_| CodecError::TooLong { bytes: value })
}
