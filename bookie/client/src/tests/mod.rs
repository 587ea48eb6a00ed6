//! Tests of the crate as a whole: the async face over memory bookies, and the cores under a seeded scheduler.

mod changes;
mod cluster;
mod departures;
mod exhaustive;
mod face;
mod far;
mod fences;
mod resting;
mod simulation;
mod speed;
mod table;

pub(crate) type Cluster = cluster::Cluster<false>;
pub(crate) use cluster::{data, new_log};
pub(crate) use table::{Table, member, open_metadata};
