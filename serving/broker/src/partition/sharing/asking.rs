//! What administration asks of dispatchers, and of cursors whether they have one or not.

use hulse_proto::error::Fault;
use hulse_proto::id::{Offset, SubscriptionId};
use hulse_proto::time::TimestampMs;
use tokio::sync::oneshot;

use super::door::{ShareCommand, SharePlan};
use crate::partition::consuming::{answered, unexpected};
use crate::partition::cursors::{CursorAnswer, CursorCommand, CursorTicket};
use crate::partition::handle::{Command, PartitionHandle};

impl PartitionHandle {
    /// Has parked records of a cursor tried anew, as if they had never failed; only counts them with `dry_run`. Answers how many they
    /// are when that is durable.
    ///
    /// # Errors
    /// `SUBSCRIPTION_NOT_FOUND`; with fate unknown the fault that ended the partition.
    pub async fn redrive(&self, plan: SharePlan, dry_run: bool) -> Result<u64, Fault> {
        self.count(|answer| {
            CursorCommand::Share(ShareCommand::Redrive {
                plan,
                dry_run,
                answer,
            })
        })
        .await
    }

    /// Passes over what of a cursor lies below `to`, since it lived for too long. Answers how many records that were not processed,
    /// when it is durable.
    ///
    /// # Errors
    /// With fate unknown the fault that ended the partition.
    pub(crate) async fn expire(&self, id: SubscriptionId, to: Offset) -> Result<u64, Fault> {
        self.count(|answer| CursorCommand::Expire { id, to, answer })
            .await
    }

    /// Tells the dispatcher of a cursor, where there is one, that nothing is delivered before `until`. Those that begin later are told
    /// when they begin.
    pub fn pause_sharing(&self, subscription: SubscriptionId, until: TimestampMs) {
        let pause = ShareCommand::Pause {
            subscription,
            until,
        };
        // A partition that is gone has no consumers either.
        let _ = self
            .0
            .commands
            .send(Command::Cursors(CursorCommand::Share(pause)));
    }

    async fn count(
        &self,
        command: impl FnOnce(CursorTicket) -> CursorCommand,
    ) -> Result<u64, Fault> {
        let (answer, receiver) = oneshot::channel();
        let command = Command::Cursors(command(answer));
        if self.0.commands.send(command).is_err() {
            return Err(self.end());
        }
        match answered(self.clone(), receiver).await? {
            CursorAnswer::Counted(records) => Ok(records),
            other => Err(unexpected(&other)),
        }
    }
}
