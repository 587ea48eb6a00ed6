//! Local ensemble changes (R9): a member that fails during write-back is replaced in this attempt's copy of the metadata only.
//!
//! # Invariants
//! 1. A local fragment begins at the lowest entry that is not yet written back, and all from there on go to its members: an entry
//!    below it has its copies in the fragment before.
//! 2. Fences and reads go on to the frozen ensemble (R3); only adds go to replacements.
//! 3. Metadata learn of it by the close alone, on the version that the start wrote (R10).

use std::time::Duration;

use bookie_metadata::MetadataError;
use hulse_proto::id::EntryId;
use hulse_proto::ledger::{Fragment, Member};
use hulse_proto::mutant::Mutant;

use super::core::RecoveryCore;
use super::event::RecoveryEffect;
use crate::directory::Candidate;
use crate::placement::{self, Room};

/// Between two lists of candidates that name nobody.
const LIST_AGAIN: Duration = Duration::from_secs(1);

/// The ensembles that write-back goes to.
#[derive(Debug, Default)]
pub(super) struct Local {
    /// Begins as the frozen last fragment; never empty from the end of fencing on.
    pub(super) fragments: Vec<Fragment>,
    /// Replaced members; none is taken again. Each was replaced once, so bounded by the cell's bookies.
    failed: Vec<Member>,
    /// Candidates are being listed.
    listing: bool,
    /// Nobody was found; not asked again before.
    none_until: Option<Duration>,
}

impl Local {
    pub(super) fn new(last: Fragment) -> Self {
        Self {
            fragments: vec![last],
            ..Self::default()
        }
    }

    /// Who an entry is written back to.
    pub(super) fn ensemble_of(&self, entry: EntryId) -> &[Member] {
        let after = self
            .fragments
            .partition_point(|fragment| fragment.first <= entry);
        &self.fragments[after.saturating_sub(1)].ensemble
    }

    /// True when nobody is there to replace a member.
    pub(super) fn is_alone(&self) -> bool {
        self.none_until.is_some()
    }

    /// When candidates may be listed again.
    pub(super) fn wakeup(&self) -> Option<Duration> {
        self.none_until
    }
}

impl RecoveryCore {
    /// Asks who could replace members that fail to take the oldest entry.
    pub(super) fn look_for_bookies(&mut self, now: Duration, effects: &mut Vec<RecoveryEffect>) {
        let waits = self.local.none_until.is_some_and(|until| now < until);
        if self.local.listing || waits || self.quorums().ensemble == 1 {
            return;
        }
        if !self.failing(now).is_empty() {
            self.local.listing = true;
            effects.push(RecoveryEffect::ListBookies);
        }
    }

    /// Positions that fail to take the oldest entry.
    fn failing(&self, now: Duration) -> Vec<usize> {
        let head = self.writes.first_key_value();
        head.map(|(_, write)| write.failing(now))
            .unwrap_or_default()
    }

    /// Takes the answer to [`RecoveryEffect::ListBookies`].
    pub(super) fn listed(&mut self, now: Duration, result: Result<Vec<Candidate>, MetadataError>) {
        self.local.listing = false;
        let failing = self.failing(now);
        let Some((first, _)) = self
            .writes
            .first_key_value()
            .filter(|_| !failing.is_empty())
        else {
            return;
        };
        let first = *first;
        let ensemble = self.local.ensemble_of(EntryId(u64::MAX)).to_vec();
        let candidates = result.unwrap_or_default();
        // Recovery adds pass on read-only bookies, so those will do (amended D1).
        let room = Room::ForTheRest;
        let replaced =
            placement::replace(room, &ensemble, &failing, &self.local.failed, &candidates);
        if replaced.is_empty() {
            self.local.none_until = Some(now + LIST_AGAIN);
            return;
        }
        self.local.none_until = None;
        self.change_locally(now, first, ensemble, &replaced);
    }

    fn change_locally(
        &mut self,
        now: Duration,
        first: EntryId,
        mut ensemble: Vec<Member>,
        replaced: &[(usize, Member)],
    ) {
        let (pace, quorums) = (self.pace(), self.quorums());
        let first = self.too_low().unwrap_or(first);
        for (position, member) in replaced {
            let old = std::mem::replace(&mut ensemble[*position], member.clone());
            self.local.failed.push(old);
        }
        let fragments = &mut self.local.fragments;
        fragments.retain(|fragment| fragment.first < first);
        fragments.push(Fragment { first, ensemble });
        for (entry, write) in &mut self.writes {
            for (position, _) in replaced {
                if crate::quorum::in_write_set(quorums, *entry, *position) {
                    write.restart(now, *position, pace);
                }
            }
        }
    }

    /// By mutation: where the last local fragment begins, although entries were written back to it.
    fn too_low(&self) -> Option<EntryId> {
        if self.config.mutation.is(Mutant::LocalChangeTooLow) {
            return self.local.fragments.last().map(|last| last.first);
        }
        None
    }
}
