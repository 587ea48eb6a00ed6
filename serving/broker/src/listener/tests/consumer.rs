//! A consumer session as a client would hold it.

use std::time::Duration;

use bytes::Bytes;
use hulse_proto::limits::{MESSAGE_BYTES_MAX, PROTOCOL_VERSION};
use hulse_proto::wire::v1::{self, consume_down::Item, consume_up, produce_down::Item as Down};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::session::Session;
use super::world::{World, partition, plain};

/// Longest wait for the next item.
const WAIT: Duration = Duration::from_secs(10);

/// An open session.
pub(super) struct Consumer {
    up: mpsc::Sender<v1::ConsumeUp>,
    down: Streaming<v1::ConsumeDown>,
    pub(super) credit_epoch: u64,
    /// Deliveries so far.
    last_seq: u64,
}

/// What a lane attaches with.
pub(super) fn attach(topic: &Bytes, name: &str) -> v1::Attach {
    v1::Attach {
        lane: 1,
        subscription: name.to_owned(),
        r#type: v1::SubscriptionType::Exclusive as i32,
        partition: partition(topic, 0),
        start: Some(earliest()),
        ..Default::default()
    }
}

pub(super) fn earliest() -> v1::StartAt {
    at(v1::start_at::At::Earliest(true))
}

pub(super) fn at(at: v1::start_at::At) -> v1::StartAt {
    v1::StartAt { at: Some(at) }
}

/// Offsets of a delivery.
pub(super) fn offsets(delivery: &v1::Delivery) -> Vec<u64> {
    let ranges = delivery.acquired.iter();
    ranges.flat_map(|range| range.first..range.end).collect()
}

/// Stores one batch of `records` in partition 0.
pub(super) async fn store(world: &World, topic: &Bytes, records: u32) {
    store_in(world, topic, 0, records).await;
}

/// Stores one batch of `records`.
pub(super) async fn store_in(world: &World, topic: &Bytes, index: u32, records: u32) {
    let mut session = Session::open(world).await;
    session.lane(0, topic, index, v1::Acks::Quorum, -1).await;
    assert!(matches!(session.next().await, Down::Opened(_)));
    session.batch(0, 0, plain(records, 10)).await;
    assert!(matches!(session.next().await, Down::Ack(_)));
}

impl Consumer {
    /// With credit for everything.
    pub(super) async fn open(world: &World) -> Self {
        let mut consumer = Self::without_credit(world).await;
        consumer.credit(1 << 40, 1 << 40).await;
        consumer
    }

    pub(super) async fn without_credit(world: &World) -> Self {
        let (up, items) = mpsc::channel(64);
        let mut client = v1::consume_client::ConsumeClient::new(world.channel.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX);
        let hello = v1::ConsumeHello {
            client_id: "test".to_owned(),
            protocol_version: PROTOCOL_VERSION,
        };
        let hello = v1::ConsumeUp {
            item: Some(consume_up::Item::Hello(hello)),
        };
        up.send(hello).await.unwrap();
        let down = client.session(ReceiverStream::new(items)).await.unwrap();
        let mut consumer = Self {
            up,
            down: down.into_inner(),
            credit_epoch: 0,
            last_seq: 0,
        };
        let Item::Welcome(welcome) = consumer.next().await else {
            panic!("no Welcome")
        };
        consumer.credit_epoch = welcome.credit_epoch;
        consumer
    }

    pub(super) async fn send(&self, item: consume_up::Item) {
        let up = v1::ConsumeUp { item: Some(item) };
        self.up.send(up).await.unwrap();
    }

    /// For a task that sends while this one receives.
    pub(super) fn sender(&self) -> mpsc::Sender<v1::ConsumeUp> {
        self.up.clone()
    }

    pub(super) async fn credit(&mut self, records: u64, bytes: u64) {
        let credit = v1::ConsumeCredit {
            credit_epoch: self.credit_epoch,
            records,
            bytes,
            ..v1::ConsumeCredit::default()
        };
        self.send(consume_up::Item::Credit(credit)).await;
    }

    /// The next item or the end, without heartbeats.
    pub(super) async fn item(&mut self) -> Result<Option<Item>, Status> {
        loop {
            let next = tokio::time::timeout(WAIT, self.down.message()).await;
            let Some(down) = next.expect("nothing came")? else {
                return Ok(None);
            };
            match down.item.expect("an item is of a kind") {
                Item::Heartbeat(_) => {}
                Item::Delivery(delivery) => {
                    assert_eq!(delivery.delivery_seq, self.last_seq + 1);
                    self.last_seq += 1;
                    return Ok(Some(Item::Delivery(delivery)));
                }
                item => return Ok(Some(item)),
            }
        }
    }

    pub(super) async fn next(&mut self) -> Item {
        self.item().await.unwrap().expect("the session ended")
    }

    /// Nothing comes for this long.
    pub(super) async fn quiet(&mut self, wait: Duration) {
        let next = tokio::time::timeout(wait, self.item()).await;
        assert!(next.is_err(), "{next:?}");
    }

    pub(super) async fn attached(&mut self, attach: v1::Attach) -> v1::Attached {
        self.send(consume_up::Item::Attach(attach)).await;
        match self.next().await {
            Item::Attached(attached) => attached,
            other => panic!("{other:?}"),
        }
    }

    /// The reason of an attach that is refused.
    pub(super) async fn refused(&mut self, attach: v1::Attach) -> String {
        self.send(consume_up::Item::Attach(attach)).await;
        self.detached().await
    }

    /// The reason for which a lane ended.
    pub(super) async fn detached(&mut self) -> String {
        match self.next().await {
            Item::Detached(detached) => detached.fault.map_or_else(String::new, |f| f.reason),
            other => panic!("{other:?}"),
        }
    }

    pub(super) async fn delivery(&mut self) -> v1::Delivery {
        match self.next().await {
            Item::Delivery(delivery) => delivery,
            other => panic!("{other:?}"),
        }
    }

    pub(super) async fn ack(
        &mut self,
        kind: v1::AckKind,
        ranges: &[(u64, u64)],
    ) -> Vec<v1::AckStatus> {
        self.ack_of(0, kind, ranges).await
    }

    /// Acks on lane 1 and waits for the receipt.
    pub(super) async fn ack_of(
        &mut self,
        state_epoch: u32,
        kind: v1::AckKind,
        ranges: &[(u64, u64)],
    ) -> Vec<v1::AckStatus> {
        self.send_ack(state_epoch, kind, ranges).await;
        self.receipt().await
    }

    pub(super) async fn send_ack(
        &self,
        state_epoch: u32,
        kind: v1::AckKind,
        ranges: &[(u64, u64)],
    ) {
        let ranges = ranges.iter().map(|(first, end)| v1::OffsetRange {
            first: *first,
            end: *end,
        });
        let ack = v1::AckRecords {
            ack_id: 7,
            lane: 1,
            ranges: ranges.collect(),
            kind: kind as i32,
            want_receipt: true,
            state_epoch,
            ..v1::AckRecords::default()
        };
        self.send(consume_up::Item::Ack(ack)).await;
    }

    pub(super) async fn receipt(&mut self) -> Vec<v1::AckStatus> {
        match self.next().await {
            Item::Receipt(receipt) => {
                assert_eq!((receipt.ack_id, receipt.lane), (7, 1));
                receipt.statuses().collect()
            }
            other => panic!("{other:?}"),
        }
    }

    pub(super) async fn detach(&mut self) {
        self.send(consume_up::Item::Detach(v1::Detach { lane: 1 }))
            .await;
        assert_eq!(self.detached().await, "");
    }
}

/// The cursor of a subscription on partition 0, as Describe shows it.
pub(super) async fn cursor(world: &World, name: &str) -> v1::CursorDescription {
    let request = v1::DescribeSubscriptionRequest {
        subscription: name.to_owned(),
        topic: String::new(),
        acked_ranges: true,
        without_cursors: false,
    };
    let described = world.subscriptions().describe(request).await.unwrap();
    let cursor = described.into_inner().cursors.swap_remove(0);
    assert_eq!(cursor.fault, None);
    cursor
}

/// Makes a subscription.
pub(super) async fn create(
    world: &World,
    topic: &str,
    name: &str,
    start: Option<v1::StartAt>,
) -> Result<v1::CreateSubscriptionResponse, Status> {
    let request = v1::CreateSubscriptionRequest {
        subscription: name.to_owned(),
        topic: topic.to_owned(),
        r#type: v1::SubscriptionType::Exclusive as i32,
        start,
        policies: None,
    };
    let created = world.subscriptions().create(request).await;
    created.map(tonic::Response::into_inner)
}
