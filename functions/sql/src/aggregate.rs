//! Incremental aggregation by `PartialReduce` (compute.md C4): state rows are the rows of a partial aggregate, so that every aggregate
//! of DataFusion works alike, and a restart reads what it wrote.
//!
//! A: new rows → partial states, grouped. B: partial states, new and stored → one row per group. C: rows of state → results.

use std::collections::HashSet;
use std::sync::Arc;

use arrow::array::RecordBatch;
use arrow::datatypes::{Field, Schema, SchemaRef};
use arrow::row::{RowConverter, SortField};
use datafusion::error::DataFusionError;
use datafusion::execution::TaskContext;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};

use crate::slot::{Slot, run};

/// The three plans of an aggregation.
#[derive(Debug)]
pub struct Aggregation {
    partial: Arc<dyn ExecutionPlan>,
    reduce: Arc<dyn ExecutionPlan>,
    finish: Arc<dyn ExecutionPlan>,
    states: Arc<Slot>,
    ready: Arc<Slot>,
    keys: usize,
    session: Arc<TaskContext>,
}

impl Aggregation {
    /// Takes an aggregate over raw rows and makes the three of it. `of` may be of any mode that reads raw rows.
    ///
    /// # Errors
    /// Of DataFusion; `NotImplemented` for grouping sets and for an aggregate without groups.
    pub fn new(of: &AggregateExec, session: Arc<TaskContext>) -> Result<Self, DataFusionError> {
        let group = of.group_expr().clone();
        if !group.is_single() || group.is_empty() {
            return Err(DataFusionError::NotImplemented(
                "aggregates without groups, or over grouping sets".to_owned(),
            ));
        }
        let filters = of.filter_expr().to_vec();
        let none = vec![None; filters.len()];
        let (input, input_schema) = (of.input().clone(), of.input_schema());
        let partial = AggregateExec::try_new(
            AggregateMode::Partial,
            group.clone(),
            of.aggr_expr().to_vec(),
            filters,
            input,
            input_schema.clone(),
        )?;
        // Making it may turn an aggregate round (first into last): the others must use the same ones (C4).
        let aggregates = partial.aggr_expr().to_vec();
        let keys = group.num_group_exprs();
        let states = Slot::new(indexed(&partial.schema(), keys));
        let reduce = AggregateExec::try_new(
            AggregateMode::PartialReduce,
            group.as_final(),
            aggregates.clone(),
            none.clone(),
            states.leaf()?,
            input_schema.clone(),
        )?;
        let ready = Slot::new(states.schema().clone());
        let finish = AggregateExec::try_new(
            AggregateMode::Final,
            group.as_final(),
            aggregates,
            none,
            ready.leaf()?,
            input_schema,
        )?;
        Ok(Self {
            partial: Arc::new(partial),
            reduce: Arc::new(reduce),
            finish: Arc::new(finish),
            states,
            ready,
            keys,
            session,
        })
    }

    /// Columns of the groups, which come first in every row of state.
    pub fn keys(&self) -> usize {
        self.keys
    }

    /// A row of state: groups, then partial aggregates by number, since two may have one name (C7.5).
    pub fn state_schema(&self) -> &SchemaRef {
        self.states.schema()
    }

    /// A result: groups, then aggregates.
    pub fn result_schema(&self) -> SchemaRef {
        self.finish.schema()
    }

    /// What the aggregates are, in words.
    pub fn describe(&self) -> String {
        let plan = self.partial.downcast_ref::<AggregateExec>();
        let names = plan.map(|plan| {
            plan.aggr_expr()
                .iter()
                .map(|aggregate| aggregate.name().to_owned())
        });
        names.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }

    /// A: what the rows in the input's slot come to. May hold a group several times (C7.2).
    ///
    /// # Errors
    /// Of a row's values.
    pub fn partial(&self) -> Result<Vec<RecordBatch>, DataFusionError> {
        let rows = run(&self.partial, &self.session)?;
        rows.into_iter().map(|batch| self.renamed(batch)).collect()
    }

    /// B: one row per group of all these.
    ///
    /// # Errors
    /// Of DataFusion; `Internal` if a group came out twice, which would be a defect there (C7.1).
    pub fn reduce(&self, states: Vec<RecordBatch>) -> Result<Vec<RecordBatch>, DataFusionError> {
        self.states.fill(states);
        let rows = run(&self.reduce, &self.session)?;
        let rows: Result<Vec<_>, _> = rows.into_iter().map(|batch| self.renamed(batch)).collect();
        let rows = rows?;
        self.each_group_once(&rows)?;
        Ok(rows)
    }

    /// C: results of these rows of state, in the order in which their groups first come.
    ///
    /// # Errors
    /// Of DataFusion.
    pub fn finish(&self, states: Vec<RecordBatch>) -> Result<Vec<RecordBatch>, DataFusionError> {
        self.ready.fill(states);
        run(&self.finish, &self.session)
    }

    fn renamed(&self, batch: RecordBatch) -> Result<RecordBatch, DataFusionError> {
        let schema = self.states.schema().clone();
        Ok(RecordBatch::try_new(schema, batch.columns().to_vec())?)
    }

    fn each_group_once(&self, rows: &[RecordBatch]) -> Result<(), DataFusionError> {
        let fields = self.states.schema().fields()[..self.keys].iter();
        let converter = RowConverter::new(
            fields
                .map(|field| SortField::new(field.data_type().clone()))
                .collect(),
        )?;
        let mut seen = HashSet::new();
        for batch in rows {
            let keys = converter.convert_columns(&batch.columns()[..self.keys])?;
            if !keys.iter().all(|key| seen.insert(key.owned())) {
                return Err(DataFusionError::Internal(
                    "a group came out of a reduction twice".to_owned(),
                ));
            }
        }
        Ok(())
    }
}

/// The same columns; those behind the groups are named by their number.
fn indexed(schema: &Schema, keys: usize) -> SchemaRef {
    let fields = schema
        .fields()
        .iter()
        .enumerate()
        .map(|(index, field)| match index < keys {
            true => field.as_ref().clone(),
            false => Field::new(
                format!("s{}", index - keys),
                field.data_type().clone(),
                field.is_nullable(),
            )
            .with_metadata(field.metadata().clone()),
        });
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}
