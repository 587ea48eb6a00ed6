//! What upkeep counts, in the process of each bookie. Names begin with `hulse_upkeep_`. Of what was found only the process tells that
//! plans; in the others it is 0.

use std::sync::atomic::AtomicU64;
use std::time::Duration;

use hulse_proto::time::TimestampMs;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Registry, Unit};

/// The metrics of one process. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct UpkeepMetrics {
    planning: Gauge,
    ledgers: Gauge,
    lacking: Gauge,
    to_copy: Gauge,
    blocked: Gauge,
    unreadable: Gauge,
    copied: Counter,
    done: Counter,
    failed: Counter,
    passes: Counter,
    pass_seconds: Gauge<f64, AtomicU64>,
    passed_at: Gauge<f64, AtomicU64>,
}

/// What a pass found.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Found {
    pub(crate) ledgers: u64,
    pub(crate) lacking: u64,
    pub(crate) bytes_to_copy: u64,
    pub(crate) blocked: u64,
    pub(crate) unreadable: u64,
}

impl UpkeepMetrics {
    /// Registers the metrics.
    pub fn register(registry: &mut Registry) -> Self {
        let metrics = Self::default();
        let upkeep = registry.sub_registry_with_prefix("hulse_upkeep");
        upkeep.register(
            "planning",
            "1 in the process that looks after the copies of all ledgers",
            metrics.planning.clone(),
        );
        upkeep.register(
            "ledgers",
            "Ledgers that the last pass looked at",
            metrics.ledgers.clone(),
        );
        upkeep.register(
            "lacking_ledgers",
            "Ledgers with fewer good copies than they should have",
            metrics.lacking.clone(),
        );
        upkeep.register_with_unit(
            "to_copy",
            "About how much is to be copied, also what only moves",
            Unit::Bytes,
            metrics.to_copy.clone(),
        );
        upkeep.register(
            "blocked_copies",
            "Copies that cannot be made now",
            metrics.blocked.clone(),
        );
        upkeep.register(
            "unreadable_copies",
            "Of those, copies of what no bookie has a good copy of",
            metrics.unreadable.clone(),
        );
        upkeep.register_with_unit(
            "copied",
            "Copied since the start of the process",
            Unit::Bytes,
            metrics.copied.clone(),
        );
        upkeep.register(
            "repairs_done",
            "Copies that were made or completed",
            metrics.done.clone(),
        );
        upkeep.register(
            "repairs_failed",
            "Copies that could not be made, each try",
            metrics.failed.clone(),
        );
        upkeep.register("passes", "Passes over all ledgers", metrics.passes.clone());
        upkeep.register_with_unit(
            "last_pass_duration",
            "How long the last pass took",
            Unit::Seconds,
            metrics.pass_seconds.clone(),
        );
        upkeep.register_with_unit(
            "last_pass_timestamp",
            "When the last pass ended, since 1970",
            Unit::Seconds,
            metrics.passed_at.clone(),
        );
        metrics
    }

    /// This process plans, or does not any more.
    pub(crate) fn plans(&self, plans: bool) {
        self.planning.set(i64::from(plans));
        if !plans {
            self.found(Found::default());
        }
    }

    pub(crate) fn found(&self, found: Found) {
        let shown = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.ledgers.set(shown(found.ledgers));
        self.lacking.set(shown(found.lacking));
        self.to_copy.set(shown(found.bytes_to_copy));
        self.blocked.set(shown(found.blocked));
        self.unreadable.set(shown(found.unreadable));
    }

    pub(crate) fn passed(&self, took: Duration, at: TimestampMs) {
        self.passes.inc();
        self.pass_seconds.set(took.as_secs_f64());
        self.passed_at.set(at as f64 / 1_000.0);
    }

    pub(crate) fn to_copy(&self, bytes: u64) {
        self.to_copy.set(i64::try_from(bytes).unwrap_or(i64::MAX));
    }

    pub(crate) fn repaired(&self, bytes: u64) {
        self.done.inc();
        self.copied.inc_by(bytes);
    }

    pub(crate) fn not_repaired(&self) {
        self.failed.inc();
    }
}

#[cfg(test)]
mod tests {
    use prometheus_client::encoding::text::encode;

    use super::*;

    #[test]
    fn process_that_does_not_plan_any_more_tells_nothing_of_what_it_found() {
        let mut registry = Registry::default();
        let metrics = UpkeepMetrics::register(&mut registry);
        let text = || {
            let mut text = String::new();
            encode(&mut text, &registry).unwrap();
            text
        };
        metrics.plans(true);
        metrics.found(Found {
            ledgers: 9,
            lacking: 3,
            bytes_to_copy: 70,
            ..Found::default()
        });
        metrics.passed(Duration::from_millis(1_500), 5_000);
        metrics.repaired(50);
        metrics.not_repaired();
        let told = text();
        for line in [
            "hulse_upkeep_planning 1",
            "hulse_upkeep_lacking_ledgers 3",
            "hulse_upkeep_to_copy_bytes 70",
            "hulse_upkeep_copied_bytes_total 50",
            "hulse_upkeep_repairs_done_total 1",
            "hulse_upkeep_repairs_failed_total 1",
            "hulse_upkeep_last_pass_duration_seconds 1.5",
            "hulse_upkeep_last_pass_timestamp_seconds 5.0",
        ] {
            assert!(told.lines().any(|found| found == line), "{line}\n{told}");
        }
        metrics.plans(false);
        let told = text();
        assert!(told.contains("hulse_upkeep_lacking_ledgers 0"), "{told}");
        assert!(told.contains("hulse_upkeep_repairs_done_total 1"), "{told}");
    }
}
