//! May a node be stopped now, and has it caught up since its start: what a rolling restart asks before and after each node
//! (operations.md 0.5). Ready is not safe: a node may be ready while it is the last that has something.
//!
//! `/readyz/stop` is asked of the node that is to be stopped, `/readyz/restart` of the one that was started last, before the next.

use std::sync::Arc;

use bookie_client::{Registration, RegistrationState, list_registrations, upkeep_report};
use bookie_metadata::cell::read_cell;
use bookie_metadata::{MetadataStore, list_all};
use hulse_proto::id::NodeName;

use crate::keys::BROKERS;
use crate::topics::most_acknowledge;

/// What the node is, by its name.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RestartRole {
    /// It owns partitions.
    Broker(NodeName),
    /// Every broker and bookie of the cell is in its process.
    WholeCell,
    /// It keeps copies.
    Bookie(NodeName),
}

/// The answers for one node.
pub(crate) struct RestartChecks {
    role: RestartRole,
    metadata: Arc<dyn MetadataStore>,
}

impl RestartChecks {
    pub(crate) fn new(role: RestartRole, metadata: Arc<dyn MetadataStore>) -> Self {
        Self { role, metadata }
    }

    /// Whether everything stays served while this node is away: what is meant, or why not.
    pub(crate) async fn may_stop(&self) -> Result<String, String> {
        match &self.role {
            RestartRole::Broker(name) => self.broker_may_stop(name).await,
            RestartRole::WholeCell => Err(
                "all brokers and bookies of the cell are in one process: clients wait until it is back"
                    .to_owned(),
            ),
            RestartRole::Bookie(name) => {
                let all = self.bookies().await?;
                self.all_others_run(name, &all)?;
                self.enough_without(name, &all).await?;
                self.nothing_lacks().await
            }
        }
    }

    /// Whether this node has all that it should have, so that another one may be stopped.
    pub(crate) async fn caught_up(&self) -> Result<String, String> {
        match &self.role {
            RestartRole::Broker(_) | RestartRole::WholeCell => Ok("it serves".to_owned()),
            RestartRole::Bookie(name) => {
                let all = self.bookies().await?;
                let own = all.iter().find(|found| found.member.bookie == *name);
                match own.and_then(|own| own.live.as_ref()) {
                    None => {
                        Err("its lease has ended, and it is not registered again yet".to_owned())
                    }
                    Some(live) if live.mode == "starting" || live.mode == "failed" => {
                        Err(format!("it is {}", live.mode))
                    }
                    Some(_) => self.nothing_lacks().await,
                }
            }
        }
    }

    async fn broker_may_stop(&self, name: &NodeName) -> Result<String, String> {
        let rows = list_all(&*self.metadata, BROKERS).await;
        let rows = rows.map_err(|error| error.to_string())?;
        let own = format!("{BROKERS}{name}");
        match rows.iter().filter(|row| row.key != own).count() {
            0 => Err("no other broker runs: clients wait until this one is back".to_owned()),
            others => Ok(format!("{others} other brokers run")),
        }
    }

    async fn bookies(&self) -> Result<Vec<Registration>, String> {
        let all = list_registrations(&*self.metadata).await;
        all.map_err(|error| error.to_string())
    }

    fn all_others_run(&self, name: &NodeName, all: &[Registration]) -> Result<(), String> {
        let keeps = |found: &&Registration| {
            !matches!(
                found.state,
                RegistrationState::Retired | RegistrationState::Lost
            )
        };
        let away = all
            .iter()
            .filter(keeps)
            .filter(|found| found.member.bookie != *name && found.live.is_none())
            .map(|found| found.member.bookie.as_str());
        let away: Vec<&str> = away.collect();
        match away.is_empty() {
            true => Ok(()),
            false => Err(format!("{} does not run; start it first", away.join(", "))),
        }
    }

    /// Those that stay can take what is written.
    async fn enough_without(&self, name: &NodeName, all: &[Registration]) -> Result<(), String> {
        let cell = read_cell(&*self.metadata).await;
        let cell = cell.map_err(|error| error.to_string())?;
        let needed = cell.map_or(1, |cell| cell.settings.quorums.ack);
        let asked = most_acknowledge(&*self.metadata).await;
        let asked = asked.map_err(|fault| fault.message)?;
        let needed = needed.max(asked) as usize;
        let candidates = all.iter().filter(|found| found.member.bookie != *name);
        let candidates = candidates.filter_map(Registration::candidate);
        let left = candidates
            .filter(|found| found.live && found.writable)
            .count();
        match left < needed {
            true => Err(format!(
                "{left} other bookies take records, and records need up to {needed} before they are answered"
            )),
            false => Ok(()),
        }
    }

    async fn nothing_lacks(&self) -> Result<String, String> {
        let report = upkeep_report(&*self.metadata).await;
        match report.map_err(|error| error.to_string())? {
            None => Ok("nobody has looked yet whether copies are missing".to_owned()),
            Some(report) if report.lacking_ledgers > 0 => Err(format!(
                "{} ledgers have fewer copies than they should; they are being repaired",
                report.lacking_ledgers
            )),
            Some(_) => Ok("no ledger lacks a copy".to_owned()),
        }
    }
}

#[cfg(test)]
mod tests {
    use bookie_metadata::{MemoryStore, Op, Txn};
    use hulse_proto::wire::{Message as _, metadata as wire};

    use super::*;

    struct Cell(Arc<MemoryStore>);

    impl Cell {
        async fn put(&self, key: &str, value: Vec<u8>) {
            let txn = Txn {
                compares: Vec::new(),
                ops: vec![Op::put(key, value)],
            };
            self.0.txn(txn).await.unwrap();
        }

        async fn bookie(&self, name: &str, live: bool) {
            let bookie = wire::Bookie {
                incarnation: vec![7; 16].into(),
                state: wire::bookie::State::Active as i32,
                ..wire::Bookie::default()
            };
            self.put(&format!("bookie/{name}"), bookie.encode_to_vec())
                .await;
            let node = wire::Node {
                mode: "normal".to_owned(),
                ..wire::Node::default()
            };
            if live {
                self.put(&format!("node/bookie/{name}"), node.encode_to_vec())
                    .await;
            }
        }

        fn checks(&self, role: RestartRole) -> RestartChecks {
            RestartChecks::new(role, self.0.clone())
        }
    }

    fn name(text: &str) -> NodeName {
        NodeName::new(text).unwrap()
    }

    #[tokio::test]
    async fn bookie_may_stop_while_all_others_run_and_no_copy_is_missing() {
        let cell = Cell(Arc::new(MemoryStore::new()));
        let checks = cell.checks(RestartRole::Bookie(name("a")));
        cell.bookie("a", true).await;
        let alone = checks.may_stop().await.unwrap_err();
        assert!(alone.contains("0 other bookies take records"), "{alone}");
        cell.bookie("b", false).await;
        let away = checks.may_stop().await.unwrap_err();
        assert!(away.contains("b does not run"), "{away}");
        cell.bookie("b", true).await;
        assert!(checks.may_stop().await.is_ok());
        assert!(checks.caught_up().await.is_ok());
        let report = wire::UpkeepReport {
            lacking_ledgers: 2,
            ..wire::UpkeepReport::default()
        };
        cell.put("upkeep/report", report.encode_to_vec()).await;
        for lacking in [checks.may_stop().await, checks.caught_up().await] {
            assert!(lacking.unwrap_err().contains("2 ledgers"));
        }
        let gone = cell.checks(RestartRole::Bookie(name("c")));
        assert!(gone.caught_up().await.unwrap_err().contains("lease"));
    }

    #[tokio::test]
    async fn process_of_a_whole_cell_may_not_stop_whatever_else_is_registered() {
        let cell = Cell(Arc::new(MemoryStore::new()));
        let checks = cell.checks(RestartRole::WholeCell);
        cell.put("node/broker/a", Vec::new()).await;
        cell.put("node/broker/b", Vec::new()).await;
        let told = checks.may_stop().await.unwrap_err();
        assert!(told.contains("in one process"), "{told}");
        assert!(checks.caught_up().await.is_ok());
    }

    #[tokio::test]
    async fn broker_may_stop_while_another_one_runs() {
        let cell = Cell(Arc::new(MemoryStore::new()));
        let checks = cell.checks(RestartRole::Broker(name("a")));
        cell.put("node/broker/a", Vec::new()).await;
        assert!(checks.may_stop().await.is_err());
        cell.put("node/broker/b", Vec::new()).await;
        assert!(checks.may_stop().await.is_ok());
        assert!(checks.caught_up().await.is_ok());
    }
}
