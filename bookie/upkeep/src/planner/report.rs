//! What the planner found last, under one key: for `hulse bookies` and `hulse doctor`. Nothing is decided by it.

use std::time::Duration;

use bookie_metadata::{MetadataError, MetadataStore, Op, Txn};
use hulse_proto::wire::Message as _;
use hulse_proto::wire::metadata as wire;

use super::plan::{Blocked, Planned};
use crate::audit::{Audited, Finding, Want};

/// The report's key.
const REPORT_KEY: &str = bookie_client::UPKEEP_REPORT_KEY;
/// Blocked places that are named.
const NAMED_MAX: usize = 200;

/// The planner's book.
pub(super) struct Book {
    report: wire::UpkeepReport,
    /// While it copied.
    busy: Duration,
}

impl Book {
    pub(super) fn new(planner: &str) -> Self {
        Self {
            report: wire::UpkeepReport {
                planner: planner.to_owned(),
                ..wire::UpkeepReport::default()
            },
            busy: Duration::ZERO,
        }
    }

    /// A pass is over, at this date.
    pub(super) fn passed(&mut self, audited: &Audited, planned: &Planned, now_ms: i64) {
        let report = &mut self.report;
        report.passes += 1;
        report.ledgers = audited.ledgers;
        let lacks = |finding: &&Finding| !finding.leaves && finding.want != Want::Note;
        let lacking = audited.findings.iter().filter(lacks);
        let mut lacking: Vec<u64> = lacking.map(|finding| finding.ledger.0).collect();
        lacking.sort_unstable();
        lacking.dedup();
        report.lacking_ledgers = lacking.len() as u64;
        report.bytes_to_copy = audited.findings.iter().map(|finding| finding.bytes).sum();
        report.lacking_since_ms = match (lacking.is_empty(), report.lacking_since_ms) {
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
        let named = planned.blocked.iter().take(NAMED_MAX);
        report.blocked = named.map(row).collect();
    }

    /// So much was copied of what was lacking, in so long.
    pub(super) fn copied(&mut self, bytes: u64, of: u64, took: Duration) {
        let report = &mut self.report;
        report.copied_bytes += bytes;
        report.bytes_to_copy = report.bytes_to_copy.saturating_sub(of);
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

fn row(blocked: &Blocked) -> wire::BlockedRepair {
    let (ledger, first, _) = blocked.place;
    wire::BlockedRepair {
        ledger: ledger.0,
        first_entry: first.0,
        bookie: blocked.bookie.to_string(),
        kind: blocked.kind as i32,
        why: blocked.why.clone(),
    }
}
