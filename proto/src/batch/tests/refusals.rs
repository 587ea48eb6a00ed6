//! What a producer may not send.

use super::super::*;
use super::support::*;
use crate::error::Reason;
use crate::id::ProducerId;
use crate::limits::{BATCH_BYTES_MAX, BATCH_RECORDS_MAX};

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
