//! Clusters of separate processes on one machine: etcd, bookies, brokers.
//!
//! `processes` starts, kills and freezes them; the stories are about ledgers alone (`ledgers`), about who may start (`refusals`), and
//! about records (`records`), and about the script that starts a cluster for a newcomer (`local`).

mod copies;
mod ledgers;
mod local;
mod processes;
mod records;
mod refusals;
mod wiped;

pub(crate) use processes::Etcd;
