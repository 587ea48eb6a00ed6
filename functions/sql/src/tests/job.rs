//! Runs a job over records in epochs that are cut at random. After each epoch operator and state are thrown away, and made again from
//! what was written down.

use std::collections::BTreeMap;
use std::time::Duration;

use bytes::Bytes;
use functions_runtime::EpochOperator;
use functions_runtime::codec::changelog::Meta;
use functions_runtime::codec::snapshot::Snapshot;
use functions_runtime::epoch::{Base, FunctionConfig, compute};
use functions_runtime::letters::{ErrorPolicy, LatePolicy};
use functions_runtime::mutant::Mutation;
use functions_runtime::record::{Destination, Fetched, InputRecord, OutputRecord};
use functions_runtime::state::State;
use functions_runtime::watermark::TimePolicy;
use functions_runtime::{InputPartition, Limits};
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::{JobPlan, PlanError, SqlOperator, Statement, TopicTable};

pub const AT: InputPartition = InputPartition {
    input: 0,
    partition: 0,
};

/// The tables of these statements.
pub fn tables(statements: &[&str]) -> BTreeMap<String, TopicTable> {
    let tables = statements.iter().map(|sql| match Statement::parse(sql) {
        Ok(Statement::Table(table)) => (table.name.clone(), table),
        other => panic!("{sql}: {other:?}"),
    });
    tables.collect()
}

pub fn plan(tables: &BTreeMap<String, TopicTable>, sql: &str) -> Result<JobPlan, PlanError> {
    match Statement::parse(sql)? {
        Statement::Job(job) => JobPlan::new(&job, tables),
        Statement::Table(_) => panic!("{sql} is a table"),
    }
}

pub fn record(offset: u64, json: &str, append_time: i64) -> InputRecord {
    InputRecord {
        offset,
        timestamp: append_time,
        append_time,
        key: None,
        value: Some(Bytes::copy_from_slice(json.as_bytes())),
        headers: Vec::new(),
    }
}

/// What came of a job.
pub struct Ran {
    /// In their order.
    pub outputs: Vec<OutputRecord>,
    /// The last epoch.
    pub meta: Meta,
    /// Watermark by which each record was judged.
    pub judged_by: Vec<i64>,
    /// Rows of state after the last epoch.
    pub rows_left: usize,
    /// Most rows of state after any epoch.
    pub rows_most: usize,
}

impl Ran {
    pub fn to(&self, destination: Destination) -> Vec<&OutputRecord> {
        self.outputs
            .iter()
            .filter(|record| record.destination == destination)
            .collect()
    }

    /// Values of the sink, sorted.
    pub fn values(&self) -> Vec<String> {
        let mut values: Vec<_> = self
            .to(Destination::Output(0))
            .into_iter()
            .map(|record| text(record.value.as_ref()))
            .collect();
        values.sort();
        values
    }

    /// The last value of each key.
    pub fn last_by_key(&self) -> Vec<String> {
        let last: BTreeMap<_, _> = self
            .to(Destination::Output(0))
            .into_iter()
            .map(|record| (text(record.key.as_ref()), text(record.value.as_ref())))
            .collect();
        let mut values: Vec<_> = last.into_values().collect();
        values.sort();
        values
    }
}

pub fn text(bytes: Option<&Bytes>) -> String {
    bytes.map_or("none".to_owned(), |bytes| {
        String::from_utf8_lossy(bytes).into_owned()
    })
}

/// Runs to the end, where every input is idle.
pub fn run(
    make: &dyn Fn() -> JobPlan,
    delay: Duration,
    records: &[InputRecord],
    chance: &mut ChaCha8Rng,
) -> Ran {
    run_in(make, delay, records, chance, 60)
}

/// The same in epochs of fewer than `rows` records.
pub fn run_in(
    make: &dyn Fn() -> JobPlan,
    delay: Duration,
    records: &[InputRecord],
    chance: &mut ChaCha8Rng,
    rows: usize,
) -> Ran {
    let config = FunctionConfig {
        function: "job".to_owned(),
        inputs: vec!["orders".to_owned()],
        time: TimePolicy {
            delay,
            ..TimePolicy::default()
        },
        on_error: ErrorPolicy::DeadLetter,
        on_late: LatePolicy::Topic,
        limits: Limits {
            error_permille_max: 1000,
            ..Limits::default()
        },
        ..FunctionConfig::default()
    };
    let mut state = State::new(SqlOperator::new(make()).codecs().len());
    let mut ran = Ran {
        outputs: Vec::new(),
        meta: Meta::start([(AT, 0)].into()),
        judged_by: Vec::new(),
        rows_left: 0,
        rows_most: 0,
    };
    let mut from = 0;
    loop {
        let some = chance.random_range(1..rows).min(records.len() - from);
        let end = from + some;
        let mut fetched = vec![Fetched {
            partition: AT,
            records: records[from..end].to_vec(),
            next: end as u64,
            end: records.len() as u64,
        }];
        let mut watermarks = ran.meta.watermarks.clone();
        for progress in watermarks.partitions.values_mut() {
            progress.idle = some == 0;
        }
        let base = Base {
            state: &state,
            meta: &ran.meta,
            watermarks: &watermarks,
        };
        let mut operator = SqlOperator::new(make());
        let epoch = compute(
            &config,
            &mut operator,
            base,
            &mut fetched,
            end as i64,
            Mutation::default(),
        )
        .unwrap();
        ran.judged_by.extend(vec![ran.meta.watermarks.stage; some]);
        from = end;
        if let Some(epoch) = epoch {
            state.fold(epoch.delta);
            ran.outputs.extend(epoch.outputs);
            ran.meta = epoch.meta;
            state = restarted(&operator, state);
            ran.rows_most = ran.rows_most.max(state.rows());
        }
        if some == 0 {
            ran.rows_left = state.rows();
            return ran;
        }
    }
}

/// The state as a successor reads it.
fn restarted(operator: &SqlOperator, state: State) -> State {
    let snapshot = Snapshot {
        epoch: 1,
        fingerprint: operator.fingerprint(),
        state,
    };
    let object = snapshot.encode(&operator.codecs()).unwrap();
    let read = Snapshot::decode(&object, &operator.codecs()).unwrap();
    assert_eq!(
        read.state, snapshot.state,
        "a state is read as it was written"
    );
    read.state
}
