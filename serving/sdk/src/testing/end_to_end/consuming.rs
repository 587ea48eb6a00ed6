//! A subscription against the broker in memory: cuts, take-overs, seeks, delivery modes.

use std::collections::BTreeSet;
use std::time::Duration;

use tokio::time::timeout;

use super::common::{PATIENCE, client, number, send};
use crate::numbers::{NumberChecker, NumberStamper};
use crate::testing::{Faults, Server};
use crate::{
    Client, Consumed, ConsumerNote, DeliveryMode, Offset, Reason, ReceivedRecord, Record, Start,
    SubscriptionConsumer, SubscriptionConsumerBuilder,
};

fn consumer(client: &Client) -> SubscriptionConsumerBuilder {
    client
        .consumer("t")
        .subscription("s")
        .start(Start::Earliest)
}

async fn receive(consumer: &SubscriptionConsumer) -> ReceivedRecord {
    let received = timeout(PATIENCE, consumer.receive()).await;
    received.unwrap().unwrap().unwrap()
}

async fn fill(client: &Client, count: u64) {
    let producer = client.producer("t").max_bytes(1024).build().await.unwrap();
    for ticket in send(&producer, count).await {
        ticket.await.unwrap();
    }
    producer.close().await.unwrap();
}

#[tokio::test]
async fn every_record_is_received_and_what_is_acknowledged_never_again() {
    for seed in 0..4 {
        let server = Server::start(seed, 3).await;
        let client = client(&server);
        fill(&client, 3000).await;
        server.set_faults(Faults {
            cut_before: 10,
            cut_after: 10,
            cut_read: 10,
            ..Faults::default()
        });
        let consumer = consumer(&client)
            .receive_queue_records(50)
            .build()
            .await
            .unwrap();
        let (mut seen, mut certain) = (BTreeSet::new(), BTreeSet::new());
        let mut waiting = Vec::new();
        while certain.len() < 3000 {
            let received = timeout(Duration::from_millis(50), consumer.receive()).await;
            if let Ok(received) = received {
                let record = received.unwrap().unwrap();
                let number = number(&record);
                assert!(!certain.contains(&number), "{number} again, seed {seed}");
                assert_eq!(record.redelivery, !seen.insert(number), "seed {seed}");
                waiting.push((number, consumer.ack(&record)));
            }
            if waiting.len() >= 100 || received_all(&seen) {
                for (number, acknowledgement) in waiting.drain(..) {
                    timeout(PATIENCE, acknowledgement).await.unwrap().unwrap();
                    certain.insert(number);
                }
            }
        }
        assert!(consumer.stats().attachments > 3, "{:?}", consumer.stats());
        assert!(consumer.close().await.unwrap().is_empty());
    }
}

fn received_all(seen: &BTreeSet<u64>) -> bool {
    seen.len() == 3000
}

#[tokio::test]
async fn closed_consumer_tells_what_is_unacknowledged_and_the_next_goes_on_there() {
    let server = Server::start(1, 1).await;
    let client = client(&server);
    fill(&client, 100).await;
    let first = consumer(&client).build().await.unwrap();
    let mut last = None;
    for _ in 0..60 {
        last = Some(receive(&first).await);
        if last.as_ref().unwrap().offset == Offset(39) {
            first.ack_cumulative(last.as_ref().unwrap()).await.unwrap();
        }
    }
    // Not awaited: close waits for its receipt.
    drop(first.ack(&last.unwrap()));
    let open = first.close().await.unwrap();
    assert_eq!(open.to_string(), "partition 0: 40 to 58");
    assert!(
        timeout(PATIENCE, first.receive())
            .await
            .unwrap()
            .unwrap()
            .is_none()
    );
    let second = consumer(&client).build().await.unwrap();
    assert_eq!(receive(&second).await.offset, Offset(40));
    for _ in 0..18 {
        let _ = receive(&second).await;
    }
    let next = receive(&second).await;
    assert_eq!((next.offset, next.redelivery), (Offset(60), false));
    assert_eq!(second.close().await.unwrap().len(), 20);
}

#[tokio::test]
async fn second_consumer_is_refused_or_takes_over_and_fences_the_first() {
    let server = Server::start(1, 2).await;
    let client = client(&server);
    fill(&client, 10).await;
    let first = consumer(&client).build().await.unwrap();
    let held = receive(&first).await;
    let refused = consumer(&client).build().await.unwrap_err();
    assert_eq!(refused.reason(), Some(Reason::ConsumerExists), "{refused}");
    let second = consumer(&client).takeover(true).build().await.unwrap();
    let fenced = loop {
        match timeout(PATIENCE, first.receive()).await.unwrap() {
            Ok(record) => assert!(record.is_some()),
            Err(error) => break error,
        }
    };
    assert!(fenced.is_fenced(), "{fenced}");
    assert!(first.ack(&held).await.unwrap_err().is_fenced());
    for _ in 0..10 {
        let record = receive(&second).await;
        second.ack(&record).await.unwrap();
    }
    let open = first.close().await.unwrap();
    assert!(!open.is_empty());
    assert!(second.close().await.unwrap().is_empty());
}

#[tokio::test]
async fn seek_makes_void_what_was_handed_out_and_goes_on_there() {
    let server = Server::start(1, 1).await;
    let client = client(&server);
    fill(&client, 50).await;
    let consumer = consumer(&client).build().await.unwrap();
    let held = receive(&consumer).await;
    consumer.seek(Start::Offset(Offset(30))).await.unwrap();
    let stale = consumer.ack(&held).await.unwrap_err();
    assert_eq!(stale.reason(), Some(Reason::CursorStale), "{stale}");
    assert_eq!(receive(&consumer).await.offset, Offset(30));
    let outside = consumer.seek(Start::Offset(Offset(999))).await.unwrap_err();
    assert_eq!(outside.reason(), Some(Reason::OffsetOutOfRange));
    assert_eq!(receive(&consumer).await.offset, Offset(31));
    assert!(consumer.seek_partition(7, Start::Latest).await.is_err());
    assert_eq!(consumer.close().await.unwrap().len(), 2);
}

#[tokio::test]
async fn too_many_unacknowledged_records_hold_back_until_one_is_acknowledged() {
    let server = Server::start(1, 1).await;
    let client = client(&server);
    fill(&client, 20).await;
    // Limits of 1 and 1: the smallest that must not be stuck.
    let builder = consumer(&client)
        .max_unacked(1)
        .receive_queue_records(1)
        .receive_queue_bytes(1);
    let consumer = builder.build().await.unwrap();
    for _ in 0..20 {
        let record = receive(&consumer).await;
        let more = timeout(Duration::from_millis(5), consumer.receive()).await;
        assert!(more.is_err(), "{more:?}");
        drop(consumer.ack(&record));
    }
    assert!(consumer.close().await.unwrap().is_empty());
}

#[tokio::test]
async fn end_of_each_partition_is_told_in_its_place() {
    let server = Server::start(1, 2).await;
    let client = client(&server);
    fill(&client, 40).await;
    let consumer = consumer(&client).tell_end(true).build().await.unwrap();
    let (mut records, mut ends) = (0, BTreeSet::new());
    while ends.len() < 2 {
        match timeout(PATIENCE, consumer.next()).await.unwrap().unwrap() {
            Some(Consumed::Record(_)) => records += 1,
            Some(Consumed::Note(ConsumerNote::EndOfPartition { partition, .. })) => {
                ends.insert(partition);
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!(records, 40);
    assert_eq!(consumer.close().await.unwrap().len(), 40);
}

#[tokio::test]
async fn at_most_once_never_hands_out_twice_and_loses_at_most_a_batch() {
    for seed in 0..3 {
        let server = Server::start(seed, 1).await;
        let client = client(&server);
        fill(&client, 1000).await;
        server.set_faults(Faults {
            cut_before: 50,
            cut_after: 50,
            cut_read: 30,
            ..Faults::default()
        });
        let mut seen = BTreeSet::new();
        // Consumers that crash in the middle.
        for _ in 0..5 {
            let mode = DeliveryMode::AtMostOnce;
            let consumer = consumer(&client)
                .delivery_mode(mode)
                .takeover(true)
                .build()
                .await
                .unwrap();
            for _ in 0..150 {
                let Ok(received) = timeout(Duration::from_secs(2), consumer.receive()).await else {
                    break;
                };
                let record = received.unwrap().unwrap();
                assert!(
                    seen.insert(record.offset),
                    "{:?} twice, seed {seed}",
                    record.offset
                );
                consumer.ack(&record).await.unwrap();
            }
            drop(consumer);
        }
        assert!(seen.len() >= 500, "{} of 1000, seed {seed}", seen.len());
    }
}

#[tokio::test]
async fn numbers_stamped_at_send_are_checked_on_arrival() {
    let server = Server::start(5, 2).await;
    server.set_faults(Faults {
        refuse: 20,
        cut_after: 20,
        cut_before: 20,
        ..Faults::default()
    });
    let stamper = NumberStamper::new();
    let client = Client::builder(server.address())
        .interceptor(stamper.clone())
        .build()
        .unwrap();
    let one = client.producer("t").max_bytes(2048).build().await.unwrap();
    let two = client.producer("t").max_bytes(2048).build().await.unwrap();
    for _ in 0..2000 {
        drop(one.send(Record::new("x")).await.unwrap());
        drop(two.send(Record::new("y")).await.unwrap());
    }
    one.close().await.unwrap();
    two.close().await.unwrap();
    assert_eq!(stamper.failed_records(), 0);
    server.set_faults(Faults::default());
    let checker = NumberChecker::new();
    let consumer = consumer(&client)
        .interceptor(checker.clone())
        .build()
        .await
        .unwrap();
    for _ in 0..4000 {
        let record = receive(&consumer).await;
        drop(consumer.ack(&record));
    }
    assert!(consumer.close().await.unwrap().is_empty());
    let report = checker.report();
    assert!(report.is_clean(), "{report:?}");
    assert_eq!(
        (report.records, report.streams, report.unnumbered),
        (4000, 4, 0)
    );
}
