//! Batches that another library made, and what an owner does to a batch.

use bytes::{Bytes, BytesMut};

use super::super::*;
use super::support::*;
use crate::id::{Offset, OwnerEpoch, ProducerId};
use crate::limits::BATCH_BYTES_MAX;

#[test]
fn foreign_batches_decode_to_the_records_that_were_sent() {
    for (text, compression, gap) in [
        (include_str!("../golden/none.hex"), Compression::None, 0),
        (include_str!("../golden/lz4.hex"), Compression::Lz4, 0),
        (include_str!("../golden/zstd.hex"), Compression::Zstd, 0),
        (include_str!("../golden/gzip.hex"), Compression::Gzip, 0),
        (include_str!("../golden/snappy.hex"), Compression::Snappy, 0),
        (include_str!("../golden/gaps.hex"), Compression::None, 5),
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
fn found_record_is_the_first_that_is_wanted_whatever_stands_behind_it() {
    let mut batch = build(Compression::None, &golden_records(0), None).to_vec();
    batch.truncate(batch.len() - 1);
    let batch = resealed(batch);
    assert!(decode(&batch).is_err());
    let found = find_record(&batch, |record| record.timestamp > 1_700_000_000_124);
    assert_eq!(found.unwrap().unwrap().offset_delta, 2);
    assert!(find_record(&batch, |_| false).is_err());
}

#[test]
fn foreign_producer_fields_are_read() {
    let view = verify_produced(&unhex(include_str!("../golden/lz4.hex")), BATCH_BYTES_MAX).unwrap();
    assert_eq!(
        (view.producer_id, view.producer_epoch),
        (ProducerId(4711), 3)
    );
    // Seven records from MAX − 2: MAX − 2, MAX − 1, MAX, 0, 1, 2, 3.
    assert_eq!(
        (view.base_sequence, view.last_sequence()),
        (i32::MAX - 2, 3)
    );
    let view =
        verify_produced(&unhex(include_str!("../golden/zstd.hex")), BATCH_BYTES_MAX).unwrap();
    assert!(view.is_transactional() && !view.is_control() && !view.is_log_append_time());
    assert_eq!((view.base_sequence, view.last_sequence()), (12, 18));
}

#[test]
fn codecs_that_are_only_opened_are_not_made() {
    for codec in [Compression::Gzip, Compression::Snappy] {
        let error = BatchBuilder::new(codec).unwrap_err();
        assert_eq!(error, BatchError::UnsupportedCompression(codec));
        assert!(error.to_string().contains(&codec.to_string()));
    }
}

#[test]
fn batch_of_any_codec_decodes_to_its_records() {
    for codec in [Compression::Gzip, Compression::Snappy, Compression::Zstd] {
        let mut builder = BatchBuilder::of_any_codec(codec);
        let records = golden_records(0);
        for record in &records {
            let pushed = builder.push(&RecordRef {
                timestamp: record.timestamp,
                key: record.key.as_deref(),
                value: record.value.as_deref(),
                headers: &record.headers,
            });
            pushed.unwrap();
        }
        let estimate = builder.len_estimate();
        let batch = builder.build(None);
        assert!(batch.len() <= estimate, "{codec}");
        assert_eq!(decode(&batch).unwrap(), records, "{codec}");
    }
}

#[test]
fn snappy_block_without_a_frame_decodes_to_the_same_records() {
    let none = unhex(include_str!("../golden/none.hex"));
    let records = &none[BATCH_HEADER_BYTES..];
    let block = snap::raw::Encoder::new().compress_vec(records).unwrap();
    let mut batch = none[..BATCH_HEADER_BYTES].to_vec();
    batch.extend(block);
    batch[22] |= Compression::Snappy as u8;
    assert_eq!(decode(&resealed(batch)).unwrap(), golden_records(0));
}

#[test]
fn uncompressed_batch_equals_the_foreign_one_byte_for_byte() {
    let foreign = unhex(include_str!("../golden/none.hex"));
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
fn sequence_wraps_to_zero_and_absent_stays_absent() {
    let mut view = BatchHeader::view(&build(Compression::None, &golden_records(0), None)).unwrap();
    assert_eq!(view.last_sequence(), -1);
    view.last_offset_delta = 0;
    view.base_sequence = i32::MAX;
    assert_eq!(view.last_sequence(), i32::MAX);
    view.last_offset_delta = 1;
    assert_eq!(view.last_sequence(), 0);
}
