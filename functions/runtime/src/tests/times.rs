//! Watermarks: disorder, idle partitions, times that cannot be.

use std::time::Duration;

use super::world::partition;
use crate::mutant::Mutation;
use crate::record::{Fetched, InputRecord};
use crate::watermark::{Idleness, NO_WATERMARK, TimePolicy, Watermarks};

const POLICY: TimePolicy = TimePolicy {
    delay: Duration::from_secs(5),
    idle_after: Duration::from_secs(10),
    max_future: Duration::from_secs(3600),
    idle_advance: true,
};

fn fetched(at: u32, records: usize, is_end: bool) -> Fetched {
    let record = |offset| InputRecord {
        offset,
        timestamp: 0,
        append_time: 0,
        key: None,
        value: None,
        headers: Vec::new(),
    };
    Fetched {
        partition: partition(at),
        records: (0..records as u64).map(record).collect(),
        next: 10,
        end: if is_end { 10 } else { 11 },
    }
}

fn advance(marks: &mut Watermarks, open_until: Option<i64>) -> i64 {
    marks.advance(open_until, &POLICY, Mutation::default())
}

#[test]
fn watermark_is_the_least_of_the_partitions_and_never_goes_back() {
    let mut marks = Watermarks::new([partition(0), partition(1)]);
    assert!(marks.observe(partition(0), 100_000, 100_000, &POLICY));
    assert_eq!(advance(&mut marks, None), NO_WATERMARK);
    assert!(marks.observe(partition(1), 50_000, 100_000, &POLICY));
    assert_eq!(advance(&mut marks, None), 45_000);
    assert!(marks.observe(partition(1), 20_000, 100_000, &POLICY));
    assert_eq!(advance(&mut marks, None), 45_000);
    // A partition that appears later holds it, and does not move it back.
    marks.partitions.entry(partition(2)).or_default();
    assert_eq!(advance(&mut marks, None), 45_000);
}

#[test]
fn times_that_cannot_be_do_not_move_others() {
    let mut marks = Watermarks::new([partition(0)]);
    assert!(marks.observe(partition(0), 100_000, 100_000, &POLICY));
    let year_2554 = 18_446_744_073_000;
    assert!(!marks.observe(partition(0), year_2554, 100_000, &POLICY));
    assert!(!marks.observe(partition(0), i64::MAX, 100_000, &POLICY));
    assert!(marks.observe(partition(0), 0, 100_000, &POLICY));
    assert!(marks.observe(partition(0), i64::MIN, 100_000, &POLICY));
    assert_eq!(advance(&mut marks, None), 95_000);
}

#[test]
fn only_a_partition_read_to_its_end_becomes_idle() {
    let mut marks = Watermarks::new([partition(0), partition(1)]);
    let mut idleness = Idleness::default();
    marks.observe(partition(0), 100_000, 100_000, &POLICY);
    let none = Mutation::default();
    // Partition 1 brings nothing, and has something: slow, not idle, for however long.
    for now in [0, 60_000, 120_000] {
        idleness.judge(&[fetched(1, 0, false)], now, &mut marks, &POLICY, none);
    }
    assert_eq!(advance(&mut marks, None), NO_WATERMARK);
    // Proved to be at its end for 10 s: idle.
    for now in [120_000, 129_999] {
        idleness.judge(&[fetched(1, 0, true)], now, &mut marks, &POLICY, none);
    }
    assert_eq!(advance(&mut marks, None), NO_WATERMARK);
    idleness.judge(&[fetched(1, 0, true)], 130_000, &mut marks, &POLICY, none);
    assert_eq!(advance(&mut marks, None), 95_000);
    // It wakes up: it counts again, and the watermark stays.
    idleness.judge(&[fetched(1, 1, true)], 140_000, &mut marks, &POLICY, none);
    marks.observe(partition(1), 50_000, 140_000, &POLICY);
    marks.observe(partition(0), 200_000, 200_000, &POLICY);
    assert_eq!(advance(&mut marks, None), 95_000);
}

#[test]
fn last_window_closes_once_all_are_idle_and_only_if_wanted() {
    let idle = || {
        let mut marks = Watermarks::new([partition(0), partition(1)]);
        marks.observe(partition(0), 100_000, 100_000, &POLICY);
        marks.observe(partition(1), 70_000, 100_000, &POLICY);
        for progress in marks.partitions.values_mut() {
            progress.idle = true;
        }
        marks
    };
    assert_eq!(advance(&mut idle(), Some(120_000)), 120_000);
    assert_eq!(advance(&mut idle(), None), 95_000);
    let kept = TimePolicy {
        idle_advance: false,
        ..POLICY
    };
    assert_eq!(
        idle().advance(Some(120_000), &kept, Mutation::default()),
        95_000
    );
}
