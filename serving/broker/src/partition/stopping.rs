//! How a partition's task ends: told to, or by itself.
//!
//! # Invariants
//! 1. Told to stop, it takes no further command and goes on with all that is under way until what was sent is answered: the answer to
//!    an append may hang on the close of a ledger that is full or is rolled (storage.md W13, amended D1), so nothing but new commands is
//!    left out.
//! 2. That takes [`STOP_MAX`] at most, what was acked included. What is not answered by then is answered as unknown, and its ledger is
//!    left to recovery.
//! 3. Everyone who waits, or comes late, hears why.

use std::collections::VecDeque;
use std::time::Duration;

use bookie_metadata::Txn;
use futures::future::join_all;
use hulse_proto::error::{Fault, Reason};
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout_at};

use super::cursors::refuse_late;
use super::handle::{Command, CommandInbox};
use super::task::Task;

/// From the word to stop to its end.
const STOP_MAX: Duration = Duration::from_secs(10);

/// The word to stop.
pub(super) struct Stopping {
    why: Fault,
    done: oneshot::Sender<()>,
    deadline: Instant,
}

impl Stopping {
    pub(super) fn new(why: Fault, done: oneshot::Sender<()>) -> Self {
        Self {
            why,
            done,
            deadline: Instant::now() + STOP_MAX,
        }
    }
}

/// Why the task ends.
pub(super) struct End {
    why: Fault,
    /// Who told it to, and until when it may go on.
    told: Option<(oneshot::Sender<()>, Instant)>,
}

impl Task {
    /// It cannot go on.
    pub(super) fn over(&mut self, why: Fault) -> End {
        match self.stopping.take() {
            Some(stopping) => End::told(stopping),
            None => End { why, told: None },
        }
    }

    /// It was told to stop, and nothing that was sent waits any more, or waited long enough.
    pub(super) fn stopped(&mut self) -> Option<End> {
        let deadline = self.stopping.as_ref()?.deadline;
        let settled =
            self.appends.is_empty() && self.ledger_work.is_none() && self.trimming.work.is_none();
        if !settled && Instant::now() < deadline {
            return None;
        }
        self.stopping.take().map(End::told)
    }

    /// Tells everyone. A graceful stop leaves nothing to recover.
    pub(super) async fn end(
        mut self: Box<Self>,
        end: End,
        mut inbox: CommandInbox,
        mut commands: VecDeque<Command>,
    ) {
        if end.told.is_none() && end.why.reason != Reason::ShuttingDown {
            let why = &end.why;
            tracing::warn!(partition = %self.name, %why, "partition ends by itself; the next request takes it over again");
        }
        if let Some((_, deadline)) = end.told
            && let Err(fault) = self.drain_cursors(deadline).await
        {
            tracing::debug!(partition = %self.name, %fault, "acks are left to the next owner");
        }
        self.shown.end(end.why.clone());
        self.core.fail(end.why.clone());
        self.answer_all();
        self.fail_cursors(&end.why);
        inbox.close();
        inbox.take(&mut commands);
        for command in commands {
            match command {
                Command::Produce(produce) => {
                    self.take(produce);
                    self.answer_all();
                }
                Command::Cursors(command) => refuse_late(command, &end.why),
                _ => {}
            }
        }
        if let Some((done, deadline)) = end.told {
            // A ledger that was not closed in time is recovered by the next owner.
            let _ = timeout_at(deadline, Box::pin(self.close_ledgers())).await;
            // Nobody waits any more: fine.
            let _ = done.send(());
        }
    }

    async fn close_ledgers(&mut self) {
        let guard = Txn {
            compares: vec![self.guard.clone()],
            ops: vec![],
        };
        let state = self
            .state_writer
            .take()
            .and_then(|mut state| state.writer.take());
        // Both at once: nobody serves the partition meanwhile.
        let writers = self.writer.take().into_iter().chain(state);
        let closing = writers.map(|writer| {
            let guard = guard.clone();
            async move { writer.close(guard).await }
        });
        for closed in join_all(closing).await {
            if let Err(error) = closed {
                tracing::debug!(partition = %self.name, %error, "ledger was left to recovery");
            }
        }
    }
}

impl End {
    fn told(stopping: Stopping) -> Self {
        Self {
            why: stopping.why,
            told: Some((stopping.done, stopping.deadline)),
        }
    }
}
