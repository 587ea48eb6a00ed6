//! Requests that know a subscription which is gone by now.

use std::sync::Arc;

use bytes::Bytes;
use hulse_proto::batch::{BatchBuilder, Compression, RecordRef};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{Offset, SubscriptionId};

use crate::listener::front::Front;
use crate::subscriptions::{
    NewSubscription, StartPoint, Subscription, SubscriptionKind, SubscriptionName,
};
use crate::testing::MemoryBroker;
use crate::{CursorStart, CursorView, PartitionHandle, Topic};

struct World {
    front: Arc<Front>,
    topic: Topic,
    open: PartitionHandle,
}

fn name() -> SubscriptionName {
    SubscriptionName::parse("s", "public/default").unwrap()
}

impl World {
    async fn new() -> Self {
        let front = MemoryBroker::default().front(|_| {});
        let topic = front.topics.create(&"t".parse().unwrap(), 1).await.unwrap();
        let partition = topic.partition_ids().next().unwrap();
        let open = front.open(partition).await.unwrap();
        Self { front, topic, open }
    }

    async fn another(&self, name: &str) -> Topic {
        let name = name.parse().unwrap();
        self.front.topics.create(&name, 1).await.unwrap()
    }

    async fn subscribe(&self, start: StartPoint) -> Subscription {
        let new = NewSubscription {
            kind: SubscriptionKind::Exclusive,
            hold: true,
            insists_on_hold: false,
            sharing: Default::default(),
            ttl_ms: 0,
            start,
        };
        let made = self.front.subscribe(&name(), &self.topic, new).await;
        made.unwrap().0
    }

    async fn delete(&self, topic: Option<&Topic>) {
        let deleted = self.front.delete_subscription(&name(), topic, false).await;
        deleted.unwrap();
    }

    async fn store(&self, count: usize) {
        for _ in 0..count {
            self.open.produce(batch()).await.unwrap();
        }
    }

    /// A request that began when this subscription was there.
    async fn late(&self, known: &Subscription) -> Result<(), Fault> {
        self.front.make_cursor(&self.open, known).await
    }

    async fn cursors(&self) -> Vec<CursorView> {
        self.open.cursors(None, 0).await.unwrap()
    }
}

/// Of one record.
fn batch() -> Bytes {
    let mut builder = BatchBuilder::new(Compression::None).unwrap();
    let record = RecordRef {
        timestamp: 1,
        key: None,
        value: Some(b"v"),
        headers: &[],
    };
    builder.push(&record).unwrap();
    builder.build(None)
}

fn not_found<T: std::fmt::Debug>(result: Result<T, Fault>) {
    assert_eq!(result.unwrap_err().reason, Reason::SubscriptionNotFound);
}

#[tokio::test]
async fn late_request_of_a_deleted_subscription_leaves_its_successor_alone() {
    let world = World::new().await;
    let old = world.subscribe(StartPoint::Earliest).await;
    world.delete(None).await;
    let new = world.subscribe(StartPoint::Latest).await;
    world.store(3).await;
    not_found(world.late(&old).await);
    let cursors = world.cursors().await;
    assert_eq!(cursors.len(), 1);
    assert_eq!(cursors[0].subscription, new.id);
    assert_eq!((cursors[0].base, cursors[0].backlog), (Offset(0), 3));
}

#[tokio::test]
async fn late_request_of_a_deleted_subscription_leaves_no_cursor_behind() {
    let world = World::new().await;
    let old = world.subscribe(StartPoint::Earliest).await;
    world.delete(None).await;
    not_found(world.late(&old).await);
    assert_eq!(world.cursors().await, []);
}

/// The subscription stays, its topic goes and comes again.
#[tokio::test]
async fn late_request_for_a_topic_that_left_and_came_again_does_not_say_where_it_begins() {
    let world = World::new().await;
    let old = world.subscribe(StartPoint::Latest).await;
    let two = world.another("two").await;
    let new = NewSubscription {
        kind: SubscriptionKind::Exclusive,
        hold: true,
        insists_on_hold: false,
        sharing: Default::default(),
        ttl_ms: 0,
        start: StartPoint::Latest,
    };
    world.front.subscribe(&name(), &two, new).await.unwrap();
    world.store(3).await;
    world.delete(Some(&world.topic)).await;
    not_found(world.late(&old).await);
    assert_eq!(world.cursors().await, []);
    let again = world.subscribe(StartPoint::Earliest).await;
    assert_eq!(again.id, old.id);
    not_found(world.late(&old).await);
    let cursors = world.cursors().await;
    assert_eq!((cursors.len(), cursors[0].backlog), (1, 3));
}

#[tokio::test]
async fn sweep_removes_cursors_that_no_subscription_has_and_no_others() {
    let world = World::new().await;
    world.subscribe(StartPoint::Earliest).await;
    let kept = world.cursors().await;
    let orphan = CursorStart {
        subscription: SubscriptionId(uuid::Uuid::from_u128(77)),
        name: "public/default/s".into(),
        hold: true,
        base: Offset(0),
    };
    world.open.make_cursor(orphan).await.unwrap();
    let orphans = crate::subscriptions::Orphans::new(
        world.front.partitions.clone(),
        world.front.subscriptions.clone(),
    );
    assert_eq!(orphans.sweep().await, Ok(1));
    assert_eq!(world.cursors().await, kept);
    assert_eq!(orphans.sweep().await, Ok(0));
}

/// As after a crash in the middle of it: whoever takes a deletion up ends it.
#[tokio::test]
async fn deletion_of_a_topic_takes_it_from_its_subscriptions_whoever_ends_it() {
    let world = World::new().await;
    world.subscribe(StartPoint::Earliest).await;
    let remover = Arc::new(world.front.partitions.clone());
    let deleted = world.front.topics.delete(&world.topic.name, remover).await;
    deleted.unwrap();
    let left = world.front.subscriptions.get(&name()).await.unwrap();
    assert_eq!(left.topics, []);
}
