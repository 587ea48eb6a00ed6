//! L: what follows from the confirmed log entries alone.

use std::time::Duration;

use bytes::{Buf, BufMut, BytesMut};
use hulse_proto::entry::{EntryKind, Envelope};
use hulse_proto::id::{Offset, ProducerId};
use hulse_proto::limits::BATCHES_IN_FLIGHT_MAX;
use hulse_proto::time::TimestampMs;

use super::producers::{Known, Producers, Stored};
use super::record::{RecordError, need};

/// The fold of a log up to `end`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogState {
    /// Everything below is folded in.
    pub end: Offset,
    /// Append time of the last entry; 0: none.
    pub append_time: TimestampMs,
    /// Highest record timestamp; `i64::MIN`: none.
    pub running_max_timestamp: TimestampMs,
    /// The producer table.
    pub producers: Producers,
}

impl Default for LogState {
    fn default() -> Self {
        Self {
            end: Offset(0),
            append_time: 0,
            running_max_timestamp: TimestampMs::MIN,
            producers: Producers::default(),
        }
    }
}

impl LogState {
    /// Folds one confirmed entry in. Entries come in offset order; one that is folded in already changes nothing.
    pub fn apply(
        &mut self,
        first: Offset,
        end: Offset,
        envelope: &Envelope,
        producer_expiry: Duration,
    ) {
        if end <= self.end {
            return;
        }
        self.append_time = envelope.append_time;
        self.running_max_timestamp = envelope.running_max_timestamp;
        if envelope.kind == EntryKind::Data {
            let mut base = first;
            for batch in &envelope.batches {
                self.producers.apply(batch, base, envelope.append_time);
                base = Offset(base.0 + u64::from(batch.span));
            }
        }
        self.producers.expire(envelope.append_time, producer_expiry);
        self.end = end;
    }

    /// Forgets what lies at or above `end`: a recorded loss took those entries (storage.md, amendment to M1).
    pub fn drop_from(&mut self, end: Offset) {
        if self.end > end {
            self.producers.drop_from(end);
        }
    }

    /// The bytes of a snapshot.
    pub(super) fn encode_into(&self, out: &mut BytesMut) {
        out.put_u64_le(self.end.0);
        out.put_i64_le(self.append_time);
        out.put_i64_le(self.running_max_timestamp);
        out.put_u32_le(self.producers.len() as u32);
        for (id, known) in self.producers.iter() {
            out.put_i64_le(id.0);
            out.put_i16_le(known.epoch);
            out.put_i64_le(known.last_activity);
            out.put_u8(known.window.len() as u8);
            for stored in &known.window {
                out.put_i32_le(stored.first);
                out.put_i32_le(stored.last);
                out.put_u64_le(stored.base.0);
                out.put_i64_le(stored.append_time);
            }
        }
    }

    /// Reads what [`LogState::encode_into`] wrote from the front of `bytes`.
    pub(super) fn decode_from(bytes: &mut &[u8]) -> Result<Self, RecordError> {
        need(bytes, 28)?;
        let end = Offset(bytes.get_u64_le());
        let (append_time, running_max_timestamp) = (bytes.get_i64_le(), bytes.get_i64_le());
        let mut producers = Producers::default();
        for _ in 0..bytes.get_u32_le() {
            need(bytes, 19)?;
            let id = ProducerId(bytes.get_i64_le());
            let (epoch, last_activity) = (bytes.get_i16_le(), bytes.get_i64_le());
            let count = usize::from(bytes.get_u8());
            if count == 0 || count > BATCHES_IN_FLIGHT_MAX {
                return Err(RecordError::Field {
                    field: "producer window",
                    found: count as u64,
                });
            }
            need(bytes, count * 24)?;
            let window = (0..count).map(|_| Stored {
                first: bytes.get_i32_le(),
                last: bytes.get_i32_le(),
                base: Offset(bytes.get_u64_le()),
                append_time: bytes.get_i64_le(),
            });
            producers.restore(
                id,
                Known {
                    epoch,
                    last_activity,
                    window: window.collect(),
                },
            );
        }
        Ok(Self {
            end,
            append_time,
            running_max_timestamp,
            producers,
        })
    }
}
