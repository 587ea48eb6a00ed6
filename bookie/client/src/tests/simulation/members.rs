//! Bookies in a run: which are dead, who may take their places, and whose acks stood behind each confirmation.

use std::collections::BTreeMap;
use std::time::Duration;

use bookie_metadata::{Compare, MetadataError, Op, Txn};
use hulse_proto::id::EntryId;
use hulse_proto::ledger::{LedgerMetadata, LedgerState, Member, ledger_key};
use rand::Rng;
use rand::seq::SliceRandom;

use super::world::LEDGER;
use super::{Message, World};
use crate::quorum::write_set;
use crate::recovery::RecoveryEvent;
use crate::writer::{Survey, WriterEvent};
use crate::{Candidate, WriterEnd};
use hulse_proto::mutant::Mutant;

/// What the run knows of its bookies besides what they hold.
#[derive(Debug, Default)]
pub(super) struct Members {
    pub(super) dead: Vec<bool>,
    /// Refuses normal adds.
    pub(super) read_only: Vec<bool>,
    /// Answers nothing until then, and then all that came meanwhile.
    pub(super) paused_until: Vec<Duration>,
    /// Acks that reached the writer.
    acks: BTreeMap<EntryId, Vec<Member>>,
    /// Transactions of the writer that may still land.
    pub(super) may_land: Vec<Txn>,
    /// No metadata request is answered until then.
    pub(super) silent_until: Duration,
    /// Ensemble changes that the writer learnt of.
    pub(super) changes: u64,
    /// Closes whose last fragment a recoverer chose.
    pub(super) local_changes: u64,
    /// Entries confirmed while metadata were silent and a bookie was dead.
    pub(super) confirmed_in_silence: u64,
}

impl Members {
    pub(super) fn of(count: usize) -> Self {
        Self {
            dead: vec![false; count],
            read_only: vec![false; count],
            paused_until: vec![Duration::ZERO; count],
            ..Self::default()
        }
    }
}

impl World {
    pub(super) fn index_of(&self, member: &Member) -> Option<usize> {
        self.bookies.iter().position(|b| b.member() == member)
    }

    pub(super) fn is_dead(&self, index: usize) -> bool {
        self.members.dead[index]
    }

    /// Draws deaths, silence and upkeep of metadata.
    pub(super) fn schedule_changes(&mut self, burst: u64) {
        self.profile.unknown_txn = self.rng.random_range(0.0..0.8);
        let deaths = self.rng.random_range(0..4);
        let pauses = self.rng.random_range(0..5);
        for number in 0..deaths + pauses {
            let at = Duration::from_millis(self.rng.random_range(0..burst));
            let index = self.rng.random_range(0..self.bookies.len());
            let message = match number < deaths {
                true => Message::Kill(index),
                false => Message::Pause(index),
            };
            self.network.at(at, message);
        }
        if self.rng.random_bool(0.3) {
            let at = Duration::from_millis(self.rng.random_range(0..burst));
            let index = self.rng.random_range(0..self.bookies.len());
            self.network.at(at, Message::ReadOnly(index));
        }
        if self.rng.random_bool(0.15) {
            let at = Duration::from_millis(self.rng.random_range(0..burst));
            self.network.at(at, Message::CrashWriter);
        }
        if self.rng.random_bool(0.5) {
            let at = Duration::from_millis(self.rng.random_range(0..burst));
            self.network.at(at, Message::Silence);
        }
        for _ in 0..self.rng.random_range(0..3) {
            let at = Duration::from_millis(self.rng.random_range(0..burst));
            self.network.at(at, Message::Upkeep);
        }
    }

    /// A bookie dies: for good if recovery can do without all that died, else until nothing goes wrong any more.
    pub(super) fn kill(&mut self, index: usize) {
        self.members.dead[index] = true;
    }

    /// When a message that arrives now is taken.
    pub(super) fn pause_of(&self, index: usize) -> Option<Duration> {
        let until = self.members.paused_until[index];
        (until > self.network.now).then_some(until)
    }

    pub(super) fn pause(&mut self, index: usize) {
        let long = Duration::from_millis(self.rng.random_range(300..2_500));
        self.members.paused_until[index] = self.network.now + long;
    }

    /// At the end as many return as recovery needs.
    pub(super) fn revive(&mut self) {
        // Recovery needs an answer of one member of every ack quorum, and a copy to read.
        let quorums = self.setup.quorums;
        let spare = (quorums.write - quorums.ack).min(quorums.ack - 1) as usize;
        let dead = self.members.dead.iter().filter(|dead| **dead).count();
        if dead > spare {
            self.members.dead.fill(false);
        }
        self.members.read_only.fill(false);
        self.members.silent_until = Duration::ZERO;
    }

    /// Who may be placed, in random order; the dead are still listed for a while.
    pub(super) fn candidates(&mut self) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        for index in 0..self.bookies.len() {
            candidates.push(Candidate {
                member: self.bookies[index].member().clone(),
                live: !self.members.dead[index] || self.rng.random_bool(0.2),
                writable: !self.members.read_only[index] || self.rng.random_bool(0.2),
                zone: String::new(),
            });
        }
        candidates.shuffle(&mut self.rng);
        candidates
    }

    pub(super) fn silent(&self) -> bool {
        self.network.now < self.members.silent_until
    }

    /// The writer's survey is answered, sometimes too late, or not at all.
    pub(super) fn survey(&mut self) {
        let result = if self.silent() {
            let why = "simulated".to_owned();
            Err(MetadataError::Unavailable { why })
        } else {
            let nonce = self.nonce();
            Ok(Survey {
                found: self.table.get(&ledger_key(LEDGER)),
                candidates: self.candidates(),
                nonce,
            })
        };
        let late = self.rng.random_bool(0.05);
        let most = if late { 2_000_000 } else { 5_000 };
        let wait = Duration::from_micros(self.rng.random_range(100..most));
        let event = WriterEvent::Surveyed(result);
        let message = Message::ForWriter(Box::new(event));
        self.network.at(self.network.now + wait, message);
    }

    pub(super) fn list_bookies(&mut self, recoverer: usize) {
        let listed = RecoveryEvent::Listed(Ok(self.candidates()));
        let wait = Duration::from_micros(self.rng.random_range(100..5_000));
        let message = Message::AskAnswer(recoverer, listed);
        self.network.at(self.network.now + wait, message);
    }

    /// Somebody else's change of the key, which leaves the ledger the writer's (W8e).
    pub(super) fn upkeep(&mut self) {
        let row = self.table.get(&ledger_key(LEDGER)).unwrap();
        let mut metadata = LedgerMetadata::decode(&row.value).unwrap();
        if metadata.state == LedgerState::Open {
            metadata.created_at += 1;
            self.table.put(&ledger_key(LEDGER), metadata.encode());
        }
    }

    /// Nothing ends a writer while metadata show the ledger as its own, but its own time and its own close.
    pub(super) fn check_end(&mut self, end: &WriterEnd) {
        let row = self.table.get(&ledger_key(LEDGER)).unwrap();
        let metadata = LedgerMetadata::decode(&row.value).unwrap();
        let own = matches!(
            end,
            WriterEnd::Closed { .. } | WriterEnd::OutcomeUnknown { .. }
        );
        if !own && metadata.state == LedgerState::Open {
            self.oracle
                .fail(format!("the writer of an open ledger ended: {end}"));
        }
    }

    pub(super) fn nonce(&mut self) -> [u8; 16] {
        self.nonces += 1;
        let mut nonce = [9; 16];
        nonce[..8].copy_from_slice(&self.nonces.to_le_bytes());
        nonce
    }

    pub(super) fn ack_arrives(&mut self, entry: EntryId, from: &Member) {
        let acks = self.members.acks.entry(entry).or_default();
        if !acks.contains(from) {
            acks.push(from.clone());
        }
    }

    /// Test 2 of storage.md §12: the acks behind a confirmation come from the committed ensemble, and from every one that a
    /// transaction on its way may yet commit.
    pub(super) fn check_confirmation(&mut self, entry: EntryId) {
        let row = self.table.get(&ledger_key(LEDGER)).unwrap();
        let committed = LedgerMetadata::decode(&row.value).unwrap();
        if committed.state == LedgerState::Closed {
            return;
        }
        if self.silent() && self.members.dead.contains(&true) {
            self.members.confirmed_in_silence += 1;
        }
        let mut possible = vec![committed];
        for txn in &self.members.may_land {
            let lands = txn.compares.iter().all(|compare| {
                matches!(compare, Compare::Version(_, version) if *version == row.version)
            });
            let value = txn.ops.iter().find_map(|op| match op {
                Op::Put { value, .. } => LedgerMetadata::decode(value).ok(),
                Op::Delete { .. } => None,
            });
            possible.extend(value.filter(|_| lands));
        }
        for metadata in possible {
            let ensemble = &metadata.fragment_of(entry).ensemble;
            let acks = self.members.acks.get(&entry).map_or(&[][..], Vec::as_slice);
            let counted = write_set(metadata.quorums, entry)
                .filter(|position| acks.contains(&ensemble[*position]))
                .count();
            if counted < metadata.quorums.ack as usize {
                self.oracle.fail(format!(
                    "entry {entry} is confirmed by {counted} members that count"
                ));
            }
        }
    }

    /// True when bookies do not read metadata at first contact.
    pub(super) fn careless_bookies(&self) -> bool {
        self.setup.mutant == Some(Mutant::ProposedMemberCounts)
    }
}
