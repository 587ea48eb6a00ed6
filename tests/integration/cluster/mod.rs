//! Clusters of separate processes on one machine: etcd, bookies, brokers.
//!
//! `processes` starts, kills and freezes them, `etcd` has one member or three, `link` cuts the network between two of them, `ports` are
//! shared by some, `truth` judges what was sent and what was found, `load` goes on all the while. The stories are about ledgers alone
//! (`ledgers`), about who may start (`refusals`), about records (`records`), about brokers that share partitions (`owners`), evenly
//! (`balance`), one that is cut from metadata alone (`cut_off`), was frozen (`stale_ends`) or is drained (`drained`), about metadata or
//! too many bookies that are away (`outages`), about groups whose coordinator goes (`groups`), about another leader of etcd (`leaders`),
//! about what other platforms lost (`cases`, `librdkafka`, `power`, `returned`), about networks of one direction (`one_way`) and clocks
//! that jump (`clocks`), about what operators ask (`commands`), about copies that are made again (`copies`, `wiped`) and how many of them
//! a topic asks for (`replication`), about the script that starts a cluster for a newcomer (`local`), about one that is folded into one
//! process (`folded`), and about whatever may happen at random (`troubles`).

mod balance;
mod cases;
mod clocks;
mod commands;
mod copies;
mod cut_off;
mod drained;
mod etcd;
mod folded;
mod groups;
mod leaders;
mod ledgers;
mod librdkafka;
mod link;
mod load;
mod local;
mod one_way;
mod outages;
mod owners;
mod ports;
mod power;
mod processes;
mod records;
mod refusals;
mod replication;
mod returned;
mod stale_ends;
mod troubles;
mod truth;
mod wiped;

pub(crate) use etcd::Etcd;
