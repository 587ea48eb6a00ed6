//! Reading, topics and connections.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::time::timeout;

use super::common::{PATIENCE, client, number, read_all, send};
use crate::testing::Server;
use crate::{
    Client, Compression, Connect, Connecting, ErrorKind, Offset, Reason, Record, Start, TcpConnect,
};

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
    let builder = Client::builder("127.0.0.1:1").request_timeout(Duration::from_secs(2));
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
