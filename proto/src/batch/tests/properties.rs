//! Round trips of any records with every codec; any damage is found.

use bytes::Bytes;
use proptest::prelude::*;

use super::super::*;
use super::support::*;
use crate::id::ProducerId;
use crate::limits::BATCH_BYTES_MAX;

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
        let latest = |record: &Record| record.timestamp == view.max_timestamp;
        let found = find_record(&batch, latest).unwrap();
        prop_assert_eq!(found.as_ref(), records.iter().find(|record| latest(record)));
        prop_assert_eq!(find_record(&batch, |_| false).unwrap(), None);
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

/// Found by the property above: the decoder alone takes a frame without its end mark for a whole one.
#[test]
fn decode_rejects_an_lz4_frame_without_its_end_mark() {
    let records = [Record {
        offset_delta: 0,
        timestamp: 0,
        key: None,
        value: None,
        headers: vec![],
    }];
    let batch = build(Compression::Lz4, &records, None);
    assert!(decode(&batch).is_ok());
    for cut in 1..8 {
        let cut = batch[..batch.len() - cut].to_vec();
        assert!(decode(&resealed(cut)).is_err());
    }
}
