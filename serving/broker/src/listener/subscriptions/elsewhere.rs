//! Cursors on partitions of other brokers: the owner does with them what was asked for here.

use hulse_proto::error::Fault;
use hulse_proto::id::{Offset, PartitionId, SubscriptionId};
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::move_cursor_work::Goal as WireGoal;
use hulse_proto::wire::v1::partition_work::Work;
use hulse_proto::wire::v1::start_at::At;
use uuid::Uuid;

use super::describing::Place;
use super::moving::{Goal, Order};
use crate::Topic;
use crate::listener::front::Front;
use crate::listener::peers::work_on;
use crate::listener::wire::invalid;
use crate::subscriptions::{StartPoint, Subscription, not_of_topic};

impl Front {
    /// Makes the subscription's cursor on a partition, where it is missing.
    pub(in crate::listener) async fn cursor_on(
        &self,
        partition: PartitionId,
        subscription: &Subscription,
    ) -> Result<(), Fault> {
        if self.elsewhere(partition).is_none() {
            let open = self.open(partition).await?;
            return self.make_cursor(&open, subscription).await;
        }
        let work = cursor_work(partition, subscription, None, Work::MakeCursor(true));
        self.anywhere(work).await.map(drop)
    }

    /// Whether a place is one.
    pub(super) async fn check_start(
        &self,
        partition: PartitionId,
        start: StartPoint,
    ) -> Result<(), Fault> {
        match start {
            StartPoint::Offset(offset) if self.elsewhere(partition).is_some() => {
                let work = work_on(partition, Work::CheckOffset(offset.0));
                self.anywhere(work).await.map(drop)
            }
            start => {
                let open = self.open(partition).await?;
                self.resolve(&open, start).await.map(drop)
            }
        }
    }

    /// The offset of a place in a partition, now.
    ///
    /// # Errors
    /// `OFFSET_OUT_OF_RANGE`, and those of opening and reading.
    pub(in crate::listener) async fn resolve_on(
        &self,
        partition: PartitionId,
        place: StartPoint,
    ) -> Result<Offset, Fault> {
        if self.elsewhere(partition).is_none() {
            let open = self.open(partition).await?;
            return self.resolve(&open, place).await;
        }
        let place = match place {
            StartPoint::Unsaid => StartPoint::Latest,
            place => place,
        };
        let work = work_on(partition, Work::Resolve(start_at(place)));
        self.anywhere(work).await.map(|done| Offset(done.offset))
    }

    /// Says of one cursor whether it keeps records.
    pub(super) async fn hold_on(
        &self,
        place: &Place,
        subscription: &Subscription,
        hold: bool,
    ) -> Result<(), Fault> {
        if self.elsewhere(place.partition).is_none() {
            let open = self.open(place.partition).await?;
            return open.hold_cursor(place.cursor, hold).await;
        }
        let (at, cursor) = (place.partition, Some(place.cursor));
        let work = cursor_work(at, subscription, cursor, Work::HoldCursor(hold));
        self.anywhere(work).await.map(drop)
    }

    /// Tells the owner of one cursor until when it is paused.
    pub(super) async fn pause_on(
        &self,
        place: &Place,
        subscription: &Subscription,
    ) -> Result<(), Fault> {
        let until = subscription.paused_until;
        if self.elsewhere(place.partition).is_none() {
            // One that is not open here delivers nothing, and hears it when its first consumer comes.
            if let Some(open) = self.partitions.opened(place.partition) {
                open.pause_sharing(place.cursor, until);
            }
            return Ok(());
        }
        let (at, cursor) = (place.partition, Some(place.cursor));
        let work = cursor_work(at, subscription, cursor, Work::PauseCursor(until));
        self.anywhere(work).await.map(drop)
    }

    /// A cursor for people.
    pub(super) async fn describe_cursor(
        &self,
        subscription: &Subscription,
        place: &Place,
        ranges: bool,
    ) -> Result<v1::CursorDescription, Fault> {
        if self.elsewhere(place.partition).is_none() {
            return self.describe_cursor_here(subscription, place, ranges).await;
        }
        let (at, cursor) = (place.partition, Some(place.cursor));
        let work = cursor_work(at, subscription, cursor, Work::DescribeCursor(ranges));
        Ok(self.anywhere(work).await?.cursor.unwrap_or_default())
    }

    /// Moves one cursor.
    pub(super) async fn move_one(
        &self,
        subscription: &Subscription,
        place: &Place,
        order: &Order<'_>,
    ) -> Result<v1::MovedCursor, Fault> {
        if self.elsewhere(place.partition).is_none() {
            return self.move_here(subscription, place, order).await;
        }
        let goal = match order.goal {
            Goal::Seek(point) => WireGoal::Seek(start_at(point)),
            Goal::Skip(records) => WireGoal::Skip(records),
            Goal::Clear => WireGoal::Clear(true),
            Goal::Redrive => WireGoal::Redrive(true),
        };
        let work = Work::MoveCursor(v1::MoveCursorWork {
            goal: Some(goal),
            dry_run: order.dry_run,
        });
        let (at, cursor) = (place.partition, Some(place.cursor));
        let done = self.anywhere(cursor_work(at, subscription, cursor, work));
        Ok(done.await?.moved.unwrap_or_default())
    }

    /// Removes one cursor.
    pub(super) async fn remove_on(
        &self,
        place: &Place,
        subscription: &Subscription,
    ) -> Result<(), Fault> {
        if self.elsewhere(place.partition).is_none() {
            let open = self.open(place.partition).await?;
            return open.remove_cursor(place.cursor, true).await;
        }
        let (at, cursor) = (place.partition, Some(place.cursor));
        let work = cursor_work(at, subscription, cursor, Work::RemoveCursor(true));
        self.anywhere(work).await.map(drop)
    }

    /// Consumers that are attached to a cursor.
    pub(super) async fn attached_to(
        &self,
        place: &Place,
        subscription: &Subscription,
    ) -> Result<usize, Fault> {
        if self.elsewhere(place.partition).is_some() {
            let described = self.describe_cursor(subscription, place, false).await?;
            return Ok(described.consumers.len());
        }
        // One that is not open has no consumers.
        let Some(open) = self.partitions.opened(place.partition) else {
            return Ok(0);
        };
        let views = open.cursors(Some(place.cursor), 0).await?;
        Ok(views.iter().map(|view| view.consumers.len()).sum())
    }

    /// What another broker was asked for and is done here.
    pub(in crate::listener) async fn cursor_work(
        &self,
        id: PartitionId,
        work: v1::PartitionWork,
    ) -> Result<v1::PartitionDone, Fault> {
        let open = self.open(id).await?;
        let mut done = v1::PartitionDone::default();
        let name = self.subscription_name(&work.subscription, None)?;
        let subscription = self.subscriptions.get(&name).await?;
        if let Some(Work::MakeCursor(_)) = work.work {
            self.make_cursor(&open, &subscription).await?;
            return Ok(done);
        }
        let cursor = Uuid::from_slice(&work.cursor_uuid).map(SubscriptionId);
        let cursor = cursor.map_err(|_| invalid("the cursor's name is not 16 bytes"))?;
        // Whoever may do this to one subscription must not do it to another's cursor.
        if subscription.cursor(id.topic) != Some(cursor) {
            return Err(not_of_topic(&subscription));
        }
        match work.work {
            Some(Work::HoldCursor(hold)) => {
                open.hold_cursor(cursor, hold).await?;
                return Ok(done);
            }
            Some(Work::PauseCursor(until)) => {
                open.pause_sharing(cursor, until);
                return Ok(done);
            }
            Some(Work::RemoveCursor(_)) => {
                open.remove_cursor(cursor, true).await?;
                return Ok(done);
            }
            _ => {}
        }
        let topic: Topic = self.topics.find(id.topic).await?;
        let place = Place {
            topic: topic.name.clone(),
            partition: id,
            cursor,
        };
        match work.work {
            Some(Work::DescribeCursor(ranges)) => {
                let found = self.describe_cursor_here(&subscription, &place, ranges);
                done.cursor = Some(found.await?);
            }
            Some(Work::MoveCursor(moved)) => {
                let order = Order {
                    subscription: &work.subscription,
                    topic: topic.name.as_str(),
                    partition: Some(id.index),
                    goal: goal(moved.goal)?,
                    dry_run: moved.dry_run,
                };
                let moved = self.move_here(&subscription, &place, &order);
                done.moved = Some(moved.await?);
            }
            _ => return Err(invalid("the work on the cursor is not known here")),
        }
        Ok(done)
    }
}

fn cursor_work(
    partition: PartitionId,
    subscription: &Subscription,
    cursor: Option<SubscriptionId>,
    work: Work,
) -> v1::PartitionWork {
    v1::PartitionWork {
        subscription: subscription.name.as_str().to_owned(),
        cursor_uuid: cursor.map(SubscriptionId::to_bytes).unwrap_or_default(),
        ..work_on(partition, work)
    }
}

fn goal(wire: Option<WireGoal>) -> Result<Goal, Fault> {
    Ok(match wire {
        Some(WireGoal::Seek(to)) => Goal::Seek(StartPoint::from_wire(Some(&to))?),
        Some(WireGoal::Skip(records)) => Goal::Skip(records),
        Some(WireGoal::Clear(_)) => Goal::Clear,
        Some(WireGoal::Redrive(_)) => Goal::Redrive,
        None => return Err(invalid("the move names no goal")),
    })
}

fn start_at(point: StartPoint) -> v1::StartAt {
    let at = match point {
        StartPoint::Unsaid => None,
        StartPoint::Earliest => Some(At::Earliest(true)),
        StartPoint::Latest => Some(At::Latest(true)),
        StartPoint::Offset(Offset(offset)) => Some(At::Offset(offset)),
        StartPoint::Time(time) => Some(At::TimeMs(time)),
    };
    v1::StartAt { at }
}
