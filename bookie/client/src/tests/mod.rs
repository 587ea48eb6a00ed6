//! Tests of the crate as a whole: the async face over memory bookies, and the cores under a seeded scheduler.

mod cluster;
mod face;

pub(crate) use cluster::{Cluster, data, new_log};
