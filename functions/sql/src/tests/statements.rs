//! Statements: what they say, and what of them is refused.

use std::time::Duration;

use arrow::datatypes::DataType;

use crate::table::TIMESTAMP;
use crate::window::Window;
use crate::{Emit, Format, JobStatement, Statement};

fn job(sql: &str) -> JobStatement {
    match Statement::parse(sql) {
        Ok(Statement::Job(job)) => *job,
        other => panic!("{sql}: {other:?}"),
    }
}

fn refusal(sql: &str) -> String {
    match Statement::parse(sql) {
        Err(why) => why.to_string(),
        Ok(_) => format!("{sql} is taken"),
    }
}

#[test]
fn table_says_what_a_topic_holds() {
    let sql = "CREATE TABLE Orders (order_id BIGINT NOT NULL, Amount DECIMAL(18,2), \"Ts\" TIMESTAMP(3), raw BYTEA)
               WITH (topic='public/default/orders', format='json', event_time='Ts', watermark_delay='5s', key='order_id, amount');";
    let Ok(Statement::Table(table)) = Statement::parse(sql) else {
        panic!("a table");
    };
    assert_eq!(
        (table.name.as_str(), table.topic.as_str(), table.format),
        ("orders", "public/default/orders", Format::Json)
    );
    assert_eq!(
        (table.event_time.as_deref(), table.watermark_delay),
        (Some("Ts"), Duration::from_secs(5))
    );
    assert_eq!(table.key, ["order_id", "amount"]);
    let columns: Vec<_> = table
        .schema
        .fields()
        .iter()
        .map(|field| {
            (
                field.name().as_str(),
                field.data_type(),
                field.is_nullable(),
            )
        })
        .collect();
    assert_eq!(
        columns,
        [
            ("order_id", &DataType::Int64, false),
            ("amount", &DataType::Decimal128(18, 2), true),
            ("Ts", &TIMESTAMP, true),
            ("raw", &DataType::Binary, true)
        ]
    );
}

#[test]
fn tables_that_cannot_be_are_refused() {
    for (sql, reason) in [
        (
            "CREATE TABLE t (a BIGINT) WITH (formt='json')",
            "option formt of table t is unknown",
        ),
        (
            "CREATE TABLE t (a BIGINT) WITH (format='avro')",
            "format avro of table t is unknown; there are json and raw",
        ),
        (
            "CREATE TABLE t (a BIGINT) WITH (event_time='b')",
            "table t has no column b",
        ),
        (
            "CREATE TABLE t (a BIGINT) WITH (event_time='a')",
            "event time a of table t is not a TIMESTAMP",
        ),
        (
            "CREATE TABLE t (a BIGINT) WITH (format='raw')",
            "table t of format raw has columns key BYTEA and value BYTEA only",
        ),
        (
            "CREATE TABLE t (a GEOMETRY)",
            "type GEOMETRY of column a is not supported",
        ),
        (
            "CREATE TABLE t (a DECIMAL(60,2))",
            "type DECIMAL(60,2) of column a is not supported",
        ),
        (
            "CREATE TABLE t (a TIMESTAMP(3)) WITH (event_time='a', watermark_delay='soon')",
            "\"soon\" is no duration",
        ),
        (
            "CREATE TABLE t (a BIGINT) WITH (topic='x', topic='y')",
            "option topic stands twice",
        ),
        (
            "CREATE TABLE t AS SELECT 1",
            "CREATE TABLE with a query or a constraint is not supported",
        ),
        (
            "DROP TABLE t",
            "DROP TABLE is not supported in a job: there are CREATE TABLE and CREATE JOB",
        ),
        ("CREATE TABLE", "syntax: "),
        ("", "syntax: "),
        ("CREATE JOB", "syntax: "),
        (
            "CREATE JOB j AS SELECT 1",
            "SELECT 1 is not supported in a job: a job is INSERT INTO .. SELECT",
        ),
        (
            "CREATE JOB j AS INSERT INTO s SELECT 1 FROM t; SELECT 2",
            "syntax: ",
        ),
        ("SELECT 'unclosed", "syntax: "),
    ] {
        let why = refusal(sql);
        assert!(why.starts_with(reason), "{sql}: {why}");
    }
}

#[test]
fn window_may_be_written_in_each_common_way() {
    let minute = Window::new(60_000, 60_000).unwrap();
    let hop = Window::new(10_000, 2_000).unwrap();
    for (from, window) in [
        ("TUMBLE(orders, ts, INTERVAL '1' MINUTE)", minute),
        ("tumble(Orders, Ts, interval '60 seconds')", minute),
        (
            "TUMBLE(data => orders, timecol => ts, size => INTERVAL '1' MINUTE)",
            minute,
        ),
        (
            "TABLE(TUMBLE(orders, DESCRIPTOR(ts), INTERVAL '1' MINUTE))",
            minute,
        ),
        (
            "HOP(orders, DESCRIPTOR(ts), INTERVAL '2' SECOND, INTERVAL '10' SECOND)",
            hop,
        ),
    ] {
        let job = job(&format!(
            "CREATE JOB j WITH (epoch='1s') AS INSERT INTO s SELECT window_start, count(*) FROM {from} GROUP BY window_start"
        ));
        assert_eq!(
            (job.source.as_str(), job.window),
            ("orders", Some((window, "ts".to_owned()))),
            "{from}"
        );
        assert_eq!(job.options.get("epoch").map(String::as_str), Some("1s"));
    }
}

#[test]
fn emission_is_cut_off_the_end_only() {
    let query = "CREATE JOB j AS INSERT INTO s SELECT emit FROM changes";
    assert_eq!(job(query).emit, None);
    assert_eq!(
        job(&format!("{query} EMIT CHANGES")).emit,
        Some(Emit::Changes)
    );
    assert_eq!(job(&format!("{query} emit final;")).emit, Some(Emit::Final));
    assert_eq!(
        job(&format!("{query} EMIT ON WINDOW CLOSE")).emit,
        Some(Emit::Final)
    );
}
