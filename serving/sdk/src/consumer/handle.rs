//! The consumer's handle.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use futures::Stream;
use hulse_proto::error::ErrorKind;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};
use tracing::warn;

use super::core::{Acknowledgement, ConsumerNote, Next, SkipReason};
use super::kind::start_at;
use super::link::Shared;
use super::opened::{Opened, Yield};
use super::record::{Consumed, ConsumerStats, ReceivedRecord, Unacknowledged};
use crate::error::Error;
use crate::interceptor::Chain;
use crate::producer::DeliveryMode;
use crate::reader::Start;

/// How long `close` waits for brokers to end their streams.
const FAREWELL_MAX: Duration = Duration::from_secs(2);

/// Consumes one topic by a subscription. Cheap to clone; clones are one consumer, so several tasks may share it: each record goes to one
/// of them. Dropping the last clone detaches at once: acknowledgements without a receipt may be lost, so call
/// [`SubscriptionConsumer::close`].
#[derive(Clone)]
pub struct SubscriptionConsumer {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    name: String,
    subscription: String,
    mode: DeliveryMode,
    interceptors: Chain,
    opened: Mutex<Opened>,
    records: AtomicU64,
    redeliveries: AtomicU64,
    offsets_gone: AtomicU64,
}

/// Parts of a handle.
pub(super) struct Handle {
    pub(super) shared: Arc<Shared>,
    pub(super) name: String,
    pub(super) subscription: String,
    pub(super) mode: DeliveryMode,
    pub(super) interceptors: Chain,
}

/// What one look finds.
enum Step {
    Got(Consumed),
    Ahead(u64, Acknowledgement),
    Wait,
    Closed,
}

impl SubscriptionConsumer {
    pub(super) fn new(handle: Handle) -> Self {
        Self {
            inner: Arc::new(Inner {
                shared: handle.shared,
                name: handle.name,
                subscription: handle.subscription,
                mode: handle.mode,
                interceptors: handle.interceptors,
                opened: Mutex::default(),
                records: AtomicU64::new(0),
                redeliveries: AtomicU64::new(0),
                offsets_gone: AtomicU64::new(0),
            }),
        }
    }

    /// The next record of any partition; waits for it. `None` after `close`. Notes are passed over; see [`SubscriptionConsumer::next`].
    ///
    /// # Errors
    /// A partition is finished (gone, damaged) or has a gap ([`Error::gap`]; it is attached anew), a batch is damaged, or an interceptor
    /// refused the record: the next call goes on. [`Error::is_fenced`]: another consumer took over; that, a deleted subscription and the
    /// last partition's end are answered again and again. Broken links are no errors. Cancel-safe: nothing is lost.
    pub async fn receive(&self) -> Result<Option<ReceivedRecord>, Error> {
        loop {
            match self.next().await? {
                Some(Consumed::Record(record)) => return Ok(Some(record)),
                Some(Consumed::Note(_)) => {}
                None => return Ok(None),
            }
        }
    }

    /// As [`SubscriptionConsumer::receive`], with the notes between the records.
    ///
    /// # Errors
    /// Those of `receive`. Cancel-safe.
    pub async fn next(&self) -> Result<Option<Consumed>, Error> {
        let inner = &self.inner;
        loop {
            let news = inner.shared.news.notified();
            let mut news = std::pin::pin!(news);
            // Before looking, so that nothing which comes in between is missed.
            news.as_mut().enable();
            match inner.step()? {
                Step::Got(consumed) => return Ok(Some(consumed)),
                Step::Closed => return Ok(None),
                Step::Ahead(number, acknowledgement) => {
                    let outcome = acknowledgement.await;
                    inner
                        .opened()
                        .ahead_decided(number, &outcome, &inner.shared);
                }
                Step::Wait => news.await,
            }
        }
    }

    /// The records as a stream. It ends where `receive` answers `None`; after an error it goes on.
    pub fn stream(&self) -> impl Stream<Item = Result<ReceivedRecord, Error>> + Send + 'static {
        futures::stream::unfold(self.clone(), |consumer| async move {
            let item = consumer.receive().await.transpose()?;
            Some((item, consumer))
        })
    }

    /// The application is through with this record: it shall not come again. Queued at once; await the answer to know that it is durable.
    /// What is acknowledged while others are under way goes along with them, so awaiting each one costs time and not awaiting costs
    /// certainty. In delivery mode `at_most_once` everything is acknowledged already.
    pub fn ack(&self, record: &ReceivedRecord) -> Acknowledgement {
        self.acknowledge(record, false)
    }

    /// As [`SubscriptionConsumer::ack`] for this record and everything before it in its partition.
    pub fn ack_cumulative(&self, record: &ReceivedRecord) -> Acknowledgement {
        self.acknowledge(record, true)
    }

    fn acknowledge(&self, record: &ReceivedRecord, cumulative: bool) -> Acknowledgement {
        let place = record.place;
        if self.inner.mode == DeliveryMode::AtMostOnce {
            return Acknowledgement::decided(place.offset..place.offset + 1, Ok(()));
        }
        let shared = &self.inner.shared;
        let acknowledgement = shared.with(|core| match cumulative {
            true => core.ack_cumulative(place),
            false => core.ack(place),
        });
        // There may be room for another record now.
        shared.news.notify_waiters();
        acknowledgement
    }

    /// Moves the cursor of every partition of this consumer. When it answers, what was handed out before is void, and what comes next
    /// comes from the new place. At most for the client's request time-out.
    ///
    /// # Errors
    /// OFFSET_OUT_OF_RANGE, NOT_OWNED (a FAILOVER consumer that stands by), …: cursors of other partitions may have been moved. Dropped
    /// while it waits, the cursors are moved all the same.
    pub async fn seek(&self, to: Start) -> Result<(), Error> {
        self.seek_partitions(to, None).await
    }

    /// As [`SubscriptionConsumer::seek`] for one partition.
    ///
    /// # Errors
    /// Those of `seek`; Invalid for a partition that this consumer does not have.
    pub async fn seek_partition(&self, partition: u32, to: Start) -> Result<(), Error> {
        self.seek_partitions(to, Some(partition)).await
    }

    async fn seek_partitions(&self, to: Start, only: Option<u32>) -> Result<(), Error> {
        let shared = &self.inner.shared;
        let until = Instant::now() + shared.client.request_timeout;
        let answers = shared.with(|core| {
            let partitions = only.map_or_else(|| core.partitions(), |only| vec![only]);
            let asked = partitions.into_iter().map(|partition| {
                let (answer, answered) = oneshot::channel();
                core.seek(partition, start_at(to), until, answer);
                answered
            });
            asked.collect::<Vec<_>>()
        });
        let mut first = Ok(());
        for answered in answers {
            let outcome = answered.await.unwrap_or_else(|_| {
                Err(Error::invalid(
                    "this consumer does not have such a partition",
                ))
            });
            first = first.and(outcome);
        }
        first
    }

    /// Hands out nothing more, waits for the receipts of what was acknowledged (at most for the client's request time-out) and detaches.
    /// Every clone is closed. Answers what was handed out and is not acknowledged for certain.
    ///
    /// # Errors
    /// None today; cancel-safe: called again it goes on waiting.
    pub async fn close(&self) -> Result<Unacknowledged, Error> {
        let shared = &self.inner.shared;
        shared.with(|core| core.close());
        shared.news.notify_waiters();
        let flushed = async {
            loop {
                let news = shared.news.notified();
                let mut news = std::pin::pin!(news);
                news.as_mut().enable();
                if shared.with(|core| core.is_flushed()) {
                    return;
                }
                news.await;
            }
        };
        // What has no receipt by then is answered below.
        let _ = timeout(shared.client.request_timeout, flushed).await;
        let offsets = shared.with(|core| {
            let open = core.unacknowledged();
            core.shut();
            open
        });
        shared.hang_up();
        shared.stop_control.cancel();
        shared.tasks.close();
        let _ = timeout(FAREWELL_MAX, shared.tasks.wait()).await;
        shared.stop.cancel();
        Ok(Unacknowledged { offsets })
    }

    /// Full name of the topic.
    pub fn topic(&self) -> &str {
        self.inner.shared.topic.name.as_str()
    }

    /// Name of the subscription, as it was given.
    pub fn subscription(&self) -> &str {
        &self.inner.subscription
    }

    /// Name of this consumer.
    pub fn name(&self) -> &str {
        &self.inner.name
    }

    /// Partitions that this consumer is attached to, or will be.
    pub fn partitions(&self) -> Vec<u32> {
        self.inner.shared.with(|core| core.partitions())
    }

    /// Partitions of which this consumer gets the records now: all of an EXCLUSIVE one while it is attached.
    pub fn active_partitions(&self) -> Vec<u32> {
        self.inner.shared.with(|core| core.active_partitions())
    }

    /// What was done so far.
    pub fn stats(&self) -> ConsumerStats {
        let inner = &self.inner;
        let (unacked_records, waiting_bytes, attachments) =
            inner.shared.with(|core| core.figures());
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        ConsumerStats {
            records: read(&inner.records),
            redeliveries: read(&inner.redeliveries),
            offsets_gone: read(&inner.offsets_gone),
            unacked_records,
            waiting_bytes,
            attachments,
        }
    }
}

impl Inner {
    fn opened(&self) -> MutexGuard<'_, Opened> {
        self.opened.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn ahead(&self) -> bool {
        self.mode == DeliveryMode::AtMostOnce
    }

    /// Looks for the next thing, without waiting.
    fn step(&self) -> Result<Step, Error> {
        let mut opened = self.opened();
        loop {
            match opened.next(self.ahead(), &self.shared) {
                Yield::Record {
                    record,
                    place,
                    redelivery,
                } => {
                    self.records.fetch_add(1, Ordering::Relaxed);
                    self.redeliveries
                        .fetch_add(redelivery.into(), Ordering::Relaxed);
                    let record = self
                        .interceptors
                        .before_deliver(self.shared.topic.name.as_str(), record)?;
                    return Ok(Step::Got(Consumed::Record(ReceivedRecord {
                        record,
                        redelivery,
                        place,
                    })));
                }
                Yield::Ahead(number, acknowledgement) => {
                    return Ok(Step::Ahead(number, acknowledgement));
                }
                Yield::Full => return Ok(Step::Wait),
                Yield::Nothing => {}
            }
            match self.shared.with(|core| core.next()) {
                Next::Unit(unit) => opened.open(unit, self.ahead(), &self.shared)?,
                Next::Note(note) => return Ok(Step::Got(Consumed::Note(self.count(note)))),
                Next::Failed(error) | Next::Ended(error) => return Err(error),
                Next::Closed => return Ok(Step::Closed),
                Next::Nothing => return Ok(Step::Wait),
            }
        }
    }

    fn count(&self, note: ConsumerNote) -> ConsumerNote {
        match &note {
            ConsumerNote::Skipped {
                offsets,
                why: SkipReason::Lost | SkipReason::Trimmed,
                partition,
            } => {
                let gone = offsets.end - offsets.start;
                warn!(partition, first = offsets.start, gone, "offsets are gone");
                self.offsets_gone.fetch_add(gone, Ordering::Relaxed);
            }
            ConsumerNote::Blocked {
                partition,
                over: false,
                message,
                ..
            } => warn!(partition, message, "deliveries are held up"),
            ConsumerNote::Evicted { partition, base } => {
                warn!(partition, %base, "backlog quota: records below that were not acknowledged are lost to the subscription");
            }
            _ => {}
        }
        note
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        let shared = &self.shared;
        if !shared.stop.is_cancelled() && !shared.with(|core| core.is_flushed()) {
            warn!(
                topic = %shared.topic.name,
                subscription = %self.subscription,
                "consumer was dropped with acknowledgements that have no receipt; call close()"
            );
        }
        shared.stop.cancel();
    }
}

impl fmt::Debug for SubscriptionConsumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SubscriptionConsumer")
            .field("topic", &self.topic())
            .field("subscription", &self.subscription())
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}

/// What `build` says when it waited for too long.
pub(super) fn not_attached(trouble: Option<Error>, waited: Duration) -> Error {
    trouble.unwrap_or_else(|| {
        Error::local(
            ErrorKind::Unavailable,
            format!("the subscription could not be attached within {waited:?}"),
        )
    })
}
