//! A subscription ends: marked, then without cursors, then without a record. Cut short anywhere, the same request goes on.

use futures::{StreamExt, TryStreamExt};
use hulse_proto::error::{Fault, Reason};

use super::describing::{PARTITIONS_AT_ONCE, Place, is_gone};
use crate::Topic;
use crate::listener::front::Front;
use crate::subscriptions::{Subscription, SubscriptionKind, SubscriptionName};

impl Front {
    /// Deletes it, or its part for one topic; answers when the name is free.
    pub(super) async fn delete_subscription(
        &self,
        name: &SubscriptionName,
        topic: Option<&Topic>,
        force: bool,
    ) -> Result<(), Fault> {
        let found = self.subscriptions.get(name).await?;
        if found.kind == SubscriptionKind::Stream {
            return self.delete_group(name, topic).await;
        }
        let places = self.places(&found, topic).await?;
        if !force && !found.deleting {
            self.check_idle(&found, &places).await?;
        }
        let id = topic.map(|topic| topic.id);
        let Some(marked) = self.subscriptions.begin_delete(&found, id).await? else {
            return Ok(());
        };
        // Topics may have been added before the mark.
        let places = self.places(&marked, topic).await?;
        let removed = futures::stream::iter(places).map(|place| {
            let marked = &marked;
            async move {
                match self.remove_on(&place, marked).await {
                    Err(fault) if is_gone(&fault) => Ok(()),
                    removed => removed,
                }
            }
        });
        let removed = removed.buffer_unordered(PARTITIONS_AT_ONCE);
        removed.try_collect::<Vec<()>>().await?;
        self.subscriptions.finish_delete(&marked, id).await?;
        if id.is_none() {
            self.metrics.subscriptions().forget(name.as_str());
        }
        Ok(())
    }

    async fn check_idle(&self, subscription: &Subscription, places: &[Place]) -> Result<(), Fault> {
        for place in places {
            let attached = self.attached_to(place, subscription).await?;
            if attached > 0 {
                let words = format!(
                    "{attached} consumers of subscription {} are attached to partition {} of {}; stop them, or delete with `--force`",
                    subscription.name, place.partition.index, place.topic
                );
                return Err(Fault::new(Reason::PreconditionFailed, words));
            }
        }
        Ok(())
    }
}
