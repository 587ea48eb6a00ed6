//! One recovery attempt: its life, and its two changes of metadata (R1, R2, R10, R12).
//!
//! # Invariants
//! 1. All fences and reads go to the ensemble that stood when the token was taken; it never changes within the attempt (R3).
//! 2. An answer of the UNKNOWN class never counts as a negative (R6), unless an operator said so (R14).
//! 3. The end is decided in entry order, once; an entry below it has Qa copies in the recorded ensemble before the close is sent.
//! 4. Recovery adds carry the base that the fences gave, never more (R8).
//! 5. The close compares the exact version that the start wrote (R10).

use std::collections::BTreeMap;
use std::time::Duration;

use bookie_metadata::{MetadataError, Revision, Versioned};
use hulse_proto::bookie::{Address, BookieError};
use hulse_proto::entry::EntryHeader;
use hulse_proto::id::{EntryId, FenceToken};
use hulse_proto::ledger::{
    Degraded, LedgerMetadata, LedgerState, Loss, Member, Quorums, ledger_key,
};

use super::asked::{Asked, Pace};
use super::event::{RecoveryConfig, RecoveryEffect, RecoveryEvent};
use super::fencing::Fencing;
use super::local_change::Local;
use super::reading::EntryReads;
use super::write_back::WriteBack;
use crate::error::{GuardFailed, MemberAnswer, MemberAnswers, RecoverError};
use crate::metadata::{NonceField, Proposal, ProposalOutcome, ProposalStep};

/// Where the attempt stands.
#[derive(Debug)]
pub(super) enum Phase {
    /// Reading the ledger's key (R1).
    Looking,
    /// Taking a token (R2).
    Starting(Box<Proposal>),
    /// Fencing (R4).
    Fencing(Fencing),
    /// Finding the end and writing back (R6–R8).
    Reading,
    /// Closing (R10).
    Closing(Box<Proposal>),
    /// Over.
    Done,
}

/// A request to the metadata store that waits for its time.
#[derive(Debug)]
struct Again {
    at: Duration,
    step: ProposalStep,
}

/// One attempt to recover one ledger as a state machine: no I/O, no clock. `now` is the time since it was made.
#[derive(Debug)]
pub struct RecoveryCore {
    pub(super) config: RecoveryConfig,
    pub(super) phase: Phase,
    /// The ledger as the start wrote it, and its version.
    pub(super) metadata: Option<(LedgerMetadata, Revision)>,
    /// The confirmed end that the fences gave (R5); frozen.
    pub(super) base: EntryId,
    /// When the fences had given it.
    pub(super) reading_since: Duration,
    /// The entry to be decided next.
    pub(super) next: EntryId,
    /// The last entry that was accepted.
    pub(super) last: Option<EntryHeader>,
    /// Looking for the entry below the base, whose totals the ledger's totals begin with.
    pub(super) anchoring: bool,
    /// The entry below the base is given up (R14).
    pub(super) anchor_lost: bool,
    /// Exclusive end of the highest entry that a fence reported.
    pub(super) held_end: EntryId,
    pub(super) records: u64,
    pub(super) end: Option<EntryId>,
    pub(super) loss: Option<Loss>,
    pub(super) reads: BTreeMap<EntryId, EntryReads>,
    pub(super) writes: BTreeMap<EntryId, WriteBack>,
    pub(super) lacking: Vec<Degraded>,
    pub(super) local: Local,
    again: Option<Again>,
    metadata_wait: Duration,
    /// Time of the last event.
    seen: Duration,
}

impl RecoveryCore {
    /// An attempt that has not begun.
    pub fn new(config: RecoveryConfig) -> Self {
        Self {
            metadata_wait: config.retry_initial,
            config,
            phase: Phase::Looking,
            metadata: None,
            base: EntryId(0),
            reading_since: Duration::ZERO,
            next: EntryId(0),
            last: None,
            anchoring: false,
            anchor_lost: false,
            held_end: EntryId(0),
            records: 0,
            end: None,
            loss: None,
            reads: BTreeMap::new(),
            writes: BTreeMap::new(),
            lacking: Vec::new(),
            local: Local::default(),
            again: None,
            seen: Duration::ZERO,
        }
    }

    /// True when [`RecoveryEffect::Done`] was said.
    pub fn is_done(&self) -> bool {
        matches!(self.phase, Phase::Done)
    }

    /// Takes one event.
    pub fn on_event(&mut self, now: Duration, event: RecoveryEvent) -> Vec<RecoveryEffect> {
        let mut effects = Vec::new();
        self.seen = now;
        if self.is_done() {
            return effects;
        }
        match event {
            RecoveryEvent::Start => {
                effects.push(RecoveryEffect::ReadMetadata(ledger_key(self.config.ledger)));
            }
            RecoveryEvent::MetadataRead(answer) => self.metadata_read(now, answer, &mut effects),
            RecoveryEvent::MetadataAnswer(answer) => {
                if let Phase::Starting(proposal) | Phase::Closing(proposal) = &mut self.phase {
                    let step = proposal.on_answer(answer);
                    self.metadata_step(now, step, &mut effects);
                }
            }
            RecoveryEvent::Fenced { position, result } => {
                self.fenced(now, position, result, &mut effects)
            }
            RecoveryEvent::Read {
                position,
                entry,
                result,
            } => {
                self.read(now, position, entry, result, &mut effects);
            }
            RecoveryEvent::Added {
                position,
                entry,
                from,
                result,
            } => {
                if let Some(error) = self.added(now, position, entry, &from, result) {
                    self.stale(&error, &mut effects);
                }
            }
            RecoveryEvent::Listed(result) => self.listed(now, result),
            RecoveryEvent::Tick => {}
        }
        self.pump(now, &mut effects);
        effects
    }

    /// When [`RecoveryEvent::Tick`] is due.
    pub fn next_wakeup(&self) -> Option<Duration> {
        if self.is_done() {
            return None;
        }
        let pace = self.pace();
        let again = self.again.as_ref().map(|again| again.at);
        let asked: Vec<Duration> = match &self.phase {
            Phase::Fencing(fencing) => fencing.wakeups(pace, self.patience()).collect(),
            Phase::Reading => {
                let reads = self.reads.values().flat_map(|reads| reads.wakeups(pace));
                let writes = self.writes.values().flat_map(|write| write.wakeups(pace));
                let patience = self
                    .reads
                    .get(&self.next)
                    .map(|reads| reads.since() + self.patience());
                let list = self.local.wakeup().filter(|_| !self.writes.is_empty());
                reads.chain(writes).chain(patience).chain(list).collect()
            }
            _ => Vec::new(),
        };
        // What was due at the last event has been done then, so only later times count.
        let later = asked.into_iter().filter(|at| *at > self.seen);
        again
            .into_iter()
            .chain(later)
            .chain([self.config.deadline])
            .min()
    }

    pub(super) fn pace(&self) -> Pace {
        Pace {
            initial: self.config.retry_initial,
            max: self.config.retry_max,
            patience: self.config.answer_timeout,
        }
    }

    /// The ledger as the start wrote it.
    ///
    /// # Panics
    /// Never after the start is committed, and nobody asks before.
    pub(super) fn ledger(&self) -> &LedgerMetadata {
        &self
            .metadata
            .as_ref()
            .expect("set when the start is committed")
            .0
    }

    pub(super) fn quorums(&self) -> Quorums {
        self.ledger().quorums
    }

    pub(super) fn token(&self) -> FenceToken {
        self.ledger().recovery_token
    }

    pub(super) fn address(&self, member: &Member) -> Address {
        Address {
            cell: self.config.cell,
            incarnation: member.incarnation,
            ledger: self.config.ledger,
        }
    }

    pub(super) fn finish(
        &mut self,
        result: Result<LedgerMetadata, RecoverError>,
        effects: &mut Vec<RecoveryEffect>,
    ) {
        self.phase = Phase::Done;
        self.reads.clear();
        self.writes.clear();
        self.again = None;
        effects.push(RecoveryEffect::Done(result));
    }

    /// A member knows of a newer token: someone else is at work (R4).
    pub(super) fn stale(&mut self, error: &BookieError, effects: &mut Vec<RecoveryEffect>) -> bool {
        let stale = matches!(error, BookieError::StaleToken { .. });
        if stale {
            let ledger = self.config.ledger;
            self.finish(Err(RecoverError::Superseded { ledger }), effects);
        }
        stale
    }

    /// Does everything that is due.
    fn pump(&mut self, now: Duration, effects: &mut Vec<RecoveryEffect>) {
        if let Some(again) = self.again.take_if(|again| again.at <= now) {
            push_step(again.step, effects);
        }
        if matches!(self.phase, Phase::Fencing(_)) {
            self.pump_fencing(now, effects);
        }
        if matches!(self.phase, Phase::Reading) {
            self.pump_reading(now, effects);
        }
        if !self.is_done() && now >= self.config.deadline {
            let error = self.out_of_time();
            self.finish(Err(error), effects);
        }
    }

    fn out_of_time(&self) -> RecoverError {
        let unavailable = |why: &str| MetadataError::Unavailable {
            why: why.to_owned(),
        };
        match &self.phase {
            Phase::Starting(proposal) | Phase::Closing(proposal) => RecoverError::Metadata(
                proposal
                    .last_error()
                    .cloned()
                    .unwrap_or_else(|| unavailable("no answer in time")),
            ),
            Phase::Fencing(fencing) => RecoverError::Unavailable {
                ledger: self.config.ledger,
                entry: self.ledger().last_fragment().first,
                deadline: self.config.deadline,
                members: fencing.answers(&self.ledger().last_fragment().ensemble),
            },
            Phase::Reading => RecoverError::Unavailable {
                ledger: self.config.ledger,
                entry: self.undecided(),
                deadline: self.config.deadline,
                members: self.reading_answers(),
            },
            Phase::Looking | Phase::Done => {
                RecoverError::Metadata(unavailable("no answer in time"))
            }
        }
    }

    fn metadata_read(
        &mut self,
        now: Duration,
        answer: Result<Option<Versioned>, MetadataError>,
        effects: &mut Vec<RecoveryEffect>,
    ) {
        match &mut self.phase {
            Phase::Looking => match answer {
                Ok(found) => self.look(found, effects),
                Err(MetadataError::Unavailable { .. } | MetadataError::OutcomeUnknown { .. }) => {
                    let key = ledger_key(self.config.ledger);
                    self.later(now, ProposalStep::Read(key));
                }
                Err(error) => self.finish(Err(error.into()), effects),
            },
            Phase::Starting(proposal) | Phase::Closing(proposal) => {
                let step = proposal.on_read(answer);
                self.metadata_step(now, step, effects);
            }
            _ => {}
        }
    }

    /// R1, R2: a closed ledger is done; any other gets a new token, also one that is in recovery already.
    fn look(&mut self, found: Option<Versioned>, effects: &mut Vec<RecoveryEffect>) {
        let ledger = self.config.ledger;
        let Some(found) = found else {
            return self.finish(Err(RecoverError::NotFound { ledger }), effects);
        };
        let mut metadata = match LedgerMetadata::decode(&found.value) {
            Ok(metadata) => metadata,
            Err(why) => return self.finish(Err(RecoverError::Unreadable { ledger, why }), effects),
        };
        match metadata.state {
            LedgerState::Closed => return self.finish(Ok(metadata), effects),
            LedgerState::Deleting => {
                return self.finish(Err(RecoverError::Deleting { ledger }), effects);
            }
            LedgerState::Open | LedgerState::InRecovery => {}
        }
        metadata.state = LedgerState::InRecovery;
        metadata.recovery_token = FenceToken(metadata.recovery_token.0 + 1);
        metadata.recovery_nonce = self.config.nonces[0];
        let proposal = Proposal::new(
            found.key,
            Some(found.version),
            &metadata,
            NonceField::Recovery,
            self.config.part.clone(),
        )
        .mutated(self.config.mutation);
        push_step(proposal.start(), effects);
        self.phase = Phase::Starting(Box::new(proposal));
    }

    fn metadata_step(
        &mut self,
        now: Duration,
        step: ProposalStep,
        effects: &mut Vec<RecoveryEffect>,
    ) {
        match step {
            ProposalStep::Done(outcome) => self.metadata_done(now, outcome, effects),
            step => self.later(now, step),
        }
    }

    fn later(&mut self, now: Duration, step: ProposalStep) {
        self.again = Some(Again {
            at: now + self.metadata_wait,
            step,
        });
        self.metadata_wait = (self.metadata_wait * 2).min(self.config.retry_max);
    }

    fn metadata_done(
        &mut self,
        now: Duration,
        outcome: ProposalOutcome,
        effects: &mut Vec<RecoveryEffect>,
    ) {
        let ledger = self.config.ledger;
        match outcome {
            ProposalOutcome::Committed { version, value } => match LedgerMetadata::decode(&value) {
                Ok(metadata) if metadata.state == LedgerState::Closed => {
                    self.finish(Ok(metadata), effects)
                }
                Ok(metadata) => {
                    self.phase = Phase::Fencing(Fencing::new(now, &metadata, self.pace()));
                    self.metadata = Some((metadata, version));
                }
                Err(why) => self.finish(Err(RecoverError::Unreadable { ledger, why }), effects),
            },
            ProposalOutcome::Failed { found, current } => {
                let result = self.beaten(found, current);
                self.finish(result, effects);
            }
            ProposalOutcome::Refused(error) => self.finish(Err(error.into()), effects),
            ProposalOutcome::Unknown => {
                let why = "a recovery's transaction was not answered".to_owned();
                self.finish(Err(MetadataError::OutcomeUnknown { why }.into()), effects);
            }
        }
    }

    /// A compare did not hold: a ledger closed by another is adopted, everything else begins anew (R10).
    fn beaten(
        &self,
        found: Option<Versioned>,
        current: Vec<Option<Versioned>>,
    ) -> Result<LedgerMetadata, RecoverError> {
        let ledger = self.config.ledger;
        let Some(found) = found else {
            return Err(RecoverError::NotFound { ledger });
        };
        let compared = match &self.phase {
            Phase::Starting(proposal) | Phase::Closing(proposal) => proposal.compared(),
            _ => None,
        };
        if Some(found.version) == compared {
            return Err(RecoverError::Conflict(GuardFailed { current }));
        }
        match LedgerMetadata::decode(&found.value) {
            Ok(metadata) => match metadata.state {
                LedgerState::Closed => Ok(metadata),
                LedgerState::Deleting => Err(RecoverError::Deleting { ledger }),
                LedgerState::Open | LedgerState::InRecovery => {
                    Err(RecoverError::Superseded { ledger })
                }
            },
            Err(why) => Err(RecoverError::Unreadable { ledger, why }),
        }
    }
}

pub(super) fn push_step(step: ProposalStep, effects: &mut Vec<RecoveryEffect>) {
    match step {
        ProposalStep::Send(txn) => effects.push(RecoveryEffect::Commit(txn)),
        ProposalStep::Read(key) => effects.push(RecoveryEffect::ReadMetadata(key)),
        ProposalStep::Done(_) => {}
    }
}

/// What each member said last.
pub(super) fn answers_of<T>(asked: &[Option<Asked<T>>], ensemble: &[Member]) -> MemberAnswers {
    let answers = ensemble.iter().zip(asked).filter_map(|(member, asked)| {
        let asked = asked.as_ref()?;
        Some(MemberAnswer {
            bookie: member.bookie.clone(),
            error: asked.error.clone(),
        })
    });
    MemberAnswers(answers.collect())
}
