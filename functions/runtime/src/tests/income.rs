//! The canonical function of compute.md: orders in, revenue per minute out, with one final row per minute.

use std::sync::Arc;

use bytes::Bytes;
use hulse_proto::time::TimestampMs;

use crate::codec::snapshot::RowCodecs;
use crate::letters::RecordAt;
use crate::operator::{Emitter, EpochInput, EpochOperator};
use crate::record::{Destination, InputRecord, OutputRecord};
use crate::state::{PlainRows, StateTxn};
use crate::{Fingerprint, OperatorError};

/// Length of a window.
pub const MINUTE_MS: TimestampMs = 60_000;

/// An order: id and cents.
pub fn order(id: u64, cents: i64) -> Bytes {
    [id.to_le_bytes(), cents.to_le_bytes()].concat().into()
}

/// The cents of an order; none if it is none.
pub fn cents(record: &InputRecord) -> Option<i64> {
    let value: &[u8; 16] = record.value.as_deref()?.try_into().ok()?;
    Some(i64::from_le_bytes(value[8..].try_into().ok()?))
}

/// End of the minute of a time.
pub fn minute_end(time: TimestampMs) -> TimestampMs {
    (time.div_euclid(MINUTE_MS) + 1) * MINUTE_MS
}

/// A row of `income`: revenue and number of orders of the minute that ends at the key.
pub fn income(record: &InputRecord) -> (TimestampMs, i64, u64) {
    let key: [u8; 8] = record.key.as_deref().unwrap().try_into().unwrap();
    let value = record.value.as_deref().unwrap();
    (
        end_of(&key),
        i64::from_le_bytes(value[..8].try_into().unwrap()),
        u64::from_le_bytes(value[8..].try_into().unwrap()),
    )
}

/// Keys are ordered as their ends are.
fn key(end: TimestampMs) -> [u8; 8] {
    (end as u64 ^ 1 << 63).to_be_bytes()
}

fn end_of(key: &[u8; 8]) -> TimestampMs {
    (u64::from_be_bytes(*key) ^ 1 << 63) as i64
}

/// The function.
#[derive(Debug, Default)]
pub struct Income;

impl EpochOperator for Income {
    fn fingerprint(&self) -> Fingerprint {
        Fingerprint::of("income v1")
    }

    fn codecs(&self) -> RowCodecs {
        vec![Arc::new(PlainRows)]
    }

    fn process(
        &mut self,
        input: &EpochInput<'_>,
        state: &mut StateTxn<'_>,
        out: &mut Emitter<'_>,
    ) -> Result<(), OperatorError> {
        for (partition, record) in input.records() {
            let at = RecordAt {
                partition,
                offset: record.offset,
            };
            let Some(cents) = cents(record) else {
                out.fail(at, "decode", "an order has 16 bytes".to_owned());
                continue;
            };
            if !out.observe(at, record.timestamp, record.append_time) {
                continue;
            }
            let end = minute_end(record.timestamp);
            if end <= input.watermark {
                out.late(at);
                continue;
            }
            let key = Bytes::copy_from_slice(&key(end));
            let (sum, count) = state.get(0, &key).map_or((0, 0), |row| {
                let sum = i64::from_le_bytes(row[..8].try_into().unwrap());
                (sum, u64::from_le_bytes(row[8..].try_into().unwrap()))
            });
            let row = [(sum + cents).to_le_bytes(), (count + 1).to_le_bytes()].concat();
            state.put(0, key, row.into())?;
        }
        Ok(())
    }

    fn on_watermark(
        &mut self,
        watermark: TimestampMs,
        state: &mut StateTxn<'_>,
        out: &mut Emitter<'_>,
    ) -> Result<(), OperatorError> {
        let below = key(watermark.saturating_add(1));
        let closed: Vec<_> = state
            .range(0, &[], Some(&below))
            .map(|(key, row)| (key.clone(), row.clone()))
            .collect();
        for (end, row) in closed {
            state.delete(0, end.clone())?;
            out.emit(OutputRecord {
                destination: Destination::Output(0),
                timestamp: watermark,
                key: Some(end),
                value: Some(row),
                headers: Vec::new(),
            })?;
        }
        Ok(())
    }

    fn open_until(&self, state: &StateTxn<'_>) -> Option<TimestampMs> {
        let key: &[u8] = state.last_key(0)?;
        key.try_into().ok().map(end_of)
    }
}
