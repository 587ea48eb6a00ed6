//! The task behind a handle: feeds the state machine and does what it asks for. The only place where a partition waits.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bookie_client::{AppendError, Appended, LedgerWriter};
use bookie_metadata::{Compare, Txn};
use futures::StreamExt;
use futures::stream::FuturesOrdered;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{Offset, OwnerEpoch, PartitionId};
use tokio::sync::{oneshot, watch};
use tokio::time::MissedTickBehavior;

use super::core::{Effect, PartitionCore};
use super::cursors::{CursorCore, CursorTask, refuse_late};
use super::handle::{
    Command, CommandQueue, Commands, Ended, EndedOnDrop, LogOffsets, PartitionHandle,
    ProduceCommand, Produced, Shared,
};
use super::ledgers::News;
use super::snapshots::{SnapshotError, StateWriter};
use super::takeover::{Collaborators, Taken};
use super::trimming::{Trimming, Wanted};
use crate::IngressPermit;
use crate::backlogs::Refusal;
use crate::clock::OwnerClock;
use crate::log::{Chain, LogReader, LogView};
use crate::state::Cursors;

/// Commands taken before the state machine sends: what arrived together is coalesced.
const COMMANDS_PER_TURN: usize = 1024;
/// How often age-based work is looked at.
const TICK: Duration = Duration::from_secs(1);

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
type SnapshotWork = Boxed<(StateWriter, Result<(), SnapshotError>)>;

pub(super) struct Task {
    pub(super) with: Arc<Collaborators>,
    pub(super) partition: PartitionId,
    /// What the log calls it: by its topic's name where that is known.
    pub(super) name: Arc<str>,
    pub(super) epoch: OwnerEpoch,
    pub(super) guard: Compare,
    pub(super) core: PartitionCore<Cursors, Ticket>,
    pub(super) clock: OwnerClock,
    pub(super) log: LogReader,
    pub(super) offsets: watch::Sender<LogOffsets>,
    pub(super) queued_bytes: Arc<AtomicUsize>,
    pub(super) writer: Option<LedgerWriter>,
    pub(super) gap_start: Option<Offset>,
    pub(super) appends: FuturesOrdered<Boxed<Result<Appended, AppendError>>>,
    /// Home here, or away with `ledger_work`.
    pub(super) chain: Option<Chain>,
    pub(super) ledger_work: Option<LedgerWork>,
    pub(super) ledger_base: Offset,
    /// The ledger is being closed or rolled: what it does not confirm is answered when that is over.
    pub(super) closing: bool,
    /// Ends when the open ledger is full (storage.md, amended D1).
    pub(super) until_full: Option<Boxed<()>>,
    /// Ends when records can be stored again.
    pub(super) until_room: Option<Boxed<()>>,
    /// Ledgers in a row that were full before they took a record.
    pub(super) fulls: u32,
    pub(super) state_writer: Option<StateWriter>,
    pub(super) snapshot_work: Option<SnapshotWork>,
    pub(super) snapshot_failing: bool,
    pub(super) trimming: Trimming,
    pub(super) cursors: CursorTask,
}

/// Starts serving a taken partition.
pub(crate) fn spawn(with: Arc<Collaborators>, taken: Taken) -> PartitionHandle {
    let (commands, queue) = Commands::channel();
    let (offsets, watch) = watch::channel(taken.log.with_view(|view| view.offsets()));
    let queued_bytes = Arc::new(AtomicUsize::new(0));
    let ended = Arc::new(Ended::default());
    let cursors = CursorCore::new(
        taken.config.partition.index,
        taken.state.meta.clone(),
        taken.state.state_applied,
    );
    let cursors = CursorTask::new(cursors.mutated(with.mutation));
    let handle = PartitionHandle(Arc::new(Shared {
        id: taken.config.partition,
        epoch: taken.config.epoch,
        commands,
        offsets: watch,
        ended: ended.clone(),
        log: taken.log.clone(),
        time_turns: with.time_turns.clone(),
        queued_bytes: queued_bytes.clone(),
        max_batch_bytes: with.max_batch_bytes,
        log_append_time: taken.config.log_append_time,
        consumed: cursors.consumed(),
        refusal: Refusal::default(),
    }));
    let mutation = with.mutation;
    let task = Task {
        clock: OwnerClock::new(with.clock.clone(), taken.state.log.append_time),
        with,
        partition: taken.config.partition,
        name: taken.name,
        epoch: taken.config.epoch,
        guard: taken.guard,
        core: PartitionCore::new(taken.config, taken.state, taken.next_offset, taken.replayed)
            .covered_to(taken.covered)
            .mutated(mutation),
        log: taken.log,
        offsets,
        queued_bytes,
        writer: None,
        gap_start: taken.gap_start,
        appends: FuturesOrdered::new(),
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
        // An earlier owner may have left something to do.
        trimming: Trimming::default(),
        cursors,
    };
    // Boxed: a future keeps what it is given twice, once as its argument and once as its own.
    tokio::spawn(Box::new(task).run(queue, ended));
    handle
}

/// Why the loop ended.
struct End {
    why: Fault,
    done: Option<oneshot::Sender<()>>,
}

impl Task {
    async fn run(mut self: Box<Self>, mut commands: CommandQueue, ended: Arc<Ended>) {
        let _panics = EndedOnDrop(ended.clone());
        let end = self.serve(&mut commands).await;
        if end.done.is_none() && end.why.reason != Reason::ShuttingDown {
            let why = &end.why;
            tracing::warn!(partition = %self.name, %why, "partition ends by itself; the next request takes it over again");
        }
        ended.set(end.why.clone());
        self.core.fail(end.why.clone());
        self.answer_all();
        self.fail_cursors(&end.why);
        commands.close();
        while let Ok(command) = commands.try_recv() {
            match *command {
                Command::Produce(produce) => {
                    self.take(produce);
                    self.answer_all();
                }
                Command::Cursors(command) => refuse_late(command, &end.why),
                _ => {}
            }
        }
        if let Some(done) = end.done {
            Box::pin(self.close_ledgers()).await;
            // Nobody waits any more: fine.
            let _ = done.send(());
        }
    }

    async fn serve(&mut self, commands: &mut CommandQueue) -> End {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                Some(appended) = self.appends.next(), if !self.appends.is_empty() => {
                    if let Err(why) = self.appended(appended) {
                        return End { why, done: None };
                    }
                }
                (chain, result) = maybe(&mut self.ledger_work) => {
                    self.ledger_work = None;
                    self.chain = Some(chain);
                    if let Err(why) = Box::pin(self.ledger_arrived(result)).await {
                        return End { why, done: None };
                    }
                }
                (chain, result) = maybe(&mut self.trimming.work) => {
                    self.trimming.work = None;
                    self.chain = Some(chain);
                    if let Err(why) = self.trimmed(result) {
                        return End { why, done: None };
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
                        return End { why, done: None };
                    }
                }
                (writer, result) = maybe(&mut self.cursors.work) => {
                    self.cursors.work = None;
                    self.state_writer_returned(writer);
                    if let Err(why) = self.delta_ended(result) {
                        return End { why, done: None };
                    }
                }
                () = maybe(&mut self.cursors.until) => {
                    self.cursors.until = None;
                    self.tick_cursors();
                }
                command = commands.recv() => match command {
                    None => {
                        let why = Fault::new(Reason::ShuttingDown, "every handle of the partition was dropped");
                        return End { why, done: None };
                    }
                    Some(command) => if let Some(end) = self.commands(command, commands).await {
                        return end;
                    }
                },
                _ = tick.tick() => self.ticked(),
            }
            self.execute();
            self.go_on_trimming();
            self.go_on_cursors();
        }
    }

    /// Time passed.
    fn ticked(&mut self) {
        let now = self.clock.now_ms();
        self.note_wear();
        self.core.tick(now);
        self.log.with_view(LogView::cool);
        self.trimming.look = true;
        self.tick_cursors();
    }

    /// Handles one command and those that already wait behind it.
    async fn commands(&mut self, first: Box<Command>, queue: &mut CommandQueue) -> Option<End> {
        let mut next = Some(first);
        let mut taken = 0;
        while let Some(command) = next {
            match *command {
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
                Command::Cursors(command) => self.cursor_command(command),
                Command::Stop { why, done } => {
                    // Rare and large, as all that is pinned apart here: every partition would have room for it.
                    Box::pin(self.drain()).await;
                    return Some(End {
                        why,
                        done: Some(done),
                    });
                }
            }
            taken += 1;
            next = if taken < COMMANDS_PER_TURN {
                queue.try_recv().ok()
            } else {
                None
            };
        }
        let now = self.clock.now_ms();
        self.note_wear();
        self.core.flush(now);
        None
    }

    fn take(&mut self, produce: ProduceCommand) {
        let ticket = Ticket {
            answer: produce.answer,
            bytes: produce.batch.len(),
            room: produce.room,
        };
        let now = self.clock.now_ms();
        self.core
            .produce(produce.header, &produce.batch, ticket, now);
    }

    /// A graceful stop: what was sent is confirmed first.
    async fn drain(&mut self) {
        let now = self.clock.now_ms();
        self.core.flush(now);
        self.execute();
        while let Some(Ok(appended)) = self.appends.next().await {
            let now = self.clock.now_ms();
            self.core.confirmed(appended.entry, now);
            self.execute();
            if self.core.is_idle() {
                break;
            }
        }
        if let Err(fault) = self.drain_cursors().await {
            tracing::debug!(partition = %self.name, %fault, "acks are left to the next owner");
        }
    }

    /// A graceful stop leaves nothing to recover.
    async fn close_ledgers(&mut self) {
        let guard = Txn {
            compares: vec![self.guard.clone()],
            ops: vec![],
        };
        let state = self
            .state_writer
            .take()
            .and_then(|mut state| state.writer.take());
        for writer in self.writer.take().into_iter().chain(state) {
            if let Err(error) = writer.close(guard.clone()).await {
                tracing::debug!(partition = %self.name, %error, "ledger was left to recovery");
            }
        }
    }

    fn answer_all(&mut self) {
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
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        // Before the answer: who hears it may send more.
        drop(room);
        // Who asked may have gone; the batch is stored all the same.
        let _ = answer.send(result);
    }

    pub(super) fn execute(&mut self) {
        for effect in self.core.take_effects() {
            match effect {
                Effect::Answer { ticket, result } => self.answer(ticket, result),
                Effect::Append(entry) => {
                    let writer = self
                        .writer
                        .as_ref()
                        .expect("the core appends only after log_opened");
                    self.appends.push_back(Box::pin(writer.append(entry)));
                }
                Effect::Confirmed(entry) => {
                    let offsets = self.log.with_view(|view| view.confirm(entry));
                    self.offsets.send_replace(offsets);
                }
                Effect::OpenLog { base } => self.want(Wanted::Open(base)),
                Effect::RollLog { base } => self.want(Wanted::Roll(base)),
                Effect::VerifyLog { base } => self.want(Wanted::Verify(base)),
                Effect::Snapshot => self.want_snapshot(),
            }
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

    fn snapshot_ended(&mut self, result: Result<(), SnapshotError>) -> Result<(), Fault> {
        let now = self.clock.now_ms();
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

/// The future inside, or for ever.
async fn maybe<T>(work: &mut Option<Boxed<T>>) -> T {
    match work {
        Some(work) => work.await,
        None => std::future::pending().await,
    }
}
