//! A run: producers, tasks that crash and come back as zombies, uploads that end when they like, a clock.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::income::{Income, order};
use crate::epoch::FunctionConfig;
use crate::letters::{ErrorPolicy, LatePolicy};
use crate::mutant::{Mutant, Mutation};
use crate::shell::Shell;
use crate::task::{Task, Upload};
use crate::testing::{Cluster, Doors, Faults, ready};
use crate::watermark::TimePolicy;
use crate::{InputPartition, Limits, TaskFailure, TaskId};

/// Disorder of the orders.
pub const DELAY_MS: i64 = 20_000;
/// A partition that is silent for so long, and proved so, is idle.
pub const IDLE_MS: i64 = 6_000;
/// Orders of a day in the future are not believed.
const DAY_MS: i64 = 86_400_000;

type Running = Shell<Doors, Doors, Doors>;

/// What goes wrong in a run.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// Of everything random.
    pub seed: u64,
    /// Partitions of the orders.
    pub partitions: u32,
    /// Orders in all.
    pub orders: u64,
    /// Of calls.
    pub faults: Faults,
    /// A task crashes, one step in so many; 0: never.
    pub crash: u32,
    /// Some orders are poison, from the future, or later than the bound.
    pub odd: bool,
    /// The rule that does not hold.
    pub mutant: Option<Mutant>,
}

/// A run under way.
pub struct World {
    pub plan: Plan,
    pub cluster: Arc<Mutex<Cluster>>,
    pub chance: ChaCha8Rng,
    doors_chance: Arc<Mutex<ChaCha8Rng>>,
    pub current: Running,
    zombies: Vec<Running>,
    uploads: Vec<(bool, Upload)>,
    sent: u64,
    pub crashes: usize,
}

pub fn config() -> FunctionConfig {
    FunctionConfig {
        function: "income_per_minute".to_owned(),
        inputs: vec!["orders".to_owned()],
        time: TimePolicy {
            delay: Duration::from_millis(DELAY_MS as u64),
            idle_after: Duration::from_millis(IDLE_MS as u64),
            ..TimePolicy::default()
        },
        on_error: ErrorPolicy::DeadLetter,
        on_late: LatePolicy::Topic,
        limits: Limits {
            epoch_rows_max: 60,
            snapshot_after_bytes: 150,
            changelog_record_bytes_max: 200,
            error_permille_max: 1000,
            ..Limits::default()
        },
        ..FunctionConfig::default()
    }
}

pub fn partition(partition: u32) -> InputPartition {
    InputPartition {
        input: 0,
        partition,
    }
}

impl World {
    pub fn new(plan: Plan) -> Self {
        let mut chance = ChaCha8Rng::seed_from_u64(plan.seed);
        let doors_chance = Arc::new(Mutex::new(ChaCha8Rng::seed_from_u64(chance.random())));
        let mut cluster = Cluster::default();
        cluster.now = 1_000_000;
        let cluster = Arc::new(Mutex::new(cluster));
        let current = start(plan, &cluster, &doors_chance);
        Self {
            plan,
            cluster,
            chance,
            doors_chance,
            current,
            zombies: Vec::new(),
            uploads: Vec::new(),
            sent: 0,
            crashes: 0,
        }
    }

    /// Runs until every order is answered for, or the task failed for good.
    pub fn run(&mut self) -> Result<(), TaskFailure> {
        while self.sent < self.plan.orders {
            self.produce();
            for _ in 0..self.chance.random_range(0..12) {
                self.step()?;
            }
            self.release();
        }
        self.calm()
    }

    /// One step of the task, perhaps a crash, perhaps a step of a zombie.
    pub fn step(&mut self) -> Result<(), TaskFailure> {
        self.step_current()?;
        if self.plan.crash > 0 && self.chance.random_ratio(1, self.plan.crash) {
            self.crash();
        }
        if !self.zombies.is_empty() && self.chance.random_ratio(1, 3) {
            let one = self.chance.random_range(0..self.zombies.len());
            let zombie = &mut self.zombies[one];
            // One that would take the function back is not a zombie any more: its group membership is gone.
            let back = matches!(
                zombie.task().wanted(),
                None | Some(crate::task::Effect::Fence)
            );
            if back || !ready(zombie.step()) {
                self.zombies.swap_remove(one);
            } else {
                let _ = ready(zombie.clean());
            }
        }
        Ok(())
    }

    fn step_current(&mut self) -> Result<(), TaskFailure> {
        if !ready(self.current.step()) {
            match self.current.task().failure() {
                // A fight with an older instance that is not dead yet: whoever lost starts anew.
                Some(TaskFailure::Fenced { .. }) | None => self.crash(),
                Some(failure) => return Err(failure.clone()),
            }
        }
        if let Some(upload) = self.current.task_mut().take_upload() {
            self.uploads.push((true, upload));
        }
        let _ = ready(self.current.clean());
        Ok(())
    }

    /// The task's worker is gone, or seems so.
    pub fn crash(&mut self) {
        self.crashes += 1;
        let next = start(self.plan, &self.cluster, &self.doors_chance);
        let before = std::mem::replace(&mut self.current, next);
        for (is_current, _) in &mut self.uploads {
            *is_current = false;
        }
        if self.chance.random() {
            self.zombies.push(before);
        }
    }

    /// Uploads end; held commits take effect; time goes on.
    fn release(&mut self) {
        while !self.uploads.is_empty() && self.chance.random_ratio(2, 3) {
            let (is_current, upload) = self.uploads.swap_remove(0);
            let (object, pointer) = upload
                .encode(&vec![Arc::new(crate::state::PlainRows)])
                .unwrap();
            let mut doors = self.doors(self.plan.faults);
            let put = ready(crate::seam::SnapshotStore::put(
                &mut doors,
                &upload.path,
                object,
            ));
            if is_current {
                self.current
                    .task_mut()
                    .on_uploaded(put.ok().map(|()| pointer));
            }
        }
        let mut cluster = self.cluster.lock().unwrap();
        cluster.release_held(&mut self.chance, 2);
    }

    fn doors(&self, faults: Faults) -> Doors {
        Doors::new(self.cluster.clone(), self.doors_chance.clone(), faults)
    }

    /// Some orders in each partition, so that none is ever idle; then time goes on.
    fn produce(&mut self) {
        let mut cluster = self.cluster.lock().unwrap();
        for at in 0..self.plan.partitions {
            for _ in 0..self.chance.random_range(1..4) {
                let now = cluster.now;
                let (mut time, mut value) = (
                    now - self.chance.random_range(0..DELAY_MS),
                    order(self.sent, self.chance.random_range(-500..10_000)),
                );
                if self.plan.odd {
                    match self.chance.random_range(0..40) {
                        0 => value = Bytes::from_static(b"no order"),
                        1 => time = now + DAY_MS,
                        2 => time = now - DELAY_MS * 20,
                        _ => {}
                    }
                }
                cluster.append_input(partition(at), time, None, value);
                self.sent += 1;
            }
        }
        cluster.now += self.chance.random_range(500..8_000);
    }

    /// No more faults: the task comes to the end of everything.
    pub fn calm(&mut self) -> Result<(), TaskFailure> {
        self.zombies.clear();
        self.plan.crash = 0;
        self.plan.faults = Faults::default();
        self.crash();
        for _ in 0..20_000 {
            if self.is_drained() {
                return Ok(());
            }
            self.step()?;
            self.release();
            self.cluster.lock().unwrap().now += 1000;
        }
        panic!("does not come to its end: {:?}", self.current.task().meta());
    }

    fn is_drained(&self) -> bool {
        let Some((meta, state)) = self.current.task().meta().zip(self.current.task().state())
        else {
            return false;
        };
        let cluster = self.cluster.lock().unwrap();
        let read =
            |at: u32| meta.offsets[&partition(at)] == cluster.input(partition(at)).len() as u64;
        let fetching = matches!(
            self.current.task().wanted(),
            Some(crate::task::Effect::Fetch { .. })
        );
        fetching && state.rows() == 0 && (0..self.plan.partitions).all(read)
    }
}

fn start(plan: Plan, cluster: &Arc<Mutex<Cluster>>, chance: &Arc<Mutex<ChaCha8Rng>>) -> Running {
    let id = TaskId {
        function: "income_per_minute".to_owned(),
        generation: 1,
        stage: 0,
        shard: 0,
    };
    let offsets: BTreeMap<_, _> = (0..plan.partitions).map(|at| (partition(at), 0)).collect();
    let task = Task::new(
        id,
        config(),
        Box::new(Income),
        offsets,
        Mutation::of(plan.mutant),
    );
    let doors = Doors::new(cluster.clone(), chance.clone(), plan.faults);
    Shell::new(task, doors.clone(), doors.clone(), doors)
}
