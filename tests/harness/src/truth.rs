//! The truth file of a run: every record sent and what became of it, and the checker that judges what is stored.
//!
//! The words are those of the cases' common ground: LOST, DUP, GHOST, ORDER, REUSE.

use std::collections::BTreeMap;
use std::fmt;

/// What makes a record unique: its producer and a number that grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RecordId {
    /// Who.
    pub producer: u32,
    /// The how manieth, from 0.
    pub number: u64,
}

impl fmt::Display for RecordId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.producer, self.number)
    }
}

impl RecordId {
    /// The payload that carries it.
    pub fn payload(self) -> String {
        format!("{}|{}", self.producer, self.number)
    }

    /// Reads a payload.
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let (producer, number) = std::str::from_utf8(payload).ok()?.split_once('|')?;
        Some(Self {
            producer: producer.parse().ok()?,
            number: number.parse().ok()?,
        })
    }
}

/// What its sender was told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Stored; at this offset, where the answer named one.
    Ok(Option<u64>),
    /// Certainly not stored.
    Failed,
    /// Nobody knows.
    Unknown,
}

/// Everything sent, and everything that readers saw on the way.
#[derive(Debug, Clone, Default)]
pub struct Truth {
    sent: BTreeMap<RecordId, Outcome>,
    seen: BTreeMap<u64, RecordId>,
    faults: Vec<Violation>,
}

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Violation {
    /// Answered as stored, and not there.
    Lost(RecordId, Outcome),
    /// Stored twice.
    Dup(RecordId, u64, u64),
    /// Stored, though it was never sent or certainly failed.
    Ghost(RecordId, u64),
    /// A producer's later record stands before an earlier one.
    Order(RecordId, RecordId, u64),
    /// One offset, two records.
    Reuse(u64, RecordId, Option<RecordId>),
}

impl Truth {
    /// A record goes out: unknown until an answer comes.
    pub fn send(&mut self, id: RecordId) {
        self.sent.insert(id, Outcome::Unknown);
    }

    /// An answer comes.
    pub fn answer(&mut self, id: RecordId, outcome: Outcome) {
        self.sent.insert(id, outcome);
    }

    /// A reader saw a record at an offset.
    pub fn see(&mut self, offset: u64, id: RecordId) {
        let before = *self.seen.entry(offset).or_insert(id);
        if before != id {
            self.faults.push(Violation::Reuse(offset, before, Some(id)));
        }
    }

    /// Records whose sender was told that they are stored.
    pub fn stored(&self) -> usize {
        self.sent
            .values()
            .filter(|outcome| matches!(outcome, Outcome::Ok(_)))
            .count()
    }

    /// Judges the whole log: (offset, record), in offset order.
    pub fn check(&self, log: &[(u64, RecordId)]) -> Vec<Violation> {
        self.check_from(0, log)
    }

    /// The same of a log of which everything below `start` was trimmed.
    pub fn check_from(&self, start: u64, log: &[(u64, RecordId)]) -> Vec<Violation> {
        let mut found = self.faults.clone();
        let mut places = BTreeMap::new();
        let mut last: BTreeMap<u32, RecordId> = BTreeMap::new();
        for (offset, id) in log {
            match self.sent.get(id) {
                None | Some(Outcome::Failed) => found.push(Violation::Ghost(*id, *offset)),
                Some(_) => {}
            }
            if let Some(first) = places.insert(*id, *offset) {
                found.push(Violation::Dup(*id, first, *offset));
            }
            if let Some(before) = last.insert(id.producer, *id)
                && before > *id
            {
                found.push(Violation::Order(before, *id, *offset));
            }
        }
        for (id, outcome) in &self.sent {
            let lost = match (outcome, places.get(id)) {
                (Outcome::Ok(Some(told)), Some(place)) => told != place,
                (Outcome::Ok(Some(told)), None) => *told >= start,
                // Its offset is not known, so neither is whether it was trimmed.
                (Outcome::Ok(None), None) => start == 0,
                _ => false,
            };
            if lost {
                found.push(Violation::Lost(*id, *outcome));
            }
        }
        let at: BTreeMap<u64, RecordId> = log.iter().copied().collect();
        for (offset, id) in self.seen.range(start..) {
            if at.get(offset) != Some(id) {
                found.push(Violation::Reuse(*offset, *id, at.get(offset).copied()));
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> RecordId {
        RecordId {
            producer: 1,
            number,
        }
    }

    fn truth() -> Truth {
        let mut truth = Truth::default();
        for number in 0..4 {
            truth.send(id(number));
        }
        truth.answer(id(0), Outcome::Ok(Some(0)));
        truth.answer(id(1), Outcome::Failed);
        truth
    }

    #[test]
    fn check_of_a_right_log_finds_nothing() {
        assert_eq!(truth().check(&[(0, id(0)), (1, id(2))]), []);
        assert_eq!(truth().check(&[(0, id(0))]), []);
    }

    #[test]
    fn check_of_a_trimmed_log_asks_for_nothing_below_its_start() {
        let mut truth = truth();
        truth.see(0, id(0));
        assert_eq!(truth.check_from(1, &[(1, id(2))]), []);
        truth.answer(id(2), Outcome::Ok(Some(1)));
        let lost = truth.check_from(1, &[]);
        assert_eq!(lost, [Violation::Lost(id(2), Outcome::Ok(Some(1)))]);
    }

    #[test]
    fn check_names_each_broken_promise() {
        let lost = truth().check(&[]);
        assert_eq!(lost, [Violation::Lost(id(0), Outcome::Ok(Some(0)))]);
        let ghost = truth().check(&[(0, id(0)), (1, id(1)), (2, id(9))]);
        assert_eq!(
            ghost,
            [Violation::Ghost(id(1), 1), Violation::Ghost(id(9), 2)]
        );
        let dup = truth().check(&[(0, id(0)), (1, id(2)), (2, id(2))]);
        assert_eq!(dup, [Violation::Dup(id(2), 1, 2)]);
        let order = truth().check(&[(0, id(0)), (1, id(3)), (2, id(2))]);
        assert_eq!(order, [Violation::Order(id(3), id(2), 2)]);
    }

    #[test]
    fn check_finds_an_offset_that_showed_two_records() {
        let mut truth = truth();
        truth.see(1, id(2));
        truth.see(1, id(3));
        let reuse = Violation::Reuse(1, id(2), Some(id(3)));
        assert_eq!(truth.check(&[(0, id(0)), (1, id(2))]), [reuse]);
        let mut truth = self::truth();
        truth.see(1, id(3));
        let reuse = Violation::Reuse(1, id(3), Some(id(2)));
        assert_eq!(truth.check(&[(0, id(0)), (1, id(2))]), [reuse]);
    }
}
