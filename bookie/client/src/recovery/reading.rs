//! Finding the end: recovery reads in entry order, decided one by one (R6, R7, R13).

use std::time::Duration;

use hulse_proto::bookie::{BookieError, RecoveryReadAnswer, RecoveryReadRequest, StoredEntry};
use hulse_proto::entry::{Entry, EntryHeader};
use hulse_proto::id::EntryId;
use hulse_proto::ledger::{LedgerKind, LossKind, Member};
use hulse_proto::mutant::Mutant;

use super::asked::{Asked, Pace};
use super::core::{RecoveryCore, answers_of};
use super::event::{BookieAsk, Policy, RecoveryEffect};
use super::write_back::WriteBack;
use crate::error::{MemberAnswers, RecoverError};
use crate::quorum::{entry_covered, write_set};

/// A member's promise about one entry.
#[derive(Debug, Clone)]
pub(super) enum Promise {
    /// It holds it.
    Positive(Entry),
    /// It does not and never will.
    Negative,
    /// The same, but it lost its tail at a crash because it does not sync (amended B5).
    UnsyncedNegative,
}

/// The reads of one entry, by position; `None` outside its write set.
#[derive(Debug)]
pub(super) struct EntryReads {
    pub(super) asked: Vec<Option<Asked<Promise>>>,
    since: Duration,
}

impl EntryReads {
    pub(super) fn wakeups(&self, pace: Pace) -> impl Iterator<Item = Duration> + '_ {
        let asked = self.asked.iter().flatten();
        asked.filter_map(move |asked| asked.wakeup(pace))
    }

    pub(super) fn since(&self) -> Duration {
        self.since
    }

    fn positive(&self) -> Option<&Entry> {
        self.asked
            .iter()
            .flatten()
            .find_map(|asked| match &asked.answer {
                Some(Promise::Positive(entry)) => Some(entry),
                _ => None,
            })
    }

    fn count(&self, wanted: impl Fn(&Promise) -> bool) -> usize {
        self.asked
            .iter()
            .flatten()
            .filter(|asked| asked.answer.as_ref().is_some_and(&wanted))
            .count()
    }

    pub(super) fn all(&self, wanted: impl Fn(&Asked<Promise>) -> bool) -> bool {
        self.asked.iter().flatten().all(wanted)
    }

    fn held_bytes(&self) -> usize {
        self.positive()
            .map_or(0, |entry| entry.header().entry_len())
    }
}

/// What the answers prove about an entry.
enum Verdict {
    /// It is recoverable.
    Found(Entry),
    /// It is not in the ledger; with a loss when that is not proven.
    Absent(Option<LossKind>),
    /// Every member answered, and it is neither.
    Lost,
    /// Wait.
    Undecided,
}

impl RecoveryCore {
    /// Sets where reading begins: one below the base, for the totals; or below the end that an operator named.
    pub(super) fn place_reader(&mut self) {
        let below = match self.config.policy {
            Policy::AcceptLoss {
                up_to: Some(EntryId(0)),
            } => {
                self.end = Some(EntryId(0));
                self.note_loss(LossKind::Accepted, EntryId(0));
                return;
            }
            Policy::AcceptLoss { up_to: Some(up_to) } => self.base.0.min(up_to.0 - 1),
            _ => self.base.0,
        };
        self.anchoring = below > 0 && below == self.base.0;
        self.next = EntryId(below - u64::from(self.anchoring));
    }

    pub(super) fn read(
        &mut self,
        now: Duration,
        position: usize,
        entry: EntryId,
        result: Result<RecoveryReadAnswer, BookieError>,
        effects: &mut Vec<RecoveryEffect>,
    ) {
        let (pace, ledger) = (self.pace(), self.config.ledger);
        let careless = self.unknown_is_negative();
        let Some(Some(asked)) = self
            .reads
            .get_mut(&entry)
            .and_then(|reads| reads.asked.get_mut(position))
        else {
            return;
        };
        let promise = match result {
            Ok(RecoveryReadAnswer::Positive(stored)) => accept(stored, ledger, entry),
            Ok(RecoveryReadAnswer::Negative {
                unsynced_limbo: false,
            }) => Ok(Promise::Negative),
            Ok(RecoveryReadAnswer::Negative {
                unsynced_limbo: true,
            }) => Ok(Promise::UnsyncedNegative),
            Err(_) if careless => Ok(Promise::Negative),
            Err(error) => Err(error),
        };
        match promise {
            Ok(promise) => asked.succeed(promise),
            Err(error) => {
                asked.fail(now, pace, error.clone());
                self.stale(&error, effects);
            }
        }
    }

    fn unknown_is_negative(&self) -> bool {
        self.config.mutation.is(Mutant::UnknownIsNegative)
    }

    pub(super) fn pump_reading(&mut self, now: Duration, effects: &mut Vec<RecoveryEffect>) {
        while self.end.is_none() && self.decide(now, effects) {}
        if self.is_done() {
            return;
        }
        // First what is written back: an entry that every member holds makes room for reads at once, and nothing else would
        // come to ask for them.
        self.pump_write_back(now, effects);
        if self.end.is_none() {
            self.ask_reads(now, effects);
        } else {
            self.reads.clear();
        }
        if self.end.is_some() && self.writes.is_empty() {
            self.close(effects);
        }
    }

    /// Decides the next entry; false when it cannot be decided yet, or nothing is left to decide.
    fn decide(&mut self, now: Duration, effects: &mut Vec<RecoveryEffect>) -> bool {
        let entry = self.next;
        if let Policy::AcceptLoss { up_to: Some(up_to) } = self.config.policy
            && entry >= up_to
        {
            self.seal_at(up_to, effects);
            return false;
        }
        let Some(reads) = self.reads.get(&entry) else {
            return false;
        };
        match self.verdict(now, reads) {
            Verdict::Found(found) => self.found(now, found, effects),
            Verdict::Absent(loss) => self.absent(entry, loss, effects),
            Verdict::Lost => {
                self.lost(entry, effects);
                false
            }
            Verdict::Undecided => false,
        }
    }

    fn verdict(&self, now: Duration, reads: &EntryReads) -> Verdict {
        if let Some(found) = reads.positive() {
            return Verdict::Found(found.clone());
        }
        let quorums = self.quorums();
        let negative = reads.count(|promise| matches!(promise, Promise::Negative));
        if entry_covered(quorums, negative) {
            return Verdict::Absent(None);
        }
        let impatient = now >= reads.since + self.patience();
        let definite = reads.all(|asked| asked.answer.is_some() || asked.hopeless());
        let no_more =
            negative + reads.count(|promise| matches!(promise, Promise::UnsyncedNegative));
        if entry_covered(quorums, no_more) && (definite || impatient) {
            return Verdict::Absent(Some(LossKind::TailLost));
        }
        if self.config.policy != Policy::Strict && (self.given_up_on(now, reads) || impatient) {
            return Verdict::Absent(Some(LossKind::Accepted));
        }
        if definite {
            return Verdict::Lost;
        }
        Verdict::Undecided
    }

    /// How long members that do not answer are waited for where an answer could still change the verdict.
    pub(super) fn patience(&self) -> Duration {
        self.config.deadline / 4
    }

    /// Takes an entry that some member holds (R6, R7).
    fn found(&mut self, now: Duration, entry: Entry, effects: &mut Vec<RecoveryEffect>) -> bool {
        let header = *entry.header();
        if let Err(why) = self.check_chain(&header) {
            let (ledger, entry) = (self.config.ledger, header.entry);
            self.finish(Err(RecoverError::Corrupt { ledger, entry, why }), effects);
            return false;
        }
        let reads = self.reads.remove(&header.entry);
        let follows = self.follows_last(&header) || header.entry == EntryId(0);
        self.last = Some(header);
        self.next = header.entry.next();
        if follows {
            self.records += u64::from(header.record_count);
        } else {
            // What lies below is not counted one by one: without key compaction, which closes its own ledgers, there is one
            // record per offset.
            self.records = self.span_to(&header);
        }
        if std::mem::take(&mut self.anchoring) {
            let sealed_below = header.entry.next() < self.base;
            if sealed_below {
                self.end = Some(header.entry.next());
                self.reads.clear();
            }
            return !sealed_below;
        }
        if header.entry >= self.base {
            let mut asked = reads.map(|reads| reads.asked).unwrap_or_default();
            let from = self.ensemble_of(header.entry);
            let to = self.local.ensemble_of(header.entry);
            for (position, asked) in asked.iter_mut().enumerate() {
                asked.take_if(|_| from[position] != to[position]);
            }
            let write = WriteBack::new(now, entry, &asked, self.quorums(), self.pace());
            self.writes.insert(header.entry, write);
        }
        true
    }

    /// No hole is between it and the last entry that was accepted.
    fn follows_last(&self, header: &EntryHeader) -> bool {
        self.last
            .is_some_and(|last| last.entry.next() == header.entry)
    }

    /// R7: offsets and totals go on where the entry before ended.
    fn check_chain(&self, header: &EntryHeader) -> Result<(), String> {
        let log = self.ledger().kind == LedgerKind::Log;
        let before = match &self.last {
            Some(last) if self.follows_last(header) => {
                Some((last.end_offset(), last.cumulative_bytes))
            }
            None if header.entry == EntryId(0) => Some((self.ledger().base_offset, 0)),
            _ => None,
        };
        let Some((offset, bytes)) = before else {
            return Ok(());
        };
        if log && header.first_offset != offset {
            return Err(format!(
                "it begins at offset {}, expected {offset}",
                header.first_offset
            ));
        }
        let expected = bytes + u64::from(header.payload_len);
        if header.cumulative_bytes != expected {
            return Err(format!(
                "it counts {} bytes, expected {expected}",
                header.cumulative_bytes
            ));
        }
        Ok(())
    }

    pub(super) fn span_to(&self, header: &EntryHeader) -> u64 {
        match self.ledger().kind {
            LedgerKind::Log => header
                .end_offset()
                .0
                .saturating_sub(self.ledger().base_offset.0),
            LedgerKind::State => 0,
        }
    }

    /// Takes the proof that an entry is not there; or the word (R14), of which `accepting` tells.
    fn absent(
        &mut self,
        entry: EntryId,
        loss: Option<LossKind>,
        effects: &mut Vec<RecoveryEffect>,
    ) -> bool {
        if let Policy::AcceptLoss { up_to } = self.config.policy {
            return self.given_up(entry, loss, up_to);
        }
        if !self.anchoring {
            if let Some(kind) = loss {
                self.note_loss(kind, entry);
            }
            self.end = Some(entry);
            return false;
        }
        let Some(kind) = loss else {
            // A confirmed entry cannot be absent: its copies were lost without a trace.
            self.lost(entry, effects);
            return false;
        };
        self.note_loss(kind, entry);
        self.look_below(entry)
    }

    pub(super) fn lost(&mut self, entry: EntryId, effects: &mut Vec<RecoveryEffect>) {
        let error = RecoverError::Damaged {
            ledger: self.config.ledger,
            entry,
            members: self.reading_answers(),
        };
        self.finish(Err(error), effects);
    }

    /// What each member said of the entry that is to be decided.
    pub(super) fn reading_answers(&self) -> MemberAnswers {
        let entry = self.undecided();
        match (self.reads.get(&entry), self.writes.get(&entry)) {
            (Some(reads), _) => answers_of(&reads.asked, self.ensemble_of(entry)),
            (None, Some(write)) => answers_of(&write.copies, self.local.ensemble_of(entry)),
            (None, None) => MemberAnswers::default(),
        }
    }

    /// Who may hold an entry: the frozen ensemble, and below it that of its own fragment (only the anchor lies there).
    fn ensemble_of(&self, entry: EntryId) -> &[Member] {
        if self.config.mutation.is(Mutant::RecoverFromZero) {
            return &self.ledger().last_fragment().ensemble;
        }
        &self.ledger().fragment_of(entry).ensemble
    }

    /// The entry that the attempt waits for.
    pub(super) fn undecided(&self) -> EntryId {
        match self.writes.keys().next() {
            Some(written) if self.end.is_some() => *written,
            _ => self.next,
        }
    }

    /// Asks for the entry to be decided, and ahead of it within what is known to be held and what memory allows (R13).
    fn ask_reads(&mut self, now: Duration, effects: &mut Vec<RecoveryEffect>) {
        let (pace, quorums, token) = (self.pace(), self.quorums(), self.token());
        let held: usize = self.reads.values().map(EntryReads::held_bytes).sum();
        let writing: usize = self.writes.values().map(WriteBack::held_bytes).sum();
        let full =
            held + writing >= self.config.bytes_max || self.writes.len() >= self.config.read_ahead;
        let ahead = if full || self.anchoring {
            self.next.next()
        } else {
            let room = self.config.read_ahead - self.writes.len();
            let end = EntryId(self.next.0 + room as u64);
            end.min(self.held_end.max(self.next.next()))
        };
        // While write-back is behind, even the next entry waits: each holds a payload.
        if !full || self.writes.is_empty() {
            for entry in (self.next.0..ahead.0).map(EntryId) {
                self.reads.entry(entry).or_insert_with(|| {
                    let mut asked = vec![None; quorums.ensemble as usize];
                    for position in write_set(quorums, entry) {
                        asked[position] = Some(Asked::new(now, pace));
                    }
                    EntryReads { asked, since: now }
                });
            }
        }
        let mut due = Vec::new();
        for (entry, reads) in &mut self.reads {
            for (position, asked) in reads.asked.iter_mut().enumerate() {
                if asked.as_mut().is_some_and(|asked| asked.ask(now, pace)) {
                    due.push((*entry, position));
                }
            }
        }
        for (entry, position) in due {
            let member = self.ensemble_of(entry)[position].clone();
            let to = self.address(&member);
            let ask = BookieAsk::Read(RecoveryReadRequest { to, token, entry });
            effects.push(RecoveryEffect::Ask {
                position,
                member,
                ask,
            });
        }
    }
}

/// Believes an entry only when it is the one that was asked for and its payload matches its header (R7).
fn accept(
    stored: StoredEntry,
    ledger: hulse_proto::id::LedgerId,
    entry: EntryId,
) -> Result<Promise, BookieError> {
    let header = stored.entry.header();
    let right = header.ledger == ledger && header.entry == entry;
    if !right || stored.entry.verify().is_err() {
        return Err(BookieError::Damaged { ledger, entry });
    }
    Ok(Promise::Positive(stored.entry))
}
