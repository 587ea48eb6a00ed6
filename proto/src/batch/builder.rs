//! Builds a batch record by record, in one growing buffer.
//!
//! The header's place is kept free at the front, so an uncompressed batch is never copied.

use bytes::{BufMut, Bytes};

use super::header::{CRC_START, LENGTH_END};
use super::varint::{len_i64, len_usize, put_i64};
use super::{BATCH_HEADER_BYTES, BatchError, Compression, Header, Record, RecordRef};
use crate::entry::crc32c;
use crate::id::ProducerId;
use crate::limits::{
    BATCH_BYTES_MAX, BATCH_DECOMPRESSED_BYTES_MAX, BATCH_RECORDS_MAX, RECORD_BYTES_MAX,
};

/// First capacity: a batch of one small record needs no second allocation.
const CAPACITY_BYTES_MIN: usize = 1 << 10;
/// Most bytes of a record beside key, value and headers: length, attributes, timestamp, offset and three counts.
const RECORD_FRAME_BYTES_MAX: usize = 5 + 1 + 10 + 5 + 3 * 5;

/// What makes a batch of an idempotent producer its own (serving.md C1).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerStamp {
    /// Not negative.
    pub id: ProducerId,
    /// Not negative.
    pub epoch: i16,
    /// Sequence of the first record.
    pub base_sequence: i32,
}

/// A batch in the making. `push` costs some tens of nanoseconds for a small record and allocates nothing of its own.
#[derive(Debug, Clone)]
pub struct BatchBuilder {
    compression: Compression,
    /// Room for the header, then the records, not yet compressed.
    buffer: Vec<u8>,
    count: u32,
    base_timestamp: i64,
    max_timestamp: i64,
    /// What the batch will take in memory when decoded.
    decoded_bytes: usize,
}

impl BatchBuilder {
    /// An empty batch.
    ///
    /// # Errors
    /// [`BatchError::UnsupportedCompression`] for gzip and snappy.
    pub fn new(compression: Compression) -> Result<Self, BatchError> {
        if !compression.is_supported() {
            return Err(BatchError::UnsupportedCompression(compression));
        }
        Ok(Self::of_any_codec(compression))
    }

    /// An empty batch of any codec, gzip and snappy included: for measurements, and for tests against foreign clients.
    pub fn of_any_codec(compression: Compression) -> Self {
        let mut buffer = Vec::with_capacity(CAPACITY_BYTES_MIN);
        buffer.resize(BATCH_HEADER_BYTES, 0);
        Self {
            compression,
            buffer,
            count: 0,
            base_timestamp: 0,
            max_timestamp: i64::MIN,
            decoded_bytes: 0,
        }
    }

    /// Adds a record; its offset delta is the number of records before it.
    ///
    /// # Errors
    /// [`BatchError::RecordTooLarge`] above [`RECORD_BYTES_MAX`]; [`BatchError::Full`] when the batch is to be built first.
    /// Either way the batch is as before.
    pub fn push(&mut self, record: &RecordRef<'_>) -> Result<(), BatchError> {
        self.push_up_to(record, RECORD_BYTES_MAX)
    }

    /// Adds a record that is stored somewhere already: Kafka's producers may send larger ones than ours ([`BATCH_BYTES_MAX`] holds for a
    /// batch alone), and a copy of one is as large.
    ///
    /// # Errors
    /// [`BatchError::RecordTooLarge`] where it fits in no batch without compression; as [`Self::push`].
    pub fn push_stored(&mut self, record: &RecordRef<'_>) -> Result<(), BatchError> {
        let fits = BATCH_BYTES_MAX - BATCH_HEADER_BYTES - RECORD_FRAME_BYTES_MAX;
        self.push_up_to(record, fits)
    }

    fn push_up_to(&mut self, record: &RecordRef<'_>, bytes_max: usize) -> Result<(), BatchError> {
        let headers_bytes = record.headers.iter().map(header_bytes).sum::<usize>();
        let content_bytes = blob_bytes(record.key) + blob_bytes(record.value);
        let bytes = content_bytes + headers_bytes;
        if bytes > bytes_max {
            return Err(BatchError::RecordTooLarge { bytes });
        }
        let decoded = self.decoded_bytes
            + RECORD_FRAME_BYTES_MAX
            + bytes
            + decoded_bytes(1, record.headers.len());
        if self.count == BATCH_RECORDS_MAX || decoded > BATCH_DECOMPRESSED_BYTES_MAX {
            return Err(BatchError::Full);
        }
        if self.count == 0 {
            self.base_timestamp = record.timestamp;
        }
        self.write(record, bytes);
        self.decoded_bytes = decoded;
        self.max_timestamp = self.max_timestamp.max(record.timestamp);
        self.count += 1;
        Ok(())
    }

    fn write(&mut self, record: &RecordRef<'_>, content_bytes: usize) {
        // Two timestamps may lie further apart than 64 bits: the delta wraps, and decoding wraps it back.
        let timestamp_delta = record.timestamp.wrapping_sub(self.base_timestamp);
        let length = 1
            + len_i64(timestamp_delta)
            + len_usize(self.count as usize)
            + record.key.map_or(1, |key| len_usize(key.len()))
            + record.value.map_or(1, |value| len_usize(value.len()))
            + len_usize(record.headers.len())
            + content_bytes;
        let out = &mut self.buffer;
        out.reserve(length + 5);
        put_i64(out, length as i64);
        out.push(0);
        put_i64(out, timestamp_delta);
        put_i64(out, i64::from(self.count));
        put_blob(out, record.key);
        put_blob(out, record.value);
        put_i64(out, record.headers.len() as i64);
        for header in record.headers {
            put_blob(out, Some(&header.key));
            put_blob(out, header.value.as_deref());
        }
    }

    /// Records so far.
    pub fn count(&self) -> u32 {
        self.count
    }

    /// True before the first record.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Never below the bytes that [`Self::build`] returns; exact without compression, else what incompressible records would take.
    pub fn len_estimate(&self) -> usize {
        let records_bytes = self.buffer.len() - BATCH_HEADER_BYTES;
        BATCH_HEADER_BYTES + self.compression.packed_bytes_max(records_bytes)
    }

    /// The batch, with base offset 0 and leader epoch −1, which the owner replaces.
    ///
    /// # Panics
    /// If the batch is empty: there is nothing to send.
    pub fn build(mut self, producer: Option<ProducerStamp>) -> Bytes {
        assert!(self.count > 0, "an empty batch is not built");
        let mut batch = match self.compression {
            Compression::None => std::mem::take(&mut self.buffer),
            packed => {
                let mut out = Vec::with_capacity(BATCH_HEADER_BYTES + self.buffer.len() / 2);
                out.resize(BATCH_HEADER_BYTES, 0);
                packed.pack(&self.buffer[BATCH_HEADER_BYTES..], &mut out);
                out
            }
        };
        self.write_header(&mut batch, producer);
        batch.into()
    }

    fn write_header(&self, batch: &mut [u8], producer: Option<ProducerStamp>) {
        let producer = producer.unwrap_or(ProducerStamp {
            id: ProducerId::NONE,
            epoch: -1,
            base_sequence: -1,
        });
        let length = (batch.len() - LENGTH_END) as i32;
        let mut checked = &mut batch[CRC_START..BATCH_HEADER_BYTES];
        checked.put_i16(self.compression as i16);
        checked.put_i32(self.count as i32 - 1);
        checked.put_i64(self.base_timestamp);
        checked.put_i64(self.max_timestamp);
        checked.put_i64(producer.id.0);
        checked.put_i16(producer.epoch);
        checked.put_i32(producer.base_sequence);
        checked.put_i32(self.count as i32);
        let crc = crc32c(&batch[CRC_START..]);
        let mut head = &mut batch[..CRC_START];
        head.put_i64(0);
        head.put_i32(length);
        head.put_i32(-1);
        head.put_i8(2);
        head.put_u32(crc);
    }
}

/// Memory that decoded records and headers take beside the bytes they point into.
pub(super) fn decoded_bytes(records: usize, headers: usize) -> usize {
    records * size_of::<Record>() + headers * size_of::<Header>()
}

fn blob_bytes(blob: Option<&[u8]>) -> usize {
    blob.map_or(0, <[u8]>::len)
}

/// A header counts with its lengths, so that empty ones are bounded too.
fn header_bytes(header: &Header) -> usize {
    let value = header.value.as_deref();
    let value_bytes = value.map_or(1, |value| len_usize(value.len()) + value.len());
    len_usize(header.key.len()) + header.key.len() + value_bytes
}

fn put_blob(out: &mut Vec<u8>, blob: Option<&[u8]>) {
    match blob {
        Some(bytes) => {
            put_i64(out, bytes.len() as i64);
            out.extend_from_slice(bytes);
        }
        None => put_i64(out, -1),
    }
}
