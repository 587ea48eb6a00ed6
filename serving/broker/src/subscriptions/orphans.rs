//! Cursors that no subscription has: left by a request whose broker died, or whose metadata did not answer, before it could see
//! that the subscription had been deleted meanwhile. They would hold the log for ever.

use std::collections::BTreeSet;
use std::time::Duration;

use hulse_proto::error::Fault;
use hulse_proto::id::{SubscriptionId, TopicId};
use tokio::time::sleep;

use super::registry::Subscriptions;
use crate::{PartitionHandle, Partitions};

/// Between two looks.
const EVERY: Duration = Duration::from_secs(30);

/// The sweep of one broker, over the partitions that it owns.
pub struct Orphans {
    partitions: Partitions,
    subscriptions: Subscriptions,
}

impl Orphans {
    /// Over the partitions of this broker, by the records of this registry.
    pub fn new(partitions: Partitions, subscriptions: Subscriptions) -> Self {
        Self {
            partitions,
            subscriptions,
        }
    }

    /// Goes on for ever. What fails is tried again the next time.
    pub(crate) async fn run(self) {
        loop {
            sleep(EVERY).await;
            if let Err(fault) = self.sweep().await {
                tracing::debug!(%fault, "the look for cursors without a subscription waits");
            }
        }
    }

    /// Once over the open partitions; answers how many cursors went.
    ///
    /// # Errors
    /// `METADATA_UNAVAILABLE`, `DATA_DAMAGED`: nothing is known of what was not removed.
    pub async fn sweep(&self) -> Result<usize, Fault> {
        let known = self.subscriptions.cursors().await?;
        let mut strange = Vec::new();
        for open in self.partitions.consumed() {
            strange.extend(strangers(open, &known).await);
        }
        if strange.is_empty() {
            return Ok(0);
        }
        // A cursor is made after its record. So what was there before this look and is not in it belongs to nobody, and never will.
        let known = self.subscriptions.cursors().await?;
        let mut removed = 0;
        for (open, cursor) in strange {
            let topic = open.id().topic;
            if known.contains(&(topic, cursor)) {
                continue;
            }
            match open.remove_cursor(cursor, true).await {
                Ok(()) => {
                    removed += 1;
                    tracing::info!(partition = %open.id(), %cursor, "a cursor that no subscription has is removed");
                }
                Err(fault) => {
                    tracing::debug!(partition = %open.id(), %cursor, %fault, "a cursor that no subscription has stays for now");
                }
            }
        }
        Ok(removed)
    }
}

/// The cursors of a partition that are not among those. One that ends meanwhile is looked at by its next owner.
async fn strangers(
    open: PartitionHandle,
    known: &BTreeSet<(TopicId, SubscriptionId)>,
) -> Vec<(PartitionHandle, SubscriptionId)> {
    let topic = open.id().topic;
    let views = open.cursors(None, 0).await.unwrap_or_default();
    let strange = views
        .iter()
        .filter(|view| !known.contains(&(topic, view.subscription)));
    strange
        .map(|view| (open.clone(), view.subscription))
        .collect()
}
