//! One change of one ledger's key, with whatever joins it, and how its outcome becomes known (storage.md M3 as amended).
//!
//! # Invariants
//! 1. After an unknown outcome only the same bytes are sent again, never other content.
//! 2. An unknown outcome ends as "committed" or "failed" only by a proof: a committed answer, a version other than the compared
//!    one (then the nonce decides), or a broken version compare of this very transaction, which can never hold again.
//! 3. Nothing is concluded from a read that shows the compared version: the request may still land.

use bookie_metadata::{Compare, MetadataError, Op, Revision, Txn, TxnOutcome, Versioned};
use bytes::Bytes;
use hulse_proto::ledger::LedgerMetadata;
use hulse_proto::mutant::{Mutant, Mutation};

/// Which nonce identifies the change (amended M3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NonceField {
    /// Create, close, roll.
    Writer,
    /// Start and end of a recovery.
    Recovery,
    /// Intents and swaps of repair.
    Repair,
    /// The owner's word that a ledger is settled, and what tiering writes.
    Tier,
}

/// What to do next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProposalStep {
    /// Send the transaction; after the first time, after a wait.
    Send(Txn),
    /// Read this key linearizably; after the first time, after a wait.
    Read(String),
    /// It is decided, or cannot be.
    Done(ProposalOutcome),
}

/// How a change ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProposalOutcome {
    /// It took effect.
    Committed {
        /// Version of the ledger's key now.
        version: Revision,
        /// Its value now: this change's, unless others changed it since.
        value: Bytes,
    },
    /// It did not and will not take effect.
    Failed {
        /// The ledger's key as it is.
        found: Option<Versioned>,
        /// What the store said of each compare, ours first; empty when a read decided.
        current: Vec<Option<Versioned>>,
    },
    /// It was refused before anything was done.
    Refused(MetadataError),
    /// No proof can be had: the transaction's other compares keep it from landing now, but perhaps not for ever.
    Unknown,
}

/// A change on its way.
#[derive(Debug, Clone)]
pub struct Proposal {
    key: String,
    compared: Option<Revision>,
    field: NonceField,
    nonce: [u8; 16],
    value: Bytes,
    txn: Txn,
    unknown: bool,
    answered: Option<MetadataError>,
    mutation: Mutation,
}

impl Proposal {
    /// A change of `key` from version `compared` (`None`: absent) to `metadata`, joined by `part`. The nonce is taken from
    /// `metadata` and must be fresh.
    pub fn new(
        key: String,
        compared: Option<Revision>,
        metadata: &LedgerMetadata,
        field: NonceField,
        part: Txn,
    ) -> Self {
        let value = metadata.encode();
        let compare = match compared {
            Some(version) => Compare::Version(key.clone(), version),
            None => Compare::Absent(key.clone()),
        };
        let mut txn = Txn {
            compares: vec![compare],
            ops: vec![Op::put(key.clone(), value.clone())],
        };
        txn.extend(part);
        Self {
            nonce: nonce_of(metadata, field),
            key,
            compared,
            field,
            value,
            txn,
            unknown: false,
            answered: None,
            mutation: Mutation::default(),
        }
    }

    /// The first step.
    pub fn start(&self) -> ProposalStep {
        ProposalStep::Send(self.txn.clone())
    }

    /// The version that it replaces.
    pub fn compared(&self) -> Option<Revision> {
        self.compared
    }

    /// True while the change may have been applied without an answer.
    pub fn is_unknown(&self) -> bool {
        self.unknown
    }

    /// The last error of the store, for a person.
    pub fn last_error(&self) -> Option<&MetadataError> {
        self.answered.as_ref()
    }

    /// Takes the answer to [`ProposalStep::Send`].
    pub fn on_answer(&mut self, answer: Result<TxnOutcome, MetadataError>) -> ProposalStep {
        match answer {
            Ok(TxnOutcome::Committed { revision }) => {
                ProposalStep::Done(ProposalOutcome::Committed {
                    version: revision,
                    value: self.value.clone(),
                })
            }
            Ok(TxnOutcome::Conflict { current }) => self.on_conflict(current),
            Err(error @ MetadataError::OutcomeUnknown { .. }) => {
                self.unknown = true;
                self.answered = Some(error);
                ProposalStep::Read(self.key.clone())
            }
            Err(error @ MetadataError::Unavailable { .. }) => {
                self.answered = Some(error);
                ProposalStep::Send(self.txn.clone())
            }
            Err(error) if self.unknown => {
                self.answered = Some(error);
                ProposalStep::Read(self.key.clone())
            }
            Err(error) => ProposalStep::Done(ProposalOutcome::Refused(error)),
        }
    }

    /// Takes the answer to [`ProposalStep::Read`].
    pub fn on_read(&mut self, answer: Result<Option<Versioned>, MetadataError>) -> ProposalStep {
        match answer {
            Err(error) => {
                self.answered = Some(error);
                ProposalStep::Read(self.key.clone())
            }
            Ok(found) if self.shows_old_version(found.as_ref()) => {
                if self.mutation.is(Mutant::OldVersionEndsProposal) {
                    let current = Vec::new();
                    return ProposalStep::Done(ProposalOutcome::Failed { found, current });
                }
                ProposalStep::Send(self.txn.clone())
            }
            Ok(found) => ProposalStep::Done(self.judge(found, Vec::new())),
        }
    }

    fn on_conflict(&mut self, current: Vec<Option<Versioned>>) -> ProposalStep {
        let found = current.first().cloned().flatten();
        if !self.shows_old_version(found.as_ref()) {
            return ProposalStep::Done(self.judge(found, current));
        }
        // Ours holds, so another compare does not.
        if self.unknown && !self.broken_for_ever(&current) {
            return ProposalStep::Done(ProposalOutcome::Unknown);
        }
        ProposalStep::Done(ProposalOutcome::Failed { found, current })
    }

    /// A key of another version than the compared one: the nonce tells whose change it was.
    fn judge(&self, found: Option<Versioned>, current: Vec<Option<Versioned>>) -> ProposalOutcome {
        let mine = found.as_ref().filter(|found| {
            LedgerMetadata::decode(&found.value)
                .is_ok_and(|metadata| nonce_of(&metadata, self.field) == self.nonce)
        });
        match mine {
            Some(mine) => ProposalOutcome::Committed {
                version: mine.version,
                value: mine.value.clone(),
            },
            None => ProposalOutcome::Failed { found, current },
        }
    }

    fn shows_old_version(&self, found: Option<&Versioned>) -> bool {
        found.map(|found| found.version) == self.compared
    }

    /// True when a version compare is broken: versions only grow, so no copy of this transaction can land any more.
    fn broken_for_ever(&self, current: &[Option<Versioned>]) -> bool {
        self.txn
            .compares
            .iter()
            .zip(current)
            .any(|(compare, found)| match compare {
                Compare::Version(_, version) => {
                    found.as_ref().map(|found| found.version) != Some(*version)
                }
                Compare::Absent(_) | Compare::Exists(_) => false,
            })
    }

    /// The same with a rule switched off.
    #[must_use]
    pub fn mutated(self, mutation: Mutation) -> Self {
        Self { mutation, ..self }
    }
}

fn nonce_of(metadata: &LedgerMetadata, field: NonceField) -> [u8; 16] {
    match field {
        NonceField::Writer => metadata.writer_nonce,
        NonceField::Recovery => metadata.recovery_nonce,
        NonceField::Repair => metadata.repair_nonce,
        NonceField::Tier => metadata.tier.as_ref().map_or([0; 16], |tier| tier.nonce),
    }
}
