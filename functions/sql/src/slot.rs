//! A slot: a leaf of a physical plan that is filled with batches before each run. Plans are made once and run once per epoch
//! (compute.md C2.5).

use std::sync::{Arc, Mutex, PoisonError};

use arrow::array::RecordBatch;
use arrow::datatypes::SchemaRef;
use datafusion::catalog::streaming::StreamingTable;
use datafusion::error::DataFusionError;
use datafusion::execution::{SendableRecordBatchStream, TaskContext};
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::execution_plan::reset_plan_states;
use datafusion::physical_plan::stream::RecordBatchStreamAdapter;
use datafusion::physical_plan::streaming::{PartitionStream, StreamingTableExec};
use futures::TryStreamExt;
use futures::executor::block_on;

/// Batches of one schema that the next run of a plan will read.
#[derive(Debug)]
pub struct Slot {
    schema: SchemaRef,
    batches: Mutex<Vec<RecordBatch>>,
}

impl Slot {
    /// An empty one. The schema is made once and shared: plans compare names, types, nullability and metadata (C7.9).
    pub fn new(schema: SchemaRef) -> Arc<Self> {
        Arc::new(Self {
            schema,
            batches: Mutex::default(),
        })
    }

    /// What it holds.
    pub fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    /// Sets what the next run reads.
    pub fn fill(&self, batches: Vec<RecordBatch>) {
        *self.batches.lock().unwrap_or_else(PoisonError::into_inner) = batches;
    }

    /// As a leaf of a physical plan: bounded, one partition.
    ///
    /// # Errors
    /// Of DataFusion.
    pub fn leaf(self: &Arc<Self>) -> Result<Arc<dyn ExecutionPlan>, DataFusionError> {
        let partition: Arc<dyn PartitionStream> = self.clone();
        let leaf = StreamingTableExec::try_new(
            self.schema.clone(),
            vec![partition],
            None,
            [],
            false,
            None,
        )?;
        Ok(Arc::new(leaf))
    }

    /// As a table that a query can name.
    ///
    /// # Errors
    /// Of DataFusion.
    pub fn table(self: &Arc<Self>) -> Result<Arc<StreamingTable>, DataFusionError> {
        let partition: Arc<dyn PartitionStream> = self.clone();
        StreamingTable::try_new(self.schema.clone(), vec![partition]).map(Arc::new)
    }
}

impl PartitionStream for Slot {
    fn schema(&self) -> &SchemaRef {
        &self.schema
    }

    fn execute(&self, _: Arc<TaskContext>) -> SendableRecordBatchStream {
        let batches =
            std::mem::take(&mut *self.batches.lock().unwrap_or_else(PoisonError::into_inner));
        let stream = futures::stream::iter(batches.into_iter().map(Ok));
        Box::pin(RecordBatchStreamAdapter::new(self.schema.clone(), stream))
    }
}

/// Runs a plan of one partition to its end, on this thread. One run at a time (C7.8).
///
/// # Errors
/// Of DataFusion: of planning, or of a row's values.
pub fn run(
    plan: &Arc<dyn ExecutionPlan>,
    session: &Arc<TaskContext>,
) -> Result<Vec<RecordBatch>, DataFusionError> {
    let fresh = reset_plan_states(plan.clone())?;
    let stream = fresh.execute(0, session.clone())?;
    block_on(stream.try_collect())
}
