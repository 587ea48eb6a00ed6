//! Real data: all departures of New York's airports in 2013 (nycflights13, CC0), whose numbers are known. Each day's late flights of the
//! evening push event time ahead of the next rows, by up to 22 h: disorder that nobody made up.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::Duration;

use functions_runtime::record::{Destination, InputRecord};
use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::job::{plan, record, run_in, tables};

const FLIGHTS: &str = "CREATE TABLE flights (origin VARCHAR, distance BIGINT, dep_delay BIGINT, time_hour TIMESTAMP(3)) WITH (event_time='time_hour')";

/// The file, or a line in the report that says that it is not there.
fn csv() -> Option<String> {
    let beside = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../target/test-inputs");
    let folder = std::env::var_os("HULSE_TEST_INPUTS").map_or(beside, PathBuf::from);
    let path = folder.join("flights.csv");
    if path.exists() {
        return Some(std::fs::read_to_string(path).unwrap());
    }
    if let Some(report) = std::env::var_os("HULSE_TEST_REPORT") {
        let report = OpenOptions::new().create(true).append(true).open(report);
        report
            .and_then(|mut report| {
                report.write_all(b"NOT RUN: flights in SQL: flights.csv is not there\n")
            })
            .unwrap();
    }
    None
}

/// Months in the order of the calendar, rows in the order of the file.
fn records(csv: &str) -> Vec<InputRecord> {
    let mut lines = csv.lines();
    let names: Vec<_> = lines
        .next()
        .unwrap()
        .split(',')
        .map(|name| name.trim_matches('"'))
        .collect();
    let at = |name: &str| names.iter().position(|found| *found == name).unwrap();
    let (month, origin, distance, delay, hour) = (
        at("month"),
        at("origin"),
        at("distance"),
        at("dep_delay"),
        at("time_hour"),
    );
    let mut rows: Vec<Vec<&str>> = lines
        .map(|line| line.split(',').map(|cell| cell.trim_matches('"')).collect())
        .collect();
    rows.sort_by_key(|row| row[month].parse::<u32>().unwrap());
    let json = rows.iter().map(|row| {
        let delay = row[delay]
            .parse::<f64>()
            .map_or("null".to_owned(), |minutes| (minutes as i64).to_string());
        let distance = row[distance].parse::<f64>().unwrap() as i64;
        format!(
            r#"{{"origin":"{}","distance":{distance},"dep_delay":{delay},"time_hour":"{}"}}"#,
            row[origin], row[hour]
        )
    });
    // Two years after the last flight: none is from the future.
    (0..)
        .zip(json)
        .map(|(offset, json)| record(offset, &json, 1_450_000_000_000))
        .collect()
}

#[test]
fn flights_per_hour_are_the_known_ones() {
    let Some(csv) = csv() else {
        return;
    };
    let records = records(&csv);
    assert_eq!(records.len(), 336_776);
    let mut chance = ChaCha8Rng::seed_from_u64(2013);
    let windows = tables(&[
        FLIGHTS,
        "CREATE TABLE sink (origin VARCHAR, hour TIMESTAMP(3), flights BIGINT)",
    ]);
    let sql = "CREATE JOB j AS INSERT INTO sink SELECT origin, window_start, count(*) FROM TUMBLE(flights, time_hour, INTERVAL '1' HOUR) GROUP BY origin, window_start";
    let ran = run_in(
        &|| plan(&windows, sql).unwrap(),
        Duration::from_secs(22 * 3600),
        &records,
        &mut chance,
        20_000,
    );
    let rows = ran.to(Destination::Output(0));
    let counts = rows.iter().map(|row| {
        let value: &[u8] = row.value.as_deref().unwrap();
        let text = std::str::from_utf8(value).unwrap();
        text.rsplit(':')
            .next()
            .unwrap()
            .trim_end_matches('}')
            .parse::<u64>()
            .unwrap()
    });
    let counts: Vec<_> = counts.collect();
    assert_eq!(
        (rows.len(), counts.iter().sum(), counts.iter().max()),
        (19_486, 336_776, Some(&38))
    );
    assert_eq!(
        ran.meta.counters.late, 0,
        "nothing is more than 22 h behind"
    );
}

#[test]
fn totals_of_the_flights_are_the_known_ones() {
    let Some(csv) = csv() else {
        return;
    };
    let records = records(&csv);
    let mut chance = ChaCha8Rng::seed_from_u64(2014);
    let totals = tables(&[
        FLIGHTS,
        "CREATE TABLE sink (origin VARCHAR, n BIGINT, miles BIGINT, delay BIGINT, cancelled BIGINT) WITH (key='origin')",
    ]);
    let sql = "CREATE JOB j AS INSERT INTO sink SELECT origin, count(*), sum(distance), sum(dep_delay), count(*) FILTER (WHERE dep_delay IS NULL) FROM flights GROUP BY origin EMIT CHANGES";
    let ran = run_in(
        &|| plan(&totals, sql).unwrap(),
        Duration::from_secs(22 * 3600),
        &records,
        &mut chance,
        20_000,
    );
    let last = ran.last_by_key();
    let starts: Vec<_> = last
        .iter()
        .map(|row| row.split(r#","miles""#).next().unwrap())
        .collect();
    assert_eq!(
        starts,
        [
            r#"{"origin":"EWR","n":120835"#,
            r#"{"origin":"JFK","n":111279"#,
            r#"{"origin":"LGA","n":104662"#
        ]
    );
    let sum = |name: &str| -> i64 {
        let field = format!(r#""{name}":"#);
        let of = |row: &String| {
            row.split(&field)
                .nth(1)
                .unwrap()
                .split([',', '}'])
                .next()
                .unwrap()
                .parse::<i64>()
                .unwrap()
        };
        last.iter().map(of).sum()
    };
    assert_eq!(
        (sum("miles"), sum("delay"), sum("cancelled")),
        (350_217_607, 4_152_200, 8_255)
    );
}
