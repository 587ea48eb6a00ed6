//! Figures of a measurement: rates and percentiles, as a table or as JSON.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::Serialize;

use crate::output::{Field, Table, View, grouped};

/// Longest latency that is told apart from a longer one.
const LONGEST: Duration = Duration::from_secs(120);
const DIGITS: u8 = 3;

/// Latencies, microseconds.
#[derive(Debug)]
pub(super) struct Latencies(Histogram<u64>);

/// Percentiles of latencies, microseconds.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Percentiles {
    pub(super) name: &'static str,
    pub(super) count: u64,
    pub(super) p50_us: u64,
    pub(super) p95_us: u64,
    pub(super) p99_us: u64,
    pub(super) p999_us: u64,
    pub(super) max_us: u64,
}

/// What went through.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Throughput {
    pub(super) records: u64,
    pub(super) bytes: u64,
    pub(super) failed: u64,
    pub(super) seconds: f64,
    pub(super) records_per_second: f64,
    pub(super) megabytes_per_second: f64,
}

/// A whole measurement.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Figures {
    pub(super) topic: String,
    pub(super) throughput: Throughput,
    pub(super) latency: Vec<Percentiles>,
}

impl Latencies {
    /// None yet.
    pub(super) fn new() -> Self {
        let longest = LONGEST.as_micros() as u64;
        let histogram = Histogram::new_with_bounds(1, longest, DIGITS);
        Self(histogram.expect("the bounds are constants that the histogram takes"))
    }

    /// Counts one; a longer one than the longest counts as that.
    pub(super) fn record(&mut self, latency: Duration) {
        let us = u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        self.0.saturating_record(us.max(1));
    }

    /// How many.
    pub(super) fn count(&self) -> u64 {
        self.0.len()
    }

    /// The percentiles.
    pub(super) fn percentiles(&self, name: &'static str) -> Percentiles {
        let at = |quantile| self.0.value_at_quantile(quantile);
        Percentiles {
            name,
            count: self.0.len(),
            p50_us: at(0.5),
            p95_us: at(0.95),
            p99_us: at(0.99),
            p999_us: at(0.999),
            max_us: self.0.max(),
        }
    }
}

impl Throughput {
    /// Rates over a time.
    pub(super) fn new(records: u64, bytes: u64, failed: u64, took: Duration) -> Self {
        let seconds = took.as_secs_f64().max(1e-9);
        Self {
            records,
            bytes,
            failed,
            seconds,
            records_per_second: records as f64 / seconds,
            megabytes_per_second: bytes as f64 / seconds / 1e6,
        }
    }
}

/// Microseconds for a person.
fn shown(us: u64) -> String {
    match us {
        0..1_000 => format!("{us} us"),
        1_000..1_000_000 => format!("{:.2} ms", us as f64 / 1e3),
        _ => format!("{:.2} s", us as f64 / 1e6),
    }
}

impl Figures {
    /// One line of rates.
    fn rates(rows: &[Self]) -> Table {
        let mut table = Table::new(&["TOPIC", "RECORDS", "FAILED", "SECONDS", "RECORDS/S", "MB/S"]);
        for row in rows {
            let throughput = &row.throughput;
            table.row(vec![
                row.topic.clone(),
                grouped(throughput.records),
                grouped(throughput.failed),
                format!("{:.2}", throughput.seconds),
                grouped(throughput.records_per_second as u64),
                format!("{:.1}", throughput.megabytes_per_second),
            ]);
        }
        table
    }

    /// One line per kind of latency.
    fn latencies(rows: &[Self]) -> Table {
        let mut table = Table::new(&["LATENCY", "COUNT", "P50", "P95", "P99", "P99.9", "MAX"]);
        for row in rows.iter().flat_map(|row| &row.latency) {
            table.row(vec![
                row.name.to_owned(),
                grouped(row.count),
                shown(row.p50_us),
                shown(row.p95_us),
                shown(row.p99_us),
                shown(row.p999_us),
                shown(row.max_us),
            ]);
        }
        table
    }
}

impl View for Figures {
    const FIELDS: &'static [Field] = &[
        Field::text("topic", "measured with"),
        Field::integer("throughput.records", "that went through"),
        Field::integer(
            "throughput.bytes",
            "of their values, or of the batches read",
        ),
        Field::integer("throughput.failed", "records that were not stored"),
        Field::number("throughput.seconds", "it took"),
        Field::number("throughput.records_per_second", "rate"),
        Field::number("throughput.megabytes_per_second", "rate, of 10^6 bytes"),
        Field::text("latency[].name", "from when to when"),
        Field::integer("latency[].count", "measured"),
        Field::integer("latency[].p50_us", "microseconds"),
        Field::integer("latency[].p95_us", "microseconds"),
        Field::integer("latency[].p99_us", "microseconds"),
        Field::integer("latency[].p999_us", "microseconds"),
        Field::integer("latency[].max_us", "microseconds"),
    ];

    fn name(&self) -> String {
        self.topic.clone()
    }

    fn text(rows: &[Self], _wide: bool) -> String {
        let mut text = Self::rates(rows).render();
        if rows.iter().any(|row| !row.latency.is_empty()) {
            text.push_str(&format!("\n{}", Self::latencies(rows).render()));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_those_of_what_was_recorded() {
        let mut latencies = Latencies::new();
        for us in 1..=1000 {
            latencies.record(Duration::from_micros(us));
        }
        latencies.record(Duration::from_secs(3600));
        let found = latencies.percentiles("x");
        assert_eq!(found.count, 1001);
        assert!((500..=502).contains(&found.p50_us), "{found:?}");
        assert!((990..=993).contains(&found.p99_us), "{found:?}");
        assert!(found.max_us >= 119_000_000, "{found:?}");
    }

    #[test]
    fn latencies_are_shown_in_the_fitting_unit() {
        for (us, text) in [(250, "250 us"), (1_900, "1.90 ms"), (2_500_000, "2.50 s")] {
            assert_eq!(shown(us), text);
        }
    }
}
