//! Room for batches that were read for a session and that its connection has not taken yet.

use std::sync::Arc;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::listener::reading::Room;

/// Of one session.
pub(super) const SESSION_BYTES: u32 = 4 << 20;
/// Bytes asked of the log at a time.
const CHUNK_BYTES: u32 = 512 << 10;
/// The same while the broker has no room.
const LEAN_CHUNK_BYTES: u32 = 64 << 10;

/// The room of one session, within that of all readers of the broker.
pub(super) struct Ahead {
    own: Arc<Semaphore>,
    shared: Arc<Semaphore>,
}

impl Ahead {
    pub(super) fn new(shared: Arc<Semaphore>) -> Self {
        Self {
            own: Arc::new(Semaphore::new(SESSION_BYTES as usize)),
            shared,
        }
    }

    /// Room for a chunk, and its bytes. While the broker has none to give, a session has one small chunk at a time.
    pub(super) async fn take(&self) -> (Room, u32) {
        let own = take(&self.own, CHUNK_BYTES).await;
        if let Ok(shared) = self.shared.clone().try_acquire_many_owned(CHUNK_BYTES) {
            return (Room::new(own, Some(shared)), CHUNK_BYTES);
        }
        drop(own);
        let all = take(&self.own, SESSION_BYTES).await;
        (Room::new(all, None), LEAN_CHUNK_BYTES)
    }
}

async fn take(room: &Arc<Semaphore>, bytes: u32) -> OwnedSemaphorePermit {
    let taken = room.clone().acquire_many_owned(bytes).await;
    taken.expect("this semaphore is never closed")
}
