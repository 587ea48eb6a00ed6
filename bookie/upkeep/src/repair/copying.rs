//! One range of entries on its way to the target: read from whoever has a good copy, stored, and proved to be there (storage.md X5).

use std::collections::BTreeMap;
use std::ops::Range;

use bookie_client::quorum::{in_write_set, write_set};
use hulse_proto::bookie::{BookieError, Inventory, entry_mark};
use hulse_proto::entry::Entry;
use hulse_proto::id::{EntryId, LedgerId, NodeName};
use hulse_proto::ledger::{Member, Quorums};

use super::event::RepairFailure;

/// Who is who.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Route {
    pub(super) ledger: LedgerId,
    pub(super) quorums: Quorums,
    pub(super) ensemble: Vec<Member>,
    pub(super) position: usize,
    pub(super) target: Member,
}

impl Route {
    /// True for an entry that the target is to hold.
    fn assigned(&self, entry: EntryId) -> bool {
        in_write_set(self.quorums, entry, self.position)
    }

    fn every_entry(&self) -> bool {
        self.quorums.write == self.quorums.ensemble
    }
}

/// What to do next.
#[derive(Debug)]
pub(super) enum Step {
    Read { member: Member, first: EntryId },
    Copy(Entry),
    Prove,
    Fail(RepairFailure),
}

/// An entry that is out.
struct Flying {
    entry: Entry,
    tries: u32,
}

/// A range under way.
pub(super) struct Copying {
    pub(super) range: Range<u64>,
    next: EntryId,
    reading: bool,
    /// Positions in the order in which they are asked; one that answered comes first.
    order: Vec<usize>,
    /// Who could not give `next`, and why.
    failed: Vec<(usize, BookieError)>,
    flying: BTreeMap<EntryId, Flying>,
    flying_bytes: usize,
    digest: u64,
    pub(super) entries: u64,
    pub(super) bytes: u64,
}

impl Copying {
    pub(super) fn new(range: Range<u64>, route: &Route) -> Self {
        let positions = 0..route.ensemble.len();
        Self {
            next: EntryId(range.start),
            range,
            reading: false,
            order: positions
                .filter(|at| route.ensemble[*at] != route.target)
                .collect(),
            failed: Vec::new(),
            flying: BTreeMap::new(),
            flying_bytes: 0,
            digest: 0,
            entries: 0,
            bytes: 0,
        }
    }

    fn end(&self) -> EntryId {
        EntryId(self.range.end)
    }

    /// The next read, or the proof once everything is stored.
    pub(super) fn pump(&mut self, route: &Route, flying_max: usize) -> Option<Step> {
        while self.next < self.end() && !route.assigned(self.next) {
            self.next = self.next.next();
        }
        if self.next >= self.end() {
            return self.flying.is_empty().then_some(Step::Prove);
        }
        if self.reading || self.flying_bytes >= flying_max {
            return None;
        }
        let holders: Vec<usize> = write_set(route.quorums, self.next).collect();
        let mut order = self.order.iter().copied();
        let source = order
            .find(|at| holders.contains(at) && self.failed.iter().all(|(failed, _)| failed != at));
        let Some(source) = source else {
            return Some(Step::Fail(self.unread(route)));
        };
        self.reading = true;
        Some(Step::Read {
            member: route.ensemble[source].clone(),
            first: self.next,
        })
    }

    /// Whether trying again can help: a member that said nothing may have a copy.
    fn unread(&self, route: &Route) -> RepairFailure {
        let entry = self.next;
        let gone = |error: &BookieError| {
            matches!(
                error,
                BookieError::NotHere { .. }
                    | BookieError::Damaged { .. }
                    | BookieError::WrongIncarnation { .. }
                    | BookieError::Deleted { .. }
            )
        };
        let told = self.failed.iter().map(|(at, error)| {
            let name: NodeName = route.ensemble[*at].bookie.clone();
            (name, error.clone())
        });
        let members = told.collect();
        match self.failed.iter().all(|(_, error)| gone(error)) {
            true => RepairFailure::Unreadable { entry, members },
            false => RepairFailure::Unavailable { entry, members },
        }
    }

    /// Takes what a member gave; the good entries from `next` on are to be copied.
    pub(super) fn read(
        &mut self,
        route: &Route,
        member: &Member,
        answer: Result<Vec<Entry>, BookieError>,
    ) -> Vec<Entry> {
        self.reading = false;
        let at = route.ensemble.iter().position(|found| found == member);
        let at = at.expect("only members are asked");
        let mut good = Vec::new();
        let entries = match answer {
            Ok(entries) => entries,
            Err(error) => {
                self.failed.push((at, error));
                return good;
            }
        };
        let first = self.next;
        for entry in entries {
            let header = entry.header();
            let right = header.ledger == route.ledger && header.entry == self.next;
            if !right || self.next >= self.end() || entry.verify().is_err() {
                break;
            }
            self.next = self.next.next();
            if route.assigned(header.entry) {
                good.push(entry);
            }
        }
        if self.next == first {
            let ledger = route.ledger;
            let damaged = BookieError::Damaged {
                ledger,
                entry: first,
            };
            self.failed.push((at, damaged));
            return good;
        }
        self.failed.clear();
        self.order.sort_by_key(|position| *position != at);
        for entry in &good {
            let (number, digest) = (entry.header().entry, entry.header().digest());
            self.digest = self.digest.wrapping_add(entry_mark(number, digest));
            self.flying_bytes += entry.header().entry_len();
            let entry = entry.clone();
            self.flying.insert(number, Flying { entry, tries: 1 });
        }
        good
    }

    /// Takes the target's word on a copy; an entry that is to be sent again, if so.
    pub(super) fn copied(
        &mut self,
        route: &Route,
        entry: EntryId,
        answer: Result<(), BookieError>,
        tries_max: u32,
    ) -> Option<Step> {
        let flying = self.flying.get_mut(&entry)?;
        match answer {
            Ok(()) => {
                let bytes = flying.entry.header().entry_len();
                self.flying.remove(&entry);
                self.flying_bytes -= bytes;
                self.entries += 1;
                self.bytes += bytes as u64;
                None
            }
            Err(
                BookieError::Busy { .. }
                | BookieError::NoAnswer { .. }
                | BookieError::MetadataUnavailable,
            ) if flying.tries < tries_max => {
                flying.tries += 1;
                Some(Step::Copy(flying.entry.clone()))
            }
            Err(error) => Some(Step::Fail(RepairFailure::Target {
                bookie: route.target.bookie.clone(),
                error,
            })),
        }
    }

    /// The range ends here, whatever it was said to be.
    pub(super) fn cut(&mut self) {
        self.range.end = self.next.0;
    }

    /// True when the target holds exactly what was copied; with entries spread over a part of the ensemble each, at least those.
    pub(super) fn is_proved(&self, route: &Route, held: &Inventory) -> bool {
        let ledgers = held.ledgers.iter();
        let mut runs = ledgers
            .filter(|found| found.ledger == route.ledger)
            .flat_map(|found| &found.runs);
        if route.every_entry() {
            return self.range.is_empty()
                || runs.any(|run| {
                    let same = run.first.0..run.end.0;
                    same == self.range && run.digest == Some(self.digest)
                });
        }
        let runs: Vec<Range<u64>> = runs.map(|run| run.first.0..run.end.0).collect();
        let mut entries = self.range.clone().map(EntryId);
        entries.all(|entry| !route.assigned(entry) || runs.iter().any(|run| run.contains(&entry.0)))
    }
}
