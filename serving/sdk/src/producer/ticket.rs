//! Tickets: how a caller learns what became of a record.
//!
//! All tickets of a batch share one [`BatchFate`], so a record costs a reference count and no allocation.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::task::{Context, Poll, Waker};

use hulse_proto::id::Offset;

use super::losses::Losses;
use crate::error::Error;
use crate::lane::Stored;

/// Where a record was stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// Index of the partition.
    pub partition: u32,
    /// The record's offset; `None` with acks none, where the broker does not say.
    pub offset: Option<Offset>,
    /// The broker's time, ms since 1970; 0 with acks none.
    pub append_time: i64,
    /// The broker had stored it before: this was a resend, and nothing was stored twice.
    pub duplicate: bool,
}

/// What became of a record; a future of its [`Receipt`]. Cancel-safe: it may be polled, left and polled again.
///
/// A dropped ticket does not take the record back. If the record then fails, the failure is counted, logged and returned by the
/// producer's `flush` and `close`.
///
/// # Errors
/// Why the record was not stored; [`Error::possibly_written`] tells whether that is certain.
#[must_use = "a record may fail after it was queued: await the ticket, or drop it on purpose and look at flush()"]
#[derive(Debug)]
pub struct Ticket {
    fate: Arc<BatchFate>,
    index: u32,
    /// Where this ticket's waker stands.
    waker: Option<usize>,
    observed: bool,
}

/// The common fate of a batch's records.
#[derive(Debug)]
pub(crate) struct BatchFate {
    partition: u32,
    /// Number of its first record among the producer's in this partition.
    first: u64,
    /// Its bytes came from outside and keep their stamp.
    raw: bool,
    losses: Arc<Losses>,
    weight: OnceLock<Weight>,
    state: Mutex<State>,
}

/// What a sealed batch amounts to.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Weight {
    pub(crate) records: u32,
    /// What it holds of the memory budget.
    pub(crate) cost: usize,
}

#[derive(Debug, Default)]
struct State {
    outcome: Option<Result<Stored, Error>>,
    wakers: Vec<Waker>,
    /// Tickets that were dropped before the outcome.
    abandoned: u64,
}

impl BatchFate {
    pub(crate) fn new(partition: u32, first: u64, losses: Arc<Losses>) -> Arc<Self> {
        Self::make(partition, first, losses, false)
    }

    pub(crate) fn raw(partition: u32, first: u64, losses: Arc<Losses>) -> Arc<Self> {
        Self::make(partition, first, losses, true)
    }

    fn make(partition: u32, first: u64, losses: Arc<Losses>, raw: bool) -> Arc<Self> {
        Arc::new(Self {
            partition,
            first,
            raw,
            losses,
            weight: OnceLock::new(),
            state: Mutex::default(),
        })
    }

    /// Said once, when the batch takes no more records.
    pub(super) fn seal(&self, weight: Weight) {
        let _ = self.weight.set(weight);
    }

    pub(crate) fn weight(&self) -> Weight {
        self.weight.get().copied().unwrap_or_default()
    }

    pub(super) fn partition(&self) -> u32 {
        self.partition
    }

    pub(super) fn first(&self) -> u64 {
        self.first
    }

    /// Of the record at `index`.
    pub(super) fn receipt(&self, index: u32, stored: &Stored) -> Receipt {
        let index = u64::from(index);
        Receipt {
            partition: self.partition,
            offset: stored
                .base_offset
                .map(|base| Offset(base.0.saturating_add(index))),
            append_time: stored.append_time,
            duplicate: stored.duplicate,
        }
    }

    pub(crate) fn is_raw(&self) -> bool {
        self.raw
    }

    pub(super) fn ticket(self: &Arc<Self>, index: u32) -> Ticket {
        Ticket {
            fate: Arc::clone(self),
            index,
            waker: None,
            observed: false,
        }
    }

    /// A ticket whose loss nobody counts: for waiting.
    pub(super) fn watch(self: &Arc<Self>) -> Ticket {
        let mut ticket = self.ticket(0);
        ticket.observed = true;
        ticket
    }

    /// Decides the fate; wakes everyone who waits.
    pub(crate) fn settle(&self, outcome: Result<Stored, Error>) {
        let mut state = self.lock();
        if let Err(error) = &outcome {
            self.losses.add(state.abandoned, error);
        }
        state.outcome = Some(outcome);
        let wakers = std::mem::take(&mut state.wakers);
        drop(state);
        wakers.into_iter().for_each(Waker::wake);
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Ticket {
    /// Index of the partition that the record goes to.
    pub fn partition(&self) -> u32 {
        self.fate.partition
    }
}

impl Future for Ticket {
    type Output = Result<Receipt, Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let this = self.get_mut();
        let mut state = this.fate.lock();
        if let Some(outcome) = &state.outcome {
            let answer = match outcome {
                Ok(stored) => Ok(this.fate.receipt(this.index, stored)),
                Err(error) => Err(error.clone()),
            };
            this.observed = true;
            return Poll::Ready(answer);
        }
        match this.waker {
            Some(at) => state.wakers[at].clone_from(cx.waker()),
            None => {
                state.wakers.push(cx.waker().clone());
                this.waker = Some(state.wakers.len() - 1);
            }
        }
        Poll::Pending
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        if self.observed {
            return;
        }
        let mut state = self.fate.lock();
        match &state.outcome {
            None => state.abandoned += 1,
            Some(Err(error)) => self.fate.losses.add(1, error),
            Some(Ok(_)) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use hulse_proto::error::{Fault, Reason};

    use super::*;

    fn stored() -> Stored {
        Stored {
            base_offset: Some(Offset(40)),
            append_time: 9,
            duplicate: false,
        }
    }

    fn refused() -> Error {
        Fault::new(Reason::InvalidRecord, "no").into()
    }

    #[tokio::test]
    async fn tickets_of_a_batch_get_their_own_offsets() {
        let fate = BatchFate::new(3, 0, Arc::default());
        let tickets = [fate.ticket(0), fate.ticket(1)];
        let waiting = tokio::spawn(futures::future::join_all(tickets));
        tokio::task::yield_now().await;
        fate.settle(Ok(stored()));
        let receipts = waiting.await.unwrap();
        let offsets = receipts
            .into_iter()
            .map(|receipt| receipt.unwrap().offset.unwrap().0);
        assert_eq!(offsets.collect::<Vec<_>>(), [40, 41]);
    }

    #[tokio::test]
    async fn failures_are_counted_for_dropped_tickets_only() {
        let losses = Arc::<Losses>::default();
        let fate = BatchFate::new(0, 0, Arc::clone(&losses));
        let (early, late, awaited) = (fate.ticket(0), fate.ticket(1), fate.ticket(2));
        drop(early);
        fate.settle(Err(refused()));
        drop(late);
        assert!(awaited.await.is_err());
        let error = losses.take().unwrap_err();
        assert_eq!(error.lost_tickets(), 2);
        assert_eq!(error.reason(), Some(Reason::InvalidRecord));
        assert!(losses.take().is_ok());
        let fine = BatchFate::new(0, 0, Arc::clone(&losses));
        drop(fine.ticket(0));
        fine.settle(Ok(stored()));
        assert!(losses.take().is_ok());
    }
}
