//! The metadata side of a run: closes, lost answers, transactions that land late.

use std::time::Duration;

use bookie_metadata::{MetadataError, Txn, TxnOutcome};
use hulse_proto::ledger::{LedgerMetadata, LedgerState, ledger_key};
use rand::Rng;

use super::network::Asker;
use super::world::LEDGER;
use super::{Message, World};
use crate::WriterEnd;
use crate::metadata::{NonceField, Proposal, ProposalOutcome, ProposalStep};
use crate::recovery::RecoveryEvent;
use crate::writer::{Sealing, WriterEvent};

impl World {
    pub(super) fn propose_close(&mut self, sealing: Sealing) {
        let (open, version) = self.known.clone();
        let closed = LedgerMetadata {
            state: LedgerState::Closed,
            closed: Some(sealing.totals),
            degraded: sealing.degraded.clone(),
            writer_nonce: self.nonce(),
            ..open
        };
        let proposal = Proposal::new(
            ledger_key(LEDGER),
            Some(version),
            &closed,
            NonceField::Writer,
            Txn::default(),
        );
        let step = proposal.start();
        self.closing = Some((proposal, sealing));
        self.send_metadata(Asker::WriterClose, step);
    }

    fn close_step(&mut self, step: ProposalStep) {
        let ProposalStep::Done(outcome) = step else {
            return self.send_metadata(Asker::WriterClose, step);
        };
        let sealing = self.closing.take().unwrap().1;
        let found = match &outcome {
            ProposalOutcome::Failed {
                found: Some(found), ..
            } => LedgerMetadata::decode(&found.value)
                .ok()
                .map(|value| (value, found.version)),
            _ => None,
        };
        if let Some(touched) = found.filter(|(found, _)| self.writer.is_mine(found)) {
            self.known = touched;
            return self.propose_close(sealing);
        }
        let event = match outcome {
            ProposalOutcome::Committed { .. } => {
                self.oracle.closed(sealing.totals);
                self.oracle.closed_by_writer = true;
                WriterEvent::CloseCommitted
            }
            _ => WriterEvent::CloseFailed(WriterEnd::MetadataChanged { ledger: LEDGER }),
        };
        self.writer_event(event);
    }

    pub(super) fn send_metadata(&mut self, asker: Asker, step: ProposalStep) {
        let at = self.network.now + Duration::from_micros(self.rng.random_range(100..5_000));
        match step {
            ProposalStep::Read(key) => self.network.at(at, Message::Get(asker, key)),
            ProposalStep::Send(txn) => {
                if asker == Asker::WriterChange {
                    self.members.may_land.push(txn.clone());
                }
                self.network.at(at, Message::Txn(asker, txn));
            }
            ProposalStep::Done(_) => {}
        }
    }

    pub(super) fn take_metadata(&mut self, message: Message) {
        let at = self.network.now + Duration::from_micros(self.rng.random_range(100..5_000));
        match message {
            Message::Get(asker, key) => {
                let answer = if self.silent() {
                    let why = "simulated".to_owned();
                    Err(MetadataError::Unavailable { why })
                } else {
                    Ok(self.table.get(&key))
                };
                self.network.at(at, Message::GetAnswer(asker, answer));
            }
            Message::Txn(asker, txn) => {
                let answer = self.carry_out(asker, txn);
                self.network.at(at, Message::TxnAnswer(asker, answer));
            }
            Message::LateTxn(asker, txn) => {
                self.landed(asker, &txn);
                self.table.txn(txn);
            }
            Message::GetAnswer(Asker::Recoverer(index), answer) => {
                self.recoverer_event(index, RecoveryEvent::MetadataRead(answer));
            }
            Message::TxnAnswer(Asker::Recoverer(index), answer) => {
                self.recoverer_event(index, RecoveryEvent::MetadataAnswer(answer));
            }
            Message::GetAnswer(Asker::WriterClose, answer) => {
                if let Some((proposal, _)) = &mut self.closing {
                    let step = proposal.on_read(answer);
                    self.close_step(step);
                }
            }
            Message::GetAnswer(Asker::WriterChange, answer) => {
                self.writer_event(WriterEvent::MetadataRead(answer));
            }
            Message::TxnAnswer(Asker::WriterChange, answer) => {
                self.writer_event(WriterEvent::MetadataAnswer(answer));
            }
            Message::TxnAnswer(_, answer) => {
                if let Some((proposal, _)) = &mut self.closing {
                    let step = proposal.on_answer(answer);
                    self.close_step(step);
                }
            }
            Message::GetAnswer(Asker::WriterCheck, Ok(Some(row))) => {
                let mine = LedgerMetadata::decode(&row.value)
                    .is_ok_and(|metadata| self.writer.is_mine(&metadata));
                if !mine {
                    self.writer_event(WriterEvent::MetadataChanged);
                }
            }
            _ => {}
        }
    }

    /// Applies a transaction now, later or never, and says so or not.
    fn carry_out(&mut self, asker: Asker, txn: Txn) -> Result<TxnOutcome, MetadataError> {
        let unknown = MetadataError::OutcomeUnknown {
            why: "simulated".to_owned(),
        };
        if self.silent() && self.rng.random_bool(0.3) {
            // Nothing was taken, and the asker is told so.
            self.landed(asker, &txn);
            let why = "simulated".to_owned();
            return Err(MetadataError::Unavailable { why });
        }
        if !self.silent() && !self.rng.random_bool(self.profile.unknown_txn) {
            self.landed(asker, &txn);
            return Ok(self.table.txn(txn));
        }
        match self.rng.random_range(0..3) {
            0 => {
                self.landed(asker, &txn);
                self.table.txn(txn);
            }
            1 => {
                let late = Duration::from_millis(self.rng.random_range(1..2_000));
                let message = Message::LateTxn(asker, txn);
                self.network.at(self.network.now + late, message);
            }
            _ => self.landed(asker, &txn),
        }
        Err(unknown)
    }

    /// A transaction of the writer is on its way no longer.
    fn landed(&mut self, asker: Asker, txn: &Txn) {
        if asker != Asker::WriterChange {
            return;
        }
        let copy = self.members.may_land.iter().position(|other| other == txn);
        if let Some(copy) = copy {
            self.members.may_land.remove(copy);
        }
    }
}
