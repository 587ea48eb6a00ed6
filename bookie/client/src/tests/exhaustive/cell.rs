//! The state of one short history and its possible next steps: a writer, recoverers, memory bookies, metadata, messages.
//!
//! Clocks stand still, but for a few jumps of each core to its next wake-up.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bookie_metadata::MetadataError;
use hulse_proto::bookie::BookieError;
use hulse_proto::entry::EntryDigest;
use hulse_proto::id::{CellId, EntryId, LedgerId};
use hulse_proto::ledger::{LedgerMetadata, Member, Quorums, ledger_key};
use hulse_proto::mutant::{Mutant, Mutation};

use super::packet::{Asker, Packet};
use crate::ClientConfig;
use crate::metadata::Proposal;
use crate::recovery::{RecoveryConfig, RecoveryCore, RecoveryEvent};
use crate::testing::MemoryLedgers;
use crate::tests::{Table, data, member, open_metadata};
use crate::writer::{Sealing, WriterConfig, WriterCore, WriterEvent};

pub(super) const LEDGER: LedgerId = LedgerId(1);

/// What may happen in a history.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plan {
    quorums: Quorums,
    appends: u64,
    recoverers: usize,
    spares: usize,
    closes: bool,
    pub(super) mutant: Option<Mutant>,
}

impl Plan {
    /// One append on E bookies.
    pub(super) fn of(ensemble: u32, write: u32, ack: u32) -> Self {
        Self {
            quorums: Quorums {
                ensemble,
                write,
                ack,
            },
            appends: 1,
            recoverers: 0,
            spares: 0,
            closes: false,
            mutant: None,
        }
    }

    pub(super) fn appends(self, appends: u64) -> Self {
        Self { appends, ..self }
    }

    pub(super) fn recoverers(self, recoverers: usize) -> Self {
        Self { recoverers, ..self }
    }

    /// With spares one member may refuse data once, and its place is taken.
    pub(super) fn spares(self, spares: usize) -> Self {
        Self { spares, ..self }
    }

    pub(super) fn closes(self) -> Self {
        Self {
            closes: true,
            ..self
        }
    }

    /// With a rule switched off.
    pub(super) fn without(self, rule: Mutant) -> Self {
        Self {
            mutant: Some(rule),
            ..self
        }
    }

    fn client(self) -> ClientConfig {
        let long = Duration::from_secs(1_000);
        ClientConfig {
            add_timeout: long,
            answer_timeout: Duration::from_secs(1),
            read_timeout: Duration::from_secs(1),
            retry_initial: Duration::from_secs(1),
            retry_max: Duration::from_secs(1),
            recovery_deadline: long,
            late_time_max: long,
            recovery_read_ahead: 2,
            ..ClientConfig::new(self.quorums)
        }
    }
}

/// One step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The message of this place in the order of their texts arrives.
    Deliver(usize),
    /// This add is refused: the member has become read-only.
    Refuse(usize),
    /// Whoever sent this transaction hears that its outcome is unknown; it may land later.
    Lose(usize),
    Append,
    Start(usize),
    WakeRecoverer(usize),
    Close,
}

pub(super) struct Recoverer {
    pub(super) core: RecoveryCore,
    pub(super) now: Duration,
    pub(super) wakes: u32,
}

/// A history so far.
pub(super) struct Cell {
    pub(super) plan: Plan,
    pub(super) packets: BTreeMap<String, Packet>,
    pub(super) table: Table,
    pub(super) bookies: Vec<MemoryLedgers>,
    pub(super) read_only: BTreeSet<usize>,
    pub(super) writer: WriterCore,
    pub(super) known: (LedgerMetadata, bookie_metadata::Revision),
    pub(super) closing: Option<(Proposal, Sealing)>,
    pub(super) stopped: bool,
    pub(super) nonces: u64,
    pub(super) recoverers: Vec<Option<Recoverer>>,
    pub(super) appended: u64,
    pub(super) lost: u32,
    // What the oracle knows.
    pub(super) content: BTreeMap<EntryId, EntryDigest>,
    pub(super) confirmed: BTreeSet<EntryId>,
    pub(super) unwritten: BTreeSet<EntryId>,
    pub(super) promised: BTreeSet<(usize, EntryId)>,
    pub(super) closed: Option<LedgerMetadata>,
    pub(super) just_closed: bool,
    pub(super) just_confirmed: bool,
    pub(super) violation: Option<String>,
}

impl Cell {
    pub(super) fn new(plan: Plan) -> Self {
        let Quorums {
            ensemble,
            write,
            ack,
        } = plan.quorums;
        let metadata = open_metadata(ensemble, write, ack);
        let mut table = Table::default();
        table.put(&ledger_key(LEDGER), metadata.encode());
        let version = table.get(&ledger_key(LEDGER)).expect("just put").version;
        let mut config = WriterConfig::new(CellId::default(), LEDGER, &metadata, &plan.client());
        config.mutation = Mutation::of(plan.mutant);
        let bookies = (0..ensemble as usize + plan.spares).map(|index| {
            let mut bookie = MemoryLedgers::new(CellId::default(), member(index));
            bookie.mutate(Mutation::of(plan.mutant));
            bookie
        });
        Self {
            plan,
            packets: BTreeMap::new(),
            table,
            bookies: bookies.collect(),
            read_only: BTreeSet::new(),
            writer: WriterCore::new(config),
            known: (metadata, version),
            closing: None,
            stopped: false,
            nonces: 0,
            recoverers: (0..plan.recoverers).map(|_| None).collect(),
            appended: 0,
            lost: 0,
            content: BTreeMap::new(),
            confirmed: BTreeSet::new(),
            unwritten: BTreeSet::new(),
            promised: BTreeSet::new(),
            closed: None,
            just_closed: false,
            just_confirmed: false,
            violation: None,
        }
    }

    pub(super) fn just_closed(&self) -> bool {
        self.just_closed
    }

    pub(super) fn just_confirmed(&self) -> bool {
        self.just_confirmed
    }

    pub(super) fn violation(&self) -> Option<String> {
        self.violation.clone()
    }

    /// All that decides what can happen next, as a text.
    pub(super) fn text(&self) -> String {
        let cores: Vec<_> = self
            .recoverers
            .iter()
            .map(|one| one.as_ref().map(|one| (&one.core, one.now, one.wakes)))
            .collect();
        let packets: Vec<&String> = self.packets.keys().collect();
        format!(
            "{:?} {:?} {:?} {:?} {:?} {:?} {:?} {packets:?} {:?}",
            self.writer,
            self.closing,
            cores,
            self.bookies,
            self.table,
            (self.appended, self.lost, self.stopped, &self.read_only),
            (&self.known, self.nonces),
            (&self.confirmed, &self.unwritten, &self.promised),
        )
    }

    /// A step in words, before it is taken.
    pub(super) fn words(&self, step: Step) -> String {
        let packet = match step {
            Step::Deliver(at) | Step::Refuse(at) | Step::Lose(at) => self.packets.keys().nth(at),
            _ => None,
        };
        format!("{step:?} {}", packet.map_or("", String::as_str))
    }

    /// What may happen next.
    pub(super) fn steps(&self) -> Vec<Step> {
        let mut steps = Vec::new();
        for (at, packet) in self.packets.values().enumerate() {
            steps.push(Step::Deliver(at));
            match packet {
                Packet::Add(_) if self.plan.spares > 0 && self.read_only.is_empty() => {
                    steps.push(Step::Refuse(at));
                }
                Packet::Txn { told: false, .. } if self.lost == 0 => steps.push(Step::Lose(at)),
                _ => {}
            }
        }
        if self.appended < self.plan.appends && !self.stopped {
            steps.push(Step::Append);
        }
        for (index, recoverer) in self.recoverers.iter().enumerate() {
            match recoverer {
                // They are alike, so the first to start is the first.
                None if index == 0 || self.recoverers[index - 1].is_some() => {
                    steps.push(Step::Start(index));
                }
                Some(one) if one.wakes == 0 && one.core.next_wakeup().is_some() => {
                    steps.push(Step::WakeRecoverer(index));
                }
                _ => {}
            }
        }
        if self.plan.closes && !self.stopped && self.appended == self.plan.appends {
            steps.push(Step::Close);
        }
        steps
    }

    /// Takes a step.
    pub(super) fn take(&mut self, step: Step) {
        self.just_closed = false;
        self.just_confirmed = false;
        match step {
            Step::Deliver(at) => {
                let packet = self.remove(at);
                self.deliver(packet);
            }
            Step::Refuse(at) => {
                if let Packet::Add(call) = self.remove(at) {
                    let index = self.index_of(&call.member);
                    self.read_only.insert(index);
                    let why = "full".to_owned();
                    let refusal = Err(BookieError::ReadOnly { why });
                    self.send(Packet::AddAnswer(call.tag(), refusal));
                }
            }
            Step::Lose(at) => {
                if let Packet::Txn { asker, txn, .. } = self.remove(at) {
                    self.lost += 1;
                    let told = true;
                    self.send(Packet::Txn { asker, txn, told });
                    let why = "no answer".to_owned();
                    let answer = Err(MetadataError::OutcomeUnknown { why });
                    self.send(Packet::TxnAnswer(asker, answer));
                }
            }
            Step::Append => {
                let entry = data(self.appended, self.appended as u8);
                self.appended += 1;
                self.write(WriterEvent::Append(entry));
            }
            Step::Start(index) => self.start(index),
            Step::WakeRecoverer(index) => {
                if let Some(one) = &mut self.recoverers[index] {
                    one.wakes += 1;
                    one.now = one.core.next_wakeup().unwrap_or(one.now);
                }
                self.recover(index, RecoveryEvent::Tick);
            }
            Step::Close => {
                self.stopped = true;
                self.write(WriterEvent::Stop);
            }
        }
        self.forget_unheard();
    }

    /// An answer to somebody who has ended changes nothing, and is no state of its own.
    fn forget_unheard(&mut self) {
        let ended = |index: usize| {
            let one = &self.recoverers[index];
            one.as_ref().is_some_and(|one| one.core.is_done())
        };
        let unheard = self.writer.is_finished();
        self.packets.retain(|_, packet| match packet {
            Packet::AskAnswer(to, _) => !ended(*to),
            Packet::AddAnswer(..) | Packet::Survey => !unheard,
            Packet::Get(asker, _) | Packet::GetAnswer(asker, _) | Packet::TxnAnswer(asker, _) => {
                match asker {
                    Asker::Recoverer(index) => !ended(*index),
                    Asker::Change | Asker::Close | Asker::Check => !unheard,
                }
            }
            _ => true,
        });
    }

    fn remove(&mut self, at: usize) -> Packet {
        let key = self.packets.keys().nth(at).expect("a listed step").clone();
        self.packets.remove(&key).expect("just found")
    }

    pub(super) fn send(&mut self, packet: Packet) {
        self.packets.insert(format!("{packet:?}"), packet);
    }

    pub(super) fn index_of(&self, member: &Member) -> usize {
        let mut bookies = self.bookies.iter();
        bookies
            .position(|bookie| bookie.member() == member)
            .expect("every member is a bookie of the cell")
    }

    fn start(&mut self, index: usize) {
        let nonces = [1u8, 2].map(|half| [10 * (index as u8 + 1) + half; 16]);
        let mut config =
            RecoveryConfig::new(CellId::default(), LEDGER, &self.plan.client(), nonces);
        config.mutation = Mutation::of(self.plan.mutant);
        self.recoverers[index] = Some(Recoverer {
            core: RecoveryCore::new(config),
            now: Duration::ZERO,
            wakes: 0,
        });
        self.recover(index, RecoveryEvent::Start);
    }

    pub(super) fn fail(&mut self, words: String) {
        self.violation.get_or_insert(words);
    }
}
