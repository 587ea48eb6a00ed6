//! Backlog quotas: what is kept, who is refused, what is given up.

use std::time::Duration;

use bytes::Bytes;
use hulse_proto::time::WallClock;
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::consume_down::Item;
use tokio::time::{Instant, sleep};

use super::consumer::{Consumer, at, attach, create, cursor, earliest, offsets, store};
use super::session::Session;
use super::world::{World, plain};

/// A look comes by each second.
const WAIT_MAX: Duration = Duration::from_secs(15);

/// Makes topic `t` with a quota.
async fn limited(
    world: &World,
    bytes: Option<i64>,
    time_ms: Option<i64>,
    action: v1::BacklogAction,
) -> Bytes {
    let request = v1::CreateTopicRequest {
        name: "t".to_owned(),
        partitions: 1,
        backlog_quota: Some(v1::BacklogQuota {
            bytes,
            time_ms,
            action: Some(action as i32),
        }),
        ..Default::default()
    };
    let made = world.admin().create_topic(request).await.unwrap();
    let topic = made.into_inner().topic.unwrap();
    let holds = topic.effective_backlog_quota.unwrap();
    assert_eq!(holds.bytes, Some(bytes.unwrap_or(-1)));
    topic.topic_uuid
}

/// What partition 0 shows of the subscription that is nearest to the quota.
async fn shown(world: &World) -> Option<v1::KeptBacklog> {
    let request = v1::DescribeTopicRequest {
        name: "t".to_owned(),
    };
    let described = world.admin().describe_topic(request).await.unwrap();
    let mut topic = described.into_inner().topic.unwrap();
    topic.partition.swap_remove(0).backlog
}

/// Looks until it is so.
macro_rules! until {
    ($what:expr, $is:expr) => {{
        let give_up = Instant::now() + WAIT_MAX;
        loop {
            let seen = $what;
            if $is(&seen) {
                break seen;
            }
            assert!(Instant::now() < give_up, "it is {seen:?}");
            sleep(Duration::from_millis(50)).await;
        }
    }};
}

#[tokio::test]
async fn producers_are_refused_while_a_subscription_keeps_too_much_and_no_longer() {
    let world = World::new().await;
    let topic = limited(&world, Some(1_000), None, v1::BacklogAction::Reject).await;
    create(&world, "t", "slow", Some(earliest())).await.unwrap();
    let mut session = Session::on(&world, &topic).await;
    session.batch(0, 0, plain(20, 100)).await;
    assert_eq!(session.word().await, "ack 0.0 [0]");
    let kept = until!(shown(&world).await, |kept: &Option<v1::KeptBacklog>| kept
        .as_ref()
        .is_some_and(|kept| kept.refusing));
    let kept = kept.unwrap();
    assert_eq!(kept.subscription, "public/default/slow");
    assert!(kept.bytes > 2_000 && kept.used_percent > 200, "{kept:?}");
    assert!(cursor(&world, "slow").await.backlog_used_percent > Some(200));
    session.batch(0, 1, plain(1, 10)).await;
    assert_eq!(session.word().await, "nack 0.1 BACKLOG_EXCEEDED");
    // It consumes, and producers are let in again.
    let mut consumer = Consumer::open(&world).await;
    consumer.attached(attach(&topic, "slow")).await;
    consumer.delivery().await;
    consumer.ack(v1::AckKind::Cumulative, &[(0, 20)]).await;
    until!(shown(&world).await, |kept: &Option<v1::KeptBacklog>| kept
        .as_ref()
        .is_none_or(|kept| !kept.refusing));
    session.resume(0, 1).await;
    session.batch(0, 1, plain(1, 10)).await;
    assert_eq!(session.word().await, "ack 0.1 [20]");
    assert!(cursor(&world, "slow").await.backlog_used_percent < Some(50));
}

#[tokio::test]
async fn limit_that_is_raised_lets_producers_in_again_as_does_the_end_of_the_subscription() {
    let world = World::new().await;
    let topic = limited(&world, Some(1_000), None, v1::BacklogAction::Reject).await;
    create(&world, "t", "slow", Some(earliest())).await.unwrap();
    let mut session = Session::on(&world, &topic).await;
    session.batch(0, 0, plain(20, 100)).await;
    assert_eq!(session.word().await, "ack 0.0 [0]");
    let refusing = |kept: &Option<v1::KeptBacklog>| kept.as_ref().is_some_and(|kept| kept.refusing);
    until!(shown(&world).await, refusing);
    let raise = |bytes| v1::UpdateTopicRequest {
        name: "t".to_owned(),
        backlog_bytes: Some(bytes),
        ..Default::default()
    };
    world.admin().update_topic(raise(100_000)).await.unwrap();
    until!(shown(&world).await, |kept: &Option<v1::KeptBacklog>| {
        !refusing(kept)
    });
    session.batch(0, 1, plain(1, 10)).await;
    assert_eq!(session.word().await, "ack 0.1 [20]");
    world.admin().update_topic(raise(1_000)).await.unwrap();
    until!(shown(&world).await, refusing);
    let delete = v1::DeleteSubscriptionRequest {
        subscription: "slow".to_owned(),
        ..Default::default()
    };
    world.subscriptions().delete(delete).await.unwrap();
    until!(shown(&world).await, Option::is_none);
    session.batch(0, 2, plain(1, 10)).await;
    assert_eq!(session.word().await, "ack 0.2 [21]");
}

#[tokio::test]
async fn evicted_records_are_passed_over_for_good_and_counted() {
    let world = World::new().await;
    let topic = limited(&world, Some(5_000), None, v1::BacklogAction::Evict).await;
    create(&world, "t", "slow", Some(earliest())).await.unwrap();
    create(
        &world,
        "t",
        "near",
        Some(at(v1::start_at::At::Latest(true))),
    )
    .await
    .unwrap();
    for _ in 0..10 {
        store(&world, &topic, 100).await;
    }
    let all = cursor(&world, "slow").await;
    assert_eq!(all.high_watermark, 1_000);
    let slow = until!(
        cursor(&world, "slow").await,
        |cursor: &v1::CursorDescription| { cursor.evicted_records > 0 }
    );
    assert_eq!(slow.evicted_records, slow.base, "nothing was acked before");
    assert!(slow.base > 0 && slow.base < 1_000, "{slow:?}");
    assert!(slow.backlog_bytes <= 5_000, "{slow:?}");
    assert!(slow.backlog_bytes > 3_500, "no more than need be: {slow:?}");
    let line = format!(
        "hulse_backlog_quota_evicted_total{{subscription=\"public/default/slow\"}} {}",
        slow.base
    );
    until!(world.get("/metrics").await, |text: &String| text
        .contains(&line));
    let mut consumer = Consumer::open(&world).await;
    let base = consumer.attached(attach(&topic, "slow")).await.base;
    assert_eq!(base, slow.base);
    assert_eq!(offsets(&consumer.delivery().await)[0], slow.base);
    let next = world.killed().await;
    let told = cursor(&next, "slow").await;
    assert_eq!(
        (told.base, told.evicted_records),
        (slow.base, slow.evicted_records)
    );
}

/// What comes is not where it stood before, and nobody asked for that.
#[tokio::test]
async fn consumer_whose_records_are_given_up_is_told_so() {
    let world = World::new().await;
    let topic = limited(&world, Some(5_000), None, v1::BacklogAction::Evict).await;
    create(&world, "t", "slow", Some(earliest())).await.unwrap();
    let mut consumer = Consumer::open(&world).await;
    consumer.attached(attach(&topic, "slow")).await;
    for _ in 0..10 {
        store(&world, &topic, 100).await;
    }
    let done = loop {
        if let Item::SeekDone(done) = consumer.next().await {
            break done;
        }
    };
    assert!(done.evicted && done.base > 0, "{done:?}");
    assert_eq!((done.seek_id, done.fault), (0, None));
    let seek = v1::SeekSubscriptionRequest {
        subscription: "slow".to_owned(),
        topic: "t".to_owned(),
        to: Some(at(v1::start_at::At::Latest(true))),
        ..Default::default()
    };
    world.subscriptions().seek(seek).await.unwrap();
    let done = loop {
        if let Item::SeekDone(done) = consumer.next().await {
            break done;
        }
    };
    assert!(!done.evicted, "an order is no eviction: {done:?}");
}

#[tokio::test]
async fn records_that_are_kept_too_long_are_given_up_and_younger_ones_stay() {
    let world = World::new().await;
    let topic = limited(&world, None, Some(5_000), v1::BacklogAction::Evict).await;
    create(&world, "t", "slow", Some(earliest())).await.unwrap();
    store(&world, &topic, 10).await;
    // The owner's clock goes on by itself; the date stands still until it is set.
    sleep(Duration::from_secs(3)).await;
    store(&world, &topic, 5).await;
    let wall = &world.memory.wall;
    let began = wall.now_ms();
    wall.set(began + 6_800);
    let given_up = |cursor: &v1::CursorDescription| cursor.evicted_records > 0;
    let slow = until!(cursor(&world, "slow").await, given_up);
    assert_eq!((slow.base, slow.backlog_records), (10, 5));
    wall.set(began + 60_000);
    let nothing = |cursor: &v1::CursorDescription| cursor.evicted_records == 15;
    let slow = until!(cursor(&world, "slow").await, nothing);
    assert_eq!((slow.backlog_records, slow.backlog_age_ms), (0, 0));
}

#[tokio::test]
async fn held_backlog_is_only_reported_and_one_that_does_not_hold_is_not() {
    let world = World::new().await;
    let topic = limited(&world, Some(1_000), None, v1::BacklogAction::Hold).await;
    let loose = v1::CreateSubscriptionRequest {
        subscription: "loose".to_owned(),
        topic: "t".to_owned(),
        r#type: v1::SubscriptionType::Exclusive as i32,
        start: Some(earliest()),
        policies: Some(v1::SubscriptionPolicies {
            hold: Some(false),
            ..Default::default()
        }),
    };
    world.subscriptions().create(loose).await.unwrap();
    store(&world, &topic, 100).await;
    assert_eq!(cursor(&world, "loose").await.backlog_used_percent, None);
    create(&world, "t", "slow", Some(earliest())).await.unwrap();
    let kept = until!(shown(&world).await, |kept: &Option<v1::KeptBacklog>| kept
        .as_ref()
        .is_some_and(|kept| kept.used_percent > 100));
    let kept = kept.unwrap();
    assert_eq!(
        (&*kept.subscription, kept.refusing),
        ("public/default/slow", false)
    );
    store(&world, &topic, 100).await;
    let slow = cursor(&world, "slow").await;
    assert_eq!((slow.backlog_records, slow.evicted_records), (200, 0));
    let line = "hulse_backlog_quota_used_ratio{topic=\"public/default/t\"}";
    until!(world.get("/metrics").await, |text: &String| text
        .contains(line));
}
