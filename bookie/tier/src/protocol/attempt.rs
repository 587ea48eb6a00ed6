//! One attempt: an object of one or several ledgers of a partition, from the intent to the commit (storage.md O2 to O7, O17).

use hulse_proto::id::{CellId, EntryId, LedgerId, PartitionId, SegmentId};
use hulse_proto::ledger::LedgerMetadata;
use hulse_proto::tier::{Attempt, Segment};

use super::changes::{holds_intent, may_attempt, with_intent, with_segment};
use super::event::{
    Change, Found, Fresh, Step, TierEffect, TierEnd, TierEvent, TierFailure, TierLimits,
    UploadError, UploadOrder, Uploaded, Version,
};
use super::mutant::TierMutant;
use crate::name::{self, ObjectName};

/// What is to be tiered, and where to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AttemptTask {
    /// The cluster.
    pub cell: CellId,
    /// In order; all of one partition. Those that cannot be tiered now are left out.
    pub ledgers: Vec<LedgerId>,
    /// The bucket's name in config.
    pub bucket: String,
    /// What object names begin with.
    pub prefix: String,
}

enum Phase {
    Looking,
    Intending,
    Uploading,
    Verifying,
    LookingAgain,
    Committing,
}

/// One attempt. Begins with [`AttemptCore::start`].
pub struct AttemptCore {
    task: AttemptTask,
    limits: TierLimits,
    phase: Phase,
    /// The ledgers that go into the object, as they were at the intent.
    ledgers: Vec<(LedgerId, LedgerMetadata)>,
    attempt: Option<Attempt>,
    uploaded: Option<Box<Uploaded>>,
    tries: u32,
}

impl AttemptCore {
    /// One that has done nothing yet.
    pub fn new(task: AttemptTask, limits: TierLimits) -> Self {
        Self {
            task,
            limits,
            phase: Phase::Looking,
            ledgers: Vec::new(),
            attempt: None,
            uploaded: None,
            tries: 0,
        }
    }

    /// The first effect.
    pub fn start(&self) -> Step {
        Step::look(&self.task.ledgers)
    }

    /// Takes the answer to the last effect.
    pub fn on_event(&mut self, event: TierEvent) -> Step {
        match (&self.phase, event) {
            (_, TierEvent::Blind(why) | TierEvent::Silent(why)) => {
                Step::failed(TierFailure::Metadata(why))
            }
            (Phase::Looking, TierEvent::Looked(found, fresh)) => self.intend(found, fresh),
            (Phase::Intending, TierEvent::Committed) => self.upload(),
            (Phase::Intending, TierEvent::Beaten) => self.again(Phase::Looking),
            (Phase::Uploading, TierEvent::Uploaded(Ok(uploaded))) => self.verify(uploaded),
            (Phase::Uploading, TierEvent::Uploaded(Err(error))) => Step::failed(error),
            (Phase::Verifying, TierEvent::Object(Ok(()))) => self.look_again(),
            (Phase::Verifying, TierEvent::Object(Err(error))) => {
                Step::failed(UploadError::Object(error))
            }
            (Phase::LookingAgain, TierEvent::Looked(found, fresh)) => self.commit(found, fresh),
            (Phase::Committing, TierEvent::Committed) => self.done(),
            (Phase::Committing, TierEvent::Beaten) => self.again(Phase::LookingAgain),
            _ => Step::out_of_turn(),
        }
    }

    fn done(&self) -> Step {
        let uploaded = self.uploaded.as_ref();
        let bytes = uploaded.map_or(0, |uploaded| uploaded.written.object_bytes);
        Step::End(TierEnd::Done { bytes })
    }

    fn again(&mut self, phase: Phase) -> Step {
        self.tries += 1;
        if self.tries >= self.limits.tries_max {
            return Step::failed(TierFailure::Changing);
        }
        match phase {
            Phase::LookingAgain => self.look_again(),
            _ => {
                self.phase = Phase::Looking;
                self.start()
            }
        }
    }

    fn intend(&mut self, found: Vec<Found>, fresh: Fresh) -> Step {
        let asked = self.task.ledgers.iter().copied();
        let mut chosen: Vec<(LedgerId, LedgerMetadata, Version)> = Vec::new();
        let mut partition: Option<PartitionId> = None;
        for (ledger, found) in asked.zip(found) {
            let fit = found.filter(|(metadata, _)| may_attempt(metadata));
            let Some((metadata, version)) = fit else {
                continue;
            };
            if *partition.get_or_insert(metadata.partition) == metadata.partition {
                chosen.push((ledger, metadata, version));
            }
        }
        let ledgers: Vec<LedgerId> = chosen.iter().map(|(ledger, ..)| *ledger).collect();
        let (Some(partition), true) = (partition, name::fits(&ledgers)) else {
            return Step::End(TierEnd::Needless);
        };
        let name = ObjectName {
            cell: self.task.cell,
            partition,
            ledgers,
            segment: fresh.segment,
        };
        let attempt = Attempt {
            id: fresh.segment,
            bucket: self.task.bucket.clone(),
            object: name.to_name(&self.task.prefix),
        };
        let changes = chosen.iter().map(|(ledger, metadata, version)| {
            let value = with_intent(metadata, &attempt, fresh.nonce)?;
            Some(Change {
                ledger: *ledger,
                version: *version,
                value: Some(value),
            })
        });
        let Some(changes) = changes.collect::<Option<Vec<Change>>>() else {
            return Step::failed(TierFailure::Garbage);
        };
        let pairs = chosen
            .into_iter()
            .map(|(ledger, metadata, _)| (ledger, metadata));
        self.ledgers = pairs.collect();
        self.attempt = Some(attempt);
        if self.limits.mutation.is(TierMutant::UploadBeforeIntent) {
            return self.upload();
        }
        self.phase = Phase::Intending;
        Step::Do(TierEffect::Propose(changes))
    }

    fn upload(&mut self) -> Step {
        let Some(attempt) = self.attempt.clone() else {
            return Step::out_of_turn();
        };
        self.phase = Phase::Uploading;
        let ledgers = self.ledgers.clone();
        Step::Do(TierEffect::Upload(Box::new(UploadOrder {
            attempt,
            ledgers,
        })))
    }

    fn verify(&mut self, uploaded: Box<Uploaded>) -> Step {
        self.uploaded = Some(uploaded.clone());
        let Some(attempt) = self.attempt.clone() else {
            return Step::out_of_turn();
        };
        if self.limits.mutation.is(TierMutant::CommitUnverified) {
            return self.look_again();
        }
        self.phase = Phase::Verifying;
        Step::Do(TierEffect::Verify(attempt, uploaded))
    }

    fn look_again(&mut self) -> Step {
        self.phase = Phase::LookingAgain;
        let ledgers: Vec<LedgerId> = self.ledgers.iter().map(|(ledger, _)| *ledger).collect();
        Step::look(&ledgers)
    }

    fn commit(&mut self, found: Vec<Found>, fresh: Fresh) -> Step {
        let (Some(attempt), Some(uploaded)) = (&self.attempt, &self.uploaded) else {
            return Step::out_of_turn();
        };
        let blindly = self.limits.mutation.is(TierMutant::CommitBlindly);
        let mut changes = Vec::with_capacity(found.len());
        for ((ledger, before), found) in self.ledgers.iter().zip(found) {
            // Somebody deletes it, or began another attempt: this one is void, whatever was uploaded (O7).
            let stands =
                |metadata: &LedgerMetadata| blindly || stands(metadata, before, attempt.id);
            let found = found.filter(|(metadata, _)| stands(metadata));
            let segment = segment_of(attempt, uploaded, *ledger);
            let (Some((metadata, version)), Some(segment)) = (found, segment) else {
                return Step::failed(TierFailure::Changing);
            };
            changes.push(Change {
                ledger: *ledger,
                version,
                value: Some(with_segment(&metadata, segment, fresh.nonce)),
            });
        }
        self.phase = Phase::Committing;
        Step::Do(TierEffect::Propose(changes))
    }
}

/// The intent still stands, and the ledger is the one that was uploaded.
fn stands(metadata: &LedgerMetadata, before: &LedgerMetadata, id: SegmentId) -> bool {
    holds_intent(metadata, id) && metadata.closed == before.closed
}

/// Where a ledger is in what was uploaded; `None` when it is not, or not whole.
fn segment_of(attempt: &Attempt, uploaded: &Uploaded, ledger: LedgerId) -> Option<Segment> {
    let written = &uploaded.written;
    let row = written.directory.row(ledger)?;
    let right = written.segment == attempt.id && row.end > EntryId(0);
    right.then(|| Segment {
        attempt: attempt.clone(),
        object_bytes: written.object_bytes,
        etag: uploaded.etag.clone(),
        first_byte: row.first_byte,
        index_at: row.index_at,
        index_bytes: row.index_bytes,
        index_crc: row.index_crc,
    })
}
