//! What a partition's task shows its handles, all in one place, as thousands of partitions have one: the ends of the log, why it ended,
//! and what waits in it.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use hulse_proto::error::{Fault, Reason};
use tokio::sync::watch;

use super::handle::LogOffsets;

#[derive(Default)]
struct State {
    offsets: LogOffsets,
    /// Since somebody watches: most logs are not, and a watched value takes much room.
    watched: Option<watch::Sender<LogOffsets>>,
    /// Set once.
    ended: Option<Box<Fault>>,
}

/// Shared by the task, which changes it, and its handles.
#[derive(Default)]
pub(crate) struct Shown {
    state: Mutex<State>,
    /// Bytes of batches that wait.
    pub(super) queued_bytes: AtomicUsize,
    /// There are cursors.
    consumed: AtomicBool,
}

impl Shown {
    pub(super) fn new(offsets: LogOffsets) -> Self {
        let state = State {
            offsets,
            ..State::default()
        };
        Self {
            state: Mutex::new(state),
            ..Self::default()
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state
            .lock()
            .expect("no code panics while it holds this lock")
    }

    /// Where the log begins and ends.
    pub(super) fn offsets(&self) -> LogOffsets {
        self.lock().offsets
    }

    /// It begins and ends here now.
    pub(super) fn set_offsets(&self, offsets: LogOffsets) {
        let mut state = self.lock();
        state.offsets = offsets;
        if let Some(watched) = &state.watched {
            watched.send_replace(offsets);
        }
    }

    /// Changes with every change of the offsets; closes with the end of the partition.
    pub(super) fn watch(&self) -> watch::Receiver<LogOffsets> {
        let mut state = self.lock();
        let (offsets, ended) = (state.offsets, state.ended.is_some());
        if ended {
            return watch::channel(offsets).1;
        }
        let watched = state
            .watched
            .get_or_insert_with(|| watch::Sender::new(offsets));
        watched.subscribe()
    }

    /// Nobody watches any more, perhaps: the room for it goes back.
    pub(super) fn cool(&self) {
        let mut state = self.lock();
        if state
            .watched
            .as_ref()
            .is_some_and(|watched| watched.receiver_count() == 0)
        {
            state.watched = None;
        }
    }

    /// It serves no more; the first word stands.
    pub(crate) fn end(&self, why: Fault) {
        let mut state = self.lock();
        state.ended.get_or_insert_with(|| Box::new(why));
        let watched = state.watched.take();
        drop(state);
        // Who watches looks for the reason at once.
        drop(watched);
    }

    /// Why it serves no more.
    pub(crate) fn ended(&self) -> Option<Fault> {
        self.lock().ended.as_deref().cloned()
    }

    /// Why it ended, or that it did.
    pub(super) fn fault(&self) -> Fault {
        self.ended().unwrap_or_else(without_a_word)
    }

    pub(super) fn is_consumed(&self) -> bool {
        self.consumed.load(Ordering::Relaxed)
    }

    pub(super) fn set_consumed(&self, consumed: bool) {
        self.consumed.store(consumed, Ordering::Relaxed);
    }
}

/// Held by a partition's task: should it panic, its handles hear that it ended, so that the next request opens it again
/// (ARCHITECTURE D16).
pub(super) struct EndedOnDrop(Option<Arc<Shown>>);

impl EndedOnDrop {
    pub(super) fn new(shown: Arc<Shown>) -> Self {
        Self(Some(shown))
    }

    /// The task goes to rest.
    pub(super) fn disarm(mut self) {
        self.0 = None;
    }
}

impl Drop for EndedOnDrop {
    fn drop(&mut self) {
        // A task that ends by itself has said why before.
        if let Some(shown) = &self.0 {
            shown.end(without_a_word());
        }
    }
}

fn without_a_word() -> Fault {
    Fault::new(
        Reason::Internal,
        "partition task ended without a word; see the broker's log",
    )
}

#[cfg(test)]
mod tests {
    use hulse_proto::id::Offset;

    use super::*;

    #[tokio::test]
    async fn task_that_panics_tells_its_handles_that_it_ended() {
        let shown = Arc::new(Shown::default());
        let held = EndedOnDrop::new(shown.clone());
        let task = tokio::spawn(async move {
            let _held = held;
            panic!("on purpose");
        });
        assert!(task.await.is_err());
        assert_eq!(shown.ended().unwrap().reason, Reason::Internal);
    }

    #[test]
    fn task_that_said_why_it_ends_is_believed() {
        let shown = Arc::new(Shown::default());
        let held = EndedOnDrop::new(shown.clone());
        shown.end(Fault::new(Reason::ShuttingDown, "going down"));
        drop(held);
        assert_eq!(shown.ended().unwrap().reason, Reason::ShuttingDown);
    }

    #[test]
    fn task_that_goes_to_rest_has_not_ended() {
        let shown = Arc::new(Shown::default());
        EndedOnDrop::new(shown.clone()).disarm();
        assert_eq!(shown.ended(), None);
    }

    #[tokio::test]
    async fn watchers_see_every_change_and_the_end() {
        let at = |high_watermark| LogOffsets {
            high_watermark: Offset(high_watermark),
            ..LogOffsets::default()
        };
        let shown = Shown::new(at(1));
        let mut watch = shown.watch();
        assert_eq!(*watch.borrow_and_update(), at(1));
        shown.cool();
        shown.set_offsets(at(2));
        assert!(watch.changed().await.is_ok());
        assert_eq!(
            (*watch.borrow_and_update(), shown.offsets()),
            (at(2), at(2))
        );
        drop(watch);
        shown.cool();
        shown.set_offsets(at(3));
        let mut watch = shown.watch();
        assert_eq!(*watch.borrow_and_update(), at(3));
        shown.end(Fault::new(Reason::ShuttingDown, "going down"));
        assert!(watch.changed().await.is_err());
        let mut late = shown.watch();
        assert_eq!(*late.borrow(), at(3));
        assert!(late.changed().await.is_err());
    }
}
