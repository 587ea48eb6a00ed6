//! Tests: the aggregates that may be used, plans that may not, and jobs against one query over all of their input.

mod cluster;
mod flights;
mod job;
mod jobs;
mod poison;
mod refusals;
mod simplified;
mod spike;
mod statements;
