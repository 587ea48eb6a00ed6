//! What a consumer of a QUEUE or KEYED subscription holds of the partition's owner.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{Offset, SubscriptionId, TopicName};
use hulse_proto::time::TimestampMs;
use serving_dispatch::{BlockedReason, Leave, Policy, SessionId, Unit, Verdict};
use tokio::sync::{mpsc, oneshot};

use crate::partition::consuming::{answered, moved_of, unexpected};
use crate::partition::cursors::{
    Acked, CursorAnswer, CursorCommand, CursorMove, CursorTicket, MoveCommand, Moved,
};
use crate::partition::handle::{Command, PartitionHandle};
use crate::state::OffsetRange;

/// How the records of a subscription are shared. Counts where its cursor has no dispatcher yet.
#[derive(Debug, Clone)]
pub struct SharePlan {
    /// Of which subscription.
    pub subscription: SubscriptionId,
    /// How.
    pub policy: Policy,
    /// Where dead letters go, if the policy says that they go to a topic.
    pub dead_letters: Option<TopicName>,
    /// Nothing is delivered before; 0: it is not paused.
    pub paused_until: TimestampMs,
}

/// Who wants a share of the records.
#[derive(Debug, Clone)]
pub struct NewSharer {
    /// How they are shared.
    pub plan: SharePlan,
    /// The consumer's name; stable over reconnects.
    pub name: Arc<str>,
    /// Its client's name.
    pub client: Arc<str>,
    /// The highest that can take records gets them.
    pub priority: i32,
    /// KEYED with named slots: those it wants, half open.
    pub slots: Vec<(u16, u16)>,
    /// Below it, records were given to it before, by another owner.
    pub handed: Offset,
}

/// A consumer of a dispatcher. Never given twice by one owner.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SharerId {
    pub(crate) subscription: SubscriptionId,
    pub(crate) session: SessionId,
}

/// What a consumer says of records.
#[derive(Debug, Clone)]
pub struct Said {
    /// Of the deliveries that it answers.
    pub state_epoch: u32,
    /// Which records.
    pub ranges: Vec<OffsetRange>,
    /// What.
    pub verdict: Verdict,
    /// They were delivered to a consumer of this name in an attachment that is gone. Acks only.
    pub before: bool,
}

/// What a consumer hears.
#[derive(Debug)]
pub enum ShareItem {
    /// A batch, and which of its records are meant.
    Unit {
        /// Which.
        unit: Unit,
        /// The stored batch.
        batch: Bytes,
        /// The owner's clock at its append.
        append_time: TimestampMs,
    },
    /// The cursor was moved: what was sent before is void.
    Restart {
        /// From now on.
        state_epoch: u32,
        /// From here.
        base: Offset,
    },
    /// Nothing flows, or it does again.
    Blocked {
        /// Why.
        reason: BlockedReason,
        /// It ends.
        over: bool,
    },
    /// The consumer is none any more.
    Ended(Fault),
}

/// A consumer's end of its tie to the owner.
#[derive(Debug)]
pub(crate) struct ShareDoor {
    pub(crate) sharer: SharerId,
    pub(crate) items: mpsc::UnboundedReceiver<ShareItem>,
    pub(crate) begun: Begun,
}

/// Where a consumer begins.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Begun {
    pub(crate) base: Offset,
    pub(crate) state_epoch: u32,
    /// 0: none.
    pub(crate) lock_ms: TimestampMs,
}

/// What is asked of a dispatcher.
pub(crate) enum ShareCommand {
    Attach {
        new: NewSharer,
        answer: oneshot::Sender<Result<ShareDoor, Fault>>,
    },
    Say(SharerId, Said, CursorTicket),
    Grant {
        sharer: SharerId,
        records: u64,
        bytes: u64,
    },
    Leave(SharerId, Leave),
    /// Nothing is delivered before.
    Pause {
        subscription: SubscriptionId,
        until: TimestampMs,
    },
    /// Parked records are tried anew.
    Redrive {
        plan: SharePlan,
        dry_run: bool,
        answer: CursorTicket,
    },
}

impl PartitionHandle {
    /// Ties a consumer to the dispatcher of its cursor, which must exist. Items come as far as credit is given.
    ///
    /// # Errors
    /// `SUBSCRIPTION_NOT_FOUND`, `OVERLOADED`, and the fault that ended the partition.
    pub async fn share(
        &self,
        new: NewSharer,
    ) -> Result<(ShareTie, mpsc::UnboundedReceiver<ShareItem>), Fault> {
        let (answer, receiver) = oneshot::channel();
        let attach = ShareCommand::Attach { new, answer };
        let attach = Command::Cursors(CursorCommand::Share(attach));
        if self.0.commands.send(attach).is_err() {
            return Err(self.end());
        }
        let door = receiver.await.map_err(|_| self.end())??;
        let tie = ShareTie {
            sharer: door.sharer,
            begun: door.begun,
            partition: self.clone(),
            broke: AtomicBool::new(false),
        };
        Ok((tie, door.items))
    }
}

/// A consumer's tie to the dispatcher. Dropping it ends the consumer: as one that closed, unless [`ShareTie::broke`] was said.
pub struct ShareTie {
    sharer: SharerId,
    begun: Begun,
    partition: PartitionHandle,
    broke: AtomicBool,
}

impl ShareTie {
    /// Of which subscription.
    pub fn subscription(&self) -> SubscriptionId {
        self.sharer.subscription
    }

    /// The partition.
    pub fn partition(&self) -> &PartitionHandle {
        &self.partition
    }

    /// Everything below was processed when it attached.
    pub fn base(&self) -> Offset {
        self.begun.base
    }

    /// For what it says, until a [`ShareItem::Restart`].
    pub fn state_epoch(&self) -> u32 {
        self.begun.state_epoch
    }

    /// A record without an answer comes back after this; 0: never.
    pub fn lock_ms(&self) -> TimestampMs {
        self.begun.lock_ms
    }

    /// The client is gone without a word: what it holds counts as failed (serving.md B3.8).
    pub fn broke(&self) {
        self.broke.store(true, Ordering::Relaxed);
    }

    /// So much more may be sent.
    pub fn grant(&self, records: u64, bytes: u64) {
        let sharer = self.sharer;
        self.tell(ShareCommand::Grant {
            sharer,
            records,
            bytes,
        });
    }

    /// Says something of records. In the order of the calls; answers when what was taken is durable.
    ///
    /// The future fails with `OVERLOADED` (nothing was taken), or with fate unknown and the fault that ended the partition.
    pub fn say(
        &self,
        said: Said,
    ) -> impl Future<Output = Result<Acked, Fault>> + Send + use<> + 'static {
        let (answer, receiver) = oneshot::channel();
        self.tell(ShareCommand::Say(self.sharer, said, answer));
        let partition = self.partition.clone();
        async move {
            match answered(partition, receiver).await? {
                CursorAnswer::Acked(acked) => Ok(acked),
                other => Err(unexpected(&other)),
            }
        }
    }

    /// Moves the cursor to an offset that the caller has checked. Answers when it is durable.
    pub fn seek(
        &self,
        to: Offset,
    ) -> impl Future<Output = Result<Moved, Fault>> + Send + use<> + 'static {
        let command = MoveCommand {
            subscription: self.sharer.subscription,
            goal: CursorMove {
                to,
                keep_acked: false,
            },
            by: None,
            evicts: false,
        };
        let (answer, receiver) = oneshot::channel();
        self.send(CursorCommand::Move(command, answer));
        let partition = self.partition.clone();
        async move { moved_of(answered(partition, receiver).await?) }
    }

    fn tell(&self, command: ShareCommand) {
        self.send(CursorCommand::Share(command));
    }

    fn send(&self, command: CursorCommand) {
        // A partition that is gone says so by its items, which end, and by what is asked of it.
        let _ = self.partition.0.commands.send(Command::Cursors(command));
    }
}

impl Drop for ShareTie {
    fn drop(&mut self) {
        let how = match self.broke.load(Ordering::Relaxed) {
            true => Leave::Crashed,
            false => Leave::Closed,
        };
        self.tell(ShareCommand::Leave(self.sharer, how));
    }
}

/// The fault of a consumer that is not attached.
pub(super) fn not_attached() -> Fault {
    Fault::new(
        Reason::NotOwned,
        "the consumer is not attached to the subscription any more",
    )
}
