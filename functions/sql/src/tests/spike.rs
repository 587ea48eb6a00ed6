//! Does `PartialReduce` over many epochs give what a single pass gives? For each aggregate that a job may use, alone
//! (compute.md C4, "first-day spike"; C5). Kept, since upgrades of DataFusion must pass it.

use std::sync::Arc;

use arrow::array::{
    ArrayRef, Decimal128Array, Float64Array, Int64Array, RecordBatch, StringArray,
    TimestampMillisecondArray,
};
use arrow::compute::concat_batches;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef, TimeUnit};
use arrow::util::display::{ArrayFormatter, FormatOptions};
use datafusion::datasource::MemTable;
use datafusion::execution::SessionStateBuilder;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::prelude::{SessionConfig, SessionContext};
use futures::executor::block_on;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::aggregate::Aggregation;
use crate::slot::Slot;

/// Exact: equal to the last digit. Others: floating point adds up in another order.
const EXACT: &[&str] = &[
    "sum(i)",
    "sum(d)",
    "count(i)",
    "count(*)",
    "min(i)",
    "max(d)",
    "min(s)",
    "max(s)",
    "min(t)",
    "avg(d)",
    "bool_and(i > 0)",
    "bool_or(i > 90)",
    "bit_and(i)",
    "bit_or(i)",
    "bit_xor(i)",
    "sum(i) FILTER (WHERE i > 10)",
    "count(*) FILTER (WHERE s IS NULL)",
    "approx_distinct(i)",
    "first_value(i ORDER BY i)",
    "last_value(s ORDER BY i, s)",
    "first_value(s ORDER BY t DESC, i, s)",
];
const CLOSE: &[&str] = &[
    "sum(f)",
    "avg(f)",
    "avg(i)",
    "stddev(f)",
    "stddev_pop(f)",
    "var_pop(f)",
    "var_samp(f)",
    "corr(f, i)",
    "covar_pop(f, i)",
    "covar_samp(f, i)",
    "regr_slope(f, i)",
    "regr_count(f, i)",
];
/// Rows of state that grow with the input: refused in jobs, and known to be right here.
const GROWING: &[&str] = &["count(DISTINCT i)", "sum(DISTINCT i)", "median(i)"];

const GROUPS: i64 = 7;

fn schema() -> SchemaRef {
    Arc::new(Schema::new(vec![
        Field::new("g", DataType::Int64, true),
        Field::new("i", DataType::Int64, true),
        Field::new("d", DataType::Decimal128(18, 2), true),
        Field::new("f", DataType::Float64, true),
        Field::new("s", DataType::Utf8, true),
        Field::new("t", DataType::Timestamp(TimeUnit::Millisecond, None), true),
    ]))
}

fn rows(chance: &mut ChaCha8Rng, count: usize) -> RecordBatch {
    let mut some = |most: i64| -> Vec<Option<i64>> {
        (0..count)
            .map(|_| {
                chance
                    .random_ratio(9, 10)
                    .then(|| chance.random_range(-5..most))
            })
            .collect()
    };
    let (g, i, d, f, s, t) = (
        some(GROUPS - 5),
        some(100),
        some(1_000_000),
        some(10_000),
        some(50),
        some(1_000),
    );
    let columns: Vec<ArrayRef> = vec![
        Arc::new(Int64Array::from(g)),
        Arc::new(Int64Array::from(i)),
        Arc::new(
            Decimal128Array::from_iter(d.into_iter().map(|d| d.map(i128::from)))
                .with_precision_and_scale(18, 2)
                .unwrap(),
        ),
        Arc::new(Float64Array::from_iter(
            f.into_iter().map(|f| f.map(|f| f as f64 / 7.0)),
        )),
        Arc::new(StringArray::from_iter(
            s.into_iter().map(|s| s.map(|s| format!("s{s:03}"))),
        )),
        Arc::new(TimestampMillisecondArray::from(t)),
    ];
    RecordBatch::try_new(schema(), columns).unwrap()
}

/// A session without optimizers, whose plans have the shape of the query.
fn plain() -> SessionContext {
    let state = SessionStateBuilder::new_with_default_features()
        .with_config(SessionConfig::new().with_target_partitions(1))
        .with_optimizer_rules(Vec::new())
        .with_physical_optimizer_rules(Vec::new())
        .build();
    SessionContext::new_with_state(state)
}

fn query(aggregate: &str) -> String {
    format!("SELECT g, {aggregate} FROM rows GROUP BY g")
}

/// The lowest aggregate of a plan: the one over raw rows.
fn lowest(plan: &Arc<dyn ExecutionPlan>) -> AggregateExec {
    let below = plan
        .children()
        .into_iter()
        .next()
        .expect("an aggregate is in the plan");
    match plan.downcast_ref::<AggregateExec>() {
        Some(found) if matches!(found.mode(), AggregateMode::Partial | AggregateMode::Single) => {
            found.clone()
        }
        _ => lowest(below),
    }
}

fn aggregation(aggregate: &str) -> (Arc<Slot>, Aggregation) {
    let session = plain();
    let slot = Slot::new(schema());
    session
        .register_table("rows", slot.table().unwrap())
        .unwrap();
    let plan = block_on(async {
        session
            .sql(&query(aggregate))
            .await?
            .create_physical_plan()
            .await
    })
    .unwrap();
    (
        slot,
        Aggregation::new(&lowest(&plan), session.task_ctx()).unwrap(),
    )
}

/// Lines `group|value`, sorted.
fn lines(batches: &[RecordBatch]) -> Vec<(String, String)> {
    let format = FormatOptions::default().with_null("null");
    let mut lines = Vec::new();
    for batch in batches {
        let column = |index: usize| ArrayFormatter::try_new(batch.column(index), &format).unwrap();
        let (group, value) = (column(0), column(1));
        lines.extend(
            (0..batch.num_rows())
                .map(|row| (group.value(row).to_string(), value.value(row).to_string())),
        );
    }
    lines.sort();
    lines
}

fn in_one_pass(aggregate: &str, all: &RecordBatch) -> Vec<(String, String)> {
    let session = SessionContext::new_with_config(SessionConfig::new().with_target_partitions(1));
    let table = MemTable::try_new(schema(), vec![vec![all.clone()]]).unwrap();
    session.register_table("rows", Arc::new(table)).unwrap();
    // A session of its own runtime: the default planner may start tasks.
    let runtime = tokio::runtime::Builder::new_current_thread()
        .build()
        .unwrap();
    let result = runtime.block_on(async { session.sql(&query(aggregate)).await?.collect().await });
    lines(&result.unwrap())
}

fn in_epochs(aggregate: &str, all: &RecordBatch, chance: &mut ChaCha8Rng) -> Vec<(String, String)> {
    let (slot, aggregation) = aggregation(aggregate);
    let mut state = vec![RecordBatch::new_empty(aggregation.state_schema().clone())];
    let mut from = 0;
    while from < all.num_rows() {
        let some = chance.random_range(1..40).min(all.num_rows() - from);
        slot.fill(vec![all.slice(from, some)]);
        from += some;
        let mut states = aggregation.partial().unwrap();
        states.append(&mut state);
        state = aggregation.reduce(states).unwrap();
        // As a restart would: nothing but the rows goes on.
        state = vec![concat_batches(aggregation.state_schema(), &state).unwrap()];
    }
    lines(&aggregation.finish(state).unwrap())
}

fn close(a: &str, b: &str) -> bool {
    match (a.parse::<f64>(), b.parse::<f64>()) {
        (Ok(a), Ok(b)) => (a - b).abs() <= 1e-9 * a.abs().max(b.abs()).max(1.0),
        _ => a == b,
    }
}

#[test]
fn reduction_over_epochs_gives_what_one_pass_gives() {
    let mut chance = ChaCha8Rng::seed_from_u64(7);
    let all = rows(&mut chance, 2_000);
    let mut wrong = Vec::new();
    for (aggregate, exact) in EXACT
        .iter()
        .chain(GROWING)
        .map(|name| (*name, true))
        .chain(CLOSE.iter().map(|name| (*name, false)))
    {
        let (one, many) = (
            in_one_pass(aggregate, &all),
            in_epochs(aggregate, &all, &mut chance),
        );
        let same = one.len() == many.len()
            && one
                .iter()
                .zip(&many)
                .all(|(a, b)| a.0 == b.0 && (a.1 == b.1 || !exact && close(&a.1, &b.1)));
        assert_eq!(
            one.len() as i64,
            GROUPS + 1,
            "{aggregate}: every group and null"
        );
        if !same {
            wrong.push(format!("{aggregate}: one pass {one:?}, epochs {many:?}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
}
