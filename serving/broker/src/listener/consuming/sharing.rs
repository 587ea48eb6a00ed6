//! A lane of a QUEUE or KEYED subscription: what the dispatcher gives to its consumer goes out, as far as the client lets it.
//!
//! The client's credit is handed to the dispatcher piece by piece, so that what waits for the connection is bounded whatever the client
//! grants: at most [`LANE_BYTES`] and one batch.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hulse_proto::error::{Fault, Reason};
use hulse_proto::wire::v1::{self, consume_down};
use serving_dispatch::{Acquired, BlockedReason};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use super::lane::{End, Ended, Shared, ended};
use crate::partition::{ShareItem, ShareTie};
use crate::subscription_metrics::ConsumeCounts;

/// Bytes that the dispatcher may send before the connection has taken them.
const LANE_BYTES: i64 = 256 << 10;

/// What the client granted and what became of it.
#[derive(Debug, Default)]
struct Book {
    /// Granted by the client and not handed on.
    records: u64,
    bytes: i64,
    /// Handed on and not delivered yet; overdrawn by at most a batch.
    open: i64,
    /// Delivered and not taken by the connection yet.
    queued: i64,
}

/// The credit of one lane.
pub(super) struct ShareCredit {
    tie: Arc<ShareTie>,
    book: Mutex<Book>,
}

impl ShareCredit {
    pub(super) fn new(tie: Arc<ShareTie>) -> Self {
        Self {
            tie,
            book: Mutex::default(),
        }
    }

    pub(super) fn tie(&self) -> &Arc<ShareTie> {
        &self.tie
    }

    fn lock(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The client grants.
    pub(super) fn grant(&self, records: u64, bytes: u64) {
        let mut book = self.lock();
        book.records = book.records.saturating_add(records);
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        book.bytes = book.bytes.saturating_add(bytes);
        self.hand_on(&mut book);
    }

    /// A batch came from the dispatcher.
    fn came(&self, bytes: usize) {
        let mut book = self.lock();
        book.open -= bytes as i64;
        book.queued += bytes as i64;
    }

    /// The connection took it.
    fn taken(&self, bytes: usize) {
        let mut book = self.lock();
        book.queued -= bytes as i64;
        self.hand_on(&mut book);
    }

    fn hand_on(&self, book: &mut Book) {
        let room = LANE_BYTES - book.open.max(0) - book.queued;
        let debt = (-book.open).max(0);
        // A batch may have overdrawn it: that is paid first.
        let bytes = book.bytes.min(room.saturating_add(debt)).max(0);
        let records = std::mem::take(&mut book.records);
        if records > 0 || bytes > 0 {
            book.bytes -= bytes;
            book.open += bytes;
            self.tie.grant(records, bytes as u64);
        }
    }
}

/// One lane.
pub(super) struct ShareLane {
    pub(super) number: u32,
    pub(super) opening: u64,
    pub(super) shared: Shared,
    pub(super) credit: Arc<ShareCredit>,
    pub(super) items: mpsc::UnboundedReceiver<ShareItem>,
    pub(super) stop: CancellationToken,
    pub(super) counts: ConsumeCounts,
}

impl ShareLane {
    /// Delivers until it is stopped or ends.
    pub(super) async fn run(mut self) -> Ended {
        let stop = self.stop.clone();
        let end = tokio::select! {
            biased;
            () = stop.cancelled() => None,
            end = self.deliver() => Some(end),
        };
        ended((self.number, self.opening), end, &self.shared)
    }

    async fn deliver(&mut self) -> End {
        let begun = self.begun();
        if self.send(begun).await.is_err() {
            return End::Gone;
        }
        while let Some(item) = self.items.recv().await {
            let sent = match item {
                ShareItem::Ended(fault) => return End::Fault(fault),
                ShareItem::Unit {
                    unit,
                    batch,
                    append_time,
                } => {
                    let bytes = batch.len();
                    self.credit.came(bytes);
                    let records = unit.acquired.iter().map(|it| it.range.len()).sum();
                    self.counts.sent(records, bytes as u64);
                    let metrics = &self.shared.front.metrics;
                    metrics.sent(u64::from(bytes > 0), records, bytes as u64);
                    let partition = self.credit.tie().partition();
                    let delivery = v1::Delivery {
                        lane: self.number,
                        end_offset: unit.batch.end.0,
                        batch,
                        acquired: unit.acquired.iter().map(acquired).collect(),
                        high_watermark: partition.offsets().high_watermark.0,
                        state_epoch: unit.state_epoch,
                        append_time,
                        ..v1::Delivery::default()
                    };
                    let sent = self.send(consume_down::Item::Delivery(delivery)).await;
                    self.credit.taken(bytes);
                    sent
                }
                ShareItem::Restart { state_epoch, base } => {
                    let done = v1::SeekDone {
                        lane: self.number,
                        state_epoch,
                        base: base.0,
                        ..v1::SeekDone::default()
                    };
                    self.send(consume_down::Item::SeekDone(done)).await
                }
                ShareItem::Blocked { reason, over } => {
                    let blocked = blocked(self.number, reason, over);
                    self.send(consume_down::Item::Blocked(blocked)).await
                }
            };
            if sent.is_err() {
                return End::Gone;
            }
        }
        let words = "partition stopped here; look it up again";
        let moved = || Fault::new(Reason::PartitionMoved, words);
        let partition = self.credit.tie().partition();
        End::Fault(partition.ended().unwrap_or_else(moved))
    }

    fn begun(&self) -> consume_down::Item {
        let tie = self.credit.tie();
        let partition = tie.partition();
        consume_down::Item::Attached(v1::Attached {
            lane: self.number,
            subscription_uuid: tie.subscription().to_bytes(),
            leader_epoch: partition.leader_epoch().0,
            base: tie.base().0,
            high_watermark: partition.offsets().high_watermark.0,
            state_epoch: tie.state_epoch(),
            active: true,
            lock_ms: u32::try_from(tie.lock_ms()).unwrap_or(u32::MAX),
            ..v1::Attached::default()
        })
    }

    async fn send(&self, item: consume_down::Item) -> Result<(), ()> {
        let down = v1::ConsumeDown { item: Some(item) };
        let sent = self.shared.out.send((Ok(down), None)).await;
        sent.map_err(|_| ())
    }
}

fn acquired(item: &Acquired) -> v1::AcquiredRange {
    v1::AcquiredRange {
        first: item.range.first.0,
        end: item.range.end.0,
        delivery_count: item.delivery_count().into(),
    }
}

fn blocked(lane: u32, reason: BlockedReason, over: bool) -> v1::Blocked {
    let (reason, words) = told(reason);
    v1::Blocked {
        lane,
        reason: reason as i32,
        over,
        message: if over {
            String::new()
        } else {
            words.to_owned()
        },
        fault: None,
    }
}

/// On the wire, and for people.
pub(in crate::listener) fn told(reason: BlockedReason) -> (v1::BlockedReason, &'static str) {
    match reason {
        BlockedReason::UnackedOfConsumer => (
            v1::BlockedReason::UnackedOfConsumer,
            "this consumer has too many records without an ack; ack some",
        ),
        BlockedReason::UnackedOfCursor => (
            v1::BlockedReason::UnackedOfCursor,
            "the subscription has too many records without an ack on this partition",
        ),
        BlockedReason::AckRanges => (
            v1::BlockedReason::AckRanges,
            "the cursor has too many acked ranges; ack the records between them",
        ),
        BlockedReason::AcksWait => (
            v1::BlockedReason::AcksWait,
            "acks cannot be made durable now; nothing is delivered until they are",
        ),
        BlockedReason::Paused => (
            v1::BlockedReason::Paused,
            "the subscription is paused; `hulse subscriptions resume` lets it go on",
        ),
    }
}
