//! What the handles and the partitions' tasks of one consumer share.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use hulse_proto::error::ErrorKind;
use hulse_proto::id::TopicId;
use hulse_proto::wire::v1;
use tokio::sync::{Notify, mpsc, watch};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::transport::Channel;

use super::held_up::HeldUp;
use super::lane::Order;
use super::message::QueueMessage;
use crate::client::{Core, Topic};
use crate::connect::Broker;
use crate::consumer::core::Amount;
use crate::error::Error;

/// All of a consumer.
pub(super) struct Shared {
    pub(super) client: Arc<Core>,
    pub(super) topic: Topic,
    /// The topic as first resolved: another one of the same name is not consumed.
    pub(super) topic_id: TopicId,
    /// Lane and partition are filled in.
    pub(super) attach: v1::Attach,
    /// Of the receive queue, per partition.
    pub(super) room: Amount,
    pub(super) lanes: BTreeMap<u32, mpsc::UnboundedSender<Order>>,
    ready: Mutex<Ready>,
    /// A connection of its own to each broker: a consumer that does not take its records fills the connection's window (serving.md E1.3).
    channels: Mutex<BTreeMap<Broker, Channel>>,
    /// Partitions on which nothing flows.
    pub(super) held_up: watch::Sender<BTreeMap<u32, HeldUp>>,
    /// There is something new to be handed out.
    pub(super) news: Notify,
    /// Ends every task.
    pub(super) stop: CancellationToken,
    pub(super) tasks: TaskTracker,
}

/// What waits for the application.
#[derive(Default)]
struct Ready {
    messages: VecDeque<QueueMessage>,
    failed: VecDeque<Error>,
    /// Of the whole consumer.
    ended: Option<Error>,
    closed: bool,
    /// Partitions that were attached once.
    begun: BTreeSet<u32>,
    trouble: Option<Error>,
}

/// What a look finds.
pub(super) enum Next {
    Messages(Vec<QueueMessage>),
    Failed(Error),
    Closed,
    Nothing,
}

/// What a consumer is made from.
pub(super) struct Parts {
    pub(super) client: Arc<Core>,
    pub(super) topic: Topic,
    pub(super) attach: v1::Attach,
    pub(super) room: Amount,
    pub(super) lanes: BTreeMap<u32, mpsc::UnboundedSender<Order>>,
}

impl Shared {
    pub(super) fn new(parts: Parts) -> Result<Self, Error> {
        let (topic_id, _) = parts.topic.owner(0)?;
        Ok(Self {
            client: parts.client,
            topic: parts.topic,
            topic_id,
            attach: parts.attach,
            room: parts.room,
            lanes: parts.lanes,
            ready: Mutex::default(),
            channels: Mutex::default(),
            held_up: watch::Sender::new(BTreeMap::new()),
            news: Notify::new(),
            stop: CancellationToken::new(),
            tasks: TaskTracker::new(),
        })
    }

    fn lock(&self) -> MutexGuard<'_, Ready> {
        self.ready.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn channel(&self, broker: &Broker) -> Result<Channel, Error> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = channels.get(broker) {
            return Ok(channel.clone());
        }
        let channel = self.client.pool.dedicated(broker)?;
        channels.insert(broker.clone(), channel.clone());
        Ok(channel)
    }

    /// Records came.
    pub(super) fn push(&self, messages: Vec<QueueMessage>) {
        let mut ready = self.lock();
        if !ready.closed {
            ready.messages.extend(messages);
        }
        drop(ready);
        self.news.notify_waiters();
    }

    /// What waits of a partition is void; it comes again.
    pub(super) fn void(&self, partition: u32) {
        let mut ready = self.lock();
        let all = std::mem::take(&mut ready.messages);
        let (gone, kept) = all
            .into_iter()
            .partition::<VecDeque<_>, _>(|message| message.record.partition == partition);
        ready.messages = kept;
        drop(ready);
        // Their room is given back outside the lock.
        drop(gone);
    }

    /// A partition was attached.
    pub(super) fn begun(&self, partition: u32) {
        self.lock().begun.insert(partition);
        self.news.notify_waiters();
    }

    /// Something cannot be done now.
    pub(super) fn trouble(&self, error: Error) {
        self.lock().trouble = Some(error);
    }

    pub(super) fn last_trouble(&self) -> Option<Error> {
        self.lock().trouble.clone()
    }

    /// Of one record or partition; the rest goes on.
    pub(super) fn failed(&self, error: Error) {
        self.lock().failed.push_back(error);
        self.news.notify_waiters();
    }

    /// The whole consumer is finished.
    pub(super) fn ended(&self, error: Error) {
        self.lock().ended.get_or_insert(error);
        self.news.notify_waiters();
    }

    /// Every partition was attached, or one cannot be.
    pub(super) fn has_begun(&self) -> Option<Result<(), Error>> {
        let ready = self.lock();
        match &ready.ended {
            Some(error) => Some(Err(error.clone())),
            None => (ready.begun.len() == self.lanes.len()).then_some(Ok(())),
        }
    }

    /// At most so many records, without waiting.
    pub(super) fn next(&self, max: usize) -> Next {
        let mut ready = self.lock();
        if ready.closed {
            return Next::Closed;
        }
        if let Some(error) = ready.failed.pop_front() {
            return Next::Failed(error);
        }
        if ready.messages.is_empty() {
            return match &ready.ended {
                Some(error) => Next::Failed(error.clone()),
                None => Next::Nothing,
            };
        }
        let count = max.min(ready.messages.len());
        let mut messages: Vec<_> = ready.messages.drain(..count).collect();
        let rooms: Vec<_> = messages.iter_mut().map(|it| it.room.take()).collect();
        drop(ready);
        // The room is given back outside the lock.
        drop(rooms);
        Next::Messages(messages)
    }

    pub(super) fn is_closed(&self) -> bool {
        self.lock().closed
    }

    /// Hands out nothing more. Answers what waited.
    pub(super) fn close(&self) -> Vec<QueueMessage> {
        let mut ready = self.lock();
        ready.closed = true;
        let waiting = ready.messages.drain(..).collect();
        drop(ready);
        self.news.notify_waiters();
        waiting
    }
}

/// The error of what comes after the end.
pub(super) fn closed() -> Error {
    Error::local(ErrorKind::Invalid, "the consumer is closed")
}
