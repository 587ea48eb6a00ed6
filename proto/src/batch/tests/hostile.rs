//! Limits of the builder, bombs, and records that contradict themselves.

use bytes::Bytes;

use super::super::*;
use super::support::*;
use crate::error::Reason;
use crate::limits::RECORD_BYTES_MAX;

#[test]
fn record_at_the_limit_is_taken_and_above_it_refused() {
    let value = vec![b'x'; RECORD_BYTES_MAX];
    let mut builder = BatchBuilder::new(Compression::None).unwrap();
    let mut record = RecordRef {
        timestamp: 0,
        key: None,
        value: Some(&value),
        headers: &[],
    };
    builder.push(&record).unwrap();
    record.key = Some(b"k");
    let error = builder.push(&record).unwrap_err();
    assert_eq!(
        error,
        BatchError::RecordTooLarge {
            bytes: RECORD_BYTES_MAX + 1
        }
    );
    assert_eq!(
        decode(&builder.build(None)).unwrap().len(),
        1,
        "the refused record left no trace"
    );
}

#[test]
fn full_builder_refuses_and_what_it_holds_decodes() {
    let empty = RecordRef {
        timestamp: 0,
        key: None,
        value: None,
        headers: &[],
    };
    for (record, compression) in [
        (empty, Compression::Zstd),
        (
            RecordRef {
                value: Some(&[0; 999]),
                ..empty
            },
            Compression::Lz4,
        ),
        (
            RecordRef {
                headers: &[const {
                    Header {
                        key: Bytes::new(),
                        value: None,
                    }
                }; 99],
                ..empty
            },
            Compression::None,
        ),
    ] {
        let mut builder = BatchBuilder::new(compression).unwrap();
        let refusal = loop {
            match builder.push(&record) {
                Ok(()) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(refusal, BatchError::Full);
        let count = builder.count() as usize;
        assert!(count > 6_000, "{count}");
        assert_eq!(decode(&builder.build(None)).unwrap().len(), count);
    }
}

#[test]
fn bombs_are_refused_before_they_take_memory() {
    let zeros = vec![0; (64 << 20) + 1];
    for compression in [Compression::Lz4, Compression::Zstd] {
        let mut packed = Vec::new();
        compression.pack(&zeros, &mut packed);
        let error = decode(&with_records(compression, 1, &packed)).unwrap_err();
        assert_eq!(error, BatchError::DecodedTooLarge { max: 64 << 20 });
        assert_eq!(error.reason(), Reason::BatchTooLarge);
    }
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::fast());
    std::io::Write::write_all(&mut gzip, &zeros).unwrap();
    let gzip = gzip.finish().unwrap();
    let error = decode(&with_records(Compression::Gzip, 1, &gzip)).unwrap_err();
    assert_eq!(error, BatchError::DecodedTooLarge { max: 64 << 20 });
    let block = snap::raw::Encoder::new().compress_vec(&zeros).unwrap();
    let error = decode(&with_records(Compression::Snappy, 1, &block)).unwrap_err();
    assert_eq!(error, BatchError::DecodedTooLarge { max: 64 << 20 });
    // Many blocks that are each within the limit and together beyond it.
    let block = snap::raw::Encoder::new()
        .compress_vec(&zeros[..1 << 20])
        .unwrap();
    let mut frame = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
    for _ in 0..65 {
        frame.extend((block.len() as u32).to_be_bytes());
        frame.extend(&block);
    }
    let error = decode(&with_records(Compression::Snappy, 1, &frame)).unwrap_err();
    assert_eq!(error, BatchError::DecodedTooLarge { max: 64 << 20 });
    // One record of two million headers that take two bytes each in the batch and 64 in memory.
    let count = 2 << 20;
    let mut record = vec![0, 0, 0, 1, 1];
    varint::put_i64(&mut record, count);
    record.extend([0, 1].repeat(count as usize));
    let mut records = Vec::new();
    varint::put_i64(&mut records, record.len() as i64);
    records.extend(record);
    let error = decode(&with_records(Compression::None, 1, &records)).unwrap_err();
    assert_eq!(error, BatchError::DecodedTooLarge { max: 64 << 20 });
}

#[test]
fn decode_rejects_records_that_contradict_themselves() {
    // Length, attributes, timestamp, offset, key (absent), value (absent), headers (none).
    let good = [12, 0, 0, 0, 1, 1, 0];
    assert!(decode(&with_records(Compression::None, 1, &good)).is_ok());
    for (at, byte, words) in [
        (0, 14, "length does not fit"),
        (0, 13, "length does not fit"),
        (0, 10, "cut off"),
        (3, 1, "offset"),
        (3, 2, "offset"),
        (4, 3, "length that does not fit"),
        (4, 8, "length that does not fit"),
        (6, 1, "header count"),
        (6, 2, "header count"),
    ] {
        let mut bytes = good;
        bytes[at] = byte;
        let error = decode(&with_records(Compression::None, 1, &bytes)).unwrap_err();
        assert!(error.to_string().contains(words), "{at} {byte}: {error}");
        assert_eq!(error.reason(), Reason::BatchCorrupt);
    }
    let longer = [&good[..], &[0]].concat();
    let error = decode(&with_records(Compression::None, 1, &longer)).unwrap_err();
    assert!(
        error.to_string().contains("behind the last record"),
        "{error}"
    );
    let mut roomy = longer;
    roomy[0] = 14;
    let error = decode(&with_records(Compression::None, 1, &roomy)).unwrap_err();
    assert!(error.to_string().contains("behind its headers"), "{error}");
    let keyless = [16, 0, 0, 0, 1, 1, 2, 1, 1];
    let error = decode(&with_records(Compression::None, 1, &keyless)).unwrap_err();
    assert!(error.to_string().contains("no key"), "{error}");
}

#[test]
fn snappy_and_gzip_that_are_cut_off_or_go_on_are_refused() {
    let records = b"\x0c\0\0\0\x01\x01\0";
    let block = snap::raw::Encoder::new().compress_vec(records).unwrap();
    let mut frame = b"\x82SNAPPY\0\0\0\0\x01\0\0\0\x01".to_vec();
    frame.extend((block.len() as u32).to_be_bytes());
    frame.extend(&block);
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    std::io::Write::write_all(&mut gzip, records).unwrap();
    let gzip = gzip.finish().unwrap();
    for (codec, packed) in [
        (Compression::Snappy, block),
        (Compression::Snappy, frame),
        (Compression::Gzip, gzip),
    ] {
        assert!(decode(&with_records(codec, 1, &packed)).is_ok(), "{codec}");
        let longer = [&packed[..], b"x"].concat();
        for wrong in [&packed[..packed.len() - 1], &longer] {
            let error = decode(&with_records(codec, 1, wrong)).unwrap_err();
            assert_eq!(error.reason(), Reason::BatchCorrupt, "{codec}: {error}");
        }
    }
    // A block that names four gigabytes.
    let huge = [0xff, 0xff, 0xff, 0xff, 0x0f, 0];
    let error = decode(&with_records(Compression::Snappy, 1, &huge)).unwrap_err();
    assert_eq!(error, BatchError::DecodedTooLarge { max: 64 << 20 });
}
