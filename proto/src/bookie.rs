//! What a storage node can be asked, and the trait through which it is asked.
//!
//! The node implements [`BookieCalls`], the ledger client calls it; in one process that is a direct call, over a network a thin
//! adapter at each end. Every call names the cell, the incarnation and the ledger, and the node checks the first two before
//! anything else (storage.md B0).
//!
//! # Order and cancellation
//! A call takes effect in the order in which the *method* was called, not in which its future is polled: methods enqueue before
//! they return. Dropping the future drops the answer, never the effect.

use std::future::Future;
use std::pin::Pin;
use std::time::Duration;

use bytes::Bytes;

use crate::entry::{Entry, EntryDigest, EntryHeader};
use crate::id::{CellId, EntryId, FenceToken, Incarnation, LedgerId};

/// The answer to a call, later.
pub type Call<T> = Pin<Box<dyn Future<Output = Result<T, BookieError>> + Send>>;

/// Whom a call is for (storage.md B0).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Address {
    /// The cluster the caller belongs to.
    pub cell: CellId,
    /// The life of the disk the caller expects to find.
    pub incarnation: Incarnation,
    /// The ledger.
    pub ledger: LedgerId,
}

/// On whose behalf an entry is added; decides which of storage.md B3's rules judges it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Origin {
    /// The ledger's writer.
    Normal,
    /// A recoverer that writes back what it found. Never raises the stored confirmed end (B9).
    Recovery {
        /// Its token.
        token: FenceToken,
    },
    /// Repair. Accepted only below `bound`, taken from immutable metadata.
    Copy {
        /// Exclusive.
        bound: EntryId,
    },
}

/// Stores one entry.
#[derive(Debug, Clone)]
pub struct AddRequest {
    /// Whom for.
    pub to: Address,
    /// Which rules.
    pub origin: Origin,
    /// LAC + 1 as the writer knew it when it sent this; recovery adds carry the frozen base (R8).
    pub confirmed_end: EntryId,
    /// The entry.
    pub entry: Entry,
    /// An add still queued after this long is dropped unwritten (storage.md E3).
    pub timeout: Duration,
}

/// Fences a ledger against its writer (storage.md B10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FenceRequest {
    /// Whom for.
    pub to: Address,
    /// The recoverer's token. 0 fences nothing: by B10's own rule it is answered at once while no fence stands, and is stale when one
    /// does. An owner that cannot ask metadata looks so whether another one took over.
    pub token: FenceToken,
}

/// What a durable fence found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FenceAnswer {
    /// The token that now stands; equals the request's.
    pub token: FenceToken,
    /// Highest confirmed end any normal add carried.
    pub confirmed_end: EntryId,
    /// Exclusive end of the highest entry held; 0: none.
    pub held_end: EntryId,
}

/// Reads one entry for recovery, fencing first (storage.md B11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecoveryReadRequest {
    /// Whom for.
    pub to: Address,
    /// The recoverer's token.
    pub token: FenceToken,
    /// Which entry.
    pub entry: EntryId,
}

/// A promise either way; everything else is an error of the UNKNOWN class.
#[derive(Debug, Clone)]
pub enum RecoveryReadAnswer {
    /// Held and durable.
    Positive(StoredEntry),
    /// Not held, and no normal add of it will ever be accepted.
    Negative {
        /// True when this negative stands only because the node is in limbo *without* sync (storage.md, amendment to B5): it
        /// must be treated as UNKNOWN unless coverage cannot be had otherwise; then recovery seals and records `tail_lost`.
        unsynced_limbo: bool,
    },
}

/// Which read queue a read waits in (ARCHITECTURE D5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReadClass {
    /// Before all others.
    Recovery,
    /// Near the end of an open log.
    Tail,
    /// Everything older.
    CatchUp,
}

/// Reads entries `first..end`, fewer when `max_bytes` is spent; at least one entry when there is one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadRequest {
    /// Whom for.
    pub to: Address,
    /// First wanted.
    pub first: EntryId,
    /// Exclusive.
    pub end: EntryId,
    /// Stop after about this many bytes.
    pub max_bytes: u32,
    /// Which queue.
    pub class: ReadClass,
}

/// An entry and the mutable part a bookie keeps beside it.
#[derive(Debug, Clone)]
pub struct StoredEntry {
    /// The entry, digest checked by the bookie.
    pub entry: Entry,
    /// Confirmed end that its add carried.
    pub confirmed_end: EntryId,
}

/// An entry without its batches: enough to rebuild what a partition must know (ARCHITECTURE D2).
#[derive(Debug, Clone)]
pub struct EntryHead {
    /// The writer's part.
    pub header: EntryHeader,
    /// The encoded envelope; its own checksum was checked.
    pub envelope: Bytes,
}

/// Most ranges of entries that one inventory answers, of all ledgers together. What is left out counts as not held.
pub const INVENTORY_RUNS_MAX: usize = 4096;

/// Asks what is held of the ledgers `to.ledger..ledgers_end` (storage.md X8).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InventoryRequest {
    /// Whom for, and the first ledger.
    pub to: Address,
    /// Exclusive.
    pub ledgers_end: LedgerId,
    /// Of each ledger: the first entry asked for.
    pub first: EntryId,
    /// Exclusive.
    pub end: EntryId,
    /// With a digest of each run; takes reads of the index, so it is for one ledger at a time.
    pub digests: bool,
}

/// Entries that are held, durable, and not known to be damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct HeldRun {
    /// The first.
    pub first: EntryId,
    /// Exclusive.
    pub end: EntryId,
    /// Sum of [`entry_mark`] over the run; `None` when it was not asked for, or could not be told.
    pub digest: Option<u64>,
}

/// What is held of a ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldLedger {
    /// Which.
    pub ledger: LedgerId,
    /// In order; runs do not touch.
    pub runs: Vec<HeldRun>,
}

/// What is held of some ledgers, in order; those of which nothing is held are left out.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inventory {
    /// They.
    pub ledgers: Vec<HeldLedger>,
    /// Where to ask on; `None`: these are all.
    pub next: Option<LedgerId>,
}

/// One summand of a run's digest: an entry's number and its checksums.
pub fn entry_mark(entry: EntryId, digest: EntryDigest) -> u64 {
    let both = (u64::from(digest.header_crc) << 32) | u64::from(digest.payload_crc);
    let mixed =
        (both ^ entry.0.wrapping_mul(0x9E37_79B9_7F4A_7C15)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    (mixed ^ (mixed >> 31)).wrapping_mul(0x94D0_49BB_1331_11EB)
}

/// Why a bookie did not do what it was asked. `Failed` and `NoAnswer` leave the effect unknown; all others say that the call had
/// none, though an earlier copy of the same call may have had one.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BookieError {
    /// The bookie belongs to another cluster.
    #[error("bookie belongs to cell {found}, not {asked}")]
    WrongCell {
        /// The bookie's.
        found: CellId,
        /// The caller's.
        asked: CellId,
    },
    /// The bookie's disk is another one than the caller's metadata names.
    #[error("bookie's incarnation is {found}, not {asked}")]
    WrongIncarnation {
        /// The bookie's.
        found: Incarnation,
        /// The caller's.
        asked: Incarnation,
    },
    /// The ledger is fenced; no normal add will ever be accepted.
    #[error("ledger {ledger} is fenced by token {token}")]
    Fenced {
        /// The ledger.
        ledger: LedgerId,
        /// The token that stands.
        token: FenceToken,
    },
    /// A newer recoverer is at work.
    #[error("token {asked} is stale, ledger {ledger} is fenced by {token}")]
    StaleToken {
        /// The ledger.
        ledger: LedgerId,
        /// The token that stands.
        token: FenceToken,
        /// The caller's.
        asked: FenceToken,
    },
    /// The ledger was deleted, or never existed.
    #[error("ledger {ledger} is deleted")]
    Deleted {
        /// The ledger.
        ledger: LedgerId,
    },
    /// Metadata does not name this bookie in the ledger's last fragment (B2).
    #[error("bookie is not in the last ensemble of ledger {ledger}")]
    NotInEnsemble {
        /// The ledger.
        ledger: LedgerId,
    },
    /// The same entry with other bytes is already stored: a bug or corruption. Nothing was overwritten.
    #[error("entry {entry} of ledger {ledger} is already stored with other content")]
    Conflict {
        /// The ledger.
        ledger: LedgerId,
        /// The entry.
        entry: EntryId,
    },
    /// The bookie takes no new data (disk full or operator's wish).
    #[error("bookie is read-only: {why}")]
    ReadOnly {
        /// Words for a person.
        why: String,
    },
    /// Queues are full; nothing was written. Retry later.
    #[error("bookie is busy: {queued_bytes} bytes are queued")]
    Busy {
        /// How much.
        queued_bytes: u64,
    },
    /// The request is malformed, e.g. the entry's checksum is wrong or it is too large. Nothing was written.
    #[error("bookie refuses the request: {why}")]
    Invalid {
        /// Words for a person.
        why: String,
    },
    /// UNKNOWN class: the entry is not here, which proves nothing.
    #[error("entry {entry} of ledger {ledger} is not here")]
    NotHere {
        /// The ledger.
        ledger: LedgerId,
        /// The entry.
        entry: EntryId,
    },
    /// UNKNOWN class: the entry lies in a damaged range, or its checksum is wrong.
    #[error("entry {entry} of ledger {ledger} is damaged")]
    Damaged {
        /// The ledger.
        ledger: LedgerId,
        /// The entry.
        entry: EntryId,
    },
    /// UNKNOWN class: the bookie may have lost entries of this ledger (storage.md S3).
    #[error("bookie is in limbo for ledger {ledger}")]
    Limbo {
        /// The ledger.
        ledger: LedgerId,
    },
    /// The log failed; this bookie confirms nothing any more in this boot (B14).
    #[error("bookie's log failed: {why}")]
    Failed {
        /// Words for a person.
        why: String,
    },
    /// The bookie could not verify a first contact because metadata did not answer (B2). Nothing was written.
    #[error("metadata did not answer")]
    MetadataUnavailable,
    /// No answer in time, or the connection broke.
    #[error("no answer: {why}")]
    NoAnswer {
        /// Words for a person.
        why: String,
    },
}

/// A storage node, near or far.
pub trait BookieCalls: Send + Sync + 'static {
    /// Stores an entry; answers when it is durable (B5) or refused. Storing the same bytes again is success (B7).
    fn add(&self, request: AddRequest) -> Call<()>;

    /// Fences a ledger; answers when the fence and all adds accepted before it are durable (B10). Creates an unknown ledger fenced. With
    /// token 0 nothing is changed: the answer says that no fence stands here, an error of the UNKNOWN class that it cannot be told.
    fn fence(&self, request: FenceRequest) -> Call<FenceAnswer>;

    /// Fences, then reads one entry with a promise (B11).
    fn recovery_read(&self, request: RecoveryReadRequest) -> Call<RecoveryReadAnswer>;

    /// Reads a run of durable entries, contiguous from `first`. Clipping to what is confirmed is the client's duty (B13).
    ///
    /// # Errors
    /// [`BookieError::NotHere`] or [`BookieError::Damaged`] when the *first* entry cannot be had; later ones just end the run.
    fn read(&self, request: ReadRequest) -> Call<Vec<StoredEntry>>;

    /// As [`BookieCalls::read`], but headers and envelopes only.
    fn read_heads(&self, request: ReadRequest) -> Call<Vec<EntryHead>>;

    /// Marks a ledger deleted for ever; answers when the tombstone is durable. The caller has set it DELETING in metadata (G1, G4).
    fn delete(&self, to: Address) -> Call<()>;

    /// Says what is held (X8): durable entries that are not known to be damaged. The same in limbo: what is there is served (S3).
    /// Whatever only passes calls on passes this one, too; what keeps no inventory refuses it.
    fn inventory(&self, _: InventoryRequest) -> Call<Inventory> {
        let why = "no inventory is kept here".to_owned();
        Box::pin(std::future::ready(Err(BookieError::Invalid { why })))
    }
}
