//! Bad rows are found alone: undecodable, without a time, refused by an expression; the others go on.

use std::time::Duration;

use functions_runtime::record::Destination;
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::job::{plan, record, run, tables, text};

const ORDERS: &str = "CREATE TABLE orders (id BIGINT NOT NULL, amount DECIMAL(18,2), ts TIMESTAMP(3)) WITH (event_time='ts')";

/// Kinds of the dead letters and their offsets, in order.
fn letters(sql: &str, sink: &str, values: &[&str]) -> (Vec<String>, Vec<(String, String)>) {
    let tables = tables(&[ORDERS, sink]);
    let records: Vec<_> = (0..)
        .zip(values)
        .map(|(offset, value)| record(offset, value, 1_000_000))
        .collect();
    let mut chance = ChaCha8Rng::seed_from_u64(1);
    let ran = run(
        &|| plan(&tables, sql).unwrap(),
        Duration::ZERO,
        &records,
        &mut chance,
    );
    let letters = ran.to(Destination::DeadLetter).into_iter().map(|letter| {
        let header = |name: &str| {
            text(
                letter
                    .headers
                    .iter()
                    .find(|header| header.0 == name)
                    .and_then(|header| header.1.as_ref()),
            )
        };
        (header("x-error-offset"), header("x-error-kind"))
    });
    (ran.values(), letters.collect())
}

#[test]
fn bad_values_become_letters_and_their_neighbours_pass() {
    let sql = "CREATE JOB j AS INSERT INTO sink SELECT id, 100 / id FROM orders";
    let good = |id: i64| format!(r#"{{"id":{id},"amount":1.5,"ts":1000000}}"#);
    let (one, zero, four) = (good(1), good(0), good(4));
    let values = [
        one.as_str(),
        "{",
        r#"{"id":1}{"id":2}"#,
        "",
        r#"{"id":"x","ts":1000000}"#,
        r#"{"amount":1,"ts":1000000}"#,
        r#"{"id":3,"amount":1}"#,
        zero.as_str(),
        r#"[1]"#,
        four.as_str(),
    ];
    let (rows, letters) = letters(sql, "CREATE TABLE sink (id BIGINT, share BIGINT)", &values);
    assert_eq!(rows, [r#"{"id":1,"share":100}"#, r#"{"id":4,"share":25}"#]);
    let mut expected: Vec<_> = ["1", "2", "3", "4", "5", "8"]
        .map(|at| (at, "decode"))
        .to_vec();
    expected.extend([("6", "event_time"), ("7", "evaluate")]);
    let mut letters = letters;
    letters.sort();
    expected.sort_unstable();
    let expected: Vec<_> = expected
        .into_iter()
        .map(|(at, kind)| (at.to_owned(), kind.to_owned()))
        .collect();
    assert_eq!(letters, expected);
}

#[test]
fn argument_of_an_aggregate_that_fails_touches_no_state() {
    let sql = "CREATE JOB j AS INSERT INTO sink SELECT 'all', sum(100 / id) FROM orders GROUP BY amount EMIT CHANGES";
    let values: Vec<_> = [1, 2, 0, 4, 0, 5]
        .map(|id: i64| format!(r#"{{"id":{id},"amount":1,"ts":1000000}}"#))
        .to_vec();
    let values: Vec<_> = values.iter().map(String::as_str).collect();
    let (rows, letters) = letters(
        sql,
        "CREATE TABLE sink (k VARCHAR, n BIGINT) WITH (key='k')",
        &values,
    );
    assert!(
        rows.contains(&r#"{"k":"all","n":195}"#.to_owned()),
        "{rows:?}"
    );
    assert_eq!(letters.len(), 2);
}

#[test]
fn metadata_is_there_when_it_is_named() {
    let sql =
        "CREATE JOB j AS INSERT INTO sink SELECT _offset, _partition FROM orders WHERE _offset > 0";
    let row = r#"{"id":1,"ts":1000000}"#;
    let (rows, _) = letters(sql, "CREATE TABLE sink (o BIGINT, p BIGINT)", &[row, row]);
    assert_eq!(rows, [r#"{"o":1,"p":0}"#]);
}

#[test]
fn branch_that_is_not_taken_cannot_fail() {
    let values = [
        r#"{"id":0,"amount":2,"ts":1000000}"#,
        r#"{"id":4,"ts":1000000}"#,
        r#"{"id":0,"ts":1000000}"#,
    ];
    for value in [
        "coalesce(amount, 100 / id)",
        "nvl(amount, 100 / id)",
        "ifnull(amount, 100 / id)",
        "nvl2(amount, amount, 100 / id)",
        "CASE WHEN amount IS NULL THEN 100 / id ELSE amount END",
    ] {
        let sql = format!("CREATE JOB j AS INSERT INTO sink SELECT id, {value} FROM orders");
        let (rows, letters) = letters(&sql, "CREATE TABLE sink (id BIGINT, n BIGINT)", &values);
        assert_eq!(rows, [r#"{"id":0,"n":2}"#, r#"{"id":4,"n":25}"#], "{value}");
        let failed = ("2".to_owned(), "evaluate".to_owned());
        assert_eq!(letters, [failed], "{value}");
    }
}
