//! Consumers that do what nobody should: thousands of seeks a second, acknowledgements of what never was, none at all. Each is told so,
//! memory stays flat, others are not hindered, and all is well once it stops.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use futures::SinkExt;
use futures::channel::mpsc;
use hulse_proto::wire::v1::{self, consume_client::ConsumeClient, consume_down, consume_up};
use hulse_sdk::{
    Admin, BlockedReason, Client, Consumed, ConsumerNote, CursorSelection, Offset, Reason, Start,
    SubscriptionConsumer,
};
use tokio::time::timeout;

use super::numbers::{Counting, all_there};
use super::report::{report, rounds};
use super::server::{Server, restarted};

const PORT: u16 = 17_664;
const PATIENCE: Duration = Duration::from_secs(60);
/// Memory may grow so much by what a client does wrong.
const GROWTH_MAX: u64 = 96 << 20;

fn client(server: &Server) -> Client {
    Client::builder(server.address()).build().unwrap()
}

async fn attach(client: &Client, topic: &str) -> SubscriptionConsumer {
    let builder = client.consumer(topic).subscription("s");
    let builder = builder.start(Start::Earliest);
    timeout(PATIENCE, builder.build()).await.unwrap().unwrap()
}

async fn stored(client: &Client, topic: &str, records: u64) {
    let mut sent = Counting::begin(client, topic).await;
    sent.send_many(records, 100).await;
    sent.finish().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn seeks_by_the_thousands_are_answered_and_hinder_nobody() {
    const SEEKERS: u64 = 16;
    const RECORDS: u64 = 1_000;
    let mut server = Server::start(PORT);
    let client = client(&server);
    stored(&client, "sought", RECORDS).await;
    let consumer = attach(&client, "sought").await;
    let mut other = Counting::begin(&client, "other").await;
    other.send(100).await;
    other.producer.flush().await.unwrap();
    let before = server.resident_bytes();
    let seeks = rounds(4_000, 100_000) as u64;
    let (begun, refused) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let seekers = (0..SEEKERS).map(|seeker| {
        let places = (0..seeks / SEEKERS).map(move |seek| (seek * SEEKERS + seeker) % RECORDS);
        tokio::spawn(seek_to(client.admin(), places, refused.clone()))
    });
    let tasks: Vec<_> = seekers.collect();
    // Meanwhile the consumer is asked, seeks itself, and somebody else's records are stored.
    let mut own = 0;
    while tasks.iter().any(|task| !task.is_finished()) {
        let _moved_under_it = timeout(Duration::from_millis(1), consumer.receive()).await;
        consumer
            .seek_partition(0, Start::Offset(Offset(own % RECORDS)))
            .await
            .unwrap();
        own += 1;
        other.send(100).await;
        timeout(PATIENCE, other.producer.flush())
            .await
            .unwrap()
            .unwrap();
    }
    for task in tasks {
        task.await.unwrap();
    }
    let took = begun.elapsed();
    report(&format!(
        "seeks: {:.0} a second, {} refused as too many, memory {} to {} MiB",
        seeks as f64 / took.as_secs_f64(),
        refused.load(Ordering::Relaxed),
        before >> 20,
        server.resident_bytes() >> 20
    ));
    assert!(server.resident_bytes() < before + GROWTH_MAX);
    let acknowledged = other.finish().await;
    all_there(&client, "other", &acknowledged).await;
    drop(consumer);
    // The last word holds, also for the next owner.
    let which = CursorSelection::new("s").topic("sought");
    let admin = client.admin();
    let moved = admin
        .seek_subscription(&which, Start::Offset(Offset(777)), false)
        .await
        .unwrap();
    assert!(moved[0].fault.is_none(), "{moved:?}");
    server = restarted(server).await;
    let consumer = attach(&client, "sought").await;
    let next = timeout(PATIENCE, consumer.receive())
        .await
        .unwrap()
        .unwrap()
        .unwrap();
    assert_eq!(next.offset, Offset(777));
    drop(server);
}

/// Seeks to one place after the other; counts what is refused as too many.
async fn seek_to(admin: Admin, places: impl Iterator<Item = u64>, refused: Arc<AtomicU64>) {
    let which = CursorSelection::new("s").topic("sought");
    for place in places {
        let to = Start::Offset(Offset(place));
        let fault = match admin.seek_subscription(&which, to, false).await {
            Ok(moved) => moved[0].fault.clone().map(|fault| fault.reason),
            Err(error) => Some(error.reason().unwrap_or_else(|| panic!("{error}"))),
        };
        match fault {
            None => {}
            Some(Reason::Overloaded) => drop(refused.fetch_add(1, Ordering::Relaxed)),
            Some(reason) => panic!("{reason:?}"),
        }
    }
}

/// A consumer's session without the SDK, which would not send such things.
struct Bare {
    up: mpsc::Sender<v1::ConsumeUp>,
    down: futures::stream::BoxStream<'static, consume_down::Item>,
    acks: u64,
}

impl Bare {
    async fn open(server: &Server) -> Self {
        let client = ConsumeClient::connect(format!("http://{}", server.address())).await;
        let (mut up, items) = mpsc::channel(16);
        let hello = consume_up::Item::Hello(v1::ConsumeHello {
            client_id: "bare".to_owned(),
            protocol_version: hulse_proto::limits::PROTOCOL_VERSION,
        });
        up.send(v1::ConsumeUp { item: Some(hello) }).await.unwrap();
        let down = client.unwrap().session(items).await.unwrap().into_inner();
        let down = futures::stream::unfold(down, |mut down| async move {
            let next = down.message().await.unwrap()?;
            Some((next.item.unwrap(), down))
        });
        let down = Box::pin(down);
        Self { up, down, acks: 0 }
    }

    async fn send(&mut self, item: consume_up::Item) {
        self.up
            .send(v1::ConsumeUp { item: Some(item) })
            .await
            .unwrap();
    }

    async fn until<T>(&mut self, wanted: impl Fn(consume_down::Item) -> Option<T>) -> T {
        use futures::StreamExt;
        loop {
            let next = timeout(PATIENCE, self.down.next()).await.unwrap();
            if let Some(found) = wanted(next.expect("the session goes on")) {
                return found;
            }
        }
    }

    /// Attaches to partition 0 and lets everything be delivered.
    async fn attach(&mut self, client: &Client, topic: &str) -> u32 {
        let id = client.admin().describe_topic(topic).await.unwrap().id;
        let epoch = self
            .until(|item| match item {
                consume_down::Item::Welcome(welcome) => Some(welcome.credit_epoch),
                _ => None,
            })
            .await;
        self.send(consume_up::Item::Credit(v1::ConsumeCredit {
            credit_epoch: epoch,
            records: 1 << 30,
            bytes: 1 << 30,
            ..v1::ConsumeCredit::default()
        }))
        .await;
        self.send(consume_up::Item::Attach(v1::Attach {
            lane: 1,
            subscription: "s".to_owned(),
            r#type: v1::SubscriptionType::Exclusive as i32,
            partition: Some(v1::Partition {
                topic_uuid: id.to_bytes(),
                index: 0,
            }),
            start: Some(v1::StartAt {
                at: Some(v1::start_at::At::Earliest(true)),
            }),
            ..Default::default()
        }))
        .await;
        self.until(|item| match item {
            consume_down::Item::Attached(attached) => Some(attached.state_epoch),
            consume_down::Item::Detached(detached) => panic!("{detached:?}"),
            _ => None,
        })
        .await
    }

    async fn delivered(&mut self, end: u64) {
        self.until(|item| match item {
            consume_down::Item::Delivery(delivery) => (delivery.end_offset >= end).then_some(()),
            _ => None,
        })
        .await;
    }

    async fn ack(
        &mut self,
        epoch: u32,
        kind: v1::AckKind,
        ranges: &[(u64, u64)],
    ) -> v1::AckReceipt {
        self.acks += 1;
        let ranges = ranges.iter().map(|(first, end)| v1::OffsetRange {
            first: *first,
            end: *end,
        });
        let ack_id = self.acks;
        self.send(consume_up::Item::Ack(v1::AckRecords {
            ack_id,
            lane: 1,
            ranges: ranges.collect(),
            kind: kind as i32,
            want_receipt: true,
            state_epoch: epoch,
            ..v1::AckRecords::default()
        }))
        .await;
        self.until(|item| match item {
            consume_down::Item::Receipt(receipt) if receipt.ack_id == ack_id => Some(receipt),
            _ => None,
        })
        .await
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn acks_of_what_was_never_delivered_move_nothing() {
    use v1::AckKind::{Cumulative, Individual};
    const RECORDS: u64 = 20;
    let mut server = Server::start(PORT + 2);
    let client = client(&server);
    stored(&client, "acked", RECORDS).await;
    let mut bare = Bare::open(&server).await;
    let epoch = bare.attach(&client, "acked").await;
    bare.delivered(RECORDS).await;
    for (kind, first, end) in [
        (Cumulative, 0, RECORDS + 1),
        (Cumulative, 0, u64::MAX),
        (Individual, RECORDS, RECORDS + 5),
        (Individual, 3, RECORDS + 5),
        (Individual, u64::MAX - 1, u64::MAX),
        (Individual, 9, 3),
        (Individual, 5, 5),
    ] {
        let receipt = bare.ack(epoch, kind, &[(first, end)]).await;
        let invalid = [v1::AckStatus::Invalid as i32];
        assert_eq!(
            receipt.statuses, invalid,
            "{kind:?} {first}..{end}: {receipt:?}"
        );
    }
    let many: Vec<(u64, u64)> = (0..20_000).map(|_| (0, 1)).collect();
    let receipt = bare.ack(epoch, Individual, &many).await;
    let words = receipt.fault.clone().unwrap_or_default().message;
    assert!(words.contains("10000"), "{receipt:?}");
    let stale = bare.ack(epoch + 1, Cumulative, &[(0, 3)]).await;
    assert_eq!(stale.statuses, [v1::AckStatus::Stale as i32]);
    // One wrong range spoils no other, and the session lives.
    let receipt = bare
        .ack(epoch, Individual, &[(4, 6), (7, 90), (8, 9)])
        .await;
    let expected = [v1::AckStatus::Ok, v1::AckStatus::Invalid, v1::AckStatus::Ok];
    assert_eq!(receipt.statuses, expected.map(|status| status as i32));
    let receipt = bare.ack(epoch, Cumulative, &[(0, 2)]).await;
    assert_eq!(receipt.statuses, [v1::AckStatus::Ok as i32]);
    drop(bare);
    server = restarted(server).await;
    let consumer = attach(&client, "acked").await;
    for offset in [2, 3, 6, 7].into_iter().chain(9..RECORDS) {
        let record = timeout(PATIENCE, consumer.receive()).await.unwrap();
        assert_eq!(record.unwrap().unwrap().offset, Offset(offset));
    }
    drop(server);
}

/// Takes what comes until the broker says that it sends no more, and why.
async fn until_blocked(
    consumer: &SubscriptionConsumer,
    mut each: impl FnMut(&hulse_sdk::ReceivedRecord),
) -> (u64, BlockedReason, String) {
    let mut records = 0;
    loop {
        match timeout(PATIENCE, consumer.next())
            .await
            .unwrap()
            .unwrap()
            .unwrap()
        {
            Consumed::Record(record) => {
                records += 1;
                each(&record);
            }
            Consumed::Note(ConsumerNote::Blocked {
                reason,
                over: false,
                message,
                ..
            }) => {
                return (records, reason, message);
            }
            _ => {}
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumer_that_never_acknowledges_is_stopped_and_told_and_goes_on_when_it_does() {
    let server = Server::start(PORT + 4);
    let client = client(&server);
    let total = 60_000;
    stored(&client, "ignored", total).await;
    let before = server.resident_bytes();
    let consumer = attach(&client, "ignored").await;
    let mut last = None;
    let (records, reason, message) =
        until_blocked(&consumer, |record| last = Some(record.clone())).await;
    assert_eq!(reason, BlockedReason::UnackedOfConsumer, "{message}");
    assert!(message.contains("ack"), "{message}");
    report(&format!(
        "a consumer that never acknowledges: stopped after {records} records: {message}"
    ));
    assert!(records < total, "the broker never stopped");
    let listed = server.hulse(&["subs", "describe", "ignored", "s", "-j"], "");
    let listed = String::from_utf8_lossy(&listed.stdout).into_owned();
    assert!(
        listed.to_lowercase().contains("unacked_of_consumer"),
        "{listed}"
    );
    // More is stored and others consume it: it is this consumer alone that waits.
    let mut more = Counting::into_existing(&client, "ignored").await;
    more.next = total;
    more.send_many(total, 100).await;
    more.finish().await;
    let grown = server.resident_bytes().saturating_sub(before);
    report(&format!(
        "a consumer that never acknowledges: memory grew by {} MiB",
        grown >> 20
    ));
    assert!(grown < GROWTH_MAX, "{grown}");
    let mut next = records;
    consumer.ack_cumulative(&last.unwrap()).await.unwrap();
    while next < 2 * total {
        let record = timeout(PATIENCE, consumer.receive())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert_eq!((record.offset.0, record.redelivery), (next, false));
        next += 1;
        if next % 1_000 == 0 {
            consumer.ack_cumulative(&record).await.unwrap();
        }
    }
    assert!(consumer.close().await.unwrap().is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumer_that_leaves_too_many_holes_is_stopped_and_told_and_goes_on_when_it_fills_them() {
    let mut server = Server::start(PORT + 6);
    let client = client(&server);
    let total = 60_000;
    stored(&client, "holes", total).await;
    let consumer = attach(&client, "holes").await;
    let mut waiting = Vec::new();
    let mut left = Vec::new();
    let (records, reason, message) = until_blocked(&consumer, |record| match record.offset.0 % 2 {
        0 => left.push(record.clone()),
        _ => waiting.push(consumer.ack(record)),
    })
    .await;
    let by_either = [BlockedReason::AckRanges, BlockedReason::UnackedOfConsumer];
    assert!(by_either.contains(&reason), "{message}");
    report(&format!(
        "a consumer that leaves holes: {reason:?} after {records} records: {message}"
    ));
    assert!(records < total, "the broker never stopped");
    for acknowledgement in waiting {
        timeout(PATIENCE, acknowledgement).await.unwrap().unwrap();
    }
    // The next owner knows every hole.
    server = restarted(server).await;
    for record in &left {
        drop(consumer.ack(record));
    }
    let mut next = None;
    while next.is_none_or(|offset| offset + 1 < total) {
        let record = timeout(PATIENCE, consumer.receive())
            .await
            .unwrap()
            .unwrap()
            .unwrap();
        assert!(
            record.offset.0 % 2 == 0 || record.offset.0 >= records,
            "{} again",
            record.offset
        );
        drop(consumer.ack(&record));
        next = Some(record.offset.0);
    }
    assert!(consumer.close().await.unwrap().is_empty());
    drop(server);
}
