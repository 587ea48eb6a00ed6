//! What goes into the core and what comes out.

use std::time::Duration;

use hulse_proto::bookie::{
    AddRequest, Address, BookieError, FenceAnswer, FenceRequest, RecoveryReadAnswer,
    RecoveryReadRequest,
};
use hulse_proto::entry::EntryDigest;
use hulse_proto::id::{EntryId, FenceToken, LedgerId};

use super::level::LevelLimits;
use crate::disk::Space;
use crate::index::Wanted;
use crate::ledger::GroupNumber;
use crate::log::{DamagedRange, FileKind, LogPosition, SealedFile};
use crate::reclaim::Settled;

/// Names a request to the shell; given by it, returned with the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Metadata's word on a ledger's first contact (storage.md B2).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Open, and this node with this incarnation is in the last fragment.
    Open,
    /// Its end is being decided, or is.
    Fenced {
        /// Metadata's token.
        token: FenceToken,
    },
    /// Open, but this node is not in the last fragment.
    NotInEnsemble,
    /// No such ledger, or it is being deleted.
    Deleted,
    /// No answer.
    Unavailable,
}

/// Bytes that can still be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Room {
    /// In the file that is being written.
    pub current: u64,
    /// Length of that file, room or not.
    pub length: u64,
    /// In the next one, made in advance; 0: there is none.
    pub spare: u64,
    /// The disk is too full for another file of the usual length.
    pub full: bool,
}

/// What happened.
#[derive(Debug)]
pub enum Event {
    /// An add. Its payload's checksum was verified.
    Add {
        /// For the answer.
        ticket: Ticket,
        /// The request.
        request: AddRequest,
        /// Since the node's start.
        now: Duration,
    },
    /// A fence.
    Fence {
        /// For the answer.
        ticket: Ticket,
        /// The request.
        request: FenceRequest,
    },
    /// A recovery read.
    RecoveryRead {
        /// For the answer.
        ticket: Ticket,
        /// The request.
        request: RecoveryReadRequest,
    },
    /// A deletion.
    Delete {
        /// For the answer.
        ticket: Ticket,
        /// Which ledger.
        to: Address,
    },
    /// Metadata answered [`Effect::Verify`].
    Verified {
        /// The ledger.
        ledger: LedgerId,
        /// What it said.
        verdict: Verdict,
        /// Since the node's start.
        now: Duration,
    },
    /// A group counts as stored: synced, or written in the relaxed modes.
    GroupStored {
        /// Which; all before it are stored too.
        group: GroupNumber,
        /// Where each group since the last such event was written, in order.
        placed: Vec<(GroupNumber, LogPosition)>,
    },
    /// The log failed (storage.md E1).
    LogFailed {
        /// Words for a person.
        why: String,
    },
    /// A stored entry's bytes are wrong (E2). No word on a copy elsewhere: it is ignored when another file's counts by now.
    EntryDamaged {
        /// The ledger.
        ledger: LedgerId,
        /// The entry.
        entry: EntryId,
        /// Where it was read.
        file: u32,
    },
    /// An entry that an earlier boot found damaged was looked at again.
    DamageChecked {
        /// Which.
        at: (LedgerId, EntryId),
        /// It is right. Else [`Event::EntryDamaged`] came before this, or it could not be told.
        whole: bool,
    },
    /// Nothing is missing any more by damage of these ranges.
    DamageCovered(Vec<DamagedRange>),
    /// A file got its footer, or a compacted one its name (storage.md 4.4, G8).
    FileSealed(Box<SealedFile>),
    /// The log's free room changed.
    RoomChanged(Room),
    /// The volume was looked at (storage.md D5).
    SpaceSeen(Space),
    /// Nothing that can be asked for lies in these files: they are put on record as removed, then [`Effect::Unlink`]ed.
    RemoveFiles(Vec<u32>),
    /// A compacted file that was sealed took over what lived in these (G8).
    FilesReplaced(Vec<u32>),
    /// Metadata proved these ledgers gone (G1).
    Collected(Vec<LedgerId>),
    /// A ledger in limbo is closed (S4).
    Settled(Box<Settled>),
    /// These closed ledgers belong to other members by now (G6), as metadata said after so many copies were taken here.
    Strayed {
        /// They.
        ledgers: Vec<LedgerId>,
        /// `Held::copies` of the pass.
        copies: u64,
    },
    /// The lease is lost by metadata's word (C5): `Some` refuses new data, and says why.
    ReadOnly(Option<String>),
    /// An operator's word, as metadata have it.
    Withdrawn(Withdrawn),
}

/// What of its writers' entries a bookie refuses because an operator said so (storage.md C7). Fences, recovery and copies go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Withdrawn {
    /// None.
    #[default]
    No,
    /// Records: it keeps what it has.
    ReadOnly,
    /// All of them: it is to be emptied, or is retired.
    Leaving,
}

impl Withdrawn {
    /// Why records are refused, if they are.
    pub fn refusal(self) -> Option<&'static str> {
        match self {
            Self::No => None,
            Self::ReadOnly => Some("an operator made it read-only"),
            Self::Leaving => Some("it is to leave the cluster, and its copies are moved away"),
        }
    }
}

/// An answer to a request.
#[derive(Debug)]
pub enum Answer {
    /// To an add.
    Add(Result<(), BookieError>),
    /// To a fence.
    Fence(Result<FenceAnswer, BookieError>),
    /// To a recovery read; a positive one comes as [`Effect::ReadEntry`].
    RecoveryRead(Result<RecoveryReadAnswer, BookieError>),
    /// To a deletion.
    Delete(Result<(), BookieError>),
}

/// What the shell is to do.
#[derive(Debug)]
pub enum Effect {
    /// Deliver an answer.
    Answer {
        /// Whose.
        ticket: Ticket,
        /// The answer.
        answer: Answer,
    },
    /// Remove these files: their removal is durable on record.
    Unlink {
        /// Kinds and numbers.
        files: Vec<(FileKind, u32)>,
    },
    /// Read the ledger's metadata, linearizably, and report [`Event::Verified`].
    Verify {
        /// The ledger.
        ledger: LedgerId,
    },
    /// Read the entry and answer the recovery read with it; report damage.
    ReadEntry {
        /// Whose.
        ticket: Ticket,
        /// The ledger.
        ledger: LedgerId,
        /// The entry.
        wanted: Wanted,
    },
    /// Find out whether the entry that is held in a sealed file has these checksums, and answer the add (storage.md B7): stored, or a
    /// conflict. When it cannot be told: report damage, and answer BUSY.
    CompareEntry {
        /// Whose.
        ticket: Ticket,
        /// The ledger.
        ledger: LedgerId,
        /// The entry.
        wanted: Wanted,
        /// Checksums of what came.
        offered: EntryDigest,
    },
}

/// Bounds of the core's queues.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Most bytes of one group, unless one entry is larger.
    pub group_bytes_max: usize,
    /// Most bytes that wait for the disk or for metadata.
    pub queue_bytes_max: u64,
    /// More tombstones than this in memory raise the dead watermark (storage.md G4).
    pub tombstones_max: usize,
    /// When the disk counts as full.
    pub levels: LevelLimits,
}
