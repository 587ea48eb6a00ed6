//! The cursors' part of a partition's task: hands commands to the state machine, shows views to lanes, writes deltas.
//!
//! The state chain has one writer. Snapshots come first; a snapshot is taken when the writer is home, so that no delta is in flight
//! beside it and none is ever lost behind it (ARCHITECTURE D3).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{Offset, SubscriptionId};
use hulse_proto::time::TimestampMs;
use tokio::sync::{oneshot, watch};
use tokio::time::{Instant, timeout_at};

use super::core::{CursorCore, NewConsumer, attached, deleted};
use super::lane::{AckCommand, ConsumerId, CursorAnswer, LaneView, MoveCommand, SentTo};
use super::rates::Histories;
use super::view::CursorView;
use crate::partition::sharing::{ShareCommand, Shares};
use crate::partition::snapshots::{SnapshotError, StateWriter};
use crate::partition::task::{Boxed, Task};
use crate::state::{
    CursorDelta, Cursors, MetaRecord, MetaRecordKind, MetaState, NewCursor, OffsetRange,
};

/// At the end of a partition, what was acked is waited for this long.
const DRAIN_MAX: Duration = Duration::from_secs(3);

/// Who waits for something to become durable.
pub(crate) type CursorTicket = oneshot::Sender<Result<CursorAnswer, Fault>>;

/// What a handle may ask of the cursors.
pub(crate) enum CursorCommand {
    Make {
        id: SubscriptionId,
        name: Arc<str>,
        hold: bool,
        base: Offset,
        answer: CursorTicket,
    },
    Hold {
        id: SubscriptionId,
        hold: bool,
        answer: CursorTicket,
    },
    Remove {
        id: SubscriptionId,
        force: bool,
        answer: CursorTicket,
    },
    Move(MoveCommand, CursorTicket),
    /// Everything below lived longer than it may.
    Expire {
        id: SubscriptionId,
        to: Offset,
        answer: CursorTicket,
    },
    /// Groups of a coordinator shard change.
    Groups(Arc<serving_groups::Delta>, CursorTicket),
    /// What they are, durably.
    GroupsNow(oneshot::Sender<serving_groups::ShardState>),
    Attach {
        new: NewConsumer,
        answer: oneshot::Sender<Result<LaneDoor, Fault>>,
    },
    Ack(AckCommand, CursorTicket),
    Share(ShareCommand),
    Skipped(ConsumerId, OffsetRange),
    Yielded(ConsumerId),
    Detach(ConsumerId),
    Views {
        only: Option<SubscriptionId>,
        ranges_max: usize,
        answer: oneshot::Sender<Vec<CursorView>>,
    },
}

/// In which turn, how far, and how many records a lane has sent.
#[derive(Debug, Clone, Default)]
pub(crate) struct Sent(Arc<Mutex<(u64, Offset, u64)>>);

impl Sent {
    pub(crate) fn set(&self, turn: u64, to: Offset, records: u64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (turn, to, records);
    }

    /// As a lane's acks see it.
    pub(crate) fn sent_to(&self) -> SentTo {
        let (turn, to, _) = self.get();
        SentTo { turn, to }
    }

    fn get(&self) -> (u64, Offset, u64) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A lane's end of its tie to the owner.
pub(crate) struct LaneDoor {
    pub(crate) consumer: ConsumerId,
    pub(crate) view: watch::Receiver<LaneView>,
    pub(crate) sent: Sent,
}

struct Lane {
    view: watch::Sender<LaneView>,
    sent: Sent,
}

type DeltaWork = Boxed<(StateWriter, Result<(), SnapshotError>)>;

/// What the task holds for its cursors.
pub(crate) struct CursorTask {
    pub(crate) core: CursorCore<CursorTicket>,
    lanes: BTreeMap<ConsumerId, Lane>,
    /// Dispatchers.
    pub(crate) shares: Shares,
    pub(crate) histories: Histories,
    /// The delta that is being written.
    pub(crate) work: Option<DeltaWork>,
    writing: Option<(u64, CursorDelta)>,
    /// A snapshot is due when the writer comes home.
    snapshot_due: bool,
    /// Ends when something is due.
    pub(crate) until: Option<Boxed<()>>,
    until_at: Option<TimestampMs>,
    /// Something happened: views and answers are to be given out.
    pub(crate) touched: bool,
    failing: bool,
}

impl CursorTask {
    pub(crate) fn new(core: CursorCore<CursorTicket>) -> Self {
        Self {
            core,
            lanes: BTreeMap::new(),
            shares: Shares::default(),
            histories: Histories::default(),
            work: None,
            writing: None,
            snapshot_due: false,
            until: None,
            until_at: None,
            touched: true,
            failing: false,
        }
    }

    /// As [`CursorCore::held_from`].
    pub(crate) fn held_from(&self) -> Option<Offset> {
        self.core.held_from()
    }

    /// As [`CursorCore::trim_decided`].
    pub(crate) fn trim_decided(&mut self, to: Offset) {
        self.core.trim_decided(to);
    }

    /// Tells the state machine how far each lane has sent.
    fn look_at_lanes(&mut self) {
        for (consumer, lane) in &self.lanes {
            let (turn, to, records) = lane.sent.get();
            self.core.sent(*consumer, turn, to, records);
        }
    }

    /// True when nothing of them is under way, and nothing is due at a time of its own.
    pub(crate) fn is_idle(&self) -> bool {
        let idle = self.work.is_none() && self.until.is_none() && !self.touched;
        idle && !self.snapshot_due && self.shares.is_idle()
    }
}

impl Task {
    /// Handles one command.
    pub(crate) fn cursor_command(&mut self, command: CursorCommand) {
        let now = self.clock.now_ms();
        self.cursors.touched = true;
        let core = &mut self.cursors.core;
        match command {
            CursorCommand::Make {
                id,
                name,
                hold,
                base,
                answer,
            } => {
                let new = NewCursor {
                    name,
                    hold,
                    base,
                    at: now,
                };
                core.make(id, new, answer, now);
            }
            CursorCommand::Hold { id, hold, answer } => core.hold(id, hold, answer, now),
            CursorCommand::Remove { id, force, answer } => self.remove(id, force, answer, now),
            CursorCommand::Share(command) => self.share_command(command),
            CursorCommand::Move(_, answer) | CursorCommand::Ack(_, answer) if !core.has_room() => {
                let why = "too many acks and moves wait to become durable; send again later";
                // Who asked may have gone.
                let _ = answer.send(Err(Fault::new(Reason::Overloaded, why)));
            }
            CursorCommand::Move(command, answer) => {
                if let Some(answer) = self.move_share(command, answer, now) {
                    self.cursors.core.move_to(command, answer, now);
                }
            }
            CursorCommand::Expire { id, to, answer } => self.expire(id, to, answer, now),
            CursorCommand::Groups(delta, answer) => core.groups(delta, answer, now),
            CursorCommand::GroupsNow(answer) => {
                // Who asked may have gone.
                let _ = answer.send(self.core.state().meta.groups().clone());
            }
            CursorCommand::Attach { new, answer } => self.attach(new, answer, now),
            CursorCommand::Ack(command, answer) => {
                if let Some(lane) = self.cursors.lanes.get(&command.consumer) {
                    let (turn, to, records) = lane.sent.get();
                    core.sent(command.consumer, turn, to, records);
                }
                core.ack(&command, answer, now);
            }
            CursorCommand::Skipped(consumer, range) => core.skipped(consumer, range, now),
            CursorCommand::Yielded(consumer) => core.yielded(consumer, now),
            CursorCommand::Detach(consumer) => {
                self.cursors.lanes.remove(&consumer);
                self.cursors.look_at_lanes();
                self.cursors.core.detach(consumer, now);
            }
            CursorCommand::Views {
                only,
                ranges_max,
                answer,
            } => {
                self.cursors.look_at_lanes();
                let offsets = self.shown.offsets();
                let confirmed = &self.core.state().meta;
                let core = &self.cursors.core;
                let mut views = core.views(confirmed, only, ranges_max, offsets);
                self.cursors.shares.view(&mut views, now);
                self.cursors.histories.view(&mut views, now);
                // Who asked may have gone.
                let _ = answer.send(views);
            }
        }
    }

    fn remove(&mut self, id: SubscriptionId, force: bool, answer: CursorTicket, now: TimestampMs) {
        let sharers = self.cursors.shares.sharers(id);
        if sharers > 0 && !force {
            // Who asked may have gone.
            let _ = answer.send(Err(attached(sharers)));
            return;
        }
        self.cursors.core.remove(id, force, answer, now);
        if !self.cursors.core.is_known(id) {
            self.end_share(id, &deleted());
        }
    }

    fn attach(
        &mut self,
        mut new: NewConsumer,
        answer: oneshot::Sender<Result<LaneDoor, Fault>>,
        now: TimestampMs,
    ) {
        if let Some(handed) = &mut new.handed {
            handed.end = handed.end.min(self.shown.offsets().high_watermark);
        }
        let attached = self.cursors.core.attach(new, now);
        let door = attached.map(|(consumer, view)| {
            let (view, receiver) = watch::channel(view);
            let sent = Sent::default();
            let lane = Lane {
                view,
                sent: sent.clone(),
            };
            self.cursors.lanes.insert(consumer, lane);
            LaneDoor {
                consumer,
                view: receiver,
                sent,
            }
        });
        if let Err(Ok(door)) = answer.send(door) {
            // Who asked has gone.
            self.cursors.lanes.remove(&door.consumer);
            self.cursors.core.detach(door.consumer, now);
        }
    }

    /// Something is due, or may be.
    pub(crate) fn tick_cursors(&mut self) {
        let now = self.clock.now_ms();
        self.cursors.until_at = None;
        self.cursors.core.tick(now);
        self.cursors.touched = true;
    }

    /// After each turn: gives out what there is, and begins what is due.
    pub(crate) fn go_on_cursors(&mut self) {
        self.note_rates();
        let log_start = self.shown.offsets().log_start;
        if self.cursors.core.log_start() < log_start {
            let now = self.clock.now_ms();
            self.cursors.look_at_lanes();
            self.cursors.core.trimmed(log_start, now);
            self.trim_shares(log_start, now);
            self.cursors.touched = true;
        }
        self.cursors.touched |= self.shares_are_behind();
        if !std::mem::take(&mut self.cursors.touched) {
            return;
        }
        self.pump_shares();
        self.begin_state_work();
        self.show_views();
        self.answer_cursors();
        let consumed = !self.core.state().meta.is_empty();
        self.shown.set_consumed(consumed);
        let core = &self.cursors.core;
        // Without the writer nothing can be begun; it touches everything when it comes home.
        let write = core.due_at().filter(|_| self.state_writer.is_some());
        let due = [write, core.next_grace(), self.cursors.shares.next_due()];
        let due = due.into_iter().flatten().min();
        if due != self.cursors.until_at {
            self.cursors.until_at = due;
            let now = self.clock.now_ms();
            self.cursors.until = due.map(|at| -> Boxed<()> {
                let wait = Duration::from_millis(at.saturating_sub(now).max(0) as u64);
                Box::pin(tokio::time::sleep(wait))
            });
        }
    }

    fn show_views(&mut self) {
        for (consumer, view) in self.cursors.core.take_views() {
            let ended = view.ended.is_some();
            if let Some(lane) = self.cursors.lanes.get(&consumer) {
                lane.view.send_replace(view);
            }
            if ended {
                self.cursors.lanes.remove(&consumer);
            }
        }
    }

    fn answer_cursors(&mut self) {
        for (ticket, answer) in self.cursors.core.take_answers() {
            // Who asked may have gone; what was asked for holds all the same.
            let _ = ticket.send(answer);
        }
    }

    /// A snapshot, or the next delta, when the state chain's writer is home.
    fn begin_state_work(&mut self) {
        if self.state_writer.is_none() {
            return;
        }
        if std::mem::take(&mut self.cursors.snapshot_due) {
            let records = self.core.snapshot_records();
            self.snapshot(records);
            return;
        }
        let now = self.clock.now_ms();
        if !self.cursors.core.begin_write(now) {
            return;
        }
        let (Some(mut writer), Some((number, delta))) =
            (self.state_writer.take(), self.cursors.core.delta(now))
        else {
            return;
        };
        let record = MetaRecord {
            partition: self.partition,
            epoch: self.epoch,
            kind: MetaRecordKind::Delta {
                number,
                bytes: Cursors::encode_delta(&delta),
            },
        };
        self.cursors.writing = Some((number, delta));
        let body = record.encode();
        let snapshot = writer
            .is_due(body.len())
            .then(|| self.core.snapshot_records());
        let with = self.with.clone();
        self.cursors.work = Some(Box::pin(async move {
            let result = writer.write_delta(&with, snapshot, body, now).await;
            (writer, result)
        }));
    }

    /// The state machine of the log asks for a snapshot.
    pub(crate) fn want_snapshot(&mut self) {
        self.cursors.snapshot_due = true;
        self.cursors.touched = true;
    }

    /// The writer of the state chain is home.
    pub(crate) fn state_writer_returned(&mut self, mut writer: StateWriter) {
        // The topic may have been changed while it was away.
        writer.client = self.client.clone();
        self.state_writer = Some(writer);
        self.cursors.touched = true;
    }

    /// What became of a delta.
    pub(crate) fn delta_ended(&mut self, result: Result<(), SnapshotError>) -> Result<(), Fault> {
        let now = self.clock.now_ms();
        let written = self.cursors.writing.take();
        match (result, written) {
            (Ok(()), Some((number, delta))) => {
                self.cursors.failing = false;
                self.core.apply_meta(number, &delta);
                self.cursors.core.written(now);
                let shared = self.cursors.core.shared_written();
                self.shares_written(shared);
                Ok(())
            }
            (Ok(()), None) => Ok(()),
            (Err(SnapshotError::Later(fault)), _) => {
                if !std::mem::replace(&mut self.cursors.failing, true) {
                    tracing::warn!(partition = %self.name, %fault, "acks cannot be made durable now; they wait");
                }
                self.cursors.core.not_written(fault, now);
                Ok(())
            }
            (Err(SnapshotError::Lost(fault)), _) => Err(fault),
        }
    }

    /// A graceful end: what was acked becomes durable, if that does not take long, and not beyond `until`.
    pub(crate) async fn drain_cursors(&mut self, until: Instant) -> Result<(), Fault> {
        let deadline = until.min(Instant::now() + DRAIN_MAX);
        loop {
            if !self.state_work_ends(deadline).await? {
                return Ok(());
            }
            let Some(due) = self.cursors.core.due_at() else {
                return Ok(());
            };
            if self.state_writer.is_none() || self.cursors.failing {
                return Ok(());
            }
            let wait = due.saturating_sub(self.clock.now_ms()).max(0) as u64;
            tokio::time::sleep(Duration::from_millis(wait)).await;
            self.begin_state_work();
        }
    }

    /// Waits for the writer of the state chain, which a snapshot or a delta has. False when it does not come home in time.
    async fn state_work_ends(&mut self, deadline: Instant) -> Result<bool, Fault> {
        if let Some(work) = self.snapshot_work.as_mut() {
            let Ok((writer, result)) = timeout_at(deadline, work).await else {
                return Ok(false);
            };
            self.snapshot_work = None;
            self.state_writer_returned(writer);
            self.snapshot_ended(result)?;
        }
        if let Some(work) = self.cursors.work.as_mut() {
            let Ok((writer, result)) = timeout_at(deadline, work).await else {
                return Ok(false);
            };
            self.cursors.work = None;
            self.state_writer_returned(writer);
            self.delta_ended(result)?;
        }
        Ok(true)
    }

    /// The partition ends here: whoever waits hears why, and lanes find their ties cut.
    pub(crate) fn fail_cursors(&mut self, why: &Fault) {
        self.cursors.core.fail(why);
        self.fail_shares(why);
        self.answer_cursors();
        self.cursors.lanes.clear();
    }
}
