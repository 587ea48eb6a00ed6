//! What a job cannot be is refused when it is planned, with the reason (compute.md E2.19).

use super::job::{plan, tables};

const TABLES: [&str; 4] = [
    "CREATE TABLE orders (id BIGINT, shop VARCHAR, amount DECIMAL(18,2), f DOUBLE, ts TIMESTAMP(3)) WITH (event_time='ts')",
    "CREATE TABLE shops (shop VARCHAR, city VARCHAR)",
    "CREATE TABLE sink (k VARCHAR, n BIGINT) WITH (key='k')",
    "CREATE TABLE keyless (k VARCHAR, n BIGINT)",
];

fn refusal(sql: &str) -> String {
    match plan(&tables(&TABLES), sql) {
        Ok(_) => format!("{sql} is planned"),
        Err(why) => why.to_string(),
    }
}

/// Queries, and why they are refused.
const REFUSED: &[(&str, &str)] = &[
    (
        "SELECT shop, id FROM orders LIMIT 5",
        "LIMIT is not supported in a job: a stream has no end; write a window",
    ),
    (
        "SELECT shop, id FROM orders ORDER BY id",
        "ORDER BY is not supported in a job: a stream has no end; order where the sink is read",
    ),
    (
        "SELECT DISTINCT shop, id FROM orders",
        "DISTINCT is not supported in a job: not yet; write GROUP BY with EMIT CHANGES",
    ),
    (
        "SELECT o.shop, id FROM orders o JOIN shops s ON o.shop = s.shop",
        "JOIN is not supported in a job: not yet",
    ),
    (
        "SELECT o.shop, id FROM orders o, shops s",
        "FROM with several tables, or with none is not supported in a job: joins are not there yet",
    ),
    (
        "SELECT shop, id FROM orders UNION ALL SELECT shop, id FROM orders",
        "UNION is not supported in a job: make one job for each part",
    ),
    (
        "SELECT shop, id FROM (SELECT * FROM orders)",
        "a subquery in FROM is not supported in a job: not yet",
    ),
    (
        "WITH o AS (SELECT 1) SELECT shop, id FROM orders",
        "WITH is not supported in a job: not yet; make a job for each step",
    ),
    (
        "SELECT shop, row_number() OVER (ORDER BY id) FROM orders",
        "OVER is not supported in a job: not yet",
    ),
    (
        "SELECT shop, id FROM orders WHERE id IN (SELECT 1)",
        "a subquery is not supported in a job: not yet",
    ),
    (
        "SELECT shop, id FROM orders WHERE ts < now()",
        "now() is not supported in a job: it would be the time of planning for ever; use _epoch_time",
    ),
    (
        "SELECT shop, cast(random() AS BIGINT) FROM orders",
        "random() is not supported in a job: an epoch that is computed again must give the same",
    ),
    (
        "SELECT shop, count(*) FROM orders GROUP BY shop",
        "GROUP BY without a window is not supported in a job: no result would ever be final; write EMIT CHANGES",
    ),
    (
        "SELECT shop, count(*) FROM orders GROUP BY shop EMIT FINAL",
        "EMIT FINAL without a window is not supported in a job: no result would ever be final",
    ),
    (
        "SELECT shop, count(*) FROM orders GROUP BY ROLLUP(shop) EMIT CHANGES",
        "GROUPING SETS is not supported in a job: not yet; make one job for each set",
    ),
    (
        "SELECT shop, count(DISTINCT id) FROM orders GROUP BY shop EMIT CHANGES",
        "count(DISTINCT ..) is not supported in a job: its state grows with the rows; use approx_distinct()",
    ),
    (
        "SELECT shop, first_value(id) FROM orders GROUP BY shop EMIT CHANGES",
        "first_value() is not supported in a job: without ORDER BY it depends on how records are batched",
    ),
    (
        "SELECT shop, median(id) FROM orders GROUP BY shop EMIT CHANGES",
        "median() is not supported in a job: its state grows with the rows, or it depends on their order",
    ),
    (
        "SELECT 'all', count(*) FROM orders EMIT CHANGES",
        "an aggregate without GROUP BY is not supported in a job: write GROUP BY, by a constant column if need be",
    ),
    (
        "SELECT shop, count(*) FROM orders GROUP BY shop HAVING count(*) > 1 EMIT CHANGES",
        "HAVING under EMIT CHANGES is not supported in a job: a row that passes no more would stay in the sink; filter there",
    ),
    (
        "SELECT shop, count(*) FROM TUMBLE(orders, ts, INTERVAL '1' MINUTE) GROUP BY shop",
        "GROUP BY without the window is not supported in a job: group by window_start or window_end",
    ),
    (
        "SELECT shop, id FROM TUMBLE(orders, ts, INTERVAL '1' MINUTE)",
        "a window without GROUP BY is not supported in a job: group by window_start or window_end, or read the table itself",
    ),
    (
        "SELECT shop, count(*) FROM HOP(orders, ts, INTERVAL '1' SECOND, INTERVAL '1' MINUTE) GROUP BY shop, window_end EMIT CHANGES",
        "EMIT CHANGES over HOP is not supported in a job: not yet; write EMIT FINAL",
    ),
    (
        "SELECT shop, count(*) FROM HOP(orders, ts, INTERVAL '1' SECOND, INTERVAL '1' MINUTE) WHERE window_end > ts GROUP BY shop, window_end",
        "a column of a HOP window inside WHERE, an aggregate or an expression is not supported in a job: use it as a group, alone",
    ),
    (
        "SELECT shop, count(*) FROM SESSION(orders, ts, INTERVAL '1' MINUTE) GROUP BY shop",
        "SESSION is not supported in a job: not yet; there are TUMBLE and HOP",
    ),
    (
        "SELECT shop, count(*) FROM generate_series(1, 2) GROUP BY shop",
        "generate_series() in FROM is not supported in a job: there are TUMBLE and HOP",
    ),
    (
        "SELECT shop, id FROM orders QUALIFY id > 1",
        "QUALIFY is not supported in a job: not yet",
    ),
    (
        "SELECT shop FROM orders",
        "the query has 1 columns, table sink has 2",
    ),
    (
        "SELECT shop, id FROM nowhere",
        "table nowhere does not exist",
    ),
    (
        "SELECT shop, count(*) FROM TUMBLE(orders, shop, INTERVAL '1' MINUTE) GROUP BY shop, window_end",
        "column shop of table orders is not a TIMESTAMP",
    ),
    (
        "SELECT shop, count(*) FROM TUMBLE(orders, at, INTERVAL '1' MINUTE) GROUP BY shop, window_end",
        "table orders has no column at",
    ),
    (
        "SELECT shop, count(*) FROM HOP(orders, ts, INTERVAL '2' MINUTE, INTERVAL '1' MINUTE) GROUP BY shop, window_end",
        "a window's size and slide are positive, and the slide is not longer than the size",
    ),
];

#[test]
fn unsupported_shapes_are_refused_with_their_reason() {
    for (query, reason) in REFUSED {
        let sql = format!("CREATE JOB j AS INSERT INTO sink {query}");
        assert_eq!(refusal(&sql), *reason, "{query}");
    }
}

#[test]
fn changes_need_a_key_that_tells_which_row_they_replace() {
    let why = refusal(
        "CREATE JOB j AS INSERT INTO keyless SELECT shop, count(*) FROM orders GROUP BY shop EMIT CHANGES",
    );
    assert_eq!(
        why,
        "EMIT CHANGES needs a key of table keyless, so that a later row replaces an earlier one"
    );
}

#[test]
fn versions_of_a_table_are_not_silently_ignored() {
    let why = refusal(
        "CREATE JOB j AS INSERT INTO sink SELECT shop, id FROM orders FOR SYSTEM_TIME AS OF '2020-01-01'",
    );
    assert!(
        why.starts_with("syntax") || why.starts_with("FOR SYSTEM_TIME"),
        "{why}"
    );
}
