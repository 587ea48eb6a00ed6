//! What a client lets its session send.

use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// Records and bytes that may be sent; overdrawn by at most one unit.
#[derive(Debug, Default)]
pub(super) struct Credit {
    left: Mutex<(i64, i64)>,
    more: Notify,
}

impl Credit {
    fn lock(&self) -> MutexGuard<'_, (i64, i64)> {
        self.left.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds a grant.
    pub(super) fn grant(&self, records: u64, bytes: u64) {
        let mut left = self.lock();
        let add =
            |left: i64, more: u64| left.saturating_add(i64::try_from(more).unwrap_or(i64::MAX));
        *left = (add(left.0, records), add(left.1, bytes));
        drop(left);
        self.more.notify_waiters();
    }

    fn is_open(&self) -> bool {
        let left = self.lock();
        left.0 > 0 && left.1 > 0
    }

    /// Waits until something may be sent. Cancel-safe.
    pub(super) async fn open(&self) {
        loop {
            let more = self.more.notified();
            tokio::pin!(more);
            // Enrolled before the look, so that a grant between the two is heard.
            more.as_mut().enable();
            if self.is_open() {
                return;
            }
            more.await;
        }
    }

    /// Takes what a unit has, if anything may be sent.
    pub(super) fn try_take(&self, records: u64, bytes: u64) -> bool {
        let mut left = self.lock();
        if left.0 <= 0 || left.1 <= 0 {
            return false;
        }
        left.0 -= i64::try_from(records).unwrap_or(i64::MAX);
        left.1 -= i64::try_from(bytes).unwrap_or(i64::MAX);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unit_is_sent_while_both_are_above_zero_and_overdraws_once() {
        let credit = Credit::default();
        assert!(!credit.try_take(1, 1));
        credit.grant(10, 0);
        assert!(!credit.try_take(1, 1), "without bytes");
        credit.grant(0, 5);
        assert!(credit.try_take(3, 100));
        assert!(!credit.try_take(1, 1));
        credit.grant(0, 95);
        assert!(!credit.try_take(1, 1), "at 0 bytes");
        credit.grant(0, 1);
        assert!(credit.try_take(7, 1));
        assert!(!credit.is_open());
        credit.grant(u64::MAX, u64::MAX);
        credit.grant(u64::MAX, u64::MAX);
        assert!(credit.is_open());
    }

    #[tokio::test]
    async fn whoever_waits_for_credit_hears_of_a_grant() {
        let credit = std::sync::Arc::new(Credit::default());
        let waiting = tokio::spawn({
            let credit = credit.clone();
            async move { credit.open().await }
        });
        tokio::task::yield_now().await;
        credit.grant(1, 1);
        waiting.await.unwrap();
    }
}
