//! Foreign batches (golden/, made by kafka-python), round trips, refusals, hostile lengths and counts.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use super::*;
use crate::entry::crc32c;
use crate::error::Reason;
use crate::id::{Offset, OwnerEpoch, ProducerId};
use crate::limits::{BATCH_BYTES_MAX, BATCH_RECORDS_MAX, RECORD_BYTES_MAX};

const SUPPORTED: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

fn unhex(text: &str) -> Bytes {
    let digits: Vec<u8> = text.bytes().filter(u8::is_ascii_hexdigit).collect();
    let pairs = digits
        .chunks(2)
        .map(|pair| std::str::from_utf8(pair).unwrap());
    pairs
        .map(|pair| u8::from_str_radix(pair, 16).unwrap())
        .collect()
}

fn blob(bytes: &'static [u8]) -> Option<Bytes> {
    Some(Bytes::from_static(bytes))
}

fn header(key: &'static str, value: Option<&'static [u8]>) -> Header {
    Header {
        key: Bytes::from_static(key.as_bytes()),
        value: value.map(Bytes::from_static),
    }
}

fn record(offset_delta: u32, timestamp: i64, key: Option<Bytes>, value: Option<Bytes>) -> Record {
    Record {
        offset_delta,
        timestamp,
        key,
        value,
        headers: Vec::new(),
    }
}

/// What every golden batch holds; the offsets have a gap in one.
fn golden_records(gap: u32) -> Vec<Record> {
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

fn build(compression: Compression, records: &[Record], producer: Option<ProducerStamp>) -> Bytes {
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
fn resealed(mut batch: Vec<u8>) -> Bytes {
    let length = batch.len() as i32 - 12;
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    let crc = crc32c(&batch[21..]);
    batch[17..21].copy_from_slice(&crc.to_be_bytes());
    batch.into()
}

/// A sealed batch with this header and these bytes instead of its records.
fn with_records(compression: Compression, count: i32, records: &[u8]) -> Bytes {
    let mut batch = build(Compression::None, &golden_records(0), None)[..61].to_vec();
    batch[21..23].copy_from_slice(&(compression as i16).to_be_bytes());
    batch[23..27].copy_from_slice(&(count - 1).to_be_bytes());
    batch[57..61].copy_from_slice(&count.to_be_bytes());
    batch.extend_from_slice(records);
    resealed(batch)
}

#[test]
fn foreign_batches_decode_to_the_records_that_were_sent() {
    for (text, compression, gap) in [
        (include_str!("golden/none.hex"), Compression::None, 0),
        (include_str!("golden/lz4.hex"), Compression::Lz4, 0),
        (include_str!("golden/zstd.hex"), Compression::Zstd, 0),
        (include_str!("golden/gaps.hex"), Compression::None, 5),
    ] {
        let batch = unhex(text);
        let view = BatchHeader::view(&batch).unwrap();
        assert_eq!(view.compression(), Ok(compression));
        assert_eq!((view.count, view.span()), (7, 7 + gap));
        assert_eq!(
            (view.base_timestamp, view.max_timestamp),
            (1_700_000_000_123, 1_700_000_009_999)
        );
        assert_eq!(decode(&batch).unwrap(), golden_records(gap));
        assert_eq!(verify_produced(&batch, BATCH_BYTES_MAX).is_ok(), gap == 0);
    }
}

#[test]
fn foreign_producer_fields_are_read() {
    let view = verify_produced(&unhex(include_str!("golden/lz4.hex")), BATCH_BYTES_MAX).unwrap();
    assert_eq!(
        (view.producer_id, view.producer_epoch),
        (ProducerId(4711), 3)
    );
    // Seven records from MAX − 2: MAX − 2, MAX − 1, MAX, 0, 1, 2, 3.
    assert_eq!(
        (view.base_sequence, view.last_sequence()),
        (i32::MAX - 2, 3)
    );
    let view = verify_produced(&unhex(include_str!("golden/zstd.hex")), BATCH_BYTES_MAX).unwrap();
    assert!(view.is_transactional() && !view.is_control() && !view.is_log_append_time());
    assert_eq!((view.base_sequence, view.last_sequence()), (12, 18));
}

#[test]
fn gzip_batch_passes_through_but_is_not_opened() {
    let batch = unhex(include_str!("golden/gzip.hex"));
    assert_eq!(verify_produced(&batch, BATCH_BYTES_MAX).unwrap().count, 7);
    assert_eq!(
        decode(&batch),
        Err(BatchError::UnsupportedCompression(Compression::Gzip))
    );
    for codec in [Compression::Gzip, Compression::Snappy] {
        assert!(
            BatchBuilder::new(codec)
                .unwrap_err()
                .to_string()
                .contains(&codec.to_string())
        );
    }
}

#[test]
fn uncompressed_batch_equals_the_foreign_one_byte_for_byte() {
    let foreign = unhex(include_str!("golden/none.hex"));
    let ours = build(Compression::None, &golden_records(0), None);
    let [head, rest] = place(&ours, Offset(0), OwnerEpoch(0));
    assert_eq!(rest, foreign.slice(16..));
    assert_eq!(head[..12], foreign[..12]);
}

#[test]
fn placed_batch_has_its_offset_and_keeps_its_checksum() {
    let batch = build(Compression::Lz4, &golden_records(0), None);
    let [head, rest] = place(&batch, Offset(1 << 40), OwnerEpoch(9));
    assert_eq!(
        rest.as_ptr(),
        batch[16..].as_ptr(),
        "the checked bytes are not copied"
    );
    let placed: Bytes = [head, rest].concat().into();
    let view = verify_crc(&placed).unwrap();
    assert_eq!((view.base_offset, view.leader_epoch), (Offset(1 << 40), 9));
    assert_eq!(view.end_offset(), Offset((1 << 40) + 7));
    assert_eq!(decode(&placed).unwrap(), golden_records(0));
}

#[test]
fn split_finds_every_batch_and_ends_at_the_first_wrong_one() {
    let batches = SUPPORTED.map(|codec| build(codec, &golden_records(0), None));
    let mut all = BytesMut::from(&batches.concat()[..]);
    let found: Result<Vec<_>, _> = split(&all.clone().freeze()).collect();
    assert_eq!(found.unwrap(), batches);
    let at = batches[0].len() + 16;
    all[at] = 1;
    let found: Vec<_> = split(&all.freeze()).collect();
    assert_eq!(
        found,
        [Ok(batches[0].clone()), Err(BatchError::Magic { found: 1 })]
    );
    assert_eq!(split(&Bytes::new()).count(), 0);
}

/// Changes two bytes of the header at `at`, seals again and says why the batch is refused.
fn refusal(at: usize, bytes: &[u8]) -> BatchError {
    let stamp = ProducerStamp {
        id: ProducerId(7),
        epoch: 0,
        base_sequence: 0,
    };
    let mut batch = build(Compression::None, &golden_records(0), Some(stamp)).to_vec();
    batch[at..at + bytes.len()].copy_from_slice(bytes);
    verify_produced(&resealed(batch), BATCH_BYTES_MAX).unwrap_err()
}

#[test]
fn produced_batch_that_breaks_a_rule_is_refused_with_the_reason() {
    let corrupt = Reason::BatchCorrupt;
    for (at, bytes, reason, words) in [
        (0, &[0xff; 8][..], corrupt, "base offset is -1"),
        (16, &[1], corrupt, "magic 1"),
        (21, &[0, 7], corrupt, "compression code 7"),
        (21, &[0, 0x20], Reason::InvalidRecord, "control"),
        (23, &[0xff; 4], corrupt, "last offset delta is -1"),
        (23, &[0, 0, 0, 7], corrupt, "7 records over 8 offsets"),
        (35, &[0; 8], corrupt, "maximum timestamp"),
        (43, &[0xff; 7], Reason::InvalidRecord, "-1 or not negative"),
        (51, &[0xff; 2], Reason::InvalidRecord, "needs an epoch"),
        (53, &[0xff; 4], Reason::InvalidRecord, "needs a sequence"),
        (57, &[0xff; 4], corrupt, "record count is -1"),
        (57, &[0; 4], corrupt, "at least one record"),
        (57, &[0, 0, 0, 8], corrupt, "8 records over 7 offsets"),
    ] {
        let error = refusal(at, bytes);
        let text = error.to_string();
        assert!(text.contains(words), "{at}: {text}");
        assert_eq!(error.reason(), reason, "{at}: {text}");
    }
}

#[test]
fn count_that_the_bytes_cannot_hold_is_refused_without_opening_them() {
    let refuse = |compression, count, bytes: &[u8]| {
        verify_produced(&with_records(compression, count, bytes), BATCH_BYTES_MAX).unwrap_err()
    };
    let error = refuse(Compression::None, 100, &[0; 699]);
    assert_eq!(
        error,
        BatchError::Implausible {
            count: 100,
            bytes: 699,
            compression: Compression::None
        }
    );
    assert!(verify_produced(&with_records(Compression::None, 100, &[0; 700]), 1000).is_ok());
    assert!(matches!(
        refuse(Compression::Lz4, 1 << 20, &[0; 1000]),
        BatchError::Implausible { .. }
    ));
    let count = BATCH_RECORDS_MAX + 1;
    assert_eq!(
        refuse(Compression::Zstd, count as i32, &[0; 9999]),
        BatchError::Count { count }
    );
}

#[test]
fn batch_over_the_size_limit_or_not_alone_is_refused() {
    let batch = build(Compression::None, &golden_records(0), None);
    let error = verify_produced(&batch, batch.len() - 1).unwrap_err();
    assert_eq!(error.reason(), Reason::BatchTooLarge);
    let two = [batch.clone(), batch.clone()].concat();
    let error = verify_produced(&two, BATCH_BYTES_MAX).unwrap_err();
    assert_eq!(
        error,
        BatchError::Trailing {
            found: two.len(),
            length: batch.len()
        }
    );
    assert!(
        verify_crc(&two).is_ok(),
        "a view may go on behind the batch"
    );
    let short = BatchHeader::view(&batch[..batch.len() - 1]).unwrap_err();
    assert_eq!(
        short,
        BatchError::CutOff {
            found: batch.len() - 1,
            expected: batch.len()
        }
    );
    let mut tiny = batch.to_vec();
    tiny[8..12].copy_from_slice(&48_i32.to_be_bytes());
    assert_eq!(
        BatchHeader::view(&tiny),
        Err(BatchError::Length { found: 48, min: 49 })
    );
}

#[test]
fn transactional_batch_without_a_producer_is_refused() {
    let mut batch = build(Compression::None, &golden_records(0), None).to_vec();
    batch[22] |= 0x10;
    let error = verify_produced(&resealed(batch), BATCH_BYTES_MAX).unwrap_err();
    assert!(error.to_string().contains("transactional"), "{error}");
}

#[test]
fn log_append_time_gives_every_record_the_owners_time() {
    let mut batch = build(Compression::Zstd, &golden_records(0), None).to_vec();
    batch[22] |= 0x08;
    let records = decode(&resealed(batch)).unwrap();
    assert!(
        records
            .iter()
            .all(|record| record.timestamp == 1_700_000_009_999)
    );
}

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
fn sequence_wraps_to_zero_and_absent_stays_absent() {
    let mut view = BatchHeader::view(&build(Compression::None, &golden_records(0), None)).unwrap();
    assert_eq!(view.last_sequence(), -1);
    view.last_offset_delta = 0;
    view.base_sequence = i32::MAX;
    assert_eq!(view.last_sequence(), i32::MAX);
    view.last_offset_delta = 1;
    assert_eq!(view.last_sequence(), 0);
}

fn any_blob() -> impl Strategy<Value = Option<Bytes>> {
    let bytes = prop::collection::vec(any::<u8>(), 0..200).prop_map(Bytes::from);
    let repetitive = (any::<u8>(), 0..3000_usize).prop_map(|(byte, len)| vec![byte; len].into());
    prop::option::of(prop_oneof![4 => bytes, 1 => repetitive])
}

prop_compose! {
    fn any_header()(key in ".{0,3}", value in any_blob()) -> Header {
        Header { key: key.into(), value }
    }
}

prop_compose! {
    fn any_record()(timestamp in prop_oneof![any::<i64>(), 0..2000_i64], key in any_blob(), value in any_blob(),
                    headers in prop::collection::vec(any_header(), 0..4)) -> Record
    {
        Record { offset_delta: 0, timestamp, key, value, headers }
    }
}

fn any_records() -> impl Strategy<Value = Vec<Record>> {
    prop::collection::vec(any_record(), 1..40).prop_map(|mut records| {
        for (delta, record) in (0..).zip(&mut records) {
            record.offset_delta = delta;
        }
        records
    })
}

fn supported() -> impl Strategy<Value = Compression> {
    prop::sample::select(&SUPPORTED[..])
}

proptest! {
    #[test]
    fn roundtrip_of_any_records(records in any_records(), codec in supported(), id in 0..i64::MAX, epoch in 0..i16::MAX,
                                base_sequence in 0..i32::MAX)
    {
        let producer = ProducerStamp { id: ProducerId(id), epoch, base_sequence };
        let batch = build(codec, &records, Some(producer));
        let view = verify_produced(&batch, batch.len()).unwrap();
        prop_assert_eq!((view.count as usize, view.compression()), (records.len(), Ok(codec)));
        prop_assert_eq!((view.producer_id.0, view.producer_epoch, view.base_sequence), (id, epoch, base_sequence));
        prop_assert_eq!(view.base_timestamp, records[0].timestamp);
        prop_assert_eq!(Some(view.max_timestamp), records.iter().map(|record| record.timestamp).max());
        prop_assert_eq!(decode(&batch).unwrap(), records);
    }

    #[test]
    fn decode_rejects_any_flipped_bit(records in any_records(), codec in supported(), at in any::<prop::sample::Index>(),
                                      bit in 0..8_u8)
    {
        let mut batch = build(codec, &records, None).to_vec();
        let at = 16 + at.index(batch.len() - 16);
        batch[at] ^= 1 << bit;
        prop_assert!(verify_produced(&batch, BATCH_BYTES_MAX).is_err());
        prop_assert!(decode(&batch.into()).is_err());
    }

    #[test]
    fn decode_rejects_any_cut(records in any_records(), codec in supported(), cut in any::<prop::sample::Index>()) {
        let batch = build(codec, &records, None);
        let cut = batch.slice(..cut.index(batch.len()));
        prop_assert!(BatchHeader::view(&cut).is_err());
        prop_assert!(decode(&cut).is_err());
        // Also when the lengths are made to agree with the cut.
        if cut.len() > 61 {
            prop_assert!(decode(&resealed(cut.to_vec())).is_err());
        }
    }

    #[test]
    fn decode_of_damaged_records_never_panics(records in any_records(), codec in supported(), at in any::<prop::sample::Index>(),
                                              byte in any::<u8>())
    {
        let mut batch = build(codec, &records, None).to_vec();
        let at = 21 + at.index(batch.len() - 21);
        batch[at] = byte;
        if let Ok(found) = decode(&resealed(batch)) {
            prop_assert!(found.len() <= records.len());
        }
    }
}
