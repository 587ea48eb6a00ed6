//! Opens a batch: checks, decompression, records.

use bytes::Bytes;

use super::builder::decoded_bytes;
use super::varint::Cursor;
use super::verify::{RECORD_BYTES_MIN, check_count, exactly_one};
use super::{BATCH_HEADER_BYTES, BatchError, BatchHeader, Compression, Header, Record};
use crate::limits::BATCH_DECOMPRESSED_BYTES_MAX;

/// Shortest header: an empty key and no value.
const HEADER_BYTES_MIN: usize = 2;

/// Every record of the one batch that fills `batch`, in order. Keys, values and headers are slices: of `batch` itself when it is
/// not compressed, else of the decompressed bytes. Control batches decode like others.
///
/// # Errors
/// [`BatchError`]: what the header says, the checksum, the codec, or the first record that cannot be. Memory is bounded by
/// `BATCH_DECOMPRESSED_BYTES_MAX` and four times the batch.
pub fn decode(batch: &Bytes) -> Result<Vec<Record>, BatchError> {
    let (header, records, budget) = open(batch)?;
    Decoder::new(header, &records, budget)?.run()
}

/// The first record that is `wanted` of the one batch that fills `batch`. What stands behind it is not looked at, and what stands
/// before it not kept.
///
/// # Errors
/// Those of [`decode`], as far as it comes.
pub fn find_record(
    batch: &Bytes,
    wanted: impl Fn(&Record) -> bool,
) -> Result<Option<Record>, BatchError> {
    let (header, records, budget) = open(batch)?;
    Decoder::new(header, &records, budget)?.find(wanted)
}

/// Header, unpacked records, and the memory that decoded ones may take.
fn open(batch: &Bytes) -> Result<(BatchHeader, Bytes, Budget), BatchError> {
    let header = exactly_one(batch)?;
    if header.count > header.span() {
        return Err(BatchError::Span {
            count: header.count,
            span: header.span(),
        });
    }
    check_count(&header)?;
    let mut budget = BATCH_DECOMPRESSED_BYTES_MAX + 4 * batch.len();
    let packed = batch.slice(BATCH_HEADER_BYTES..);
    let records = match header.compression()? {
        Compression::None => packed,
        compression => {
            let unpacked = compression.unpack(&packed)?;
            budget = budget.saturating_sub(unpacked.capacity());
            Bytes::from(unpacked)
        }
    };
    Ok((header, records, Budget(budget)))
}

/// Memory that the decoded records may still take.
struct Budget(usize);

impl Budget {
    fn take(&mut self, bytes: usize) -> Result<(), BatchError> {
        let max = BATCH_DECOMPRESSED_BYTES_MAX;
        self.0 = self
            .0
            .checked_sub(bytes)
            .ok_or(BatchError::DecodedTooLarge { max })?;
        Ok(())
    }
}

struct Decoder<'a> {
    header: BatchHeader,
    cursor: Cursor<'a>,
    records: &'a Bytes,
    budget: Budget,
}

impl<'a> Decoder<'a> {
    fn new(header: BatchHeader, records: &'a Bytes, budget: Budget) -> Result<Self, BatchError> {
        let decoder = Self {
            header,
            cursor: Cursor::new(records),
            records,
            budget,
        };
        if header.count as usize * RECORD_BYTES_MIN > decoder.cursor.left() {
            return Err(decoder
                .cursor
                .wrong("more records are claimed than the bytes can hold"));
        }
        Ok(decoder)
    }

    fn run(mut self) -> Result<Vec<Record>, BatchError> {
        let count = self.header.count;
        self.budget.take(decoded_bytes(count as usize, 0))?;
        let mut records = Vec::with_capacity(count as usize);
        let mut next_delta = 0;
        for index in 0..count {
            self.cursor.index = index;
            let record = self.record(next_delta)?;
            next_delta = record.offset_delta + 1;
            records.push(record);
        }
        if self.cursor.left() != 0 {
            return Err(self.cursor.wrong("bytes are left behind the last record"));
        }
        Ok(records)
    }

    fn find(mut self, wanted: impl Fn(&Record) -> bool) -> Result<Option<Record>, BatchError> {
        let mut next_delta = 0;
        for index in 0..self.header.count {
            self.cursor.index = index;
            let record = self.record(next_delta)?;
            if wanted(&record) {
                return Ok(Some(record));
            }
            next_delta = record.offset_delta + 1;
        }
        Ok(None)
    }

    fn record(&mut self, next_delta: u32) -> Result<Record, BatchError> {
        let length = self.cursor.varint()?;
        self.cursor.enter(length)?;
        let _attributes = self.cursor.byte()?;
        let timestamp_delta = self.cursor.varlong()?;
        let offset_delta = u32::try_from(self.cursor.varint()?)
            .ok()
            .filter(|delta| (next_delta..self.header.span()).contains(delta))
            .ok_or_else(|| {
                self.cursor
                    .wrong("its offset does not follow or leaves the batch")
            })?;
        let record = Record {
            offset_delta,
            timestamp: if self.header.is_log_append_time() {
                self.header.max_timestamp
            } else {
                self.header.base_timestamp.wrapping_add(timestamp_delta)
            },
            key: self.blob()?,
            value: self.blob()?,
            headers: self.headers()?,
        };
        self.cursor.leave()?;
        Ok(record)
    }

    fn headers(&mut self) -> Result<Vec<Header>, BatchError> {
        let claimed = self.cursor.varint()?;
        let count = usize::try_from(claimed)
            .ok()
            .filter(|count| *count <= self.cursor.left() / HEADER_BYTES_MIN)
            .ok_or_else(|| self.cursor.wrong("its header count does not fit"))?;
        self.budget.take(decoded_bytes(0, count))?;
        let mut headers = Vec::with_capacity(count);
        for _ in 0..count {
            let key = self
                .blob()?
                .ok_or_else(|| self.cursor.wrong("a header has no key"))?;
            let value = self.blob()?;
            headers.push(Header { key, value });
        }
        Ok(headers)
    }

    fn blob(&mut self) -> Result<Option<Bytes>, BatchError> {
        let range = self.cursor.blob()?;
        Ok(range.map(|range| self.records.slice(range)))
    }
}
