//! Clusters of separate processes on one machine: etcd, bookies, brokers.
//!
//! `processes` starts, kills and freezes them, `link` cuts the network between two of them, `truth` judges what was sent and what was
//! found, `load` goes on all the while. The stories are about ledgers alone (`ledgers`), about who may start (`refusals`), about records
//! (`records`), about brokers that share partitions (`owners`), evenly (`balance`), and one that is cut from metadata alone (`cut_off`) or
//! was frozen (`stale_ends`), about metadata or too
//! many bookies that are away (`outages`), about what other platforms lost (`cases`), about what operators ask (`commands`), about copies
//! that are made again (`copies`, `wiped`), about the script that starts a cluster for a newcomer (`local`), about one that is folded into
//! one process (`folded`), and about whatever may happen at random (`troubles`).

mod balance;
mod cases;
mod commands;
mod copies;
mod cut_off;
mod folded;
mod ledgers;
mod link;
mod load;
mod local;
mod outages;
mod owners;
mod processes;
mod records;
mod refusals;
mod stale_ends;
mod troubles;
mod truth;
mod wiped;

pub(crate) use processes::Etcd;
