//! A job as an operator of the runtime: per epoch decode, judge lateness, assign panes, run the segments, keep state, fire windows.
//!
//! # Invariants
//! 1. Rows pass in the order: decode, event time, lateness, panes; a row that fails at one is told to the emitter and goes no further.
//! 2. Evaluation up to partial aggregates touches no state, so it can be repeated over halves until the bad rows stand alone (B10).
//! 3. A window fires once: when its end is above the committed watermark and not above the new one. Rows that come later count in
//!    those of their windows that have not fired; a row without such is late.
//! 4. Results of one call come out in the order of (window end, groups).

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::array::{
    Array, ArrayRef, Int64Array, RecordBatch, TimestampMillisecondArray, UInt64Array,
};
use arrow::compute::take_record_batch;
use arrow::error::ArrowError;
use bytes::Bytes;
use datafusion::error::DataFusionError;
use functions_runtime::codec::snapshot::RowCodecs;
use functions_runtime::letters::RecordAt;
use functions_runtime::record::InputRecord;
use functions_runtime::state::{RowCodec, StateTxn};
use functions_runtime::watermark::NO_WATERMARK;
use functions_runtime::{Emitter, EpochInput, EpochOperator, Fingerprint, OperatorError};
use hulse_proto::time::TimestampMs;

use crate::format::{decode, encode};
use crate::plan::{Body, Grouped, JobPlan, METADATA};
use crate::rows::{end_key, end_of};
use crate::slot::run;
use crate::statement::Emit;
use crate::window::Window;

/// The table of state of a job.
const TABLE: usize = 0;

/// Runs a [`JobPlan`].
pub struct SqlOperator {
    plan: JobPlan,
    /// Of the epoch under way; each begins by setting it.
    committed: TimestampMs,
    now: TimestampMs,
}

/// Rows that came through decoding and lateness, and which records they are.
struct Accepted {
    rows: RecordBatch,
    of: Vec<RecordAt>,
}

fn failed(error: impl std::fmt::Display) -> OperatorError {
    OperatorError::Failed {
        message: error.to_string(),
    }
}

impl SqlOperator {
    /// One for a plan.
    pub fn new(plan: JobPlan) -> Self {
        Self {
            plan,
            committed: NO_WATERMARK,
            now: 0,
        }
    }

    fn accept(
        &self,
        input: &EpochInput<'_>,
        out: &mut Emitter<'_>,
    ) -> Result<Accepted, OperatorError> {
        let (mut of, mut records) = (Vec::new(), Vec::new());
        for (partition, record) in input.records() {
            of.push(RecordAt {
                partition,
                offset: record.offset,
            });
            records.push(record);
        }
        let decoded = decode(&self.plan.source, &records).map_err(failed)?;
        for (record, why) in decoded.bad {
            out.fail(of[record], "decode", why);
        }
        let times = self
            .plan
            .time
            .map(|index| times(decoded.rows.column(index)));
        let times = times.transpose()?;
        let (mut kept, mut starts) = (Vec::new(), Vec::new());
        for (row, record) in decoded.of.iter().enumerate() {
            let (at, read) = (of[*record], records[*record]);
            let Some(time) = self.time_of(times, row, (at, read), out) else {
                continue;
            };
            match self.plan.window {
                None => starts.push(0),
                Some(window) => match window.pane_start(time) {
                    None => {
                        out.fail(
                            at,
                            "event_time",
                            format!("event time {time} ms has no window"),
                        );
                        continue;
                    }
                    Some(start) if window.last_end(start) <= input.watermark => {
                        out.late(at);
                        continue;
                    }
                    Some(start) => starts.push(start),
                },
            }
            kept.push((row, *record));
        }
        let indices: UInt64Array = kept.iter().map(|(row, _)| *row as u64).collect();
        let rows = take_record_batch(&decoded.rows, &indices).map_err(failed)?;
        let kept: Vec<_> = kept
            .iter()
            .map(|(_, record)| (of[*record], records[*record]))
            .collect();
        Ok(Accepted {
            rows: self.widened(rows, &kept, starts).map_err(failed)?,
            of: kept.into_iter().map(|(at, _)| at).collect(),
        })
    }

    /// The event time of a row, told to the emitter; none: the row goes no further. A table without one has the record's time.
    fn time_of(
        &self,
        times: Option<&TimestampMillisecondArray>,
        row: usize,
        (at, read): (RecordAt, &InputRecord),
        out: &mut Emitter<'_>,
    ) -> Option<TimestampMs> {
        let time = match times {
            Some(times) if times.is_null(row) => {
                out.fail(at, "event_time", "the event time is null".to_owned());
                return None;
            }
            Some(times) => times.value(row),
            None => read.timestamp,
        };
        out.observe(at, time, read.append_time).then_some(time)
    }

    /// Adds the columns of metadata that the query names, and those of the window.
    fn widened(
        &self,
        rows: RecordBatch,
        of: &[(RecordAt, &InputRecord)],
        starts: Vec<TimestampMs>,
    ) -> Result<RecordBatch, ArrowError> {
        let schema = self.plan.input.schema().clone();
        let mut columns = rows.columns().to_vec();
        for (number, (name, _)) in METADATA.iter().enumerate() {
            if schema.column_with_name(name).is_none() {
                continue;
            }
            let column: ArrayRef = match number {
                0 => Arc::new(
                    of.iter()
                        .map(|(at, _)| i64::from(at.partition.partition))
                        .collect::<Int64Array>(),
                ),
                1 => Arc::new(
                    of.iter()
                        .map(|(at, _)| at.offset as i64)
                        .collect::<Int64Array>(),
                ),
                2 => Arc::new(TimestampMillisecondArray::from_iter_values(
                    of.iter().map(|(_, record)| record.timestamp),
                )),
                _ => Arc::new(TimestampMillisecondArray::from_iter_values(
                    of.iter().map(|_| self.now),
                )),
            };
            columns.push(column);
        }
        if let Some(window) = self.plan.window {
            let ends = starts.iter().map(|start| window.pane_end(*start));
            columns.push(Arc::new(TimestampMillisecondArray::from_iter_values(
                starts.iter().copied(),
            )));
            columns.push(Arc::new(TimestampMillisecondArray::from_iter_values(ends)));
        }
        RecordBatch::try_new(schema, columns)
    }

    /// Runs what touches no state over rows; rows whose values it refuses are told and left out.
    fn evaluate(
        &self,
        rows: RecordBatch,
        of: &[RecordAt],
        out: &mut Emitter<'_>,
    ) -> Result<Vec<RecordBatch>, OperatorError> {
        if rows.num_rows() == 0 {
            return Ok(Vec::new());
        }
        self.plan.input.fill(vec![rows.clone()]);
        let result = match &self.plan.body {
            Body::Stateless(plan) => run(plan, &self.plan.session),
            Body::Grouped(grouped) => grouped.aggregation.partial(),
        };
        match result {
            Ok(batches) => Ok(batches),
            Err(DataFusionError::Internal(defect)) => Err(failed(defect)),
            Err(error) if rows.num_rows() == 1 => {
                out.fail(of[0], "evaluate", error.to_string());
                Ok(Vec::new())
            }
            Err(_) => {
                let middle = rows.num_rows() / 2;
                let mut batches = self.evaluate(rows.slice(0, middle), &of[..middle], out)?;
                batches.extend(self.evaluate(
                    rows.slice(middle, rows.num_rows() - middle),
                    &of[middle..],
                    out,
                )?);
                Ok(batches)
            }
        }
    }

    /// Writes rows of the sink.
    fn emit(&self, batches: Vec<RecordBatch>, out: &mut Emitter<'_>) -> Result<(), OperatorError> {
        for batch in batches {
            for record in encode(&self.plan.sink, &batch, self.now).map_err(failed)? {
                out.emit(record)?;
            }
        }
        Ok(())
    }

    /// Reduces partial states with what is stored of their groups; gives the new rows of these.
    fn upsert(
        &self,
        grouped: &Grouped,
        partial: Vec<RecordBatch>,
        state: &mut StateTxn<'_>,
    ) -> Result<Vec<RecordBatch>, OperatorError> {
        let mut stored: BTreeMap<Bytes, Bytes> = BTreeMap::new();
        for batch in &partial {
            for key in self.keys(grouped, batch)? {
                let row = state.get(TABLE, &key).cloned();
                stored.extend(row.map(|row| (key, row)));
            }
        }
        let mut states = partial;
        if !stored.is_empty() {
            states.push(grouped.rows.batch(stored.iter()).map_err(failed)?);
        }
        let reduced = grouped.aggregation.reduce(states).map_err(failed)?;
        for batch in &reduced {
            let values = grouped.rows.values(batch).map_err(failed)?;
            for (key, value) in self.keys(grouped, batch)?.into_iter().zip(values) {
                state.put(TABLE, key, value)?;
            }
        }
        Ok(reduced)
    }

    /// Keys of rows of state: the end of their pane, then their groups.
    fn keys(&self, grouped: &Grouped, batch: &RecordBatch) -> Result<Vec<Bytes>, OperatorError> {
        let ends = match self.plan.window {
            None => vec![0; batch.num_rows()],
            Some(window) => {
                let [starts, ends] = &grouped.window_columns;
                match (ends.first(), starts.first()) {
                    (Some(end), _) => times(batch.column(*end))?.values().to_vec(),
                    (None, Some(start)) => times(batch.column(*start))?
                        .values()
                        .iter()
                        .map(|start| window.pane_end(*start))
                        .collect(),
                    (None, None) => return Err(failed("no group is a window's")),
                }
            }
        };
        grouped.rows.keys(batch, &ends).map_err(failed)
    }

    /// Results of rows of state, as rows of the sink.
    fn results(
        &self,
        grouped: &Grouped,
        states: Vec<RecordBatch>,
    ) -> Result<Vec<RecordBatch>, OperatorError> {
        let results = grouped.aggregation.finish(states).map_err(failed)?;
        let schema = grouped.results.schema();
        let renamed = results
            .into_iter()
            .map(|batch| RecordBatch::try_new(schema.clone(), batch.columns().to_vec()));
        grouped
            .results
            .fill(renamed.collect::<Result<_, _>>().map_err(failed)?);
        run(&grouped.finish, &self.plan.session).map_err(failed)
    }

    /// Rows of state that windows with ends in (committed, watermark] hold, once for each, in the order of (end, groups).
    fn fired(
        &self,
        grouped: &Grouped,
        window: Window,
        watermark: TimestampMs,
        state: &StateTxn<'_>,
    ) -> Result<Option<RecordBatch>, OperatorError> {
        let below = end_key(watermark.saturating_add(1));
        let mut rows: Vec<(TimestampMs, &Bytes, &Bytes)> = Vec::new();
        for (key, row) in state.range(TABLE, &[], Some(&below)) {
            let pane_end = end_of(key).ok_or_else(|| failed("a key of state is too short"))?;
            let open = |end: &TimestampMs| *end > self.committed && *end <= watermark;
            rows.extend(
                window
                    .ends(pane_end - window.pane())
                    .filter(open)
                    .map(|end| (end, key, row)),
            );
        }
        if rows.is_empty() {
            return Ok(None);
        }
        rows.sort_by(|a, b| (a.0, &a.1[8..]).cmp(&(b.0, &b.1[8..])));
        let batch = grouped
            .rows
            .batch(rows.iter().map(|(_, key, row)| (*key, *row)))
            .map_err(failed)?;
        let mut columns = batch.columns().to_vec();
        let [starts, ends] = &grouped.window_columns;
        for start in starts {
            columns[*start] = Arc::new(TimestampMillisecondArray::from_iter_values(
                rows.iter().map(|(end, ..)| window.start(*end)),
            ));
        }
        for end in ends {
            columns[*end] = Arc::new(TimestampMillisecondArray::from_iter_values(
                rows.iter().map(|(end, ..)| *end),
            ));
        }
        RecordBatch::try_new(batch.schema(), columns)
            .map(Some)
            .map_err(failed)
    }
}

fn times(column: &ArrayRef) -> Result<&TimestampMillisecondArray, OperatorError> {
    let times = column.as_any().downcast_ref::<TimestampMillisecondArray>();
    times.ok_or_else(|| failed(format!("a time has type {}", column.data_type())))
}

impl EpochOperator for SqlOperator {
    fn fingerprint(&self) -> Fingerprint {
        self.plan.fingerprint()
    }

    fn codecs(&self) -> RowCodecs {
        match &self.plan.body {
            Body::Stateless(_) => Vec::new(),
            Body::Grouped(grouped) => {
                let rows: Arc<dyn RowCodec> = grouped.rows.clone();
                vec![rows]
            }
        }
    }

    fn process(
        &mut self,
        input: &EpochInput<'_>,
        state: &mut StateTxn<'_>,
        out: &mut Emitter<'_>,
    ) -> Result<(), OperatorError> {
        (self.committed, self.now) = (input.watermark, input.now);
        let accepted = self.accept(input, out)?;
        let evaluated = self.evaluate(accepted.rows, &accepted.of, out)?;
        match &self.plan.body {
            Body::Stateless(_) => self.emit(evaluated, out),
            Body::Grouped(_) if evaluated.is_empty() => Ok(()),
            Body::Grouped(grouped) => {
                let touched = self.upsert(grouped, evaluated, state)?;
                match self.plan.emit {
                    Emit::Final => Ok(()),
                    Emit::Changes => self.emit(self.results(grouped, touched)?, out),
                }
            }
        }
    }

    fn on_watermark(
        &mut self,
        watermark: TimestampMs,
        state: &mut StateTxn<'_>,
        out: &mut Emitter<'_>,
    ) -> Result<(), OperatorError> {
        let (Body::Grouped(grouped), Some(window)) = (&self.plan.body, self.plan.window) else {
            return Ok(());
        };
        if watermark <= self.committed {
            return Ok(());
        }
        if self.plan.emit == Emit::Final
            && let Some(states) = self.fired(grouped, window, watermark, state)?
        {
            self.emit(self.results(grouped, vec![states])?, out)?;
        }
        // A pane goes with the last window that holds it.
        let below = end_key(watermark.saturating_add(1));
        let panes = state.range(TABLE, &[], Some(&below)).map(|(key, _)| key);
        let gone = panes.filter(|key| {
            end_of(key).is_some_and(|end| window.last_end(end - window.pane()) <= watermark)
        });
        for key in gone.cloned().collect::<Vec<_>>() {
            state.delete(TABLE, key)?;
        }
        Ok(())
    }

    fn open_until(&self, state: &StateTxn<'_>) -> Option<TimestampMs> {
        let window = self.plan.window?;
        let end = end_of(state.last_key(TABLE)?)?;
        Some(window.last_end(end - window.pane()))
    }
}
