//! What retention asks of an open partition: the owner's date, a ledger that is rolled in time, and a trim of what may go.

use hulse_proto::error::Fault;
use hulse_proto::time::TimestampMs;
use tokio::sync::oneshot;

use super::handle::{Command, PartitionHandle};
use super::task::Task;
use super::trimming::TrimCommand;
use crate::retention::Limits;

/// Retention comes by.
pub(crate) struct RetainCommand {
    limits: Limits,
    answer: oneshot::Sender<Standing>,
}

/// What the task knows and readers do not.
struct Standing {
    now: TimestampMs,
    /// The last ledger is being written to.
    open: bool,
}

impl Task {
    /// Rolls sooner where records stay for a short time. A ledger that nobody writes to and whose records have all expired is closed, so
    /// that they can go; making the next one is left to the next record, as storage may be full.
    pub(super) fn retain(&mut self, command: RetainCommand) {
        let RetainCommand { limits, answer } = command;
        let now = self.clock.now_ms();
        self.core.set_roll_age(limits.roll_age(self.with.roll_age));
        let last = self.log.with_view(|view| view.last_append());
        let expired = limits.time.zip(last).is_some_and(|(time, last)| {
            let time = TimestampMs::try_from(time.as_millis()).unwrap_or(TimestampMs::MAX);
            last.saturating_add(time) <= now
        });
        if expired && self.writer.is_some() && self.chain.is_some() && self.core.rest() {
            self.rest_log();
        }
        let open = self.writer.is_some() || self.ledger_work.is_some();
        // Who asked may have gone.
        let _ = answer.send(Standing { now, open });
    }
}

impl PartitionHandle {
    /// Has what `limits` do not keep trimmed; subscriptions that hold records keep theirs. What a closing ledger lets go is seen the
    /// next time. Cancel-safe.
    ///
    /// # Errors
    /// As of a read, and the fault that ended the partition.
    pub async fn retain(&self, limits: Limits) -> Result<(), Fault> {
        let (answer, standing) = oneshot::channel();
        let command = Command::Retain(RetainCommand { limits, answer });
        self.0.commands.send(command).map_err(|_| self.end())?;
        let Standing { now, open } = standing.await.map_err(|_| self.end())?;
        let Some(cut) = self.0.log.cut(limits, now, open).await? else {
            return Ok(());
        };
        // Nobody waits for its end.
        let (answer, _) = oneshot::channel();
        let command = Command::Trim(TrimCommand {
            to: Some(cut),
            holds: true,
            answer,
        });
        self.0.commands.send(command).map_err(|_| self.end())
    }
}
