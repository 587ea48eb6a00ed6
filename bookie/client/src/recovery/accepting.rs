//! An operator's word that a loss is accepted (R14): what is damaged becomes a hole, and what can be read behind it is kept.
//!
//! # Invariants
//! 1. Without a named end a ledger is sealed behind the last entry that anybody holds, wherever holes are. Only the proof that an entry was
//!    never confirmed (R6) ends it earlier: nothing behind such a one was confirmed (W5), and it is no part of the log (R11).
//! 2. Nothing is looked for at and above the end of what the fences named, so that a silent bookie does not make holes for ever.
//! 3. The recorded loss begins at the lowest hole.

use std::time::Duration;

use hulse_proto::bookie::BookieError;
use hulse_proto::id::EntryId;
use hulse_proto::ledger::{Loss, LossKind};

use super::core::RecoveryCore;
use super::event::RecoveryEffect;
use super::reading::EntryReads;

impl RecoveryCore {
    /// An entry is a hole, or where the ledger ends; true when there is more to decide. `loss`: `None` where it is proven to be absent.
    pub(super) fn given_up(
        &mut self,
        entry: EntryId,
        loss: Option<LossKind>,
        up_to: Option<EntryId>,
    ) -> bool {
        self.reads.remove(&entry);
        if up_to.is_some() {
            // A hole below the named end: what lies above it is kept.
            self.note_loss(LossKind::Accepted, entry);
            return self.look_above(entry);
        }
        if entry < self.base {
            // Confirmed, so it was there. What is behind it tells the totals as well; only when nothing is, what is below it.
            self.note_loss(loss.unwrap_or(LossKind::Accepted), entry);
            return match self.anchor_lost || self.held_end <= self.base {
                true => self.look_below(entry),
                false => {
                    self.anchor_lost = true;
                    self.look_above(entry)
                }
            };
        }
        if let Some(kind) = loss {
            self.note_loss(kind, entry);
            if entry.next() < self.held_end {
                return self.look_above(entry);
            }
        }
        match self.last {
            Some(last) => self.end = Some(last.entry.next()),
            None if self.base > EntryId(0) => return self.look_below(EntryId(self.base.0 - 1)),
            None => self.end = Some(EntryId(0)),
        }
        false
    }

    fn look_above(&mut self, hole: EntryId) -> bool {
        self.anchoring = false;
        self.next = hole.next();
        true
    }

    /// The entry below a lost one is to tell the totals; true when there is one.
    pub(super) fn look_below(&mut self, lost: EntryId) -> bool {
        self.reads.clear();
        if lost == EntryId(0) {
            self.end = Some(lost);
            return false;
        }
        self.anchoring = true;
        self.next = EntryId(lost.0 - 1);
        true
    }

    /// Seals where the operator said, if the entry below is there to give the totals.
    pub(super) fn seal_at(&mut self, up_to: EntryId, effects: &mut Vec<RecoveryEffect>) {
        if self.last.is_none_or(|last| last.entry.next() != up_to) {
            self.lost(EntryId(up_to.0 - 1), effects);
            return;
        }
        self.note_loss(LossKind::Accepted, up_to);
        self.end = Some(up_to);
    }

    /// The lowest place stands, and that a loss was accepted.
    pub(super) fn note_loss(&mut self, kind: LossKind, from: EntryId) {
        let (kind, from) = match self.loss {
            None => (kind, from),
            Some(loss) if loss.kind == LossKind::Accepted => (loss.kind, loss.from.min(from)),
            Some(loss) => (kind, loss.from.min(from)),
        };
        let at = self.config.now_ms;
        self.loss = Some(Loss { kind, from, at });
    }

    /// Nothing more is to be expected of those who may hold an entry: each said its last word, or cannot be reached although it was
    /// waited for.
    pub(super) fn given_up_on(&self, now: Duration, reads: &EntryReads) -> bool {
        let waited = now >= self.reading_since + self.patience();
        reads.all(|asked| {
            let unreached = matches!(asked.error, Some(BookieError::NoAnswer { .. }));
            asked.answer.is_some() || asked.hopeless() || waited && unreached
        })
    }
}
