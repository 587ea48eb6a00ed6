//! The room that read bytes take until the connection has them.

use tokio::sync::OwnedSemaphorePermit;

/// Room in one read, and in what all reads of the broker may hold. Dropping it frees both.
pub(in crate::listener) struct Room {
    own: OwnedSemaphorePermit,
    shared: Option<OwnedSemaphorePermit>,
}

impl Room {
    /// Of a chunk; without `shared` the broker counts it as the one small chunk that each read may have.
    pub(in crate::listener) fn new(
        own: OwnedSemaphorePermit,
        shared: Option<OwnedSemaphorePermit>,
    ) -> Self {
        Self { own, shared }
    }

    /// The part of a message of `bytes`. The last one takes what is left, and frees at once what a chunk that came out smaller
    /// than asked does not need; a batch larger than the room overdraws it once.
    pub(in crate::listener) fn part(&mut self, bytes: usize, last: bool) -> Self {
        let own = part(&mut self.own, bytes, last);
        let shared = self.shared.as_mut();
        Self {
            own,
            shared: shared.map(|shared| part(shared, bytes, last)),
        }
    }
}

fn part(room: &mut OwnedSemaphorePermit, bytes: usize, last: bool) -> OwnedSemaphorePermit {
    if !last && let Some(part) = room.split(bytes) {
        return part;
    }
    drop(room.split(room.num_permits().saturating_sub(bytes)));
    room.split(room.num_permits())
        .expect("a permit can be split in whole")
}
