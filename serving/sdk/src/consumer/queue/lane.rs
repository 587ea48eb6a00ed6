//! The task of one partition: attached at its owner as long as the consumer lives.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use hulse_proto::batch::BatchHeader;
use hulse_proto::error::{ErrorKind, Reason};
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::consume_down::Item as DownItem;
use hulse_proto::wire::v1::consume_up::Item as UpItem;
use rand_chacha::ChaCha8Rng;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, MissedTickBehavior, interval_at, sleep, sleep_until, timeout};

use super::book::{Book, Said};
use super::link::{LANE, Link, certain, unavailable};
use super::message::{QueueMessage, UnitRoom};
use super::shared::Shared;
use crate::backoff::Backoff;
use crate::consumer::core::{Amount, Credit};
use crate::error::Error;
use crate::reader::RecordBatch;

/// Both ends say something at least this often.
const HEARTBEAT: Duration = Duration::from_secs(5);
/// A broker that says nothing for this long is gone.
const SILENCE_MAX: Duration = Duration::from_secs(15);
/// A lock is renewed so often within its time.
const RENEWALS: u32 = 3;
/// And for no longer than this.
const HELD_MAX: Duration = Duration::from_secs(3_600);
/// With nothing to wait for it looks again after this long; only bounds a sleep.
const IDLE: Duration = Duration::from_secs(3_600);
/// How long the broker's farewell is waited for.
const FAREWELL_MAX: Duration = Duration::from_secs(2);
/// Ranges of one renewal.
const RENEWED_MAX: usize = 1_000;

/// What a lane is told.
pub(super) enum Order {
    Say(Said),
    /// What an attachment delivered was taken, or dropped.
    Room {
        attachment: u64,
        amount: Amount,
    },
    /// Answer when everything that was said has its receipt, and the broker was told farewell.
    Close(oneshot::Sender<()>),
}

/// Why an attachment ends.
enum End {
    Again(Error),
    /// Of the consumer.
    Never(Error),
    Closed(oneshot::Sender<()>),
    Stopped,
}

/// One partition.
pub(super) struct Lane {
    pub(super) partition: u32,
    pub(super) shared: Arc<Shared>,
    pub(super) orders: mpsc::UnboundedReceiver<Order>,
    /// For the room of what is delivered.
    pub(super) back: mpsc::WeakUnboundedSender<Order>,
    pub(super) rng: ChaCha8Rng,
    pub(super) backoff: Backoff,
    pub(super) book: Book,
    pub(super) attachment: u64,
    /// Everything that was handed out lies below.
    pub(super) handed_end: u64,
    pub(super) closing: Option<oneshot::Sender<()>>,
}

/// What lives as long as an attachment.
struct Attachment {
    link: Link,
    credit: Credit,
    state_epoch: u32,
    /// Delivered and not answered.
    held: BTreeMap<u64, (Weak<AtomicBool>, Instant)>,
    heard: Instant,
}

impl Lane {
    pub(super) async fn run(mut self) {
        let mut resolve = false;
        loop {
            let end = match self.attach(resolve).await {
                Ok(attachment) => self.follow(attachment).await,
                Err(end) => end,
            };
            self.book.link_lost();
            self.shared.void(self.partition);
            self.shared.flows(self.partition);
            resolve = true;
            match end {
                End::Again(error) => {
                    tracing::debug!(partition = self.partition, %error, "not attached");
                    let wait = self.backoff.next(&mut self.rng, error.retry_after());
                    self.shared.trouble(error);
                    if let Err(end) = self.rest(wait).await {
                        return self.finish(end);
                    }
                }
                end => return self.finish(end),
            }
        }
    }

    fn finish(&mut self, end: End) {
        match end {
            End::Never(error) => {
                self.book.end(&error);
                self.shared.ended(error);
            }
            // Everybody knows that it is over.
            End::Closed(done) => drop(done.send(())),
            End::Again(_) | End::Stopped => {}
        }
    }

    /// Waits before the next try; what is said meanwhile is noted.
    async fn rest(&mut self, wait: Duration) -> Result<(), End> {
        let over = sleep(wait);
        tokio::pin!(over);
        loop {
            tokio::select! {
                biased;
                () = self.shared.stop.cancelled() => return Err(End::Stopped),
                order = self.orders.recv() => self.order(order, None)?,
                () = &mut over => return Ok(()),
            }
            self.closes()?;
        }
    }

    /// Ends when it is to be closed and nothing is left to be said.
    fn closes(&mut self) -> Result<(), End> {
        if !self.book.is_idle() {
            return Ok(());
        }
        match self.closing.take() {
            Some(done) => Err(End::Closed(done)),
            None => Ok(()),
        }
    }

    async fn attach(&mut self, resolve: bool) -> Result<Attachment, End> {
        let shared = self.shared.clone();
        let stop = shared.stop.clone();
        tokio::select! {
            biased;
            () = stop.cancelled() => Err(End::Stopped),
            opened = self.open(resolve, &shared) => opened,
        }
    }

    async fn open(&mut self, resolve: bool, shared: &Shared) -> Result<Attachment, End> {
        if resolve && let Err(error) = shared.topic.refresh().await {
            return Err(judged(error, false));
        }
        let (topic, owner) = shared
            .topic
            .owner(self.partition)
            .map_err(|error| judged(error, false))?;
        if topic != shared.topic_id {
            let name = &shared.topic.name;
            let words = format!("topic {name} was deleted and made anew; begin a new consumer");
            let fault = hulse_proto::error::Fault::new(Reason::TopicRecreated, words);
            return Err(End::Never(fault.into()));
        }
        let attach = v1::Attach {
            lane: LANE,
            partition: Some(v1::Partition {
                topic_uuid: topic.to_bytes(),
                index: self.partition,
            }),
            handed_end: self.handed_end,
            ..shared.attach.clone()
        };
        let channel = shared.channel(&owner).map_err(End::Never)?;
        let link = Link::open(channel, shared.client.client_id.clone(), attach).await;
        let link = link.map_err(|error| judged(error, true))?;
        self.attachment += 1;
        self.backoff.reset();
        shared.begun(self.partition);
        let mut attachment = Attachment {
            state_epoch: link.attached.state_epoch,
            credit: Credit::new(shared.room),
            link,
            held: BTreeMap::new(),
            heard: Instant::now(),
        };
        attachment.grant();
        Ok(attachment)
    }

    /// Until it ends.
    async fn follow(&mut self, mut at: Attachment) -> End {
        match self.serve(&mut at).await {
            Err(End::Closed(done)) => {
                at.link.send(UpItem::Detach(v1::Detach { lane: LANE }));
                let _ = timeout(FAREWELL_MAX, farewell(&mut at)).await;
                End::Closed(done)
            }
            Err(end) => end,
            Ok(never) => match never {},
        }
    }

    async fn serve(&mut self, at: &mut Attachment) -> Result<std::convert::Infallible, End> {
        let mut beat = interval_at(Instant::now() + HEARTBEAT, HEARTBEAT);
        beat.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let lock = Duration::from_millis(at.link.attached.lock_ms.into());
        let each = if lock.is_zero() {
            IDLE
        } else {
            lock / RENEWALS
        };
        let mut renew = interval_at(Instant::now() + each, each);
        renew.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            for request in self.book.send(self.attachment, LANE, Instant::now()) {
                at.link.send(UpItem::Ack(request));
            }
            self.closes()?;
            let retry_at = self.book.retry_at().unwrap_or(Instant::now() + IDLE);
            tokio::select! {
                biased;
                () = self.shared.stop.cancelled() => return Err(End::Stopped),
                message = at.link.down.message() => match message {
                    Ok(Some(message)) => {
                        at.heard = Instant::now();
                        if let Some(item) = message.item {
                            self.item(item, at)?;
                        }
                    }
                    Ok(None) => return Err(End::Again(unavailable("the broker ended the session"))),
                    Err(status) => return Err(judged(certain(&status), true)),
                },
                order = self.orders.recv() => {
                    self.order(order, Some(at))?;
                    // What was said together goes together.
                    while let Ok(order) = self.orders.try_recv() {
                        self.order(Some(order), Some(at))?;
                    }
                }
                _ = beat.tick() => {
                    if at.heard.elapsed() >= SILENCE_MAX {
                        return Err(End::Again(unavailable("the broker said nothing for too long")));
                    }
                    at.link.send(UpItem::Heartbeat(v1::ConsumeHeartbeat::default()));
                }
                _ = renew.tick() => at.renew(),
                () = sleep_until(retry_at) => {}
            }
        }
    }

    fn order(&mut self, order: Option<Order>, at: Option<&mut Attachment>) -> Result<(), End> {
        match order {
            None => return Err(End::Stopped),
            Some(Order::Say(said)) => {
                if let Some(at) = at {
                    at.held.remove(&said.offset);
                }
                self.book.say(said);
            }
            Some(Order::Room { attachment, amount }) => {
                if let Some(at) = at.filter(|_| attachment == self.attachment) {
                    at.credit.returned(amount);
                    at.grant();
                }
            }
            Some(Order::Close(done)) => self.closing = Some(done),
        }
        Ok(())
    }

    fn item(&mut self, item: DownItem, at: &mut Attachment) -> Result<(), End> {
        match item {
            DownItem::Delivery(delivery) => self.delivery(delivery, at),
            DownItem::Receipt(receipt) => {
                // Renewals have no number, and what of them is not taken comes again.
                self.book.receipt(receipt, Instant::now());
                Ok(())
            }
            DownItem::SeekDone(done) if done.fault.is_none() => {
                at.state_epoch = done.state_epoch;
                at.held.clear();
                self.handed_end = 0;
                self.shared.void(self.partition);
                Ok(())
            }
            DownItem::Blocked(blocked) => {
                if !blocked.over {
                    tracing::info!(
                        partition = self.partition,
                        message = blocked.message,
                        "deliveries are held up"
                    );
                }
                self.shared.blocked(self.partition, blocked);
                Ok(())
            }
            DownItem::Detached(detached) => Err(match detached.fault {
                Some(fault) => judged(Error::from_wire(fault), true),
                None => End::Again(unavailable("the broker ended the lane")),
            }),
            DownItem::Moved(_) => Err(End::Again(unavailable("the partition is served elsewhere"))),
            _ => Ok(()),
        }
    }

    fn delivery(&mut self, delivery: v1::Delivery, at: &mut Attachment) -> Result<(), End> {
        let ranges = delivery.acquired.iter();
        let records: u64 = ranges
            .map(|range| range.end.saturating_sub(range.first))
            .sum();
        let amount = Amount {
            records: i64::try_from(records).unwrap_or(i64::MAX),
            bytes: delivery.batch.len() as i64,
        };
        at.credit.delivered(amount);
        let Some(orders) = self.back.upgrade() else {
            return Err(End::Stopped);
        };
        let room = Arc::new(UnitRoom {
            attachment: self.attachment,
            amount,
            orders,
        });
        if delivery.state_epoch != at.state_epoch {
            // It was under way when the cursor was moved.
            return Ok(());
        }
        let records = match records_of(self.partition, &delivery) {
            Ok(records) => records,
            Err(error) => {
                self.shared.failed(error);
                return Ok(());
            }
        };
        let (now, mut messages) = (Instant::now(), Vec::new());
        for (record, delivery_count) in records {
            let offset = record.offset.0;
            let alive = Arc::new(AtomicBool::new(true));
            at.held.insert(offset, (Arc::downgrade(&alive), now));
            self.handed_end = self.handed_end.max(offset + 1);
            messages.push(QueueMessage {
                record,
                delivery_count,
                attachment: self.attachment,
                state_epoch: delivery.state_epoch,
                alive,
                room: Some(room.clone()),
            });
        }
        self.shared.push(messages);
        Ok(())
    }
}

impl Attachment {
    fn grant(&mut self) {
        if let Some(amount) = self.credit.grant() {
            let (records, bytes) = (amount.records.unsigned_abs(), amount.bytes.unsigned_abs());
            self.link.grant(records, bytes);
        }
    }

    /// The locks of what somebody still has begin anew.
    fn renew(&mut self) {
        self.held.retain(|_, (alive, since)| {
            let alive = alive.upgrade().is_some_and(|it| it.load(Ordering::Acquire));
            alive && since.elapsed() < HELD_MAX
        });
        let mut ranges: Vec<v1::OffsetRange> = Vec::new();
        for offset in self.held.keys() {
            match ranges.last_mut() {
                Some(last) if last.end == *offset => last.end += 1,
                _ => ranges.push(v1::OffsetRange {
                    first: *offset,
                    end: offset + 1,
                }),
            }
        }
        for ranges in ranges.chunks(RENEWED_MAX) {
            self.link.send(UpItem::Ack(v1::AckRecords {
                lane: LANE,
                ranges: ranges.to_vec(),
                kind: v1::AckKind::Renew as i32,
                state_epoch: self.state_epoch,
                ..v1::AckRecords::default()
            }));
        }
    }
}

async fn farewell(at: &mut Attachment) {
    while let Ok(Some(message)) = at.link.down.message().await {
        if matches!(message.item, Some(DownItem::Detached(_))) {
            return;
        }
    }
}

/// The records of a delivery that are meant, and how often each was delivered.
fn records_of(
    partition: u32,
    delivery: &v1::Delivery,
) -> Result<Vec<(crate::reader::ReadRecord, u32)>, Error> {
    let header = BatchHeader::view(&delivery.batch)?;
    let batch = RecordBatch {
        partition,
        header,
        bytes: delivery.batch.clone(),
        append_time: delivery.append_time,
    };
    let mut meant = BTreeSet::new();
    for range in &delivery.acquired {
        let first = range.first.max(batch.header.base_offset.0);
        let end = range.end.min(batch.header.end_offset().0);
        meant.extend((first..end).map(|offset| (offset, range.delivery_count)));
    }
    let records = batch.records().map_err(|error| {
        let words = format!(
            "the batch of offset {} of partition {partition} cannot be decoded: {error}; its records come again until they are dead letters",
            batch.header.base_offset.0
        );
        Error::local(ErrorKind::Corrupt, words)
    })?;
    let counted = records.into_iter().filter_map(|record| {
        let at = (record.offset.0, 0);
        let found = meant.range(at..=(record.offset.0, u32::MAX)).next();
        let count = found.map(|(_, count)| *count);
        count.map(|count| (record, count))
    });
    Ok(counted.collect())
}

/// Whether it is worth trying again. `broker`: a broker says it, which may know an older topic of this name.
fn judged(error: Error, broker: bool) -> End {
    use Reason::{
        PartitionNotFound, SubscriptionDeleting, SubscriptionExists, SubscriptionNotFound,
        TopicDeleting, TopicNotFound, UnsupportedType,
    };
    match error.reason() {
        Some(
            SubscriptionDeleting | SubscriptionExists | SubscriptionNotFound | UnsupportedType,
        ) => End::Never(error),
        Some(TopicNotFound | PartitionNotFound | TopicDeleting) if broker => End::Again(error),
        _ if error.is_retryable() => End::Again(error),
        _ => End::Never(error),
    }
}
