//! The task behind a handle: feeds the state machine and does what it asks for. The only place where a partition waits. With nothing to
//! do it rests (`resting`).

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bookie_client::{AppendError, Appended, LedgerClient, LedgerWriter};
use bookie_metadata::Compare;
use futures::StreamExt;
use hulse_proto::entry::NewEntry;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{Offset, OwnerEpoch, PartitionId};
use hulse_proto::time::TimestampMs;
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, MissedTickBehavior};

use super::core::{Effect, PartitionCore};
use super::cursors::{CursorCore, CursorTask};
use super::handle::{
    Command, CommandInbox, Commands, PartitionHandle, ProduceCommand, Produced, Shared,
};
use super::ledgers::{News, next_append};
use super::resting::rest_or_go_on;
use super::shown::{EndedOnDrop, Shown};
use super::snapshots::{SnapshotError, StateWriter};
use super::stopping::{End, Stopping};
use super::takeover::{Collaborators, Taken};
use super::tenure::Tenure;
use super::traffic::Traffic;
use super::trimming::{Trimming, Wanted};
use crate::IngressPermit;
use crate::backlogs::Refusal;
use crate::clock::OwnerClock;
use crate::log::{Chain, LogReader, LogView};
use crate::state::Cursors;

/// Commands taken before the state machine sends: what arrived together is coalesced.
const COMMANDS_PER_TURN: usize = 1024;
/// How often age-based work is looked at.
pub(super) const TICK: Duration = Duration::from_secs(1);
/// With nothing to do it waits so long for more, up to twice, before it rests. Short: of thousands that are opened one after the other
/// few should have a task at the same time, as the room of those tasks does not all go back.
const LINGER: Duration = Duration::from_millis(100);

/// Who waits for a batch's answer, and what the batch takes until then.
#[derive(Debug)]
pub(super) struct Ticket {
    answer: oneshot::Sender<Result<Produced, Fault>>,
    bytes: usize,
    room: Option<IngressPermit>,
}

pub(super) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;
/// A chain, and what became of the log ledger that was to be made, looked at or closed.
pub(super) type LedgerWork = Boxed<(Chain, Result<News, Fault>)>;
/// Answers of the log ledger's writer, to come: in the order of the entries, so only the first one is waited for.
pub(super) type Appends = VecDeque<Boxed<Result<Appended, AppendError>>>;
type SnapshotWork = Boxed<(StateWriter, Result<(), SnapshotError>)>;

/// The task's state, also while it rests.
pub(crate) struct Task {
    pub(super) with: Arc<Collaborators>,
    /// Where it runs.
    runtime: Handle,
    pub(super) partition: PartitionId,
    /// What the log calls it: by its topic's name where that is known.
    pub(super) name: Arc<str>,
    pub(super) epoch: OwnerEpoch,
    pub(super) guard: Compare,
    pub(super) core: PartitionCore<Cursors, Ticket>,
    pub(super) clock: OwnerClock,
    pub(super) log: LogReader,
    pub(super) shown: Arc<Shown>,
    /// It had a command since the last tick.
    pub(super) busy: bool,
    pub(super) writer: Option<LedgerWriter>,
    /// Makes its ledgers, with the quorums of its topic.
    pub(super) client: LedgerClient,
    /// The state is not written for the sake of its copies before.
    pub(super) state_copies_not_before: TimestampMs,
    pub(super) gap_start: Option<Offset>,
    pub(super) appends: Appends,
    /// Home here, or away with `ledger_work`.
    pub(super) chain: Option<Chain>,
    pub(super) ledger_work: Option<LedgerWork>,
    pub(super) ledger_base: Offset,
    /// The ledger is being closed or rolled: what it does not confirm is answered when that is over.
    pub(super) closing: bool,
    /// Ends when the open ledger is full (storage.md, amended D1). There only while something is on its way, as nothing else fills it.
    pub(super) until_full: Option<Boxed<()>>,
    /// Ends when records can be stored again.
    pub(super) until_room: Option<Boxed<()>>,
    /// Ledgers in a row that were full before they took a record.
    pub(super) fulls: u32,
    pub(super) state_writer: Option<StateWriter>,
    pub(super) snapshot_work: Option<SnapshotWork>,
    pub(super) snapshot_failing: bool,
    /// Who waits for the snapshot.
    pub(super) brief: Option<oneshot::Sender<()>>,
    pub(super) trimming: Trimming,
    pub(super) cursors: CursorTask,
    /// It was told to stop.
    pub(super) stopping: Option<Stopping>,
}

/// Starts serving a taken partition.
pub(crate) fn spawn(with: Arc<Collaborators>, taken: Taken) -> PartitionHandle {
    let (commands, inbox) = Commands::channel();
    let shown = Arc::new(Shown::new(taken.log.with_view(|view| view.offsets())));
    let cursors = CursorCore::new(
        taken.config.partition.index,
        taken.state.meta.without_groups(),
        taken.state.state_applied,
    );
    let cursors = CursorTask::new(cursors.mutated(with.mutation));
    let handle = PartitionHandle(Arc::new(Shared {
        id: taken.config.partition,
        epoch: taken.config.epoch,
        commands,
        shown: shown.clone(),
        log: taken.log.clone(),
        tenure: Tenure::new(taken.won, taken.term),
        with: with.clone(),
        max_batch_bytes: with.max_batch_bytes,
        log_append_time: taken.config.log_append_time,
        replication: Mutex::new(taken.replication),
        refusal: Refusal::default(),
        traffic: Traffic::default(),
    }));
    let mutation = with.mutation;
    let task = Task {
        clock: OwnerClock::new(with.clock.clone(), taken.state.log.append_time),
        client: with.client_for(taken.replication),
        state_copies_not_before: TimestampMs::MIN,
        with,
        runtime: Handle::current(),
        partition: taken.config.partition,
        name: taken.name,
        epoch: taken.config.epoch,
        guard: taken.guard,
        core: PartitionCore::new(taken.config, taken.state, taken.next_offset, taken.replayed)
            .covered_to(taken.covered)
            .mutated(mutation),
        log: taken.log,
        shown,
        busy: true,
        writer: None,
        gap_start: taken.gap_start,
        appends: VecDeque::new(),
        chain: Some(taken.log_chain),
        ledger_work: None,
        ledger_base: Offset(0),
        closing: false,
        until_full: None,
        until_room: None,
        fulls: 0,
        state_writer: Some(taken.state_writer),
        snapshot_work: None,
        snapshot_failing: false,
        brief: None,
        // An earlier owner may have left something to do.
        trimming: Trimming::default(),
        cursors,
        stopping: None,
    };
    start(Box::new(task), inbox);
    handle
}

/// Starts the task of a partition that was taken over, or that rested.
pub(super) fn start(task: Box<Task>, inbox: CommandInbox) {
    let runtime = task.runtime.clone();
    // Armed before there is a task: a runtime that goes down never begins it.
    let ends = EndedOnDrop::new(task.shown.clone());
    runtime.spawn(task.run(inbox, ends));
}

/// What came of a time at work.
enum Work {
    Over(End),
    /// There is nothing to do.
    Idle,
}

impl Task {
    async fn run(mut self: Box<Self>, mut inbox: CommandInbox, ends: EndedOnDrop) {
        let mut commands = VecDeque::new();
        match self.serve(&mut inbox, &mut commands).await {
            Work::Over(end) => self.end(end, inbox, commands).await,
            Work::Idle => {
                rest_or_go_on(self, inbox);
                ends.disarm();
            }
        }
    }

    async fn serve(&mut self, inbox: &mut CommandInbox, commands: &mut VecDeque<Command>) -> Work {
        let mut due = Instant::now();
        let mut tick = tokio::time::interval(LINGER);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                Some(appended) = next_append(&mut self.appends), if !self.appends.is_empty() => {
                    if let Err(why) = self.appended(appended) {
                        return Work::Over(self.over(why));
                    }
                }
                (chain, result) = maybe(&mut self.ledger_work) => {
                    self.ledger_work = None;
                    self.chain = Some(chain);
                    if let Err(why) = Box::pin(self.ledger_arrived(result)).await {
                        return Work::Over(self.over(why));
                    }
                }
                (chain, result) = maybe(&mut self.trimming.work) => {
                    self.trimming.work = None;
                    self.chain = Some(chain);
                    if let Err(why) = self.trimmed(result) {
                        return Work::Over(self.over(why));
                    }
                }
                () = maybe(&mut self.until_full), if self.chain.is_some() => {
                    self.until_full = None;
                    self.close_full();
                }
                () = maybe(&mut self.until_room) => {
                    self.until_room = None;
                    self.core.room_returned();
                    tracing::info!(partition = %self.name, "records are taken again");
                }
                (writer, result) = maybe(&mut self.snapshot_work) => {
                    self.snapshot_work = None;
                    self.state_writer_returned(writer);
                    if let Err(why) = self.snapshot_ended(result) {
                        return Work::Over(self.over(why));
                    }
                }
                (writer, result) = maybe(&mut self.cursors.work) => {
                    self.cursors.work = None;
                    self.state_writer_returned(writer);
                    if let Err(why) = self.delta_ended(result) {
                        return Work::Over(self.over(why));
                    }
                }
                Some(end) = self.cursors.shares.work.next(), if !self.cursors.shares.work.is_empty() => {
                    self.share_work_ended(end);
                }
                () = maybe(&mut self.cursors.until) => {
                    self.cursors.until = None;
                    self.tick_cursors();
                }
                there = next_commands(inbox, commands), if self.stopping.is_none() => match there {
                    false => return Work::Over(self.over(let_go())),
                    true => self.commands(commands),
                },
                _ = tick.tick() => if self.lingered(&mut due) {
                    return Work::Idle;
                },
            }
            self.go_on();
            if let Some(end) = self.stopped() {
                return Work::Over(end);
            }
        }
    }

    /// After each turn: does what the state machines want.
    pub(super) fn go_on(&mut self) {
        self.execute();
        self.go_on_trimming();
        self.go_on_cursors();
    }

    /// Time passed.
    pub(super) fn ticked(&mut self) {
        let now = self.clock.now_ms();
        self.note_wear();
        self.note_state_copies(now);
        self.core.tick(now);
        self.log.with_view(LogView::cool);
        self.trimming.look = true;
        self.tick_cursors();
    }

    /// Handles commands that wait, up to a turn's worth, and none behind the one to stop.
    fn commands(&mut self, commands: &mut VecDeque<Command>) {
        self.busy = true;
        for _ in 0..COMMANDS_PER_TURN {
            let Some(command) = commands.pop_front() else {
                break;
            };
            match command {
                Command::Produce(produce) => self.take(produce),
                Command::Producer { producer, answer } => {
                    let known = self.core.state().log.producers.get(producer);
                    let last =
                        known.and_then(|known| Some((known.epoch, known.window.back()?.last)));
                    // Who asked may have gone.
                    let _ = answer.send(last);
                }
                Command::Retain(retain) => self.retain(retain),
                Command::Trim(trim) => self.trim(trim),
                Command::Replicate(said) => self.replicate(said),
                Command::Cursors(command) => self.cursor_command(command),
                Command::Brief(done) => self.be_brief(done),
                Command::Stop { why, done } => {
                    self.stopping = Some(Stopping::new(why, done));
                    break;
                }
            }
        }
        let now = self.clock.now_ms();
        self.note_wear();
        self.core.flush(now);
    }

    pub(super) fn take(&mut self, produce: ProduceCommand) {
        let ticket = Ticket {
            answer: produce.answer,
            bytes: produce.batch.len(),
            room: produce.room,
        };
        let now = self.clock.now_ms();
        self.core
            .produce(produce.header, &produce.batch, ticket, now);
    }

    pub(super) fn answer_all(&mut self) {
        for effect in self.core.take_effects() {
            if let Effect::Answer { ticket, result } = effect {
                self.answer(ticket, result);
            }
        }
    }

    fn answer(&mut self, ticket: Ticket, result: Result<Produced, Fault>) {
        let Ticket {
            answer,
            bytes,
            room,
        } = ticket;
        self.shown.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        // Before the answer: who hears it may send more.
        drop(room);
        // Who asked may have gone; the batch is stored all the same.
        let _ = answer.send(result);
    }

    pub(super) fn execute(&mut self) {
        for effect in self.core.take_effects() {
            match effect {
                Effect::Answer { ticket, result } => self.answer(ticket, result),
                Effect::Append(entry) => self.append(entry),
                Effect::Confirmed(entry) => {
                    let offsets = self.log.with_view(|view| view.confirm(entry));
                    self.shown.set_offsets(offsets);
                }
                Effect::OpenLog { base } => self.want(Wanted::Open(base)),
                Effect::RollLog { base } => self.want(Wanted::Roll(base)),
                Effect::VerifyLog { base } => self.want(Wanted::Verify(base)),
                Effect::Snapshot => self.want_snapshot(),
            }
        }
    }

    fn append(&mut self, entry: NewEntry) {
        let writer = self
            .writer
            .as_ref()
            .expect("the core appends only after log_opened");
        self.appends.push_back(Box::pin(writer.append(entry)));
        if self.until_full.is_none() {
            let writer = writer.clone();
            self.until_full = Some(Box::pin(async move { writer.until_full().await }));
        }
    }

    /// The writer of the state chain must be home.
    pub(super) fn snapshot(&mut self, records: Vec<crate::state::MetaRecord>) {
        let Some(mut writer) = self.state_writer.take() else {
            return;
        };
        let (with, now) = (self.with.clone(), self.clock.now_ms());
        self.snapshot_work = Some(Box::pin(async move {
            let result = writer.write(&with, records, now).await;
            (writer, result)
        }));
    }

    pub(super) fn snapshot_ended(
        &mut self,
        result: Result<(), SnapshotError>,
    ) -> Result<(), Fault> {
        let now = self.clock.now_ms();
        self.brief = None;
        match result {
            Ok(()) => {
                self.snapshot_failing = false;
                self.core.snapshot_done(true, now);
            }
            Err(SnapshotError::Later(fault)) => {
                let first = !std::mem::replace(&mut self.snapshot_failing, true);
                if let Some(others) = first.then(|| self.with.late.speak()).flatten() {
                    tracing::warn!(partition = %self.name, others, %fault, "snapshot of the partition's state is late");
                }
                self.core.snapshot_done(false, now);
            }
            Err(SnapshotError::Lost(fault)) => return Err(fault),
        }
        Ok(())
    }
}

/// Waits until there are commands. False when none will ever come.
async fn next_commands(inbox: &mut CommandInbox, commands: &mut VecDeque<Command>) -> bool {
    !commands.is_empty() || inbox.receive(commands).await
}

/// The future inside, or for ever.
async fn maybe<T>(work: &mut Option<Boxed<T>>) -> T {
    match work {
        Some(work) => work.await,
        None => std::future::pending().await,
    }
}

fn let_go() -> Fault {
    Fault::new(
        Reason::ShuttingDown,
        "every handle of the partition was dropped",
    )
}
