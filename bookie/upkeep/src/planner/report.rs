//! What the planner found last, under one key: for `hulse bookies` and `hulse doctor`, and a hint for owners, who open partitions and
//! replace members by what is blocked as settling (storage.md X3). No safety rests on it.

use std::time::Duration;

use bookie_metadata::{MetadataError, MetadataStore, Op, Txn};
use hulse_proto::wire::Message as _;
use hulse_proto::wire::metadata as wire;
use hulse_proto::wire::metadata::blocked_repair::Kind;

use super::plan::{Blocked, Planned};
use crate::audit::Audited;
use crate::metrics::{Found, UpkeepMetrics};

/// The report's key.
const REPORT_KEY: &str = bookie_client::UPKEEP_REPORT_KEY;
/// Blocked places that are named, up to half of them those that wait for an owner: it hears of them here only.
const NAMED_MAX: usize = 200;

/// The planner's book.
pub(super) struct Book {
    report: wire::UpkeepReport,
    /// While it copied.
    busy: Duration,
    metrics: UpkeepMetrics,
}

/// When a pass was over: by the date, in the planner's time, and how long it took.
#[derive(Debug, Clone, Copy)]
pub(super) struct Passed {
    pub(super) date_ms: i64,
    pub(super) at: Duration,
    pub(super) took: Duration,
}

impl Book {
    pub(super) fn new(planner: &str, metrics: UpkeepMetrics) -> Self {
        Self {
            metrics,
            report: wire::UpkeepReport {
                planner: planner.to_owned(),
                ..wire::UpkeepReport::default()
            },
            busy: Duration::ZERO,
        }
    }

    /// A pass is over.
    pub(super) fn passed(&mut self, audited: &Audited, planned: &Planned, passed: Passed) {
        let now_ms = passed.date_ms;
        let report = &mut self.report;
        report.passes += 1;
        report.ledgers = audited.ledgers;
        report.pass_ms = u64::try_from(passed.took.as_millis()).unwrap_or(u64::MAX);
        report.passed_at_ms = now_ms;
        report.lacking_ledgers = audited.lacking;
        report.bytes_to_copy = audited.bytes_to_copy;
        report.lacking_since_ms = match (audited.lacking == 0, report.lacking_since_ms) {
            (true, _) => 0,
            (false, 0) => now_ms,
            (false, since) => since,
        };
        let members = audited.members.iter();
        report.bookies = members
            .map(|((name, incarnation), of)| wire::BookieUpkeep {
                bookie: name.to_string(),
                incarnation: incarnation.to_bytes(),
                ledgers: of.ledgers,
                bytes: of.bytes,
            })
            .collect();
        report.blocked_count = planned.blocked.len() as u64;
        let waits = |blocked: &&Blocked| blocked.kind == Kind::Settling;
        let settling = planned.blocked.iter().filter(waits).take(NAMED_MAX / 2);
        let others = planned.blocked.iter().filter(|blocked| !waits(blocked));
        let named = settling.chain(others).take(NAMED_MAX);
        report.blocked = named.map(|blocked| row(blocked, passed)).collect();
        let unreadable = planned.blocked.iter();
        let unreadable = unreadable.filter(|blocked| blocked.kind == Kind::Unreadable);
        self.metrics.passed(passed.took, now_ms);
        self.metrics.found(Found {
            ledgers: audited.ledgers,
            lacking: audited.lacking,
            bytes_to_copy: audited.bytes_to_copy,
            blocked: planned.blocked.len() as u64,
            unreadable: unreadable.count() as u64,
        });
    }

    /// So much was copied of what was lacking, in so long.
    pub(super) fn copied(&mut self, bytes: u64, of: u64, took: Duration) {
        let report = &mut self.report;
        report.copied_bytes += bytes;
        report.bytes_to_copy = report.bytes_to_copy.saturating_sub(of);
        self.metrics.to_copy(report.bytes_to_copy);
        self.busy += took;
        if self.busy > Duration::ZERO {
            let rate = report.copied_bytes as f64 / self.busy.as_secs_f64();
            report.bytes_per_second = rate as u64;
        }
    }

    /// Writes it, with this date.
    ///
    /// # Errors
    /// Of the store; the next one will do.
    pub(super) async fn write(
        &mut self,
        metadata: &dyn MetadataStore,
        now_ms: i64,
    ) -> Result<(), MetadataError> {
        self.report.at_ms = now_ms;
        let txn = Txn {
            compares: Vec::new(),
            ops: vec![Op::put(REPORT_KEY, self.report.encode_to_vec())],
        };
        metadata.txn(txn).await.map(drop)
    }
}

fn row(blocked: &Blocked, passed: Passed) -> wire::BlockedRepair {
    let (ledger, first, _) = blocked.place;
    let ago = passed.at.saturating_sub(blocked.since).as_millis();
    wire::BlockedRepair {
        ledger: ledger.0,
        first_entry: first.0,
        bookie: blocked.bookie.to_string(),
        kind: blocked.kind as i32,
        why: blocked.why.clone(),
        since_ms: passed.date_ms - i64::try_from(ago).unwrap_or(0),
    }
}
