//! The handle of a consumer that shares.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use futures::stream::FuturesUnordered;
use futures::{Stream, StreamExt};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout, timeout_at};

use super::ahead::Ahead;
use super::book::{Delay, QueueReceipt, Said, Verdict};
use super::lane::Order;
use super::message::QueueMessage;
use super::shared::{Next, Shared, closed};
use crate::error::Error;
use crate::interceptor::Chain;
use crate::producer::DeliveryMode;

/// How long `close` waits for brokers to end their streams.
const FAREWELL_MAX: Duration = Duration::from_secs(3);
/// Longest delay that is sent; the broker has a bound of its own.
const DELAY_MAX: Duration = Duration::from_secs(24 * 3_600);

/// Shares the records of a subscription with other consumers. Cheap to clone; clones are one consumer. Dropping the last clone detaches at
/// once: answers without a receipt may be lost, so call [`QueueConsumer::close`].
#[derive(Clone)]
pub struct QueueConsumer {
    inner: Arc<Inner>,
}

struct Inner {
    shared: Arc<Shared>,
    name: String,
    subscription: String,
    mode: DeliveryMode,
    interceptors: Chain,
    ahead: Ahead,
}

/// Parts of a handle.
pub(super) struct Handle {
    pub(super) shared: Arc<Shared>,
    pub(super) name: String,
    pub(super) subscription: String,
    pub(super) mode: DeliveryMode,
    pub(super) interceptors: Chain,
}

impl QueueConsumer {
    pub(super) fn new(handle: Handle) -> Self {
        Self {
            inner: Arc::new(Inner {
                shared: handle.shared,
                name: handle.name,
                subscription: handle.subscription,
                mode: handle.mode,
                interceptors: handle.interceptors,
                ahead: Ahead::default(),
            }),
        }
    }

    pub(super) fn shared(&self) -> &Shared {
        &self.inner.shared
    }

    /// The next records, at most `max`: those that are there, or else the first that comes within `wait`; none when none came.
    ///
    /// # Errors
    /// A batch is damaged, or an interceptor refused a record, which is returned as one that failed: the next call goes on. Why the consumer is finished (its subscription was deleted, …), again and again. Broken
    /// links are no errors. Cancel-safe: nothing is lost.
    pub async fn receive(&self, max: usize, wait: Duration) -> Result<Vec<QueueMessage>, Error> {
        let until = Instant::now() + wait;
        match timeout_at(until, self.messages(max)).await {
            Ok(messages) => messages,
            Err(_) => Ok(Vec::new()),
        }
    }

    /// The next record; waits for it. `None` after `close`.
    ///
    /// # Errors
    /// Those of [`QueueConsumer::receive`]. Cancel-safe.
    pub async fn next(&self) -> Result<Option<QueueMessage>, Error> {
        match self.messages(1).await {
            Ok(mut messages) => Ok(messages.pop()),
            Err(_) if self.inner.shared.is_closed() => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The records as a stream. It ends after `close`; after an error it goes on.
    pub fn stream(&self) -> impl Stream<Item = Result<QueueMessage, Error>> + Send + 'static {
        futures::stream::unfold(self.clone(), |consumer| async move {
            let item = consumer.next().await.transpose()?;
            Some((item, consumer))
        })
    }

    /// Gives each record to `handler`, at most `concurrency` at a time, until the consumer is closed: what it takes is acknowledged, what
    /// it refuses comes again after the subscription's back-off, and counts.
    ///
    /// # Errors
    /// Why the consumer is finished. Dropped, it drops the handlers that run: their records come again.
    pub async fn handle<F, R, E>(&self, concurrency: usize, handler: F) -> Result<(), Error>
    where
        F: Fn(Arc<QueueMessage>) -> R,
        R: Future<Output = Result<(), E>>,
        E: fmt::Display,
    {
        let concurrency = concurrency.max(1);
        let mut running = FuturesUnordered::new();
        loop {
            tokio::select! {
                biased;
                Some(()) = running.next(), if !running.is_empty() => {}
                next = self.next(), if running.len() < concurrency => match next? {
                    None => break,
                    Some(message) => {
                        let message = Arc::new(message);
                        let handled = handler(Arc::clone(&message));
                        running.push(async move {
                            // Its receipt is waited for by `close`.
                            match handled.await {
                                Ok(()) => drop(self.ack(&message)),
                                Err(error) => {
                                    tracing::debug!(offset = %message.offset, %error, "a record is returned");
                                    drop(self.nack(&message));
                                }
                            }
                        });
                    }
                },
            }
        }
        while running.next().await.is_some() {}
        Ok(())
    }

    /// The application is through with this record: it shall not come again. In delivery mode `at_most_once` that is said and durable
    /// before it is handed over.
    pub fn ack(&self, message: &QueueMessage) -> QueueReceipt {
        match self.inner.mode {
            DeliveryMode::AtMostOnce => QueueReceipt::decided(Ok(())),
            DeliveryMode::AtLeastOnce => self.say(message, Verdict::Ack),
        }
    }

    /// As [`QueueConsumer::ack`], before the hand-over.
    pub(super) fn ack_ahead(&self, message: &QueueMessage) -> QueueReceipt {
        self.say(message, Verdict::Ack)
    }

    /// The attempt failed: the record comes again after the subscription's back-off, and that counts towards its dead letter.
    pub fn nack(&self, message: &QueueMessage) -> QueueReceipt {
        let delay = Delay::Policy;
        self.say(
            message,
            Verdict::Return {
                failed: true,
                delay,
            },
        )
    }

    /// As [`QueueConsumer::nack`], and not before `delay`, at most a day.
    pub fn nack_after(&self, message: &QueueMessage, delay: Duration) -> QueueReceipt {
        let ms = delay.min(DELAY_MAX).as_millis();
        let delay = Delay::Millis(u32::try_from(ms).unwrap_or(u32::MAX));
        self.say(
            message,
            Verdict::Return {
                failed: true,
                delay,
            },
        )
    }

    /// The record was not tried: it comes again at once, here or elsewhere, and that does not count.
    pub fn release(&self, message: &QueueMessage) -> QueueReceipt {
        let delay = Delay::Millis(0);
        self.say(
            message,
            Verdict::Return {
                failed: false,
                delay,
            },
        )
    }

    /// The record can never be processed: it is a dead letter now, whatever the number of its attempts.
    pub fn reject(&self, message: &QueueMessage) -> QueueReceipt {
        self.say(message, Verdict::Reject)
    }

    fn say(&self, message: &QueueMessage, verdict: Verdict) -> QueueReceipt {
        if !message.answers() {
            return QueueReceipt::decided(Err(Error::invalid("the record has an answer already")));
        }
        let (answer, receipt) = oneshot::channel();
        let said = Said {
            offset: message.record.offset.0,
            verdict,
            attachment: message.attachment,
            state_epoch: message.state_epoch,
            answer,
            alone: false,
        };
        if let Some(lane) = self.inner.shared.lanes.get(&message.record.partition) {
            // A lane that has ended drops it, and the receipt says so.
            let _ = lane.send(Order::Say(said));
        }
        QueueReceipt(receipt)
    }

    async fn messages(&self, max: usize) -> Result<Vec<QueueMessage>, Error> {
        match self.inner.mode {
            DeliveryMode::AtMostOnce => self.inner.ahead.next(self, max).await,
            DeliveryMode::AtLeastOnce => self.delivered(max).await,
        }
    }

    /// What came and no interceptor refuses.
    pub(super) async fn delivered(&self, max: usize) -> Result<Vec<QueueMessage>, Error> {
        loop {
            let messages = self.taken(max).await?;
            if self.inner.interceptors.is_empty() {
                return Ok(messages);
            }
            let messages = messages.into_iter();
            let handed: Vec<_> = messages
                .filter_map(|message| self.intercepted(message))
                .collect();
            if !handed.is_empty() {
                return Ok(handed);
            }
        }
    }

    /// One that is refused is returned, and the next call says why.
    fn intercepted(&self, mut message: QueueMessage) -> Option<QueueMessage> {
        let (partition, offset) = (message.record.partition, message.record.offset);
        let record = message.record.clone();
        match self.inner.interceptors.before_deliver(self.topic(), record) {
            Ok(record) => {
                message.record = record;
                // Its answer goes by them.
                (message.record.partition, message.record.offset) = (partition, offset);
                Some(message)
            }
            Err(error) => {
                drop(self.nack(&message));
                self.inner.shared.failed(error);
                None
            }
        }
    }

    async fn taken(&self, max: usize) -> Result<Vec<QueueMessage>, Error> {
        let shared = &self.inner.shared;
        loop {
            let news = shared.news.notified();
            let mut news = std::pin::pin!(news);
            // Before looking, so that nothing which comes in between is missed.
            news.as_mut().enable();
            match shared.next(max.max(1)) {
                Next::Messages(messages) => return Ok(messages),
                Next::Failed(error) => return Err(error),
                Next::Closed => return Err(closed()),
                Next::Nothing => news.await,
            }
        }
    }

    /// Hands out nothing more, gives back what waited, waits for the receipts of what was answered (at most for the client's request
    /// time-out) and detaches. Every clone is closed. What was handed out and has no answer comes again, and does not count as failed.
    ///
    /// # Errors
    /// Unavailable: not all answers have a receipt; their records may come again. Cancel-safe: called again it goes on waiting.
    pub async fn close(&self) -> Result<(), Error> {
        let shared = &self.inner.shared;
        // Detaching gives them back.
        drop(shared.close());
        let mut closing = FuturesUnordered::new();
        for lane in shared.lanes.values() {
            let (done, closed) = oneshot::channel();
            if lane.send(Order::Close(done)).is_ok() {
                closing.push(closed);
            }
        }
        let all = async { while closing.next().await.is_some() {} };
        let waited = shared.client.request_timeout;
        let in_time = timeout(waited, all).await;
        shared.stop.cancel();
        shared.tasks.close();
        let _ = timeout(FAREWELL_MAX, shared.tasks.wait()).await;
        in_time.map_err(|_| {
            let words = format!("not every answer had its receipt within {waited:?}");
            Error::local(hulse_proto::error::ErrorKind::Unavailable, words)
        })
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
}

impl Drop for Inner {
    fn drop(&mut self) {
        self.shared.stop.cancel();
    }
}

impl fmt::Debug for QueueConsumer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("QueueConsumer")
            .field("topic", &self.topic())
            .field("subscription", &self.subscription())
            .field("name", &self.name())
            .finish_non_exhaustive()
    }
}
