//! The cursors of a subscription: made on an open partition, and only while the record has them.

use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{Offset, SubscriptionId};

use super::name::SubscriptionName;
use super::record::{StartPoint, Subscription};
use super::registry::Subscriptions;
use crate::{CursorStart, PartitionHandle};

impl Subscriptions {
    /// The cursor of a subscription on a partition, durable; made where it is not, and gone again when the subscription went
    /// meanwhile. Cut short in between, the sweep removes it.
    ///
    /// # Errors
    /// `SUBSCRIPTION_NOT_FOUND`: not of this topic, or deleted meanwhile; those of `StartPoint::resolve` and
    /// [`PartitionHandle::make_cursor`].
    pub async fn make_cursor(
        &self,
        open: &PartitionHandle,
        subscription: &Subscription,
    ) -> Result<(), Fault> {
        let Some(topic) = subscription.topic(open.id().topic) else {
            return Err(not_of_topic(subscription));
        };
        let known = open.cursors(Some(topic.cursor), 0).await?;
        if !known.is_empty() {
            return Ok(());
        }
        let base = topic.start_of(open.id().index).resolve(open).await;
        let base = match base {
            // What it was to begin at is gone meanwhile.
            Err(fault) if fault.reason == Reason::OffsetOutOfRange => open.offsets().log_start,
            base => base?,
        };
        open.make_cursor(CursorStart {
            subscription: topic.cursor,
            name: subscription.name.shared(),
            hold: subscription.hold,
            base,
        })
        .await?;
        self.still_wanted(open, subscription, topic.cursor).await
    }

    /// A deletion that began meanwhile may have passed this partition before the cursor was made.
    async fn still_wanted(
        &self,
        open: &PartitionHandle,
        subscription: &Subscription,
        cursor: SubscriptionId,
    ) -> Result<(), Fault> {
        match self.get(&subscription.name).await {
            Ok(now) if now.wants(open.id().topic, cursor) => match now.hold == subscription.hold {
                true => Ok(()),
                false => open.hold_cursor(cursor, now.hold).await,
            },
            Err(fault) if fault.reason != Reason::SubscriptionNotFound => {
                tracing::debug!(subscription = %subscription.name, %fault, "a cursor was made, and whether it is wanted still cannot be seen");
                Ok(())
            }
            _ => {
                open.remove_cursor(cursor, true).await?;
                let words = format!("subscription {} was deleted meanwhile", subscription.name);
                Err(Fault::new(Reason::SubscriptionNotFound, words))
            }
        }
    }
}

impl StartPoint {
    /// The offset of a place, now.
    ///
    /// # Errors
    /// `OFFSET_OUT_OF_RANGE`, and those of reading.
    pub(crate) async fn resolve(self, open: &PartitionHandle) -> Result<Offset, Fault> {
        match self {
            Self::Earliest => Ok(open.offsets().log_start),
            Self::Latest | Self::Unsaid => Ok(open.told_offsets().await?.high_watermark),
            Self::Offset(offset) => {
                open.check_offset(offset).await?;
                Ok(offset)
            }
            Self::Time(time) => match open.offset_at_time(time).await? {
                Some((offset, _)) => Ok(offset),
                None => Ok(open.told_offsets().await?.high_watermark),
            },
        }
    }
}

/// "It has other topics."
pub(crate) fn not_of_topic(subscription: &Subscription) -> Fault {
    not_called(&subscription.name)
}

/// The same, of the one that is called so.
pub(crate) fn not_called(name: &SubscriptionName) -> Fault {
    let words = format!("subscription {name} does not have this topic");
    Fault::new(Reason::SubscriptionNotFound, words)
}
