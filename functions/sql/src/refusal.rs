//! Why a statement is refused, and what of a query is.

use datafusion::common::tree_node::{TreeNode, TreeNodeRecursion};
use datafusion::error::DataFusionError;
use datafusion::logical_expr::expr::AggregateFunction;
use datafusion::logical_expr::{Expr, LogicalPlan};

/// Why a statement cannot become a table or a job.
#[derive(Debug, thiserror::Error)]
pub enum PlanError {
    /// Not SQL.
    #[error("syntax: {0}")]
    Syntax(String),
    /// SQL that a job cannot be, or not yet.
    #[error("{what} is not supported in a job: {reason}")]
    Unsupported {
        /// The shape.
        what: String,
        /// Why, and what to do.
        reason: &'static str,
    },
    /// Names, types or options that do not fit.
    #[error("{0}")]
    Invalid(String),
    /// DataFusion refused the query.
    #[error("{0}")]
    Query(#[from] DataFusionError),
}

impl PlanError {
    pub(crate) fn unsupported(what: impl Into<String>, reason: &'static str) -> Self {
        Self::Unsupported {
            what: what.into(),
            reason,
        }
    }

    pub(crate) fn invalid(what: impl Into<String>) -> Self {
        Self::Invalid(what.into())
    }
}

/// Aggregates whose state has a fixed size and does not depend on the order of rows (compute.md C5).
const AGGREGATES: &[&str] = &[
    "approx_distinct",
    "avg",
    "bit_and",
    "bit_or",
    "bit_xor",
    "bool_and",
    "bool_or",
    "corr",
    "count",
    "covar_pop",
    "covar_samp",
    "max",
    "min",
    "regr_avgx",
    "regr_avgy",
    "regr_count",
    "regr_intercept",
    "regr_r2",
    "regr_slope",
    "regr_sxx",
    "regr_sxy",
    "regr_syy",
    "stddev",
    "stddev_pop",
    "sum",
    "var",
    "var_pop",
];

/// The same with an order: the order's columns are in the state.
const ORDERED: &[&str] = &["first_value", "last_value"];

/// Functions that read the time of planning.
const CLOCKS: &[&str] = &[
    "now",
    "current_timestamp",
    "current_date",
    "current_time",
    "today",
];

/// Walks a query and refuses what a job cannot be. The query's own form is checked before (`statement`).
pub(crate) fn check(plan: &LogicalPlan) -> Result<(), PlanError> {
    let mut aggregates = 0;
    let mut refused = None;
    plan.apply(|node| {
        let found = match node {
            LogicalPlan::Projection(_)
            | LogicalPlan::Filter(_)
            | LogicalPlan::SubqueryAlias(_)
            | LogicalPlan::TableScan(_) => Ok(()),
            LogicalPlan::Aggregate(_) if aggregates > 0 => Err(PlanError::unsupported(
                "an aggregate over an aggregate",
                "it would need retractions",
            )),
            LogicalPlan::Aggregate(_) => {
                aggregates += 1;
                Ok(())
            }
            other => Err(node_refused(other)),
        };
        let found = found.and_then(|()| node.expressions().iter().try_for_each(expression));
        Ok(match found {
            Ok(()) => TreeNodeRecursion::Continue,
            Err(reason) => {
                refused = Some(reason);
                TreeNodeRecursion::Stop
            }
        })
    })?;
    refused.map_or(Ok(()), Err)
}

fn node_refused(node: &LogicalPlan) -> PlanError {
    let (what, reason) = match node {
        LogicalPlan::Limit(_) => ("LIMIT", "a stream has no end; write a window"),
        LogicalPlan::Sort(_) => (
            "ORDER BY",
            "a stream has no end; order where the sink is read",
        ),
        LogicalPlan::Distinct(_) => ("DISTINCT", "not yet; write GROUP BY with EMIT CHANGES"),
        LogicalPlan::Join(_) => ("JOIN", "not yet"),
        LogicalPlan::Union(_) => ("UNION", "make one job for each part"),
        LogicalPlan::Window(_) => ("OVER", "not yet"),
        LogicalPlan::Unnest(_) => ("UNNEST", "not yet"),
        LogicalPlan::Values(_) | LogicalPlan::EmptyRelation(_) => {
            ("a query without a table", "a job reads a topic")
        }
        _ => return PlanError::unsupported(node.display().to_string(), "not yet"),
    };
    PlanError::unsupported(what, reason)
}

fn expression(expression: &Expr) -> Result<(), PlanError> {
    let mut refused = None;
    expression.apply(|part| {
        refused = match part {
            Expr::AggregateFunction(function) => aggregate(function).err(),
            Expr::WindowFunction(_) => Some(PlanError::unsupported("OVER", "not yet")),
            Expr::GroupingSet(_) => Some(PlanError::unsupported(
                "GROUPING SETS",
                "not yet; make one job for each set",
            )),
            Expr::Exists(_)
            | Expr::InSubquery(_)
            | Expr::SetComparison(_)
            | Expr::ScalarSubquery(_) => Some(PlanError::unsupported("a subquery", "not yet")),
            Expr::Placeholder(_) => Some(PlanError::unsupported("a parameter", "a job has none")),
            Expr::ScalarFunction(function) if CLOCKS.contains(&function.name()) => {
                Some(PlanError::unsupported(
                    format!("{}()", function.name()),
                    "it would be the time of planning for ever; use _epoch_time",
                ))
            }
            other if other.is_volatile_node() => Some(PlanError::unsupported(
                other.to_string(),
                "an epoch that is computed again must give the same",
            )),
            _ => None,
        };
        Ok(match refused {
            None => TreeNodeRecursion::Continue,
            Some(_) => TreeNodeRecursion::Stop,
        })
    })?;
    refused.map_or(Ok(()), Err)
}

fn aggregate(function: &AggregateFunction) -> Result<(), PlanError> {
    let name = function.func.name();
    let params = &function.params;
    let refuse = |reason| Err(PlanError::unsupported(format!("{name}()"), reason));
    if params.distinct {
        return Err(PlanError::unsupported(
            format!("{name}(DISTINCT ..)"),
            "its state grows with the rows; use approx_distinct()",
        ));
    }
    match (
        AGGREGATES.contains(&name),
        ORDERED.contains(&name),
        params.order_by.is_empty(),
    ) {
        (true, _, _) | (_, true, false) => Ok(()),
        (_, true, true) => refuse("without ORDER BY it depends on how records are batched"),
        _ => refuse("its state grows with the rows, or it depends on their order"),
    }
}
