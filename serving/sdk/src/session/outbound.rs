//! The stream of a session towards the broker, gated by credit.
//!
//! tonic polls it whenever HTTP/2 has room, so back-pressure of the link needs no task and no second queue.

use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use bytes::Bytes;
use futures::Stream;
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::produce_up::Item;
use tokio::sync::mpsc;
use tokio::time::{Instant, Sleep};

use super::run::Down;

/// Most credit that is believed; more only means "no limit".
const CREDIT_BYTES_MAX: u64 = 1 << 30;
/// Longest throttle that is believed.
const THROTTLE_MAX: Duration = Duration::from_secs(30);

/// What a lane sends.
pub(crate) enum Up {
    Control(Item),
    Batch {
        lane: u32,
        seq: u64,
        batch: Bytes,
        /// Told when the batch was handed to the link; for lanes whose broker does not answer.
        written: Option<mpsc::Sender<Down>>,
    },
}

/// Permission to send.
#[derive(Default)]
pub(super) struct Credit {
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    bytes: u64,
    /// The most there ever was: all credit is back when `bytes` reaches it.
    most: u64,
    throttled_until: Option<Instant>,
    heartbeat_due: bool,
    /// Of the stream.
    waker: Option<Waker>,
}

impl Credit {
    pub(super) fn grant(&self, grant: &v1::Credit) {
        let mut state = self.lock();
        state.bytes = state
            .bytes
            .saturating_add(grant.bytes)
            .min(CREDIT_BYTES_MAX);
        state.most = state.most.max(state.bytes);
        if grant.throttle_ms > 0 {
            let wait = Duration::from_millis(grant.throttle_ms.into()).min(THROTTLE_MAX);
            state.throttled_until = Some(Instant::now() + wait);
        }
        state.wake();
    }

    /// Lets a heartbeat out before everything else, since batches may be waiting for credit. Several at once are one.
    pub(super) fn heartbeat(&self) {
        let mut state = self.lock();
        state.heartbeat_due = true;
        state.wake();
    }

    /// True when a heartbeat is to be sent now. Leaves the waker for whatever comes next.
    fn poll_heartbeat(&self, cx: &Context<'_>) -> bool {
        let mut state = self.lock();
        if !state
            .waker
            .as_ref()
            .is_some_and(|waker| waker.will_wake(cx.waker()))
        {
            state.waker = Some(cx.waker().clone());
        }
        std::mem::take(&mut state.heartbeat_due)
    }

    /// Takes `bytes` when they are there. `Err`: wait for that instant first.
    fn take(&self, bytes: u64) -> Result<bool, Instant> {
        let mut state = self.lock();
        if let Some(until) = state.throttled_until {
            if Instant::now() < until {
                return Err(until);
            }
            state.throttled_until = None;
        }
        let need = bytes.min(state.most);
        if state.most == 0 || state.bytes < need {
            return Ok(false);
        }
        state.bytes -= need;
        Ok(true)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn wake(&self) {
        if let Some(waker) = &self.waker {
            waker.wake_by_ref();
        }
    }
}

/// The request stream of one session. Ends when every handle of the session is gone.
pub(super) struct Outbound {
    queue: mpsc::UnboundedReceiver<Up>,
    /// Waits for credit.
    held: Option<Up>,
    throttle: Option<Pin<Box<Sleep>>>,
    credit: Arc<Credit>,
}

impl Outbound {
    pub(super) fn new(queue: mpsc::UnboundedReceiver<Up>, credit: Arc<Credit>) -> Self {
        Self {
            queue,
            held: None,
            throttle: None,
            credit,
        }
    }

    fn poll_credit(&mut self, bytes: u64, cx: &mut Context<'_>) -> Poll<()> {
        loop {
            if let Some(sleep) = &mut self.throttle {
                futures::ready!(sleep.as_mut().poll(cx));
                self.throttle = None;
            }
            match self.credit.take(bytes) {
                Ok(true) => return Poll::Ready(()),
                Ok(false) => return Poll::Pending,
                Err(until) => self.throttle = Some(Box::pin(tokio::time::sleep_until(until))),
            }
        }
    }
}

impl Stream for Outbound {
    type Item = v1::ProduceUp;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<v1::ProduceUp>> {
        if self.credit.poll_heartbeat(cx) {
            let item = Some(Item::Heartbeat(v1::Heartbeat {}));
            return Poll::Ready(Some(v1::ProduceUp { item }));
        }
        if self.held.is_none() {
            self.held = futures::ready!(self.queue.poll_recv(cx));
        }
        if let Some(Up::Batch { batch, .. }) = &self.held {
            let bytes = batch.len() as u64;
            futures::ready!(self.poll_credit(bytes, cx));
        }
        let Some(up) = self.held.take() else {
            return Poll::Ready(None);
        };
        Poll::Ready(Some(v1::ProduceUp {
            item: Some(into_item(up)),
        }))
    }
}

fn into_item(up: Up) -> Item {
    match up {
        Up::Control(item) => item,
        Up::Batch {
            lane,
            seq,
            batch,
            written,
        } => {
            if let Some(lane) = written {
                // Full or gone: the lane's mailbox holds more than a window, so it has given this lane up.
                let _ = lane.try_send(Down::Written { seq });
            }
            Item::Batch(v1::ProduceBatch { lane, seq, batch })
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::StreamExt;

    use super::*;

    fn batch(seq: u64, bytes: usize) -> Up {
        Up::Batch {
            lane: 0,
            seq,
            batch: Bytes::from(vec![0; bytes]),
            written: None,
        }
    }

    fn grant(bytes: u64, throttle_ms: u32) -> v1::Credit {
        v1::Credit { bytes, throttle_ms }
    }

    #[tokio::test(start_paused = true)]
    async fn batches_wait_for_credit_and_heartbeats_do_not() {
        let (queue, rest) = mpsc::unbounded_channel();
        let credit = Arc::new(Credit::default());
        let mut outbound = Outbound::new(rest, Arc::clone(&credit));
        queue.send(batch(0, 60)).unwrap();
        queue.send(batch(1, 60)).unwrap();
        queue.send(batch(2, 500)).unwrap();
        let wait = Duration::from_millis(1);
        assert!(tokio::time::timeout(wait, outbound.next()).await.is_err());
        credit.grant(&grant(100, 0));
        assert!(outbound.next().await.is_some());
        assert!(tokio::time::timeout(wait, outbound.next()).await.is_err());
        credit.heartbeat();
        credit.heartbeat();
        let item = outbound.next().await.unwrap().item;
        assert!(matches!(item, Some(Item::Heartbeat(_))));
        credit.grant(&grant(60, 50));
        let before = Instant::now();
        assert!(outbound.next().await.is_some());
        assert!(before.elapsed() >= Duration::from_millis(50));
        // Larger than all credit: it goes when all of it is back.
        assert!(tokio::time::timeout(wait, outbound.next()).await.is_err());
        credit.grant(&grant(60, 0));
        assert!(outbound.next().await.is_some());
        credit.grant(&grant(u64::MAX, 0));
        credit.grant(&grant(u64::MAX, 0));
        drop(queue);
        assert!(outbound.next().await.is_none());
    }
}
