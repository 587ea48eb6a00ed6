//! What the steps of a history do, and what must be true after each.

use bookie_metadata::{Txn, TxnOutcome};
use hulse_proto::bookie::{BookieError, Origin, RecoveryReadAnswer};
use hulse_proto::error::Fate;
use hulse_proto::id::EntryId;
use hulse_proto::ledger::{LedgerMetadata, LedgerState, Member, ledger_key};
use hulse_proto::mutant::Mutant;

use super::cell::{Cell, LEDGER};
use super::packet::{Asker, Packet};
use crate::metadata::{NonceField, Proposal, ProposalOutcome, ProposalStep};
use crate::quorum::write_set;
use crate::recovery::{BookieAsk, RecoveryEffect, RecoveryEvent};
use crate::writer::{AddCall, Sealing, Survey, WriterEffect, WriterEvent};
use crate::{Candidate, WriterEnd};

impl Cell {
    pub(super) fn deliver(&mut self, packet: Packet) {
        match packet {
            Packet::Add(call) => self.add(call),
            Packet::Verified(call, found) => {
                let index = self.index_of(&call.member);
                let verdict = self.bookies[index].verify(LEDGER, found.as_deref());
                match verdict {
                    Ok(()) => self.store(call),
                    Err(error) => self.send(Packet::AddAnswer(call.tag(), Err(error))),
                }
            }
            Packet::AddAnswer(tag, result) => self.write(WriterEvent::Answer { tag, result }),
            Packet::Ask {
                from,
                position,
                member,
                ask,
            } => self.ask(from, position, &member, ask),
            Packet::AskAnswer(to, event) => self.recover(to, event),
            Packet::Survey => {
                let nonce = self.nonce();
                let survey = Survey {
                    found: self.table.get(&ledger_key(LEDGER)),
                    candidates: self.candidates(),
                    nonce,
                };
                self.write(WriterEvent::Surveyed(Ok(survey)));
            }
            Packet::Get(asker, key) => {
                let answer = Ok(self.table.get(&key));
                self.send(Packet::GetAnswer(asker, answer));
            }
            Packet::Txn { asker, txn, told } => {
                let outcome = self.commit(txn);
                if !told {
                    self.send(Packet::TxnAnswer(asker, Ok(outcome)));
                }
            }
            Packet::GetAnswer(asker, answer) => match asker {
                Asker::Change => self.write(WriterEvent::MetadataRead(answer)),
                Asker::Close => self.step_close(|proposal| proposal.on_read(answer)),
                Asker::Recoverer(index) => {
                    self.recover(index, RecoveryEvent::MetadataRead(answer));
                }
                Asker::Check => {
                    let found = answer.ok().flatten();
                    let mine = found.is_some_and(|found| {
                        LedgerMetadata::decode(&found.value)
                            .is_ok_and(|found| self.writer.is_mine(&found))
                    });
                    if !mine {
                        self.write(WriterEvent::MetadataChanged);
                    }
                }
            },
            Packet::TxnAnswer(asker, answer) => match asker {
                Asker::Change => self.write(WriterEvent::MetadataAnswer(answer)),
                Asker::Close => self.step_close(|proposal| proposal.on_answer(answer)),
                Asker::Recoverer(index) => {
                    self.recover(index, RecoveryEvent::MetadataAnswer(answer));
                }
                Asker::Check => {}
            },
        }
    }

    fn add(&mut self, call: AddCall) {
        let index = self.index_of(&call.member);
        let careless = self.plan.mutant == Some(Mutant::ProposedMemberCounts);
        if self.read_only.contains(&index) {
            let why = "full".to_owned();
            let refusal = Err(BookieError::ReadOnly { why });
            return self.send(Packet::AddAnswer(call.tag(), refusal));
        }
        if self.bookies[index].must_verify(&call.request) && !careless {
            let row = self.table.get(&ledger_key(LEDGER));
            let found = row
                .and_then(|row| LedgerMetadata::decode(&row.value).ok())
                .map(Box::new);
            return self.send(Packet::Verified(call, found));
        }
        self.store(call);
    }

    fn store(&mut self, call: AddCall) {
        let index = self.index_of(&call.member);
        let result = self.bookies[index].add(&call.request);
        let entry = call.request.entry.header().entry;
        // B11, test 3 of storage.md §12.
        if result.is_ok()
            && call.request.origin == Origin::Normal
            && self.promised.contains(&(index, entry))
        {
            self.fail(format!("b{index} took entry {entry} after a negative"));
        }
        self.send(Packet::AddAnswer(call.tag(), result));
    }

    fn ask(&mut self, from: usize, position: usize, member: &Member, ask: BookieAsk) {
        let index = self.index_of(member);
        let bookie = &mut self.bookies[index];
        let event = match ask {
            BookieAsk::Fence(request) => RecoveryEvent::Fenced {
                position,
                result: bookie.fence(request),
            },
            BookieAsk::Read(request) => {
                let result = bookie.recovery_read(request);
                if let Ok(RecoveryReadAnswer::Negative { .. }) = result {
                    self.promised.insert((index, request.entry));
                }
                RecoveryEvent::Read {
                    position,
                    entry: request.entry,
                    result,
                }
            }
            BookieAsk::Add(request) => RecoveryEvent::Added {
                position,
                entry: request.entry.header().entry,
                from: member.clone(),
                result: bookie.add(&request),
            },
        };
        self.send(Packet::AskAnswer(from, event));
    }

    /// Everybody is listed as live; who refused data, as read-only. In order, so that a path can be walked again.
    fn candidates(&self) -> Vec<Candidate> {
        let of = |(index, bookie): (usize, &crate::testing::MemoryLedgers)| Candidate {
            member: bookie.member().clone(),
            live: true,
            writable: !self.read_only.contains(&index),
            zone: String::new(),
        };
        self.bookies.iter().enumerate().map(of).collect()
    }

    fn nonce(&mut self) -> [u8; 16] {
        self.nonces += 1;
        [100 + self.nonces as u8; 16]
    }

    pub(super) fn write(&mut self, event: WriterEvent) {
        let mut effects = Vec::new();
        self.writer
            .on_event(std::time::Duration::ZERO, event, &mut effects);
        if let Some(committed) = self.writer.take_committed() {
            self.known = committed;
        }
        for effect in effects {
            match effect {
                WriterEffect::Send(call) => {
                    let header = call.request.entry.header();
                    self.content.insert(header.entry, header.digest());
                    self.send(Packet::Add(call));
                }
                WriterEffect::Confirmed { entry } => self.confirmed(entry),
                WriterEffect::Failed { entry, error } if error.fate() == Fate::NotApplied => {
                    self.unwritten.insert(entry);
                }
                WriterEffect::CheckMetadata => {
                    self.send(Packet::Get(Asker::Check, ledger_key(LEDGER)));
                }
                WriterEffect::Survey => self.send(Packet::Survey),
                WriterEffect::Metadata(step) => self.metadata(Asker::Change, step),
                WriterEffect::Drained => self.write(WriterEvent::Freeze),
                WriterEffect::Frozen(sealing) => self.propose_close(sealing),
                _ => {}
            }
        }
    }

    fn metadata(&mut self, asker: Asker, step: ProposalStep) {
        match step {
            ProposalStep::Send(txn) => {
                let told = false;
                self.send(Packet::Txn { asker, txn, told });
            }
            ProposalStep::Read(key) => self.send(Packet::Get(asker, key)),
            ProposalStep::Done(_) => {}
        }
    }

    fn propose_close(&mut self, sealing: Sealing) {
        let (open, version) = self.known.clone();
        let closed = LedgerMetadata {
            state: LedgerState::Closed,
            closed: Some(sealing.totals),
            degraded: sealing.degraded.clone(),
            writer_nonce: self.nonce(),
            ..open
        };
        let key = ledger_key(LEDGER);
        let field = NonceField::Writer;
        let proposal = Proposal::new(key, Some(version), &closed, field, Txn::default());
        let step = proposal.start();
        self.closing = Some((proposal, sealing));
        self.metadata(Asker::Close, step);
    }

    fn step_close(&mut self, next: impl FnOnce(&mut Proposal) -> ProposalStep) {
        let Some((proposal, _)) = &mut self.closing else {
            return;
        };
        let step = next(proposal);
        let ProposalStep::Done(outcome) = step else {
            return self.metadata(Asker::Close, step);
        };
        self.closing = None;
        self.write(match outcome {
            ProposalOutcome::Committed { .. } => WriterEvent::CloseCommitted,
            _ => WriterEvent::CloseFailed(WriterEnd::MetadataChanged { ledger: LEDGER }),
        });
    }

    pub(super) fn recover(&mut self, index: usize, event: RecoveryEvent) {
        let Some(one) = &mut self.recoverers[index] else {
            return;
        };
        let effects = one.core.on_event(one.now, event);
        for effect in effects {
            match effect {
                RecoveryEffect::ReadMetadata(key) => {
                    self.send(Packet::Get(Asker::Recoverer(index), key));
                }
                RecoveryEffect::Commit(txn) => {
                    let asker = Asker::Recoverer(index);
                    let told = false;
                    self.send(Packet::Txn { asker, txn, told });
                }
                RecoveryEffect::Ask {
                    position,
                    member,
                    ask,
                } => self.send(Packet::Ask {
                    from: index,
                    position,
                    member,
                    ask,
                }),
                RecoveryEffect::ListBookies => {
                    let listed = RecoveryEvent::Listed(Ok(self.candidates()));
                    self.send(Packet::AskAnswer(index, listed));
                }
                RecoveryEffect::Done(Ok(metadata)) => {
                    let end = |metadata: &LedgerMetadata| metadata.closed.map(|closed| closed.end);
                    if self.closed.as_ref().map(end) != Some(end(&metadata)) {
                        let found = end(&metadata);
                        self.fail(format!("recoverer {index} was told another end: {found:?}"));
                    }
                }
                RecoveryEffect::Done(Err(_)) => {}
            }
        }
    }

    fn commit(&mut self, txn: Txn) -> TxnOutcome {
        let outcome = self.table.txn(txn);
        let row = self.table.get(&ledger_key(LEDGER)).expect("never deleted");
        let metadata = LedgerMetadata::decode(&row.value).expect("written by a core");
        if metadata.state == LedgerState::Closed && self.closed.as_ref() != Some(&metadata) {
            if self.closed.is_some() {
                self.fail("a closed ledger was changed".to_owned());
            }
            self.just_closed = true;
            self.closed = Some(metadata);
        }
        self.judge();
        outcome
    }

    fn confirmed(&mut self, entry: EntryId) {
        self.just_confirmed = true;
        if entry.0 != self.confirmed.len() as u64 {
            self.fail(format!("entry {entry} is confirmed out of order"));
        }
        self.confirmed.insert(entry);
        self.judge();
    }

    /// Storage.md §11: nothing confirmed is lost, nothing unwritten is there, and each entry has Qa copies where metadata say.
    fn judge(&mut self) {
        let Some(metadata) = &self.closed else {
            return;
        };
        let end = metadata.closed.map_or(EntryId(0), |closed| closed.end);
        if let Some(entry) = self.confirmed.iter().find(|entry| **entry >= end) {
            let words = format!("entry {entry} is confirmed, and the ledger ends at {end}");
            return self.fail(words);
        }
        if let Some(entry) = self.unwritten.iter().find(|entry| **entry < end) {
            let words = format!("entry {entry} is not written, and the ledger ends at {end}");
            return self.fail(words);
        }
        let lacking = (0..end.0).map(EntryId).find(|entry| {
            let ensemble = &metadata.fragment_of(*entry).ensemble;
            let copies = write_set(metadata.quorums, *entry).filter(|position| {
                let held = self
                    .bookies
                    .iter()
                    .find(|bookie| *bookie.member() == ensemble[*position])
                    .and_then(|bookie| bookie.held(LEDGER, *entry));
                held.is_some_and(|held| self.content.get(entry) == Some(&held.header().digest()))
            });
            copies.count() < metadata.quorums.ack as usize
        });
        if let Some(entry) = lacking {
            self.fail(format!(
                "entry {entry} has too few copies in its closed ledger"
            ));
        }
    }
}
