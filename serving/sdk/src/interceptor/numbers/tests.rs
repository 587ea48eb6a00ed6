//! Checks of streams that were tampered with.

use hulse_proto::id::Offset;
use uuid::Uuid;

use super::*;
use crate::reader::ReadRecord;

fn record(producer: u128, number: u64, partition: u32, offset: u64) -> ReadRecord {
    let stamp = StampedNumber {
        producer: Uuid::from_u128(producer),
        partition: 0,
        number,
    };
    ReadRecord {
        partition,
        offset: Offset(offset),
        timestamp: 0,
        append_time: 0,
        key: None,
        value: None,
        headers: Vec::from([stamp.header()]),
    }
}

fn place(offset: u64) -> Place {
    Place {
        partition: 0,
        offset,
    }
}

fn seen(number: u64, offset: u64) -> SeenNumber {
    SeenNumber {
        number,
        place: Some(place(offset)),
    }
}

/// Shows numbers of one producer at offsets 0, 1, 2, ….
fn shown(numbers: impl IntoIterator<Item = u64>) -> NumberCheck {
    let mut check = NumberCheck::new();
    for (offset, number) in (0..).zip(numbers) {
        check.check(&record(1, number, 0, offset));
    }
    check
}

#[test]
fn dense_numbers_of_many_producers_are_clean() {
    let mut check = NumberCheck::new();
    for offset in 0..3000_u64 {
        check.check(&record(offset.into(), 0, 0, offset));
        check.check(&record(1 << 40, offset, 1, offset));
    }
    let report = check.report();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!((report.records, report.streams), (6000, 3001));
}

#[test]
fn missing_numbers_are_named_with_their_neighbours() {
    let mut check = shown([1, 2, 5, 6]);
    check.expect(Uuid::from_u128(1), 0, 9);
    let report = check.report();
    let missing = |numbers, before, after| NumberFinding::Missing {
        producer: Uuid::from_u128(1),
        partition: 0,
        numbers,
        before,
        after,
    };
    let expected = [
        missing(0..1, None, Some(seen(1, 0))),
        missing(3..5, Some(seen(2, 1)), Some(seen(5, 2))),
        missing(7..9, Some(seen(6, 3)), None),
    ];
    assert_eq!(report.findings, expected);
    assert_eq!(report.missing, 5);
    assert!(!report.is_clean());
    let words = report.findings[1].to_string();
    assert!(
        words.contains("numbers 3 to 4 (2)") && words.contains("2 at partition 0 offset 1"),
        "{words}"
    );
    check.trimmed(0);
    assert_eq!(check.report().missing, 4, "the head may be gone with right");
}

#[test]
fn duplicates_are_told_from_repeated_deliveries() {
    let mut check = shown([0, 1, 2]);
    assert_eq!(check.check(&record(1, 1, 0, 1)), None);
    let found = check.check(&record(1, 1, 0, 7));
    let expected = NumberFinding::Duplicate {
        producer: Uuid::from_u128(1),
        partition: 0,
        first: seen(1, 1),
        again: place(7),
    };
    assert_eq!(found, Some(expected));
    let report = check.report();
    assert_eq!(
        (report.redelivered, report.duplicates, report.missing),
        (1, 1, 0)
    );
}

#[test]
fn numbers_out_of_order_are_told_and_not_missing() {
    let report = shown([0, 2, 1, 3]).report();
    let expected = NumberFinding::OutOfOrder {
        producer: Uuid::from_u128(1),
        partition: 0,
        number: 1,
        at: place(2),
        behind: seen(2, 1),
    };
    assert_eq!(report.findings, [expected]);
    assert_eq!((report.out_of_order, report.missing), (1, 0));
    // Delivery begins anew at an earlier offset: no disorder of what is stored.
    let mut check = shown([0, 1, 2, 3]);
    check.check(&record(1, 2, 0, 2));
    check.check(&record(1, 3, 0, 3));
    assert!(check.report().is_clean());
}

#[test]
fn records_without_a_number_are_counted_and_unreadable_ones_are_told() {
    let mut check = NumberCheck::new();
    let mut plain = record(1, 0, 0, 0);
    plain.headers.clear();
    assert_eq!(check.check(&plain), None);
    for value in [
        "",
        "x",
        "1/2",
        "00000000-0000-0000-0000-000000000001/0/-1",
        "00000000-0000-0000-0000-000000000001/0/1/2",
    ] {
        let mut broken = record(1, 0, 0, 1);
        broken.headers[0].value = Some(value.into());
        assert!(
            matches!(check.check(&broken), Some(NumberFinding::Malformed { .. })),
            "{value}"
        );
    }
    let report = check.report();
    assert_eq!((report.unnumbered, report.malformed), (1, 5));
}

#[test]
fn memory_is_bounded_and_forgets_places_before_it_forgets_numbers() {
    // Every other offset is somebody else's, so no two numbers stand side by side.
    let mut check = NumberCheck::with_runs_max(100);
    for number in 0..10_000 {
        check.check(&record(1, number, 0, number * 2));
    }
    let report = check.report();
    assert!(report.is_clean(), "{report:?}");
    // Holes cannot be forgotten: then it says that it is not complete.
    let mut check = NumberCheck::with_runs_max(100);
    for number in 0..1000 {
        check.check(&record(1, number * 2, 0, number));
    }
    assert!(!check.report().complete);
}
