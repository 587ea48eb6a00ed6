//! Clusters of separate processes on one machine: etcd, bookies, brokers.
//!
//! `processes` starts, kills and freezes them; the stories are about ledgers alone (`ledgers`), about who may start (`refusals`), and
//! about records (`records`).

mod ledgers;
mod processes;
mod records;
mod refusals;

pub(crate) use processes::Etcd;
