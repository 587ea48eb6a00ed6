//! What the owner holds: enqueues appends, waits for them, closes.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};

use bookie_metadata::{Revision, Txn};
use hulse_proto::entry::{EntryClass, NewEntry};
use hulse_proto::id::{EntryId, LedgerId};
use hulse_proto::ledger::{ClosedTotals, LedgerMetadata, Quorums};
use tokio::sync::{Notify, oneshot, watch};

use super::closing;
use super::event::WriterConfig;
use super::permits::{PermitClass, Permits};
use super::sequence::Sequence;
use super::shown::Shown;
use super::task::{self, Append, Command, Task};
use crate::error::{AppendError, CloseError, NotWritten, WriterEnd};
use crate::ledger_client::Inner;
use crate::mailbox::Sender;
use crate::reader::{Followed, LedgerReader};

/// A confirmed append.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Appended {
    /// Its number.
    pub entry: EntryId,
    /// Exclusive end of what is confirmed; above `entry`.
    pub confirmed_end: EntryId,
}

/// A ledger that was just created, and how to write it.
pub(crate) struct Opened {
    pub(crate) ledger: LedgerId,
    pub(crate) metadata: LedgerMetadata,
    pub(crate) version: Revision,
}

/// What must change together when an entry takes its place.
struct Entrance {
    sequence: Sequence,
    permits: Permits,
    stopped: bool,
    /// Why DATA is refused: the members have no room for it (amended D1).
    full: Shown<String>,
    ended: Shown<WriterEnd>,
}

/// What the handle's clones and the writer's task share.
pub(super) struct Shared {
    pub(super) ledger: LedgerId,
    pub(super) inner: Arc<Inner>,
    /// The ledger's key as this writer last wrote it.
    pub(super) known: Mutex<(Arc<LedgerMetadata>, Revision)>,
    /// The same metadata, for readers.
    followed: Arc<Followed>,
    entrance: Mutex<Entrance>,
    room: Notify,
    /// DATA is refused from now on.
    filled: Notify,
    worn: AtomicBool,
}

impl Shared {
    fn entrance(&self) -> MutexGuard<'_, Entrance> {
        self.entrance.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ledger's metadata and their version as last written.
    pub(super) fn known(&self) -> (LedgerMetadata, Revision) {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        (LedgerMetadata::clone(&known.0), known.1)
    }

    fn quorums(&self) -> Quorums {
        let known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.0.quorums
    }

    /// Notes what the ledger's key was found or made to be; readers follow it.
    pub(super) fn note_metadata(&self, metadata: LedgerMetadata, version: Revision) {
        let metadata = Arc::new(metadata);
        self.followed.change(metadata.clone());
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = (metadata, version);
    }

    /// Publishes the confirmed end; before any append below it is answered.
    pub(super) fn publish_confirmed(&self, end: EntryId) {
        self.followed.confirm(end);
    }

    /// Gives back what completed appends held.
    pub(super) fn give_back(&self, held: impl ExactSizeIterator<Item = (EntryClass, usize)>) {
        if held.len() == 0 {
            return;
        }
        let mut entrance = self.entrance();
        for (class, bytes) in held {
            entrance.permits.give_back(class.into(), bytes);
        }
        drop(entrance);
        self.room.notify_waiters();
    }

    /// Refuses DATA from now on, and says why; or takes it again.
    pub(super) fn set_full(&self, full: Option<String>) {
        self.entrance().full.set(full);
        self.filled.notify_waiters();
    }

    /// The ensemble changed too often.
    pub(super) fn set_worn(&self) {
        self.worn.store(true, Ordering::Relaxed);
    }

    /// Positions that an unresolved change gives to others, a bit for each; for readers.
    pub(super) fn publish_changing(&self, positions: u64) {
        self.followed.set_changing(positions);
    }

    /// Says how the writer ended; the first word stands.
    pub(super) fn end(&self, end: WriterEnd) {
        self.followed.shut();
        let mut entrance = self.entrance();
        entrance.stopped = true;
        if entrance.ended.get().is_none() {
            entrance.ended.set(Some(end));
        }
        drop(entrance);
        self.room.notify_waiters();
    }

    pub(super) fn ended(&self) -> Option<WriterEnd> {
        self.entrance().ended.get().cloned()
    }

    /// No more appends. False when it was stopped before.
    pub(super) fn stop(&self) -> bool {
        // Before anything is sent that closes it.
        self.followed.shut();
        let mut entrance = self.entrance();
        !std::mem::replace(&mut entrance.stopped, true)
    }
}

/// The one writer of one ledger. Clones share it.
///
/// It has a task only while something is under way. Dropping the last clone ends that once what was appended is answered; the ledger
/// stays open in metadata.
#[derive(Clone)]
pub struct LedgerWriter {
    pub(super) shared: Arc<Shared>,
    pub(super) commands: Sender<Command, Box<Task>>,
    reader: LedgerReader,
}

impl LedgerWriter {
    /// A writer that rests until it is asked for something.
    pub(crate) fn start(inner: Arc<Inner>, opened: Opened) -> Self {
        let Opened {
            ledger,
            metadata,
            version,
        } = opened;
        let config = WriterConfig::new(inner.cell, ledger, &metadata, &inner.config);
        let permits = Permits::new(
            inner.config.inflight_entries_max,
            inner.config.inflight_bytes_max,
        );
        let metadata = Arc::new(metadata);
        let followed = Arc::new(Followed::new(metadata.clone()));
        let mut reader = LedgerReader::new(inner.clone(), ledger, metadata.clone());
        reader.follow(followed.clone());
        let shared = Arc::new(Shared {
            ledger,
            inner,
            entrance: Mutex::new(Entrance {
                sequence: Sequence::new(metadata.kind, metadata.base_offset),
                permits,
                stopped: false,
                full: Shown::default(),
                ended: Shown::default(),
            }),
            known: Mutex::new((metadata, version)),
            room: Notify::new(),
            followed,
            filled: Notify::new(),
            worn: AtomicBool::new(false),
        });
        // Unbounded as a type; bounded by the permits that each append takes first (W2).
        let commands = task::at_rest(shared.clone(), config);
        shared.inner.writers.add(commands.downgrade());
        Self {
            shared,
            commands,
            reader,
        }
    }

    /// Its number.
    pub fn ledger(&self) -> LedgerId {
        self.shared.ledger
    }

    /// Its metadata as this writer last wrote them.
    pub fn metadata(&self) -> LedgerMetadata {
        self.shared.known().0
    }

    /// E, Qw and Qa of its ledger.
    pub fn quorums(&self) -> Quorums {
        self.shared.quorums()
    }

    /// Appends an entry. Takes its place in the order before it returns (storage.md W1); the future completes in entry order,
    /// when the entry is confirmed (W5). Dropping the future drops the answer only.
    ///
    /// # Errors
    /// [`AppendError`]; its `fate` says whether the entry may be in the log. [`NotWritten::NoRoom`] when the limits of its
    /// permit class are reached: ask [`LedgerWriter::has_room`] first.
    pub fn append(
        &self,
        entry: NewEntry,
    ) -> impl Future<Output = Result<Appended, AppendError>> + Send + 'static {
        match self.enqueue(entry) {
            Ok((entry, answer)) => Ticket::Waiting {
                ledger: self.shared.ledger,
                entry,
                answer,
            },
            Err(error) => Ticket::Refused(Some(error)),
        }
    }

    fn enqueue(
        &self,
        entry: NewEntry,
    ) -> Result<(EntryId, oneshot::Receiver<task::Answer>), AppendError> {
        let class = PermitClass::from(entry.class);
        let bytes = entry.payload_len();
        let mut entrance = self.shared.entrance();
        if entrance.stopped {
            return Err(match entrance.ended.get() {
                Some(end) => AppendError::Ended(end.clone()),
                None => AppendError::NotWritten {
                    why: NotWritten::Closed {
                        ledger: self.shared.ledger,
                        end: entrance.sequence.end(),
                    },
                },
            });
        }
        if entrance.full.get().is_some() && class == PermitClass::Data {
            return Err(AppendError::NotWritten {
                why: NotWritten::Full {
                    ledger: self.shared.ledger,
                },
            });
        }
        if !entrance.permits.has_room(class) {
            return Err(AppendError::NotWritten {
                why: NotWritten::NoRoom,
            });
        }
        let number = entrance.sequence.admit(&entry)?;
        entrance.permits.take(class, bytes);
        let (answer, waiting) = oneshot::channel();
        // Under the lock, so that the queue has the order of the numbers. A task that is gone drops `answer`, which the ticket sees.
        let _ = self
            .commands
            .send(Command::Append(Append { entry, answer }));
        Ok((number, waiting))
    }

    /// True when an append of this class would be taken (storage.md W2). META and CONTROL have permits of their own.
    pub fn has_room(&self, class: EntryClass) -> bool {
        self.shared.entrance().permits.has_room(class.into())
    }

    /// Waits until [`LedgerWriter::has_room`], or until the writer takes no more appends. Cancel-safe.
    pub async fn room(&self, class: EntryClass) {
        loop {
            let freed = self.shared.room.notified();
            tokio::pin!(freed);
            // Registered before the look, so that no permit given back in between is missed.
            freed.as_mut().enable();
            {
                let entrance = self.shared.entrance();
                if entrance.stopped || entrance.permits.has_room(class.into()) {
                    return;
                }
            }
            freed.await;
        }
    }

    /// Exclusive end of what is confirmed.
    pub fn confirmed_end(&self) -> EntryId {
        self.shared.followed.confirmed_end()
    }

    /// Exclusive end of what was appended.
    pub fn appended_end(&self) -> EntryId {
        self.shared.entrance().sequence.end()
    }

    /// Payload bytes appended so far.
    pub fn appended_bytes(&self) -> u64 {
        self.shared.entrance().sequence.bytes()
    }

    /// A reader of this open ledger; clips to what is confirmed at the time of each read (storage.md B13).
    pub fn reader(&self) -> LedgerReader {
        self.reader.clone()
    }

    /// Stops, drains and closes the ledger (storage.md W13). `part` joins the transaction. After `Ok` the entries at or above
    /// `totals.end` are definitely not in the log. Waits while metadata does not answer.
    ///
    /// # Errors
    /// [`CloseError`]; the writer is dead in every case. Dropping the future ends the writer with an unknown outcome.
    pub async fn close(&self, part: Txn) -> Result<ClosedTotals, CloseError> {
        closing::close(self, part).await
    }

    /// The ledger's metadata and their version, as this writer last wrote them.
    pub(crate) fn known(&self) -> (LedgerMetadata, Revision) {
        self.shared.known()
    }

    /// Notes what the ledger's key was found or made to be.
    pub(crate) fn note_metadata(&self, metadata: LedgerMetadata, version: Revision) {
        self.shared.note_metadata(metadata, version);
    }

    /// Says why once records can find no ack quorum here because members are read-only, and nobody can take their places
    /// (storage.md, amended D1). DATA is then refused with [`NotWritten::Full`]; what was appended before is decided by
    /// [`LedgerWriter::close`], which the owner should call: nothing behind a blocked record is confirmed either.
    pub fn full(&self) -> watch::Receiver<Option<String>> {
        self.shared.entrance().full.watch()
    }

    /// Waits until [`LedgerWriter::full`] says why. Cancel-safe.
    pub async fn until_full(&self) {
        loop {
            let filled = self.shared.filled.notified();
            tokio::pin!(filled);
            // Registered before the look, as in `room`.
            filled.as_mut().enable();
            if self.shared.entrance().full.get().is_some() {
                return;
            }
            filled.await;
        }
    }

    /// Takes DATA again: the owner found that Qa members are writable ([`crate::LedgerClient::takes_data`]).
    pub fn admit_data(&self) {
        self.shared.set_full(None);
    }

    /// Refuses DATA: the ledger was made on members that may be read-only.
    pub(crate) fn refuse_data(&self) {
        let why = "it was made on bookies that take no records";
        self.shared.set_full(Some(why.to_owned()));
    }

    /// True when the ensemble changed so often that the owner should roll the ledger (storage.md W15).
    pub fn is_worn(&self) -> bool {
        self.shared.worn.load(Ordering::Relaxed)
    }

    /// True when metadata that were read show the ledger open and last changed by this writer; else the writer ends (W6).
    pub(crate) async fn recognises(&self, found: Option<LedgerMetadata>) -> bool {
        let (answer, judged) = oneshot::channel();
        let asked = self.commands.send(Command::Judge(found, answer));
        asked.is_ok() && judged.await.unwrap_or(false)
    }

    /// Shows how the writer ended, once it has (storage.md W6); `None` until then.
    pub fn ended(&self) -> watch::Receiver<Option<WriterEnd>> {
        self.shared.entrance().ended.watch()
    }
}

/// An append's answer, to come.
enum Ticket {
    Refused(Option<AppendError>),
    Waiting {
        ledger: LedgerId,
        entry: EntryId,
        answer: oneshot::Receiver<task::Answer>,
    },
}

impl Future for Ticket {
    type Output = Result<Appended, AppendError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        match &mut *self {
            Self::Refused(error) => Poll::Ready(Err(error
                .take()
                .expect("a future is not polled after it is ready"))),
            Self::Waiting {
                ledger,
                entry,
                answer,
            } => Pin::new(answer).poll(cx).map(|answer| match answer {
                Ok(answer) => answer,
                // The task is gone (a panic, or the runtime shuts down): what it had sent may be stored.
                Err(_) => Err(AppendError::OutcomeUnknown {
                    ledger: *ledger,
                    entry: *entry,
                    why: WriterEnd::OutcomeUnknown {
                        ledger: *ledger,
                        why: "the writer's task is gone".to_owned(),
                    },
                }),
            }),
        }
    }
}
