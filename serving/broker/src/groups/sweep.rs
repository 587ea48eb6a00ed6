//! Takes back the names of groups that are gone: deleted, expired, or never made by who had claimed the name.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use hulse_proto::error::Fault;
use hulse_proto::id::PartitionId;
use serving_groups::{Answer, GroupError, Request};
use tokio::time::sleep;

use super::claims::group_of;
use super::place::shard_of;
use crate::listener::Front;
use crate::partition::PartitionHandle;
use crate::subscriptions::SubscriptionName;

/// Between two looks.
const EVERY: Duration = Duration::from_secs(600);

impl Front {
    /// Goes on for ever. What fails is tried again the next time.
    pub(crate) async fn sweep_group_names(&self) {
        loop {
            sleep(EVERY).await;
            if let Err(fault) = self.sweep_once().await {
                tracing::debug!(%fault, "the look for names of groups that are gone waits");
            }
        }
    }

    /// Once over the shards that this broker has open.
    async fn sweep_once(&self) -> Result<(), Fault> {
        let names = self.subscriptions.groups().await?;
        if names.is_empty() {
            return Ok(());
        }
        let there: BTreeSet<Arc<str>> = {
            let groups = self.list_groups().await?;
            groups.into_iter().map(|listing| listing.group).collect()
        };
        for name in names {
            if !there.contains(&group_of(&name)) {
                self.give_back(&name).await;
            }
        }
        Ok(())
    }

    /// Deletes the record of a group that is not there, if its shard is open here.
    pub(crate) async fn give_back(&self, name: &SubscriptionName) {
        let group = group_of(name);
        let Some(open) = self.open_shard_of(&group).await else {
            return;
        };
        let seat = self.coordinator(&open);
        let _looking = seat.claims.looking.lock().await;
        // From here on whoever would make it waits for this look.
        seat.claims.known().remove(&group);
        let describe = Request::Describe {
            group: group.clone(),
        };
        match self.ask_seat(&seat, describe).await {
            Some(Answer::Described(Err(GroupError::GroupNotFound))) => {
                if let Err(fault) = self.subscriptions.release_group(name).await {
                    tracing::debug!(%group, %fault, "the name of a group that is gone stays for now");
                }
            }
            Some(Answer::Described(Ok(_))) => {
                seat.claims.known().insert(group);
            }
            // Refused, or the coordinator ended: whoever comes claims anew.
            _ => {}
        }
    }

    async fn open_shard_of(&self, group: &str) -> Option<PartitionHandle> {
        let topic = self.group_shards().await.ok()?;
        let index = shard_of(group, topic.partitions);
        let topic = topic.id;
        self.partitions.opened(PartitionId { topic, index })
    }
}
