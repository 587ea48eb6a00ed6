//! Entries that are not yet everywhere: their copies, and the run of them (storage.md W2, W11, W12).

use std::collections::VecDeque;
use std::time::Duration;

use hulse_proto::entry::{Entry, EntryDigest, EntryHeader};
use hulse_proto::id::EntryId;
use hulse_proto::ledger::Quorums;

use crate::quorum::write_set;

/// What one entry costs in memory besides its payload; counted into the budget of late entries.
const ENTRY_OVERHEAD_BYTES: usize = 512;

/// One copy of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Slot {
    /// Nothing of it is on the way.
    Unsent,
    /// Sent, not answered.
    Sent {
        /// The position's attempt number at that time.
        attempt: u32,
        /// When.
        at: Duration,
    },
    /// The member holds it durably.
    Acked,
    /// The member was replaced before it had it, and the new one will not get it: it lies in an older fragment.
    Gone,
}

/// An entry that lacks acks.
#[derive(Debug)]
pub(super) struct Pending {
    /// Its header; outlives the payload.
    pub(super) header: EntryHeader,
    /// The entry, until every copy is there or it is released.
    pub(super) entry: Option<Entry>,
    /// When it was appended.
    pub(super) appended_at: Duration,
    /// When it was confirmed.
    pub(super) confirmed_at: Option<Duration>,
    /// Anything of it was ever sent.
    pub(super) ever_sent: bool,
    slots: Vec<Slot>,
}

impl Pending {
    pub(super) fn new(entry: Entry, now: Duration, quorums: Quorums) -> Self {
        Self {
            header: *entry.header(),
            entry: Some(entry),
            appended_at: now,
            confirmed_at: None,
            ever_sent: false,
            slots: vec![Slot::Unsent; quorums.write as usize],
        }
    }

    /// The copy at `position`; `None` when the entry does not go there.
    pub(super) fn slot(&self, quorums: Quorums, position: usize) -> Option<Slot> {
        self.slots.get(self.index(quorums, position)).copied()
    }

    pub(super) fn set(&mut self, quorums: Quorums, position: usize, slot: Slot) {
        let index = self.index(quorums, position);
        if let Some(place) = self.slots.get_mut(index) {
            *place = slot;
        }
    }

    fn index(&self, quorums: Quorums, position: usize) -> usize {
        let ensemble = u64::from(quorums.ensemble);
        ((position as u64 + ensemble - self.header.entry.0 % ensemble) % ensemble) as usize
    }

    /// Copies at the positions that `counts` admits.
    pub(super) fn acks(&self, quorums: Quorums, counts: impl Fn(usize) -> bool) -> usize {
        self.count(quorums, |position, slot| {
            slot == Slot::Acked && counts(position)
        })
    }

    /// Copies that are there or on the way, at the positions that `counts` admits.
    pub(super) fn hoped_for(&self, quorums: Quorums, counts: impl Fn(usize) -> bool) -> usize {
        self.count(quorums, |position, slot| {
            matches!(slot, Slot::Acked | Slot::Sent { .. }) && counts(position)
        })
    }

    fn count(&self, quorums: Quorums, wanted: impl Fn(usize, Slot) -> bool) -> usize {
        write_set(quorums, self.header.entry)
            .zip(&self.slots)
            .filter(|(position, slot)| wanted(*position, **slot))
            .count()
    }

    pub(super) fn everywhere(&self) -> bool {
        let there = |slot: &Slot| matches!(slot, Slot::Acked | Slot::Gone);
        self.slots.iter().all(there)
    }

    pub(super) fn digest(&self) -> EntryDigest {
        self.header.digest()
    }

    /// What keeping it costs.
    pub(super) fn cost(&self) -> usize {
        self.header.entry_len() + ENTRY_OVERHEAD_BYTES
    }
}

/// The run of entries from the first that is not everywhere: late ones (confirmed, a copy missing), then unconfirmed ones.
#[derive(Debug)]
pub(super) struct Window {
    first: EntryId,
    entries: VecDeque<Pending>,
    /// Exclusive end of what is confirmed: within or at the end of the window.
    confirmed_end: EntryId,
    late_bytes: usize,
    /// Entries from here on are kept although they are everywhere: an unresolved proposal names other members for them.
    held_from: Option<EntryId>,
}

impl Window {
    pub(super) fn new() -> Self {
        Self {
            first: EntryId(0),
            entries: VecDeque::new(),
            confirmed_end: EntryId(0),
            late_bytes: 0,
            held_from: None,
        }
    }

    pub(super) fn push(&mut self, pending: Pending) {
        debug_assert_eq!(
            pending.header.entry,
            self.end(),
            "entries are pushed in order"
        );
        self.entries.push_back(pending);
    }

    pub(super) fn end(&self) -> EntryId {
        EntryId(self.first.0 + self.entries.len() as u64)
    }

    pub(super) fn confirmed_end(&self) -> EntryId {
        self.confirmed_end
    }

    pub(super) fn late_bytes(&self) -> usize {
        self.late_bytes
    }

    pub(super) fn get_mut(&mut self, entry: EntryId) -> Option<&mut Pending> {
        let index = entry.0.checked_sub(self.first.0)?;
        self.entries.get_mut(usize::try_from(index).ok()?)
    }

    /// The oldest unconfirmed entry.
    pub(super) fn head(&self) -> Option<&Pending> {
        self.entries
            .get((self.confirmed_end.0 - self.first.0) as usize)
    }

    /// All of them, oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &Pending> {
        self.entries.iter()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Pending> {
        self.entries.iter_mut()
    }

    /// Confirms the head (storage.md W4): the caller has checked its acks.
    pub(super) fn confirm_head(&mut self, now: Duration) -> EntryHeader {
        let index = (self.confirmed_end.0 - self.first.0) as usize;
        let held = self.is_held(self.confirmed_end);
        let head = &mut self.entries[index];
        head.confirmed_at = Some(now);
        let header = head.header;
        if head.everywhere() && !held {
            head.entry = None;
        } else {
            self.late_bytes += head.cost();
        }
        self.confirmed_end = self.confirmed_end.next();
        header
    }

    /// Notes that a copy arrived: a late entry that is now everywhere is no longer kept.
    pub(super) fn settle(&mut self, entry: EntryId) {
        if self.is_held(entry) {
            return;
        }
        let Some(pending) = self.get_mut(entry) else {
            return;
        };
        if pending.everywhere() && pending.confirmed_at.is_some() && pending.entry.is_some() {
            pending.entry = None;
            let cost = pending.cost();
            self.late_bytes -= cost;
        }
        self.pop_done();
    }

    /// Begins or ends (`None`) to keep entries from `from` on, however many copies they have.
    pub(super) fn hold(&mut self, from: Option<EntryId>) {
        self.held_from = from;
        for entry in (self.first.0..self.confirmed_end.0).map(EntryId) {
            self.settle(entry);
        }
    }

    /// True when an unresolved proposal may give the entry to other members.
    pub(super) fn is_held(&self, entry: EntryId) -> bool {
        self.held_from.is_some_and(|from| from <= entry)
    }

    /// All late entries, oldest first.
    pub(super) fn late(&self) -> impl Iterator<Item = &Pending> {
        self.entries
            .iter()
            .take_while(|pending| pending.confirmed_at.is_some())
            .filter(|pending| pending.entry.is_some())
    }

    /// Drops finished entries from the front.
    pub(super) fn pop_done(&mut self) {
        while let Some(front) = self.entries.front()
            && front.confirmed_at.is_some()
            && front.entry.is_none()
        {
            self.entries.pop_front();
            self.first = self.first.next();
        }
    }

    /// The oldest late entry.
    pub(super) fn late_front(&self) -> Option<&Pending> {
        self.entries
            .front()
            .filter(|front| front.confirmed_at.is_some())
    }

    /// Gives up the missing copies of the oldest late entry (storage.md W12).
    pub(super) fn release_front(&mut self) {
        if let Some(front) = self.entries.front_mut()
            && front.entry.take().is_some()
        {
            let cost = front.cost();
            self.late_bytes -= cost;
        }
        self.pop_done();
    }

    /// Gives room back that is not needed now.
    pub(super) fn rest(&mut self) {
        self.entries.shrink_to_fit();
    }

    /// Takes all unconfirmed entries out, oldest first.
    pub(super) fn take_unconfirmed(&mut self) -> VecDeque<Pending> {
        self.entries
            .split_off((self.confirmed_end.0 - self.first.0) as usize)
    }
}
