//! Counters of the balance.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;

/// Upper bounds, in seconds, of how long a partition was served by nobody.
const PAUSE_BUCKETS: [f64; 10] = [0.01, 0.025, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0, 3.0, 10.0];

/// Why a partition goes to another broker.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum MoveReason {
    /// To even out the load; counted by the balancer.
    Balance,
    /// Its broker leaves; counted there.
    Leaving,
    /// An operator's word; counted where it was said.
    Operator,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, EncodeLabelSet)]
struct MoveLabels {
    reason: &'static str,
    outcome: &'static str,
}

/// What is counted.
#[derive(Clone)]
pub(crate) struct BalanceMetrics {
    moves: Family<MoveLabels, Counter>,
    pause: Histogram,
    spread: Gauge<f64, AtomicU64>,
    looked: Gauge<f64, AtomicU64>,
    elected: Gauge,
    load: Gauge,
}

impl Default for BalanceMetrics {
    fn default() -> Self {
        Self {
            moves: Family::default(),
            pause: Histogram::new(PAUSE_BUCKETS),
            spread: Gauge::default(),
            looked: Gauge::default(),
            elected: Gauge::default(),
            load: Gauge::default(),
        }
    }
}

impl BalanceMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "hulse_partition_moves",
            "Partitions that were handed over, by why and how it ended",
            self.moves.clone(),
        );
        registry.register(
            "hulse_partition_move_pause_seconds",
            "Of partitions given away: from their end here to the other broker's word that it serves them",
            self.pause.clone(),
        );
        registry.register(
            "hulse_balance_spread_ratio",
            "As the balancer saw it last: how far the furthest broker is from the mean load",
            self.spread.clone(),
        );
        registry.register(
            "hulse_balance_last_look_timestamp_seconds",
            "When this broker, as balancer, looked last",
            self.looked.clone(),
        );
        registry.register(
            "hulse_balance_elected",
            "1: this broker is the balancer",
            self.elected.clone(),
        );
        registry.register(
            "hulse_broker_load_bytes_per_second",
            "In and out over all open partitions, as the balancer counts it; 0 of a broker that is alone",
            self.load.clone(),
        );
    }

    /// A move ended.
    pub(crate) fn moved(&self, reason: MoveReason, done: bool) {
        let labels = MoveLabels {
            reason: match reason {
                MoveReason::Balance => "balance",
                MoveReason::Leaving => "leaving",
                MoveReason::Operator => "operator",
            },
            outcome: if done { "done" } else { "failed" },
        };
        self.moves.get_or_create(&labels).inc();
    }

    /// A partition that was given away was served by nobody for so long.
    pub(crate) fn paused(&self, time: Duration) {
        self.pause.observe(time.as_secs_f64());
    }

    pub(super) fn looked(&self, spread_percent: u32, at_ms: i64) {
        self.spread.set(f64::from(spread_percent) / 100.0);
        self.looked.set(at_ms as f64 / 1_000.0);
    }

    pub(super) fn elected(&self, elected: bool) {
        self.elected.set(elected.into());
    }

    pub(super) fn load(&self, bytes_per_second: u64) {
        self.load
            .set(i64::try_from(bytes_per_second).unwrap_or(i64::MAX));
    }
}
