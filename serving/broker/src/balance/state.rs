//! What a broker keeps for the balance: what its partitions have to do, which were handed to it, and what it saw and did as balancer.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use hulse_proto::id::PartitionId;
use hulse_proto::wire::v1;
use tokio::time::Instant;

use super::judge::Judge;
use super::model::BalanceLimits;
use super::rate::Meter;

/// Partitions that are told singly, those with the most to do.
const TOLD_MAX: usize = 20_000;

#[derive(Default)]
struct Kept {
    meter: Meter,
    /// When each was handed over to this broker; those of the last cool-down.
    arrived: BTreeMap<PartitionId, Instant>,
    report: Option<v1::BalanceReport>,
}

/// The share of one broker in the balance.
pub(crate) struct Balance {
    pub(super) limits: BalanceLimits,
    began: Instant,
    kept: Mutex<Kept>,
    elected: AtomicBool,
    /// Held while brokers are looked at and evened out: one at a time.
    pub(super) judge: Arc<tokio::sync::Mutex<Judge>>,
}

impl Balance {
    pub(crate) fn new(limits: BalanceLimits) -> Self {
        Self {
            limits,
            began: Instant::now(),
            kept: Mutex::default(),
            elected: AtomicBool::new(false),
            judge: Arc::default(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept
            .lock()
            .expect("no code panics while it holds this lock")
    }

    /// Passing time, for those that have no clock.
    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    /// Another broker handed a partition over, not because it leaves.
    pub(crate) fn arrived(&self, partition: PartitionId) {
        self.lock().arrived.insert(partition, Instant::now());
    }

    /// What was counted of the open partitions, each with its leader epoch; bytes per second of all.
    pub(super) fn sample(&self, open: impl Iterator<Item = (PartitionId, u32, u64)>) -> u64 {
        let now = self.now();
        let cooldown = self.limits.cooldown;
        let mut kept = self.lock();
        kept.arrived.retain(|_, at| at.elapsed() < cooldown);
        kept.meter.sample(open, now);
        kept.meter.total()
    }

    /// This broker is the elected one, or is not any more.
    pub(super) fn elect(&self, elected: bool) {
        self.elected.store(elected, Ordering::Relaxed);
    }

    /// Changes what is told of the last look.
    pub(super) fn note(&self, change: impl FnOnce(&mut v1::BalanceReport)) {
        change(self.lock().report.get_or_insert_default());
    }

    /// What is told of the last look.
    pub(super) fn report(&self) -> Option<v1::BalanceReport> {
        let mut report = self.lock().report.clone()?;
        report.elected = self.elected.load(Ordering::Relaxed);
        Some(report)
    }

    /// What this broker has to do; `each`: also of each partition.
    pub(super) fn told(&self, each: bool) -> v1::DescribeLoadResponse {
        let balance = self.report();
        let kept = self.lock();
        let mut partitions = Vec::new();
        if each {
            let mut rates: Vec<_> = kept.meter.rates().collect();
            rates.sort_by_key(|(id, bytes)| (std::cmp::Reverse(*bytes), *id));
            let told = rates.into_iter().take(TOLD_MAX);
            partitions.extend(told.map(|(id, bytes)| v1::PartitionLoad {
                partition: Some(v1::Partition {
                    topic_uuid: id.topic.to_bytes(),
                    index: id.index,
                }),
                bytes,
                moved_ms_ago: kept.arrived.get(&id).map(|at| millis(at.elapsed())),
            }));
        }
        v1::DescribeLoadResponse {
            ready: true,
            load: kept.meter.total(),
            open: kept.meter.count() as u64,
            partitions,
            balance,
        }
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}
