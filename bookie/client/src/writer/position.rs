//! One member of the committed ensemble as the writer sees it: up, backing off, being tried again, or useless.

use std::time::Duration;

use hulse_proto::bookie::BookieError;
use hulse_proto::id::EntryId;
use hulse_proto::ledger::Member;

/// Whether entries are sent to a member.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Health {
    /// Every new entry is sent at once.
    Up,
    /// Nothing is sent until then.
    Backoff {
        /// When one entry is tried.
        until: Duration,
        /// How long this wait is; the next one is twice as long.
        wait: Duration,
    },
    /// One entry is on the way to learn whether the member takes adds again.
    Probing {
        /// The wait that came before.
        wait: Duration,
    },
    /// It will never take an entry of this ledger again.
    Useless,
}

/// A member, its health, and what it lacks.
#[derive(Debug)]
pub(super) struct Position {
    pub(super) member: Member,
    pub(super) health: Health,
    /// Counts how often sending to it began anew; answers of earlier attempts are recognised by it.
    pub(super) attempt: u32,
    /// Entries that were released without a copy here: one covering range (storage.md W12).
    pub(super) lacking: Option<(EntryId, EntryId)>,
    /// What it last refused with.
    pub(super) last_error: Option<Box<BookieError>>,
    /// It takes no adds since then.
    pub(super) down_since: Option<Duration>,
    /// It refuses data (amended D1).
    pub(super) read_only: bool,
    /// Entries were given up because it was too slow (W12).
    pub(super) slow: bool,
    /// It acked something since then.
    pub(super) acked_since: bool,
    /// Its bookie is to be emptied, or its disk is another one now.
    pub(super) leaving: bool,
}

impl Position {
    pub(super) fn new(member: Member) -> Self {
        Self {
            member,
            health: Health::Up,
            attempt: 0,
            lacking: None,
            last_error: None,
            down_since: None,
            read_only: false,
            slow: false,
            acked_since: false,
            leaving: false,
        }
    }

    /// Notes that an entry was given up because its copy here did not come in time.
    pub(super) fn fall_behind(&mut self, entry: EntryId) {
        self.note_lacking(entry);
        self.slow = true;
        self.acked_since = false;
    }

    /// A new member in the place of `old`, which will never get the entries of `lacking`.
    pub(super) fn after(old: &Self, member: Member, lacking: Option<(EntryId, EntryId)>) -> Self {
        Self {
            attempt: old.attempt + 1,
            lacking,
            ..Self::new(member)
        }
    }

    /// Since when it ought to be replaced (W7): at once when it says that it takes no entries or fell too far behind, else
    /// `patience` after it stopped taking adds.
    pub(super) fn failing_at(&self, patience: Duration) -> Option<Duration> {
        if self.health == Health::Useless || self.read_only || self.slow || self.leaving {
            return Some(Duration::ZERO);
        }
        self.down_since.map(|since| since + patience)
    }

    /// It takes adds again.
    pub(super) fn recover(&mut self) {
        self.health = Health::Up;
        self.down_since = None;
        self.read_only = false;
        self.slow = false;
    }

    /// Begins or lengthens a wait. True when it was sending until now.
    pub(super) fn back_off(&mut self, now: Duration, initial: Duration, max: Duration) -> bool {
        let wait = match self.health {
            Health::Up => initial,
            Health::Probing { wait } => (wait * 2).min(max),
            Health::Backoff { .. } | Health::Useless => return false,
        };
        self.attempt += 1;
        self.down_since.get_or_insert(now);
        self.health = Health::Backoff {
            until: now + wait,
            wait,
        };
        true
    }

    /// Notes that `entry` will have no copy here.
    pub(super) fn note_lacking(&mut self, entry: EntryId) {
        let (first, end) = self.lacking.unwrap_or((entry, entry));
        self.lacking = Some((first.min(entry), end.max(entry.next())));
    }
}
