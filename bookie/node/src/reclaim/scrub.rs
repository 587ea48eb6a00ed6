//! When which sealed file is read and checked (storage.md E2). Pure: files and passing time in, a file out.
//!
//! The files are taken one after the other, the longest unchecked first, so that each is read once in the configured time. A start
//! does not remember what the boot before checked; so each boot takes them in an order of its own, and a node that is started often
//! comes to all of them, too.

use std::collections::BTreeMap;
use std::time::Duration;

/// What was checked in this boot.
#[derive(Debug, Clone)]
pub struct ScrubPlan {
    interval: Duration,
    /// Number of the turn at which a file was checked last.
    checked: BTreeMap<u32, u64>,
    /// The highest file when the boot began to check: decides the order of the first round.
    first_seen: Option<u32>,
    turn: u64,
    last: Duration,
}

impl ScrubPlan {
    /// Each file once in `interval`.
    pub fn new(interval: Duration) -> Self {
        Self {
            interval,
            checked: BTreeMap::new(),
            first_seen: None,
            turn: 0,
            last: Duration::ZERO,
        }
    }

    /// How many of these files had no turn yet.
    pub fn unchecked(&self, files: &[u32]) -> usize {
        let had_none = |file: &&u32| !self.checked.contains_key(file);
        files.iter().filter(had_none).count()
    }

    /// The file whose turn it is at `now`, since the node's start; it then counts as checked. `None`: not yet.
    pub fn next(&mut self, files: &[u32], now: Duration) -> Option<u32> {
        let count = u32::try_from(files.len()).ok().filter(|count| *count > 0)?;
        if now.saturating_sub(self.last) < self.interval / count {
            return None;
        }
        self.checked.retain(|file, _| files.contains(file));
        let highest = files.iter().copied().max()?;
        let boot = *self.first_seen.get_or_insert(highest);
        let turn = |file: &&u32| (self.checked.get(*file).copied(), shuffled(**file, boot));
        let file = *files.iter().min_by_key(turn)?;
        self.turn += 1;
        self.checked.insert(file, self.turn);
        self.last = now;
        Some(file)
    }
}

/// Where a file stands in the order of a boot.
fn shuffled(file: u32, boot: u32) -> u64 {
    // Fibonacci hashing: neighbours in both numbers come far apart.
    let both = (u64::from(boot) << 32) | u64::from(file);
    let mixed = both.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_file_has_its_turn_once_in_the_interval() {
        let mut plan = ScrubPlan::new(Duration::from_secs(100));
        let mut turns = Vec::new();
        for second in 1..=200 {
            turns.extend(plan.next(&[3, 5, 4, 9], Duration::from_secs(second)));
        }
        assert_eq!(turns[..4], turns[4..]);
        turns.truncate(4);
        turns.sort_unstable();
        assert_eq!(turns, [3, 4, 5, 9]);
        assert_eq!(plan.unchecked(&[3, 9, 12, 13]), 2);
        assert_eq!(plan.next(&[], Duration::from_secs(999)), None);
        // A new file is the longest unchecked, and one that is gone is forgotten.
        assert_eq!(plan.next(&[3, 9, 12], Duration::from_secs(999)), Some(12));
        let next = plan.next(&[3, 9, 12], Duration::from_secs(1_999));
        assert!(matches!(next, Some(3 | 9)), "{next:?}");
    }

    /// Each boot checks one file of a hundred, and makes one.
    #[test]
    fn node_that_is_started_often_comes_to_all_files() {
        let mut never: Vec<u32> = (0..100).collect();
        for boot in 100..1_500 {
            let files: Vec<u32> = (0..100).chain([boot]).collect();
            let mut plan = ScrubPlan::new(Duration::from_secs(101));
            let checked = plan.next(&files, Duration::from_secs(1));
            never.retain(|file| Some(*file) != checked);
        }
        assert!(never.is_empty(), "{never:?}");
    }
}
