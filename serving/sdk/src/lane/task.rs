//! The shell of a lane: one task per (producer, partition) that feeds [`LaneCore`] and does what it says.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use hulse_proto::error::{ErrorKind, Fault, Reason};
use hulse_proto::id::{Offset, TopicId};
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::produce_up::Item;
use rand_chacha::ChaCha8Rng;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep_until};
use tracing::{debug, warn};

use super::barriers::Barriers;
use super::batch::Batch;
use super::core::{LaneCore, is_about_topic};
use super::event::{Cause, Effect, Event, Room, Stored};
use super::link::{Attempt, Link, open};
use crate::backoff::Backoff;
use crate::client::Redirect;
use crate::error::Error;
use crate::producer::{Acks, BatchFate, Content, ProducerIdentity, Queue, Request, Shared, count};
use crate::session::{Attachment, Down, Up};

/// A lane with nothing to wait for looks again after this long; only bounds a sleep.
const IDLE: Duration = Duration::from_secs(3600);

pub(crate) struct LaneTask {
    shared: Arc<Shared>,
    partition: u32,
    queue: Arc<Queue>,
    rng: ChaCha8Rng,
    backoff: Backoff,
    /// Made when the first lane is open, since only then the identity is known.
    core: Option<LaneCore<Batch>>,
    topic: Option<TopicId>,
    link: Option<Attachment>,
    connecting: Option<BoxFuture<'static, Result<Link, Error>>>,
    /// For the next attempt to connect.
    resolve: bool,
    delay: Duration,
    /// The attempt of now asks anew.
    resolved: bool,
    /// When a refused lane is resumed.
    retry_at: Option<Instant>,
    sequence_asked: Vec<oneshot::Sender<Result<i32, Error>>>,
    barriers: Barriers,
}

impl LaneTask {
    pub(crate) fn new(shared: Arc<Shared>, partition: u32, queue: Arc<Queue>) -> Self {
        let rng = shared.core.child_rng();
        Self {
            shared,
            partition,
            queue,
            rng,
            backoff: Backoff::new(),
            core: None,
            topic: None,
            link: None,
            connecting: None,
            resolve: false,
            delay: Duration::ZERO,
            resolved: false,
            retry_at: None,
            sequence_asked: Vec::new(),
            barriers: Barriers::default(),
        }
    }

    /// Until the queue is closed and empty, or the producer stops.
    pub(crate) async fn run(mut self) {
        loop {
            let now = Instant::now();
            self.pass_time(now);
            self.take_requests();
            self.pump(now);
            self.connect_when_needed();
            if self.is_finished() {
                return;
            }
            let wake_at = self.wake_at(now);
            tokio::select! {
                biased;
                () = self.shared.stop.cancelled() => return,
                down = next_down(&mut self.link) => self.on_down(down),
                link = next_link(&mut self.connecting) => self.on_connected(link),
                () = self.queue.wake.notified() => {}
                () = sleep_until(wake_at) => {}
            }
        }
    }

    fn pass_time(&mut self, now: Instant) {
        let timeout = self.shared.delivery.timeout;
        self.event(Event::Tick(now));
        // Only what was never sent waits in the queue, so it is certainly not stored.
        for sealed in self.queue.expire(now, timeout) {
            self.shared.fail_unsent(&sealed.fate, Cause::TimedOut);
        }
        if self.retry_at.is_some_and(|at| at <= now) {
            self.retry_at = None;
            self.event(Event::RetryDue);
        }
    }

    fn take_requests(&mut self) {
        for request in self.queue.take_requests() {
            match request {
                Request::LastSequence(answer) => self.sequence_asked.push(answer),
                Request::Barrier(answer) => self.barriers.ask(answer, self.link.as_ref()),
            }
        }
        if let Some(core) = self.core.as_ref().filter(|core| core.is_up()) {
            let last = core.last_sequence();
            for answer in self.sequence_asked.drain(..) {
                let _ = answer.send(Ok(last));
            }
        }
    }

    /// Sends what there is room for.
    fn pump(&mut self, now: Instant) {
        let timeout = self.shared.delivery.timeout;
        while let Some(core) = &mut self.core {
            let room = core.room();
            let Some(sealed) = self.queue.take(room, now) else {
                break;
            };
            let records = sealed.fate.weight().records;
            // Compression happens here, off the caller's path and in parallel for the partitions.
            let bytes = match sealed.content {
                Content::Built(builder) => builder.build(None),
                Content::Raw(bytes) => bytes,
            };
            count(&self.shared.counters.batches_sent, 1);
            count(&self.shared.counters.records_sent, records.into());
            let batch = Batch::new(bytes, records, sealed.fate);
            let effects = core.offer(batch, sealed.since + timeout);
            self.apply(effects);
            debug_assert!(room != Room::None, "take() answers nothing without room");
        }
    }

    fn connect_when_needed(&mut self) {
        let up = self.link.is_some() || self.connecting.is_some();
        let busy = self.core.as_ref().is_some_and(|core| !core.is_idle());
        if up || !(busy || self.queue.has_work() || !self.sequence_asked.is_empty()) {
            return;
        }
        let identity = self.core.as_ref().and_then(LaneCore::identity);
        self.resolved = self.resolve;
        let attempt = Attempt {
            partition: self.partition,
            delay: std::mem::take(&mut self.delay),
            resolve: std::mem::take(&mut self.resolve),
            identity: identity.map(|(id, epoch)| ProducerIdentity { id, epoch }),
        };
        self.connecting = Some(open(Arc::clone(&self.shared), attempt).boxed());
    }

    fn is_finished(&self) -> bool {
        self.queue.is_closed()
            && !self.queue.has_work()
            && self.core.as_ref().is_none_or(LaneCore::is_idle)
    }

    fn wake_at(&self, now: Instant) -> Instant {
        let core = self.core.as_ref().and_then(LaneCore::next_deadline);
        let queue = self.queue.next_deadline(now, self.shared.delivery.timeout);
        let wakes = core.into_iter().chain(queue).chain(self.retry_at);
        wakes.min().unwrap_or(now + IDLE)
    }

    fn on_connected(&mut self, link: Result<Link, Error>) {
        self.connecting = None;
        let link = match link {
            Ok(link) => link,
            Err(error) => return self.not_connected(&error),
        };
        count(&self.shared.counters.lanes_opened, 1);
        let Link {
            attachment,
            topic,
            identity,
            opened,
        } = link;
        self.core.get_or_insert_with(|| {
            LaneCore::new(identity.map(|identity| (identity.id, identity.epoch)))
        });
        if self
            .topic
            .replace(topic)
            .is_some_and(|before| before != topic)
        {
            let words = format!("topic {} was deleted and made anew", self.shared.topic.name);
            self.event(Event::Recreated(Cause::Refused(Fault::new(
                Reason::TopicRecreated,
                words,
            ))));
        }
        let batches_in_flight_max = attachment.session.batches_in_flight_max;
        self.link = Some(attachment);
        self.event(Event::Opened {
            leader_epoch: opened.leader_epoch,
            last_epoch: opened.last_epoch,
            last_sequence: opened.last_sequence,
            batches_in_flight_max,
        });
    }

    fn not_connected(&mut self, error: &Error) {
        let lost_way = error.reason().is_some_and(is_about_topic);
        if error.is_fenced() {
            return self.shared.fail(error.clone());
        }
        if error.is_retryable() {
            debug!(partition = self.partition, %error, "lane is not open yet");
            self.trouble(error);
            self.resolve = true;
            self.delay = self.backoff.next(&mut self.rng, error.retry_after());
            return;
        }
        if lost_way && !self.resolved {
            // The answer may be about an older topic of this name.
            self.resolve = true;
            return;
        }
        // Nothing that waits can be sent; what comes later is tried anew.
        warn!(partition = self.partition, %error, "partition cannot be produced to");
        self.fail_all(error);
        self.resolve = true;
        self.delay = self.backoff.next(&mut self.rng, None);
    }

    fn on_down(&mut self, down: Down) {
        match down {
            Down::Ack(ack) => self.on_ack(&ack),
            // Only acks none asks to be told; there it counts as the answer.
            Down::Written { seq } => {
                let stored = Stored {
                    base_offset: None,
                    append_time: 0,
                    duplicate: false,
                };
                self.backoff.reset();
                self.event(Event::Acked { seq, stored });
            }
            Down::Nack { seq, fault } => {
                if fault.reason != Reason::NackedBefore {
                    count(&self.shared.counters.refusals, 1);
                    debug!(partition = self.partition, seq, %fault, "batch was refused");
                    self.trouble(&fault.clone().into());
                }
                if let Some(to) = Redirect::from_fault(&fault) {
                    // The lane is opened anew for this refusal; the look-up is not believed where it knows less.
                    self.shared.topic.moved(self.partition, to);
                }
                self.event(Event::Nacked { seq, fault });
            }
            Down::Flushed { seq } => self.barriers.passed(seq),
            Down::Moved(owner) => {
                let newer =
                    owner.is_some_and(|owner| self.shared.topic.moved(self.partition, owner));
                // A server's word is tried before a look-up, and at once, unless more is known already.
                self.lose_link(None);
                if newer {
                    self.resolve = false;
                    self.delay = Duration::ZERO;
                }
            }
            Down::Fenced(fault) if fault.kind() == ErrorKind::Fenced => {
                self.shared.fail(fault.into());
            }
            Down::Fenced(fault) | Down::Closed(Some(fault)) => self.lose_link(Some(&fault.into())),
            Down::Closed(None) => self.lose_link(None),
            Down::Lost(error) => self.lose_link(Some(&error)),
            Down::Opened(_) => self.violation("a second Opened"),
        }
    }

    fn on_ack(&mut self, ack: &v1::Ack) {
        self.backoff.reset();
        self.shared.trouble.over();
        for (seq, batch) in (ack.first_seq..).zip(&ack.batches) {
            if self.link.is_none() {
                return;
            }
            let stored = Stored {
                base_offset: Some(Offset(batch.base_offset)),
                append_time: batch.append_time,
                duplicate: batch.duplicate,
            };
            self.event(Event::Acked { seq, stored });
        }
    }

    /// The link is gone; everything unanswered is sent again over the next one.
    fn lose_link(&mut self, why: Option<&Error>) {
        if let Some(error) = why {
            debug!(partition = self.partition, %error, "lane lost its link");
            self.trouble(error);
        }
        self.disconnect();
        self.event(Event::LinkLost);
        self.resolve = true;
        self.delay = self
            .backoff
            .next(&mut self.rng, why.and_then(Error::retry_after));
    }

    fn trouble(&self, error: &Error) {
        let shared = &self.shared;
        shared
            .trouble
            .note(shared.topic.name.as_str(), self.partition, error);
    }

    fn disconnect(&mut self) {
        self.link = None;
        self.retry_at = None;
        self.barriers.clear();
    }

    fn violation(&mut self, what: &str) {
        warn!(
            partition = self.partition,
            what, "broker breaks the protocol; the lane is opened anew"
        );
        self.lose_link(None);
    }

    fn event(&mut self, event: Event) {
        if let Some(core) = &mut self.core {
            let effects = core.on_event(event);
            self.apply(effects);
        }
    }

    fn apply(&mut self, effects: Vec<Effect<Arc<BatchFate>>>) {
        for effect in effects {
            match effect {
                Effect::Send { seq, batch } => self.send(seq, batch),
                Effect::Resume { from_seq } => {
                    if let Some(link) = &self.link {
                        let lane = link.lane;
                        link.submit(Up::Control(Item::Resume(v1::ResumeLane { lane, from_seq })));
                    }
                }
                Effect::Settle { tag, result } => self.shared.settle(&tag, result),
                Effect::Wait { at_least } => {
                    let wait = self.backoff.next(&mut self.rng, at_least);
                    self.retry_at = Some(Instant::now() + wait);
                }
                Effect::Reopen { resolve, after } => {
                    self.disconnect();
                    self.resolve = resolve;
                    if resolve || after.is_some() {
                        self.delay = self.backoff.next(&mut self.rng, after);
                    }
                }
                Effect::Stop { failure, producer } => {
                    let error = self.shared.error_of(&failure);
                    self.stop(error, producer);
                }
                Effect::Violation(what) => return self.violation(what),
            }
        }
    }

    fn send(&mut self, seq: u64, batch: bytes::Bytes) {
        let Some(link) = &self.link else {
            return;
        };
        count(&self.shared.counters.bytes_sent, batch.len() as u64);
        self.barriers.sent(seq);
        let written = match self.shared.delivery.acks {
            Acks::None => link.mailbox_sender(),
            Acks::Quorum => None,
        };
        let lane = link.lane;
        link.submit(Up::Batch {
            lane,
            seq,
            batch,
            written,
        });
    }

    fn stop(&mut self, error: Error, producer: bool) {
        warn!(partition = self.partition, %error, "partition is no longer produced to");
        self.disconnect();
        if producer {
            return self.shared.fail(error);
        }
        self.queue.close(error.clone());
        self.fail_all(&error);
    }

    /// Settles everything with `error`.
    fn fail_all(&mut self, error: &Error) {
        let cause = Cause::Failed(error.clone());
        self.event(Event::Restart(cause.clone()));
        for sealed in self.queue.drain() {
            self.shared.fail_unsent(&sealed.fate, cause.clone());
        }
        for answer in self.sequence_asked.drain(..) {
            let _ = answer.send(Err(error.clone()));
        }
    }

    fn give_up(&mut self) {
        let error = self.shared.closed_error();
        self.queue.close(error.clone());
        self.take_requests();
        self.fail_all(&error);
    }
}

impl Drop for LaneTask {
    /// However the task ends (producer dropped or stopped, runtime shut down, a bug), nobody waits for ever.
    fn drop(&mut self) {
        if std::thread::panicking() {
            self.shared.fail(Error::local(
                ErrorKind::Internal,
                "a bug ended this producer; report it and make a new one",
            ));
        }
        self.give_up();
    }
}

async fn next_down(link: &mut Option<Attachment>) -> Down {
    match link {
        Some(link) => link.recv().await,
        None => std::future::pending().await,
    }
}

async fn next_link(
    connecting: &mut Option<BoxFuture<'static, Result<Link, Error>>>,
) -> Result<Link, Error> {
    match connecting {
        Some(connecting) => connecting.await,
        None => std::future::pending().await,
    }
}
