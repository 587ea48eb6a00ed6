//! Reads of a ledger: the one place where reads are clipped (storage.md B13).
//!
//! # Invariants
//! 1. Nothing at or above a closed ledger's end is returned, whatever a bookie holds (R11, S1).
//! 2. Every returned entry is the one that was asked for, and its payload matches its header.
//! 3. A ledger in recovery is not readable: its end is not decided.
//! 4. An entry is said to be lost only by the members that metadata name after they were asked: repair moves copies.

use std::future::Future;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, PoisonError, RwLock};

use bookie_tier::TierReads;
use hulse_proto::bookie::{
    Address, BookieCalls, BookieError, EntryHead, ReadClass, ReadRequest, StoredEntry,
};
use hulse_proto::entry::Entry;
use hulse_proto::id::{EntryId, LedgerId};
use hulse_proto::ledger::{LedgerMetadata, LedgerState, Member};
use hulse_proto::tier::LocalCopies;
use tokio::time::timeout;

use crate::error::{MemberAnswer, MemberAnswers, ReadError};
use crate::fences::{self, Fences};
use crate::ledger_client::Inner;
use crate::quorum::write_set;
use crate::tiered::{self, Tiered, heads};
use crate::whereabouts::{Looked, Whereabouts};

/// What readers of an open ledger follow: the live state of this process's own writer.
pub(crate) struct Followed {
    confirmed_end: AtomicU64,
    /// A bit for each position that an unresolved change of the ensemble gives to another member.
    changing: AtomicU64,
    /// It takes appends: nobody closes it, and it has not ended.
    open: AtomicBool,
    metadata: RwLock<Arc<LedgerMetadata>>,
}

impl Followed {
    pub(crate) fn new(metadata: Arc<LedgerMetadata>) -> Self {
        Self {
            confirmed_end: AtomicU64::new(0),
            changing: AtomicU64::new(0),
            open: AtomicBool::new(true),
            metadata: RwLock::new(metadata),
        }
    }

    /// It is about to be closed, or has ended: its fences say nothing any more of who serves.
    pub(crate) fn shut(&self) {
        self.open.store(false, Ordering::SeqCst);
    }

    /// These positions may have other members in metadata; must be said before the change is sent, and until its outcome is noted.
    pub(crate) fn set_changing(&self, positions: u64) {
        self.changing.store(positions, Ordering::SeqCst);
    }

    /// The metadata and the positions in doubt, while it is open.
    fn open_ensemble(&self) -> Option<(Arc<LedgerMetadata>, u64)> {
        // In this order: a change that is noted meanwhile leaves members that it replaced, still in doubt.
        let changing = self.changing.load(Ordering::SeqCst);
        let metadata = self.metadata();
        self.open
            .load(Ordering::SeqCst)
            .then_some((metadata, changing))
    }

    pub(crate) fn confirm(&self, end: EntryId) {
        self.confirmed_end.store(end.0, Ordering::Release);
    }

    pub(crate) fn confirmed_end(&self) -> EntryId {
        EntryId(self.confirmed_end.load(Ordering::Acquire))
    }

    /// The ensemble changed; must be said before entries of the new fragment are confirmed.
    pub(crate) fn change(&self, metadata: Arc<LedgerMetadata>) {
        let mut current = self
            .metadata
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *current = metadata;
    }

    fn metadata(&self) -> Arc<LedgerMetadata> {
        let current = self.metadata.read();
        current.unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Reads entries of one ledger. Cheap to clone.
#[derive(Clone)]
pub struct LedgerReader {
    inner: Arc<Inner>,
    ledger: LedgerId,
    whereabouts: Arc<Whereabouts>,
    /// This process's own writer.
    followed: Option<Arc<Followed>>,
    /// Which of the write set answered last: asked first.
    preferred: Arc<AtomicUsize>,
    /// The way to its segment, once it has one.
    tiered: Option<Tiered>,
}

/// One read, clipped.
#[derive(Clone, Copy)]
struct Span {
    first: EntryId,
    end: EntryId,
    max_bytes: u32,
    class: ReadClass,
}

impl LedgerReader {
    pub(crate) fn new(
        inner: Arc<Inner>,
        ledger: LedgerId,
        metadata: impl Into<Arc<LedgerMetadata>>,
    ) -> Self {
        Self {
            inner,
            ledger,
            whereabouts: Arc::new(Whereabouts::new(metadata.into())),
            followed: None,
            preferred: Arc::new(AtomicUsize::new(0)),
            tiered: None,
        }
    }

    /// Reads from object storage, too, when metadata say that the ledger is there.
    pub(crate) fn with_tier(self, tier: Option<Arc<TierReads>>) -> Self {
        let tiered = tier.map(|tier| Tiered::new(tier, self.ledger));
        Self { tiered, ..self }
    }

    /// Clips to a writer's live confirmed end, and asks its live ensembles, from now on.
    pub(crate) fn follow(&mut self, followed: Arc<Followed>) {
        self.followed = Some(followed);
    }

    fn metadata(&self) -> Arc<LedgerMetadata> {
        match &self.followed {
            Some(followed) => followed.metadata(),
            None => self.whereabouts.known(),
        }
    }

    /// Its number.
    pub fn ledger(&self) -> LedgerId {
        self.ledger
    }

    /// Asks the members of this process's own open ledger whether somebody fenced it (storage.md R4, W6). Changes nothing.
    /// Cancel-safe.
    pub async fn fences(&self) -> Fences {
        let ensemble = self.followed.as_ref();
        match ensemble.and_then(|followed| followed.open_ensemble()) {
            Some(ensemble) => fences::look(&self.inner, self.ledger, ensemble).await,
            None => Fences::Unknown,
        }
    }

    /// True when a loss is recorded that may have taken the entry (storage.md R14): a reader may pass over it when it is
    /// [`ReadError::Damaged`].
    pub fn may_lack(&self, entry: EntryId) -> bool {
        let loss = self.metadata().loss;
        loss.is_some_and(|loss| loss.from <= entry)
    }

    /// Reads a run of entries that begins at `first`: at least one, at most those below `end`, about `max_bytes`.
    ///
    /// # Errors
    /// [`ReadError`]. Cancel-safe.
    pub async fn read(
        &self,
        first: EntryId,
        end: EntryId,
        max_bytes: u32,
        class: ReadClass,
    ) -> Result<Vec<Entry>, ReadError> {
        let span = self.clip(first, end, max_bytes, class)?;
        if self.is_let_go() {
            return self.read_tiered(span).await;
        }
        let read = self.ask_members(span, |bookie, request| {
            let call = bookie.read(request);
            async move { accept_entries(request, call.await?) }
        });
        match read.await {
            // Bookies may have dropped their copies meanwhile; whoever found none looked at metadata again (storage.md O9).
            Err(_) if self.is_let_go() => self.read_tiered(span).await,
            read => read,
        }
    }

    /// As [`LedgerReader::read`], headers and envelopes only.
    ///
    /// # Errors
    /// [`ReadError`]. Cancel-safe.
    pub async fn read_heads(
        &self,
        first: EntryId,
        end: EntryId,
        max_bytes: u32,
        class: ReadClass,
    ) -> Result<Vec<EntryHead>, ReadError> {
        let span = self.clip(first, end, max_bytes, class)?;
        if self.is_let_go() {
            return Ok(heads(&self.read_tiered(span).await?));
        }
        let read = self.ask_members(span, |bookie, request| {
            let call = bookie.read_heads(request);
            async move { accept_heads(request, call.await?) }
        });
        match read.await {
            Err(_) if self.is_let_go() => Ok(heads(&self.read_tiered(span).await?)),
            read => read,
        }
    }

    /// True when metadata say that bookies need not have the ledger any more.
    fn is_let_go(&self) -> bool {
        let metadata = self.metadata();
        let tier = metadata.tier.as_ref();
        self.followed.is_none() && tier.is_some_and(|tier| tier.local != LocalCopies::Held)
    }

    async fn read_tiered(&self, span: Span) -> Result<Vec<Entry>, ReadError> {
        let metadata = self.metadata();
        let read = tiered::read(
            self.tiered.as_ref(),
            (self.ledger, &metadata),
            (span.first, span.end, span.max_bytes as usize),
        );
        let (error, absent) = match read.await {
            Ok(found) => return Ok(found),
            Err(found) => found,
        };
        let place = (&*metadata, span.first);
        let gone = absent && {
            let look = self.whereabouts.look(&self.inner, self.ledger, place, true);
            match look.await {
                Looked::Gone => true,
                _ => self.metadata().state == LedgerState::Deleting,
            }
        };
        match gone {
            true => Err(ReadError::Deleted {
                ledger: self.ledger,
            }),
            false => Err(error),
        }
    }

    /// Clips to what may be read, and to the fragment that holds `first`.
    fn clip(
        &self,
        first: EntryId,
        end: EntryId,
        max_bytes: u32,
        class: ReadClass,
    ) -> Result<Span, ReadError> {
        let metadata = self.metadata();
        let limit = match (&self.followed, metadata.state) {
            (Some(followed), _) => followed.confirmed_end(),
            (None, LedgerState::Open) => end,
            (None, LedgerState::InRecovery) => EntryId(0),
            (None, LedgerState::Closed | LedgerState::Deleting) => {
                metadata.closed.map_or(EntryId(0), |closed| closed.end)
            }
        };
        let end = end.min(limit);
        if first >= end {
            return Err(ReadError::NotConfirmed {
                ledger: self.ledger,
                entry: first,
                end: limit,
            });
        }
        let fragments = &metadata.fragments;
        let next = fragments.partition_point(|fragment| fragment.first <= first);
        let fragment_end = fragments.get(next).map_or(end, |fragment| fragment.first);
        Ok(Span {
            first,
            end: end.min(fragment_end),
            max_bytes,
            class,
        })
    }

    /// Asks the members that are known to have the first entry; when none gives it, those that have it by now.
    async fn ask_members<T, F>(
        &self,
        span: Span,
        ask: impl Fn(Arc<dyn BookieCalls>, ReadRequest) -> F,
    ) -> Result<Vec<T>, ReadError>
    where
        F: Future<Output = Result<Vec<T>, BookieError>>,
    {
        let (ledger, asked) = (self.ledger, self.metadata());
        let answers = match self.ask_ensemble(span, &asked, &ask).await {
            Ok(found) => return Ok(found),
            Err(answers) => answers,
        };
        let certainly = answers.iter().all(is_lost);
        let place = (&*asked, span.first);
        let looked = self.whereabouts.look(&self.inner, ledger, place, certainly);
        match looked.await {
            Looked::There => Err(self.no_copy(span.first, answers, true)),
            Looked::Unknown => Err(self.no_copy(span.first, answers, false)),
            Looked::Gone => Err(ReadError::Deleted { ledger }),
            Looked::Elsewhere(now) => {
                let answers = self.ask_ensemble(span, &now, &ask).await;
                answers.map_err(|answers| self.no_copy(span.first, answers, true))
            }
        }
    }

    /// Asks the write set of the first entry, one member after the other, until one has it.
    async fn ask_ensemble<T, F>(
        &self,
        span: Span,
        metadata: &LedgerMetadata,
        ask: &impl Fn(Arc<dyn BookieCalls>, ReadRequest) -> F,
    ) -> Result<Vec<T>, Vec<MemberAnswer>>
    where
        F: Future<Output = Result<Vec<T>, BookieError>>,
    {
        let ensemble = &metadata.fragment_of(span.first).ensemble;
        let positions: Vec<usize> = write_set(metadata.quorums, span.first).collect();
        let begin = self.preferred.load(Ordering::Relaxed);
        let mut answers = Vec::new();
        for step in 0..positions.len() {
            let turn = (begin + step) % positions.len();
            let member = &ensemble[positions[turn]];
            match self.ask_member(span, member, ask).await {
                Ok(found) => {
                    self.preferred.store(turn, Ordering::Relaxed);
                    return Ok(found);
                }
                Err(error) => answers.push(MemberAnswer {
                    bookie: member.bookie.clone(),
                    error: Some(error),
                }),
            }
        }
        Err(answers)
    }

    async fn ask_member<T, F>(
        &self,
        span: Span,
        member: &Member,
        ask: impl Fn(Arc<dyn BookieCalls>, ReadRequest) -> F,
    ) -> Result<Vec<T>, BookieError>
    where
        F: Future<Output = Result<Vec<T>, BookieError>>,
    {
        let no_answer = |why: &str| BookieError::NoAnswer {
            why: why.to_owned(),
        };
        let bookie = self
            .inner
            .bookies
            .calls(member)
            .ok_or_else(|| no_answer("bookie is not connected"))?;
        let request = ReadRequest {
            to: Address {
                cell: self.inner.cell,
                incarnation: member.incarnation,
                ledger: self.ledger,
            },
            first: span.first,
            end: span.end,
            max_bytes: span.max_bytes,
            class: span.class,
        };
        timeout(self.inner.config.read_timeout, ask(bookie, request))
            .await
            .unwrap_or_else(|_| Err(no_answer("no answer in time")))
    }

    /// Says the worst that all answers together prove; `named`: they are of those that metadata name.
    fn no_copy(&self, entry: EntryId, answers: Vec<MemberAnswer>, named: bool) -> ReadError {
        let ledger = self.ledger;
        let deleted =
            |answer: &MemberAnswer| matches!(answer.error, Some(BookieError::Deleted { .. }));
        if answers.iter().all(deleted) {
            return ReadError::Deleted { ledger };
        }
        let lost = named && answers.iter().all(is_lost);
        let members = MemberAnswers(answers);
        match lost {
            true => ReadError::Damaged {
                ledger,
                entry,
                members,
            },
            false => ReadError::Unavailable {
                ledger,
                entry,
                members,
            },
        }
    }
}

/// A member that says this does not have the entry, and will not by waiting.
fn is_lost(answer: &MemberAnswer) -> bool {
    matches!(
        answer.error,
        Some(
            BookieError::Damaged { .. }
                | BookieError::NotHere { .. }
                | BookieError::Limbo { .. }
                | BookieError::WrongIncarnation { .. }
                | BookieError::Deleted { .. }
        )
    )
}

/// Keeps the run of entries that are what was asked for; none at all is damage.
fn accept_entries(
    request: ReadRequest,
    found: Vec<StoredEntry>,
) -> Result<Vec<Entry>, BookieError> {
    let mut entries = Vec::with_capacity(found.len());
    for (stored, expected) in found.into_iter().zip(request.first.0..request.end.0) {
        let header = stored.entry.header();
        let right = header.ledger == request.to.ledger && header.entry.0 == expected;
        if !right || stored.entry.verify().is_err() {
            break;
        }
        entries.push(stored.entry);
    }
    some_or_damaged(request, entries)
}

fn accept_heads(
    request: ReadRequest,
    found: Vec<EntryHead>,
) -> Result<Vec<EntryHead>, BookieError> {
    let heads = found
        .into_iter()
        .zip(request.first.0..request.end.0)
        .take_while(|(head, expected)| {
            head.header.ledger == request.to.ledger && head.header.entry.0 == *expected
        })
        .map(|(head, _)| head)
        .collect();
    some_or_damaged(request, heads)
}

fn some_or_damaged<T>(request: ReadRequest, found: Vec<T>) -> Result<Vec<T>, BookieError> {
    if found.is_empty() {
        return Err(BookieError::Damaged {
            ledger: request.to.ledger,
            entry: request.first,
        });
    }
    Ok(found)
}
