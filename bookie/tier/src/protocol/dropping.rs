//! What follows a commit: objects of earlier attempts go, the segment is read back, and bookies drop their copies (storage.md O8, G5).
//!
//! Each step looks first and does what metadata show as the next thing, so another one can go on where this one stopped.

use hulse_proto::id::LedgerId;
use hulse_proto::ledger::{LedgerMetadata, LedgerState};
use hulse_proto::tier::{Attempt, LocalCopies, Segment};

use super::changes::{holders, is_read_from, live_segment, with_local, withdrawn, without_garbage};
use super::event::{
    Change, Deletion, Found, Fresh, ObjectError, Step, TierEffect, TierEnd, TierEvent, TierFailure,
    TierLimits, Version,
};
use super::mutant::TierMutant;
use crate::name::ObjectName;

enum Phase {
    Looking,
    /// At those who may be read from the objects of earlier attempts.
    LookingAround(Vec<Attempt>),
    Cleaning(Vec<Attempt>),
    ReadingBack(Box<Segment>),
    Proposing,
    Dropping,
}

/// What is known since the last look, and still to be written down.
enum Known {
    Nothing,
    /// These objects are gone, or are another ledger's.
    Cleaned(Vec<Attempt>),
    /// This segment was read back.
    ReadBack(Box<Segment>),
    /// This one is bad.
    Bad(Box<Segment>, ObjectError),
    /// No bookie has a copy.
    Dropped,
}

/// From a commit to the end of local copies, of one ledger.
pub struct DropCore {
    ledger: LedgerId,
    limits: TierLimits,
    phase: Phase,
    known: Known,
    tries: u32,
    bad: Option<ObjectError>,
    did: bool,
}

impl DropCore {
    /// One that has done nothing yet.
    pub fn new(ledger: LedgerId, limits: TierLimits) -> Self {
        Self {
            ledger,
            limits,
            phase: Phase::Looking,
            known: Known::Nothing,
            tries: 0,
            bad: None,
            did: false,
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
            (Phase::Looking, TierEvent::Looked(found, fresh)) => self.looked(found, fresh),
            (Phase::LookingAround(garbage), TierEvent::Looked(found, _)) => {
                self.clean(garbage, &found)
            }
            (Phase::Cleaning(garbage), TierEvent::Object(Ok(()))) => {
                self.look_with(Known::Cleaned(garbage))
            }
            (Phase::Cleaning(_), TierEvent::Object(Err(error))) => Step::failed(error),
            (Phase::ReadingBack(segment), TierEvent::Object(Ok(()))) => {
                self.look_with(Known::ReadBack(segment))
            }
            (Phase::ReadingBack(segment), TierEvent::Object(Err(error))) => {
                match error.is_proof() {
                    true => self.look_with(Known::Bad(segment, error)),
                    false => Step::failed(error),
                }
            }
            (Phase::Proposing, TierEvent::Committed) => match self.bad.take() {
                Some(error) => Step::End(TierEnd::Withdrawn(error)),
                None => {
                    self.did = true;
                    self.look_with(Known::Nothing)
                }
            },
            (Phase::Proposing, TierEvent::Beaten) => {
                self.tries += 1;
                self.bad = None;
                match self.tries < self.limits.tries_max {
                    true => self.look_with(Known::Nothing),
                    false => Step::failed(TierFailure::Changing),
                }
            }
            (Phase::Dropping, TierEvent::Dropped(Ok(()))) => self.look_with(Known::Dropped),
            (Phase::Dropping, TierEvent::Dropped(Err(why))) => {
                Step::failed(TierFailure::Copies(why))
            }
            _ => Step::out_of_turn(),
        }
    }

    fn look_with(&mut self, known: Known) -> Step {
        self.known = known;
        self.phase = Phase::Looking;
        self.start()
    }

    fn looked(&mut self, mut found: Vec<Found>, fresh: Fresh) -> Step {
        let Some(Some((metadata, version))) = found.pop() else {
            return Step::End(TierEnd::Needless);
        };
        if metadata.state != LedgerState::Closed {
            return Step::End(TierEnd::Needless);
        }
        let known = std::mem::replace(&mut self.known, Known::Nothing);
        if let Known::Cleaned(gone) = &known {
            let value = without_garbage(&metadata, gone, fresh.nonce);
            return self.propose(version, value);
        }
        let tier = metadata.tier.as_deref();
        let garbage = tier.map_or(&[][..], |tier| &tier.garbage);
        if !garbage.is_empty() && matches!(known, Known::Nothing) {
            return self.look_around(garbage.to_vec());
        }
        self.go_on(&metadata, version, fresh, known)
    }

    fn go_on(
        &mut self,
        metadata: &LedgerMetadata,
        version: Version,
        fresh: Fresh,
        known: Known,
    ) -> Step {
        let Some((segment, local)) = live_segment(metadata) else {
            return Step::End(self.end());
        };
        let unread = self.limits.mutation.is(TierMutant::DropUnread);
        match (local, known) {
            (LocalCopies::Held, Known::ReadBack(read)) if *read == *segment => {
                if self.limits.mutation.is(TierMutant::DropUnmarked) {
                    return self.drop_copies(metadata);
                }
                let value = with_local(metadata, LocalCopies::Dropping, fresh.nonce);
                self.propose(version, value)
            }
            (LocalCopies::Held, Known::Bad(read, error)) if *read == *segment => {
                match withdrawn(metadata, fresh.nonce) {
                    Some(value) => {
                        self.bad = Some(error);
                        self.propose(version, value)
                    }
                    None => Step::failed(TierFailure::Garbage),
                }
            }
            (LocalCopies::Held, _) if unread => {
                let value = with_local(metadata, LocalCopies::Dropping, fresh.nonce);
                self.propose(version, value)
            }
            (LocalCopies::Held, _) => {
                let segment = Box::new(segment.clone());
                self.phase = Phase::ReadingBack(segment.clone());
                Step::Do(TierEffect::ReadBack(self.ledger, segment))
            }
            (LocalCopies::Dropping, Known::Dropped) => {
                let value = with_local(metadata, LocalCopies::Dropped, fresh.nonce);
                self.propose(version, value)
            }
            (LocalCopies::Dropping, _) => self.drop_copies(metadata),
            (LocalCopies::Dropped, _) => Step::End(self.end()),
        }
    }

    fn end(&self) -> TierEnd {
        match self.did {
            true => TierEnd::Done { bytes: 0 },
            false => TierEnd::Needless,
        }
    }

    fn propose(&mut self, version: Version, value: Box<LedgerMetadata>) -> Step {
        self.phase = Phase::Proposing;
        Step::Do(TierEffect::Propose(vec![Change {
            ledger: self.ledger,
            version,
            value: Some(value),
        }]))
    }

    fn drop_copies(&mut self, metadata: &LedgerMetadata) -> Step {
        self.phase = Phase::Dropping;
        Step::Do(TierEffect::DropCopies(self.ledger, holders(metadata)))
    }

    fn look_around(&mut self, garbage: Vec<Attempt>) -> Step {
        match sharers(&garbage) {
            Ok(sharers) => {
                self.phase = Phase::LookingAround(garbage);
                Step::look(&sharers)
            }
            Err(failure) => Step::failed(failure),
        }
    }

    fn clean(&mut self, garbage: Vec<Attempt>, found: &[Found]) -> Step {
        let attempts = unread(&garbage, found);
        self.phase = Phase::Cleaning(garbage);
        Step::Do(TierEffect::Delete(Deletion { attempts }))
    }
}

/// Every ledger that the names of these objects hold.
pub(super) fn sharers(attempts: &[Attempt]) -> Result<Vec<LedgerId>, TierFailure> {
    let mut ledgers = Vec::new();
    for attempt in attempts {
        let Some((_, name)) = ObjectName::parse(&attempt.object) else {
            return Err(TierFailure::Name(attempt.object.clone()));
        };
        ledgers.extend(name.ledgers);
    }
    ledgers.sort_unstable();
    ledgers.dedup();
    Ok(ledgers)
}

/// Those of which no ledger is read.
pub(super) fn unread(attempts: &[Attempt], found: &[Found]) -> Vec<Attempt> {
    let is_read = |attempt: &&Attempt| {
        let mut found = found.iter().flatten();
        !found.any(|(metadata, _)| is_read_from(metadata, attempt.id))
    };
    attempts.iter().filter(is_read).cloned().collect()
}
