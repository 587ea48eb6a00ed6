//! Consume.Session on QUEUE and KEYED lanes.

use std::time::Duration;

use bytes::Bytes;
use hulse_proto::error::Reason;
use hulse_proto::wire::v1::{self, consume_down::Item, consume_up};

use super::consumer::{Consumer, attach, cursor, offsets, store};
use super::world::{World, reason};

const OK: [v1::AckStatus; 1] = [v1::AckStatus::Ok];
const SHORT: Duration = Duration::from_millis(200);

fn queue(topic: &Bytes, name: &str) -> v1::Attach {
    v1::Attach {
        r#type: v1::SubscriptionType::Queue as i32,
        consumer_name: name.to_owned(),
        ..attach(topic, "s")
    }
}

async fn credit(consumer: &Consumer, records: u64, bytes: u64) {
    let credit = v1::ConsumeCredit {
        credit_epoch: consumer.credit_epoch,
        records,
        bytes,
        lane: Some(1),
    };
    consumer.send(consume_up::Item::Credit(credit)).await;
}

/// A consumer with credit for so many records.
async fn sharer(world: &World, topic: &Bytes, name: &str, records: u64) -> Consumer {
    let mut consumer = Consumer::without_credit(world).await;
    let attached = consumer.attached(queue(topic, name)).await;
    assert!(attached.active && attached.lock_ms == 30_000);
    credit(&consumer, records, 1 << 30).await;
    consumer
}

fn counts(delivery: &v1::Delivery) -> Vec<(u64, u64, u32)> {
    let ranges = delivery.acquired.iter();
    ranges
        .map(|range| (range.first, range.end, range.delivery_count))
        .collect()
}

#[tokio::test]
async fn records_are_acked_one_by_one_and_come_from_the_next_owner_without_those() {
    let world = World::new().await;
    let topic = world.topic("t", 1).await;
    store(&world, &topic, 10).await;
    let mut one = sharer(&world, &topic, "one", 100).await;
    assert_eq!(offsets(&one.delivery().await), (0..10).collect::<Vec<_>>());
    let mut two = sharer(&world, &topic, "two", 100).await;
    two.quiet(SHORT).await;
    let acks = [(0, 1), (3, 4), (5, 7)];
    let statuses = one.ack(v1::AckKind::Individual, &acks).await;
    assert_eq!(statuses, [v1::AckStatus::Ok; 3]);
    let foreign = two.ack(v1::AckKind::Individual, &[(8, 9)]).await;
    assert_eq!(foreign, [v1::AckStatus::NotOwned]);
    let beyond = one.ack(v1::AckKind::Individual, &[(9, 12)]).await;
    assert_eq!(beyond, [v1::AckStatus::Invalid]);
    let cumulative = one.ack(v1::AckKind::Cumulative, &[(0, 9)]).await;
    assert_eq!(cumulative, [v1::AckStatus::Invalid]);
    let seen = cursor(&world, "s").await;
    assert_eq!(
        (seen.base, seen.acked_records, seen.unacked_records),
        (1, 3, 6)
    );
    let next = world.killed().await;
    let mut one = sharer(&next, &topic, "one", 100).await;
    assert_eq!(offsets(&one.delivery().await), [7, 8, 9]);
    // What somebody may have waits for a moment (serving.md B3.14).
    assert_eq!(offsets(&one.delivery().await), [1, 2, 4]);
    let status = one.ack(v1::AckKind::Individual, &[(0, 10)]).await;
    assert_eq!(status, OK);
    assert_eq!(cursor(&next, "s").await.base, 10);
}

#[tokio::test]
async fn failures_are_counted_and_survive_the_owner_and_innocent_returns_are_not() {
    let world = World::new().await;
    let topic = world.topic("t", 1).await;
    store(&world, &topic, 2).await;
    let mut one = sharer(&world, &topic, "one", 100).await;
    assert_eq!(counts(&one.delivery().await), [(0, 2, 1)]);
    let failed = v1::AckRecords {
        ack_id: 7,
        lane: 1,
        ranges: vec![v1::OffsetRange { first: 0, end: 1 }],
        kind: v1::AckKind::Return as i32,
        failed: true,
        want_receipt: true,
        ..v1::AckRecords::default()
    };
    one.send(consume_up::Item::Ack(failed)).await;
    assert_eq!(one.receipt().await, OK);
    assert_eq!(counts(&one.delivery().await), [(0, 1, 2)]);
    one.detach().await;
    let mut two = sharer(&world, &topic, "two", 100).await;
    assert_eq!(counts(&two.delivery().await), [(0, 1, 3), (1, 2, 2)]);
    let next = world.killed().await;
    let mut two = sharer(&next, &topic, "two", 100).await;
    assert_eq!(counts(&two.delivery().await), [(1, 2, 1)]);
    assert_eq!(counts(&two.delivery().await), [(0, 1, 2)]);
}

#[tokio::test]
async fn credit_of_a_lane_bounds_what_it_is_sent_and_that_of_the_session_does_not_count() {
    let world = World::new().await;
    let topic = world.topic("t", 1).await;
    for _ in 0..4 {
        store(&world, &topic, 1).await;
    }
    let mut one = Consumer::open(&world).await;
    one.attached(queue(&topic, "one")).await;
    one.quiet(SHORT).await;
    credit(&one, 2, 1 << 20).await;
    assert_eq!(offsets(&one.delivery().await), [0]);
    assert_eq!(offsets(&one.delivery().await), [1]);
    one.quiet(SHORT).await;
    let mut two = sharer(&world, &topic, "two", u64::MAX).await;
    credit(&two, u64::MAX, u64::MAX).await;
    assert_eq!(offsets(&two.delivery().await), [2]);
    assert_eq!(offsets(&two.delivery().await), [3]);
}

#[tokio::test]
async fn client_that_breaks_off_is_counted_and_one_that_detaches_is_not() {
    for detaches in [true, false] {
        let world = World::new().await;
        let topic = world.topic("t", 1).await;
        store(&world, &topic, 1).await;
        let mut one = sharer(&world, &topic, "one", 100).await;
        assert_eq!(counts(&one.delivery().await), [(0, 1, 1)]);
        if detaches {
            one.detach().await;
        }
        // Its own stream does not end: the broker finds that nobody listens.
        let _up = one.sender();
        drop(one);
        let mut two = sharer(&world, &topic, "two", 100).await;
        assert_eq!(counts(&two.delivery().await), [(0, 1, 2)]);
        let next = world.killed().await;
        let mut two = sharer(&next, &topic, "two", 100).await;
        let failed = u32::from(!detaches);
        assert_eq!(counts(&two.delivery().await), [(0, 1, 1 + failed)]);
    }
}

#[tokio::test]
async fn seek_voids_what_was_sent_and_begins_there() {
    let world = World::new().await;
    let topic = world.topic("t", 1).await;
    store(&world, &topic, 10).await;
    let mut one = sharer(&world, &topic, "one", 100).await;
    one.delivery().await;
    assert_eq!(one.ack(v1::AckKind::Individual, &[(0, 10)]).await, OK);
    let seek = v1::SeekLane {
        lane: 1,
        seek_id: 5,
        to: Some(super::consumer::at(v1::start_at::At::Offset(7))),
    };
    one.send(consume_up::Item::Seek(seek)).await;
    let (mut told, mut delivered) = (Vec::new(), None);
    while told.len() < 2 || delivered.is_none() {
        match one.next().await {
            Item::SeekDone(done) => {
                assert_eq!((done.base, done.state_epoch), (7, 1));
                told.push(done.seek_id);
            }
            Item::Delivery(delivery) => delivered = Some(delivery),
            other => panic!("{other:?}"),
        }
    }
    told.sort_unstable();
    assert_eq!(told, [0, 5]);
    assert_eq!(offsets(&delivered.unwrap()), [7, 8, 9]);
    let stale = one.ack(v1::AckKind::Individual, &[(7, 8)]).await;
    assert_eq!(stale, [v1::AckStatus::Stale]);
    assert_eq!(one.ack_of(1, v1::AckKind::Individual, &[(7, 8)]).await, OK);
    assert_eq!(cursor(&world, "s").await.base, 8);
}

#[tokio::test]
async fn deleted_subscription_ends_its_sharers() {
    let world = World::new().await;
    let topic = world.topic("t", 1).await;
    store(&world, &topic, 1).await;
    let mut one = sharer(&world, &topic, "one", 0).await;
    let delete = v1::DeleteSubscriptionRequest {
        subscription: "s".to_owned(),
        force: true,
        ..Default::default()
    };
    world.subscriptions().delete(delete).await.unwrap();
    assert_eq!(one.detached().await, "SUBSCRIPTION_NOT_FOUND");
}

#[tokio::test]
async fn wide_ranges_of_the_same_records_again_and_again_are_refused() {
    let world = World::new().await;
    let topic = world.topic("t", 1).await;
    store(&world, &topic, 100).await;
    let mut one = sharer(&world, &topic, "one", 1_000).await;
    one.delivery().await;
    let wide = vec![(0, 100); 10_000];
    let statuses = one.ack(v1::AckKind::Renew, &wide).await;
    assert_eq!(statuses, vec![v1::AckStatus::Invalid; 10_000]);
    // Twice is no harm.
    let statuses = one.ack(v1::AckKind::Individual, &wide[..2]).await;
    assert_eq!(statuses, [v1::AckStatus::Ok; 2]);
}

async fn buried(world: &World, subscription: &str, topic: &str, letters: &str) -> Option<Reason> {
    let sharing = v1::SharingPolicies {
        dead_letters: v1::DeadLetters::Topic as i32,
        dead_letter_topic: letters.to_owned(),
        ..Default::default()
    };
    let create = v1::CreateSubscriptionRequest {
        subscription: subscription.to_owned(),
        topic: topic.to_owned(),
        r#type: v1::SubscriptionType::Queue as i32,
        policies: Some(v1::SubscriptionPolicies {
            sharing: Some(sharing),
            ..Default::default()
        }),
        ..Default::default()
    };
    let made = world.subscriptions().create(create).await;
    made.err().map(|status| reason::<()>(Err(status)))
}

#[tokio::test]
async fn dead_letters_go_neither_to_their_own_topic_nor_to_one_that_is_the_cells() {
    let world = World::new().await;
    world.topic("t", 1).await;
    world.topic("graves", 1).await;
    let invalid = Some(Reason::InvalidRequest);
    assert_eq!(buried(&world, "a", "t", "public/default/t").await, invalid);
    let internal = buried(&world, "a", "t", "hulse/internal/groups").await;
    assert_eq!(internal, Some(Reason::PermissionDenied));
    assert_eq!(buried(&world, "a", "t", "graves").await, None);
    // Also not later, when their topic becomes one of the subscription's.
    assert_eq!(buried(&world, "a", "graves", "graves").await, invalid);
}
