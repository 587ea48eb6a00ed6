//! Cursors and consumers as people see them.

use std::sync::Arc;

use hulse_proto::id::{Offset, SubscriptionId};
use hulse_proto::time::TimestampMs;
use serving_dispatch::{BlockedReason, Marks, Stats};

use super::acks::ACK_RANGES_MAX;
use super::core::CursorCore;
use super::lane::Stand;
use super::rates::Rates;
use super::seat::Seat;
use crate::partition::LogOffsets;
use crate::state::{Cursors, OffsetRange};

/// A cursor: what is durable of it, and who consumes.
#[derive(Debug, Clone, PartialEq)]
pub struct CursorView {
    /// Whose.
    pub subscription: SubscriptionId,
    /// "tenant/namespace/name".
    pub name: Arc<str>,
    /// Keeps the log from its base on.
    pub hold: bool,
    /// Everything below is processed.
    pub base: Offset,
    /// Grows with each move.
    pub state_epoch: u32,
    /// The owner's clock at the last ack or move; 0: none yet.
    pub acked_at: TimestampMs,
    /// Records that were given up, since it was made, because it kept too much.
    pub evicted: u64,
    /// Records from the base, or the log's start, to the high watermark that are not acked.
    pub backlog: u64,
    /// The first of them; the high watermark: none.
    pub first_unacked: Offset,
    /// Ranges acked above the base.
    pub range_count: usize,
    /// Records in them.
    pub acked_records: u64,
    /// The first of the ranges, if they were asked for.
    pub ranges: Vec<OffsetRange>,
    /// Those that are attached.
    pub consumers: Vec<ConsumerView>,
    /// The ranges are too many: nothing new is delivered.
    pub crowded: bool,
    /// Acks cannot be made durable now.
    pub acks_wait: bool,
    /// Where the log ends, for its readers.
    pub end: Offset,
    /// How fast it goes; `None`: it has not been watched for long enough.
    pub rates: Option<Rates>,
    /// Records that lived longer than they may, since the partition was opened.
    pub expired: u64,
    /// QUEUE and KEYED, of one cursor that was asked for: what is known of records that came back.
    pub marks: Marks,
    /// QUEUE and KEYED: dead letters that were numbered since the last move.
    pub letters: u64,
    /// QUEUE and KEYED, since their first consumer came: how its records are shared out.
    pub sharing: Option<Stats>,
}

/// A consumer.
#[derive(Debug, Clone, PartialEq)]
pub struct ConsumerView {
    /// Its name.
    pub name: Arc<str>,
    /// Its client's name.
    pub client: Arc<str>,
    /// FAILOVER: the highest is active.
    pub priority: i32,
    /// Records are delivered to it.
    pub active: bool,
    /// The owner's clock.
    pub attached_at: TimestampMs,
    /// Delivered to it and not acked.
    pub unacked: u64,
    /// Up to here it was sent records.
    pub sent_to: Offset,
    /// QUEUE and KEYED: it has held records for so long without an answer to any, ms; 0: it holds none.
    pub silent_ms: TimestampMs,
    /// QUEUE and KEYED: why nothing flows to it.
    pub blocked: Option<BlockedReason>,
}

impl<T> CursorCore<T> {
    /// The durable cursors, of one subscription or all; `ranges_max` of their ranges are listed.
    pub(crate) fn views(
        &self,
        confirmed: &Cursors,
        only: Option<SubscriptionId>,
        ranges_max: usize,
        offsets: LogOffsets,
    ) -> Vec<CursorView> {
        let LogOffsets {
            log_start,
            high_watermark,
            ..
        } = offsets;
        let wanted = confirmed
            .iter()
            .filter(|(id, _)| only.is_none_or(|only| only == *id));
        let views = wanted.map(|(subscription, cursor)| {
            let seat = self.seats.get(&subscription);
            CursorView {
                subscription,
                name: cursor.name.clone(),
                hold: cursor.hold,
                base: cursor.base,
                state_epoch: cursor.state_epoch,
                acked_at: cursor.acked_at,
                evicted: cursor.evicted,
                backlog: cursor.backlog(log_start, high_watermark),
                first_unacked: cursor.base.max(log_start).min(high_watermark),
                range_count: cursor.acked().len(),
                acked_records: cursor.acked().offsets(),
                ranges: cursor.acked().iter().take(ranges_max).collect(),
                consumers: seat.map_or_else(Vec::new, |seat| self.consumers_of(subscription, seat)),
                crowded: cursor.acked().len() >= ACK_RANGES_MAX,
                acks_wait: self.trouble.is_some(),
                end: high_watermark,
                rates: None,
                expired: 0,
                marks: match only {
                    Some(_) => cursor.marks().clone(),
                    None => Marks::default(),
                },
                letters: cursor.letters(),
                sharing: None,
            }
        });
        views.collect()
    }

    fn consumers_of(&self, id: SubscriptionId, seat: &Seat) -> Vec<ConsumerView> {
        let consumers = seat.consumers.values().map(|consumer| {
            let active = matches!(consumer.view.stand, Stand::Active(_) | Stand::Moving);
            let unacked = match &consumer.view.stand {
                Stand::Active(_) => self
                    .accepted
                    .get(id)
                    .map_or(0, |cursor| cursor.backlog(Offset(0), consumer.sent_to)),
                _ => 0,
            };
            ConsumerView {
                name: consumer.name.clone(),
                client: consumer.client.clone(),
                priority: consumer.priority,
                active,
                attached_at: consumer.attached_at,
                unacked,
                sent_to: consumer.sent_to,
                silent_ms: 0,
                blocked: None,
            }
        });
        consumers.collect()
    }
}
