//! How a bookie starts: the real start for identity and registration, then the steps that serve; and how a start dies.

use std::sync::Arc;
use std::time::Duration;

use bookie_node::core::{Event, Withdrawn};
use bookie_node::disk::Disk;
use bookie_node::step::StepNode;
use bookie_node::{BookieNode, NodeConfig, NodeMetrics, NodeSeams, SyncMode, Threads};
use hulse_proto::ledger::Member;
use hulse_proto::mutant::Mutation;
use prometheus_client::registry::Registry;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;
use tokio::time::sleep;

use super::life::Life;
use super::sim_bookie::{PowerLoss, SimBookie, State};
use crate::crash_point::CrashPoint;
use crate::process::Process;
use crate::trace;

/// Log files this short make a run roll often.
const FILE_BYTES: u64 = 96 << 10;
/// So few tombstones are kept that runs which delete raise the dead watermark (storage.md G4).
const TOMBSTONES_MAX: usize = 4;
/// A start that crashed so often is a bug.
const STARTS_MAX: u32 = 200;

impl SimBookie {
    /// Starts it, if it is down.
    pub async fn start(self: &Arc<Self>) {
        let boot = {
            let mut state = self.state();
            state.held_down = false;
            if state.life.is_some() {
                return;
            }
            state.boot
        };
        self.start_boot(boot).await;
    }

    /// Starts until it serves, or somebody else started or crashed it meanwhile.
    pub(super) async fn start_boot(self: &Arc<Self>, boot: u64) {
        for _ in 0..STARTS_MAX {
            {
                let mut state = self.state();
                let elsewhere = state.life.is_some() || state.starting == Some(boot);
                if state.boot != boot || elsewhere || state.retired {
                    return;
                }
                state.starting = Some(boot);
            }
            let started = self.try_start(boot).await;
            {
                let mut state = self.state();
                if state.starting == Some(boot) {
                    state.starting = None;
                }
            }
            if started {
                return;
            }
            sleep(Duration::from_millis(50)).await;
        }
        let words = format!("{} does not start after {STARTS_MAX} tries", self.name);
        self.setup.violations.add(words);
    }

    /// One start: the real one for identity and registration, then the steps that serve. False: it crashed or was refused.
    async fn try_start(self: &Arc<Self>, boot: u64) -> bool {
        let armed = self.arm_disk();
        let (process, seed, config) = {
            let mut state = self.state();
            state.process = Process::new(self.name.as_str());
            (
                state.process.clone(),
                state.rng.random(),
                self.config(&state),
            )
        };
        let registered = process.heard(self.register(&process, config.clone())).await;
        if self.state().boot != boot {
            return true;
        }
        let opened = match registered {
            Some(Ok(member)) => {
                self.state().member = Some(member);
                StepNode::open(config, Arc::new(self.disk.clone()), seed, &[])
                    .map_err(|error| error.to_string())
            }
            Some(Err(words)) => Err(words),
            None => Err("killed while it registered".to_owned()),
        };
        let mut state = self.state();
        match opened {
            Ok(node) if !armed => {
                self.check_log(&node, state.scars.any);
                let mut life = Life::new(node, self.now());
                if state.withdrawn != Withdrawn::No {
                    life.node.event(Event::Withdrawn(state.withdrawn));
                }
                let wake = life.wake.clone();
                state.life = Some(life);
                trace!(self.setup.trace, "{} serves", self.name);
                let sync = state.sync;
                drop(state);
                let this = self.clone();
                tokio::spawn(async move { this.serve(boot, wake).await });
                let this = self.clone();
                tokio::spawn(async move { this.reclaim_now_and_then(boot).await });
                let this = self.clone();
                tokio::spawn(async move { this.collect_now_and_then(boot).await });
                if let SyncMode::Interval(every) = sync {
                    let this = self.clone();
                    tokio::spawn(async move { this.sync_every(boot, every).await });
                }
                true
            }
            other => {
                let words = other
                    .err()
                    .unwrap_or_else(|| "killed right after".to_owned());
                trace!(self.setup.trace, "{} does not start: {words}", self.name);
                state.process.kill();
                state.power_off(&self.disk, PowerLoss::Yes);
                false
            }
        }
    }

    /// Lets the disk stop in the middle of this start, when crash point 9 or 13 is armed.
    fn arm_disk(&self) -> bool {
        let empty = self.disk.list().is_ok_and(|names| names.is_empty());
        let point = CrashPoint(if empty { 13 } else { 9 });
        if self.setup.crashes.pass(point).is_none() {
            return false;
        }
        let changes = self.state().rng.random_range(0..14);
        trace!(
            self.setup.trace,
            "{} dies in its start, crash point {}", self.name, point.0
        );
        self.disk.stop_after(changes);
        true
    }

    fn config(&self, state: &State) -> NodeConfig {
        let mut config = NodeConfig::new(self.setup.cell, self.name.clone());
        config.format_if_empty = true;
        config.kernel_boot_id = format!("{}-{}", self.name, state.kernel);
        config.file_bytes = FILE_BYTES;
        config.sync = state.sync;
        config.tombstones_max = TOMBSTONES_MAX;
        config.threads = Threads::Inline;
        config.mutation = Mutation::of(self.setup.mutant);
        config
    }

    /// The real start: identity, registration, boot counters. Its node is dropped at once, as a crash would.
    async fn register(&self, process: &Process, config: NodeConfig) -> Result<Member, String> {
        let rng = ChaCha12Rng::from_rng(&mut self.state().rng);
        let seams = NodeSeams {
            disk: Arc::new(self.disk.clone()),
            metadata: Arc::new(self.store(process)),
            clock: self.setup.clock.clone(),
            rng,
            metrics: NodeMetrics::new(&mut Registry::default()),
        };
        self.state().scars.starting = true;
        let started = BookieNode::start(config, seams).await;
        let mut state = self.state();
        state.scars.starting = false;
        let node = started.map_err(|error| error.to_string())?;
        state.scars.starts += 1;
        state.scars.fresh = false;
        let whole = node.status().damage.is_empty();
        if !whole || node.status().limbo_ledgers > 0 {
            let (damage, limbo) = (&node.status().damage, node.status().limbo_ledgers);
            trace!(
                self.setup.trace,
                "{} starts with {limbo} ledgers in limbo, damage {damage:?}", self.name
            );
            self.setup.counts.add("starts with damage or limbo");
        }
        self.setup.violations.check(whole || state.scars.any, || {
            format!(
                "{} calls its log damaged: {:?}",
                self.name,
                node.status().damage
            )
        });
        Ok(node.member().clone())
    }

    /// No crash damages a log; and what is to be said of damage the real start has said.
    fn check_log(&self, node: &StepNode, scarred: bool) {
        let (damage, limbo) = (node.damage(), node.new_limbo());
        let expected = (scarred || damage.is_empty()) && limbo.is_empty();
        self.setup.violations.check(expected, || {
            format!("{} finds damage {damage:?}, limbo {limbo:?}", self.name)
        });
    }
}
