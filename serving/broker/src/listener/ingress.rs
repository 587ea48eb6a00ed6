//! The bytes of requests that the whole broker may hold at once (ARCHITECTURE D15).
//!
//! A gRPC session takes permits for a batch that it has read before it reads the next message, so each session holds at most one
//! batch beyond the limit; what is not read stays in the sockets and HTTP/2 stops the senders. A listener of another wire takes them
//! for a frame before it reads more than its beginning.

use std::future::Future;
use std::sync::Arc;

use prometheus_client::metrics::gauge::Gauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// The limit. One per broker.
pub(super) struct Ingress {
    permits: Arc<Semaphore>,
    total: usize,
    gauge: Gauge,
}

/// Room for what was read at once, a batch or several. It is given back when the last clone is dropped.
#[derive(Debug, Clone)]
pub struct IngressPermit {
    /// Held for its drop.
    _taken: Arc<Taken>,
}

#[derive(Debug)]
struct Taken {
    /// Held for its drop.
    _permit: OwnedSemaphorePermit,
    bytes: i64,
    gauge: Gauge,
}

impl Ingress {
    /// Room for `total` bytes.
    pub(super) fn new(total: usize, gauge: Gauge) -> Self {
        let total = total.clamp(1, (u32::MAX as usize).min(Semaphore::MAX_PERMITS));
        Self {
            permits: Arc::new(Semaphore::new(total)),
            total,
            gauge,
        }
    }

    /// Room now, or `None`.
    pub(super) fn try_take(&self, bytes: usize) -> Option<IngressPermit> {
        let permit = self
            .permits
            .clone()
            .try_acquire_many_owned(self.clamp(bytes))
            .ok()?;
        Some(IngressPermit::new(permit, bytes, &self.gauge))
    }

    /// Room as soon as there is some, first come first served. Cancel-safe.
    pub(super) fn take(
        &self,
        bytes: usize,
    ) -> impl Future<Output = IngressPermit> + Send + 'static {
        let permits = self.permits.clone();
        let gauge = self.gauge.clone();
        let count = self.clamp(bytes);
        async move {
            let permit = permits.acquire_many_owned(count).await;
            let permit = permit.expect("this semaphore is never closed");
            IngressPermit::new(permit, bytes, &gauge)
        }
    }

    /// One batch larger than the whole room takes all of it.
    fn clamp(&self, bytes: usize) -> u32 {
        u32::try_from(bytes.min(self.total)).expect("the total fits in 32 bits")
    }
}

impl IngressPermit {
    fn new(permit: OwnedSemaphorePermit, bytes: usize, gauge: &Gauge) -> Self {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        gauge.inc_by(bytes);
        Self {
            _taken: Arc::new(Taken {
                _permit: permit,
                bytes,
                gauge: gauge.clone(),
            }),
        }
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        self.gauge.dec_by(self.bytes);
    }
}
