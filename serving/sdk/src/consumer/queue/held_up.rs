//! Why nothing flows to a consumer, as its brokers say (serving.md B9.2).

use std::collections::BTreeMap;

use hulse_proto::wire::v1;

use super::handle::QueueConsumer;
use super::shared::Shared;
use crate::consumer::BlockedReason;

/// A partition of which nothing comes now, though there is something.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct HeldUp {
    /// Which.
    pub partition: u32,
    /// Why.
    pub reason: BlockedReason,
    /// The broker's words for it.
    pub message: String,
}

impl Shared {
    /// A broker said so.
    pub(super) fn blocked(&self, partition: u32, blocked: v1::Blocked) {
        let reason = BlockedReason::of(blocked.reason());
        self.held_up.send_if_modified(|all| match blocked.over {
            true => all.remove(&partition).is_some(),
            false => {
                let held_up = HeldUp {
                    partition,
                    reason,
                    message: blocked.message,
                };
                let before = all.insert(partition, held_up.clone());
                before != Some(held_up)
            }
        });
    }

    /// The partition is not attached: nobody says why nothing comes.
    pub(super) fn flows(&self, partition: u32) {
        self.held_up
            .send_if_modified(|all| all.remove(&partition).is_some());
    }
}

impl QueueConsumer {
    /// Partitions of which nothing comes now, though there is something, and why: too many records without an answer, or the subscription
    /// is paused.
    pub fn held_up(&self) -> Vec<HeldUp> {
        list(&self.shared().held_up.borrow())
    }

    /// As [`QueueConsumer::held_up`], as soon as it is something else than `known`. Cancel-safe.
    pub async fn held_up_anew(&self, known: &[HeldUp]) -> Vec<HeldUp> {
        let mut changes = self.shared().held_up.subscribe();
        let changed = changes.wait_for(|all| list(all) != known).await;
        // The sender lives as long as this handle.
        changed.map_or_else(|_| Vec::new(), |all| list(&all))
    }
}

fn list(all: &BTreeMap<u32, HeldUp>) -> Vec<HeldUp> {
    all.values().cloned().collect()
}
