//! Jobs give what one query over all of their accepted rows gives: the same text, DataFusion's usual planner, one pass.

use std::sync::Arc;
use std::time::Duration;

use arrow::array::{
    ArrayRef, Decimal128Array, Int64Array, RecordBatch, StringArray, TimestampMillisecondArray,
};
use arrow::compute::cast;
use arrow::datatypes::{DataType, Field, Schema};
use datafusion::datasource::MemTable;
use datafusion::prelude::{SessionConfig, SessionContext};
use functions_runtime::record::{Destination, InputRecord};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::job::{plan, record, run, tables, text};
use crate::format::encode;
use crate::table::TIMESTAMP;
use crate::window::Window;

pub(super) const ORDERS: &str = "CREATE TABLE orders (id BIGINT, shop VARCHAR, amount DECIMAL(18,2), ts TIMESTAMP(3)) WITH (topic='orders', format='json', event_time='ts', watermark_delay='5s')";
const START_MS: i64 = 1_700_000_000_000;

#[derive(Debug, Clone)]
pub(super) struct Order {
    id: i64,
    shop: Option<String>,
    cents: i64,
    pub(super) ts: i64,
}

pub(super) fn orders(chance: &mut ChaCha8Rng, count: i64, disorder: i64) -> Vec<Order> {
    let one = |id| Order {
        id,
        shop: chance
            .random_ratio(9, 10)
            .then(|| format!("shop {}", chance.random_range(0..5))),
        cents: chance.random_range(-10_000..1_000_000),
        ts: START_MS + id * 700 - chance.random_range(0..=disorder),
    };
    (0..count).map(one).collect()
}

pub(super) fn records(orders: &[Order]) -> Vec<InputRecord> {
    let records = (0..).zip(orders).map(|(offset, order)| {
        let shop = order
            .shop
            .as_ref()
            .map_or("null".to_owned(), |shop| format!("{shop:?}"));
        let (sign, cents) = (if order.cents < 0 { "-" } else { "" }, order.cents.abs());
        let json = format!(
            r#"{{"id": {}, "shop": {shop}, "amount": {sign}{}.{:02}, "ts": {}, "other": [1]}}"#,
            order.id,
            cents / 100,
            cents % 100,
            order.ts
        );
        record(offset, &json, order.ts + 10_000)
    });
    records.collect()
}

/// Rows of the oracle: each order in each of these windows.
pub(super) fn batch(rows: &[(&Order, i64, i64)]) -> RecordBatch {
    let columns: Vec<(&str, DataType, ArrayRef)> = vec![
        (
            "id",
            DataType::Int64,
            Arc::new(Int64Array::from_iter_values(
                rows.iter().map(|row| row.0.id),
            )),
        ),
        (
            "shop",
            DataType::Utf8,
            Arc::new(StringArray::from_iter(
                rows.iter().map(|row| row.0.shop.clone()),
            )),
        ),
        (
            "amount",
            DataType::Decimal128(18, 2),
            Arc::new(
                Decimal128Array::from_iter_values(rows.iter().map(|row| i128::from(row.0.cents)))
                    .with_precision_and_scale(18, 2)
                    .unwrap(),
            ),
        ),
        (
            "ts",
            TIMESTAMP,
            Arc::new(TimestampMillisecondArray::from_iter_values(
                rows.iter().map(|row| row.0.ts),
            )),
        ),
        (
            "window_start",
            TIMESTAMP,
            Arc::new(TimestampMillisecondArray::from_iter_values(
                rows.iter().map(|row| row.1),
            )),
        ),
        (
            "window_end",
            TIMESTAMP,
            Arc::new(TimestampMillisecondArray::from_iter_values(
                rows.iter().map(|row| row.2),
            )),
        ),
    ];
    let fields = columns.iter().map(|(name, kind, _)| {
        Field::new(
            *name,
            kind.clone(),
            *name != "window_start" && *name != "window_end",
        )
    });
    let schema = Arc::new(Schema::new(fields.collect::<Vec<_>>()));
    RecordBatch::try_new(
        schema,
        columns.into_iter().map(|(.., column)| column).collect(),
    )
    .unwrap()
}

/// What the query gives over these rows, as the sink's values, sorted.
pub(super) fn oracle(select: &str, rows: RecordBatch, sink: &crate::TopicTable) -> Vec<String> {
    let session = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
    let table = MemTable::try_new(rows.schema(), vec![vec![rows]]).unwrap();
    session.register_table("orders", Arc::new(table)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let batches = runtime
        .block_on(async { session.sql(select).await?.collect().await })
        .unwrap_or_else(|why| panic!("{select}: {why}"));
    let batches = batches.into_iter().map(|batch| {
        let fields = sink.schema.fields();
        let columns = batch
            .columns()
            .iter()
            .zip(fields)
            .map(|(column, field)| cast(column, field.data_type()).unwrap());
        RecordBatch::try_new(sink.schema.clone(), columns.collect()).unwrap()
    });
    let records = batches.flat_map(|batch| encode(sink, &batch, 0).unwrap());
    let mut values: Vec<_> = records.map(|record| text(record.value.as_ref())).collect();
    values.sort();
    values
}

/// (columns of the sink, what is selected, what stands behind FROM).
const WINDOWED: &[(&str, &str, &str)] = &[
    (
        "minute TIMESTAMP(3), revenue DECIMAL(28,2), orders BIGINT",
        "window_start, sum(amount), count(*)",
        "GROUP BY window_start, window_end",
    ),
    (
        "shop VARCHAR, ends TIMESTAMP(3), a DOUBLE, b BIGINT, c BIGINT",
        "shop, window_end, avg(amount), count(*) FILTER (WHERE amount > 1000), max(id)",
        "WHERE id % 3 <> 1 GROUP BY window_end, shop",
    ),
    (
        "shop VARCHAR, minute TIMESTAMP(3), smallest DECIMAL(18,2), some BIGINT",
        "upper(shop), window_start, min(amount), sum(id) + 1",
        "GROUP BY upper(shop), window_start HAVING count(*) > 1",
    ),
    (
        "minute TIMESTAMP(3), first BIGINT, last VARCHAR, distinct_shops BIGINT",
        "window_start, first_value(id ORDER BY amount, id), last_value(shop ORDER BY id), approx_distinct(shop)",
        "GROUP BY window_start",
    ),
];

#[test]
fn windowed_job_gives_what_one_query_gives() {
    for seed in 0..12u64 {
        let mut chance = ChaCha8Rng::seed_from_u64(seed);
        let (size, slide) =
            [(60, 60), (10, 10), (10, 2), (10, 3), (30, 20), (60, 15)][chance.random_range(0..6)];
        let window = Window::new(size * 1000, slide * 1000).unwrap();
        let from = match size == slide {
            true => format!("TUMBLE(orders, ts, INTERVAL '{size}' SECOND)"),
            false => format!(
                "HOP(orders, DESCRIPTOR(ts), INTERVAL '{slide} seconds', INTERVAL '{size}' SECOND)"
            ),
        };
        let disorder = [0, 4_000, 60_000][chance.random_range(0..3)];
        let orders = orders(&mut chance, 500, disorder);
        let (columns, select, rest) = WINDOWED[seed as usize % WINDOWED.len()];
        let sink = format!("CREATE TABLE sink ({columns}) WITH (format='json')");
        let tables = tables(&[ORDERS, &sink]);
        let sql = format!("CREATE JOB j AS INSERT INTO sink SELECT {select} FROM {from} {rest}");
        let ran = run(
            &|| plan(&tables, &sql).unwrap(),
            Duration::from_secs(5),
            &records(&orders),
            &mut chance,
        );
        // A row counts in those of its windows that had not fired when it was read.
        let (mut rows, mut late) = (Vec::new(), 0);
        for (order, judged_by) in orders.iter().zip(&ran.judged_by) {
            let ends = window
                .ends(window.pane_start(order.ts).unwrap())
                .filter(|end| end > judged_by);
            let before = rows.len();
            rows.extend(ends.map(|end| (order, window.start(end), end)));
            late += usize::from(rows.len() == before);
        }
        let expected = oracle(
            &format!("SELECT {select} FROM orders {rest}"),
            batch(&rows),
            &tables["sink"],
        );
        assert_eq!(ran.values(), expected, "seed {seed}: {sql}");
        assert_eq!(
            (ran.to(Destination::Late).len(), ran.meta.counters.late),
            (late, late as u64),
            "seed {seed}"
        );
        assert_eq!(
            ran.rows_left, 0,
            "seed {seed}: every window fired and is forgotten"
        );
        assert!(
            disorder < 60_000 || size > 30 || late > 0,
            "seed {seed} has late rows"
        );
        assert!(disorder > 5_000 || late == 0, "seed {seed} has none");
    }
}

#[test]
fn state_of_a_hop_grows_with_panes_and_not_with_windows() {
    let mut chance = ChaCha8Rng::seed_from_u64(3);
    let orders = orders(&mut chance, 600, 0);
    let tables = tables(&[ORDERS, "CREATE TABLE sink (e TIMESTAMP(3), n BIGINT)"]);
    let sql = "CREATE JOB j AS INSERT INTO sink SELECT window_end, count(*) FROM HOP(orders, ts, INTERVAL '1' SECOND, INTERVAL '60' SECOND) GROUP BY window_end";
    let ran = run(
        &|| plan(&tables, sql).unwrap(),
        Duration::from_secs(5),
        &records(&orders),
        &mut chance,
    );
    // 60 s of a window, 5 s of delay and up to 60 records of one epoch, in panes of 1 s.
    assert!(
        (60..=66 + 42).contains(&ran.rows_most),
        "{} rows of state",
        ran.rows_most
    );
}

#[test]
fn fired_windows_come_in_the_order_of_their_ends() {
    let mut chance = ChaCha8Rng::seed_from_u64(4);
    let orders = orders(&mut chance, 300, 0);
    let tables = tables(&[
        ORDERS,
        "CREATE TABLE sink (e TIMESTAMP(3), shop VARCHAR, n BIGINT) WITH (event_time='e')",
    ]);
    let sql = "CREATE JOB j AS INSERT INTO sink SELECT window_end, shop, count(*) FROM HOP(orders, ts, INTERVAL '5' SECOND, INTERVAL '20' SECOND) GROUP BY window_end, shop EMIT ON WINDOW CLOSE";
    let ran = run(
        &|| plan(&tables, sql).unwrap(),
        Duration::ZERO,
        &records(&orders),
        &mut chance,
    );
    let ends: Vec<_> = ran
        .to(Destination::Output(0))
        .into_iter()
        .map(|record| record.timestamp)
        .collect();
    assert!(ends.len() > 100 && ends.is_sorted());
}

#[test]
fn last_changes_are_what_one_query_gives() {
    for (seed, (select, rest)) in [
        (
            "coalesce(shop, 'none'), count(*), sum(amount)",
            "WHERE id % 2 = 0 GROUP BY shop",
        ),
        (
            "coalesce(shop, 'none'), max(id), min(amount)",
            "GROUP BY shop",
        ),
        (
            "cast(id % 7 AS VARCHAR), count(*) FILTER (WHERE shop IS NULL), sum(amount) / 2",
            "GROUP BY id % 7",
        ),
    ]
    .into_iter()
    .enumerate()
    {
        let mut chance = ChaCha8Rng::seed_from_u64(seed as u64);
        let orders = orders(&mut chance, 400, 50_000);
        let tables = tables(&[
            ORDERS,
            "CREATE TABLE sink (k VARCHAR, n BIGINT, s DECIMAL(28,2)) WITH (key='k')",
        ]);
        let sql = format!(
            "CREATE JOB j AS INSERT INTO sink SELECT {select} FROM orders {rest} EMIT CHANGES"
        );
        let ran = run(
            &|| plan(&tables, &sql).unwrap(),
            Duration::from_secs(5),
            &records(&orders),
            &mut chance,
        );
        let rows: Vec<_> = orders.iter().map(|order| (order, 0, 0)).collect();
        let expected = oracle(
            &format!("SELECT {select} FROM orders {rest}"),
            batch(&rows),
            &tables["sink"],
        );
        assert_eq!(ran.last_by_key(), expected, "{sql}");
        assert!(
            ran.values().len() > expected.len(),
            "changes came before the end"
        );
        assert_eq!(
            ran.meta.counters.late, 0,
            "without a window nothing is late"
        );
    }
}

#[test]
fn changes_of_a_window_end_with_what_its_final_row_would_be() {
    let mut chance = ChaCha8Rng::seed_from_u64(9);
    let orders = orders(&mut chance, 400, 0);
    let tables = tables(&[
        ORDERS,
        "CREATE TABLE sink (m TIMESTAMP(3), n BIGINT) WITH (key='m')",
    ]);
    let job = |emit: &str| {
        format!(
            "CREATE JOB j AS INSERT INTO sink SELECT window_start, count(*) FROM TUMBLE(orders, ts, INTERVAL '1' MINUTE) GROUP BY window_start {emit}"
        )
    };
    let changes = run(
        &|| plan(&tables, &job("EMIT CHANGES")).unwrap(),
        Duration::from_secs(5),
        &records(&orders),
        &mut chance,
    );
    let last = run(
        &|| plan(&tables, &job("EMIT FINAL")).unwrap(),
        Duration::from_secs(5),
        &records(&orders),
        &mut chance,
    );
    assert_eq!(changes.last_by_key(), last.values());
    assert_eq!(changes.rows_left, 0);
}

#[test]
fn stateless_job_gives_what_one_query_gives() {
    let mut chance = ChaCha8Rng::seed_from_u64(5);
    let orders = orders(&mut chance, 300, 5_000);
    let tables = tables(&[
        ORDERS,
        "CREATE TABLE sink (id BIGINT, euros DECIMAL(18,4), what VARCHAR)",
    ]);
    let (select, rest) = (
        "id, amount * 0.908, CASE WHEN shop IS NULL THEN 'none' ELSE upper(shop) END",
        "WHERE amount > 100 AND id % 5 <> 0",
    );
    let sql = format!("CREATE JOB j AS INSERT INTO sink SELECT {select} FROM orders AS o {rest}");
    let ran = run(
        &|| plan(&tables, &sql).unwrap(),
        Duration::ZERO,
        &records(&orders),
        &mut chance,
    );
    let rows: Vec<_> = orders.iter().map(|order| (order, 0, 0)).collect();
    let expected = oracle(
        &format!("SELECT {select} FROM orders {rest}"),
        batch(&rows),
        &tables["sink"],
    );
    assert_eq!(ran.values(), expected);
}
