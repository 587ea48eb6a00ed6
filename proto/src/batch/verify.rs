//! Checks of a batch as a whole, without opening it.

use super::header::CRC_START;
use super::{BATCH_HEADER_BYTES, BatchError, BatchHeader};
use crate::entry::crc32c;
use crate::limits::BATCH_RECORDS_MAX;

/// Shortest record: length, attributes, timestamp, offset, key, value and header count of one byte each.
pub(super) const RECORD_BYTES_MIN: usize = 7;

/// Checks what a producer sent (serving.md C2, check 2): exactly one batch fills `bytes` and is at most `max_bytes` long, magic,
/// CRC32C, as many offsets as records, a count that is allowed and that the bytes can hold, no control batch, a known
/// codec, timestamps and producer fields that fit together. Whether a transaction is open is the owner's question.
///
/// # Errors
/// [`BatchError`], whose `reason()` goes to the producer. Nothing is allocated.
pub fn verify_produced(bytes: &[u8], max_bytes: usize) -> Result<BatchHeader, BatchError> {
    // The size goes first: a checksum over too many bytes is work for nothing.
    if bytes.len() > max_bytes {
        return Err(BatchError::TooLarge {
            bytes: bytes.len(),
            max: max_bytes,
        });
    }
    let header = exactly_one(bytes)?;
    if header.is_control() {
        return Err(BatchError::Control);
    }
    if header.count == 0 {
        return Err(BatchError::Field {
            field: "record count",
            found: 0,
            why: "a produced batch has at least one record",
        });
    }
    if header.span() != header.count {
        return Err(BatchError::Span {
            count: header.count,
            span: header.span(),
        });
    }
    check_count(&header)?;
    if header.max_timestamp < header.base_timestamp {
        return Err(BatchError::Field {
            field: "maximum timestamp",
            found: header.max_timestamp,
            why: "must not be below the first record's",
        });
    }
    check_producer(&header)?;
    Ok(header)
}

/// Checks header and CRC32C of the batch at the start of `bytes`, which may go on behind it.
///
/// # Errors
/// Those of [`BatchHeader::view`], and [`BatchError::Crc`].
pub fn verify_crc(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    let header = BatchHeader::view(bytes)?;
    let computed = crc32c(&bytes[CRC_START..header.length as usize]);
    if computed != header.crc {
        return Err(BatchError::Crc {
            found: header.crc,
            computed,
        });
    }
    Ok(header)
}

/// As [`verify_crc`], and nothing stands behind the batch.
pub(super) fn exactly_one(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    let header = BatchHeader::view(bytes)?;
    if bytes.len() != header.length as usize {
        return Err(BatchError::Trailing {
            found: bytes.len(),
            length: header.length as usize,
        });
    }
    verify_crc(bytes)
}

/// Bounds the count by the limit and by what the bytes could hold at the codec's greatest expansion.
pub(super) fn check_count(header: &BatchHeader) -> Result<(), BatchError> {
    let count = header.count;
    if count > BATCH_RECORDS_MAX {
        return Err(BatchError::Count { count });
    }
    let compression = header.compression()?;
    let bytes = header.length as usize - BATCH_HEADER_BYTES;
    let room = bytes as u64 * compression.expansion_max();
    if u64::from(count) * RECORD_BYTES_MIN as u64 > room {
        return Err(BatchError::Implausible {
            count,
            bytes,
            compression,
        });
    }
    Ok(())
}

fn check_producer(header: &BatchHeader) -> Result<(), BatchError> {
    let why = match header.producer_id.0 {
        ..=-2 => "a producer id is -1 or not negative",
        -1 if header.is_transactional() => "a transactional batch needs a producer id",
        -1 => return Ok(()),
        _ if header.producer_epoch < 0 => "a producer id needs an epoch",
        _ if header.base_sequence < 0 => "a producer id needs a sequence",
        _ => return Ok(()),
    };
    Err(BatchError::Producer {
        id: header.producer_id.0,
        epoch: header.producer_epoch,
        base_sequence: header.base_sequence,
        why,
    })
}
