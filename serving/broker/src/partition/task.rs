//! The task behind a handle: feeds the state machine and does what it asks for. The only place where a partition waits.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bookie_client::{AppendError, Appended, LedgerWriter, NewLedger, RollError};
use bookie_metadata::{Compare, Txn};
use futures::StreamExt;
use futures::stream::FuturesOrdered;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{Offset, OwnerEpoch, PartitionId};
use hulse_proto::ledger::LedgerKind;
use tokio::sync::{mpsc, oneshot, watch};
use tokio::time::MissedTickBehavior;

use super::core::{Effect, PartitionCore};
use super::handle::{
    Command, Ended, EndedOnDrop, LogOffsets, PartitionHandle, ProduceCommand, Produced, Shared,
};
use super::snapshots::{SnapshotError, StateWriter};
use super::takeover::{Collaborators, Taken, log_link};
use crate::clock::OwnerClock;
use crate::log::{Chain, LedgerSpan, LogReader, LogView};
use crate::state::NoMeta;
use crate::storage_fault;

/// Commands taken before the state machine sends: what arrived together is coalesced.
const COMMANDS_PER_TURN: usize = 1024;
/// How often age-based work is looked at.
const TICK: Duration = Duration::from_secs(1);

type Ticket = (oneshot::Sender<Result<Produced, Fault>>, usize);
type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;
/// A chain and what became of the ledger that was to be linked to it.
type LedgerWork = Boxed<(Chain, Result<Option<LedgerWriter>, Fault>)>;
type SnapshotWork = Boxed<(StateWriter, Result<(), SnapshotError>)>;

struct Task {
    with: Arc<Collaborators>,
    partition: PartitionId,
    epoch: OwnerEpoch,
    guard: Compare,
    core: PartitionCore<NoMeta, Ticket>,
    clock: OwnerClock,
    log: LogReader,
    offsets: watch::Sender<LogOffsets>,
    queued_bytes: Arc<AtomicUsize>,
    writer: Option<LedgerWriter>,
    gap_start: Option<Offset>,
    appends: FuturesOrdered<Boxed<Result<Appended, AppendError>>>,
    /// Home here, or away with `ledger_work`.
    chain: Option<Chain>,
    ledger_work: Option<LedgerWork>,
    ledger_base: Offset,
    state_writer: Option<StateWriter>,
    snapshot_work: Option<SnapshotWork>,
    snapshot_failing: bool,
}

/// Starts serving a taken partition.
pub(crate) fn spawn(with: Arc<Collaborators>, taken: Taken) -> PartitionHandle {
    let (commands, receiver) = mpsc::unbounded_channel();
    let (offsets, watch) = watch::channel(taken.log.with_view(|view| view.offsets()));
    let queued_bytes = Arc::new(AtomicUsize::new(0));
    let ended = Arc::new(Ended::default());
    let handle = PartitionHandle(Arc::new(Shared {
        id: taken.config.partition,
        epoch: taken.config.epoch,
        commands,
        offsets: watch,
        ended: ended.clone(),
        log: taken.log.clone(),
        queued_bytes: queued_bytes.clone(),
        max_batch_bytes: with.max_batch_bytes,
        log_append_time: taken.config.log_append_time,
    }));
    let task = Task {
        clock: OwnerClock::new(with.clock.clone(), taken.state.log.append_time),
        with,
        partition: taken.config.partition,
        epoch: taken.config.epoch,
        guard: taken.guard,
        core: PartitionCore::new(taken.config, taken.state, taken.next_offset, taken.replayed),
        log: taken.log,
        offsets,
        queued_bytes,
        writer: None,
        gap_start: taken.gap_start,
        appends: FuturesOrdered::new(),
        chain: Some(taken.log_chain),
        ledger_work: None,
        ledger_base: Offset(0),
        state_writer: Some(taken.state_writer),
        snapshot_work: None,
        snapshot_failing: false,
    };
    tokio::spawn(task.run(receiver, ended));
    handle
}

/// Why the loop ended.
struct End {
    why: Fault,
    done: Option<oneshot::Sender<()>>,
}

impl Task {
    async fn run(mut self, mut commands: mpsc::UnboundedReceiver<Command>, ended: Arc<Ended>) {
        let _panics = EndedOnDrop(ended.clone());
        let end = self.serve(&mut commands).await;
        if end.done.is_none() && end.why.reason != Reason::ShuttingDown {
            let why = &end.why;
            tracing::warn!(partition = %self.partition, %why, "partition ends by itself; the next request takes it over again");
        }
        ended.set(end.why.clone());
        self.core.fail(end.why.clone());
        self.answer_all();
        commands.close();
        while let Ok(command) = commands.try_recv() {
            if let Command::Produce(produce) = command {
                self.take(produce);
                self.answer_all();
            }
        }
        if let Some(done) = end.done {
            self.close_ledgers().await;
            // Nobody waits any more: fine.
            let _ = done.send(());
        }
    }

    async fn serve(&mut self, commands: &mut mpsc::UnboundedReceiver<Command>) -> End {
        let mut tick = tokio::time::interval(TICK);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                biased;
                Some(appended) = self.appends.next(), if !self.appends.is_empty() => {
                    let now = self.clock.now_ms();
                    match appended {
                        Ok(appended) => self.core.confirmed(appended.entry, now),
                        Err(error) => return End { why: storage_fault::append(&error), done: None },
                    }
                }
                (chain, result) = maybe(&mut self.ledger_work) => {
                    self.ledger_work = None;
                    self.chain = Some(chain);
                    if let Err(why) = self.ledger_arrived(result) {
                        return End { why, done: None };
                    }
                }
                (writer, result) = maybe(&mut self.snapshot_work) => {
                    self.snapshot_work = None;
                    self.state_writer = Some(writer);
                    if let Err(why) = self.snapshot_ended(result) {
                        return End { why, done: None };
                    }
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
                _ = tick.tick() => {
                    let now = self.clock.now_ms();
                    self.core.tick(now);
                    self.log.with_view(LogView::cool);
                }
            }
            self.execute();
        }
    }

    /// Handles one command and those that already wait behind it.
    async fn commands(
        &mut self,
        first: Command,
        queue: &mut mpsc::UnboundedReceiver<Command>,
    ) -> Option<End> {
        let mut next = Some(first);
        let mut taken = 0;
        while let Some(command) = next {
            match command {
                Command::Produce(produce) => self.take(produce),
                Command::Producer { producer, answer } => {
                    let known = self.core.state().log.producers.get(producer);
                    let last =
                        known.and_then(|known| Some((known.epoch, known.window.back()?.last)));
                    // Who asked may have gone.
                    let _ = answer.send(last);
                }
                Command::Stop { why, done } => {
                    self.drain().await;
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
        self.core.flush(now);
        None
    }

    fn take(&mut self, produce: ProduceCommand) {
        let ticket = (produce.answer, produce.batch.len());
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
                tracing::debug!(partition = %self.partition, %error, "ledger was left to recovery");
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

    fn answer(&mut self, (answer, bytes): Ticket, result: Result<Produced, Fault>) {
        self.queued_bytes.fetch_sub(bytes, Ordering::Relaxed);
        // Who asked may have gone; the batch is stored all the same.
        let _ = answer.send(result);
    }

    fn execute(&mut self) {
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
                Effect::OpenLog { base } => self.open_log(base),
                Effect::RollLog { base } => self.roll_log(base),
                Effect::Snapshot(records) => self.snapshot(records),
            }
        }
    }

    fn new_ledger(&self, base_offset: Offset) -> NewLedger {
        NewLedger {
            kind: LedgerKind::Log,
            partition: self.partition,
            owner_epoch: self.epoch,
            base_offset,
        }
    }

    fn open_log(&mut self, base: Offset) {
        self.ledger_base = base;
        let new = self.new_ledger(base);
        let (with, guard, epoch, gap) = (
            self.with.clone(),
            self.guard.clone(),
            self.epoch,
            self.gap_start,
        );
        let mut chain = self
            .chain
            .take()
            .expect("the core asks for one ledger at a time");
        self.ledger_work = Some(Box::pin(async move {
            let created = with.client.create(new, |ledger| {
                let mut txn = chain.append(log_link(ledger, base, epoch, gap));
                txn.compares.push(guard.clone());
                txn
            });
            let result = match created.await {
                Ok(writer) => reload(&with, &mut chain, writer).await,
                Err(error) => Err(storage_fault::create(&error)),
            };
            (chain, result)
        }));
    }

    fn roll_log(&mut self, base: Offset) {
        self.ledger_base = base;
        let new = self.new_ledger(base);
        let (with, guard, epoch) = (self.with.clone(), self.guard.clone(), self.epoch);
        let mut chain = self
            .chain
            .take()
            .expect("the core asks for one ledger at a time");
        let writer = self.writer.clone().expect("the core rolls an open ledger");
        let begun = writer.metadata().base_offset;
        self.ledger_work = Some(Box::pin(async move {
            let rolled = with.client.roll(&writer, new, |ledger, totals| {
                // Not where the last entry that was sent would end: what the drain did not confirm is not in the log (W13), and
                // a link behind it would be a hole (P3).
                let base = Offset(begun.0 + totals.offset_span);
                let mut txn = chain.append(log_link(ledger, base, epoch, None));
                txn.compares.push(guard.clone());
                txn
            });
            let result = match rolled.await {
                Ok(writer) => reload(&with, &mut chain, writer).await,
                Err(RollError::NotStarted(error)) => {
                    tracing::debug!(%error, "ledger is not rolled now");
                    Ok(None)
                }
                Err(error) => Err(Fault::new(Reason::StorageUnknown, error.to_string())),
            };
            (chain, result)
        }));
    }

    fn ledger_arrived(&mut self, result: Result<Option<LedgerWriter>, Fault>) -> Result<(), Fault> {
        let now = self.clock.now_ms();
        let fresh = result?;
        let is_fresh = fresh.is_some();
        if let Some(writer) = fresh {
            let base = writer.metadata().base_offset;
            if base != self.ledger_base {
                let why = format!(
                    "the ledger before was closed at offset {base}, entries up to {} were not confirmed; retry",
                    self.ledger_base
                );
                return Err(Fault::new(Reason::StorageUnknown, why));
            }
            let mut span = LedgerSpan::new(writer.ledger(), base, self.epoch, writer.reader());
            span.gap_start = self.gap_start.take();
            self.log.with_view(|view| view.push_ledger(span));
            self.writer = Some(writer);
        }
        self.core.log_opened(is_fresh, now);
        Ok(())
    }

    fn snapshot(&mut self, records: Vec<crate::state::MetaRecord>) {
        let mut writer = self
            .state_writer
            .take()
            .expect("the core asks for one snapshot at a time");
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
                if !std::mem::replace(&mut self.snapshot_failing, true) {
                    tracing::warn!(partition = %self.partition, %fault, "snapshot of the partition's state is late");
                }
                self.core.snapshot_done(false, now);
            }
            Err(SnapshotError::Lost(fault)) => return Err(fault),
        }
        Ok(())
    }
}

async fn reload(
    with: &Collaborators,
    chain: &mut Chain,
    writer: LedgerWriter,
) -> Result<Option<LedgerWriter>, Fault> {
    match chain.reload(&*with.metadata, writer.ledger()).await {
        Ok(()) => Ok(Some(writer)),
        Err(error) => Err(storage_fault::chain(&error)),
    }
}

/// The future inside, or for ever.
async fn maybe<T>(work: &mut Option<Boxed<T>>) -> T {
    match work {
        Some(work) => work.await,
        None => std::future::pending().await,
    }
}
