//! What waits for one partition: the batch that still grows, and full ones before it.
//!
//! A send takes the lock for one append; the lane is woken when there is something new to do, which is once per batch.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use hulse_proto::batch::{BatchBuilder, BatchError, Compression, RecordRef};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;

use super::losses::Losses;
use super::ticket::{BatchFate, Ticket, Weight};
use crate::error::Error;
use crate::interceptor::Placing;
use crate::lane::Room;

/// How batches are made.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Batching {
    pub(crate) bytes_max: usize,
    pub(crate) linger: Duration,
    pub(crate) compression: Compression,
}

/// A question to the lane that is not a record.
#[derive(Debug)]
pub(crate) enum Request {
    /// What is the last sequence stored of this producer?
    LastSequence(oneshot::Sender<Result<i32, Error>>),
    /// Has the broker worked off everything that was handed over? Dropped when the link breaks.
    Barrier(oneshot::Sender<()>),
}

/// A batch that takes no more records.
pub(crate) struct Sealed {
    pub(crate) content: Content,
    pub(crate) fate: Arc<BatchFate>,
    /// When its first record came.
    pub(crate) since: Instant,
}

pub(crate) enum Content {
    Built(BatchBuilder),
    /// Bytes from outside, sent as they are.
    Raw(Bytes),
}

struct Growing {
    builder: BatchBuilder,
    fate: Arc<BatchFate>,
    cost: usize,
    since: Instant,
}

#[derive(Default)]
struct State {
    /// Records that were queued so far.
    queued: u64,
    growing: Option<Growing>,
    full: VecDeque<Sealed>,
    /// Somebody waits: the growing batch goes as soon as there is room.
    flushing: bool,
    requests: Vec<Request>,
    /// Fate of the batch that left last.
    left: Option<Arc<BatchFate>>,
    closed: Option<Error>,
}

/// The queue of one partition. Its bound is the producer's memory budget.
pub(crate) struct Queue {
    partition: u32,
    batching: Batching,
    losses: Arc<Losses>,
    /// `None`: no interceptors.
    placing: Option<Arc<Placing>>,
    state: Mutex<State>,
    pub(crate) wake: Notify,
}

impl Queue {
    pub(super) fn new(
        partition: u32,
        batching: Batching,
        losses: Arc<Losses>,
        placing: Option<Arc<Placing>>,
    ) -> Self {
        Self {
            partition,
            batching,
            losses,
            placing,
            state: Mutex::default(),
            wake: Notify::new(),
        }
    }

    /// Appends a record that holds `cost` of the memory budget.
    pub(super) fn append(&self, record: &RecordRef<'_>, cost: usize) -> Result<Ticket, Error> {
        let mut state = self.lock();
        if let Some(error) = &state.closed {
            return Err(error.clone());
        }
        let headers;
        let record = match &self.placing {
            None => *record,
            Some(placing) => {
                headers = placing.headers(self.partition, state.queued, record.headers)?;
                RecordRef {
                    headers: &headers,
                    ..*record
                }
            }
        };
        // `cost` is above what the record takes on the wire.
        let bytes_max = self.batching.bytes_max;
        let full = |growing: &Growing| growing.builder.len_estimate() + cost > bytes_max;
        let mut news = state.growing.as_ref().is_none_or(full) && self.begin(&mut state)?;
        let mut pushed = self.push(&mut state, &record);
        if matches!(pushed, Err(BatchError::Full)) {
            news |= self.begin(&mut state)?;
            pushed = self.push(&mut state, &record);
        }
        if let Err(error) = pushed {
            // A batch that was begun for a record that nobody takes.
            if state
                .growing
                .as_ref()
                .is_some_and(|growing| growing.builder.is_empty())
            {
                state.growing = None;
            }
            return Err(error.into());
        }
        state.queued += 1;
        let growing = state.growing.as_mut().expect("push() found it");
        growing.cost += cost;
        let ticket = growing.fate.ticket(growing.builder.count() - 1);
        drop(state);
        if news {
            self.wake.notify_one();
        }
        Ok(ticket)
    }

    fn push(&self, state: &mut State, record: &RecordRef<'_>) -> Result<(), BatchError> {
        let growing = state.growing.as_mut().expect("begin() made it");
        growing.builder.push(record)
    }

    /// Seals the growing batch, if any, and begins the next.
    fn begin(&self, state: &mut State) -> Result<bool, Error> {
        let builder = BatchBuilder::new(self.batching.compression)?;
        let fate = BatchFate::new(self.partition, state.queued, Arc::clone(&self.losses));
        state.seal();
        state.growing = Some(Growing {
            builder,
            fate,
            cost: 0,
            since: Instant::now(),
        });
        Ok(true)
    }

    /// Queues bytes as a batch of their own.
    pub(super) fn append_raw(&self, bytes: Bytes, records: u32) -> Result<Ticket, Error> {
        let mut state = self.lock();
        if let Some(error) = &state.closed {
            return Err(error.clone());
        }
        let fate = BatchFate::raw(self.partition, state.queued, Arc::clone(&self.losses));
        fate.seal(Weight { records, cost: 0 });
        state.seal();
        let ticket = fate.ticket(0);
        state.full.push_back(Sealed {
            content: Content::Raw(bytes),
            fate,
            since: Instant::now(),
        });
        drop(state);
        self.wake.notify_one();
        Ok(ticket)
    }

    /// The next batch to be sent, when there is room for it.
    pub(crate) fn take(&self, room: Room, now: Instant) -> Option<Sealed> {
        if room == Room::None {
            return None;
        }
        let mut state = self.lock();
        if state.full.is_empty() {
            let linger = self.batching.linger;
            let growing = state.growing.as_ref()?;
            let due = if linger.is_zero() {
                // It grows only while something is under way.
                room == Room::Any
            } else {
                now >= growing.since + linger
            };
            if !due && !state.flushing {
                return None;
            }
            state.seal();
        }
        let sealed = state.full.pop_front()?;
        if state.full.is_empty() && state.growing.is_none() {
            state.flushing = false;
        }
        state.left = Some(Arc::clone(&sealed.fate));
        Some(sealed)
    }

    /// When the lane has something to do by time alone: a linger or a delivery time ends.
    /// `now` is the instant for which [`Self::take`] was asked last, so that no end falls between the two.
    pub(crate) fn next_deadline(
        &self,
        now: Instant,
        delivery_timeout: Duration,
    ) -> Option<Instant> {
        let state = self.lock();
        let full = state
            .full
            .front()
            .map(|sealed| sealed.since + delivery_timeout);
        let growing = state.growing.as_ref().map(|growing| {
            let linger = self.batching.linger;
            // Overdue by linger alone means that there is no room: room wakes the lane, not time.
            let lingers = !linger.is_zero() && growing.since + linger > now;
            growing.since + if lingers { linger } else { delivery_timeout }
        });
        full.into_iter().chain(growing).min()
    }

    /// Takes out what waited for longer than `delivery_timeout`.
    pub(crate) fn expire(&self, now: Instant, delivery_timeout: Duration) -> Vec<Sealed> {
        let mut state = self.lock();
        let over = |since: Instant| since + delivery_timeout <= now;
        if state
            .growing
            .as_ref()
            .is_some_and(|growing| over(growing.since))
        {
            state.seal();
        }
        let count = state
            .full
            .iter()
            .take_while(|sealed| over(sealed.since))
            .count();
        state.full.drain(..count).collect()
    }

    pub(crate) fn has_work(&self) -> bool {
        let state = self.lock();
        state.growing.is_some() || !state.full.is_empty() || !state.requests.is_empty()
    }

    pub(crate) fn ask(&self, request: Request) -> Result<(), Error> {
        let mut state = self.lock();
        if let Some(error) = &state.closed {
            return Err(error.clone());
        }
        state.requests.push(request);
        drop(state);
        self.wake.notify_one();
        Ok(())
    }

    pub(crate) fn take_requests(&self) -> Vec<Request> {
        std::mem::take(&mut self.lock().requests)
    }

    /// Sends what is there without waiting for more; answers the fate of the youngest batch.
    pub(super) fn flush(&self) -> Option<Ticket> {
        let mut state = self.lock();
        state.flushing = state.growing.is_some() || !state.full.is_empty();
        let growing = state.growing.as_ref().map(|growing| &growing.fate);
        let full = state.full.back().map(|sealed| &sealed.fate);
        let youngest = growing.or(full).or(state.left.as_ref());
        let ticket = youngest.map(BatchFate::watch);
        drop(state);
        self.wake.notify_one();
        ticket
    }

    /// Refuses further records with `error`. What waits is still sent.
    pub(crate) fn close(&self, error: Error) {
        self.lock().closed.get_or_insert(error);
        self.wake.notify_one();
    }

    pub(crate) fn is_closed(&self) -> bool {
        self.lock().closed.is_some()
    }

    /// Takes out everything.
    pub(crate) fn drain(&self) -> Vec<Sealed> {
        let mut state = self.lock();
        state.seal();
        state.full.drain(..).collect()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn seal(&mut self) {
        let Some(growing) = self.growing.take() else {
            return;
        };
        growing.fate.seal(Weight {
            records: growing.builder.count(),
            cost: growing.cost,
        });
        self.full.push_back(Sealed {
            content: Content::Built(growing.builder),
            fate: growing.fate,
            since: growing.since,
        });
    }
}
