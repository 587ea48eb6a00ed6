//! Producer and reader against the broker in memory, over real sockets.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hulse_proto::batch::{BatchBuilder, ProducerStamp, RecordRef};
use tokio::time::timeout;

use super::{Faults, Server};
use crate::{
    Acks, Client, Compression, Connect, Connecting, ErrorKind, Offset, Producer, ReadRecord,
    Reason, Record, Start, TcpConnect,
};

const PATIENCE: Duration = Duration::from_secs(60);

fn client(server: &Server) -> Client {
    Client::builder(server.address())
        .seed([7; 32])
        .build()
        .unwrap()
}

async fn read_all(client: &Client, topic: &str) -> Vec<ReadRecord> {
    let reader = client.reader(topic).start(Start::Earliest).follow(false);
    let mut reader = reader.build().await.unwrap();
    let mut records = Vec::new();
    while let Some(record) = timeout(PATIENCE, reader.next()).await.unwrap().unwrap() {
        records.push(record);
    }
    assert!(reader.at_end());
    records
}

fn number(record: &ReadRecord) -> u64 {
    String::from_utf8(record.value.clone().unwrap().to_vec())
        .unwrap()
        .parse()
        .unwrap()
}

/// Checks that records of a key stand in order, none twice, and returns how many there are.
fn check_order(records: &[ReadRecord]) -> usize {
    let mut last: BTreeMap<_, u64> = BTreeMap::new();
    for record in records {
        let before = last.insert(record.key.clone(), number(record));
        assert!(
            before.is_none_or(|before| before < number(record)),
            "order or duplicate"
        );
    }
    records.len()
}

async fn send(producer: &Producer, count: u64) -> Vec<crate::Ticket> {
    let mut tickets = Vec::new();
    for number in 0..count {
        let key = format!("key {}", number % 13);
        let record = Record::new(number.to_string()).key(key);
        tickets.push(
            timeout(PATIENCE, producer.send(record))
                .await
                .unwrap()
                .unwrap(),
        );
    }
    tickets
}

#[tokio::test]
async fn record_comes_back_with_everything_it_had() {
    let server = Server::start(1, 4).await;
    let client = client(&server);
    for compression in [Compression::None, Compression::Lz4, Compression::Zstd] {
        let topic = format!("topic-{compression}");
        let producer = client
            .producer(&topic)
            .compression(compression)
            .build()
            .await
            .unwrap();
        let record = Record::new("value")
            .key("key")
            .header("name", "a")
            .header("name", "b")
            .timestamp(77);
        let receipt = producer.send(record).await.unwrap().await.unwrap();
        assert_eq!(receipt.offset, Some(Offset(0)));
        assert_eq!(receipt.partition, crate::partition_of_key(b"key", 4));
        producer.close().await.unwrap();
        let records = read_all(&client, &topic).await;
        assert_eq!(records.len(), 1);
        let record = &records[0];
        assert_eq!(record.partition, receipt.partition);
        assert_eq!((record.offset, record.timestamp), (Offset(0), 77));
        assert_eq!(record.key.as_deref(), Some(&b"key"[..]));
        let headers = record
            .headers
            .iter()
            .map(|header| header.value.clone().unwrap());
        assert_eq!(headers.collect::<Vec<_>>(), ["a", "b"]);
    }
}

#[tokio::test]
async fn broken_links_and_refusals_lose_duplicate_and_reorder_nothing() {
    for seed in 0..4 {
        let server = Server::start(seed, 3).await;
        server.set_faults(Faults {
            refuse: 20,
            cut_after: 15,
            cut_before: 15,
            cut_read: 15,
            refuse_finally: 0,
        });
        let client = client(&server);
        let producer = client.producer("t").max_bytes(2048).build().await.unwrap();
        let tickets = send(&producer, 20_000).await;
        for ticket in tickets {
            timeout(PATIENCE, ticket).await.unwrap().unwrap();
        }
        let stats = producer.stats();
        assert_eq!((stats.records_stored, stats.unacked_bytes), (20_000, 0));
        assert!(stats.lanes_opened > 3 && stats.refusals > 0 && stats.batches_duplicate > 0);
        producer.close().await.unwrap();
        let records = read_all(&client, "t").await;
        assert_eq!(check_order(&records), 20_000, "seed {seed}");
    }
}

#[tokio::test]
async fn final_refusals_are_told_and_the_rest_is_stored_in_order() {
    let server = Server::start(9, 2).await;
    server.set_faults(Faults {
        refuse_finally: 30,
        cut_after: 10,
        ..Faults::default()
    });
    let client = client(&server);
    let producer = client.producer("t").max_bytes(1024).build().await.unwrap();
    let tickets = send(&producer, 5000).await;
    let (mut stored, mut unknown) = (0, 0);
    for ticket in tickets {
        match timeout(PATIENCE, ticket).await.unwrap() {
            Ok(_) => stored += 1,
            Err(error) => {
                assert_eq!(error.reason(), Some(Reason::InvalidRecord));
                unknown += usize::from(error.possibly_written());
            }
        }
    }
    assert!(stored < 5000);
    producer.close().await.unwrap();
    server.set_faults(Faults::default());
    let records = read_all(&client, "t").await;
    let count = check_order(&records);
    assert!(
        (stored..=stored + unknown).contains(&count),
        "{stored} {unknown} {count}"
    );
}

#[tokio::test]
async fn dropped_tickets_are_told_by_flush_and_close() {
    let server = Server::start(1, 1).await;
    let client = client(&server);
    let producer = client.producer("t").build().await.unwrap();
    drop(producer.send(Record::new("stored")).await.unwrap());
    producer.flush().await.unwrap();
    server.set_faults(Faults {
        refuse_finally: 1000,
        ..Faults::default()
    });
    drop(producer.send(Record::new("refused")).await.unwrap());
    let error = producer.flush().await.unwrap_err();
    assert_eq!((error.lost_tickets(), error.possibly_written()), (1, false));
    producer.flush().await.unwrap();
    drop(producer.send(Record::new("refused")).await.unwrap());
    assert_eq!(producer.close().await.unwrap_err().lost_tickets(), 1);
    assert_eq!(producer.stats().tickets_lost, 2);
    let error = producer.send(Record::new("late")).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Conflict);
    producer.close().await.unwrap();
}

#[tokio::test]
async fn acks_none_hands_over_and_flush_waits_for_the_broker() {
    let server = Server::start(1, 2).await;
    let client = client(&server);
    let producer = client.producer("t").acks(Acks::None).build().await.unwrap();
    for ticket in send(&producer, 1000).await {
        assert_eq!(ticket.await.unwrap().offset, None);
    }
    producer.close().await.unwrap();
    assert_eq!(check_order(&read_all(&client, "t").await), 1000);
}

#[tokio::test]
async fn server_that_is_down_gives_the_delivery_timeout_and_certainty() {
    let server = Server::start(1, 1).await;
    let client = client(&server);
    let builder = client
        .producer("t")
        .delivery_timeout(Duration::from_millis(300));
    let producer = builder.build().await.unwrap();
    producer
        .send(Record::new("a"))
        .await
        .unwrap()
        .await
        .unwrap();
    server.set_faults(Faults {
        cut_before: 1000,
        ..Faults::default()
    });
    let error = producer
        .send(Record::new("b"))
        .await
        .unwrap()
        .await
        .unwrap_err();
    assert_eq!(error.kind(), ErrorKind::OutcomeUnknown);
    assert!(error.possibly_written() && error.is_retryable());
    // It goes on in a higher epoch.
    server.set_faults(Faults::default());
    let receipt = producer
        .send(Record::new("c"))
        .await
        .unwrap()
        .await
        .unwrap();
    assert_eq!(receipt.offset, Some(Offset(1)));
    producer.close().await.unwrap();
}

#[tokio::test]
async fn back_pressure_waits_and_try_send_does_not() {
    let server = Server::start(1, 1).await;
    server.set_faults(Faults {
        cut_before: 1000,
        ..Faults::default()
    });
    let client = client(&server);
    let builder = client.producer("t").max_unacked_bytes(2 << 20);
    let producer = builder.build().await.unwrap();
    let record = || Record::new(vec![0; 700 << 10]);
    let tickets = [
        producer.try_send(record()).unwrap(),
        producer.try_send(record()).unwrap(),
    ];
    let error = producer.try_send(record()).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Overloaded);
    let waits = timeout(Duration::from_millis(50), producer.send(record())).await;
    assert!(waits.is_err());
    server.set_faults(Faults::default());
    timeout(PATIENCE, producer.send(record()))
        .await
        .unwrap()
        .unwrap()
        .await
        .unwrap();
    for ticket in tickets {
        ticket.await.unwrap();
    }
    let too_large = producer
        .send(Record::new(vec![0; 2 << 20]))
        .await
        .unwrap_err();
    assert_eq!(too_large.reason(), Some(Reason::BatchTooLarge));
    assert_eq!(producer.stats().unacked_bytes, 0);
}

fn raw_batch(id: i64, base_sequence: i32, count: u32) -> bytes::Bytes {
    let mut builder = BatchBuilder::new(Compression::None).unwrap();
    for index in 0..count {
        let value = (base_sequence as u32 + index + 1).to_string();
        let record = RecordRef {
            timestamp: 1,
            key: None,
            value: Some(value.as_bytes()),
            headers: &[],
        };
        builder.push(&record).unwrap();
    }
    builder.build(Some(ProducerStamp {
        id: hulse_proto::id::ProducerId(id),
        epoch: 0,
        base_sequence,
    }))
}

/// Case LD-04.
#[tokio::test]
async fn mixed_batch_is_refused_and_a_resumed_producer_goes_on() {
    let server = Server::start(1, 1).await;
    let client = client(&server);
    let first = client.producer("t").build().await.unwrap();
    let identity = first.identity().await.unwrap().unwrap();
    let resumed = || client.producer("t").resume(identity).build();
    let raw = |base, count| raw_batch(identity.id.0, base, count);
    crate::raw::send(&first, 0, raw(0, 3), 3)
        .unwrap()
        .await
        .unwrap();
    let wrong = [
        (1, 4, Reason::SequenceOverlap),
        (4, 2, Reason::OutOfOrderSequence),
        (0, 7, Reason::SequenceOverlap),
        (7, 1, Reason::OutOfOrderSequence),
    ];
    for (base, count, reason) in wrong {
        let producer = resumed().await.unwrap();
        let error = crate::raw::send(&producer, 0, raw(base, count), count)
            .unwrap()
            .await;
        assert_eq!(error.unwrap_err().reason(), Some(reason));
    }
    let producer = resumed().await.unwrap();
    assert_eq!(producer.last_sequence(0).await.unwrap(), 2);
    for value in 4..=9 {
        let ticket = producer.send(Record::new(value.to_string())).await.unwrap();
        ticket.await.unwrap();
    }
    assert_eq!(producer.last_sequence(0).await.unwrap(), 8);
    producer.close().await.unwrap();
    let records = read_all(&client, "t").await;
    assert_eq!(
        records.iter().map(number).collect::<Vec<_>>(),
        (1..=9).collect::<Vec<_>>()
    );
}

/// Case LD-07, step 1.
#[tokio::test]
async fn producer_goes_on_after_its_state_expired() {
    let server = Server::start(1, 1).await;
    let client = client(&server);
    let producer = client.producer("t").build().await.unwrap();
    for round in 0..3 {
        for number in 0..10 {
            let record = Record::new((round * 10 + number).to_string());
            producer.send(record).await.unwrap().await.unwrap();
        }
        server.forget_producers();
        // The second time with a new link.
        if round == 1 {
            server.set_faults(Faults {
                cut_after: 500,
                ..Faults::default()
            });
        }
    }
    server.set_faults(Faults::default());
    producer.close().await.unwrap();
    assert_eq!(check_order(&read_all(&client, "t").await), 30);
}

#[tokio::test]
async fn recreated_topic_takes_later_records_and_ends_its_reader() {
    let server = Server::start(1, 1).await;
    let client = client(&server);
    let producer = client.producer("t").build().await.unwrap();
    producer
        .send(Record::new("1"))
        .await
        .unwrap()
        .await
        .unwrap();
    let reader = client.reader("t").start(Start::Earliest);
    let mut reader = reader.build().await.unwrap();
    assert_eq!(number(&reader.next().await.unwrap().unwrap()), 1);
    server.recreate("public/default/t");
    let lost = producer
        .send(Record::new("2"))
        .await
        .unwrap()
        .await
        .unwrap_err();
    assert_eq!(lost.reason(), Some(Reason::TopicRecreated));
    let receipt = producer
        .send(Record::new("3"))
        .await
        .unwrap()
        .await
        .unwrap();
    assert_eq!(receipt.offset, Some(Offset(0)));
    let error = timeout(PATIENCE, reader.next()).await.unwrap().unwrap_err();
    assert_eq!(error.reason(), Some(Reason::TopicRecreated));
    assert_eq!(reader.next().await.unwrap(), None);
    producer.close().await.unwrap();
}

#[tokio::test]
async fn reader_starts_where_it_is_told_and_follows() {
    let server = Server::start(1, 1).await;
    let client = client(&server);
    let missing = client.reader("missing").build().await.unwrap_err();
    assert_eq!(missing.reason(), Some(Reason::TopicNotFound));
    let producer = client
        .producer("t")
        .linger(Duration::from_millis(20))
        .build()
        .await
        .unwrap();
    let tickets = send(&producer, 10).await;
    for ticket in tickets {
        ticket.await.unwrap();
    }
    // The start lies inside the one batch.
    let reader = client.reader("t").start(Start::Offset(Offset(7)));
    let mut reader = reader.build().await.unwrap();
    for expected in 7..10 {
        assert_eq!(number(&reader.next().await.unwrap().unwrap()), expected);
    }
    assert_eq!(reader.position(0), Some(Offset(10)));
    let mut latest = client.reader("t").build().await.unwrap();
    let waits = timeout(Duration::from_millis(100), latest.next()).await;
    assert!(waits.is_err() && latest.at_end());
    producer
        .send(Record::new("10"))
        .await
        .unwrap()
        .await
        .unwrap();
    for reader in [&mut reader, &mut latest] {
        assert_eq!(
            number(
                &timeout(PATIENCE, reader.next())
                    .await
                    .unwrap()
                    .unwrap()
                    .unwrap()
            ),
            10
        );
    }
    let outside = client.reader("t").start(Start::Offset(Offset(99)));
    let error = outside.build().await.unwrap().next().await.unwrap_err();
    assert_eq!(error.reason(), Some(Reason::OffsetOutOfRange));
    producer.close().await.unwrap();
}

#[tokio::test]
async fn client_finds_a_broker_that_answers_and_names_one_that_does_not() {
    let server = Server::start(1, 1).await;
    let endpoints = format!("127.0.0.1:1,grpc://{}", server.address());
    Client::builder(endpoints)
        .build()
        .unwrap()
        .ping()
        .await
        .unwrap();
    let builder = Client::builder("127.0.0.1:1").request_timeout(Duration::from_millis(100));
    let error = builder.build().unwrap().ping().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Unavailable);
    assert!(!error.possibly_written(), "{error}");
}

/// A connector of the user's: counts, then dials TCP.
#[derive(Clone, Default)]
struct Counting(Arc<AtomicUsize>);

impl Connect for Counting {
    fn connect(&self, authority: &str) -> Connecting {
        self.0.fetch_add(1, Ordering::Relaxed);
        TcpConnect.connect(authority)
    }
}

#[tokio::test]
async fn control_produce_and_each_reader_have_connections_of_their_own() {
    let server = Server::start(1, 2).await;
    let dials = Counting::default();
    let client = Client::builder(server.address())
        .connector(dials.clone())
        .build()
        .unwrap();
    let count = || dials.0.load(Ordering::Relaxed);
    assert_eq!(count(), 0);
    let producers = [client.producer("t"), client.producer("u")];
    for producer in producers {
        let producer = producer.build().await.unwrap();
        for ticket in send(&producer, 100).await {
            ticket.await.unwrap();
        }
        producer.close().await.unwrap();
    }
    assert_eq!(count(), 2);
    for readers in 1..3 {
        assert_eq!(read_all(&client, "t").await.len(), 100);
        assert_eq!(count(), 2 + readers);
    }
}
