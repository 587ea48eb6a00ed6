//! Groups on their way to the disk: collecting, sealed, taken. And who waits for each.

use std::collections::VecDeque;
use std::time::Duration;

use hulse_proto::bookie::{AddRequest, RecoveryReadRequest};
use hulse_proto::entry::EntryDigest;
use hulse_proto::id::{EntryId, FenceToken, LedgerId};

use super::event::{Limits, Ticket};
use crate::ledger::GroupNumber;
use crate::log::format::{GROUP_HEADER_BYTES, padded};
use crate::log::group::{GroupBuilder, GroupBytes, InGroup};
use crate::log::record::entry_record_bytes;
use crate::log::{FileKind, Record};

/// Buffers kept for the next groups: one is written while one collects, and one is spare.
const FREE_BUFFERS_MAX: usize = 3;
/// Where the adaptive cap begins, bytes.
const CAP_START: usize = 2 << 20;
/// The adaptive cap never falls below this.
const CAP_MIN: usize = 256 << 10;

/// Room that a fence, a tombstone or a watermark takes in a group, bytes, rounded up.
pub(super) const STATE_RECORD_BYTES: usize = 64;

/// An add that stands in a group.
#[derive(Debug, Clone, Copy)]
pub struct PlacedAdd {
    /// For the answer.
    pub ticket: Ticket,
    /// The ledger.
    pub ledger: LedgerId,
    /// The entry.
    pub entry: EntryId,
    /// Its content.
    pub digest: EntryDigest,
    /// Not to be appended at or after this time (storage.md E3).
    pub expires: Duration,
}

/// A record of a group.
#[derive(Debug, Clone, Copy)]
pub struct Item {
    /// Where in the group.
    pub place: InGroup,
    /// `None`: a fence, a tombstone or a watermark.
    pub add: Option<PlacedAdd>,
}

/// Someone who waits for a group that another's record opened.
#[derive(Debug)]
pub enum Waiter {
    /// A duplicate add.
    Add {
        /// For the answer.
        ticket: Ticket,
        /// The ledger.
        ledger: LedgerId,
        /// The entry.
        entry: EntryId,
    },
    /// A fence.
    Fence {
        /// For the answer.
        ticket: Ticket,
        /// The ledger.
        ledger: LedgerId,
        /// The token.
        token: FenceToken,
    },
    /// A recovery read, to be judged again.
    RecoveryRead {
        /// For the answer.
        ticket: Ticket,
        /// The request.
        request: RecoveryReadRequest,
    },
    /// A deletion.
    Delete {
        /// For the answer.
        ticket: Ticket,
    },
    /// The node itself, for the dead watermark.
    DeadBelow {
        /// The watermark.
        below: LedgerId,
    },
    /// The node itself, for files that are removed.
    Unlink {
        /// Their kinds and numbers.
        files: Vec<(FileKind, u32)>,
    },
}

/// A group, handed to the log.
pub struct SealedGroup {
    /// Its number.
    pub number: GroupNumber,
    /// Its bytes.
    pub bytes: GroupBytes,
}

/// A group that was handed out and is not stored yet.
pub struct TakenGroup {
    /// Its number.
    pub number: GroupNumber,
    /// Its records.
    pub items: Vec<Item>,
    /// Who else waits for it.
    pub waiters: Vec<Waiter>,
    bytes: u64,
}

struct Collecting {
    number: GroupNumber,
    builder: GroupBuilder,
    items: Vec<Item>,
    waiters: Vec<Waiter>,
}

impl Collecting {
    fn new(number: GroupNumber, buffer: Vec<u8>) -> Self {
        Self {
            number,
            builder: GroupBuilder::new(buffer),
            items: Vec::new(),
            waiters: Vec::new(),
        }
    }

    fn is_empty(&self) -> bool {
        self.builder.is_empty() && self.waiters.is_empty()
    }
}

/// All groups that are not stored.
pub struct Groups {
    limits: Limits,
    cap: usize,
    collecting: Collecting,
    sealed: VecDeque<Collecting>,
    taken: VecDeque<TakenGroup>,
    free: Vec<Vec<u8>>,
    queued: u64,
    stored: GroupNumber,
}

impl Groups {
    /// None yet.
    pub fn new(limits: Limits) -> Self {
        Self {
            cap: CAP_START.min(limits.group_bytes_max),
            limits,
            collecting: Collecting::new(GroupNumber(1), Vec::new()),
            sealed: VecDeque::new(),
            taken: VecDeque::new(),
            free: Vec::new(),
            queued: 0,
            stored: GroupNumber(0),
        }
    }

    /// Bytes of all groups that are not stored.
    pub fn queued_bytes(&self) -> u64 {
        self.queued
    }

    /// True when that group is stored.
    pub fn is_stored(&self, group: GroupNumber) -> bool {
        group <= self.stored
    }

    /// Bytes that all groups take in the log once `more` are added, padding and file ends included.
    pub fn room_needed(&self, more: usize) -> u64 {
        let groups = (self.sealed.len() + self.taken.len() + 2) as u64;
        self.queued + more as u64 + groups * (GROUP_HEADER_BYTES + padded(1)) as u64
    }

    /// Appends an entry.
    pub fn add(&mut self, ticket: Ticket, request: &AddRequest, now: Duration) -> GroupNumber {
        self.make_room(entry_record_bytes(&request.entry));
        let header = request.entry.header();
        let group = &mut self.collecting;
        let place = group
            .builder
            .push_entry(&request.entry, request.origin, request.confirmed_end);
        self.queued += u64::from(place.bytes);
        group.items.push(Item {
            place,
            add: Some(PlacedAdd {
                ticket,
                ledger: header.ledger,
                entry: header.entry,
                digest: header.digest(),
                expires: now.saturating_add(request.timeout),
            }),
        });
        group.number
    }

    /// Appends a fence, a tombstone or a watermark.
    pub fn append(&mut self, record: &Record) -> GroupNumber {
        self.make_room(STATE_RECORD_BYTES);
        let group = &mut self.collecting;
        let place = group.builder.push(record);
        self.queued += u64::from(place.bytes);
        group.items.push(Item { place, add: None });
        group.number
    }

    fn make_room(&mut self, more: usize) {
        let full = self.collecting.builder.bytes() + more > self.cap;
        if full && !self.collecting.builder.is_empty() {
            let next = GroupNumber(self.collecting.number.0 + 1);
            let buffer = self.free.pop().unwrap_or_default();
            let sealed = std::mem::replace(&mut self.collecting, Collecting::new(next, buffer));
            self.sealed.push_back(sealed);
        }
    }

    /// Lets someone wait for a group that is not stored yet.
    pub fn wait(&mut self, group: GroupNumber, waiter: Waiter) {
        let taken = self
            .taken
            .iter_mut()
            .map(|group| (group.number, &mut group.waiters));
        let sealed = self
            .sealed
            .iter_mut()
            .map(|group| (group.number, &mut group.waiters));
        let mut open = taken.chain(sealed);
        match open.find(|(number, _)| *number >= group) {
            Some((_, waiters)) => waiters.push(waiter),
            None => self.collecting.waiters.push(waiter),
        }
    }

    /// True when [`Groups::take`] would give something.
    pub fn ready(&self) -> bool {
        !self.sealed.is_empty() || !self.collecting.is_empty()
    }

    /// Takes the oldest group for the log, without its expired adds, which are returned.
    pub fn take(&mut self, now: Duration) -> Option<(SealedGroup, Vec<PlacedAdd>)> {
        let group = match self.sealed.pop_front() {
            Some(group) => group,
            None if self.collecting.is_empty() => return None,
            None => {
                let next = GroupNumber(self.collecting.number.0 + 1);
                let buffer = self.free.pop().unwrap_or_default();
                std::mem::replace(&mut self.collecting, Collecting::new(next, buffer))
            }
        };
        self.adapt(group.builder.bytes());
        let mut expired = Vec::new();
        let group = match group.items.iter().any(|item| is_expired(item, now)) {
            true => self.without_expired(group, now, &mut expired),
            false => group,
        };
        let bytes = group
            .items
            .iter()
            .map(|item| u64::from(item.place.bytes))
            .sum();
        self.taken.push_back(TakenGroup {
            number: group.number,
            items: group.items,
            waiters: group.waiters,
            bytes,
        });
        let sealed = SealedGroup {
            number: group.number,
            bytes: group.builder.finish(),
        };
        Some((sealed, expired))
    }

    /// The cap follows the load: it grows while groups queue up behind the sync and shrinks when they are small (K9).
    fn adapt(&mut self, taken: usize) {
        if !self.sealed.is_empty() {
            self.cap = (self.cap * 2).min(self.limits.group_bytes_max);
        } else if taken < self.cap / 8 {
            self.cap = (self.cap / 2).max(CAP_MIN.min(self.limits.group_bytes_max));
        }
    }

    fn without_expired(
        &mut self,
        mut group: Collecting,
        now: Duration,
        expired: &mut Vec<PlacedAdd>,
    ) -> Collecting {
        let (dropped, kept): (Vec<Item>, Vec<Item>) = group
            .items
            .iter()
            .copied()
            .partition(|item| is_expired(item, now));
        self.queued -= dropped
            .iter()
            .map(|item| u64::from(item.place.bytes))
            .sum::<u64>();
        expired.extend(dropped.into_iter().filter_map(|item| item.add));
        let places: Vec<InGroup> = kept.iter().map(|item| item.place).collect();
        let (builder, places) = group.builder.retain(&places);
        group.builder = builder;
        group.items = kept
            .into_iter()
            .zip(places)
            .map(|(item, place)| Item { place, ..item })
            .collect();
        group
    }

    /// The next group that is stored now, in order, up to `group`.
    pub fn pop_stored(&mut self, group: GroupNumber) -> Option<TakenGroup> {
        let first = self.taken.front()?;
        if first.number > group {
            return None;
        }
        let first = self.taken.pop_front()?;
        self.stored = first.number;
        self.queued -= first.bytes;
        Some(first)
    }

    /// Everything that waits, after the log failed.
    pub fn drain(&mut self) -> Vec<(Vec<Item>, Vec<Waiter>)> {
        self.queued = 0;
        let taken = self
            .taken
            .drain(..)
            .map(|group| (group.items, group.waiters));
        let mut all: Vec<_> = taken.collect();
        all.extend(
            self.sealed
                .drain(..)
                .map(|group| (group.items, group.waiters)),
        );
        let next = GroupNumber(self.collecting.number.0 + 1);
        let last = std::mem::replace(&mut self.collecting, Collecting::new(next, Vec::new()));
        all.push((last.items, last.waiters));
        all
    }

    /// Takes a written buffer back.
    pub fn recycle(&mut self, buffer: Vec<u8>) {
        if self.free.len() < FREE_BUFFERS_MAX {
            self.free.push(buffer);
        }
    }
}

fn is_expired(item: &Item, now: Duration) -> bool {
    item.add.is_some_and(|add| add.expires <= now)
}
