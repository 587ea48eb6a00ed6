//! The writer's shell: a task that drives the core and calls members.
//!
//! One hop lies between an append and the call of a member: the mailbox. Everything that is ready is taken before the task sleeps.
//! When nothing is under way for a while, the task ends and leaves its state in the mailbox: thousands of ledgers are open and idle.

use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use futures::stream::{FuturesUnordered, StreamExt};
use hulse_proto::bookie::{BookieError, Call};
use hulse_proto::entry::{EntryClass, NewEntry};
use hulse_proto::id::EntryId;
use hulse_proto::ledger::{LedgerMetadata, Member};
use tokio::runtime::Handle;
use tokio::sync::oneshot;
use tokio::time::{Instant, Sleep, sleep_until};

use super::core::WriterCore;
use super::event::{AddCall, AddTag, Sealing, WriterConfig, WriterEffect, WriterEvent};
use super::handle::{Appended, Shared};
use super::surveying::{ask_metadata, survey};
use crate::error::{AppendError, WriterEnd};
use crate::mailbox::{Inbox, Sender, mailbox};
use crate::metadata::read_ledger;

/// Commands and answers taken before effects that wait for them are looked at again.
const BATCH_MAX: usize = 128;
/// How far ahead the timer is set when nothing waits.
const IDLE: Duration = Duration::from_secs(3600);
/// With nothing under way the task waits so long for more before it rests. Short: of thousands of ledgers that are written to one after
/// the other few should have a task at the same time, as the room of those tasks does not all go back.
const LINGER: Duration = Duration::from_millis(100);

pub(super) type Answer = Result<Appended, AppendError>;

/// One append on its way to the core.
pub(super) struct Append {
    pub(super) entry: NewEntry,
    pub(super) answer: oneshot::Sender<Answer>,
}

/// What the handle asks of the task.
pub(super) enum Command {
    Append(Append),
    /// Stop, drain, freeze; the answer is what to write into metadata.
    Seal(oneshot::Sender<Result<Sealing, WriterEnd>>),
    /// The close is committed.
    Closed,
    /// The close was refused or is unknown.
    CloseFailed(WriterEnd),
    /// Who stays.
    Staying(Arc<[Member]>),
    /// Metadata were read: are they this writer's?
    Judge(Option<LedgerMetadata>, oneshot::Sender<bool>),
}

/// A member's answer, to come.
struct AnswerToCome {
    tag: Option<AddTag>,
    call: Call<()>,
}

impl Future for AnswerToCome {
    type Output = (AddTag, Result<(), BookieError>);

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        self.call.as_mut().poll(cx).map(|result| {
            let tag = self
                .tag
                .take()
                .expect("a future is not polled after it is ready");
            (tag, result)
        })
    }
}

/// What completes an append.
struct Waiting {
    answer: oneshot::Sender<Answer>,
    class: EntryClass,
    bytes: usize,
}

/// The task's state, also while it rests.
pub(super) struct Task {
    shared: Arc<Shared>,
    core: WriterCore,
    /// Where it runs.
    runtime: Handle,
    started: Instant,
    /// When it last had a command.
    active_at: Instant,
    /// Answers to come, by position: a position's can be forgotten together. Empty before the first call.
    calls: Vec<FuturesUnordered<AnswerToCome>>,
    /// In entry order, as the core completes them.
    waiting: VecDeque<Waiting>,
    sealing: Option<oneshot::Sender<Result<Sealing, WriterEnd>>>,
    check: Waited<Found>,
    /// The one request to metadata of an ensemble change.
    change: Waited<WriterEvent>,
    effects: Vec<WriterEffect>,
    /// Completed appends, to be answered once their permits are given back.
    completed: Vec<(Waiting, Answer)>,
}

/// A read of the ledger's key that was answered.
type Found = Option<Option<LedgerMetadata>>;
/// At most one thing to come.
type Waited<T> = Option<Pin<Box<dyn Future<Output = T> + Send>>>;

/// Makes the state of a writer, which rests, and the way to it. Its task ends for good when the handle is dropped, and every append is
/// answered.
pub(super) fn at_rest(shared: Arc<Shared>, config: WriterConfig) -> Sender<Command, Box<Task>> {
    let now = Instant::now();
    let task = Task {
        shared,
        core: WriterCore::new(config),
        runtime: Handle::current(),
        started: now,
        active_at: now,
        calls: Vec::new(),
        waiting: VecDeque::new(),
        sealing: None,
        check: None,
        change: None,
        effects: Vec::new(),
        completed: Vec::new(),
    };
    let (commands, inbox) = mailbox(start);
    // The sender is at hand and nothing waits, so it does rest; else it would go on at once.
    if let Err((inbox, task)) = inbox.rest(Box::new(task)) {
        start(task, inbox);
    }
    commands
}

fn start(task: Box<Task>, inbox: Inbox<Command, Box<Task>>) {
    let runtime = task.runtime.clone();
    runtime.spawn(task.run(inbox));
}

/// What woke the task.
enum Wake {
    Answer(AddTag, Result<(), BookieError>),
    /// False: none will ever come.
    Commands(bool),
    Checked(Found),
    Change(WriterEvent),
    Timer,
}

impl Task {
    /// As [`WriterCore::has_leaving`].
    pub(super) fn has_leaving(&self, staying: &[Member]) -> bool {
        self.core.has_leaving(staying)
    }

    async fn run(mut self: Box<Self>, mut inbox: Inbox<Command, Box<Self>>) {
        let timer = sleep_until(Instant::now() + LINGER);
        tokio::pin!(timer);
        let mut commands = VecDeque::new();
        loop {
            self.set_timer(timer.as_mut());
            let wake = tokio::select! {
                biased;
                (tag, result) = next_answer(&mut self.calls) => Wake::Answer(tag, result),
                there = next_commands(&mut inbox, &mut commands) => Wake::Commands(there),
                found = ready(&mut self.check) => Wake::Checked(found),
                event = ready(&mut self.change) => Wake::Change(event),
                () = timer.as_mut() => Wake::Timer,
            };
            match wake {
                Wake::Answer(tag, result) => self.take_answers(tag, result),
                Wake::Commands(false) => {
                    // The handle is gone. What was appended is still answered, then nobody can ask for anything.
                    if self.waiting.is_empty() {
                        return;
                    }
                    Box::pin(self.finish_without_handle(timer.as_mut())).await;
                    return;
                }
                Wake::Commands(true) => {
                    self.active_at = Instant::now();
                    for command in commands.drain(..commands.len().min(BATCH_MAX)) {
                        self.command(command);
                    }
                }
                Wake::Checked(found) => self.checked(found),
                Wake::Change(event) => self.event(event),
                Wake::Timer => self.event(WriterEvent::Tick),
            }
            self.perform();
            if self.is_idle() && self.active_at.elapsed() >= LINGER {
                self.rest();
                (inbox, self) = match inbox.rest(self) {
                    Ok(()) => return,
                    Err(back) => back,
                };
            }
        }
    }

    /// Goes on without commands until every append is answered.
    async fn finish_without_handle(&mut self, mut timer: Pin<&mut Sleep>) {
        while !self.waiting.is_empty() {
            self.set_timer(timer.as_mut());
            tokio::select! {
                biased;
                (tag, result) = next_answer(&mut self.calls) => self.take_answers(tag, result),
                found = ready(&mut self.check) => self.checked(found),
                event = ready(&mut self.change) => self.event(event),
                () = timer.as_mut() => self.event(WriterEvent::Tick),
            }
            self.perform();
        }
    }

    fn now(&self) -> Duration {
        self.started.elapsed()
    }

    /// True when nothing but a command can change anything.
    fn is_idle(&self) -> bool {
        self.waiting.is_empty()
            && self.calls.iter().all(FuturesUnordered::is_empty)
            && self.sealing.is_none()
            && self.check.is_none()
            && self.change.is_none()
            && self.core.next_wakeup().is_none()
    }

    /// Sets the timer when it would fire too late, or has fired. One that fires too early costs a look and is set again.
    fn set_timer(&self, timer: Pin<&mut Sleep>) {
        let wanted = match self.core.next_wakeup() {
            Some(at) => self.started + at,
            None if self.is_idle() => self.active_at + LINGER,
            None => Instant::now() + IDLE,
        };
        if wanted < timer.deadline() || timer.is_elapsed() {
            timer.reset(wanted);
        }
    }

    /// Nothing is under way: the room goes back.
    fn rest(&mut self) {
        self.calls = Vec::new();
        self.waiting = VecDeque::new();
        self.effects = Vec::new();
        self.completed = Vec::new();
        self.core.rest();
    }

    fn event(&mut self, event: WriterEvent) {
        let now = self.now();
        self.core.on_event(now, event, &mut self.effects);
    }

    fn command(&mut self, command: Command) {
        match command {
            Command::Append(append) => {
                let Append { entry, answer } = append;
                self.waiting.push_back(Waiting {
                    class: entry.class,
                    bytes: entry.payload_len(),
                    answer,
                });
                self.event(WriterEvent::Append(entry));
            }
            Command::Seal(answer) => match self.core.end() {
                // A dropped answer means that the closer is gone; its guard tells the task.
                Some(end) => drop(answer.send(Err(end.clone()))),
                None => {
                    self.sealing = Some(answer);
                    self.event(WriterEvent::Stop);
                }
            },
            Command::Closed => self.event(WriterEvent::CloseCommitted),
            Command::CloseFailed(end) => self.event(WriterEvent::CloseFailed(end)),
            Command::Staying(staying) => self.event(WriterEvent::Staying(staying)),
            Command::Judge(found, answer) => {
                let mine = found.as_ref().is_some_and(|found| self.core.is_mine(found));
                self.checked(Some(found));
                // Who asked may have gone.
                let _ = answer.send(mine);
            }
        }
    }

    /// Takes one answer and all others that are there already.
    fn take_answers(&mut self, tag: AddTag, result: Result<(), BookieError>) {
        self.event(WriterEvent::Answer { tag, result });
        for _ in 1..BATCH_MAX {
            let ready = futures::FutureExt::now_or_never(next_answer(&mut self.calls));
            let Some((tag, result)) = ready else {
                return;
            };
            self.event(WriterEvent::Answer { tag, result });
        }
    }

    /// Does what the core wants, and what follows from it, until it wants nothing.
    fn perform(&mut self) {
        if self.core.is_worn() {
            self.shared.set_worn();
        }
        while !self.effects.is_empty() {
            let mut effects = std::mem::take(&mut self.effects);
            let changing = self.core.changing();
            if changing != 0 {
                // Before it is sent, which is one of these effects.
                self.shared.publish_changing(changing);
            }
            // First, so that a reader finds the members of what is published next.
            if let Some((metadata, version)) = self.core.take_committed() {
                tracing::info!(ledger = %self.shared.ledger, fragments = metadata.fragments.len(), "ensemble changed");
                self.shared.note_metadata(metadata, version);
            }
            self.shared.publish_changing(changing);
            let confirmed_end = self.core.confirmed_end();
            // Published before any append below it is answered, so that its owner can read it at once.
            self.shared.publish_confirmed(confirmed_end);
            for effect in effects.drain(..) {
                self.effect(effect, confirmed_end);
            }
            if self.effects.is_empty() {
                // Its room is used again.
                self.effects = effects;
            }
        }
        // Permits first: whoever has an answer must find the room that it made.
        let held = self.completed.iter();
        self.shared
            .give_back(held.map(|(waiting, _)| (waiting.class, waiting.bytes)));
        for (waiting, answer) in self.completed.drain(..) {
            // The caller may have dropped its future: the append stands all the same.
            let _ = waiting.answer.send(answer);
        }
    }

    fn effect(&mut self, effect: WriterEffect, confirmed_end: EntryId) {
        match effect {
            WriterEffect::Send(call) => self.send(call),
            WriterEffect::Forget { position } => {
                if let Some(calls) = self.calls.get_mut(position) {
                    calls.clear();
                }
            }
            WriterEffect::Confirmed { entry } => self.complete(Ok(Appended {
                entry,
                confirmed_end,
            })),
            WriterEffect::Failed { error, .. } => self.complete(Err(error)),
            WriterEffect::CheckMetadata => self.check_metadata(),
            WriterEffect::Survey => self.change = Some(Box::pin(survey(self.shared.clone()))),
            WriterEffect::Metadata(step) => {
                self.change = Some(Box::pin(ask_metadata(self.shared.clone(), step)));
            }
            WriterEffect::Drained => self.event(WriterEvent::Freeze),
            WriterEffect::Frozen(sealing) => self.answer_sealing(Ok(sealing)),
            WriterEffect::Released { member, entry } => {
                tracing::debug!(ledger = %self.shared.ledger, %entry, bookie = %member.bookie, "entry stays without a copy");
            }
            WriterEffect::Full { why } => {
                tracing::warn!(ledger = %self.shared.ledger, why, "members are read-only and nobody can take their places");
                self.shared.set_full(Some(why));
            }
            WriterEffect::Conflicted {
                member,
                entry,
                digest,
            } => {
                // B7: the bookie's log has the digest of what it holds.
                tracing::error!(ledger = %self.shared.ledger, %entry, bookie = %member.bookie, ?digest, "bookie holds this entry with other bytes");
            }
            WriterEffect::Ended(end) => {
                self.shared.end(end.clone());
                self.answer_sealing(Err(end));
            }
        }
    }

    fn send(&mut self, call: AddCall) {
        let tag = call.tag();
        if self.calls.len() <= tag.position {
            self.calls
                .resize_with(tag.position + 1, FuturesUnordered::new);
        }
        match self.shared.inner.bookies.calls(&call.member) {
            Some(bookie) => self.calls[tag.position].push(AnswerToCome {
                call: bookie.add(call.request),
                tag: Some(tag),
            }),
            None => {
                let result = Err(BookieError::NoAnswer {
                    why: "bookie is not connected".to_owned(),
                });
                self.event(WriterEvent::Answer { tag, result });
            }
        }
    }

    fn complete(&mut self, answer: Answer) {
        let Some(waiting) = self.waiting.pop_front() else {
            return;
        };
        self.completed.push((waiting, answer));
    }

    fn answer_sealing(&mut self, answer: Result<Sealing, WriterEnd>) {
        if let Some(sealing) = self.sealing.take()
            && sealing.send(answer).is_err()
        {
            // The closer went away before it sent anything, but what it wanted is no longer known to be unsent.
            tracing::debug!(ledger = %self.shared.ledger, "the closer is gone");
        }
    }

    /// Reads the ledger's key once (amended B2).
    fn check_metadata(&mut self) {
        if self.check.is_some() {
            return;
        }
        let shared = self.shared.clone();
        self.check = Some(Box::pin(async move {
            let found = read_ledger(&*shared.inner.metadata, shared.ledger).await;
            // No answer proves nothing; the member is asked again and will complain again.
            found.ok().map(|found| found.map(|(metadata, _)| metadata))
        }));
    }

    fn checked(&mut self, found: Found) {
        let lost = found.is_some_and(|found| !found.is_some_and(|found| self.core.is_mine(&found)));
        if lost {
            self.event(WriterEvent::MetadataChanged);
        }
    }
}

/// Waits until there are commands. False when none will ever come.
async fn next_commands(
    inbox: &mut Inbox<Command, Box<Task>>,
    commands: &mut VecDeque<Command>,
) -> bool {
    !commands.is_empty() || inbox.receive(commands).await
}

/// Waits for what is to come, once; for ever when nothing is.
async fn ready<T>(waited: &mut Waited<T>) -> T {
    match waited {
        Some(future) => {
            let value = future.await;
            *waited = None;
            value
        }
        None => std::future::pending().await,
    }
}

/// The next answer of any position; pending for ever while none is to come.
async fn next_answer(
    calls: &mut [FuturesUnordered<AnswerToCome>],
) -> (AddTag, Result<(), BookieError>) {
    std::future::poll_fn(|cx| {
        for position in calls.iter_mut() {
            if position.is_empty() {
                continue;
            }
            if let Poll::Ready(Some(answer)) = position.poll_next_unpin(cx) {
                return Poll::Ready(answer);
            }
        }
        Poll::Pending
    })
    .await
}
