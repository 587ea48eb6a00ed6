//! Fixtures: the records of the golden batches, and batches that are wrong in one place only.

use bytes::Bytes;

use super::super::*;
use crate::entry::crc32c;

pub(super) const SUPPORTED: [Compression; 3] =
    [Compression::None, Compression::Lz4, Compression::Zstd];

pub(super) fn unhex(text: &str) -> Bytes {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pairs = digits
        .chunks(2)
        .map(|pair| std::str::from_utf8(pair).unwrap());
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).unwrap())
        .collect()
}

pub(super) fn blob(bytes: &'static [u8]) -> Option<Bytes> {
    Some(Bytes::from_static(bytes))
}

pub(super) fn header(key: &'static str, value: Option<&'static [u8]>) -> Header {
    Header {
        key: Bytes::from_static(key.as_bytes()),
        value: value.map(Bytes::from_static),
    }
}

pub(super) fn record(
    offset_delta: u32,
    timestamp: i64,
    key: Option<Bytes>,
    value: Option<Bytes>,
) -> Record {
    Record {
        offset_delta,
        timestamp,
        key,
        value,
        headers: Vec::new(),
    }
}

/// What every golden batch holds; the offsets have a gap in one.
pub(super) fn golden_records(gap: u32) -> Vec<Record> {
    let mut with_headers = record(5 + gap, 1_700_000_009_999, blob(b"headers"), blob(b"h"));
    with_headers.headers = vec![
        header("trace", Some(b"1")),
        header("trace", Some(b"2")),
        header("absent", None),
        header("", Some(b"")),
    ];
    let mut repetitive = record(6 + gap, 1_700_000_000_127, blob(&[0, 255, 128]), None);
    repetitive.value = Some("hulse ".repeat(50).into());
    repetitive.headers = vec![header("trace", Some(b"1"))];
    vec![
        record(0, 1_700_000_000_123, blob(b"key-0"), blob(b"value-0")),
        record(1, 1_700_000_000_124, None, blob(b"null key")),
        record(2, 1_700_000_000_125, blob(b"null value"), None),
        record(3 + gap, 1_700_000_000_126, None, None),
        record(4 + gap, 1_700_000_000_000, blob(b""), blob(b"")),
        with_headers,
        repetitive,
    ]
}

pub(super) fn build(
    compression: Compression,
    records: &[Record],
    producer: Option<ProducerStamp>,
) -> Bytes {
    let mut builder = BatchBuilder::new(compression).unwrap();
    records
        .iter()
        .for_each(|record| builder.push(&record.view()).unwrap());
    assert_eq!(builder.count() as usize, records.len());
    let estimate = builder.len_estimate();
    let batch = builder.build(producer);
    assert!(
        batch.len() <= estimate,
        "{} bytes, estimated {estimate}",
        batch.len()
    );
    batch
}

/// Makes length and checksum right again, so that only what a test changed is wrong.
pub(super) fn resealed(mut batch: Vec<u8>) -> Bytes {
    let length = batch.len() as i32 - 12;
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch.into()
}

/// A sealed batch with this header and these bytes instead of its records.
pub(super) fn with_records(compression: Compression, count: i32, records: &[u8]) -> Bytes {
    let mut batch = build(Compression::None, &golden_records(0), None)[..61].to_vec();
    batch[21..23].copy_from_slice(&(compression as i16).to_be_bytes());
    batch[23..27].copy_from_slice(&(count - 1).to_be_bytes());
    batch[57..61].copy_from_slice(&count.to_be_bytes());
    batch.extend_from_slice(records);
    resealed(batch)
}
