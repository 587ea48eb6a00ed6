//! The face of the crate: everything that can be done with ledgers.

use std::sync::{Arc, Mutex, PoisonError};

use bookie_metadata::{MetadataError, MetadataStore, Revision, Txn};
use bookie_tier::TierReads;
use hulse_proto::id::{CellId, EntryId, LedgerId, Offset, OwnerEpoch, PartitionId};
use hulse_proto::ledger::{ClosedTotals, LedgerKind, LedgerMetadata, LedgerState, Quorums};
use hulse_proto::tier::Settled;
use hulse_proto::time::WallClock;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;

use crate::config::ClientConfig;
use crate::directory::{BookieDirectory, Candidate};
use crate::error::{CreateError, DeleteError, RecoverError, RollError, SettleError};
use crate::metadata::{LedgerIds, read_ledger};
use crate::placement::Room;
use crate::reader::LedgerReader;
use crate::recovery::Policy;
use crate::standing::Standing;
use crate::writer::{LedgerWriter, OpenWriters};
use crate::{create, damage, delete, departures, recovery, settling, standing};

/// What a new ledger is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewLedger {
    /// Log or state.
    pub kind: LedgerKind,
    /// Whose it is.
    pub partition: PartitionId,
    /// The owner that makes it.
    pub owner_epoch: OwnerEpoch,
    /// Offset of the first record; 0 in state ledgers.
    pub base_offset: Offset,
}

/// What all clones share.
pub(crate) struct Inner {
    pub(crate) cell: CellId,
    pub(crate) config: ClientConfig,
    pub(crate) metadata: Arc<dyn MetadataStore>,
    pub(crate) bookies: Arc<dyn BookieDirectory>,
    pub(crate) clock: Arc<dyn WallClock>,
    pub(crate) ids: LedgerIds,
    pub(crate) writers: OpenWriters,
    rng: Mutex<ChaCha12Rng>,
}

impl Inner {
    /// A fresh nonce (amended M3).
    pub(crate) fn nonce(&self) -> [u8; 16] {
        self.with_rng(Rng::random)
    }

    pub(crate) fn with_rng<T>(&self, choose: impl FnOnce(&mut ChaCha12Rng) -> T) -> T {
        choose(&mut self.rng.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// Makes, recovers, reads and deletes ledgers. Cheap to clone; needs a tokio runtime.
#[derive(Clone)]
pub struct LedgerClient {
    inner: Arc<Inner>,
    /// Of ledgers that it makes.
    quorums: Quorums,
    /// The way to ledgers in object storage.
    tier: Option<Arc<TierReads>>,
}

impl LedgerClient {
    /// A client of one cell. `seed` decides every random choice (placement, nonces); it must differ between processes.
    pub fn new(
        cell: CellId,
        config: ClientConfig,
        metadata: Arc<dyn MetadataStore>,
        bookies: Arc<dyn BookieDirectory>,
        clock: Arc<dyn WallClock>,
        seed: [u8; 32],
    ) -> Self {
        let ids = LedgerIds::new(config.id_block);
        Self {
            quorums: config.quorums,
            tier: None,
            inner: Arc::new(Inner {
                cell,
                config,
                metadata,
                bookies,
                clock,
                ids,
                writers: OpenWriters::default(),
                rng: Mutex::new(ChaCha12Rng::from_seed(seed)),
            }),
        }
    }

    /// What the client was told at its start.
    pub fn config(&self) -> &ClientConfig {
        &self.inner.config
    }

    /// The same client, but for what ledgers that it makes have: their E, Qw and Qa are these. What is made already keeps its own.
    #[must_use]
    pub fn with_quorums(&self, quorums: Quorums) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            quorums,
            tier: self.tier.clone(),
        }
    }

    /// The same client, whose readers also read ledgers that are in object storage.
    #[must_use]
    pub fn with_tier(&self, tier: Arc<TierReads>) -> Self {
        Self {
            tier: Some(tier),
            ..self.clone()
        }
    }

    /// The owner's word that nothing of a closed log ledger is undecided any more: it may be tiered from `settled.tier_after` on
    /// (ARCHITECTURE D7). Said before, it stays as it was said. `part` joins the change: the owner's compares.
    ///
    /// # Errors
    /// [`SettleError`]. Safe to drop and to repeat.
    pub async fn settle(
        &self,
        ledger: LedgerId,
        settled: Settled,
        part: Txn,
    ) -> Result<(), SettleError> {
        settling::settle(&self.inner, ledger, settled, part).await
    }

    /// E, Qw and Qa of ledgers that it makes.
    pub fn quorums(&self) -> Quorums {
        self.quorums
    }

    /// Bookies that may get new ledgers, also those that do not run now: who is to leave, and who is lost, is not among them.
    ///
    /// # Errors
    /// Those of the store. Cancel-safe.
    pub async fn candidates(&self) -> Result<Vec<Candidate>, MetadataError> {
        self.inner.bookies.candidates().await
    }

    /// Creates a ledger by ONE transaction that also holds the caller's compares and effects (storage.md M5); `part` gets the
    /// new ledger's number.
    ///
    /// # Errors
    /// [`CreateError`]. Not cancel-safe: a dropped call leaves the outcome unknown.
    pub async fn create(
        &self,
        new: NewLedger,
        part: impl FnOnce(LedgerId) -> Txn + Send,
    ) -> Result<LedgerWriter, CreateError> {
        create::create(&self.inner, (new, self.quorums), new.kind.into(), part).await
    }

    /// As [`LedgerClient::create`], for a log ledger that shall take CONTROL while no records can be stored (storage.md, amended
    /// D1): it may stand on read-only bookies. Its writer refuses DATA with [`crate::NotWritten::Full`] until
    /// [`LedgerWriter::admit_data`].
    ///
    /// # Errors
    /// [`CreateError`]. Not cancel-safe: a dropped call leaves the outcome unknown.
    pub async fn create_for_control(
        &self,
        new: NewLedger,
        part: impl FnOnce(LedgerId) -> Txn + Send,
    ) -> Result<LedgerWriter, CreateError> {
        let new = (new, self.quorums);
        let writer = create::create(&self.inner, new, Room::ForTheRest, part).await?;
        writer.refuse_data();
        Ok(writer)
    }

    /// Looks who is to leave, again and again, and has every open writer replace those members, also one that rests (storage.md C7):
    /// else a ledger that nobody writes to would name a bookie for ever that is to be emptied, or whose disk was replaced. For a task of
    /// the process; never ends.
    pub async fn follow_departures(&self) {
        departures::follow(&self.inner).await;
    }

    /// Whether records can be stored now: with `None` in a new ledger, else in that of `writer` because Qa of its members are
    /// writable (storage.md, amended D1). A hint: what it says may be over when it is used.
    ///
    /// # Errors
    /// Those of the store. Cancel-safe.
    pub async fn takes_data(&self, writer: Option<&LedgerWriter>) -> Result<bool, MetadataError> {
        standing::takes_data(&self.inner, self.quorums, writer).await
    }

    /// Looks whether a ledger that rested is still worth writing to (storage.md W15), within `metadata_fresh`. A ledger that is no
    /// longer this writer's ends the writer (W6).
    pub async fn verify(&self, writer: &LedgerWriter) -> Standing {
        standing::verify(&self.inner, writer).await
    }

    /// Stops sending, drains, then closes the writer's ledger and creates the next one as ONE transaction (storage.md W13–W15).
    ///
    /// The next ledger begins where this one ends; `new.base_offset` is ignored. When metadata does not answer once the
    /// transaction is sent, this waits (the one exception to ARCHITECTURE D6).
    ///
    /// # Errors
    /// [`RollError`]; only after [`RollError::NotStarted`] does the old writer go on. Dropping the future ends the old writer.
    pub async fn roll(
        &self,
        writer: &LedgerWriter,
        new: NewLedger,
        part: impl FnOnce(LedgerId, &ClosedTotals) -> Txn + Send,
    ) -> Result<LedgerWriter, RollError> {
        create::roll(&self.inner, writer, (new, self.quorums), part).await
    }

    /// Fences a ledger and decides its end for ever (storage.md R1–R14). A closed ledger answers at once. `part` holds the
    /// caller's compares and effects; they join both of recovery's transactions, so a compare must still hold after the first
    /// one, and effects must bear being applied twice.
    ///
    /// # Errors
    /// [`RecoverError`]. Safe to drop and to repeat (R12).
    pub async fn recover(
        &self,
        ledger: LedgerId,
        part: Txn,
    ) -> Result<LedgerMetadata, RecoverError> {
        recovery::recover(&self.inner, ledger, part, Policy::Strict).await
    }

    /// A ledger's metadata, read linearizably; `None` when there is no such key.
    ///
    /// # Errors
    /// Those of the store; [`MetadataError::Corrupt`] when the value is not a ledger's.
    pub async fn describe(
        &self,
        ledger: LedgerId,
    ) -> Result<Option<(LedgerMetadata, Revision)>, MetadataError> {
        read_ledger(&*self.inner.metadata, ledger).await
    }

    /// A reader of a ledger. Reads of a closed ledger are clipped to its end; reads of the owner's open one to the `end` that
    /// the owner gives, which must not lie above its confirmed end ([`LedgerWriter::reader`] sees to that by itself).
    pub fn reader(&self, ledger: LedgerId, metadata: LedgerMetadata) -> LedgerReader {
        LedgerReader::new(self.inner.clone(), ledger, metadata).with_tier(self.tier.clone())
    }

    /// Deletes a closed ledger: marked in metadata first (`part` joins that transaction), then at every member, then the key is
    /// removed. Resumable at any point; an absent ledger is done.
    ///
    /// # Errors
    /// [`DeleteError`]. Safe to drop and to repeat.
    pub async fn delete(&self, ledger: LedgerId, part: Txn) -> Result<(), DeleteError> {
        delete::delete(&self.inner, ledger, part).await
    }

    /// Marks closed ledgers as being deleted, all in one transaction with `part`: each takes one compare and one change of the store's
    /// limit. Their data are there until [`LedgerClient::delete`] was called for each; a mark outlives a crash.
    ///
    /// # Errors
    /// [`DeleteError`]. When the outcome stays unknown, the marks tell later. Safe to drop and to repeat.
    pub async fn retire(&self, ledgers: &[LedgerId], part: Txn) -> Result<(), DeleteError> {
        delete::retire(&self.inner, ledgers, &part).await
    }

    /// Seals a ledger that recovery cannot close, at the exclusive end `up_to`, or behind the last entry that any member can read; what
    /// that may have lost is recorded in its metadata (storage.md R14). A closed ledger keeps its end. In both, entries below the end
    /// that no member has any more are recorded, so that readers pass over these and read what is behind. An operator's word: never
    /// called by itself.
    ///
    /// # Errors
    /// [`RecoverError`]; after [`RecoverError::SealedUnread`] the ledger is sealed all the same. Safe to drop and to repeat.
    pub async fn accept_loss(
        &self,
        ledger: LedgerId,
        up_to: Option<EntryId>,
    ) -> Result<LedgerMetadata, RecoverError> {
        let found = read_ledger(&*self.inner.metadata, ledger).await?;
        if let Some(closed) = found.filter(|(found, _)| found.state == LedgerState::Closed) {
            return damage::accept(&self.inner, ledger, closed).await;
        }
        let sealed = self.seal_with_loss(ledger, up_to).await?;
        // Recovery reads from the last confirmed entry on, so it knows nothing of damage below.
        let looked = damage::accept_below(&self.inner, ledger).await;
        looked.map_err(|why| RecoverError::SealedUnread {
            ledger,
            end: sealed.closed.map_or(EntryId(0), |totals| totals.end),
            why: Box::new(why),
        })
    }

    /// As [`LedgerClient::accept_loss`] without a look at what lies below the end: for what nobody will read again.
    ///
    /// # Errors
    /// [`RecoverError`]. Safe to drop and to repeat.
    pub async fn seal_with_loss(
        &self,
        ledger: LedgerId,
        up_to: Option<EntryId>,
    ) -> Result<LedgerMetadata, RecoverError> {
        let policy = Policy::AcceptLoss { up_to };
        recovery::recover(&self.inner, ledger, Txn::default(), policy).await
    }
}
