//! Service Subscriptions.

use hulse_proto::error::Reason;
use hulse_proto::wire::v1;

use super::consumer::{Consumer, at, attach, create, cursor, earliest, offsets, store, store_in};
use super::world::{World, reason};

/// Case LD-01: a subscription that nobody consumed keeps its place over a kill, however it was made.
#[tokio::test]
async fn subscription_without_a_consumer_keeps_its_place_over_a_kill() {
    use v1::start_at::At;
    for start in [
        Some(At::Latest(true)),
        None,
        Some(At::Offset(3)),
        Some(At::TimeMs(1_000_000)),
    ] {
        let world = World::new().await;
        let topic = world.topic("t", 1).await;
        store(&world, &topic, 3).await;
        let made = create(&world, "t", "s", start.map(at)).await.unwrap();
        assert!(made.created);
        store(&world, &topic, 1).await;
        assert_eq!(cursor(&world, "s").await.backlog_records, 1);
        let next = world.killed().await;
        let seen = cursor(&next, "s").await;
        assert_eq!((seen.base, seen.backlog_records), (3, 1), "{start:?}");
        let again = create(&next, "t", "s", Some(earliest())).await.unwrap();
        assert!(!again.created, "the start is resolved once");
        let mut consumer = Consumer::open(&next).await;
        assert_eq!(consumer.attached(attach(&topic, "s")).await.base, 3);
        assert_eq!(offsets(&consumer.delivery().await), [3]);
    }
}

/// Case LD-01 by a seek: the cursor is where it was set, and not where somebody read.
#[tokio::test]
async fn place_that_was_sought_is_kept_over_a_kill() {
    let world = World::new().await;
    let topic = world.topic("t", 1).await;
    store(&world, &topic, 10).await;
    let mut consumer = Consumer::open(&world).await;
    consumer.attached(attach(&topic, "s")).await;
    consumer.delivery().await;
    consumer.detach().await;
    let seek = v1::SeekSubscriptionRequest {
        subscription: "s".to_owned(),
        to: Some(at(v1::start_at::At::Offset(4))),
        ..Default::default()
    };
    let dry = v1::SeekSubscriptionRequest {
        dry_run: true,
        ..seek.clone()
    };
    let mut client = world.subscriptions();
    for (request, base) in [(dry, 0), (seek, 4)] {
        let moved = client.seek(request).await.unwrap().into_inner();
        let moved = &moved.cursors[0];
        assert_eq!((moved.old_base, moved.new_base), (0, 4));
        assert_eq!(
            (moved.old_backlog_records, moved.new_backlog_records),
            (10, 6)
        );
        assert_eq!(cursor(&world, "s").await.base, base);
    }
    let next = world.killed().await;
    let seen = cursor(&next, "s").await;
    assert_eq!(
        (seen.base, seen.backlog_records, seen.state_epoch),
        (4, 6, 1)
    );
    let mut consumer = Consumer::open(&next).await;
    assert_eq!(consumer.attached(attach(&topic, "s")).await.base, 4);
    assert_eq!(offsets(&consumer.delivery().await), [4, 5, 6, 7, 8, 9]);
}

#[tokio::test]
async fn skip_and_clear_pass_over_records_and_an_attached_consumer_goes_on_from_there() {
    let world = World::new().await;
    let topic = world.topic("t", 1).await;
    store(&world, &topic, 10).await;
    let mut consumer = Consumer::open(&world).await;
    consumer.attached(attach(&topic, "s")).await;
    consumer.delivery().await;
    consumer
        .ack(v1::AckKind::Individual, &[(1, 3), (7, 8)])
        .await;
    let skip = v1::SkipSubscriptionRequest {
        subscription: "s".to_owned(),
        topic: "t".to_owned(),
        partition: 0,
        records: 2,
        dry_run: false,
    };
    let mut client = world.subscriptions();
    let moved = client.skip(skip).await.unwrap().into_inner();
    // 0 and 3; 1 and 2 are acked.
    assert_eq!(
        (
            moved.cursors[0].new_base,
            moved.cursors[0].new_backlog_records
        ),
        (4, 5)
    );
    let v1::consume_down::Item::SeekDone(done) = consumer.next().await else {
        panic!("not told")
    };
    assert_eq!((done.seek_id, done.base, done.state_epoch), (0, 4, 1));
    assert_eq!(offsets(&consumer.delivery().await), [4, 5, 6, 8, 9]);
    let clear = v1::ClearSubscriptionRequest {
        subscription: "s".to_owned(),
        ..Default::default()
    };
    let moved = client.clear(clear).await.unwrap().into_inner();
    assert_eq!(
        (
            moved.cursors[0].new_base,
            moved.cursors[0].new_backlog_records
        ),
        (10, 0)
    );
    let seen = cursor(&world, "s").await;
    assert_eq!(
        (seen.base, seen.backlog_records, seen.backlog_bytes),
        (10, 0, 0)
    );
}

#[tokio::test]
async fn describe_shows_backlog_and_consumers() {
    let world = World::new().await;
    let topic = world.topic("t", 1).await;
    store(&world, &topic, 10).await;
    let mut consumer = Consumer::open(&world).await;
    let named = v1::Attach {
        consumer_name: "worker".to_owned(),
        ..attach(&topic, "s")
    };
    consumer.attached(named).await;
    consumer.delivery().await;
    consumer
        .ack(v1::AckKind::Individual, &[(0, 5), (7, 8)])
        .await;
    let seen = cursor(&world, "s").await;
    assert_eq!(
        (seen.base, seen.backlog_records, seen.unacked_records),
        (5, 4, 4)
    );
    assert_eq!((seen.acked_range_count, seen.acked_records), (1, 1));
    assert_eq!((seen.acked[0].first, seen.acked[0].end), (7, 8));
    assert!(seen.backlog_bytes > 0 && seen.acked_at_ms > 0);
    let consumer = &seen.consumers[0];
    assert_eq!(
        (&*consumer.consumer_name, &*consumer.client_id),
        ("worker", "test")
    );
    assert_eq!((consumer.active, consumer.sent_to), (true, 10));
    let text = world.get("/metrics").await;
    let line = "hulse_subscription_records_acked_total{subscription=\"public/default/s\"} 6";
    assert!(text.contains(line), "{text}");
}

#[tokio::test]
async fn deletion_ends_consumers_and_a_new_one_inherits_nothing() {
    let world = World::new().await;
    let topic = world.topic("t", 1).await;
    store(&world, &topic, 10).await;
    let mut consumer = Consumer::open(&world).await;
    consumer.attached(attach(&topic, "s")).await;
    consumer.delivery().await;
    consumer.ack(v1::AckKind::Cumulative, &[(0, 8)]).await;
    let delete = |force| v1::DeleteSubscriptionRequest {
        subscription: "s".to_owned(),
        topic: String::new(),
        force,
    };
    let mut client = world.subscriptions();
    let refused = client.delete(delete(false)).await;
    assert_eq!(reason(refused), Reason::PreconditionFailed);
    client.delete(delete(true)).await.unwrap();
    assert_eq!(consumer.detached().await, "SUBSCRIPTION_NOT_FOUND");
    let gone = client.delete(delete(true)).await;
    assert_eq!(reason(gone), Reason::SubscriptionNotFound);
    assert_eq!(consumer.attached(attach(&topic, "s")).await.base, 0);
    assert_eq!(offsets(&consumer.delivery().await).len(), 10);
}

#[tokio::test]
async fn recreated_topic_starts_without_cursors() {
    let world = World::new().await;
    let topic = world.topic("t", 1).await;
    store(&world, &topic, 10).await;
    let mut consumer = Consumer::open(&world).await;
    consumer.attached(attach(&topic, "s")).await;
    consumer.delivery().await;
    consumer.ack(v1::AckKind::Cumulative, &[(0, 8)]).await;
    let delete = v1::DeleteTopicRequest {
        name: "t".to_owned(),
        topic_uuid: bytes::Bytes::new(),
    };
    world.admin().delete_topic(delete).await.unwrap();
    let end = consumer.detached().await;
    assert!(end.starts_with("TOPIC_"), "{end}");
    let topic = world.topic("t", 1).await;
    store(&world, &topic, 3).await;
    assert_eq!(consumer.attached(attach(&topic, "s")).await.base, 0);
    assert_eq!(offsets(&consumer.delivery().await), [0, 1, 2]);
    let listed = v1::ListSubscriptionsRequest {
        topic: "t".to_owned(),
        ..Default::default()
    };
    let listed = world.subscriptions().list(listed).await.unwrap();
    let listed = listed.into_inner().subscriptions;
    assert_eq!(listed[0].topics, ["public/default/t"]);
}

/// All of its records came while the subscription was there.
#[tokio::test]
async fn recreated_topic_begins_at_earliest_for_a_consumer_that_says_nothing() {
    let world = World::new().await;
    let topic = world.topic("t", 1).await;
    store(&world, &topic, 3).await;
    let silent = |topic| v1::Attach {
        start: None,
        ..attach(topic, "s")
    };
    let mut consumer = Consumer::open(&world).await;
    assert_eq!(consumer.attached(silent(&topic)).await.base, 3);
    let delete = v1::DeleteTopicRequest {
        name: "t".to_owned(),
        topic_uuid: bytes::Bytes::new(),
    };
    world.admin().delete_topic(delete).await.unwrap();
    consumer.detached().await;
    let topic = world.topic("t", 1).await;
    store(&world, &topic, 3).await;
    assert_eq!(consumer.attached(silent(&topic)).await.base, 0);
    assert_eq!(offsets(&consumer.delivery().await), [0, 1, 2]);
}

/// Else the first records of a new partition would be lost to a subscription that began at latest (serving.md B2.12).
#[tokio::test]
async fn partitions_that_are_added_later_begin_at_earliest() {
    let world = World::new().await;
    let topic = world.topic("t", 1).await;
    store(&world, &topic, 3).await;
    create(&world, "t", "s", None).await.unwrap();
    let add = v1::AddPartitionsRequest {
        name: "t".to_owned(),
        partitions: 2,
    };
    world.admin().add_partitions(add).await.unwrap();
    store_in(&world, &topic, 1, 2).await;
    let request = v1::DescribeSubscriptionRequest {
        subscription: "s".to_owned(),
        ..Default::default()
    };
    let described = world.subscriptions().describe(request).await.unwrap();
    let backlogs = described.into_inner().cursors;
    let backlogs: Vec<_> = backlogs
        .iter()
        .map(|cursor| cursor.backlog_records)
        .collect();
    assert_eq!(backlogs, [0, 2]);
}

#[tokio::test]
async fn requests_that_name_nothing_are_refused() {
    let world = World::new().await;
    world.topic("t", 1).await;
    let missing = create(&world, "nowhere", "s", None).await;
    assert_eq!(reason(missing), Reason::TopicNotFound);
    let beyond = create(&world, "t", "s", Some(at(v1::start_at::At::Offset(5)))).await;
    assert_eq!(reason(beyond), Reason::OffsetOutOfRange);
    let foreign = create(&world, "t", "a/b/s", None).await;
    assert_eq!(reason(foreign), Reason::InvalidRequest);
    let mut client = world.subscriptions();
    let describe = v1::DescribeSubscriptionRequest {
        subscription: "s".to_owned(),
        ..Default::default()
    };
    let none = client.describe(describe).await;
    assert_eq!(reason(none), Reason::SubscriptionNotFound);
    let seek = v1::SeekSubscriptionRequest {
        subscription: "s".to_owned(),
        ..Default::default()
    };
    assert_eq!(reason(client.seek(seek).await), Reason::InvalidRequest);
}

#[tokio::test]
async fn hold_is_changed_for_every_cursor_and_stays_so_over_a_kill() {
    let world = World::new().await;
    // What a subscription keeps is counted against the quota, and only what it keeps.
    let request = v1::CreateTopicRequest {
        name: "t".to_owned(),
        partitions: 1,
        backlog_quota: Some(v1::BacklogQuota {
            bytes: Some(1 << 30),
            ..Default::default()
        }),
        ..Default::default()
    };
    let made = world.admin().create_topic(request).await.unwrap();
    let topic = made.into_inner().topic.unwrap().topic_uuid;
    create(&world, "t", "s", Some(earliest())).await.unwrap();
    store(&world, &topic, 3).await;
    let request = |name: &str, hold| v1::UpdateSubscriptionRequest {
        subscription: name.to_owned(),
        topic: "t".to_owned(),
        policies: Some(v1::SubscriptionPolicies {
            hold,
            ..Default::default()
        }),
    };
    let counts = async |world: &World| cursor(world, "s").await.backlog_used_percent.is_some();
    assert!(counts(&world).await);
    let loose = world
        .subscriptions()
        .update(request("s", Some(false)))
        .await;
    let loose = loose.unwrap().into_inner().subscription.unwrap();
    assert_eq!(loose.policies.unwrap().hold, Some(false));
    assert!(!counts(&world).await);
    let next = world.killed().await;
    assert!(!counts(&next).await);
    // The same once more changes nothing, and is no error.
    for hold in [true, true] {
        let changed = next.subscriptions().update(request("s", Some(hold))).await;
        let changed = changed.unwrap().into_inner().subscription.unwrap();
        assert_eq!(changed.policies.unwrap().hold, Some(true));
    }
    assert!(counts(&next).await);
    let nothing = next.subscriptions().update(request("s", None)).await;
    assert_eq!(reason(nothing), Reason::InvalidRequest);
    let gone = next
        .subscriptions()
        .update(request("gone", Some(true)))
        .await;
    assert_eq!(reason(gone), Reason::SubscriptionNotFound);
}
