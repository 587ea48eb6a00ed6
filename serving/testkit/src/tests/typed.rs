//! Values instead of bytes (serving.md E5.5), interceptors, traces and delivery modes of the SDK, against a broker.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use hulse_sdk::schema::{Json, Protobuf, Raw, Schema, Text, TypedRecord};
use hulse_sdk::trace_context::{Trace, TraceHeaders, TraceParent};
use hulse_sdk::{
    Client, DeadLetters, DeliveryMode, ErrorKind, Interceptor, ReadRecord, Record, Refusal,
    Sharing, Start,
};

use super::support::{PATIENCE, cursor, number, send, share, until};
use crate::TestBroker;

type Order = (String, u64);

fn order(number: u64) -> Order {
    (format!("order {number}"), number)
}

/// Two orders with poison between them.
async fn send_poison(client: &Client) {
    client.admin().create_topic("t", 1).await.unwrap();
    let producer = client.producer("t").build().await.unwrap();
    let orders = producer.clone().typed(Json::<Order>::new());
    let first = TypedRecord::new(order(1)).key("k").header("h", "v");
    orders.send(first).await.unwrap().await.unwrap();
    producer
        .send(Record::new("{poison"))
        .await
        .unwrap()
        .await
        .unwrap();
    orders.send(order(3)).await.unwrap().await.unwrap();
    producer
        .send(Record::tombstone("k"))
        .await
        .unwrap()
        .await
        .unwrap();
    producer.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn poison_fails_one_value_of_a_reader_and_of_an_only_consumer() {
    let cluster = TestBroker::start().await.unwrap();
    let client = cluster.client();
    send_poison(&client).await;
    let builder = client.reader("t").start(Start::Earliest).follow(false);
    let mut reader = builder.build().await.unwrap().typed(Json::<Order>::new());
    let mut values = Vec::new();
    while let Some(record) = reader.next().await.unwrap() {
        values.push(record.value().map_err(|error| error.kind()));
    }
    let expected = [
        Ok(order(1)),
        Err(ErrorKind::Corrupt),
        Ok(order(3)),
        Err(ErrorKind::Invalid),
    ];
    assert_eq!(values, expected);
    let builder = client.consumer("t").subscription("s");
    let consumer = builder.start(Start::Earliest).build().await.unwrap();
    let consumer = consumer.typed(Json::<Order>::new());
    let mut values = Vec::new();
    for _ in 0..4 {
        let record = consumer.receive().await.unwrap().unwrap();
        values.push(record.optional_value().map_err(|error| error.kind()));
        consumer.ack(&record).await.unwrap();
    }
    let expected = [
        Ok(Some(order(1))),
        Err(ErrorKind::Corrupt),
        Ok(Some(order(3))),
        Ok(None),
    ];
    assert_eq!(values, expected);
    let left = consumer.close().await.unwrap();
    assert!(left.is_empty());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn poison_of_a_queue_is_a_dead_letter_and_the_rest_is_handled() {
    let cluster = TestBroker::start().await.unwrap();
    let client = cluster.client();
    send_poison(&client).await;
    let sharing = Sharing {
        attempts_max: Some(2),
        dead_letters: DeadLetters::Topic("graves".to_owned()),
        ..Sharing::default()
    };
    let builder = client.queue_consumer("t").subscription("s");
    let builder = builder.start(Start::Earliest).sharing(sharing);
    let consumer = builder.build().await.unwrap().typed(Json::<Order>::new());
    let handled: Arc<Mutex<Vec<u64>>> = Arc::default();
    let (worker, seen) = (consumer.clone(), handled.clone());
    let working = tokio::spawn(async move {
        let handler = |(_, number): Order, _| {
            seen.lock().unwrap().push(number);
            async { Ok::<_, String>(()) }
        };
        worker.handle(4, handler).await
    });
    until("nothing is left", async || {
        cursor(&client, "t").await.backlog_records == 0
    })
    .await;
    consumer.close().await.unwrap();
    working.await.unwrap().unwrap();
    let mut handled = handled.lock().unwrap().clone();
    handled.sort_unstable();
    assert_eq!(handled, [1, 3]);
    let graves = client.reader("graves").start(Start::Earliest).follow(false);
    let mut graves = graves.build().await.unwrap();
    let mut offsets = Vec::new();
    while let Some(letter) = graves.next().await.unwrap() {
        let mut headers = letter.headers.iter();
        let offset = headers.find(|header| header.key == "hulse.dead-letter.offset");
        offsets.push(number(offset.unwrap().value.as_deref()));
    }
    offsets.sort_unstable();
    assert_eq!(offsets, [1, 3], "the poison and the tombstone");
}

/// One value through a topic of its own.
async fn through<S: Schema>(client: &Client, topic: &str, schema: S, value: S::Value) -> S::Value {
    let producer = client.producer(topic).build().await.unwrap();
    let producer = producer.typed(schema.clone());
    producer.send(value).await.unwrap().await.unwrap();
    let builder = client.queue_consumer(topic).subscription("s");
    let builder = builder.start(Start::Earliest);
    let consumer = builder.build().await.unwrap().typed(schema);
    let message = consumer.next().await.unwrap().unwrap();
    consumer.ack(&message).await.unwrap();
    let value = message.value().unwrap();
    consumer.close().await.unwrap();
    value
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_schema_carries_its_values() {
    let cluster = TestBroker::start().await.unwrap();
    let client = cluster.client();
    let found = through(&client, "raw", Raw, bytes::Bytes::from_static(&[0, 255])).await;
    assert_eq!(found, &[0, 255][..]);
    let found = through(&client, "text", Text, "äöü".to_owned()).await;
    assert_eq!(found, "äöü");
    let found = through(&client, "json", Json::<Order>::new(), order(7)).await;
    assert_eq!(found, order(7));
    let range = hulse_proto::wire::v1::OffsetRange { first: 3, end: 9 };
    let found = through(&client, "proto", Protobuf::new(), range).await;
    assert_eq!(found, range);
}

/// Refuses records whose number is odd, the first time.
struct Picky(Mutex<Vec<u64>>);

impl Interceptor for Picky {
    fn before_deliver(&self, _: &str, record: ReadRecord) -> Result<ReadRecord, Refusal> {
        let found = number(record.value.as_deref());
        let mut refused = self.0.lock().unwrap();
        if found % 2 == 1 && !refused.contains(&found) {
            refused.push(found);
            return Err("odd".into());
        }
        Ok(record)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn interceptor_of_a_queue_refuses_a_record_which_then_comes_again_as_failed() {
    let cluster = TestBroker::start().await.unwrap();
    let client = cluster.client();
    let producer = client.producer("t").build().await.unwrap();
    send(&producer, 0..6, 1).await;
    let builder = client.queue_consumer("t").subscription("s");
    let builder = builder
        .start(Start::Earliest)
        .interceptor(Picky(Mutex::default()));
    let consumer = builder.build().await.unwrap();
    let (mut refused, mut taken) = (0, Vec::new());
    while taken.len() < 6 {
        match consumer.next().await {
            Ok(message) => {
                let message = message.unwrap();
                let found = number(message.value.as_deref());
                taken.push((found, message.delivery_count()));
                consumer.ack(&message).await.unwrap();
            }
            Err(error) => {
                assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
                refused += 1;
            }
        }
    }
    taken.sort_unstable();
    let expected = [(0, 1), (1, 2), (2, 1), (3, 2), (4, 1), (5, 2)];
    assert_eq!((refused, &taken[..]), (3, &expected[..]));
    consumer.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn record_of_at_most_once_is_acked_before_it_is_handed_over() {
    let cluster = TestBroker::start().await.unwrap();
    let client = cluster.client();
    let producer = client.producer("t").build().await.unwrap();
    send(&producer, 0..5, 1).await;
    let build = async |mode| {
        let builder = client.queue_consumer("t").subscription("s");
        let builder = builder.start(Start::Earliest).delivery_mode(mode);
        builder.build().await.unwrap()
    };
    let consumer = build(DeliveryMode::AtMostOnce).await;
    // Nothing is handed over while storage says nothing, and nothing is lost by asking.
    cluster.hold_storage(true);
    let none = consumer.receive(3, Duration::from_millis(200)).await;
    assert!(none.unwrap().is_empty());
    cluster.hold_storage(false);
    let mut taken = Vec::new();
    while taken.len() < 3 {
        let next = consumer.receive(3 - taken.len(), PATIENCE).await;
        taken.extend(next.unwrap());
    }
    assert!(cursor(&client, "t").await.backlog_records <= 2);
    consumer.ack(&taken[0]).await.unwrap();
    assert!(consumer.nack(&taken[1]).await.is_err(), "it is acked");
    // As a crash: what was handed over and not processed does not come again.
    drop((taken, consumer));
    let rest = build(DeliveryMode::AtLeastOnce).await;
    send(&producer, 5..6, 1).await;
    loop {
        let message = rest.next().await.unwrap().unwrap();
        let found = number(message.value.as_deref());
        assert!(found > 2, "{found}");
        rest.ack(&message).await.unwrap();
        if found == 5 {
            break;
        }
    }
    rest.close().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn trace_of_a_record_goes_on_in_what_its_handler_sends() {
    let cluster = TestBroker::start().await.unwrap();
    let received: Arc<Mutex<Vec<String>>> = Arc::default();
    let heard = received.clone();
    let context = TraceHeaders::new().on_receive(move |topic, _, trace| {
        heard
            .lock()
            .unwrap()
            .push(format!("{topic} {}", trace.parent));
    });
    let client = cluster.client_builder().interceptor(context);
    let client = client.build().unwrap();
    let producer = client.producer("first").build().await.unwrap();
    let next = client.producer("second").build().await.unwrap();
    let parent = TraceParent::new([7; 16], [9; 8], true).unwrap();
    let traced = Trace::new(parent).scope(producer.send(Record::new("1")));
    traced.await.unwrap().await.unwrap();
    send(&next, 0..1, 1).await;
    let consumer = share(&client, "first", "one", false).await;
    let message = consumer.next().await.unwrap().unwrap();
    let trace = Trace::read(&message.headers).unwrap();
    trace.scope(async { send(&next, 1..2, 1).await }).await;
    consumer.ack(&message).await.unwrap();
    let builder = client.reader("second").start(Start::Earliest).follow(false);
    let mut reader = builder.build().await.unwrap();
    let (first, second) = (reader.next().await.unwrap(), reader.next().await.unwrap());
    assert_eq!(Trace::read(&first.unwrap().headers), None);
    let second = Trace::read(&second.unwrap().headers).unwrap();
    assert_eq!(second.parent, parent);
    let told = received.lock().unwrap().clone();
    let expected = ["first", "second"].map(|topic| format!("public/default/{topic} {parent}"));
    assert_eq!(told, expected);
    consumer.close().await.unwrap();
}
