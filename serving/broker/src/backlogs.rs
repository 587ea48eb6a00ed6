//! Counts, from time to time, what subscriptions have not processed, over the open partitions.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::Partitions;
use crate::metrics::Metrics;

/// Between two counts.
const EVERY: Duration = Duration::from_secs(10);

/// Counts until it is dropped. Partitions without subscriptions are not asked.
pub(crate) async fn count(partitions: Partitions, metrics: Arc<Metrics>) {
    let mut shown: BTreeMap<Arc<str>, u64> = BTreeMap::new();
    loop {
        tokio::time::sleep(EVERY).await;
        for backlog in shown.values_mut() {
            *backlog = 0;
        }
        for open in partitions.consumed() {
            // One that ended meanwhile has nothing to say.
            for view in open.cursors(None, 0).await.unwrap_or_default() {
                *shown.entry(view.name).or_default() += view.backlog;
            }
        }
        metrics.subscriptions().set_backlogs(&shown);
        shown.retain(|_, backlog| *backlog > 0);
    }
}
