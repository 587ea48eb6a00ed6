//! A produce session as a client has it.

use std::time::Duration;

use bytes::Bytes;
use hulse_proto::limits::PROTOCOL_VERSION;
use hulse_proto::wire::v1::{self, produce_down::Item, produce_up};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::world::{World, partition};

/// Both directions of one session.
pub(super) struct Session {
    up: Option<mpsc::Sender<v1::ProduceUp>>,
    down: Streaming<v1::ProduceDown>,
}

impl Session {
    /// A session that has said nothing yet.
    pub(super) async fn silent(world: &World) -> Self {
        let (up, items) = mpsc::channel(10_000);
        let mut client = v1::produce_client::ProduceClient::new(world.channel.clone());
        let down = client
            .session(ReceiverStream::new(items))
            .await
            .unwrap()
            .into_inner();
        Self { up: Some(up), down }
    }

    /// A session after Welcome and its first Credit.
    pub(super) async fn open(world: &World) -> Self {
        let mut session = Self::silent(world).await;
        session.hello(PROTOCOL_VERSION).await;
        assert!(matches!(session.next().await, Item::Welcome(_)));
        assert!(matches!(session.next().await, Item::Credit(_)));
        session
    }

    /// A session with lane 0 open on partition 0.
    pub(super) async fn on(world: &World, topic: &Bytes) -> Self {
        let mut session = Self::open(world).await;
        session.lane(0, topic, 0, v1::Acks::Quorum, -1).await;
        assert!(matches!(session.next().await, Item::Opened(_)));
        session
    }

    pub(super) async fn send(&self, item: produce_up::Item) {
        self.up
            .as_ref()
            .unwrap()
            .send(v1::ProduceUp { item: Some(item) })
            .await
            .unwrap();
    }

    /// As [`Session::send`]; a session that is over is fine.
    pub(super) async fn try_send(&self, item: produce_up::Item) {
        let sent = self
            .up
            .as_ref()
            .unwrap()
            .send(v1::ProduceUp { item: Some(item) })
            .await;
        drop(sent);
    }

    pub(super) async fn hello(&self, protocol_version: u32) {
        let client_id = "test".to_owned();
        self.send(produce_up::Item::Hello(v1::ProduceHello {
            client_id,
            protocol_version,
        }))
        .await;
    }

    pub(super) async fn lane(
        &self,
        lane: u32,
        topic: &Bytes,
        index: u32,
        acks: v1::Acks,
        producer_id: i64,
    ) {
        let open = v1::OpenLane {
            lane,
            partition: partition(topic, index),
            acks: acks as i32,
            producer_id,
            producer_epoch: if producer_id < 0 { -1 } else { 0 },
        };
        self.send(produce_up::Item::Open(open)).await;
    }

    pub(super) async fn batch(&self, lane: u32, seq: u64, batch: Bytes) {
        self.send(produce_up::Item::Batch(v1::ProduceBatch {
            lane,
            seq,
            batch,
        }))
        .await;
    }

    pub(super) async fn resume(&self, lane: u32, from_seq: u64) {
        self.send(produce_up::Item::Resume(v1::ResumeLane { lane, from_seq }))
            .await;
    }

    pub(super) async fn flush(&self, lane: u32, seq: u64) {
        self.send(produce_up::Item::Flush(v1::FlushLane { lane, seq }))
            .await;
    }

    pub(super) async fn close_lane(&self, lane: u32) {
        self.send(produce_up::Item::Close(v1::CloseLane { lane }))
            .await;
    }

    /// No more items will come.
    pub(super) fn finish(&mut self) {
        self.up = None;
    }

    /// The next item or the end of the stream.
    pub(super) async fn end(&mut self) -> Result<Option<Item>, Status> {
        let next = tokio::time::timeout(Duration::from_secs(10), self.down.message());
        let next = next.await.expect("the broker is silent")?;
        Ok(next.and_then(|down| down.item))
    }

    /// The next item.
    pub(super) async fn next(&mut self) -> Item {
        self.end().await.unwrap().expect("the stream ended")
    }

    /// The next item, in short words; grants of credit are passed over.
    pub(super) async fn word(&mut self) -> String {
        loop {
            return match self.next().await {
                Item::Credit(_) => continue,
                Item::Ack(ack) => {
                    let offsets: Vec<_> = ack.batches.iter().map(|b| b.base_offset).collect();
                    format!("ack {}.{} {offsets:?}", ack.lane, ack.first_seq)
                }
                Item::Nack(nack) => {
                    format!(
                        "nack {}.{} {}",
                        nack.lane,
                        nack.seq,
                        nack.fault.unwrap().reason
                    )
                }
                Item::Closed(closed) => {
                    let reason = closed.fault.map_or("-".to_owned(), |fault| fault.reason);
                    format!("closed {} {reason}", closed.lane)
                }
                Item::Opened(opened) => format!("opened {}", opened.lane),
                Item::Flushed(flushed) => format!("flushed {}.{}", flushed.lane, flushed.seq),
                Item::Fenced(fenced) => format!("fenced {}", fenced.lane),
                other => format!("{other:?}"),
            };
        }
    }
}
