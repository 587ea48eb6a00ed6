//! A subscription begins: its record, then a durable cursor on each partition (serving.md B2.12).

use futures::{StreamExt, TryStreamExt};
use hulse_proto::error::Fault;
use hulse_proto::id::Offset;

use super::describing::{Place, is_gone};
use crate::authorise::{Action, Resource};
use crate::listener::front::Front;
use crate::subscriptions::{
    NewSubscription, StartPoint, Subscription, SubscriptionName, SubscriptionUpdate,
};
use crate::{PartitionHandle, Topic};

/// Partitions that are opened at once for one subscription.
const CURSORS_AT_ONCE: usize = 16;

impl Front {
    /// The subscription, with this topic; made where it was not, with a cursor on each partition before it is answered. And whether it
    /// was made, or the topic added.
    ///
    /// # Errors
    /// Those of [`crate::Subscriptions::join`], of opening a partition, and of [`Front::resolve`]; `PERMISSION_DENIED`: nobody may
    /// write to its topic of dead letters.
    pub(in crate::listener) async fn subscribe(
        &self,
        name: &SubscriptionName,
        topic: &Topic,
        new: NewSubscription,
    ) -> Result<(Subscription, bool), Fault> {
        // The broker writes there for whoever asks for this.
        if let Some(letters) = new.sharing.dead_letters() {
            self.allow(Action::Produce, Resource::Topic(&letters))?;
        }
        // A place that is none must not leave a subscription behind.
        if let StartPoint::Offset(_) = new.start
            && self.subscriptions.get(name).await.is_err()
        {
            for partition in topic.partition_ids() {
                self.check_start(partition, new.start).await?;
            }
        }
        let (subscription, joined) = self.subscriptions.join(name, topic, new).await?;
        if joined {
            let made = futures::stream::iter(topic.partition_ids())
                .map(|partition| {
                    let subscription = &subscription;
                    self.cursor_on(partition, subscription)
                })
                .buffer_unordered(CURSORS_AT_ONCE);
            made.try_collect::<Vec<()>>().await?;
        }
        Ok((subscription, joined))
    }

    /// Says anew what the subscription says of its cursors; every cursor has it when this answers. Cut short, the same request goes on.
    ///
    /// # Errors
    /// Those of [`crate::Subscriptions::update`], of opening a partition, and of [`PartitionHandle::hold_cursor`].
    pub(super) async fn update(
        &self,
        name: &SubscriptionName,
        said: SubscriptionUpdate,
    ) -> Result<Subscription, Fault> {
        let subscription = self.subscriptions.update(name, said).await?;
        let places = self.places(&subscription, None).await?;
        let told = futures::stream::iter(places).map(|place| {
            let subscription = &subscription;
            async move {
                match self.tell_cursor(&place, subscription, said).await {
                    Err(fault) if is_gone(&fault) => Ok(()),
                    told => told,
                }
            }
        });
        let told = told.buffer_unordered(CURSORS_AT_ONCE);
        told.try_collect::<Vec<()>>().await?;
        Ok(subscription)
    }

    async fn tell_cursor(
        &self,
        place: &Place,
        subscription: &Subscription,
        said: SubscriptionUpdate,
    ) -> Result<(), Fault> {
        if let Some(hold) = said.hold {
            self.hold_on(place, subscription, hold).await?;
        }
        if said.paused_until.is_some() {
            self.pause_on(place, subscription).await?;
        }
        // How old records may get, the owner's watch reads by itself.
        Ok(())
    }

    /// The topic has new partitions: its subscriptions have cursors there from now on, so that nothing of them is trimmed before
    /// somebody attaches. What cannot be made now is made then.
    pub(in crate::listener) async fn cover(&self, topic: &Topic) {
        let covered = async {
            for subscription in self.subscriptions.of_topic(topic).await? {
                let known = subscription
                    .topic(topic.id)
                    .map_or(0, |known| known.partitions);
                for partition in topic.partition_ids().skip(known as usize) {
                    self.cursor_on(partition, &subscription).await?;
                }
            }
            Ok::<_, Fault>(())
        };
        if let Err(fault) = covered.await {
            tracing::debug!(topic = %topic.name, %fault, "cursors on new partitions are left to the first consumers");
        }
    }

    /// As [`crate::Subscriptions::make_cursor`].
    ///
    /// # Errors
    /// Those of it.
    pub(in crate::listener) async fn make_cursor(
        &self,
        open: &PartitionHandle,
        subscription: &Subscription,
    ) -> Result<(), Fault> {
        self.subscriptions.make_cursor(open, subscription).await
    }

    /// As [`StartPoint::resolve`].
    ///
    /// # Errors
    /// `OFFSET_OUT_OF_RANGE`, and those of reading.
    pub(in crate::listener) async fn resolve(
        &self,
        open: &PartitionHandle,
        point: StartPoint,
    ) -> Result<Offset, Fault> {
        point.resolve(open).await
    }
}
