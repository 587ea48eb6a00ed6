//! Consume.Session.

use std::time::Duration;

use hulse_proto::wire::v1::{self, consume_down::Item, consume_up};

use super::consumer::{Consumer, at, attach, cursor, earliest, offsets, store};
use super::world::World;

const OK: [v1::AckStatus; 1] = [v1::AckStatus::Ok];

/// Case SU-07, part 1: a cumulative ack in the middle of a batch.
#[tokio::test]
async fn next_delivery_begins_behind_the_acked_record_of_a_batch() {
    let world = World::new().await;
    let topic = world.topic("t", 1).await;
    store(&world, &topic, 10).await;
    for (acked, left) in [(0, 0), (4, 4), (1, 4), (10, 10)] {
        let mut consumer = Consumer::open(&world).await;
        let attached = consumer.attached(attach(&topic, "s")).await;
        assert!(attached.active);
        let delivery = consumer.delivery().await;
        assert_eq!(delivery.prev_end_offset, attached.base);
        assert_eq!(delivery.end_offset, 10);
        assert_eq!(offsets(&delivery), (attached.base..10).collect::<Vec<_>>());
        let status = consumer.ack(v1::AckKind::Cumulative, &[(0, acked)]).await;
        assert_eq!(status, OK);
        consumer.detach().await;
        assert_eq!(cursor(&world, "s").await.base, left);
    }
}

/// Case SU-07: its queue may be full of other partitions' records, so that what it acks cannot come again first.
#[tokio::test]
async fn acks_of_what_was_handed_out_before_a_break_are_taken_before_it_comes_again() {
    let world = World::new().await;
    let topic = world.topic("t", 1).await;
    store(&world, &topic, 10).await;
    let mut consumer = Consumer::open(&world).await;
    let first = consumer.attached(attach(&topic, "s")).await;
    consumer.delivery().await;
    let next = world.killed().await;
    let mut consumer = Consumer::without_credit(&next).await;
    let back = v1::Attach {
        handed_end: 1_000,
        handed_epoch: first.state_epoch,
        ..attach(&topic, "s")
    };
    let attached = consumer.attached(back).await;
    assert_eq!(
        (attached.base, attached.acks_to),
        (0, 10),
        "not beyond the end"
    );
    let status = consumer
        .ack(v1::AckKind::Individual, &[(0, 3), (5, 11)])
        .await;
    assert_eq!(status, [v1::AckStatus::Ok, v1::AckStatus::Invalid]);
    let status = consumer.ack(v1::AckKind::Cumulative, &[(0, 9)]).await;
    assert_eq!(status, OK);
    let seen = cursor(&next, "s").await;
    assert_eq!((seen.base, seen.backlog_records), (9, 1));
}

/// Case SU-07, part 2: individual acks, and the owner dies.
#[tokio::test]
async fn records_with_a_receipt_do_not_come_again_from_the_next_owner() {
    let world = World::new().await;
    let topic = world.topic("t", 1).await;
    store(&world, &topic, 10).await;
    let mut consumer = Consumer::open(&world).await;
    consumer.attached(attach(&topic, "s")).await;
    consumer.delivery().await;
    let acks = [(2, 3), (4, 5), (6, 7)];
    let statuses = consumer.ack(v1::AckKind::Individual, &acks).await;
    assert_eq!(statuses, [v1::AckStatus::Ok; 3]);
    let next = world.killed().await;
    let mut consumer = Consumer::open(&next).await;
    let attached = consumer.attached(attach(&topic, "s")).await;
    assert_eq!((attached.base, attached.acked.len()), (0, 3));
    let delivery = consumer.delivery().await;
    assert_eq!(offsets(&delivery), [0, 1, 3, 5, 7, 8, 9]);
    let why: Vec<_> = delivery
        .skipped
        .iter()
        .map(|range| (range.first, range.reason()))
        .collect();
    assert_eq!(why, acks.map(|(first, _)| (first, v1::SkipReason::Acked)));
    let status = consumer.ack(v1::AckKind::Cumulative, &[(0, 10)]).await;
    assert_eq!(status, OK);
    let seen = cursor(&next, "s").await;
    assert_eq!((seen.base, seen.backlog_records), (10, 0));
}

#[tokio::test]
async fn second_consumer_is_refused_and_one_that_takes_over_ends_the_first() {
    let world = World::new().await;
    let topic = world.topic("t", 1).await;
    store(&world, &topic, 3).await;
    let mut first = Consumer::open(&world).await;
    first.attached(attach(&topic, "s")).await;
    first.delivery().await;
    let mut second = Consumer::open(&world).await;
    assert_eq!(second.refused(attach(&topic, "s")).await, "CONSUMER_EXISTS");
    let over = v1::Attach {
        takeover: true,
        ..attach(&topic, "s")
    };
    second.attached(over).await;
    assert_eq!(first.detached().await, "CONSUMER_FENCED");
    let void = first.ack(v1::AckKind::Cumulative, &[(0, 3)]).await;
    assert_eq!(void, [v1::AckStatus::NotOwned]);
    assert_eq!(offsets(&second.delivery().await), [0, 1, 2]);
    let other = v1::Attach {
        r#type: v1::SubscriptionType::Failover as i32,
        lane: 2,
        ..attach(&topic, "s")
    };
    assert_eq!(second.refused(other).await, "SUBSCRIPTION_EXISTS");
    let stream = v1::Attach {
        r#type: v1::SubscriptionType::Stream as i32,
        lane: 3,
        ..attach(&topic, "q")
    };
    assert_eq!(second.refused(stream).await, "UNSUPPORTED_TYPE");
}

#[tokio::test]
async fn standby_is_promoted_when_the_active_one_is_gone_or_yields() {
    let world = World::new().await;
    let topic = world.topic("t", 1).await;
    store(&world, &topic, 4).await;
    let as_name = |name: &str| v1::Attach {
        r#type: v1::SubscriptionType::Failover as i32,
        consumer_name: name.to_owned(),
        ..attach(&topic, "s")
    };
    let mut b = Consumer::open(&world).await;
    assert!(b.attached(as_name("b")).await.active);
    b.delivery().await;
    let mut a = Consumer::open(&world).await;
    assert!(!a.attached(as_name("a")).await.active);
    let Item::ActiveChanged(changed) = b.next().await else {
        panic!("b is not told")
    };
    assert!(!changed.active && changed.grace_ms > 0);
    assert_eq!(b.ack(v1::AckKind::Cumulative, &[(0, 1)]).await, OK);
    b.send(consume_up::Item::Yielded(v1::Yielded { lane: 1 }))
        .await;
    let Item::ActiveChanged(changed) = a.next().await else {
        panic!("a is not told")
    };
    assert!(changed.active);
    assert_eq!(changed.base, 1);
    assert_eq!(offsets(&a.delivery().await), [1, 2, 3]);
    let late = b.ack(v1::AckKind::Cumulative, &[(0, 4)]).await;
    assert_eq!(late, [v1::AckStatus::NotOwned]);
    drop(a);
    let Item::ActiveChanged(changed) = b.next().await else {
        panic!("b is not told")
    };
    assert!(changed.active);
    assert_eq!(offsets(&b.delivery().await), [1, 2, 3]);
}

#[tokio::test]
async fn units_are_sent_only_with_credit_in_records_and_bytes() {
    let world = World::new().await;
    let topic = world.topic("t", 1).await;
    for _ in 0..4 {
        store(&world, &topic, 5).await;
    }
    let mut consumer = Consumer::without_credit(&world).await;
    consumer.attached(attach(&topic, "s")).await;
    let short = Duration::from_millis(150);
    consumer.quiet(short).await;
    consumer.credit(1, 0).await;
    consumer.quiet(short).await;
    consumer.credit(0, 1_000_000).await;
    assert_eq!(consumer.delivery().await.end_offset, 5);
    consumer.quiet(short).await;
    // Overdrawn by 4: one more record is nothing yet.
    consumer.credit(4, 0).await;
    consumer.quiet(short).await;
    consumer.credit(1, 0).await;
    assert_eq!(consumer.delivery().await.end_offset, 10);
    let stale = v1::ConsumeCredit {
        credit_epoch: consumer.credit_epoch + 1,
        records: 1_000,
        bytes: 1_000,
        ..v1::ConsumeCredit::default()
    };
    consumer.send(consume_up::Item::Credit(stale)).await;
    consumer.quiet(short).await;
    // A new session begins with nothing, and from the base.
    drop(consumer);
    let mut consumer = Consumer::without_credit(&world).await;
    let over = v1::Attach {
        takeover: true,
        ..attach(&topic, "s")
    };
    assert_eq!(consumer.attached(over).await.base, 0);
    consumer.quiet(short).await;
}

#[tokio::test]
async fn consumer_that_never_acks_is_stopped_and_told_why() {
    let world = World::with(|config| config.unacked_records_max = 8).await;
    let topic = world.topic("t", 1).await;
    for _ in 0..4 {
        store(&world, &topic, 5).await;
    }
    let mut consumer = Consumer::open(&world).await;
    consumer.attached(attach(&topic, "s")).await;
    assert_eq!(consumer.delivery().await.end_offset, 5);
    assert_eq!(consumer.delivery().await.end_offset, 10);
    let Item::Blocked(blocked) = consumer.next().await else {
        panic!("not told")
    };
    assert_eq!(blocked.reason(), v1::BlockedReason::UnackedOfConsumer);
    assert!(!blocked.over && blocked.message.contains('8'));
    consumer.quiet(Duration::from_millis(700)).await;
    let seen = cursor(&world, "s").await;
    assert_eq!((seen.unacked_records, seen.backlog_records), (10, 20));
    assert_eq!(seen.blocked, ["BLOCKED_REASON_UNACKED_OF_CONSUMER"]);
    consumer
        .send_ack(0, v1::AckKind::Cumulative, &[(0, 5)])
        .await;
    let (mut over, mut more, mut receipt) = (false, false, false);
    while !(over && more && receipt) {
        match consumer.next().await {
            Item::Blocked(blocked) => over = blocked.over,
            Item::Delivery(delivery) => more = delivery.end_offset == 15,
            Item::Receipt(_) => receipt = true,
            other => panic!("{other:?}"),
        }
    }
}

/// What was sent and is then trimmed is nothing that a consumer has to ack.
#[tokio::test]
async fn trim_of_what_was_sent_opens_the_window() {
    let world = World::with(|config| config.unacked_records_max = 8).await;
    let topic = world.topic("t", 1).await;
    store(&world, &topic, 5).await;
    store(&world, &topic, 5).await;
    let mut consumer = Consumer::open(&world).await;
    consumer.attached(attach(&topic, "s")).await;
    assert_eq!(consumer.delivery().await.end_offset, 5);
    assert_eq!(consumer.delivery().await.end_offset, 10);
    let all = v1::TrimTopicRequest {
        name: "t".to_owned(),
        partition: vec![v1::TrimPoint::default()],
    };
    world.admin().trim_topic(all).await.unwrap();
    let acked = consumer.ack(v1::AckKind::Cumulative, &[(0, 10)]).await;
    assert_eq!(acked, OK);
    store(&world, &topic, 5).await;
    assert_eq!(consumer.delivery().await.end_offset, 15);
    assert_eq!(cursor(&world, "s").await.unacked_records, 5);
}

/// While the state chain cannot be written acks wait with a reason, and records go on (ARCHITECTURE D6).
#[tokio::test]
async fn acks_wait_with_a_reason_while_the_state_chain_cannot_be_written() {
    let world = World::new().await;
    let topic = world.topic("t", 1).await;
    store(&world, &topic, 5).await;
    let mut consumer = Consumer::open(&world).await;
    consumer.attached(attach(&topic, "s")).await;
    consumer.delivery().await;
    world.bookie.refuse_meta(true);
    consumer
        .send_ack(0, v1::AckKind::Cumulative, &[(0, 3)])
        .await;
    let Item::Blocked(blocked) = consumer.next().await else {
        panic!("not told")
    };
    assert_eq!(blocked.reason(), v1::BlockedReason::AcksWait);
    assert!(!blocked.over && blocked.fault.is_some());
    store(&world, &topic, 5).await;
    assert_eq!(consumer.delivery().await.end_offset, 10);
    assert_eq!(
        cursor(&world, "s").await.base,
        0,
        "only what is durable is shown"
    );
    world.bookie.refuse_meta(false);
    let (mut over, mut receipt) = (false, false);
    while !(over && receipt) {
        match consumer.next().await {
            Item::Blocked(blocked) => over |= blocked.over,
            Item::Receipt(done) => {
                receipt = true;
                assert_eq!(done.statuses().collect::<Vec<_>>(), OK);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(cursor(&world, "s").await.base, 3);
    let next = world.killed().await;
    assert_eq!(cursor(&next, "s").await.base, 3);
}

/// What waits is bounded by what is kept of it, not only by number.
#[tokio::test]
async fn acks_of_many_ranges_that_wait_are_refused_early() {
    let world = World::new().await;
    let topic = world.topic("t", 1).await;
    store(&world, &topic, 5).await;
    let mut consumer = Consumer::open(&world).await;
    consumer.attached(attach(&topic, "s")).await;
    consumer.delivery().await;
    world.bookie.refuse_meta(true);
    let ranges = vec![(0, 1); 10_000];
    for _ in 0..120 {
        consumer.send_ack(0, v1::AckKind::Individual, &ranges).await;
    }
    let refused = loop {
        match consumer.next().await {
            Item::Receipt(receipt) => break receipt,
            Item::Blocked(_) => {}
            other => panic!("{other:?}"),
        }
    };
    assert!(
        refused
            .statuses()
            .all(|status| status == v1::AckStatus::Retry)
    );
    assert_eq!(refused.fault.unwrap().reason, "OVERLOADED");
}

#[tokio::test]
async fn seeks_are_answered_and_void_what_was_delivered_before() {
    let world = World::new().await;
    let topic = world.topic("t", 1).await;
    store(&world, &topic, 10).await;
    let mut consumer = Consumer::open(&world).await;
    consumer.attached(attach(&topic, "s")).await;
    consumer.delivery().await;
    assert_eq!(consumer.ack(v1::AckKind::Cumulative, &[(0, 10)]).await, OK);
    let seek = |seek_id, to| {
        consume_up::Item::Seek(v1::SeekLane {
            lane: 1,
            seek_id,
            to: Some(at(v1::start_at::At::Offset(to))),
        })
    };
    consumer.send(seek(1, 3)).await;
    let Item::SeekDone(done) = consumer.next().await else {
        panic!("not answered")
    };
    assert_eq!((done.seek_id, done.state_epoch, done.base), (1, 1, 3));
    let again = consumer.delivery().await;
    assert_eq!((again.prev_end_offset, again.state_epoch), (3, 1));
    assert_eq!(offsets(&again), [3, 4, 5, 6, 7, 8, 9]);
    let stale = consumer
        .ack_of(0, v1::AckKind::Cumulative, &[(0, 10)])
        .await;
    assert_eq!(stale, [v1::AckStatus::Stale]);
    consumer.send(seek(2, 11)).await;
    let Item::SeekDone(refused) = consumer.next().await else {
        panic!("not answered")
    };
    assert_eq!(refused.fault.unwrap().reason, "OFFSET_OUT_OF_RANGE");
    assert_eq!(
        consumer.ack_of(1, v1::AckKind::Cumulative, &[(0, 5)]).await,
        OK
    );
}

/// Ten thousand seeks as fast as they can be sent: each is answered, by few deltas.
#[tokio::test]
async fn storm_of_seeks_is_coalesced_and_its_last_one_holds() {
    let world = World::new().await;
    let topic = world.topic("t", 1).await;
    store(&world, &topic, 10).await;
    let mut consumer = Consumer::without_credit(&world).await;
    consumer.attached(attach(&topic, "s")).await;
    let sender = consumer.sender();
    tokio::spawn(async move {
        for seek_id in 1..=10_000 {
            let seek = v1::SeekLane {
                lane: 1,
                seek_id,
                to: Some(at(v1::start_at::At::Offset(seek_id % 10))),
            };
            let item = Some(consume_up::Item::Seek(seek));
            sender.send(v1::ConsumeUp { item }).await.unwrap();
        }
    });
    let mut answers = 0;
    loop {
        let Item::SeekDone(done) = consumer.next().await else {
            panic!("not a SeekDone")
        };
        assert_eq!(done.fault, None);
        answers += 1;
        if done.seek_id == 10_000 {
            assert_eq!(done.base, 0);
            break;
        }
    }
    assert!(answers < 10_000, "{answers} deltas");
    let seen = cursor(&world, "s").await;
    assert_eq!((seen.base, seen.backlog_records), (0, 10));
}

#[tokio::test]
async fn lanes_of_one_session_end_alone_and_what_breaks_the_protocol_ends_it() {
    let world = World::new().await;
    let topic = world.topic("t", 2).await;
    let mut consumer = Consumer::open(&world).await;
    consumer.attached(attach(&topic, "s")).await;
    let nowhere = v1::Attach {
        lane: 2,
        partition: super::world::partition(&topic, 7),
        ..attach(&topic, "s")
    };
    assert_eq!(consumer.refused(nowhere).await, "PARTITION_NOT_FOUND");
    store(&world, &topic, 2).await;
    consumer.delivery().await;
    let beyond = consumer.ack(v1::AckKind::Cumulative, &[(0, 3)]).await;
    assert_eq!(beyond, [v1::AckStatus::Invalid]);
    consumer.detach().await;
    consumer.attached(attach(&topic, "s")).await;
    consumer.delivery().await;
    consumer
        .send(consume_up::Item::Attach(attach(&topic, "s")))
        .await;
    let end = loop {
        match consumer.item().await {
            Ok(Some(_)) => {}
            end => break end,
        }
    };
    assert_eq!(
        super::world::reason(end),
        hulse_proto::error::Reason::InvalidRequest
    );
}

#[tokio::test]
async fn drain_answers_acks_and_ends_the_stream_without_an_error() {
    let mut world = World::new().await;
    let topic = world.topic("t", 1).await;
    store(&world, &topic, 5).await;
    let mut consumer = Consumer::open(&world).await;
    consumer.attached(attach(&topic, "s")).await;
    consumer.delivery().await;
    consumer
        .send_ack(0, v1::AckKind::Cumulative, &[(0, 5)])
        .await;
    assert_eq!(consumer.receipt().await, OK);
    world.stop();
    let mut drained = false;
    while let Some(item) = consumer.item().await.unwrap() {
        drained |= matches!(item, Item::Drain(_));
    }
    assert!(drained);
    world.stopped().await;
    let next = world.killed().await;
    assert_eq!(cursor(&next, "s").await.base, 5);
    assert_eq!(earliest().at, Some(v1::start_at::At::Earliest(true)));
}
