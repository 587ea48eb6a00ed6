//! One epoch: limits, policies, and what needs no transaction.

use std::sync::Arc;

use bytes::Bytes;

use super::income::{Income, order};
use super::world::{config, partition};
use crate::codec::changelog::{ChangelogRecord, Meta};
use crate::epoch::{Base, FunctionConfig, FunctionEpoch, compute};
use crate::letters::{ErrorPolicy, FuturePolicy};
use crate::mutant::Mutation;
use crate::record::{Destination, Fetched, InputRecord};
use crate::state::State;
use crate::{Limits, OperatorError, TaskFailure};

fn record(offset: u64, minute: i64, value: Bytes) -> InputRecord {
    InputRecord {
        offset,
        timestamp: minute * 60_000,
        append_time: minute * 60_000,
        key: Some(Bytes::from_static(b"k")),
        value: Some(value),
        headers: vec![("trace".to_owned(), None)],
    }
}

fn fetched(records: Vec<InputRecord>) -> Vec<Fetched> {
    let end = records.last().map_or(0, |last| last.offset + 1);
    vec![Fetched {
        partition: partition(0),
        records,
        next: end,
        end,
    }]
}

fn run(
    config: &FunctionConfig,
    fetched: &mut [Fetched],
) -> Result<Option<FunctionEpoch>, TaskFailure> {
    let state = State::new(1);
    let meta = Meta::start([(partition(0), 0)].into());
    let base = Base {
        state: &state,
        meta: &meta,
        watermarks: &meta.watermarks,
    };
    compute(config, &mut Income, base, fetched, 5, Mutation::default())
}

#[test]
fn epoch_without_records_needs_no_transaction() {
    assert_eq!(run(&config(), &mut fetched(Vec::new())), Ok(None));
}

#[test]
fn epoch_past_a_limit_takes_fewer_records_and_the_next_goes_on_there() {
    let config = FunctionConfig {
        limits: Limits {
            epoch_overlay_bytes_max: 400,
            ..Limits::default()
        },
        ..config()
    };
    let mut some = fetched(
        (0..20)
            .map(|at| record(at, at as i64, order(at, 1)))
            .collect(),
    );
    let epoch = run(&config, &mut some).unwrap().unwrap();
    assert_eq!(
        some[0].records.len(),
        2,
        "the third row and its deletions do not fit"
    );
    assert_eq!((some[0].next, epoch.meta.offsets[&partition(0)]), (2, 2));
    assert_eq!(epoch.meta.counters.rows, 2);
}

#[test]
fn one_record_past_a_limit_fails_by_its_name() {
    let config = FunctionConfig {
        limits: Limits {
            epoch_overlay_bytes_max: 10,
            ..Limits::default()
        },
        ..config()
    };
    let failed = run(&config, &mut fetched(vec![record(0, 1, order(0, 1))]));
    let name = "epoch_overlay_bytes_max";
    assert!(
        matches!(failed, Err(TaskFailure::Operator(OperatorError::OverLimit { limit, .. })) if limit == name)
    );
}

#[test]
fn bad_record_meets_the_policy_of_the_function() {
    let bad = || {
        fetched(vec![
            record(0, 1, order(0, 1)),
            record(1, 1, Bytes::from_static(b"no")),
        ])
    };
    let with = |on_error| FunctionConfig {
        on_error,
        ..config()
    };
    let failed = run(&with(ErrorPolicy::Fail), &mut bad()).unwrap_err();
    assert_eq!(
        failed.to_string(),
        "record 0/0@1: decode: an order has 16 bytes"
    );
    let skipped = run(&with(ErrorPolicy::Skip), &mut bad()).unwrap().unwrap();
    assert_eq!(
        (skipped.outputs.len(), skipped.meta.counters.skipped),
        (0, 1)
    );
    let letters = run(&with(ErrorPolicy::DeadLetter), &mut bad())
        .unwrap()
        .unwrap();
    let letter = &letters.outputs[0];
    assert_eq!(letter.destination, Destination::DeadLetter);
    let said: Vec<_> = letter
        .headers
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_deref()))
        .collect();
    assert_eq!(
        said,
        [
            ("trace", None),
            ("x-error-kind", Some(&b"decode"[..])),
            ("x-error-message", Some(b"an order has 16 bytes")),
            ("x-error-topic", Some(b"orders")),
            ("x-error-partition", Some(b"0")),
            ("x-error-offset", Some(b"1")),
            ("x-error-job", Some(b"income_per_minute")),
        ]
    );
    assert_eq!(
        (&letter.key, &letter.value),
        (&bad()[0].records[1].key, &bad()[0].records[1].value)
    );
}

#[test]
fn too_many_bad_records_fail_the_function_and_do_not_flood_a_topic() {
    let config = FunctionConfig {
        limits: Limits::default(),
        ..config()
    };
    let mixed = |bad: u64| {
        let value = |at| {
            if at < bad {
                Bytes::from_static(b"no")
            } else {
                order(at, 1)
            }
        };
        fetched((0..100).map(|at| record(at, 1, value(at))).collect())
    };
    assert!(run(&config, &mut mixed(10)).is_ok());
    let failed = run(&config, &mut mixed(11)).unwrap_err();
    assert!(
        matches!(
            failed,
            TaskFailure::TooManyErrors {
                failed: 11,
                rows: 100,
                ..
            }
        ),
        "{failed}"
    );
}

#[test]
fn record_of_the_future_meets_its_own_policy() {
    let ahead = || {
        let mut ahead = record(0, 1, order(0, 1));
        ahead.timestamp += 86_400_000;
        fetched(vec![ahead])
    };
    let with = |on_future| FunctionConfig {
        on_future,
        ..config()
    };
    let count = |epoch: &FunctionEpoch| {
        (
            epoch.outputs.len(),
            epoch.delta.tables[0].len(),
            epoch.meta.counters.future,
        )
    };
    let dropped = run(&with(FuturePolicy::Drop), &mut ahead())
        .unwrap()
        .unwrap();
    assert_eq!(count(&dropped), (0, 0, 1));
    let letter = run(&with(FuturePolicy::DeadLetter), &mut ahead())
        .unwrap()
        .unwrap();
    assert_eq!(count(&letter), (1, 0, 1));
    let kept = run(&with(FuturePolicy::Keep), &mut ahead())
        .unwrap()
        .unwrap();
    assert_eq!(count(&kept), (0, 1, 1));
    assert_eq!(kept.meta.watermarks.stage, crate::watermark::NO_WATERMARK);
}

#[test]
fn deltas_are_cut_below_the_longest_record() {
    let config = FunctionConfig {
        limits: Limits {
            changelog_record_bytes_max: 120,
            ..Limits::default()
        },
        ..config()
    };
    // All in one direction of time, so that the delay keeps the last windows open.
    let mut some = fetched(
        (0..40)
            .map(|at| record(at, 100 + at as i64 % 20, order(at, 1)))
            .collect(),
    );
    let mut state = State::new(1);
    let epoch = run(&config, &mut some).unwrap().unwrap();
    assert!(epoch.deltas.len() > 1 && epoch.deltas.iter().all(|delta| delta.len() <= 120));
    assert_eq!(epoch.meta.deltas as usize, epoch.deltas.len());
    let codecs: crate::codec::snapshot::RowCodecs = vec![Arc::new(crate::state::PlainRows)];
    let mut replayed = State::new(1);
    for delta in &epoch.deltas {
        let (ChangelogRecord::Delta(delta), _) = ChangelogRecord::decode(delta).unwrap() else {
            panic!("a delta");
        };
        let rows = codecs[0].decode(&delta.rows).unwrap();
        replayed.fold(crate::state::StateDelta {
            tables: vec![rows.into_iter().collect()],
        });
    }
    state.fold(epoch.delta);
    assert_eq!(state, replayed);
}
