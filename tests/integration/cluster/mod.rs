//! Clusters of separate processes on one machine: etcd, bookies, brokers.
//!
//! `processes` starts, kills and freezes them; the stories are about ledgers alone (`ledgers`), about who may start (`refusals`), and
//! about records (`records`), about several brokers that share partitions (`owners`), and about the script that starts a cluster for a newcomer (`local`).

mod ledgers;
mod local;
mod owners;
mod processes;
mod records;
mod refusals;

pub(crate) use processes::Etcd;
