//! Round trips and refusals of entry, header and envelope.

use bytes::{Bytes, BytesMut};
use proptest::prelude::*;

use super::*;
use crate::id::{EntryId, LedgerId, Offset, ProducerId};

fn batch_summary() -> impl Strategy<Value = BatchSummary> {
    (
        any::<[u32; 3]>(),
        any::<[i64; 5]>(),
        any::<[i16; 2]>(),
        any::<i32>(),
        any::<[u16; 2]>(),
    )
        .prop_map(
            |(
                [length, span, count],
                [pid, max_ts, expires, base, _],
                [epoch, attributes],
                seq,
                [low, high],
            )| BatchSummary {
                length,
                span,
                count,
                producer_id: ProducerId(pid),
                producer_epoch: epoch,
                attributes,
                base_sequence: seq,
                max_timestamp: max_ts,
                hash_min: low,
                hash_max: high,
                expires_at: expires,
                base_timestamp: base,
            },
        )
}

prop_compose! {
    fn envelope()(batches in prop::collection::vec(batch_summary(), 0..20), append_time in any::<i64>(), max in any::<i64>())
        -> Envelope
    {
        Envelope { kind: EntryKind::Data, append_time, running_max_timestamp: max, batches }
    }
}

prop_compose! {
    fn entry()(envelope in envelope(), body in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..200), 0..5),
               numbers in any::<[u32; 6]>()) -> Entry
    {
        let [ledger, entry, first, span, count, total] = numbers;
        NewEntry {
            class: EntryClass::Data,
            first_offset: Offset(u64::from(first)),
            offset_span: span,
            record_count: count,
            envelope: envelope.encode(),
            body: body.into_iter().map(Bytes::from).collect(),
        }
        .seal(LedgerId(u64::from(ledger)), EntryId(u64::from(entry)), Totals { bytes: u64::from(total), digest: 7 })
    }
}

proptest! {
    #[test]
    fn roundtrip_envelope(envelope in envelope()) {
        prop_assert_eq!(Envelope::decode(&envelope.encode()).unwrap(), envelope);
    }

    #[test]
    fn roundtrip_entry(entry in entry()) {
        let mut bytes = BytesMut::new();
        entry.encode_into(&mut bytes);
        let back = Entry::decode(bytes.freeze()).unwrap();
        prop_assert_eq!(back.header(), entry.header());
        prop_assert_eq!(back.body(), entry.body());
        prop_assert_eq!(back.envelope(), entry.envelope());
        prop_assert!(entry.verify().is_ok());
    }

    #[test]
    fn decode_rejects_any_flipped_bit(entry in entry(), at in any::<prop::sample::Index>(), bit in 0..8u8) {
        let mut bytes = BytesMut::new();
        entry.encode_into(&mut bytes);
        let at = at.index(bytes.len());
        bytes[at] ^= 1 << bit;
        prop_assert!(Entry::decode(bytes.freeze()).is_err());
    }

    #[test]
    fn decode_rejects_any_cut(entry in entry(), cut in any::<prop::sample::Index>()) {
        let mut bytes = BytesMut::new();
        entry.encode_into(&mut bytes);
        let cut = cut.index(bytes.len());
        prop_assert!(Entry::decode(bytes.freeze().slice(..cut)).is_err());
    }
}
