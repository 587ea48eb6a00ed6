//! Objects that nobody names (storage.md O12, O13): what a zombie uploaded after its attempt was given up, or somebody forgot.
//!
//! # Invariants
//! 1. Names are listed first and metadata read afterwards; the attempt of an object stood there before the object could exist, and one
//!    that left never returns. So no clock and no grace is needed, and a stale listing does no harm.
//! 2. A name that is not ours, of this cell and below this prefix, is never touched.
//! 3. Metadata that never gave a ledger's number prove nothing (G2, Z6), and too many objects without an owner are a reason to ask (G3).

use hulse_proto::id::{CellId, LedgerId};
use hulse_proto::ledger::LedgerMetadata;
use hulse_proto::tier::Attempt;

use super::changes::live_segment;
use super::event::{
    Deletion, Found, Step, TierEffect, TierEnd, TierEvent, TierFailure, TierLimits,
};
use super::mutant::TierMutant;
use crate::name::ObjectName;

/// Most objects without an owner that one sweep deletes; the next one goes on.
const ORPHANS_MAX: usize = 1000;
/// So few may always be deleted (G3).
const BREAKER_MIN: u64 = 100;

/// What is swept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Swept {
    /// The cluster.
    pub cell: CellId,
    /// The bucket's name in config.
    pub bucket: String,
    /// What object names begin with.
    pub prefix: String,
    /// Every ledger below this number was given by these metadata.
    pub ledgers_given: LedgerId,
}

/// What a sweep found.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SweepReport {
    /// Segments of this cell.
    pub objects: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Deleted: nobody named them.
    pub deleted: u64,
    /// Objects that are not segments of this cell. They were left alone.
    pub foreign: u64,
    /// Of another length than was committed; at most 100 names.
    pub wrong_length: Vec<String>,
}

enum Phase {
    Listing,
    /// At the owners of one object.
    Looking,
    Deleting,
}

/// One sweep of one bucket. Begins with [`SweepCore::start`].
pub struct SweepCore {
    swept: Swept,
    limits: TierLimits,
    phase: Phase,
    /// Listed and not looked at yet, the last first.
    listed: Vec<(Attempt, Vec<LedgerId>, u64)>,
    last: Option<String>,
    orphans: Vec<Attempt>,
    /// For a mutant: what was seen before the listing.
    seen: Option<Vec<Found>>,
    report: SweepReport,
}

impl SweepCore {
    /// One that has done nothing yet.
    pub fn new(swept: Swept, limits: TierLimits) -> Self {
        Self {
            swept,
            limits,
            phase: Phase::Listing,
            listed: Vec::new(),
            last: None,
            orphans: Vec::new(),
            seen: None,
            report: SweepReport::default(),
        }
    }

    /// The first effect.
    pub fn start(&self) -> Step {
        if self.limits.mutation.is(TierMutant::LookThenList) {
            let all = (0..self.swept.ledgers_given.0).map(LedgerId);
            return Step::look(&all.collect::<Vec<_>>());
        }
        Step::Do(TierEffect::List(None))
    }

    /// Takes the answer to the last effect.
    pub fn on_event(&mut self, event: TierEvent) -> Step {
        match (&self.phase, event) {
            (_, TierEvent::Blind(why)) => Step::failed(TierFailure::Metadata(why)),
            (_, TierEvent::Listed(Err(error)) | TierEvent::Object(Err(error))) => {
                Step::failed(error)
            }
            (Phase::Listing, TierEvent::Listed(Ok(found))) => self.listed(found),
            (Phase::Listing, TierEvent::Looked(found, _)) => {
                self.seen = Some(found);
                Step::Do(TierEffect::List(None))
            }
            (Phase::Looking, TierEvent::Looked(found, _)) => self.looked(&found),
            (Phase::Deleting, TierEvent::Object(Ok(()))) => {
                self.report.deleted = self.orphans.len() as u64;
                self.end()
            }
            _ => Step::out_of_turn(),
        }
    }

    fn end(&mut self) -> Step {
        let report = std::mem::take(&mut self.report);
        Step::End(TierEnd::Swept(Box::new(report)))
    }

    fn listed(&mut self, found: Vec<(String, u64)>) -> Step {
        let Some((last, _)) = found.last() else {
            return self.delete();
        };
        self.last = Some(last.clone());
        let prefix = self.swept.prefix.trim_matches('/');
        for (object, bytes) in found {
            let name = ObjectName::parse(&object);
            let ours =
                name.filter(|(begin, name)| *begin == prefix && name.cell == self.swept.cell);
            let Some((_, name)) = ours else {
                self.report.foreign += 1;
                continue;
            };
            self.report.objects += 1;
            self.report.bytes += bytes;
            let attempt = Attempt {
                id: name.segment,
                bucket: self.swept.bucket.clone(),
                object,
            };
            self.listed.push((attempt, name.ledgers, bytes));
        }
        self.next()
    }

    fn next(&mut self) -> Step {
        if self.orphans.len() >= ORPHANS_MAX {
            return self.delete();
        }
        let Some((_, ledgers, _)) = self.listed.last() else {
            self.phase = Phase::Listing;
            return Step::Do(TierEffect::List(self.last.clone()));
        };
        let unknown = ledgers
            .iter()
            .find(|ledger| **ledger >= self.swept.ledgers_given);
        if let Some(unknown) = unknown {
            return Step::failed(TierFailure::Unknown(*unknown));
        }
        let asked = match self.limits.mutation.is(TierMutant::SweepAsksFirst) {
            true => &ledgers[..1],
            false => &ledgers[..],
        };
        if let Some(seen) = self.seen.clone() {
            return self.looked(&seen);
        }
        self.phase = Phase::Looking;
        Step::look(asked)
    }

    fn looked(&mut self, found: &[Found]) -> Step {
        let Some((attempt, _, bytes)) = self.listed.pop() else {
            return Step::out_of_turn();
        };
        let mut owners = found.iter().flatten().map(|(metadata, _)| metadata);
        let owner = owners.find(|metadata| names(metadata, &attempt));
        match owner {
            None => self.orphans.push(attempt),
            Some(owner) => {
                let committed = live_segment(owner).map(|(segment, _)| segment);
                let committed = committed.filter(|segment| segment.attempt.id == attempt.id);
                let wrong = committed.is_some_and(|segment| segment.object_bytes != bytes);
                if wrong && self.report.wrong_length.len() < 100 {
                    self.report.wrong_length.push(attempt.object);
                }
            }
        }
        self.next()
    }

    fn delete(&mut self) -> Step {
        let orphans = self.orphans.len() as u64;
        if orphans > BREAKER_MIN && orphans > self.report.objects / 10 {
            return Step::failed(TierFailure::Breaker(orphans));
        }
        if orphans == 0 {
            return self.end();
        }
        self.phase = Phase::Deleting;
        Step::Do(TierEffect::Delete(Deletion {
            attempts: self.orphans.clone(),
        }))
    }
}

fn names(metadata: &LedgerMetadata, attempt: &Attempt) -> bool {
    let tier = metadata.tier.as_deref();
    tier.is_some_and(|tier| tier.names(attempt.id))
}
