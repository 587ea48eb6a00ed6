//! Room for what a fetch reads, in what all answers of the broker to readers may hold.
//!
//! Clients that ask and do not read hold that room until they are given up. So who finds none for a while goes on without, as reads
//! of the other wire do: each connection may have one small answer that is not counted.

use std::time::Duration;

use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use crate::link::Link;

/// A fetch that finds no room for its records tries again with half as many, down to this.
const ROOM_BYTES_MIN: usize = 64 << 10;
/// What a connection may read without room.
const LEAN_BYTES: usize = 64 << 10;
/// Room is waited for this long before a fetch goes on without.
const PATIENCE: Duration = Duration::from_millis(100);

/// What a fetch may read.
pub(super) struct Room {
    /// Given back when the answer is written; `None`: nothing may be read.
    pub(super) permit: Option<OwnedSemaphorePermit>,
    /// How many bytes.
    pub(super) bytes: usize,
    /// The connection's small answer, in which a first batch beyond `bytes` has no place.
    pub(super) is_lean: bool,
}

impl Room {
    /// Room for up to `bytes`, waited for until `deadline`. A first batch is whole however long, so there is room for one, but in a
    /// lean answer. Who has `tried` that in vain waits to the end before trying again.
    pub(super) async fn take(link: &Link, bytes: usize, deadline: Instant, tried: bool) -> Self {
        let front = link.front();
        let all = front.config().read_ahead_bytes.max(1);
        let least = front.config().max_batch_bytes.max(ROOM_BYTES_MIN).min(all);
        let mut bytes = bytes.clamp(least, all.max(least));
        let rooms = front.read_ahead();
        loop {
            let count = u32::try_from(bytes).unwrap_or(u32::MAX);
            if let Ok(permit) = rooms.clone().try_acquire_many_owned(count) {
                return Self::whole(permit, bytes);
            }
            if bytes == least {
                break;
            }
            bytes = (bytes / 2).max(least);
        }
        let count = u32::try_from(least).unwrap_or(u32::MAX);
        let waiting = rooms.clone().acquire_many_owned(count);
        let patience = match tried {
            true => deadline,
            false => deadline.min(Instant::now() + PATIENCE),
        };
        match tokio::time::timeout_at(patience, waiting).await {
            Ok(permit) => Self::whole(permit.expect("this semaphore is never closed"), least),
            Err(_) => Self::lean(link),
        }
    }

    /// Nothing may be read.
    pub(super) fn none() -> Self {
        Self {
            permit: None,
            bytes: 0,
            is_lean: false,
        }
    }

    /// Longest first batch, which the limits of a fetch do not keep out (serving.md D2.7).
    pub(super) fn first_allowed(&self) -> usize {
        match (&self.permit, self.is_lean) {
            (None, _) => 0,
            (Some(_), true) => LEAN_BYTES,
            (Some(_), false) => usize::MAX,
        }
    }

    /// Keeps so much of it; a lean answer counts as one.
    pub(super) fn keep(&mut self, bytes: usize) {
        if let Some(permit) = self.permit.as_mut().filter(|_| !self.is_lean) {
            drop(permit.split(permit.num_permits().saturating_sub(bytes)));
        }
    }

    fn whole(permit: OwnedSemaphorePermit, bytes: usize) -> Self {
        Self {
            permit: Some(permit),
            bytes,
            is_lean: false,
        }
    }

    fn lean(link: &Link) -> Self {
        Self {
            permit: link.lean.clone().try_acquire_owned().ok(),
            bytes: LEAN_BYTES,
            is_lean: true,
        }
    }
}
