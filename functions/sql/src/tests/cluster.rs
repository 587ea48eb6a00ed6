//! The canonical job of compute.md on the simulated log, through crashes and lost answers: `income` equals what `orders` say.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use functions_runtime::epoch::FunctionConfig;
use functions_runtime::mutant::Mutation;
use functions_runtime::record::Destination;
use functions_runtime::shell::Shell;
use functions_runtime::task::{Effect, Task};
use functions_runtime::testing::{Cluster, Doors, Faults, ready};
use functions_runtime::watermark::TimePolicy;
use functions_runtime::{InputPartition, Limits, TaskFailure, TaskId};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::job::{plan, tables, text};
use crate::SqlOperator;

const ORDERS: &str = "CREATE TABLE orders (order_id BIGINT, amount DECIMAL(18,2), ts TIMESTAMP(3)) WITH (topic='orders', format='json', event_time='ts', watermark_delay='5s')";
const INCOME: &str = "CREATE TABLE income (minute TIMESTAMP(3), revenue DECIMAL(28,2), orders BIGINT) WITH (topic='income', format='json', key='minute')";
const JOB: &str = "CREATE JOB income_per_minute WITH (epoch='1s') AS INSERT INTO income
    SELECT window_start, sum(amount), count(*) FROM TUMBLE(orders, ts, INTERVAL '1' MINUTE) GROUP BY window_start, window_end";

fn at(partition: u32) -> InputPartition {
    InputPartition {
        input: 0,
        partition,
    }
}

fn start(
    cluster: &Arc<Mutex<Cluster>>,
    chance: &Arc<Mutex<ChaCha8Rng>>,
    faults: Faults,
) -> Shell<Doors, Doors, Doors> {
    let plan = plan(&tables(&[ORDERS, INCOME]), JOB).unwrap();
    let config = FunctionConfig {
        function: "income_per_minute".to_owned(),
        inputs: vec!["orders".to_owned()],
        time: TimePolicy {
            delay: plan.source.watermark_delay,
            idle_after: Duration::from_secs(60),
            ..TimePolicy::default()
        },
        limits: Limits {
            snapshot_after_bytes: 4096,
            ..Limits::default()
        },
        ..FunctionConfig::default()
    };
    let id = TaskId {
        function: "income_per_minute".to_owned(),
        generation: 1,
        stage: 0,
        shard: 0,
    };
    let starts: BTreeMap<_, _> = (0..2).map(|partition| (at(partition), 0)).collect();
    let task = Task::new(
        id,
        config,
        Box::new(SqlOperator::new(plan)),
        starts,
        Mutation::default(),
    );
    let doors = Doors::new(cluster.clone(), chance.clone(), faults);
    Shell::new(task, doors.clone(), doors.clone(), doors)
}

/// Steps, with uploads that end at once.
fn step(shell: &mut Shell<Doors, Doors, Doors>, store: &mut Doors) -> bool {
    let goes_on = ready(shell.step());
    if let Some(upload) = shell.task_mut().take_upload() {
        let codecs = functions_runtime::EpochOperator::codecs(&SqlOperator::new(
            plan(&tables(&[ORDERS, INCOME]), JOB).unwrap(),
        ));
        let (object, pointer) = upload.encode(&codecs).unwrap();
        let put = ready(functions_runtime::seam::SnapshotStore::put(
            store,
            &upload.path,
            object,
        ));
        shell.task_mut().on_uploaded(put.ok().map(|()| pointer));
    }
    let _ = ready(shell.clean());
    goes_on
}

#[test]
fn revenue_per_minute_is_right_after_any_crash() {
    for seed in 0..6 {
        let mut chance = ChaCha8Rng::seed_from_u64(seed);
        let doors_chance = Arc::new(Mutex::new(ChaCha8Rng::seed_from_u64(seed + 100)));
        let faults = Faults {
            lost: [0, 20][seed as usize % 2],
            held: 5,
            slow: 4,
        };
        let cluster = Arc::new(Mutex::new(Cluster::default()));
        cluster.lock().unwrap().now = 1_700_000_000_000;
        let mut shell = start(&cluster, &doors_chance, faults);
        let mut store = Doors::new(cluster.clone(), doors_chance.clone(), Faults::default());
        let mut expected: BTreeMap<i64, (i64, u64)> = BTreeMap::new();
        for id in 0..400 {
            let mut writes = cluster.lock().unwrap();
            let (now, cents) = (writes.now, chance.random_range(1..100_000i64));
            let time = now - chance.random_range(0..5_000);
            let json = format!(
                r#"{{"order_id":{id},"amount":{}.{:02},"ts":{time}}}"#,
                cents / 100,
                cents % 100
            );
            writes.append_input(at(id % 2), time, None, Bytes::from(json));
            writes.now += chance.random_range(0..3_000);
            writes.release_held(&mut chance, 2);
            drop(writes);
            let minute = expected
                .entry(time.div_euclid(60_000) * 60_000)
                .or_default();
            *minute = (minute.0 + cents, minute.1 + 1);
            for _ in 0..chance.random_range(0..6) {
                let fenced = !step(&mut shell, &mut store);
                assert!(
                    !fenced || matches!(shell.task().failure(), Some(TaskFailure::Fenced { .. })),
                    "{:?}",
                    shell.task().failure()
                );
                if fenced || chance.random_ratio(1, 25) {
                    shell = start(&cluster, &doors_chance, faults);
                }
            }
        }
        shell = start(&cluster, &doors_chance, Faults::default());
        for _ in 0..2_000 {
            assert!(step(&mut shell, &mut store), "{:?}", shell.task().failure());
            cluster.lock().unwrap().now += 1_000;
            let drained = matches!(shell.task().wanted(), Some(Effect::Fetch { .. }))
                && shell.task().state().is_some_and(|state| state.rows() == 0);
            let read = shell
                .task()
                .meta()
                .is_some_and(|meta| meta.offsets.values().sum::<u64>() == 400);
            if drained && read {
                break;
            }
        }
        check(&cluster.lock().unwrap(), &expected, seed);
    }
}

/// `income` has one row per minute, the right one.
fn check(cluster: &Cluster, expected: &BTreeMap<i64, (i64, u64)>, seed: u64) {
    let income = cluster.committed(Destination::Output(0));
    let mut rows: Vec<_> = income
        .iter()
        .map(|record| text(record.value.as_ref()))
        .collect();
    rows.sort();
    let mut right: Vec<_> = expected
        .iter()
        .map(|(minute, (cents, orders))| (minute, cents, orders))
        .map(row)
        .collect();
    right.sort();
    assert_eq!(rows, right, "seed {seed}");
}

/// A row of `income` as the job writes it.
fn row((minute, cents, orders): (&i64, &i64, &u64)) -> String {
    let table = &tables(&[ORDERS, INCOME])["income"];
    let columns: Vec<arrow::array::ArrayRef> = vec![
        Arc::new(arrow::array::TimestampMillisecondArray::from(vec![*minute])),
        Arc::new(
            arrow::array::Decimal128Array::from(vec![i128::from(*cents)])
                .with_precision_and_scale(28, 2)
                .unwrap(),
        ),
        Arc::new(arrow::array::Int64Array::from(vec![*orders as i64])),
    ];
    let rows = arrow::array::RecordBatch::try_new(table.schema.clone(), columns).unwrap();
    text(
        crate::format::encode(table, &rows, 0).unwrap()[0]
            .value
            .as_ref(),
    )
}
