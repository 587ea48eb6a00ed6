//! Plans a job: one query over one table, cut at its aggregate into segments (compute.md C2).

use std::collections::BTreeMap;
use std::sync::Arc;

use arrow::compute::can_cast_types;
use arrow::datatypes::{DataType, Field, Schema, SchemaRef};
use datafusion::common::tree_node::{Transformed, TreeNode, TreeNodeRecursion};
use datafusion::datasource::provider_as_source;
use datafusion::execution::TaskContext;
use datafusion::execution::session_state::{SessionState, SessionStateBuilder};
use datafusion::functions::datetime::planner::DatetimeFunctionPlanner;
use datafusion::functions::unicode::planner::UnicodeFunctionPlanner;
use datafusion::logical_expr::planner::ExprPlanner;
use datafusion::logical_expr::{Aggregate, Expr, LogicalPlan, LogicalPlanBuilder, cast};
use datafusion::optimizer::simplify_expressions::SimplifyExpressions;
use datafusion::physical_plan::ExecutionPlan;
use datafusion::physical_plan::aggregates::{AggregateExec, AggregateMode};
use datafusion::prelude::{SessionConfig, SessionContext};
use datafusion::sql::parser::Statement as Parsed;
use datafusion::sql::sqlparser::ast;
use functions_runtime::Fingerprint;
use futures::executor::block_on;

use crate::aggregate::Aggregation;
use crate::refusal::{PlanError, check};
use crate::rows::StateRows;
use crate::slot::Slot;
use crate::statement::{Emit, JobStatement};
use crate::table::{Format, TIMESTAMP, TopicTable};
use crate::window::Window;

/// Columns that a query may name besides those of the table.
pub const METADATA: [(&str, DataType); 4] = [
    ("_partition", DataType::Int64),
    ("_offset", DataType::Int64),
    ("_timestamp", TIMESTAMP),
    ("_epoch_time", TIMESTAMP),
];

/// Columns of a window.
pub const WINDOW_COLUMNS: [&str; 2] = ["window_start", "window_end"];

/// A job that can run.
#[derive(Debug)]
pub struct JobPlan {
    /// What it reads.
    pub source: TopicTable,
    /// What it writes.
    pub sink: TopicTable,
    /// Its windows.
    pub window: Option<Window>,
    /// When results come out; of no meaning without an aggregate.
    pub emit: Emit,
    /// Rows that come in: columns of the table, metadata that is named, columns of the window.
    pub(crate) input: Arc<Slot>,
    /// Event time of a row in the table's columns.
    pub(crate) time: Option<usize>,
    pub(crate) body: Body,
    pub(crate) session: Arc<TaskContext>,
}

/// What is done with the rows.
#[derive(Debug)]
pub(crate) enum Body {
    /// Filter and project.
    Stateless(Arc<dyn ExecutionPlan>),
    /// Aggregate, then project.
    Grouped(Grouped),
}

/// An aggregate and what stands above it.
#[derive(Debug)]
pub(crate) struct Grouped {
    pub(crate) aggregation: Aggregation,
    pub(crate) rows: Arc<StateRows>,
    /// Results of the aggregate.
    pub(crate) results: Arc<Slot>,
    /// From these to rows of the sink.
    pub(crate) finish: Arc<dyn ExecutionPlan>,
    /// Which groups are `window_start`, and which `window_end`.
    pub(crate) window_columns: [Vec<usize>; 2],
}

/// A session whose plans have the shape of the query: one partition, and no rule that turns plans (compute.md C6).
///
/// Expressions are simplified all the same (C2.5): `coalesce`, `nvl`, `nvl2`, `arrow_cast` and others are there to be rewritten by this
/// rule, and fail if they are run.
fn session() -> SessionContext {
    let mut config = SessionConfig::new()
        .with_target_partitions(1)
        .with_batch_size(8192)
        .with_collect_statistics(false);
    let options = config.options_mut();
    options
        .execution
        .skip_partial_aggregation_probe_ratio_threshold = 1.0;
    options.optimizer.enable_dynamic_filter_pushdown = false;
    let mut builder = SessionStateBuilder::new_with_default_features()
        .with_config(config)
        .with_optimizer_rules(vec![Arc::new(SimplifyExpressions::new())])
        .with_physical_optimizer_rules(Vec::new());
    // `SUBSTRING`, `POSITION` and `EXTRACT` have a syntax of their own; the functions behind it are there, who plans them is not.
    let syntax: [Arc<dyn ExprPlanner>; 2] = [
        Arc::new(UnicodeFunctionPlanner),
        Arc::new(DatetimeFunctionPlanner),
    ];
    builder
        .expr_planners()
        .get_or_insert_default()
        .extend(syntax);
    SessionContext::new_with_state(builder.build())
}

impl JobPlan {
    /// Plans a job over these tables.
    ///
    /// # Errors
    /// [`PlanError`]: a shape that a job cannot be, with the reason; or names and types that do not fit.
    pub fn new(
        job: &JobStatement,
        tables: &BTreeMap<String, TopicTable>,
    ) -> Result<Self, PlanError> {
        let find = |name: &String| {
            let table = tables.get(name);
            table
                .cloned()
                .ok_or_else(|| PlanError::invalid(format!("table {name} does not exist")))
        };
        let (source, sink) = (find(&job.source)?, find(&job.sink)?);
        let time = time_column(job, &source)?;
        let context = session();
        let input = Slot::new(input_schema(job, &source)?);
        context.register_table(source.name.as_str(), input.table()?)?;
        let query = Parsed::Statement(Box::new(ast::Statement::Query(Box::new(job.query.clone()))));
        let state = context.state();
        let plan = block_on(state.statement_to_plan(query))?;
        check(&plan)?;
        // Before the cut: an aggregate that is simplified may leave a part of itself to a projection above it.
        let plan = state.optimize(&plan)?;
        let window = job.window.as_ref().map(|(window, _)| *window);
        let aggregate = aggregate_of(&plan)?;
        let emit = emit(job, window, aggregate.is_some())?;
        let planner = Planner {
            state: &state,
            session: context.task_ctx(),
            sink: &sink,
        };
        let body = match aggregate {
            None => Body::Stateless(planner.physical(&planner.to_sink(plan)?)?),
            Some(aggregate) => Body::Grouped(planner.grouped(plan, &aggregate, window, emit)?),
        };
        Ok(Self {
            session: context.task_ctx(),
            source,
            sink,
            window,
            emit,
            input,
            time,
            body,
        })
    }

    /// What the state of the job means (compute.md C2.6).
    pub fn fingerprint(&self) -> Fingerprint {
        let state = match &self.body {
            Body::Stateless(_) => "none".to_owned(),
            Body::Grouped(grouped) => {
                let schema = grouped.aggregation.state_schema();
                let aggregates = grouped.aggregation.describe();
                format!(
                    "{} groups of {schema:?} by {aggregates}",
                    grouped.aggregation.keys()
                )
            }
        };
        let window = self.window.map(|window| window.to_string());
        // Layouts of partial aggregates are DataFusion's own: another version may have others (B6).
        Fingerprint::of(&format!(
            "sql 1, datafusion {}, windows {window:?}, state {state}",
            datafusion::DATAFUSION_VERSION
        ))
    }
}

fn time_column(job: &JobStatement, source: &TopicTable) -> Result<Option<usize>, PlanError> {
    let named = job
        .window
        .as_ref()
        .map(|(_, column)| column)
        .or(source.event_time.as_ref());
    let Some(name) = named else {
        return Ok(None);
    };
    match source.schema.column_with_name(name) {
        Some((index, field)) if field.data_type() == &TIMESTAMP => Ok(Some(index)),
        Some(_) => Err(PlanError::invalid(format!(
            "column {name} of table {} is not a TIMESTAMP",
            source.name
        ))),
        None => Err(PlanError::invalid(format!(
            "table {} has no column {name}",
            source.name
        ))),
    }
}

fn input_schema(job: &JobStatement, source: &TopicTable) -> Result<SchemaRef, PlanError> {
    let mut added = Vec::new();
    for (name, kind) in METADATA {
        if job.words.iter().any(|word| word == name) {
            added.push(Arc::new(Field::new(name, kind, false)));
        }
    }
    if job.window.is_some() {
        added.extend(WINDOW_COLUMNS.map(|name| Arc::new(Field::new(name, TIMESTAMP, false))));
    }
    let twice = added
        .iter()
        .find(|field| source.schema.column_with_name(field.name()).is_some());
    if let Some(field) = twice {
        let (name, table) = (field.name(), &source.name);
        return Err(PlanError::invalid(format!(
            "column {name} of table {table} has the name of one that the job adds"
        )));
    }
    let fields = source.schema.fields().iter().cloned().chain(added);
    Ok(Arc::new(Schema::new(fields.collect::<Vec<_>>())))
}

/// The only aggregate of a query.
fn aggregate_of(plan: &LogicalPlan) -> Result<Option<Aggregate>, PlanError> {
    let mut found = None;
    plan.apply(|node| {
        if let LogicalPlan::Aggregate(aggregate) = node {
            found = Some(aggregate.clone());
        }
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

fn emit(job: &JobStatement, window: Option<Window>, aggregates: bool) -> Result<Emit, PlanError> {
    match (job.emit, window, aggregates) {
        (None, Some(_), true) => Ok(Emit::Final),
        (None | Some(Emit::Changes), None, false) => Ok(Emit::Changes),
        (Some(Emit::Final), None, _) => Err(PlanError::unsupported(
            "EMIT FINAL without a window",
            "no result would ever be final",
        )),
        (None, None, true) => Err(PlanError::unsupported(
            "GROUP BY without a window",
            "no result would ever be final; write EMIT CHANGES",
        )),
        (_, Some(_), false) => Err(PlanError::unsupported(
            "a window without GROUP BY",
            "group by window_start or window_end, or read the table itself",
        )),
        (Some(Emit::Changes), Some(window), true) if !window.is_tumble() => Err(
            PlanError::unsupported("EMIT CHANGES over HOP", "not yet; write EMIT FINAL"),
        ),
        (Some(emit), _, true) => Ok(emit),
    }
}

/// Makes segments.
struct Planner<'a> {
    state: &'a SessionState,
    session: Arc<TaskContext>,
    sink: &'a TopicTable,
}

impl Planner<'_> {
    fn physical(&self, plan: &LogicalPlan) -> Result<Arc<dyn ExecutionPlan>, PlanError> {
        Ok(block_on(self.state.create_physical_plan(plan))?)
    }

    /// Puts the sink's types and names on top, by position.
    fn to_sink(&self, plan: LogicalPlan) -> Result<LogicalPlan, PlanError> {
        let (columns, fields) = (plan.schema().columns(), self.sink.schema.fields());
        if columns.len() != fields.len() {
            let words = format!(
                "the query has {} columns, table {} has {}",
                columns.len(),
                self.sink.name,
                fields.len()
            );
            return Err(PlanError::invalid(words));
        }
        let mut exprs = Vec::new();
        for ((column, field), from) in columns.into_iter().zip(fields).zip(plan.schema().fields()) {
            let (kind, name) = (field.data_type(), field.name());
            if !can_cast_types(from.data_type(), kind) {
                let words = format!(
                    "column {} is {}, column {name} of table {} is {kind}",
                    column.name,
                    from.data_type(),
                    self.sink.name
                );
                return Err(PlanError::invalid(words));
            }
            let value = Expr::Column(column);
            let value = if from.data_type() == kind {
                value
            } else {
                cast(value, kind.clone())
            };
            exprs.push(value.alias(name));
        }
        Ok(LogicalPlanBuilder::from(plan).project(exprs)?.build()?)
    }

    fn grouped(
        &self,
        plan: LogicalPlan,
        aggregate: &Aggregate,
        window: Option<Window>,
        emit: Emit,
    ) -> Result<Grouped, PlanError> {
        let window_columns = self.windows_of(aggregate, window)?;
        let changes = emit == Emit::Changes;
        if changes && self.sink.key.is_empty() && self.sink.format == Format::Json {
            return Err(PlanError::invalid(format!(
                "EMIT CHANGES needs a key of table {}, so that a later row replaces an earlier one",
                self.sink.name
            )));
        }
        if changes && filters_above(&plan)? {
            return Err(PlanError::unsupported(
                "HAVING under EMIT CHANGES",
                "a row that passes no more would stay in the sink; filter there",
            ));
        }
        let segment = self.physical(&LogicalPlan::Aggregate(aggregate.clone()))?;
        let Some(lowest) = lowest_aggregate(&segment) else {
            return Err(PlanError::unsupported(
                "this aggregate",
                "its plan has another shape than a job can keep",
            ));
        };
        if lowest.group_expr().is_empty() {
            return Err(PlanError::unsupported(
                "an aggregate without GROUP BY",
                "write GROUP BY, by a constant column if need be",
            ));
        }
        let aggregation = Aggregation::new(lowest, self.session.clone())?;
        let results = Slot::new(numbered(&aggregation.result_schema()));
        let above = self.above(plan, aggregate, &results)?;
        let rows = StateRows::new(aggregation.state_schema().clone(), aggregation.keys())
            .map_err(|error| PlanError::Query(error.into()))?;
        Ok(Grouped {
            finish: self.physical(&self.to_sink(above)?)?,
            rows: Arc::new(rows),
            aggregation,
            results,
            window_columns,
        })
    }

    /// Which groups are the window's columns.
    fn windows_of(
        &self,
        aggregate: &Aggregate,
        window: Option<Window>,
    ) -> Result<[Vec<usize>; 2], PlanError> {
        let groups = |name: &str| -> Vec<usize> {
            let numbered = aggregate.group_expr.iter().enumerate();
            let named = numbered
                .filter(|(_, group)| matches!(group, Expr::Column(column) if column.name == name));
            named.map(|(index, _)| index).collect()
        };
        let found = WINDOW_COLUMNS.map(groups);
        let Some(window) = window else {
            return Ok([Vec::new(), Vec::new()]);
        };
        if found.iter().all(Vec::is_empty) {
            return Err(PlanError::unsupported(
                "GROUP BY without the window",
                "group by window_start or window_end",
            ));
        }
        // In panes the columns hold the pane's bounds until the window fires.
        let elsewhere = !window.is_tumble() && uses_window_below(aggregate)?;
        match elsewhere {
            true => Err(PlanError::unsupported(
                "a column of a HOP window inside WHERE, an aggregate or an expression",
                "use it as a group, alone",
            )),
            false => Ok(found),
        }
    }

    /// The query with the results' slot in the place of the aggregate.
    fn above(
        &self,
        plan: LogicalPlan,
        aggregate: &Aggregate,
        results: &Arc<Slot>,
    ) -> Result<LogicalPlan, PlanError> {
        let source = provider_as_source(results.table()?);
        let scan = LogicalPlanBuilder::scan("__results", source, None)?;
        let columns = scan.schema().columns();
        let named = columns
            .into_iter()
            .zip(aggregate.schema.columns())
            .map(|(slot, column)| Expr::Column(slot).alias_qualified(column.relation, column.name));
        let scan = scan.project(named.collect::<Vec<_>>())?.build()?;
        let above = plan.transform_down(|node| {
            Ok(match node {
                LogicalPlan::Aggregate(_) => {
                    Transformed::new(scan.clone(), true, TreeNodeRecursion::Jump)
                }
                other => Transformed::no(other),
            })
        })?;
        Ok(above.data)
    }
}

/// True when a filter stands above the aggregate.
fn filters_above(plan: &LogicalPlan) -> Result<bool, PlanError> {
    let mut found = false;
    plan.apply(|node| {
        Ok(match node {
            LogicalPlan::Aggregate(_) => TreeNodeRecursion::Jump,
            LogicalPlan::Filter(_) => {
                found = true;
                TreeNodeRecursion::Stop
            }
            _ => TreeNodeRecursion::Continue,
        })
    })?;
    Ok(found)
}

/// True when anything but a plain group names a column of the window.
fn uses_window_below(aggregate: &Aggregate) -> Result<bool, PlanError> {
    let names = |expr: &Expr| {
        expr.column_refs()
            .iter()
            .any(|column| WINDOW_COLUMNS.contains(&column.name.as_str()))
    };
    let plain = |group: &&Expr| !matches!(group, Expr::Column(_));
    let mut found = aggregate.aggr_expr.iter().any(names)
        || aggregate.group_expr.iter().filter(plain).any(names);
    aggregate.input.apply(|node| {
        found |= !matches!(node, LogicalPlan::TableScan(_)) && node.expressions().iter().any(names);
        Ok(TreeNodeRecursion::Continue)
    })?;
    Ok(found)
}

/// The aggregate over raw rows, through nothing but aggregates over it.
fn lowest_aggregate(plan: &Arc<dyn ExecutionPlan>) -> Option<&AggregateExec> {
    let found = plan.downcast_ref::<AggregateExec>()?;
    match found.mode() {
        AggregateMode::Partial | AggregateMode::Single | AggregateMode::SinglePartitioned => {
            Some(found)
        }
        _ => lowest_aggregate(plan.children().first().copied()?),
    }
}

/// The same columns, named by their number.
fn numbered(schema: &Schema) -> SchemaRef {
    let fields = schema
        .fields()
        .iter()
        .enumerate()
        .map(|(index, field)| field.as_ref().clone().with_name(format!("c{index}")));
    Arc::new(Schema::new(fields.collect::<Vec<_>>()))
}
