//! How full the disk is, in levels (storage.md D1), and what passes on a full one (ARCHITECTURE D15). No I/O, no clock.
//!
//! What counts is what can still be written: the volume's free bytes, if they take another log file, and the rest of those that are
//! made already. Others
//! may take of the volume, so the level is judged anew by a timer and with each log file (D5).
//!
//! # Invariants
//! 1. A level is entered at its bound and left well above it, so that one record more or less does not change it.
//! 2. Space that is not known is enough.

use std::fmt;
use std::time::Duration;

use super::event::Room;
use crate::disk::Space;

/// A level is left this much above its bound, in eighths of it.
const LEAVE_EIGHTHS: u64 = 2;
/// What passes a read-only bookie besides fences and tombstones, bytes per second.
const PASSING_BYTES_PER_SECOND: u64 = 8 << 20;
/// So much of it may come at once: two of the largest entries.
const PASSING_BURST_BYTES: u64 = 16 << 20;

/// How full the disk is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub enum Level {
    /// Room for everything.
    #[default]
    Normal,
    /// Better others take new fragments.
    Low,
    /// No records of topics; META, CONTROL, fences, recovery and copies pass, at a bounded rate.
    ReadOnly,
    /// Fences, tombstones and compaction only.
    Reserve,
}

impl Level {
    /// As it is published and shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Low => "low",
            Self::ReadOnly => "readonly",
            Self::Reserve => "reserve",
        }
    }
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// What the bounds of the levels follow from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LevelLimits {
    /// Length of a log file, bytes.
    pub file_bytes: u64,
    /// Share of the volume that is kept free, in hundredths.
    pub reserve_percent: u64,
    /// Bytes that are kept free.
    pub reserve_bytes: u64,
}

impl LevelLimits {
    /// Bytes below which no records are taken: two log files, or what is configured (D1).
    fn reserve(&self, total: u64) -> u64 {
        let share = (total / 100).saturating_mul(self.reserve_percent);
        let files = self.file_bytes.saturating_mul(2);
        share.max(self.reserve_bytes).max(files)
    }

    /// A level is entered below its bound. Below the last nothing but fences and what frees space may be written; a quarter of a log
    /// file is room for a hundred thousand of them.
    fn bound(&self, level: Level, total: u64) -> u64 {
        let reserve = self.reserve(total);
        match level {
            Level::Normal => u64::MAX,
            Level::Low => reserve.saturating_mul(2),
            Level::ReadOnly => reserve,
            Level::Reserve => self.file_bytes / 4,
        }
    }
}

/// The level and what it follows from.
#[derive(Debug, Clone)]
pub struct Fullness {
    limits: LevelLimits,
    space: Option<Space>,
    level: Level,
}

impl Fullness {
    /// Nothing is known of the disk yet.
    pub fn new(limits: LevelLimits) -> Self {
        Self {
            limits,
            space: None,
            level: Level::Normal,
        }
    }

    /// The level now.
    pub fn level(&self) -> Level {
        self.level
    }

    /// Bytes that must be free for records to be taken: `bookie.disk_reserve`, or two log files where that is more. `None`: nothing is
    /// known of the disk yet.
    pub fn kept_free(&self) -> Option<u64> {
        self.space.map(|space| self.limits.reserve(space.total))
    }

    /// The volume, as it was seen last.
    pub fn space(&self) -> Option<Space> {
        self.space
    }

    /// Takes a look at the volume.
    pub fn seen(&mut self, space: Space, room: &Room) {
        self.space = Some(space);
        self.judge(room);
    }

    /// Judges anew after the log's room changed.
    pub fn judge(&mut self, room: &Room) {
        let Some(space) = self.space else {
            return;
        };
        // What is free and takes no log file is no room for adds; it is left to compaction.
        let free = if room.full { 0 } else { space.free };
        let left = free.saturating_add(room.current + room.spare);
        let levels = [Level::Reserve, Level::ReadOnly, Level::Low];
        let now = levels.into_iter().find(|level| {
            let bound = self.limits.bound(*level, space.total);
            let leave = bound.saturating_add(bound / 8 * LEAVE_EIGHTHS);
            left < if self.level >= *level { leave } else { bound }
        });
        self.level = now.unwrap_or_default();
    }
}

/// Bounds what passes on a read-only disk.
#[derive(Debug, Clone, Copy, Default)]
pub struct Passing {
    spent: u64,
    at: Duration,
}

impl Passing {
    /// Takes `bytes` at `now`, or says that it is too early.
    pub fn take(&mut self, bytes: u64, now: Duration) -> bool {
        let millis = now.saturating_sub(self.at).as_millis();
        let millis = u64::try_from(millis).unwrap_or(u64::MAX);
        let regained = millis.saturating_mul(PASSING_BYTES_PER_SECOND / 1000);
        let spent = self.spent.saturating_sub(regained);
        let fits = spent == 0 || spent.saturating_add(bytes) <= PASSING_BURST_BYTES;
        if fits {
            (self.spent, self.at) = (spent.saturating_add(bytes), now.max(self.at));
        }
        fits
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: u64 = 1 << 20;

    fn fullness() -> Fullness {
        Fullness::new(LevelLimits {
            file_bytes: FILE,
            reserve_percent: 2,
            reserve_bytes: 0,
        })
    }

    fn at(fullness: &mut Fullness, free: u64, total: u64) -> Level {
        fullness.seen(Space { free, total }, &Room::default());
        fullness.level()
    }

    #[test]
    fn levels_come_in_order_and_go_with_hysteresis() {
        let mut disk = fullness();
        assert_eq!(disk.level(), Level::Normal);
        let total = 100 * FILE;
        for (free, level) in [
            (4 * FILE, Level::Normal),
            (4 * FILE - 1, Level::Low),
            (5 * FILE - 1, Level::Low),
            (2 * FILE - 1, Level::ReadOnly),
            (2 * FILE, Level::ReadOnly),
            (FILE / 4, Level::ReadOnly),
            (FILE / 4 - 1, Level::Reserve),
            (FILE / 4 + FILE / 16 - 1, Level::Reserve),
            (FILE / 4 + FILE / 16, Level::ReadOnly),
            (2 * FILE + FILE / 2, Level::Low),
            (5 * FILE, Level::Normal),
            (0, Level::Reserve),
        ] {
            assert_eq!(at(&mut disk, free, total), level, "{free} bytes free");
        }
    }

    #[test]
    fn reserve_is_a_share_of_a_large_volume() {
        let mut disk = fullness();
        let total = 10_000 * FILE;
        assert_eq!(disk.kept_free(), None);
        assert_eq!(at(&mut disk, 399 * FILE, total), Level::Low);
        assert_eq!(disk.kept_free(), Some(200 * FILE));
        assert_eq!(at(&mut disk, 199 * FILE, total), Level::ReadOnly);
        assert_eq!(at(&mut disk, FILE / 4 - 1, total), Level::Reserve);
    }

    #[test]
    fn unwritten_log_files_count_as_room() {
        let mut disk = fullness();
        let room = Room {
            current: FILE - 1,
            length: FILE,
            spare: FILE,
            full: true,
        };
        let full = Space {
            free: 0,
            total: 50 * FILE,
        };
        disk.seen(full, &room);
        assert_eq!(disk.level(), Level::ReadOnly);
        disk.judge(&Room { spare: 0, ..room });
        assert_eq!(disk.level(), Level::ReadOnly);
        disk.judge(&Room {
            spare: 0,
            current: FILE / 5,
            ..room
        });
        assert_eq!(disk.level(), Level::Reserve);
    }

    #[test]
    fn free_bytes_that_take_no_log_file_are_no_room_for_adds() {
        let mut disk = fullness();
        let room = Room {
            current: FILE / 5,
            length: FILE,
            spare: 0,
            full: true,
        };
        let space = Space {
            free: FILE - 1,
            total: 50 * FILE,
        };
        disk.seen(space, &room);
        assert_eq!(disk.level(), Level::Reserve);
        disk.judge(&Room {
            spare: FILE,
            full: false,
            ..room
        });
        assert_eq!(disk.level(), Level::ReadOnly);
    }

    #[test]
    fn passing_is_bounded_by_rate_and_burst_but_lets_one_entry_through() {
        let mut passing = Passing::default();
        let entry = 4 << 20;
        let taken = (0..10).filter(|_| passing.take(entry, Duration::ZERO));
        assert_eq!(taken.count(), 4);
        assert!(!passing.take(entry, Duration::from_millis(400)));
        assert!(passing.take(entry, Duration::from_millis(600)));
        let huge = PASSING_BURST_BYTES * 2;
        assert!(!passing.take(huge, Duration::from_millis(700)));
        assert!(passing.take(huge, Duration::from_secs(60)));
    }
}
