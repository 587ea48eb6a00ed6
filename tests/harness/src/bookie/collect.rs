//! A bookie asks metadata now and then which of its ledgers are gone, and whether limbo is over (storage.md G1, S4).

use std::sync::Arc;
use std::time::Duration;

use bookie_metadata::MetadataStore;
use bookie_node::core::Event;
use bookie_node::reclaim::{Held, examine};
use hulse_proto::id::LedgerId;
use rand::Rng;
use tokio::time::sleep;

use super::life::Life;
use super::sim_bookie::SimBookie;
use crate::metadata::{PoorStore, Poverty, ProcessStore};
use crate::trace;

/// A pass comes after at most so long, ms.
pub(super) const REST_MS: u64 = 6_000;
/// A pass may drop this much at once, in hundredths: a run has few ledgers.
const PERCENT_MAX: u8 = 100;

impl SimBookie {
    /// Passes until this boot ends. Their chance is their own: others draw as they did without them.
    pub(super) async fn collect_now_and_then(self: Arc<Self>, boot: u64) {
        let stream = format!("collect {} {boot}", self.name);
        let mut rng = self.setup.seeds.stream(&stream);
        loop {
            let most = self.state().collect_ms;
            sleep(Duration::from_millis(rng.random_range(1..most))).await;
            if !self.collect(boot).await {
                return;
            }
        }
    }

    /// From now on passes follow each other within so many ms, at least 2.
    pub fn collect_within(&self, ms: u64) {
        self.state().collect_ms = ms;
    }

    /// One pass; false when this boot has ended.
    async fn collect(self: &Arc<Self>, boot: u64) -> bool {
        let Some((held, process)) = self.held(boot) else {
            return false;
        };
        let Some(me) = self.member() else {
            return true;
        };
        let store = self.poor(self.store(&process));
        let asked = (&me, PERCENT_MAX);
        let pass = examine(&*store, self.setup.cell, asked, &held);
        let Some(Ok(findings)) = process.heard(pass).await else {
            return !process.is_dead();
        };
        if !findings.dead.is_empty() {
            trace!(
                self.setup.trace,
                "{} collects {:?}", self.name, findings.dead
            );
            self.setup.counts.add("ledgers collected by proof");
        }
        let settled = findings
            .settled
            .into_iter()
            .map(Box::new)
            .map(Event::Settled);
        if !findings.strays.is_empty() {
            trace!(
                self.setup.trace,
                "{} lets go of {:?}", self.name, findings.strays
            );
            self.setup.counts.add("copies let go of that others hold");
        }
        let strays = findings.strays.clone();
        let strayed = Event::Strayed {
            ledgers: findings.strays,
            copies: held.copies,
        };
        let events = [Event::Collected(findings.dead), strayed];
        let events = events.into_iter().chain(settled);
        let mut state = self.state();
        if state.boot != boot {
            return false;
        }
        let Some(life) = state.life.as_mut() else {
            return false;
        };
        let holds = |life: &Life, ledger: &LedgerId| {
            let found = life.node.core().state().ledgers.get(ledger);
            found.is_some_and(|ledger| !ledger.entries.is_empty())
        };
        let held: Vec<_> = strays.iter().filter(|one| holds(life, one)).collect();
        for event in events {
            life.node.event(event);
        }
        if strays.iter().any(|one| holds(life, one)) {
            self.setup
                .counts
                .add("copies kept that came while a bookie asked whose they are");
        }
        for ledger in held.into_iter().filter(|one| !holds(life, one)) {
            // G6: what a fragment names stays, whatever was read before.
            let assigned = self.setup.observed.assigns(*ledger, &me);
            self.setup.violations.check(!assigned, || {
                let name = &self.name;
                format!("{name} lets go of ledger {ledger}, which metadata assign to it")
            });
        }
        life.wake.notify_one();
        true
    }

    /// From now on what it asks of metadata about its ledgers is answered as poorly as this.
    pub fn impoverish(&self, poverty: Poverty) {
        self.state().poverty = poverty;
    }

    fn poor(&self, store: ProcessStore) -> Box<dyn MetadataStore> {
        let mut state = self.state();
        let poverty = state.poverty;
        if poverty == Poverty::default() {
            return Box::new(store);
        }
        if poverty.missing_rows > 0.0 {
            self.setup.counts.add("listings that lacked rows");
        }
        state.passes += 1;
        let stream = format!("rows of {} {}", self.name, state.passes);
        let rng = self.setup.seeds.stream(&stream);
        Box::new(PoorStore::new(store, poverty, rng))
    }

    fn held(&self, boot: u64) -> Option<(Held, crate::process::Process)> {
        let state = self.state();
        let life = state.life.as_ref().filter(|_| state.boot == boot)?;
        let core = life.node.core();
        let mut held = core.held();
        for file in core.sealed_files() {
            core.add_bytes(file, &mut held);
        }
        Some((held, state.process.clone()))
    }
}
