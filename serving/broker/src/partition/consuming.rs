//! The door to a partition's subscriptions: cursors are made, moved, removed and looked at, and consumers are tied to the owner.

use std::future::Future;
use std::sync::Arc;

use hulse_proto::error::{Fate, Fault, Reason};
use hulse_proto::id::{Offset, SubscriptionId};
use tokio::sync::{oneshot, watch};

use super::cursors::{
    AckCommand, AckKind, Acked, ConsumerId, CursorAnswer, CursorCommand, CursorMove, CursorView,
    LaneDoor, LaneView, MoveCommand, Moved, NewConsumer, Sent,
};
use super::handle::{Command, Commands, PartitionHandle};
use crate::state::OffsetRange;

/// A cursor that is to be made.
#[derive(Debug, Clone)]
pub struct CursorStart {
    /// Whose.
    pub subscription: SubscriptionId,
    /// "tenant/namespace/name".
    pub name: Arc<str>,
    /// Keeps the log from its base on.
    pub hold: bool,
    /// Where it begins, resolved.
    pub base: Offset,
}

type Answer = oneshot::Receiver<Result<CursorAnswer, Fault>>;

impl PartitionHandle {
    /// Makes a cursor, if there is none of this subscription: then the old one stays as it is. Answers when it is durable.
    ///
    /// # Errors
    /// `OVERLOADED`; with fate unknown the fault that ended the partition.
    pub async fn make_cursor(&self, start: CursorStart) -> Result<(), Fault> {
        let CursorStart {
            subscription: id,
            name,
            hold,
            base,
        } = start;
        let made = self.ask_cursors(|answer| CursorCommand::Make {
            id,
            name,
            hold,
            base,
            answer,
        });
        made.await.map(drop)
    }

    /// Says whether a cursor keeps the log. Answers when it is durable.
    ///
    /// # Errors
    /// As [`PartitionHandle::make_cursor`].
    pub async fn hold_cursor(&self, id: SubscriptionId, hold: bool) -> Result<(), Fault> {
        self.ask_cursors(|answer| CursorCommand::Hold { id, hold, answer })
            .await
            .map(drop)
    }

    /// Removes a cursor and ends its consumers, if there is one. Answers when it is durable.
    ///
    /// # Errors
    /// `PRECONDITION_FAILED` while consumers are attached, unless `force`; as [`PartitionHandle::make_cursor`].
    pub async fn remove_cursor(&self, id: SubscriptionId, force: bool) -> Result<(), Fault> {
        self.ask_cursors(|answer| CursorCommand::Remove { id, force, answer })
            .await
            .map(drop)
    }

    /// Moves a cursor to an offset that the caller has checked. Consumers that are attached begin there. Answers when it is durable.
    ///
    /// # Errors
    /// `SUBSCRIPTION_NOT_FOUND`, `OVERLOADED`; with fate unknown the fault that ended the partition.
    pub async fn move_cursor(&self, id: SubscriptionId, goal: CursorMove) -> Result<Moved, Fault> {
        self.move_by(id, goal, false).await
    }

    /// Moves a cursor over what the backlog quota takes from it, and has its consumer told so.
    ///
    /// # Errors
    /// As [`PartitionHandle::move_cursor`].
    pub(crate) async fn evict(&self, id: SubscriptionId, to: Offset) -> Result<Moved, Fault> {
        let keep_acked = true;
        self.move_by(id, CursorMove { to, keep_acked }, true).await
    }

    async fn move_by(
        &self,
        id: SubscriptionId,
        goal: CursorMove,
        evicts: bool,
    ) -> Result<Moved, Fault> {
        let command = MoveCommand {
            subscription: id,
            goal,
            by: None,
            evicts,
        };
        let moved = self.ask_cursors(|answer| CursorCommand::Move(command, answer));
        moved_of(moved.await?)
    }

    /// Bytes of the backlog, about.
    pub fn backlog_bytes(&self, view: &CursorView) -> u64 {
        let offsets = self.offsets();
        let behind = self
            .0
            .log
            .with_view(|log| log.bytes_from(view.first_unacked));
        let records = offsets
            .high_watermark
            .0
            .saturating_sub(view.first_unacked.0);
        match records {
            0 => 0,
            records => {
                (u128::from(behind) * u128::from(view.backlog.min(records)) / u128::from(records))
                    as u64
            }
        }
    }

    /// The durable cursors, of one subscription or all, with at most `ranges_max` ranges of each.
    ///
    /// # Errors
    /// The fault that ended the partition.
    pub async fn cursors(
        &self,
        only: Option<SubscriptionId>,
        ranges_max: usize,
    ) -> Result<Vec<CursorView>, Fault> {
        let (answer, receiver) = oneshot::channel();
        let views = CursorCommand::Views {
            only,
            ranges_max,
            answer,
        };
        if self.0.commands.send(Command::Cursors(views)).is_err() {
            return Err(self.end());
        }
        receiver.await.map_err(|_| self.end())
    }

    /// Writes what changed of the groups of a coordinator shard; answers when it is durable. In the order of the calls.
    ///
    /// # Errors
    /// With fate unknown the fault that ended the partition.
    pub(crate) async fn write_groups(&self, delta: serving_groups::Delta) -> Result<(), Fault> {
        let delta = Arc::new(delta);
        let written = self.ask_cursors(|answer| CursorCommand::Groups(delta, answer));
        written.await.map(drop)
    }

    /// The groups of a coordinator shard, as far as they are durable.
    ///
    /// # Errors
    /// The fault that ended the partition.
    pub(crate) async fn groups(&self) -> Result<serving_groups::ShardState, Fault> {
        let (answer, receiver) = oneshot::channel();
        let now = Command::Cursors(CursorCommand::GroupsNow(answer));
        if self.0.commands.send(now).is_err() {
            return Err(self.end());
        }
        receiver.await.map_err(|_| self.end())
    }

    /// Ties a consumer to the owner. Its cursor must exist. It is gone when the tie is dropped.
    ///
    /// # Errors
    /// `CONSUMER_EXISTS`, `SUBSCRIPTION_NOT_FOUND`, `OVERLOADED`, and the fault that ended the partition.
    pub async fn attach(&self, new: NewConsumer) -> Result<Tie, Fault> {
        let subscription = new.subscription;
        let (answer, receiver) = oneshot::channel();
        let attach = Command::Cursors(CursorCommand::Attach { new, answer });
        if self.0.commands.send(attach).is_err() {
            return Err(self.end());
        }
        let door = receiver.await.map_err(|_| self.end())??;
        let LaneDoor {
            consumer,
            view,
            sent,
        } = door;
        Ok(Tie {
            subscription,
            consumer,
            view,
            sent,
            commands: self.0.commands.clone(),
            partition: self.clone(),
        })
    }

    async fn ask_cursors(
        &self,
        command: impl FnOnce(oneshot::Sender<Result<CursorAnswer, Fault>>) -> CursorCommand,
    ) -> Result<CursorAnswer, Fault> {
        let (answer, receiver) = oneshot::channel();
        if self
            .0
            .commands
            .send(Command::Cursors(command(answer)))
            .is_err()
        {
            return Err(self.end());
        }
        answered(self.clone(), receiver).await
    }
}

pub(super) async fn answered(
    partition: PartitionHandle,
    answer: Answer,
) -> Result<CursorAnswer, Fault> {
    match answer.await {
        Ok(answer) => answer,
        Err(_) => {
            let mut fault = partition.end();
            fault.fate = Fate::Unknown;
            Err(fault)
        }
    }
}

pub(super) fn moved_of(answer: CursorAnswer) -> Result<Moved, Fault> {
    match answer {
        CursorAnswer::Moved(moved) => Ok(moved),
        other => Err(unexpected(&other)),
    }
}

pub(super) fn unexpected(answer: &CursorAnswer) -> Fault {
    let why = format!("the owner answered {answer:?} to something else");
    Fault::new(Reason::Internal, why)
}

/// A consumer's tie to the owner of its partition. Dropping it detaches the consumer.
pub struct Tie {
    subscription: SubscriptionId,
    consumer: ConsumerId,
    view: watch::Receiver<LaneView>,
    sent: Sent,
    commands: Commands,
    partition: PartitionHandle,
}

impl Tie {
    /// Of which subscription.
    pub fn subscription(&self) -> SubscriptionId {
        self.subscription
    }

    /// The partition.
    pub fn partition(&self) -> &PartitionHandle {
        &self.partition
    }

    /// What the lane is to do; closes when the partition stops here.
    pub fn view(&self) -> watch::Receiver<LaneView> {
        self.view.clone()
    }

    /// Records up to `to` are about to be sent, in the turn that the view named. To be said before they are: acks of what was not
    /// said to be sent are refused.
    pub fn sent(&self, turn: u64, to: Offset) {
        self.sent_records(turn, to, 0);
    }

    /// As [`Tie::sent`], with the records that were sent in this turn, these included: those that need no ack any more are told in
    /// [`LaneView::passed`].
    pub fn sent_records(&self, turn: u64, to: Offset, records: u64) {
        self.sent.set(turn, to, records);
    }

    /// Offsets that hold no record to deliver; the cursor passes over them.
    pub fn skipped(&self, range: OffsetRange) {
        self.tell(CursorCommand::Skipped(self.consumer, range));
    }

    /// The consumer, which was told to yield, has nothing more to ack.
    pub fn yielded(&self) {
        self.tell(CursorCommand::Yielded(self.consumer));
    }

    /// Acks records that were delivered in this state epoch: by now, as [`Tie::sent`] said so. In the order of the calls; answers when
    /// what was taken is durable.
    ///
    /// The future fails with `OVERLOADED` (nothing was taken), or with fate unknown and the fault that ended the partition.
    pub fn ack(
        &self,
        state_epoch: u32,
        kind: AckKind,
        ranges: Vec<OffsetRange>,
    ) -> impl Future<Output = Result<Acked, Fault>> + Send + 'static {
        let command = AckCommand {
            consumer: self.consumer,
            sent: self.sent.sent_to(),
            state_epoch,
            kind,
            ranges,
        };
        let (answer, receiver) = oneshot::channel();
        self.tell(CursorCommand::Ack(command, answer));
        let partition = self.partition.clone();
        async move {
            match answered(partition, receiver).await? {
                CursorAnswer::Acked(acked) => Ok(acked),
                other => Err(unexpected(&other)),
            }
        }
    }

    /// Moves the cursor, if this consumer is the active one, to an offset that the caller has checked. `seek_id` comes back in the
    /// view. Answers when it is durable.
    pub fn seek(
        &self,
        to: Offset,
        seek_id: u64,
    ) -> impl Future<Output = Result<Moved, Fault>> + Send + 'static {
        let command = MoveCommand {
            subscription: self.subscription,
            goal: CursorMove {
                to,
                keep_acked: false,
            },
            by: Some((self.consumer, seek_id)),
            evicts: false,
        };
        let (answer, receiver) = oneshot::channel();
        self.tell(CursorCommand::Move(command, answer));
        let partition = self.partition.clone();
        async move { moved_of(answered(partition, receiver).await?) }
    }

    fn tell(&self, command: CursorCommand) {
        // A partition that is gone says so by its view and by what is asked of it.
        let _ = self.commands.send(Command::Cursors(command));
    }
}

impl Drop for Tie {
    fn drop(&mut self) {
        self.tell(CursorCommand::Detach(self.consumer));
    }
}
