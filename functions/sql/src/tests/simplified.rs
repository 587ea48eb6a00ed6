//! Functions and aggregates that DataFusion runs only after its planners and its simplifier have rewritten them, in each place where a
//! query may have them: a job gives what one query gives.

use std::time::Duration;

use rand::SeedableRng;
use rand_chacha::ChaCha8Rng;

use super::job::{plan, run, tables};
use super::jobs::{ORDERS, batch, oracle, orders, records};
use crate::PlanError;
use crate::window::Window;

/// Values of a row, of each kind that is rewritten, and of their neighbours that are not.
const VALUES: &[&str] = &[
    "coalesce(shop, 'none')",
    "coalesce(nullif(shop, 'shop 1'), nullif(shop, 'shop 2'), 'none')",
    "nvl(shop, 'none')",
    "ifnull(shop, 'none')",
    "nvl2(shop, upper(shop), 'none')",
    "nullif(shop, 'shop 1')",
    "CASE WHEN shop IS NULL THEN 'none' WHEN id % 2 = 0 THEN coalesce(shop, '') END",
    "CASE shop WHEN 'shop 1' THEN 1 WHEN 'shop 2' THEN 2 ELSE 0 END",
    "arrow_cast(id, 'Utf8')",
    "arrow_try_cast(shop, 'Int64')",
    "try_cast(replace(shop, 'shop ', '') AS BIGINT)",
    "greatest(id, 100)",
    "least(id, 100, CAST(NULL AS BIGINT))",
    "regexp_like(shop, '^shop [12]$')",
    "starts_with(shop, 'shop 1')",
    "concat_ws('-', shop, 'a', 'b')",
    "power(id, 2)",
    "coalesce(shop, 'none') IN ('none', 'shop 1', 'shop 2')",
    "shop LIKE '%1' OR shop LIKE '%'",
];

#[test]
fn each_rewritten_value_is_what_one_query_gives() {
    let mut chance = ChaCha8Rng::seed_from_u64(21);
    let orders = orders(&mut chance, 120, 0);
    let rows: Vec<_> = orders.iter().map(|order| (order, 0, 0)).collect();
    let tables = tables(&[ORDERS, "CREATE TABLE sink (id BIGINT, v VARCHAR)"]);
    for value in VALUES {
        let sql = format!("CREATE JOB j AS INSERT INTO sink SELECT id, {value} FROM orders");
        let ran = run(
            &|| plan(&tables, &sql).unwrap(),
            Duration::ZERO,
            &records(&orders),
            &mut chance,
        );
        let expected = oracle(
            &format!("SELECT id, {value} FROM orders"),
            batch(&rows),
            &tables["sink"],
        );
        assert_eq!(expected.len(), orders.len(), "{value}");
        assert_eq!(ran.values(), expected, "{value}");
    }
}

/// Syntax of a function, and the same as a plain call.
const SYNTAX: &[(&str, &str)] = &[
    ("substring(shop FROM 6)", "right(shop, -5)"),
    ("substr(shop, 6)", "right(shop, -5)"),
    ("position('1' IN shop)", "strpos(shop, '1')"),
    ("extract(minute FROM ts)", "date_part('minute', ts)"),
];

#[test]
fn functions_with_a_syntax_of_their_own_are_there() {
    let mut chance = ChaCha8Rng::seed_from_u64(22);
    let orders = orders(&mut chance, 120, 0);
    let rows: Vec<_> = orders.iter().map(|order| (order, 0, 0)).collect();
    let tables = tables(&[ORDERS, "CREATE TABLE sink (id BIGINT, v VARCHAR)"]);
    for (syntax, call) in SYNTAX {
        let sql = format!("CREATE JOB j AS INSERT INTO sink SELECT id, {syntax} FROM orders");
        let ran = run(
            &|| plan(&tables, &sql).unwrap(),
            Duration::ZERO,
            &records(&orders),
            &mut chance,
        );
        let expected = oracle(
            &format!("SELECT id, {call} FROM orders"),
            batch(&rows),
            &tables["sink"],
        );
        assert_eq!(ran.values(), expected, "{syntax}");
    }
}

/// (what is selected, what stands behind FROM): in WHERE, a group, an argument, FILTER, HAVING and above the aggregate.
const GROUPED: &[(&str, &str)] = &[
    (
        "window_end, coalesce(shop, 'none'), sum(nvl(id, 0))",
        "WHERE nvl2(id, id, 3) % 3 <> 1 GROUP BY window_end, coalesce(shop, 'none')",
    ),
    (
        "window_end, nvl(shop, 'none'), count(*) FILTER (WHERE coalesce(shop, 'none') <> 'shop 1')",
        "GROUP BY window_end, shop",
    ),
    (
        "window_end, nvl2(shop, 'some', 'none'), coalesce(max(nullif(id, 7)), 0) + 1",
        "GROUP BY window_end, nvl2(shop, 'some', 'none') HAVING coalesce(sum(amount), 0) > 1000",
    ),
    (
        "window_end, arrow_cast(id % 3, 'Utf8'), sum(CASE WHEN shop IS NULL THEN 1 ELSE 0 END)",
        "GROUP BY window_end, arrow_cast(id % 3, 'Utf8')",
    ),
    // Sums of one value with different constants become one sum and one count, and a projection.
    (
        "window_end, cast(sum(id + 1) AS VARCHAR), sum(id + 2) - sum(id + 3)",
        "GROUP BY window_end",
    ),
];

#[test]
fn rewritten_parts_of_an_aggregate_give_what_one_query_gives() {
    for (seed, (select, rest)) in (30..).zip(GROUPED) {
        for (from, slide) in [
            ("TUMBLE(orders, ts, INTERVAL '20' SECOND)", 20_000),
            (
                "HOP(orders, ts, INTERVAL '5' SECOND, INTERVAL '20' SECOND)",
                5_000,
            ),
        ] {
            let window = Window::new(20_000, slide).unwrap();
            let mut chance = ChaCha8Rng::seed_from_u64(seed);
            let orders = orders(&mut chance, 200, 0);
            let tables = tables(&[
                ORDERS,
                "CREATE TABLE sink (e TIMESTAMP(3), k VARCHAR, n BIGINT)",
            ]);
            let sql =
                format!("CREATE JOB j AS INSERT INTO sink SELECT {select} FROM {from} {rest}");
            let ran = run(
                &|| plan(&tables, &sql).unwrap(),
                Duration::from_secs(5),
                &records(&orders),
                &mut chance,
            );
            let mut rows = Vec::new();
            for order in &orders {
                let ends = window.ends(window.pane_start(order.ts).unwrap());
                rows.extend(ends.map(|end| (order, window.start(end), end)));
            }
            let expected = oracle(
                &format!("SELECT {select} FROM orders {rest}"),
                batch(&rows),
                &tables["sink"],
            );
            assert!(!expected.is_empty(), "{sql}");
            assert_eq!(ran.values(), expected, "{sql}");
        }
    }
}

#[test]
fn constant_that_cannot_be_cast_is_refused_when_the_job_is_planned() {
    let tables = tables(&[ORDERS, "CREATE TABLE sink (n BIGINT)"]);
    for value in ["CAST('x' AS BIGINT)", "coalesce(id, CAST('x' AS BIGINT))"] {
        let sql = format!("CREATE JOB j AS INSERT INTO sink SELECT {value} FROM orders");
        match plan(&tables, &sql) {
            Err(PlanError::Query(_)) => {}
            other => panic!("{value}: {other:?}"),
        }
    }
}
