//! A ledger that is being deleted (storage.md O10, O11): its objects go while its key, marked, still says that they are to go.
//!
//! Of a ledger that shares an object with others the object stays, as long as one of them can be read from it. Each marks itself before
//! it looks at the others, so of two that leave at once the later one sees the earlier one's mark: no object is left to nobody.

use hulse_proto::id::LedgerId;
use hulse_proto::ledger::{LedgerMetadata, LedgerState};
use hulse_proto::tier::{Attempt, LocalCopies};

use super::changes::holders;
use super::dropping::{sharers, unread};
use super::event::{
    Change, Deletion, Found, Step, TierEffect, TierEnd, TierEvent, TierFailure, TierLimits, Version,
};
use super::mutant::TierMutant;

enum Phase {
    Looking,
    Burying,
    LookingAround(Vec<Attempt>),
    Deleting,
    LookingAgain,
    Removing,
}

/// The end of one ledger that is marked as deleting: tombstones, objects, key. Begins with [`RemovalCore::start`].
pub struct RemovalCore {
    ledger: LedgerId,
    limits: TierLimits,
    phase: Phase,
    /// Everybody who may have a copy has its tombstone.
    buried: bool,
    /// Objects that are deleted, or others'.
    gone: Vec<Attempt>,
    tries: u32,
}

impl RemovalCore {
    /// One that has done nothing yet.
    pub fn new(ledger: LedgerId, limits: TierLimits) -> Self {
        Self {
            ledger,
            limits,
            phase: Phase::Looking,
            buried: false,
            gone: Vec::new(),
            tries: 0,
        }
    }

    /// The first effect.
    pub fn start(&self) -> Step {
        Step::look(&[self.ledger])
    }

    /// Takes the answer to the last effect.
    pub fn on_event(&mut self, event: TierEvent) -> Step {
        let phase = std::mem::replace(&mut self.phase, Phase::Looking);
        match (phase, event) {
            (_, TierEvent::Blind(why) | TierEvent::Silent(why)) => {
                Step::failed(TierFailure::Metadata(why))
            }
            (Phase::Looking | Phase::LookingAgain, TierEvent::Looked(mut found, _)) => {
                match found.pop() {
                    Some(Some((metadata, version))) => self.looked(&metadata, version),
                    _ => Step::End(TierEnd::Done { bytes: 0 }),
                }
            }
            (Phase::Burying, TierEvent::Dropped(Ok(()))) => {
                self.buried = true;
                self.phase = Phase::LookingAgain;
                self.start()
            }
            (Phase::Burying, TierEvent::Dropped(Err(why))) => {
                Step::failed(TierFailure::Copies(why))
            }
            (Phase::LookingAround(attempts), TierEvent::Looked(found, _)) => {
                self.delete(attempts, &found)
            }
            (Phase::Deleting, TierEvent::Object(Ok(()))) => {
                self.phase = Phase::LookingAgain;
                self.start()
            }
            (Phase::Deleting, TierEvent::Object(Err(error))) => Step::failed(error),
            (Phase::Removing, TierEvent::Committed) => Step::End(TierEnd::Done { bytes: 0 }),
            (Phase::Removing, TierEvent::Beaten) => {
                self.tries += 1;
                match self.tries < self.limits.tries_max {
                    true => self.start(),
                    false => Step::failed(TierFailure::Changing),
                }
            }
            _ => Step::out_of_turn(),
        }
    }

    fn looked(&mut self, metadata: &LedgerMetadata, version: Version) -> Step {
        let unmarked = self.limits.mutation.is(TierMutant::DeleteUnmarked);
        if metadata.state != LedgerState::Deleting && !unmarked {
            return Step::failed(TierFailure::NotMarked);
        }
        let tier = metadata.tier.as_deref();
        // Bookies that dropped their copies have its tombstone, and may be retired by now.
        let dropped = tier.is_some_and(|tier| tier.local == LocalCopies::Dropped);
        if !self.buried && !dropped {
            self.phase = Phase::Burying;
            return Step::Do(TierEffect::DropCopies(self.ledger, holders(metadata)));
        }
        let attempts = tier.into_iter().flat_map(|tier| tier.attempts());
        let left = attempts.filter(|attempt| !self.gone.contains(attempt));
        let left: Vec<Attempt> = left.cloned().collect();
        if left.is_empty() || self.limits.mutation.is(TierMutant::KeyFirst) {
            self.phase = Phase::Removing;
            return Step::Do(TierEffect::Propose(vec![Change {
                ledger: self.ledger,
                version,
                value: None,
            }]));
        }
        if self.limits.mutation.is(TierMutant::SharersForgotten) {
            return self.delete(left, &[]);
        }
        match sharers(&left) {
            Ok(ledgers) => {
                self.phase = Phase::LookingAround(left);
                Step::look(&ledgers)
            }
            Err(failure) => Step::failed(failure),
        }
    }

    fn delete(&mut self, attempts: Vec<Attempt>, found: &[Found]) -> Step {
        let unread = match self.limits.mutation.is(TierMutant::DeleteUnmarked) {
            true => attempts.clone(),
            false => unread(&attempts, found),
        };
        self.gone.extend(attempts);
        self.phase = Phase::Deleting;
        Step::Do(TierEffect::Delete(Deletion { attempts: unread }))
    }
}
