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
    pub(super) last_error: Option<BookieError>,
}

impl Position {
    pub(super) fn new(member: Member) -> Self {
        Self {
            member,
            health: Health::Up,
            attempt: 0,
            lacking: None,
            last_error: None,
        }
    }

    /// Begins or lengthens a wait. True when it was sending until now.
    pub(super) fn back_off(&mut self, now: Duration, initial: Duration, max: Duration) -> bool {
        let wait = match self.health {
            Health::Up => initial,
            Health::Probing { wait } => (wait * 2).min(max),
            Health::Backoff { .. } | Health::Useless => return false,
        };
        self.attempt += 1;
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
