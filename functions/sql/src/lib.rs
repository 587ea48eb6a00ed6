//! `functions-sql`: jobs in SQL over topics (compute.md C; ARCHITECTURE D12). `CREATE TABLE` says what the records of a topic are,
//! `CREATE JOB .. AS INSERT INTO .. SELECT ..` becomes one operator of the runtime, on DataFusion without a fork.
//!
//! Main path: [`Statement::parse`] → [`JobPlan::new`] (or a refusal with its reason) → [`SqlOperator`], which per epoch decodes, judges
//! lateness, assigns panes, runs the plan's segments and keeps state rows of partial aggregates.
//!
//! # Invariants
//! 1. A shape that is not supported is refused when the job is planned, never computed in another way (D12).
//! 2. State changes by reduction alone, one row per group; it holds nothing but rows of partial aggregates, and these are what is
//!    written down, in Arrow's IPC format (compute.md B6, C4).
//! 3. A job gives what one query over all of its accepted rows gives, wherever its epochs are cut and its worker dies. Exact for
//!    integers and decimals; sums of floating point depend on the order of addition.
//! 4. A row that cannot be decoded or computed is found alone and handed to the policy of the function; the others go on (B10).
//!
//! Supported: one table; `WHERE`; projections; `TUMBLE` and `HOP` with `GROUP BY`; `GROUP BY` without a window under `EMIT CHANGES`;
//! `FILTER`; `HAVING` under `EMIT FINAL`; formats `json` and `raw`. Not yet: joins, sessions, top-N, several stages.
//!
//! No I/O and no clock: DataFusion's plans run on the caller's thread over batches in memory.
//!
//! Reading order: [`statement`], [`table`], [`window`], `refusal`, [`plan`], `slot`, `aggregate`, `rows`, `format`, [`operator`].

mod aggregate;
mod call;
mod format;
pub mod operator;
pub mod plan;
mod refusal;
mod rows;
mod slot;
pub mod statement;
pub mod table;
#[cfg(test)]
mod tests;
pub mod window;

pub use operator::SqlOperator;
pub use plan::JobPlan;
pub use refusal::PlanError;
pub use statement::{Emit, JobStatement, Statement};
pub use table::{Format, TopicTable};
