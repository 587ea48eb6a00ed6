//! What is true, and how it fails.

use std::collections::{BTreeMap, BTreeSet};

use hulse_proto::id::{
    EntryId, FenceToken, Incarnation, LedgerId, NodeName, Offset, OwnerEpoch, PartitionId,
    SegmentId, TopicId,
};
use hulse_proto::ledger::{
    ClosedTotals, Fragment, LedgerKind, LedgerMetadata, LedgerState, Member, Quorums,
};
use hulse_proto::tier::{Attempt, LocalCopies, Settled, Tier};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use uuid::Uuid;

use super::runs::Facts;
use crate::format::{Directory, DirectoryRow, FormatError};
use crate::name::ObjectName;
use crate::protocol::event::{
    Change, Found, Fresh, ObjectError, TierEffect, TierEvent, UploadError, UploadOrder, Uploaded,
    Version,
};
use crate::segment::Written;

/// Bookies that hold each ledger.
pub(super) const MEMBERS: usize = 3;
/// Length of one object.
const OBJECT_BYTES: u64 = 1000;

/// How good an object is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Quality {
    Whole,
    /// Shorter than was sent.
    Truncated,
    /// A block is not what was sent.
    Rotten,
}

#[derive(Debug, Clone, Hash)]
pub(super) struct Object {
    pub(super) quality: Quality,
    pub(super) ledgers: Vec<LedgerId>,
}

/// What was sent and lands later, if ever.
enum Late {
    Put(String, Object),
    Delete(String),
    Txn(Vec<Change>),
    Drop(LedgerId, usize),
}

pub(super) struct World {
    pub(super) rng: ChaCha8Rng,
    pub(super) ledgers: BTreeMap<LedgerId, (LedgerMetadata, Version)>,
    pub(super) copies: BTreeSet<(LedgerId, usize)>,
    pub(super) objects: BTreeMap<String, Object>,
    pub(super) facts: Facts,
    /// Faults happen.
    pub(super) faulty: bool,
    listings: Vec<Vec<String>>,
    late: Vec<Late>,
    version: u64,
}

pub(super) fn member(number: usize) -> Member {
    Member {
        bookie: NodeName::new(&format!("bookie-{number}")).expect("a name"),
        incarnation: Incarnation(Uuid::from_u128(number as u128)),
    }
}

fn ledger(partition: u32) -> LedgerMetadata {
    LedgerMetadata {
        kind: LedgerKind::Log,
        partition: PartitionId {
            topic: TopicId(Uuid::from_u128(1)),
            index: partition,
        },
        owner_epoch: OwnerEpoch(1),
        quorums: Quorums {
            ensemble: MEMBERS as u32,
            write: MEMBERS as u32,
            ack: 2,
        },
        state: LedgerState::Closed,
        recovery_token: FenceToken(0),
        fragments: vec![Fragment {
            first: EntryId(0),
            ensemble: (0..MEMBERS).map(member).collect(),
        }],
        base_offset: Offset(0),
        writer_nonce: [0; 16],
        recovery_nonce: [0; 16],
        closed: Some(ClosedTotals {
            end: EntryId(10),
            offset_span: 10,
            record_count: 10,
            bytes: 100,
            digest: 1,
        }),
        degraded: Vec::new(),
        loss: None,
        created_at: 0,
        intents: Vec::new(),
        repair_nonce: [0; 16],
        tier: Some(Box::new(Tier {
            settled: Some(Settled::default()),
            ..Tier::default()
        })),
    }
}

impl World {
    /// `ledgers` in each of two partitions, their numbers mixed.
    pub(super) fn new(seed: u64, ledgers: u64, faulty: bool) -> Self {
        let mut world = Self {
            rng: ChaCha8Rng::seed_from_u64(seed),
            ledgers: BTreeMap::new(),
            copies: BTreeSet::new(),
            objects: BTreeMap::new(),
            facts: Facts::default(),
            faulty,
            listings: Vec::new(),
            late: Vec::new(),
            version: 1,
        };
        for number in 0..ledgers * 2 {
            let id = LedgerId(number);
            let value = ledger((number % 2) as u32);
            world.ledgers.insert(id, (value, Version(1)));
            world.copies.extend((0..MEMBERS).map(|at| (id, at)));
        }
        world
    }

    /// True in one of so many cases, while faults happen.
    pub(super) fn fault(&mut self, one_of: u32) -> bool {
        self.faulty && self.rng.random_ratio(1, one_of)
    }

    pub(super) fn fresh(&mut self) -> Fresh {
        Fresh {
            segment: SegmentId(Uuid::from_u128(self.rng.random())),
            nonce: self.rng.random(),
        }
    }

    /// Does what an actor asked for. `dead`: the actor never hears of it, and it may happen later.
    pub(super) fn carry_out(&mut self, effect: TierEffect, dead: bool) -> TierEvent {
        match effect {
            TierEffect::Look(ledgers) => match self.fault(30) {
                true => TierEvent::Blind("no answer".to_owned()),
                false => {
                    let found = ledgers.iter().map(|id| self.ledgers.get(id).cloned());
                    let found: Vec<Found> = found.collect();
                    TierEvent::Looked(found, self.fresh())
                }
            },
            TierEffect::Propose(changes) => self.propose(changes, dead),
            TierEffect::Upload(order) => TierEvent::Uploaded(self.upload(&order, dead)),
            TierEffect::Verify(attempt, _) => TierEvent::Object(self.look_at(&attempt, false)),
            TierEffect::ReadBack(_, segment) => {
                TierEvent::Object(self.look_at(&segment.attempt, true))
            }
            TierEffect::DropCopies(ledger, members) => {
                TierEvent::Dropped(self.drop_copies(ledger, &members, dead))
            }
            TierEffect::Delete(deletion) => {
                TierEvent::Object(self.delete(&deletion.attempts, dead))
            }
            TierEffect::List(after) => TierEvent::Listed(self.list(after.as_deref())),
        }
    }

    fn propose(&mut self, changes: Vec<Change>, dead: bool) -> TierEvent {
        let silent = TierEvent::Silent("no answer".to_owned());
        if dead || self.fault(20) {
            match self.rng.random_range(0..3) {
                0 => {}
                1 => drop(self.commit(&changes)),
                _ => self.late.push(Late::Txn(changes)),
            }
            return silent;
        }
        match self.commit(&changes) {
            true => TierEvent::Committed,
            false => TierEvent::Beaten,
        }
    }

    fn commit(&mut self, changes: &[Change]) -> bool {
        let holds = |change: &Change| {
            let found = self.ledgers.get(&change.ledger);
            found.is_some_and(|(_, version)| *version == change.version)
        };
        if !changes.iter().all(holds) {
            return false;
        }
        self.version += 1;
        let segments = changes.iter().filter(|change| gains_segment(self, change));
        let segments = segments.count() as u64;
        self.facts.committed += u64::from(segments > 0);
        self.facts.packed += u64::from(segments > 1);
        for change in changes {
            match &change.value {
                Some(value) => {
                    // What metadata hold is what a codec brings back.
                    let value = LedgerMetadata::decode(&value.encode()).expect("it is encoded");
                    let version = Version(self.version);
                    self.ledgers.insert(change.ledger, (value, version));
                }
                None => {
                    self.facts.removed += 1;
                    self.ledgers.remove(&change.ledger);
                }
            }
        }
        true
    }

    fn unavailable() -> ObjectError {
        ObjectError::Unavailable {
            why: "503".to_owned(),
        }
    }

    fn upload(&mut self, order: &UploadOrder, dead: bool) -> Result<Box<Uploaded>, UploadError> {
        for (ledger, metadata) in &order.ledgers {
            let mut members = metadata.fragments[0].ensemble.iter();
            let held = members.any(|found| {
                (0..MEMBERS).any(|at| member(at) == *found && self.copies.contains(&(*ledger, at)))
            });
            if !held {
                return Err(UploadError::Source {
                    ledger: *ledger,
                    why: "no bookie has it".to_owned(),
                });
            }
        }
        let quality = match self.faulty.then(|| self.rng.random_range(0..20)) {
            Some(0) => Quality::Truncated,
            Some(1) => Quality::Rotten,
            _ => Quality::Whole,
        };
        let ledgers: Vec<LedgerId> = order.ledgers.iter().map(|(ledger, _)| *ledger).collect();
        let object = Object {
            quality,
            ledgers: ledgers.clone(),
        };
        let name = order.attempt.object.clone();
        if dead || self.fault(8) {
            // Parts of a multipart upload that is not completed are invisible.
            match self.rng.random_range(0..3) {
                0 => {}
                1 => drop(self.objects.insert(name, object)),
                _ => self.late.push(Late::Put(name, object)),
            }
            return Err(Self::unavailable().into());
        }
        self.objects.insert(name, object);
        let rows = ledgers.iter().zip(0..).map(|(ledger, at)| DirectoryRow {
            ledger: *ledger,
            first_byte: at * 20,
            index_at: at * 20 + 10,
            index_bytes: 10,
            index_crc: 0,
            end: EntryId(10),
        });
        Ok(Box::new(Uploaded {
            written: Written {
                segment: order.attempt.id,
                object_bytes: OBJECT_BYTES,
                directory: Directory {
                    rows: rows.collect(),
                },
            },
            etag: String::new(),
        }))
    }

    fn look_at(&mut self, attempt: &Attempt, whole: bool) -> Result<(), ObjectError> {
        if self.fault(15) {
            return Err(Self::unavailable());
        }
        let object = attempt.object.clone();
        match self.objects.get(&object).map(|found| found.quality) {
            None => Err(ObjectError::Absent { object }),
            Some(Quality::Truncated) => Err(ObjectError::Length {
                object,
                found: OBJECT_BYTES / 2,
                expected: OBJECT_BYTES,
            }),
            Some(Quality::Rotten) if whole => Err(ObjectError::Damaged {
                object,
                error: FormatError::Mark { part: "block" },
            }),
            Some(_) => Ok(()),
        }
    }

    fn drop_copies(
        &mut self,
        ledger: LedgerId,
        members: &[Member],
        dead: bool,
    ) -> Result<(), String> {
        let mut silent = dead;
        for at in (0..MEMBERS).filter(|at| members.contains(&member(*at))) {
            if dead || self.fault(10) {
                silent = true;
                if self.rng.random() {
                    self.late.push(Late::Drop(ledger, at));
                }
                continue;
            }
            self.copies.remove(&(ledger, at));
        }
        match silent {
            true => Err("a bookie does not answer".to_owned()),
            false => Ok(()),
        }
    }

    fn delete(&mut self, attempts: &[Attempt], dead: bool) -> Result<(), ObjectError> {
        let mut silent = dead;
        for attempt in attempts {
            if dead || self.fault(10) {
                silent = true;
                match self.rng.random_range(0..3) {
                    0 => {}
                    1 => drop(self.objects.remove(&attempt.object)),
                    _ => self.late.push(Late::Delete(attempt.object.clone())),
                }
                continue;
            }
            self.objects.remove(&attempt.object);
        }
        match silent {
            true => Err(Self::unavailable()),
            false => Ok(()),
        }
    }

    fn list(&mut self, after: Option<&str>) -> Result<Vec<(String, u64)>, ObjectError> {
        if self.fault(30) {
            return Err(Self::unavailable());
        }
        let mut names: Vec<String> = self.objects.keys().cloned().collect();
        self.listings.push(names.clone());
        if self.fault(4) {
            let past = self.rng.random_range(0..self.listings.len());
            names.clone_from(&self.listings[past]);
        }
        names.retain(|name| after.is_none_or(|after| name.as_str() > after));
        names.truncate(4);
        Ok(names.into_iter().map(|name| (name, OBJECT_BYTES)).collect())
    }

    /// Something that was sent long ago lands.
    pub(super) fn land(&mut self) {
        if self.late.is_empty() {
            return;
        }
        let at = self.rng.random_range(0..self.late.len());
        self.facts.late += 1;
        match self.late.swap_remove(at) {
            Late::Put(name, object) => drop(self.objects.insert(name, object)),
            Late::Delete(name) => drop(self.objects.remove(&name)),
            Late::Txn(changes) => drop(self.commit(&changes)),
            Late::Drop(ledger, at) => drop(self.copies.remove(&(ledger, at))),
        }
    }

    pub(super) fn land_all(&mut self) {
        while !self.late.is_empty() {
            self.land();
        }
    }

    /// A change of a ledger's key by somebody else.
    pub(super) fn touch(&mut self, ledger: LedgerId, change: impl FnOnce(&mut LedgerMetadata)) {
        if let Some((metadata, version)) = self.ledgers.get_mut(&ledger) {
            self.version += 1;
            *version = Version(self.version);
            change(metadata);
        }
    }

    /// Is each entry where metadata say that it is?
    pub(super) fn judge(&self) -> Result<(), String> {
        for (ledger, (metadata, _)) in &self.ledgers {
            if metadata.state != LedgerState::Closed {
                continue;
            }
            let tier = metadata.tier.as_deref().expect("all are settled");
            let copies = (0..MEMBERS).filter(|at| self.copies.contains(&(*ledger, *at)));
            if tier.local == LocalCopies::Held && copies.count() < MEMBERS {
                return Err(format!("ledger {ledger} lacks copies that metadata name"));
            }
            let Some(segment) = &tier.segment else {
                continue;
            };
            let Some(object) = self.objects.get(&segment.attempt.object) else {
                return Err(format!("ledger {ledger} has a segment that is not there"));
            };
            if object.quality == Quality::Truncated || !object.ledgers.contains(ledger) {
                return Err(format!("ledger {ledger} was committed to a bad object"));
            }
            if tier.local != LocalCopies::Held && object.quality != Quality::Whole {
                return Err(format!("ledger {ledger} cannot be read any more"));
            }
        }
        Ok(())
    }

    /// Once all is quiet: each object is the segment of a ledger, and each ledger has one.
    pub(super) fn judge_end(&self) -> Result<(), String> {
        let mut named = BTreeSet::new();
        for (ledger, (metadata, _)) in &self.ledgers {
            let tier = metadata.tier.as_deref().expect("all are settled");
            let done = tier.local == LocalCopies::Dropped
                && tier.garbage.is_empty()
                && tier.attempt.is_none()
                && metadata.state == LedgerState::Closed;
            let (Some(segment), true) = (&tier.segment, done) else {
                return Err(format!("ledger {ledger} does not come to rest: {tier:?}"));
            };
            named.insert(&segment.attempt.object);
        }
        match self.objects.keys().find(|name| !named.contains(name)) {
            Some(orphan) => {
                let name = ObjectName::parse(orphan).map(|(_, name)| name.ledgers);
                Err(format!("an object of {name:?} is nobody's"))
            }
            None => self.judge(),
        }
    }
}

fn gains_segment(world: &World, change: &Change) -> bool {
    let tier = |metadata: &LedgerMetadata| metadata.tier.clone().and_then(|tier| tier.segment);
    let before = world.ledgers.get(&change.ledger);
    let before = before.and_then(|(metadata, _)| tier(metadata));
    let after = change.value.as_ref().and_then(|value| tier(value));
    before.is_none() && after.is_some()
}
