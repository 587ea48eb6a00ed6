//! What becomes of acknowledgements. All that are sent together share one [`AckFate`], so one costs a reference count.

use std::future::Future;
use std::ops::Range;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use crate::error::Error;

/// Wakers of one fate that are kept apart; above that the oldest are woken early and come again.
const WAKERS_MAX: usize = 1 << 14;

/// What became of an acknowledgement: a future that is ready when it is durable, so that the records never come again (except after a
/// seek). It goes on whether or not anybody waits for it. Cheap to clone, cancel-safe.
///
/// # Errors
/// The records are not acknowledged: CURSOR_STALE (the cursor was moved meanwhile), NOT_OWNED (another consumer has the partition
/// now), CONSUMER_FENCED, …; or the consumer was closed or dropped before a receipt came: then the acknowledgement may have been
/// applied ([`Error::possibly_written`]).
#[derive(Debug, Clone)]
#[must_use = "an acknowledgement may be refused: await it, or drop it on purpose and look at close()"]
pub struct Acknowledgement {
    fate: Arc<AckFate>,
    range: Range<u64>,
}

/// The common fate of what was acknowledged together.
#[derive(Debug, Default)]
pub(in crate::consumer) struct AckFate {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// Pieces without an answer.
    open: usize,
    refused: Vec<(Range<u64>, Error)>,
    wakers: Vec<Waker>,
}

impl AckFate {
    /// One that waits for one answer.
    pub(in crate::consumer) fn new() -> Arc<Self> {
        let fate = Self::default();
        fate.lock().open = 1;
        Arc::new(fate)
    }

    /// A piece of it will be answered by itself.
    pub(in crate::consumer) fn split(&self) {
        self.lock().open += 1;
    }

    /// A part was refused; its piece is still open.
    pub(in crate::consumer) fn refuse(&self, range: Range<u64>, error: Error) {
        self.lock().refused.push((range, error));
    }

    /// A piece is answered. Whoever waited for the last one is woken.
    pub(in crate::consumer) fn answer(&self) {
        let mut state = self.lock();
        state.open = state.open.saturating_sub(1);
        if state.open == 0 {
            let wakers = std::mem::take(&mut state.wakers);
            drop(state);
            wakers.into_iter().for_each(Waker::wake);
        }
    }

    pub(in crate::consumer) fn of(self: &Arc<Self>, range: Range<u64>) -> Acknowledgement {
        Acknowledgement {
            fate: Arc::clone(self),
            range,
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Acknowledgement {
    /// One that is decided already.
    pub(in crate::consumer) fn decided(range: Range<u64>, outcome: Result<(), Error>) -> Self {
        let fate = Arc::new(AckFate::default());
        if let Err(error) = outcome {
            fate.refuse(range.clone(), error);
        }
        Self { fate, range }
    }
}

impl Future for Acknowledgement {
    type Output = Result<(), Error>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut state = self.fate.lock();
        if state.open == 0 {
            let overlaps =
                |range: &Range<u64>| range.start < self.range.end && self.range.start < range.end;
            let refused = state.refused.iter().find(|(range, _)| overlaps(range));
            return Poll::Ready(refused.map_or(Ok(()), |(_, error)| Err(error.clone())));
        }
        if !state.wakers.iter().any(|waker| waker.will_wake(cx.waker())) {
            if state.wakers.len() >= WAKERS_MAX {
                state.wakers.drain(..).for_each(Waker::wake);
            }
            state.wakers.push(cx.waker().clone());
        }
        Poll::Pending
    }
}
