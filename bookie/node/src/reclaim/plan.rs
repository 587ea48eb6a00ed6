//! Which log files to free next. Pure: facts about sealed files in, one request out.
//!
//! Wholly dead files first, for they need no space; then the files whose compaction frees most among those whose live part fits the
//! room that is left (storage.md D4, G12). Several of them are joined into one, so that their number falls, too.
//!
//! # Invariants
//! 1. The newest files are never compacted: what dies young would be copied for nothing.
//! 2. What is asked for never needs more room than there is, with what a file costs besides its records.
//! 3. A compaction makes fewer bytes of more: a file that is small for its overhead alone is not dead, or an idle node would copy it for ever.
//! 4. A file that keeps a damaged live record is left alone (G13), and a request that failed is not repeated at once.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::log::BLOCK_BYTES;
use crate::log::compacted::COMPACTED_BYTES_MAX;

/// The newest sealed files are not compacted.
const NEWEST_KEPT: usize = 2;
/// Dead bytes that make a file worth copying, in hundredths of it.
const DEAD_PERCENT: u64 = 50;
/// The same when space is short.
const DEAD_PERCENT_PRESSED: u64 = 10;
/// Files shorter than this share of the usual length, as each restart leaves one, are joined when there are many.
const SMALL_SHARE: u64 = 8;
/// So many.
const SMALL_FILES: usize = 16;
/// Most files of one request.
const FILES_MAX: usize = 64;
/// What each compacted file has: header, padding of its group, mark of the end, slot page, directory, trailer.
const OVERHEAD_FILE_BYTES: u64 = 6 * BLOCK_BYTES as u64;
/// Slot and share of a slot page.
const OVERHEAD_ENTRY_BYTES: u64 = 17;
/// Row and run of the directory.
const OVERHEAD_LEDGER_BYTES: u64 = 56;
/// Groups are padded to whole blocks: at most this share of their bytes.
const OVERHEAD_PADDING_SHARE: u64 = 32;
/// A failed request rests this long.
const REST: Duration = Duration::from_secs(30);

/// A sealed file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileFacts {
    /// Its number.
    pub file: u32,
    /// What it takes on the disk, bytes.
    pub bytes: u64,
    /// Of those, records of ledgers that are not deleted.
    pub live: u64,
    /// What these add to a compacted file, bytes.
    pub copy: u64,
    /// A live record of it is damaged.
    pub damaged: bool,
}

impl FileFacts {
    fn dead(&self) -> u64 {
        self.bytes.saturating_sub(self.live)
    }

    fn is_dead_by(&self, percent: u64) -> bool {
        self.dead() * 100 > self.bytes * percent
    }
}

/// What so many bytes of records add to a compacted file, from above.
pub fn copy_bytes(records: u64, entries: u64, ledgers: u64) -> u64 {
    records
        + records / OVERHEAD_PADDING_SHARE
        + entries * OVERHEAD_ENTRY_BYTES
        + ledgers * OVERHEAD_LEDGER_BYTES
}

/// What there is to plan with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stock {
    /// Sealed files whose state records are held elsewhere too, oldest first.
    pub files: Vec<FileFacts>,
    /// Most bytes that a compacted file may take now.
    pub room: u64,
    /// Usual length of a log file.
    pub file_bytes: u64,
    /// Space is short: files that are less dead are worth it, too.
    pub pressed: bool,
}

/// What is to be done next.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Nothing in them is live: remove them.
    Unlink(Vec<u32>),
    /// Copy what is live in them into a new file, then remove them.
    Compact(Vec<u32>),
}

impl Request {
    fn files(&self) -> &[u32] {
        match self {
            Self::Unlink(files) | Self::Compact(files) => files,
        }
    }
}

/// The planner: remembers what failed.
#[derive(Debug, Clone, Default)]
pub struct Planner {
    resting: BTreeMap<u32, Duration>,
}

impl Planner {
    /// The next request at `now`, since the node's start; `None` when nothing is worth it.
    pub fn next(&mut self, stock: &Stock, now: Duration) -> Option<Request> {
        self.resting.retain(|_, until| *until > now);
        let awake = |file: &&FileFacts| !self.resting.contains_key(&file.file);
        let dead = stock.files.iter().filter(awake);
        let dead = dead.filter(|file| file.live == 0 && !file.damaged);
        let dead: Vec<u32> = dead.map(|file| file.file).take(FILES_MAX).collect();
        if !dead.is_empty() {
            return Some(Request::Unlink(dead));
        }
        let old = stock.files.len().saturating_sub(NEWEST_KEPT);
        let old = stock.files[..old].iter().filter(awake);
        let old: Vec<FileFacts> = old.filter(|file| !file.damaged).copied().collect();
        let sources = self.half_dead(stock, &old).or_else(|| small(stock, &old))?;
        Some(Request::Compact(sources))
    }

    fn half_dead(&self, stock: &Stock, old: &[FileFacts]) -> Option<Vec<u32>> {
        let percent = match stock.pressed {
            true => DEAD_PERCENT_PRESSED,
            false => DEAD_PERCENT,
        };
        let mut worth: Vec<FileFacts> = old.to_vec();
        worth.retain(|file| file.is_dead_by(percent));
        worth.sort_by_key(|file| (std::cmp::Reverse(file.dead()), file.file));
        let copy = join(stock, worth);
        // Of what makes a source worth it, padding and overhead may eat half.
        let pays = copy.bytes * 100 <= copy.freed * (100 - percent / 2);
        (!copy.sources.is_empty() && pays).then_some(copy.sources)
    }

    /// The request could not be carried out: its files rest for a while.
    pub fn failed(&mut self, request: &Request, now: Duration) {
        for file in request.files() {
            self.resting.insert(*file, now.saturating_add(REST));
        }
    }

    /// Room appeared: what failed is worth a try.
    pub fn wake(&mut self) {
        self.resting.clear();
    }
}

/// One new file and what goes into it.
struct Copied {
    sources: Vec<u32>,
    /// Its length, from above.
    bytes: u64,
    /// Bytes of the sources.
    freed: u64,
}

/// The first of these, and each further one that still fits one new file.
fn join(stock: &Stock, files: Vec<FileFacts>) -> Copied {
    let most = stock.room.min(stock.file_bytes).min(COMPACTED_BYTES_MAX);
    let mut copy = Copied {
        sources: Vec::new(),
        bytes: OVERHEAD_FILE_BYTES,
        freed: 0,
    };
    for file in files {
        if copy.bytes + file.copy <= most && copy.sources.len() < FILES_MAX {
            copy.bytes += file.copy;
            copy.freed += file.bytes;
            copy.sources.push(file.file);
        }
    }
    copy
}

/// Many short files, into one.
fn small(stock: &Stock, old: &[FileFacts]) -> Option<Vec<u32>> {
    let mut small: Vec<FileFacts> = old.to_vec();
    small.retain(|file| file.bytes < stock.file_bytes / SMALL_SHARE);
    if small.len() < SMALL_FILES {
        return None;
    }
    let sources = join(stock, small).sources;
    (sources.len() > 1).then_some(sources)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// MiB.
    const FILE: u64 = 1000;

    /// Bytes and live bytes in MiB, of large records.
    fn file(file: u32, bytes: u64, live: u64) -> FileFacts {
        FileFacts {
            file,
            bytes: bytes << 20,
            live: live << 20,
            copy: live << 20,
            damaged: false,
        }
    }

    fn stock(files: Vec<FileFacts>) -> Stock {
        Stock {
            files,
            room: FILE << 20,
            file_bytes: FILE << 20,
            pressed: false,
        }
    }

    /// The files, and two full ones behind them.
    fn old(mut files: Vec<FileFacts>) -> Stock {
        files.extend([file(90, FILE, FILE), file(91, FILE, FILE)]);
        stock(files)
    }

    fn next(stock: &Stock) -> Option<Request> {
        Planner::default().next(stock, Duration::ZERO)
    }

    #[test]
    fn wholly_dead_files_go_first_the_newest_too() {
        let files = vec![file(1, FILE, 100), file(2, FILE, 0), file(3, FILE, 0)];
        assert_eq!(next(&stock(files)), Some(Request::Unlink(vec![2, 3])));
    }

    #[test]
    fn half_dead_files_are_joined_most_dead_first_as_far_as_they_fit() {
        let files = vec![
            file(1, FILE, 500),
            file(2, FILE, 400),
            file(3, FILE, 450),
            file(4, FILE, 490),
            file(5, FILE, 100),
        ];
        assert_eq!(next(&old(files)), Some(Request::Compact(vec![5, 2, 3])));
    }

    #[test]
    fn newest_files_are_not_compacted() {
        let files = vec![file(1, FILE, 900), file(2, FILE, 10), file(3, FILE, 10)];
        assert_eq!(next(&stock(files)), None);
    }

    #[test]
    fn live_part_must_fit_the_room() {
        let mut stock = old(vec![file(1, FILE, 300), file(2, FILE, 450)]);
        stock.room = 300 << 20;
        assert_eq!(next(&stock), None, "a file is more than its records");
        stock.room = 301 << 20;
        assert_eq!(next(&stock), Some(Request::Compact(vec![1])));
        stock.room = 0;
        stock.files.push(file(92, FILE, 0));
        assert_eq!(next(&stock), Some(Request::Unlink(vec![92])));
    }

    #[test]
    fn pressure_makes_less_dead_files_worth_it() {
        let mut stock = old(vec![file(1, FILE, 700), file(2, FILE, 950)]);
        assert_eq!(next(&stock), None);
        stock.pressed = true;
        assert_eq!(next(&stock), Some(Request::Compact(vec![1])));
    }

    #[test]
    fn file_that_is_short_for_its_overhead_alone_is_not_copied() {
        let tiny = |number| FileFacts {
            file: number,
            bytes: OVERHEAD_FILE_BYTES,
            live: 30,
            copy: copy_bytes(30, 1, 1),
            damaged: false,
        };
        let mut stock = old(vec![tiny(1)]);
        for pressed in [false, true] {
            stock.pressed = pressed;
            assert_eq!(next(&stock), None);
        }
        // Three are worth one.
        let three = old((1..4).map(tiny).collect());
        assert_eq!(next(&three), Some(Request::Compact(vec![1, 2, 3])));
    }

    #[test]
    fn copy_stays_within_the_longest_file_that_there_may_be() {
        let gib = 1 << 30;
        let half = FileFacts {
            copy: copy_bytes(gib, 1000, 10),
            ..file(1, 2500, 1024)
        };
        let other = FileFacts { file: 2, ..half };
        let mut stock = old(vec![half, other]);
        (stock.room, stock.file_bytes) = (u64::MAX, 2 * gib);
        assert_eq!(next(&stock), Some(Request::Compact(vec![1])));
    }

    #[test]
    fn damaged_file_is_left_alone_and_stops_no_other() {
        let damaged = FileFacts {
            damaged: true,
            ..file(1, FILE, 10)
        };
        let stock = old(vec![damaged, file(2, FILE, 400)]);
        assert_eq!(next(&stock), Some(Request::Compact(vec![2])));
    }

    #[test]
    fn many_short_files_are_joined() {
        let few: Vec<FileFacts> = (0..15).map(|number| file(number, 20, 20)).collect();
        assert_eq!(next(&old(few)), None);
        let many: Vec<FileFacts> = (0..20).map(|number| file(number, 20, 20)).collect();
        assert_eq!(next(&old(many)), Some(Request::Compact((0..20).collect())));
    }

    #[test]
    fn failed_request_rests_and_room_wakes_it() {
        let stock = old(vec![file(1, FILE, 400)]);
        let mut planner = Planner::default();
        let request = planner.next(&stock, Duration::ZERO).unwrap();
        planner.failed(&request, Duration::ZERO);
        assert_eq!(planner.next(&stock, REST - Duration::from_secs(1)), None);
        assert_eq!(planner.next(&stock, REST), Some(request.clone()));
        planner.failed(&request, REST);
        planner.wake();
        assert_eq!(planner.next(&stock, REST), Some(request));
    }
}
