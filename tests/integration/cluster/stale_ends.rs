//! A broker that was cut from metadata alone, or was frozen, and whose partitions another one took over: it tells nobody where their logs
//! ended when they were its own.

use std::time::{Duration, Instant};

use futures::StreamExt as _;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::log_client::LogClient;
use hulse_proto::wire::v1::lookup_client::LookupClient;
use hulse_proto::wire::v1::read_response::Item;
use hulse_sdk::{Client, Record};

use super::owners::{client_at, runtime};
use super::processes::{Cluster, Node};

const PORT: u16 = 18_830;
const DEAF_PORT: u16 = 19_010;
const FROZEN_PORT: u16 = 18_860;
const TOPIC: &str = "ends";
const PARTITIONS: u32 = 8;
/// Above a lease, and what etcd takes to end it.
const OVER: Duration = Duration::from_secs(6);

/// One broker, asked alone: nobody leads away from it.
struct Asked {
    topic: bytes::Bytes,
    offsets: Asking<v1::OffsetsRequest, u64>,
    reads: Asking<v1::ReadRequest, Read>,
}

/// A call of the one connection.
type Asking<Q, A> = Box<dyn Fn(Q) -> BoxFuture<'static, Result<A, Reason>> + Send + Sync>;

impl Asked {
    /// And the partitions of the topic that it has open.
    async fn new(address: &str, broker: &str) -> (Self, Vec<u32>) {
        let url = format!("http://{address}");
        let request = v1::ResolveRequest {
            topics: vec![TOPIC.to_owned()],
            auto_create: false,
        };
        let mut lookup = LookupClient::connect(url.clone()).await.unwrap();
        let found = lookup.resolve(request).await.unwrap().into_inner();
        let found = found.topics.into_iter().next().unwrap();
        let own = found.partitions.iter().filter(|of| of.broker == broker);
        let own = own.map(|of| of.index).collect();
        let log = LogClient::connect(url).await.unwrap();
        let reading = log.clone();
        let asked = Self {
            topic: found.topic_uuid,
            offsets: Box::new(move |request| {
                let mut log = log.clone();
                Box::pin(async move {
                    let answer = log.offsets(request).await;
                    let answer = answer.map_err(|status| reason(Fault::from_status(&status)))?;
                    Ok(answer.into_inner().high_watermark)
                })
            }),
            reads: Box::new(move |request| {
                let mut log = reading.clone();
                Box::pin(async move {
                    let answer = log.read(request).await;
                    let answer = answer.map_err(|status| reason(Fault::from_status(&status)))?;
                    let items = answer
                        .into_inner()
                        .map(|item| item.map_err(|status| reason(Fault::from_status(&status))));
                    Ok(Read(items.boxed()))
                })
            }),
        };
        (asked, own)
    }

    fn partition(&self, index: u32) -> Option<v1::Partition> {
        Some(v1::Partition {
            topic_uuid: self.topic.clone(),
            index,
        })
    }

    /// Where it says that a log ends.
    async fn end(&self, index: u32) -> Result<u64, Reason> {
        let request = v1::OffsetsRequest {
            partition: self.partition(index),
            at_time: None,
        };
        (self.offsets)(request).await
    }

    async fn read(&self, index: u32, follow: bool) -> Result<Read, Reason> {
        let request = v1::ReadRequest {
            partition: self.partition(index),
            start: 0,
            max_bytes_in_flight: 0,
            follow,
        };
        (self.reads)(request).await
    }
}

struct Read(BoxStream<'static, Result<v1::ReadResponse, Reason>>);

impl Read {
    /// The next end that it is told, or why it ends.
    async fn told(&mut self) -> Result<u64, Reason> {
        loop {
            let answer = self.0.next().await.expect("a read ends with a word");
            if let Some(Item::EndOfLog(end)) = answer?.item {
                return Ok(end.offset);
            }
        }
    }
}

fn reason(fault: Option<Fault>) -> Reason {
    fault.expect("a broker answers with faults").reason
}

/// Led away, or told to come again.
fn is_led_on(told: Result<u64, Reason>) -> bool {
    matches!(
        told,
        Err(Reason::PartitionMoved | Reason::MetadataUnavailable)
    )
}

/// A record to each partition.
async fn send(client: &Client) {
    let producer = client.producer(TOPIC).build().await.unwrap();
    for partition in 0..PARTITIONS {
        let ticket = producer.send(Record::new("x").partition(partition)).await;
        ticket.unwrap().await.unwrap();
    }
    producer.close().await.unwrap();
}

#[test]
fn broker_without_metadata_tells_no_end_of_a_log_that_another_one_continues() {
    let Some(mut cluster) = Cluster::start_linked(PORT, 3) else {
        return;
    };
    cluster.add_broker();
    cluster.add_broker();
    let runtime = runtime();
    let at = [cluster.broker_address(0), cluster.broker_address(1)];
    let (first, second) = (client_at(&at[0]), client_at(&at[1]));
    let (asked, own) = runtime.block_on(async {
        first.admin().create_topic(TOPIC, PARTITIONS).await.unwrap();
        send(&first).await;
        Asked::new(&at[0], "broker-1").await
    });
    assert!((1..8).contains(&own.len()), "{own:?}");
    let mut followed = runtime.block_on(asked.read(own[0], true)).unwrap();
    assert_eq!(runtime.block_on(followed.told()), Ok(1));
    cluster.cut(Node::Broker(0), Node::Etcd);
    std::thread::sleep(OVER);
    runtime.block_on(async {
        // Its own as long as nobody asks for them elsewhere, by the word of bookies.
        for index in &own {
            assert_eq!(asked.end(*index).await, Ok(1));
            assert_eq!(asked.read(*index, false).await.unwrap().told().await, Ok(1));
        }
        send(&second).await;
        for index in &own {
            let told = asked.end(*index).await;
            assert!(is_led_on(told), "partition {index}: {told:?}");
            if let Ok(mut read) = asked.read(*index, false).await {
                let told = read.told().await;
                assert!(is_led_on(told), "partition {index}: {told:?}");
            }
        }
        // Who waits at the end hears of it without having asked.
        let began = Instant::now();
        let told = followed.told().await;
        assert!(is_led_on(told), "{told:?}");
        assert!(
            began.elapsed() < Duration::from_secs(5),
            "{:?}",
            began.elapsed()
        );
    });
    cluster.heal();
    cluster.stop();
}

#[test]
fn broker_that_hears_neither_metadata_nor_bookies_says_so_until_it_does() {
    let Some(mut cluster) = Cluster::start_linked(DEAF_PORT, 3) else {
        return;
    };
    cluster.add_broker();
    let runtime = runtime();
    let at = cluster.broker_address(0);
    let client = client_at(&at);
    let (asked, own) = runtime.block_on(async {
        client
            .admin()
            .create_topic(TOPIC, PARTITIONS)
            .await
            .unwrap();
        send(&client).await;
        Asked::new(&at, "broker-1").await
    });
    assert_eq!(own.len(), PARTITIONS as usize);
    cluster.cut(Node::Broker(0), Node::Etcd);
    cluster.cut(Node::Broker(0), Node::Bookie(0));
    std::thread::sleep(OVER);
    // Two of three bookies are enough.
    assert_eq!(runtime.block_on(asked.end(0)), Ok(1));
    cluster.cut(Node::Broker(0), Node::Bookie(1));
    let told = runtime.block_on(asked.end(0));
    assert_eq!(told, Err(Reason::MetadataUnavailable));
    cluster.heal();
    let began = Instant::now();
    while runtime.block_on(asked.end(0)) != Ok(1) {
        assert!(began.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(200));
    }
    cluster.stop();
}

#[test]
fn first_word_of_a_frozen_broker_that_wakes_is_no_old_end() {
    let Some(mut cluster) = Cluster::start(FROZEN_PORT, 3) else {
        return;
    };
    cluster.add_broker();
    cluster.add_broker();
    let runtime = runtime();
    let at = [cluster.broker_address(0), cluster.broker_address(1)];
    let (first, second) = (client_at(&at[0]), client_at(&at[1]));
    let (asked, own) = runtime.block_on(async {
        first.admin().create_topic(TOPIC, PARTITIONS).await.unwrap();
        send(&first).await;
        Asked::new(&at[0], "broker-1").await
    });
    for index in &own {
        assert_eq!(runtime.block_on(asked.end(*index)), Ok(1));
    }
    cluster.brokers[0].signal("-STOP");
    std::thread::sleep(OVER);
    runtime.block_on(send(&second));
    // The questions lie before it when it wakes.
    let asking = runtime.spawn(async move {
        let ends = own.iter().map(|index| asked.end(*index));
        (futures::future::join_all(ends).await, asked)
    });
    std::thread::sleep(Duration::from_millis(500));
    cluster.brokers[0].signal("-CONT");
    let (told, asked) = runtime.block_on(asking).unwrap();
    assert!(told.iter().all(|told| is_led_on(*told)), "{told:?}");
    // It comes back to itself, and names the other one.
    let began = Instant::now();
    while runtime.block_on(asked.end(0)) == Err(Reason::MetadataUnavailable) {
        assert!(began.elapsed() < Duration::from_secs(10));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(runtime.block_on(asked.end(0)), Err(Reason::PartitionMoved));
    cluster.stop();
}
