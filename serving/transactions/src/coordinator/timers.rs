//! Time: transactions that take too long, ids that nobody uses any more (serving.md C5).

use std::sync::Arc;

use hulse_proto::time::TimestampMs;

use super::change::Change;
use super::core::Coordinator;
use super::transaction::{Transaction, TxnState};

/// Between two looks at all ids. Ms.
const SCAN_MS: TimestampMs = 10_000;
/// Ids that one scan ends or forgets; the rest waits for the next one, a second later.
const SCAN_CHANGES_MAX: usize = 1_000;
const SCAN_AGAIN_MS: TimestampMs = 1_000;

enum Due {
    TimedOut,
    Expired,
}

impl Coordinator {
    pub(super) fn on_tick(&mut self) {
        self.retry_markers();
        if self.now < self.next_scan {
            return;
        }
        let (now, expiry) = (self.now, self.config.id_expiry_ms);
        let due = |txn: &Transaction| match txn.state {
            TxnState::Ongoing => txn
                .expires_at()
                .is_some_and(|at| at <= now)
                .then_some(Due::TimedOut),
            state if state.is_idle() && txn.updated_at.saturating_add(expiry) <= now => {
                Some(Due::Expired)
            }
            _ => None,
        };
        let found = self.state.iter();
        let found = found.filter_map(|(id, txn)| Some((id.clone(), due(txn)?)));
        let found = found.filter(|(id, _)| !self.is_pending(id));
        let found: Vec<(Arc<str>, Due)> = found.take(SCAN_CHANGES_MAX).collect();
        self.next_scan = match found.len() < SCAN_CHANGES_MAX {
            true => now.saturating_add(SCAN_MS),
            false => now.saturating_add(SCAN_AGAIN_MS),
        };
        for (id, due) in found {
            match due {
                Due::TimedOut => self.fence_all(&id),
                Due::Expired => self.propose(&id, Change::Gone),
            }
        }
    }
}
