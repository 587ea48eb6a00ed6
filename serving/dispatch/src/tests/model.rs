//! What an observer outside knows, and what it never may see.

use std::collections::{BTreeMap, BTreeSet};

use super::world::{World, offsets};
use crate::*;

/// A record that a consumer has.
#[derive(Debug, Clone, Copy)]
pub(super) struct Held {
    pub(super) session: SessionId,
    pub(super) until: i64,
}

/// What was said and has no receipt yet.
#[derive(Debug)]
struct Said {
    verdict: Verdict,
    ranges: Vec<(u64, u64)>,
    /// Another consumer had a part of it.
    foreign: bool,
    /// What the session held of it.
    took: Vec<(u64, Held)>,
}

#[derive(Debug, Default)]
pub(super) struct Model {
    pub(super) held: BTreeMap<u64, Held>,
    /// Held when the cursor moved, or when it was passed over.
    ghosts: Vec<(u64, Held)>,
    failed: BTreeMap<u64, u16>,
    /// The highest count that a consumer saw.
    shown: BTreeMap<u64, u16>,
    /// Receipts were given, since the last move.
    receipted: BTreeSet<u64>,
    ever: BTreeSet<u64>,
    /// The highest first delivery by slot, or by key where that is what is ordered.
    firsts: BTreeMap<u16, u64>,
    nacked: BTreeSet<u64>,
    said: BTreeMap<u64, Said>,
    pub(super) gone: BTreeSet<SessionId>,
    pub(super) deliveries: u64,
}

fn key(w: &World, offset: u64) -> Option<u16> {
    let at = w.log.partition_point(|batch| batch.range.end.0 <= offset);
    let batch = &w.log[at];
    batch.keys[(offset - batch.range.first.0) as usize]
}

/// It is processed, durably, or dead.
fn is_over(w: &World, offset: u64) -> bool {
    let at = hulse_proto::id::Offset(offset);
    if at < w.durable.base || w.durable.acked.iter().any(|range| range.contains(at)) {
        return true;
    }
    let mark = w.durable.marks.get(offset);
    w.policy.is_spent(mark.failed) || mark.letter != Letter::None
}

impl Model {
    /// A consumer says something; it was said at this moment and the dispatcher has not been pumped.
    pub(super) fn says(
        &mut self,
        w: &World,
        ticket: u64,
        session: SessionId,
        verdict: Verdict,
        ranges: &[(u64, u64)],
    ) {
        let mut took = Vec::new();
        let foreign = ranges.iter().any(|&(first, end)| {
            let mut held = self.held.range(first..end.max(first));
            held.any(|(_, held)| held.session != session)
        });
        for &(first, end) in ranges {
            if verdict != Verdict::Renew {
                self.ghosts
                    .retain(|(at, held)| held.session != session || !(first..end).contains(at));
            }
            let mine = self.held.range_mut(first..end.max(first));
            for (offset, held) in mine.filter(|(_, held)| held.session == session) {
                match verdict {
                    Verdict::Renew if w.policy.lock_ms == 0 => {}
                    Verdict::Renew => held.until = w.now + w.policy.lock_ms,
                    _ => took.push((*offset, *held)),
                }
            }
        }
        for (offset, _) in &took {
            self.held.remove(offset);
            if self.counts(verdict) {
                *self.failed.entry(*offset).or_default() += 1;
            }
            if verdict != Verdict::Ack {
                self.nacked.insert(*offset);
            }
        }
        let said = Said {
            verdict,
            ranges: ranges.to_vec(),
            foreign,
            took,
        };
        self.said.insert(ticket, said);
    }

    fn counts(&self, verdict: Verdict) -> bool {
        matches!(
            verdict,
            Verdict::Nack { failed: true, .. } | Verdict::Reject
        )
    }

    /// A consumer goes, or pauses.
    pub(super) fn releases(&mut self, session: SessionId, counts: bool, gone: bool) {
        let theirs = self.held.iter().filter(|(_, held)| held.session == session);
        let theirs: Vec<u64> = theirs.map(|(offset, _)| *offset).collect();
        for offset in theirs {
            self.held.remove(&offset);
            if counts {
                *self.failed.entry(offset).or_default() += 1;
            }
        }
        if gone {
            self.gone.insert(session);
            self.settles(session);
        }
    }

    pub(super) fn settles(&mut self, session: SessionId) {
        self.ghosts.retain(|(_, held)| held.session != session);
    }

    /// Records leave the window while they are held.
    pub(super) fn skips(&mut self, first: u64, end: u64) {
        let all: Vec<_> = self.held.range(first..end).map(|(k, v)| (*k, *v)).collect();
        for (offset, held) in all {
            self.held.remove(&offset);
            self.ghosts.push((offset, held));
        }
    }

    pub(super) fn seeks(&mut self) {
        self.skips(0, u64::MAX);
        self.failed.clear();
        self.shown.clear();
        self.receipted.clear();
        self.ever.clear();
        self.firsts.clear();
        self.nacked.clear();
        // What was said before is void, and its receipt says nothing of what is delivered anew.
        self.said.clear();
    }

    /// Parked records are tried as if they had never failed.
    pub(super) fn redrives(&mut self, w: &World) {
        // No order is promised for them, also where the move that they were delivered before is lost.
        self.ever.extend((0..w.end()).filter(|it| is_over(w, *it)));
        self.failed.retain(|offset, _| !is_over(w, *offset));
        self.shown.retain(|offset, _| !is_over(w, *offset));
        self.nacked.retain(|offset| !is_over(w, *offset));
    }

    /// Another owner: what is not durable is gone.
    pub(super) fn reopens(&mut self, w: &World) {
        self.held.clear();
        self.ghosts.clear();
        self.said.clear();
        self.nacked.clear();
        self.failed.clear();
        for (range, mark) in w.durable.marks.iter() {
            for offset in range.first.0..range.end.0 {
                self.failed.insert(offset, mark.failed);
                if mark.retry_at > 0 || matches!(mark.why, Why::Rejected | Why::LockExpired) {
                    self.nacked.insert(offset);
                }
            }
        }
    }

    /// What came out since the last look.
    pub(super) fn observe(&mut self, w: &mut World) {
        let tickets: Vec<u64> = self.said.keys().copied().collect();
        for ticket in tickets {
            if let Some(statuses) = w.receipts.remove(&ticket) {
                let said = self.said.remove(&ticket).unwrap();
                self.receipt(&said, &statuses);
            }
        }
        self.expire(w.now);
        for unit in std::mem::take(&mut w.units) {
            self.unit(w, &unit);
        }
    }

    fn receipt(&mut self, said: &Said, statuses: &[Status]) {
        assert_eq!(said.ranges.len(), statuses.len());
        for (&(first, end), status) in said.ranges.iter().zip(statuses) {
            let took = said.took.iter();
            let took = took.filter(|(offset, _)| (first..end).contains(offset));
            assert!(*status != Status::Ok || !said.foreign, "{said:?}");
            match status {
                Status::Ok if said.verdict == Verdict::Ack => {
                    self.receipted.extend(first..end);
                }
                Status::Invalid => {
                    for (offset, held) in took {
                        self.held.insert(*offset, *held);
                        if self.counts(said.verdict) {
                            *self.failed.get_mut(offset).unwrap() -= 1;
                        }
                    }
                }
                Status::NotOwned | Status::Ok => {}
                Status::Stale => panic!("{said:?} is of this epoch"),
            }
        }
    }

    fn expire(&mut self, now: i64) {
        let over = |held: &Held| held.until != 0 && held.until <= now;
        let ended: Vec<u64> = self
            .held
            .iter()
            .filter(|(_, held)| over(held))
            .map(|(offset, _)| *offset)
            .collect();
        for offset in ended {
            self.held.remove(&offset);
            *self.failed.entry(offset).or_default() += 1;
            self.nacked.insert(offset);
        }
        self.ghosts.retain(|(_, held)| !over(held));
    }

    fn unit(&mut self, w: &World, unit: &Unit) {
        self.deliveries += 1;
        assert!(!self.gone.contains(&unit.session), "{unit:?}: it is gone");
        for item in &unit.acquired {
            for offset in item.range.first.0..item.range.end.0 {
                self.record(w, unit, offset, item.failed);
            }
        }
        assert!(!offsets(unit).is_empty());
    }

    fn record(&mut self, w: &World, unit: &Unit, offset: u64, failed: u16) {
        let what = format!("{offset} to {:?} at {}", unit.session, w.now);
        assert!(offset < w.readable, "{what}: not readable");
        assert!(!self.receipted.contains(&offset), "{what}: it was acked");
        assert!(!is_over(w, offset), "{what}: it is over");
        if let Some(held) = self.held.get(&offset) {
            panic!("{what}: {held:?} has it");
        }
        let known = self.failed.get(&offset).copied().unwrap_or(0);
        assert_eq!(failed, known, "{what}: blamed for {failed}, not {known}");
        let shown = self.shown.insert(offset, failed).unwrap_or(0);
        assert!(
            failed >= shown,
            "{what}: count fell from {shown} to {failed}"
        );
        if let Some(hash) = key(w, offset) {
            self.keyed(w, unit, offset, hash, &what);
        }
        self.ever.insert(offset);
        let held = Held {
            session: unit.session,
            until: unit.lock_until.unwrap_or(0),
        };
        self.held.insert(offset, held);
    }

    fn keyed(&mut self, w: &World, unit: &Unit, offset: u64, hash: u16, what: &str) {
        let Kind::Keyed(order) = w.policy.kind else {
            return;
        };
        let slot = hash >> 4;
        let of_slot = |other: u64| key(w, other).is_some_and(|hash| hash >> 4 == slot);
        let ghosts = self.ghosts.iter().map(|(offset, held)| (offset, held));
        for (other, held) in self.held.iter().chain(ghosts) {
            let rival = held.session != unit.session && of_slot(*other);
            assert!(!rival, "K1: {what}, and {held:?} has {other}");
        }
        if !self.ever.contains(&offset) {
            // Other keys of the slot need not wait for one that is in flight.
            let line = match order {
                KeyOrder::OneInFlight => hash,
                KeyOrder::Sticky | KeyOrder::BlockOnNack => slot,
            };
            let last = self.firsts.insert(line, offset);
            assert!(
                last.is_none_or(|last| last < offset),
                "K2: {what} after {last:?}"
            );
        }
        match order {
            KeyOrder::Sticky => {}
            KeyOrder::BlockOnNack => {
                let before = self.nacked.range(..offset).copied();
                let stops = before.filter(|it| of_slot(*it) && !is_over(w, *it));
                let stops: Vec<u64> = stops.collect();
                assert!(stops.is_empty(), "block_on_nack: {what} behind {stops:?}");
            }
            KeyOrder::OneInFlight => {
                let before = (w.durable.base.0..offset).filter(|it| key(w, *it) == Some(hash));
                let open: Vec<u64> = before.filter(|it| !is_over(w, *it)).collect();
                assert!(open.is_empty(), "one_in_flight: {what} behind {open:?}");
            }
        }
    }
}
