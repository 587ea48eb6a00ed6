//! A bench with a metadata store, for tests of ensemble change.

use bookie_metadata::{MetadataError, Txn, TxnOutcome};
use hulse_proto::bookie::BookieError;
use hulse_proto::ledger::{LedgerMetadata, ledger_key};

use super::{Bench, LEDGER};
use crate::Candidate;
use crate::metadata::ProposalStep;
use crate::tests::{Table, member, open_metadata};
use crate::writer::{Sealing, Survey, WriterEffect, WriterEvent};
use hulse_proto::mutant::Mutant;

/// A bench with a store; bookies 0..6, of which the first three are the ensemble.
pub(super) struct Scene {
    pub(super) bench: Bench,
    pub(super) table: Table,
    nonces: u8,
}

pub(super) fn limbo() -> BookieError {
    BookieError::Limbo { ledger: LEDGER }
}

pub(super) fn unknown() -> MetadataError {
    MetadataError::OutcomeUnknown { why: String::new() }
}

pub(super) fn silent() -> MetadataError {
    MetadataError::Unavailable { why: String::new() }
}

impl Scene {
    pub(super) fn new(ack: u32, mutant: Option<Mutant>) -> Self {
        let metadata = open_metadata(3, 3, ack);
        let mut table = Table::default();
        table.put(&ledger_key(LEDGER), metadata.encode());
        Self {
            bench: Bench::with(&metadata, mutant),
            table,
            nonces: 100,
        }
    }

    pub(super) fn metadata(&self) -> LedgerMetadata {
        let row = self.table.get(&ledger_key(LEDGER)).unwrap();
        LedgerMetadata::decode(&row.value).unwrap()
    }

    /// Changes the key as somebody else.
    pub(super) fn touch(&mut self, change: impl FnOnce(&mut LedgerMetadata)) {
        let mut metadata = self.metadata();
        change(&mut metadata);
        self.table.put(&ledger_key(LEDGER), metadata.encode());
    }

    /// Takes the oldest effect of its kind.
    pub(super) fn take<T>(&mut self, wanted: impl Fn(&WriterEffect) -> Option<T>) -> Option<T> {
        let other = &mut self.bench.other;
        let (index, found) = other
            .iter()
            .enumerate()
            .find_map(|(index, effect)| Some((index, wanted(effect)?)))?;
        other.remove(index);
        Some(found)
    }

    pub(super) fn surveys(&mut self) -> bool {
        self.take(|effect| matches!(effect, WriterEffect::Survey).then_some(()))
            .is_some()
    }

    pub(super) fn drained(&mut self) -> bool {
        self.take(|effect| matches!(effect, WriterEffect::Drained).then_some(()))
            .is_some()
    }

    /// The transaction that the core wants sent.
    pub(super) fn sent(&mut self) -> Option<Txn> {
        self.take(|effect| match effect {
            WriterEffect::Metadata(ProposalStep::Send(txn)) => Some(txn.clone()),
            _ => None,
        })
    }

    pub(super) fn reads(&mut self) -> bool {
        self.take(|effect| {
            matches!(effect, WriterEffect::Metadata(ProposalStep::Read(_))).then_some(())
        })
        .is_some()
    }

    /// Answers a survey that names these spares.
    pub(super) fn survey(&mut self, spares: &[usize]) {
        assert!(self.surveys(), "{:?}", self.bench.other);
        self.nonces += 1;
        let candidate = |index: &usize| Candidate {
            member: member(*index),
            live: true,
            writable: true,
            zone: String::new(),
        };
        let survey = Survey {
            found: self.table.get(&ledger_key(LEDGER)),
            candidates: [0, 1, 2].iter().chain(spares).map(candidate).collect(),
            nonce: [self.nonces; 16],
        };
        self.bench.event(WriterEvent::Surveyed(Ok(survey)));
    }

    pub(super) fn answer(&mut self, answer: Result<TxnOutcome, MetadataError>) {
        self.bench.event(WriterEvent::MetadataAnswer(answer));
    }

    pub(super) fn commit(&mut self, txn: Txn) {
        let outcome = self.table.txn(txn);
        self.answer(Ok(outcome));
    }

    pub(super) fn read(&mut self) {
        let row = self.table.get(&ledger_key(LEDGER));
        self.bench.event(WriterEvent::MetadataRead(Ok(row)));
    }

    /// One entry confirmed by members 0 and 1, a second one sent, and a proposal of 3 for 2, unanswered.
    pub(super) fn proposed(ack: u32, mutant: Option<Mutant>) -> (Self, Txn) {
        let mut scene = Self::new(ack, mutant);
        scene.bench.append(2);
        scene.bench.ack(0, 0);
        scene.bench.ack(0, 1);
        scene.bench.answer(1, 2, Err(limbo()));
        scene.survey(&[3]);
        let txn = scene.sent().unwrap();
        (scene, txn)
    }

    pub(super) fn seal(&mut self) -> Sealing {
        self.bench.event(WriterEvent::Freeze);
        self.take(|effect| match effect {
            WriterEffect::Frozen(sealing) => Some(sealing.clone()),
            _ => None,
        })
        .unwrap()
    }

    pub(super) fn sent_to(&self, index: usize) -> Vec<u64> {
        let calls = self.bench.sent.iter();
        calls
            .filter(|call| call.member == member(index))
            .map(|call| call.tag().entry.0)
            .collect()
    }
}
