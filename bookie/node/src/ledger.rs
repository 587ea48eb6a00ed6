//! What the node remembers of one ledger, and the rules by which it accepts. No I/O, no clock.
//!
//! # Invariants
//! 1. The state only grows: fence and confirmed end by maximum, a tombstone wins, an entry is written once. Replay in any order
//!    gives the same state (storage.md B1).
//! 2. Only the writer's own adds raise the confirmed end (B9).
//! 3. An entry is readable only after the group that holds it is durable (B6).

use std::collections::{BTreeMap, BTreeSet};

use hulse_proto::bookie::{BookieError, Origin};
use hulse_proto::entry::{EntryDigest, EntryHeader};
use hulse_proto::id::{EntryId, FenceToken, LedgerId};
use hulse_proto::mutant::{Mutant, Mutation};

use crate::index::{Entries, Slot};
use crate::log::{LedgerRow, LimboKind};

/// Number of a group in the order of this boot; 0: durable since before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct GroupNumber(pub u64);

/// An accepted entry whose group is not durable yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PendingEntry {
    /// Identity of the content.
    pub digest: EntryDigest,
    /// Its group.
    pub group: GroupNumber,
}

/// A ledger.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LedgerState {
    /// Highest accepted token; 0: not fenced.
    pub fence: FenceToken,
    /// Group whose durability makes the fence durable.
    pub fence_group: GroupNumber,
    /// Highest confirmed end of the writer's adds.
    pub confirmed_end: EntryId,
    /// The writer's adds were accepted before, so metadata need not be asked again (B2).
    pub contacted: bool,
    /// Deleted for ever.
    pub deleted: bool,
    /// Group whose durability makes the tombstone durable.
    pub deleted_group: GroupNumber,
    /// Durable entries.
    pub entries: Entries,
    /// Accepted entries that are not durable yet.
    pub pending: BTreeMap<EntryId, PendingEntry>,
    /// Entries whose stored bytes were found damaged.
    pub damaged: BTreeSet<EntryId>,
    /// When, in this boot, a copy or a write-back of it was last taken or found here; counted by the core.
    pub copied_at: u64,
    limbo: BTreeMap<LimboKind, u64>,
    limbo_cleared: u64,
}

/// What becomes of an add.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AddVerdict {
    /// Append it.
    Append,
    /// The same bytes are durable here.
    Stored,
    /// Something is durable here, in a sealed file: whether it is the same is to be read (B7).
    Compare,
    /// The same bytes wait for this group.
    Pending(GroupNumber),
    /// First contact: ask metadata first.
    Verify,
    /// Other bytes of this digest are held, or wait for their group (B7).
    Conflict(EntryDigest),
    /// No.
    Refused(BookieError),
}

impl LedgerState {
    /// Marks the ledger as one that may have lost something.
    pub fn enter_limbo(&mut self, kind: LimboKind, boot: u64) {
        let since = self.limbo.entry(kind).or_default();
        *since = boot.max(*since);
    }

    /// Ends limbo of boots up to this one.
    pub fn clear_limbo(&mut self, boot: u64) {
        self.limbo_cleared = boot.max(self.limbo_cleared);
    }

    /// The gravest reason why this ledger is in limbo.
    pub fn limbo(&self) -> Option<LimboKind> {
        let active = self
            .limbo
            .iter()
            .filter(|(_, boot)| **boot > self.limbo_cleared);
        active.map(|(kind, _)| *kind).max()
    }

    /// The last boot that put this ledger into limbo, while it is.
    pub fn limbo_since(&self) -> Option<u64> {
        self.limbo()?;
        self.limbo.values().copied().max()
    }

    /// Judges an add by B2, B3 and B7. The disk's fullness is judged by the caller, after duplicates.
    pub fn judge(&self, header: &EntryHeader, origin: Origin, mutation: Mutation) -> AddVerdict {
        let (ledger, entry, digest) = (header.ledger, header.entry, header.digest());
        if let Some(error) = self.refuses(ledger, origin, entry) {
            let forgets = mutation.is(Mutant::FenceForgotten);
            if !(forgets && matches!(error, BookieError::Fenced { .. })) {
                return AddVerdict::Refused(error);
            }
        }
        let careless = mutation.is(Mutant::ProposedMemberCounts);
        if origin == Origin::Normal && !(self.contacted || careless) {
            // Also of an entry that is held: it may be a late recoverer's, at a disk that lost the fence against its writer.
            return AddVerdict::Verify;
        }
        if let Some(pending) = self.pending.get(&entry) {
            return match pending.digest == digest {
                true => AddVerdict::Pending(pending.group),
                false => AddVerdict::Conflict(pending.digest),
            };
        }
        match self.entries.hot(entry) {
            Some(slot) if slot.digest != digest => AddVerdict::Conflict(slot.digest),
            _ if self.damaged.contains(&entry) => AddVerdict::Append,
            Some(_) => AddVerdict::Stored,
            None if self.entries.contains(entry) => AddVerdict::Compare,
            None => AddVerdict::Append,
        }
    }

    /// Tombstone, fence, limbo, token and bound: what refuses an add whatever is held (B3, B12, S3).
    fn refuses(&self, ledger: LedgerId, origin: Origin, entry: EntryId) -> Option<BookieError> {
        if self.deleted {
            return Some(BookieError::Deleted { ledger });
        }
        match origin {
            Origin::Normal if self.fence > FenceToken(0) => Some(BookieError::Fenced {
                ledger,
                token: self.fence,
            }),
            Origin::Normal if self.limbo().is_some() => Some(BookieError::Limbo { ledger }),
            Origin::Recovery { token } if token < self.fence => Some(BookieError::StaleToken {
                ledger,
                token: self.fence,
                asked: token,
            }),
            Origin::Copy { bound } if entry >= bound => Some(BookieError::Invalid {
                why: format!("copy of entry {entry} is not below its bound {bound}"),
            }),
            _ => None,
        }
    }

    /// A durable entry's slot. A tombstone wins over it.
    pub fn store(&mut self, entry: EntryId, slot: Slot) {
        if self.deleted {
            return;
        }
        self.damaged.remove(&entry);
        self.entries.insert(entry, slot);
    }

    /// Lets its entries go; fence, confirmed end and limbo stay. No record says so: after a restart what is still in files counts again,
    /// which is legal at any time (S1).
    pub fn stray(&mut self) {
        self.entries = Entries::default();
        self.damaged.clear();
    }

    /// Deletes everything but the fact.
    pub fn bury(&mut self) {
        self.deleted = true;
        self.entries = Entries::default();
        self.damaged.clear();
        self.pending.clear();
    }

    /// All of it but the entries, for a snapshot.
    pub fn row(&self, ledger: LedgerId) -> LedgerRow {
        let boot = |kind| self.limbo.get(&kind).copied().unwrap_or(0);
        LedgerRow {
            ledger,
            contacted: self.contacted,
            deleted: self.deleted,
            confirmed_end: self.confirmed_end,
            fence: self.fence,
            limbo_cleared: self.limbo_cleared,
            limbo: LimboKind::ALL.map(boot),
        }
    }

    /// Takes what a snapshot says.
    pub fn merge(&mut self, row: &LedgerRow) {
        self.contacted |= row.contacted;
        self.confirmed_end = self.confirmed_end.max(row.confirmed_end);
        self.fence = self.fence.max(row.fence);
        self.clear_limbo(row.limbo_cleared);
        for (kind, boot) in LimboKind::ALL.into_iter().zip(row.limbo) {
            if boot > 0 {
                self.enter_limbo(kind, boot);
            }
        }
    }
}
