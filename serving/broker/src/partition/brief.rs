//! A partition that is about to be handed over writes a snapshot first, while it still serves: its next owner has little to replay then.

use std::time::Duration;

use hulse_proto::time::TimestampMs;
use tokio::sync::oneshot;
use tokio::time::timeout;

use super::core::PartitionCore;
use super::handle::{Command, PartitionHandle};
use super::task::Task;
use crate::state::MetaState;

/// Longest wait for the snapshot; without it the next owner replays more.
const BRIEF_MAX: Duration = Duration::from_secs(2);

impl PartitionHandle {
    /// Has a snapshot written if a next owner would have much to replay, and waits for it, but not long. A hint: nothing rests on it.
    pub(crate) async fn be_brief(&self) {
        let (done, written) = oneshot::channel();
        if self.0.commands.send(Command::Brief(done)).is_ok() {
            // Whatever became of it, and also when the partition ended.
            drop(timeout(BRIEF_MAX, written).await);
        }
    }
}

impl Task {
    pub(super) fn be_brief(&mut self, done: oneshot::Sender<()>) {
        let now = self.clock.now_ms();
        // Dropped otherwise: nobody need wait.
        self.brief = self.core.is_to_be_brief(now).then_some(done);
    }
}

impl<M: MetaState, T> PartitionCore<M, T> {
    /// Begins a snapshot where that saves a replay. True: one is being written.
    fn is_to_be_brief(&mut self, now: TimestampMs) -> bool {
        let long = self.since_snapshot.0 >= self.config.snapshot_entries_min;
        self.snapshot_if(long, now);
        self.snapshot_running.is_some()
    }
}
