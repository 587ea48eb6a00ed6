//! What one session holds, and what it therefore owes its client in credit.
//!
//! The client may send `max_inflight_bytes` at first and what is granted after. Each batch that leaves the session, answered or
//! dropped, gives its bytes back; they are granted again in quarters, so that credit is not a message per batch and yet never
//! runs out while a client waits: three quarters hold any one batch.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::listener::ingress::IngressPermit;

/// Bytes of one session between socket and answer, unless the config allows fewer.
const SESSION_BYTES_MAX: u64 = 32 << 20;

/// The books of one session.
#[derive(Debug, Clone)]
pub(super) struct Allowance(Arc<Counts>);

#[derive(Debug)]
struct Counts {
    max: u64,
    held: AtomicU64,
    owed: AtomicU64,
}

/// The room of one batch, in the session and in the broker. Dropping it frees the one, and the other where nobody else holds it.
#[derive(Debug)]
pub(super) struct Room {
    bytes: u64,
    session: Allowance,
    broker: IngressPermit,
}

impl Allowance {
    /// Books of a session in a broker that holds `ingress_bytes` and takes batches of up to `batch_bytes`.
    pub(super) fn new(ingress_bytes: usize, batch_bytes: usize) -> Self {
        let max = SESSION_BYTES_MAX
            .min(ingress_bytes as u64)
            .max(2 * batch_bytes as u64);
        Self(Arc::new(Counts {
            max,
            held: AtomicU64::new(0),
            owed: AtomicU64::new(0),
        }))
    }

    /// Most bytes in flight; the first credit.
    pub(super) fn max(&self) -> u64 {
        self.0.max
    }

    /// Whether another message may be read.
    pub(super) fn has_room(&self) -> bool {
        self.0.held.load(Ordering::Relaxed) < self.0.max
    }

    /// Enters a batch.
    pub(super) fn enter(&self, bytes: usize, broker: IngressPermit) -> Room {
        let bytes = bytes as u64;
        self.0.held.fetch_add(bytes, Ordering::Relaxed);
        Room {
            bytes,
            session: self.clone(),
            broker,
        }
    }

    /// A batch that was read and never entered is owed, too.
    pub(super) fn owe(&self, bytes: usize) {
        self.0.owed.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    /// What is to be granted now, if it is worth a message.
    pub(super) fn grant(&self) -> Option<u64> {
        if self.0.owed.load(Ordering::Relaxed) < self.0.max / 4 {
            return None;
        }
        Some(self.0.owed.swap(0, Ordering::Relaxed))
    }
}

impl Room {
    /// Its part of the broker's room, for whoever has the batch longer than the session.
    pub(super) fn in_broker(&self) -> IngressPermit {
        self.broker.clone()
    }
}

impl Drop for Room {
    fn drop(&mut self) {
        let counts = &self.session.0;
        counts.held.fetch_sub(self.bytes, Ordering::Relaxed);
        counts.owed.fetch_add(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::metrics::gauge::Gauge;

    use super::*;
    use crate::listener::ingress::Ingress;

    #[test]
    fn credit_comes_back_in_quarters_and_room_with_each_batch() {
        let gauge: Gauge = Gauge::default();
        let ingress = Ingress::new(100, gauge.clone());
        let book = Allowance::new(100, 10);
        assert_eq!(book.max(), 100);
        let rooms: Vec<_> = (0..10)
            .map(|_| book.enter(10, ingress.try_take(10).unwrap()))
            .collect();
        assert!(!book.has_room() && ingress.try_take(1).is_none());
        assert_eq!(gauge.get(), 100);
        let mut granted = Vec::new();
        for room in rooms {
            drop(room);
            granted.extend(book.grant());
        }
        assert_eq!(granted, [30, 30, 30]);
        assert!(book.has_room() && ingress.try_take(100).is_some());
        assert_eq!(gauge.get(), 0);
    }

    #[test]
    fn batch_larger_than_the_whole_room_takes_all_of_it() {
        let ingress = Ingress::new(100, Gauge::default());
        let all = ingress.try_take(1000).unwrap();
        assert!(ingress.try_take(1).is_none());
        drop(all);
        assert!(ingress.try_take(1).is_some());
    }
}
