//! Trimming, for the partition's task: the log start moves, and the ledgers below it go (storage.md P6).
//!
//! First the log start stands in metadata; then readers see it, and whoever asked is answered; then ledgers wholly below it leave the
//! chain in the transaction that marks them as being deleted; then their data go, beside the task. What a crash cuts short is found
//! again: a log start by the next owner, a mark by [`crate::Partitions::sweep_deleting`]. Nothing of it writes to a ledger, so a full
//! disk can be freed (D3).
//!
//! # Invariants
//! 1. The log start only grows, and never beyond what is confirmed.
//! 2. A ledger leaves the chain only when it is closed, wholly below the log start, and when a confirmed snapshot has what its entries
//!    say of producers, or no producer is known.
//! 3. Each read of the chain is followed by one of the owner's key, whatever was answered before: the chain of a successor is not
//!    taken for ours (P5). Its log start would answer trims that we can no longer make, and its marks are told as ours by a retry.
//! 4. Of work that needs the chain there is one piece at a time; a log ledger that is asked for meanwhile waits.

use std::sync::Arc;
use std::time::Duration;

use bookie_client::DeleteError;
use bookie_metadata::{Compare, MetadataError, Txn, TxnOutcome};
use hulse_proto::error::{Fate, Fault, Reason};
use hulse_proto::id::{LedgerId, Offset};
use hulse_proto::time::TimestampMs;
use tokio::sync::oneshot;
use tokio::time::{Instant, sleep, timeout};

use super::core::PartitionCore;
use super::handle::{Command, PartitionHandle};
use super::ownership;
use super::takeover::Collaborators;
use super::task::{Boxed, Task};
use crate::log::{Chain, ChainError};
use crate::state::MetaState;
use crate::storage_fault;

/// Ledgers that leave the chain in one transaction: each takes one compare and one change of the store's 100.
const RETIRED_AT_ONCE: usize = 32;
/// Metadata are asked again after this, doubled each time …
const AGAIN_MIN: Duration = Duration::from_millis(50);
/// … up to this.
const AGAIN_MAX: Duration = Duration::from_secs(2);
/// A transaction that is not answered within this has an unknown outcome.
const ANSWER_WAIT: Duration = Duration::from_secs(3);
/// After a failure ledgers are looked at again after this.
const REST: Duration = Duration::from_secs(5);
/// Requests that wait for the log start to move; more are refused.
const WAITING_MAX: usize = 1024;
/// Whoever asked waits at most this long.
const WAIT_MAX: Duration = Duration::from_secs(10);

/// A trim that is asked for.
pub(crate) struct TrimCommand {
    /// The first offset to keep; `None`: nothing that is confirmed.
    pub(super) to: Option<Offset>,
    /// Not beyond what a subscription holds.
    pub(super) holds: bool,
    /// Gets the log start once it is durable.
    pub(super) answer: oneshot::Sender<Result<Offset, Fault>>,
}

impl TrimCommand {
    /// What the log says of why records go.
    fn cause(&self) -> &'static str {
        match self.holds {
            true => "retention",
            false => "a request",
        }
    }
}

/// A log ledger that the state machine asked for.
#[derive(Debug, Clone, Copy)]
pub(super) enum Wanted {
    Open(Offset),
    Roll(Offset),
    Verify(Offset),
    /// It is full: to be closed.
    Close,
}

type Work = Boxed<(Chain, Result<Done, Fault>)>;

/// What a piece of work achieved.
pub(super) enum Done {
    /// The log begins here.
    Moved(Offset),
    /// These were to go; the chain tells which did.
    Dropped(Vec<LedgerId>),
}

/// Where trimming stands.
#[derive(Default)]
pub(super) struct Trimming {
    /// The highest log start that was asked for.
    wanted: Offset,
    /// By what.
    cause: &'static str,
    waiting: Vec<TrimCommand>,
    pub(super) work: Option<Work>,
    /// Something may be to do.
    pub(super) look: bool,
    rests_until: Option<Instant>,
    /// Asked for while the chain was away.
    ledger: Option<Wanted>,
}

impl Trimming {
    /// True when nothing is under way, and nobody waits.
    pub(super) fn is_idle(&self) -> bool {
        self.work.is_none() && self.waiting.is_empty() && self.ledger.is_none()
    }
}

impl Task {
    /// A log ledger is wanted: now, or as soon as the chain is home.
    pub(super) fn want(&mut self, wanted: Wanted) {
        if self.chain.is_none() {
            self.trimming.ledger = Some(wanted);
            return;
        }
        match wanted {
            Wanted::Open(base) => self.open_log(base),
            Wanted::Roll(base) => self.roll_log(base),
            Wanted::Verify(base) => self.verify_log(base),
            Wanted::Close => self.close_full(),
        }
    }

    /// Begins a trim, or answers at once.
    pub(super) fn trim(&mut self, command: TrimCommand) {
        let offsets = self.shown.offsets();
        let mut to = command.to.unwrap_or(offsets.high_watermark);
        if command.holds {
            // What is durable may be all that stands after a crash; what is not yet may be promised in a moment.
            let held = [self.core.state().held_from(), self.cursors.held_from()];
            to = held.into_iter().flatten().fold(to, Offset::min);
        }
        let refused = if to > offsets.high_watermark {
            Some(Err(beyond_the_end(to, offsets.high_watermark)))
        } else if to <= offsets.log_start {
            Some(Ok(offsets.log_start))
        } else if self.trimming.waiting.len() >= WAITING_MAX {
            let why = "too many trims wait for metadata; retry";
            Some(Err(Fault::new(Reason::Overloaded, why)))
        } else {
            None
        };
        match refused {
            // Who asked may have gone.
            Some(result) => drop(command.answer.send(result)),
            None => {
                if to > self.trimming.wanted {
                    self.trimming.wanted = to;
                    self.cursors.trim_decided(to);
                    self.trimming.cause = command.cause();
                }
                self.trimming.waiting.push(TrimCommand {
                    to: Some(to),
                    ..command
                });
                self.trimming.look = true;
            }
        }
    }

    /// Does the next thing, when the chain is home.
    pub(super) fn go_on_trimming(&mut self) {
        let rests = self.trimming.rests_until;
        if !self.trimming.look
            || self.chain.is_none()
            || rests.is_some_and(|until| Instant::now() < until)
        {
            return;
        }
        self.trimming.look = false;
        let to = self.trimming.wanted;
        if to > self.shown.offsets().log_start {
            let (with, guard, mut chain) =
                (self.with.clone(), self.guard.clone(), self.take_chain());
            self.trimming.work = Some(Box::pin(async move {
                let result = move_start(&with, &guard, &mut chain, to).await;
                (chain, result.map(|()| Done::Moved(to)))
            }));
            return;
        }
        let (covered, open) = (self.core.covered(), self.writer.is_some());
        let (mut gone, waits) = self.log.with_view(|view| view.superfluous(covered, open));
        if waits {
            let now = self.clock.now_ms();
            self.core.snapshot_for_trim(now);
            self.execute();
        }
        if !gone.is_empty() {
            gone.truncate(RETIRED_AT_ONCE);
            let (with, guard, mut chain) =
                (self.with.clone(), self.guard.clone(), self.take_chain());
            self.trimming.work = Some(Box::pin(async move {
                let result = retire(&with, &guard, &mut chain, &gone).await;
                (chain, result.map(|()| Done::Dropped(gone)))
            }));
        }
    }

    /// A piece of work is over, and the chain is home.
    pub(super) fn trimmed(&mut self, result: Result<Done, Fault>) -> Result<(), Fault> {
        self.trimming.rests_until = None;
        self.trimming.look = true;
        match result {
            Ok(Done::Moved(to)) => {
                let offsets = self.log.with_view(|view| view.move_start(to));
                self.shown.set_offsets(offsets);
                tracing::info!(partition = %self.name, log_start = %to, cause = self.trimming.cause, "log is trimmed");
                let waiting = std::mem::take(&mut self.trimming.waiting);
                for command in waiting {
                    match command.to {
                        Some(wanted) if wanted > to => self.trimming.waiting.push(command),
                        // Who asked may have gone.
                        _ => drop(command.answer.send(Ok(to))),
                    }
                }
            }
            Ok(Done::Dropped(ledgers)) => self.dropped(&ledgers),
            Err(fault) if fault.reason == Reason::PartitionMoved => return Err(fault),
            Err(fault) => {
                tracing::warn!(partition = %self.name, %fault, "trimmed ledgers stay for now");
                self.trimming.rests_until = Some(Instant::now() + REST);
            }
        }
        if let Some(wanted) = self.trimming.ledger.take() {
            self.want(wanted);
        }
        Ok(())
    }

    /// Forgets those of `ledgers` that are not in the chain any more and has their data removed.
    fn dropped(&mut self, ledgers: &[LedgerId]) {
        let chain = self.chain.as_ref().expect("the work brought it back");
        let linked: Vec<u64> = chain.links().map(|link| link.ledger).collect();
        let mut gone = Vec::new();
        let offsets = self.log.with_view(|view| {
            let unlinked =
                |ledger: &LedgerId| ledgers.contains(ledger) && !linked.contains(&ledger.0);
            gone.extend(view.ledgers().take_while(unlinked));
            view.drop_first(gone.len())
        });
        self.shown.set_offsets(offsets);
        if gone.is_empty() {
            self.trimming.rests_until = Some(Instant::now() + REST);
        } else {
            tokio::spawn(bury(self.with.clone(), gone));
        }
    }
}

impl<M: MetaState, T> PartitionCore<M, T> {
    /// Says up to where the newest snapshot goes that the take-over found.
    pub(crate) fn covered_to(self, covered: Offset) -> Self {
        Self { covered, ..self }
    }

    /// Ledgers up to here hold nothing that only they can tell of producers.
    pub(super) fn covered(&self) -> Offset {
        match self.state.log.producers.is_empty() {
            true => self.state.log.end,
            false => self.covered,
        }
    }

    /// The state is to stand in another ledger, if there is anything to remember.
    pub(super) fn snapshot_for_copies(&mut self, now: TimestampMs) {
        let something = !self.state.log.producers.is_empty() || !self.state.meta.is_empty();
        if self.failed.is_none() && something {
            self.snapshot_if(true, now);
        }
    }

    /// Ledgers wait for a snapshot.
    pub(super) fn snapshot_for_trim(&mut self, now: TimestampMs) {
        if self.failed.is_none() {
            self.snapshot_if(true, now);
        }
    }
}

impl PartitionHandle {
    /// Moves the log start to `to`, or to the high watermark, and answers where it is now: durable, and not below what was asked for.
    /// Nothing below is served afterwards; storage comes back behind it. Cancel-safe: a trim that was asked for goes on.
    ///
    /// # Errors
    /// OFFSET_OUT_OF_RANGE above the high watermark; OVERLOADED; METADATA_UNKNOWN when metadata do not answer: it may be done later;
    /// the fault that ended the partition.
    pub async fn trim(&self, to: Option<Offset>) -> Result<Offset, Fault> {
        let (answer, receiver) = oneshot::channel();
        let command = Command::Trim(TrimCommand {
            to,
            holds: false,
            answer,
        });
        self.0.commands.send(command).map_err(|_| self.end())?;
        match timeout(WAIT_MAX, receiver).await {
            Ok(Ok(result)) => result,
            Ok(Err(_)) => Err(Fault {
                fate: Fate::Unknown,
                ..self.end()
            }),
            Err(_) => {
                let words = "metadata do not answer; the log start is moved as soon as they do";
                Err(Fault::new(Reason::MetadataUnknown, words))
            }
        }
    }
}

fn beyond_the_end(to: Offset, high_watermark: Offset) -> Fault {
    let words = format!(
        "offset {to} is above the end of the log, {high_watermark}; nothing was trimmed: give an offset up to there"
    );
    Fault::new(Reason::OffsetOutOfRange, words).with("high_watermark", high_watermark)
}

/// Puts the log start into the chain. Goes on until metadata have said what became of it.
async fn move_start(
    with: &Collaborators,
    guard: &Compare,
    chain: &mut Chain,
    to: Offset,
) -> Result<(), Fault> {
    let mut pause = AGAIN_MIN;
    while chain.log_start() < to {
        let mut txn = chain.move_start(to);
        txn.compares.push(guard.clone());
        let answer = timeout(ANSWER_WAIT, with.metadata.txn(txn)).await;
        match answer {
            // In a conflict an earlier try of ours may have been the change, or another owner's.
            Ok(Ok(TxnOutcome::Committed { .. } | TxnOutcome::Conflict { .. })) => {
                refresh(with, guard, chain).await?;
            }
            // While the chunk has its old version, the same bytes are sent again (amended M3).
            Err(_)
            | Ok(Err(MetadataError::Unavailable { .. } | MetadataError::OutcomeUnknown { .. })) => {
                sleep(pause).await;
                pause = (pause * 2).min(AGAIN_MAX);
            }
            Ok(Err(error)) => return Err(storage_fault::metadata(&error)),
        }
    }
    Ok(())
}

/// Takes the oldest ledgers, which are `gone`, out of the chain and marks them.
async fn retire(
    with: &Collaborators,
    guard: &Compare,
    chain: &mut Chain,
    gone: &[LedgerId],
) -> Result<(), Fault> {
    let mut part: Txn = chain.unlink_first(gone.len());
    part.compares.push(guard.clone());
    let retired = with.client.retire(gone, part).await;
    // Whatever was answered: the chain says what happened, if it is ours. It may be a successor that took these ledgers out.
    refresh(with, guard, chain).await?;
    match retired {
        Ok(()) | Err(DeleteError::Metadata(_) | DeleteError::Conflict(_)) => Ok(()),
        Err(error) => Err(storage_fault::delete(&error)),
    }
}

/// Looks, however long metadata are silent, whether the owner's key is as it was. What was read before the answer was then read of our
/// own chain.
async fn still_ours(with: &Collaborators, guard: &Compare) -> Result<(), Fault> {
    let Compare::Version(key, version) = guard else {
        return Ok(());
    };
    let mut pause = AGAIN_MIN;
    loop {
        match timeout(ANSWER_WAIT, with.metadata.get(key)).await {
            Ok(Ok(Some(found))) if found.version == *version => return Ok(()),
            Ok(Ok(_)) => return Err(ownership::moved()),
            Err(_) | Ok(Err(MetadataError::Unavailable { .. })) => {
                sleep(pause).await;
                pause = (pause * 2).min(AGAIN_MAX);
            }
            Ok(Err(error)) => return Err(storage_fault::metadata(&error)),
        }
    }
}

/// The chain as it is now, if it is still ours, however long metadata are silent.
async fn refresh(with: &Collaborators, guard: &Compare, chain: &mut Chain) -> Result<(), Fault> {
    let mut pause = AGAIN_MIN;
    loop {
        match timeout(ANSWER_WAIT, chain.refresh(&*with.metadata)).await {
            Ok(Ok(())) => return still_ours(with, guard).await,
            Err(_) | Ok(Err(ChainError::Metadata(_))) => {
                sleep(pause).await;
                pause = (pause * 2).min(AGAIN_MAX);
            }
            Ok(Err(error)) => return Err(storage_fault::chain(&error)),
        }
    }
}

/// Removes the data of ledgers that are marked and linked nowhere. What fails is left to the sweep.
async fn bury(with: Arc<Collaborators>, ledgers: Vec<LedgerId>) {
    for ledger in ledgers {
        let turn = with.burials.acquire().await;
        let _turn = turn.expect("this semaphore is never closed");
        if let Err(error) = with.client.delete(ledger, Txn::default()).await {
            tracing::debug!(%ledger, %error, "data of a trimmed ledger stay for now");
        }
    }
}
