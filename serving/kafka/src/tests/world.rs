//! A broker in memory, connections to it, and a client that speaks the messages.

use std::net::SocketAddr;
use std::sync::Arc;

use bytes::{Buf, BufMut, Bytes, BytesMut};
use crc_fast::CrcAlgorithm;
use hulse_proto::batch::{BatchBuilder, Compression, ProducerStamp, RecordRef, decode, split};
use hulse_proto::id::{EntryId, ProducerId};
use hulse_proto::ledger::LedgerKind;
use kafka_protocol::messages::create_topics_request::{CreatableTopic, CreatableTopicConfig};
use kafka_protocol::messages::fetch_request::{FetchPartition, FetchTopic};
use kafka_protocol::messages::fetch_response::PartitionData;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::metadata_response::MetadataResponseTopic;
use kafka_protocol::messages::produce_request::{PartitionProduceData, TopicProduceData};
use kafka_protocol::messages::produce_response::PartitionProduceResponse;
use kafka_protocol::messages::{
    CreateTopicsRequest, FetchRequest, MetadataRequest, ProduceRequest, RequestHeader,
    ResponseHeader, TopicName,
};
use kafka_protocol::protocol::{Decodable, Encodable, HeaderVersion, Request, StrBytes};
use serving_broker::testing::MemoryBroker;
use serving_broker::{BrokerConfig, Front};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};

use crate::connection::Connection;
use crate::link::{Advertise, Served};
use crate::listener::{ListenerConfig, served};

/// Where clients dial.
const LOCAL: &str = "10.1.2.3:9092";
/// Bytes between client and broker that nobody has read.
const PIPE_BYTES: usize = 16 << 10;

/// A broker that is served.
pub(super) struct World {
    pub(super) memory: MemoryBroker,
    pub(super) front: Arc<Front>,
    pub(super) served: Arc<Served>,
}

impl World {
    pub(super) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(super) async fn with(change: impl FnOnce(&mut BrokerConfig)) -> Self {
        Self::over(MemoryBroker::default(), change).await
    }

    pub(super) async fn over(memory: MemoryBroker, change: impl FnOnce(&mut BrokerConfig)) -> Self {
        let front = memory.front(change);
        let config = ListenerConfig {
            name: "test".to_owned(),
            advertise: Advertise::Auto,
            connections_max: 10,
            seed: [4; 32],
        };
        let served = Arc::new(served(&config, &front).await);
        Self {
            memory,
            front,
            served,
        }
    }

    /// Another life of the same broker.
    pub(super) async fn restarted(self) -> Self {
        self.front.partitions().close_all().await;
        Self::over(self.memory, |_| {}).await
    }

    /// Another life of the same broker, after the only ledger of this topic lost what it had in storage.
    pub(super) async fn damaged(self, topic: &str) -> Self {
        let topic = topic.parse().unwrap();
        let topic = self.front.topics().hint(&topic).expect("it was used");
        let partition = topic.partition_ids().next().unwrap();
        let partitions = self.front.partitions();
        let ledgers = partitions.ledgers(partition).await.unwrap();
        let log = ledgers.iter().find(|view| view.kind == LedgerKind::Log);
        partitions.close_all().await;
        let ledger = log.expect("it has records").ledger;
        self.memory.bookie.lose_tail(ledger, EntryId(0));
        Self::over(self.memory, |_| {}).await
    }

    pub(super) fn connect(&self) -> Client {
        let (ours, theirs) = tokio::io::duplex(PIPE_BYTES);
        let address: SocketAddr = LOCAL.parse().unwrap();
        let connection = Connection::new(self.served.clone(), theirs, address, address);
        tokio::spawn(connection.run());
        Client {
            stream: ours,
            correlation: 0,
            received: 0,
        }
    }
}

/// One connection.
pub(super) struct Client {
    pub(super) stream: DuplexStream,
    correlation: i32,
    received: i32,
}

impl Client {
    /// Asks and waits for the answer.
    pub(super) async fn ask<R: Request>(&mut self, version: i16, request: &R) -> R::Response {
        self.send(version, request).await;
        self.receive::<R>(version).await
    }

    /// Asks.
    pub(super) async fn send<R: Request>(&mut self, version: i16, request: &R) {
        self.correlation += 1;
        let frame = frame(version, request, self.correlation);
        self.stream.write_all(&frame).await.unwrap();
    }

    /// Asks what is not answered.
    pub(super) async fn stream_only<R: Request>(&mut self, version: i16, request: &R) {
        self.send(version, request).await;
        self.received += 1;
    }

    /// The next answer, which must be to the oldest question.
    pub(super) async fn receive<R: Request>(&mut self, version: i16) -> R::Response {
        let mut frame = self.frame().await.expect("the connection stands");
        self.received += 1;
        let header = R::Response::header_version(version);
        let header = ResponseHeader::decode(&mut frame, header).unwrap();
        assert_eq!(header.correlation_id, self.received);
        let response = R::Response::decode(&mut frame, version).unwrap();
        assert!(frame.is_empty(), "{} bytes are left", frame.len());
        response
    }

    /// The next frame; `None`: the broker has closed.
    pub(super) async fn frame(&mut self) -> Option<Bytes> {
        let length = self.stream.read_u32().await.ok()?;
        let mut frame = vec![0; length as usize];
        self.stream.read_exact(&mut frame).await.ok()?;
        Some(frame.into())
    }

    pub(super) async fn create(
        &mut self,
        name: &str,
        partitions: i32,
        configs: &[(&str, &str)],
    ) -> i16 {
        let configs = configs.iter().map(|(name, value)| {
            CreatableTopicConfig::default()
                .with_name(str(name))
                .with_value(Some(str(value)))
        });
        let topic = CreatableTopic::default()
            .with_name(topic_name(name))
            .with_num_partitions(partitions)
            .with_replication_factor(-1)
            .with_configs(configs.collect());
        let request = CreateTopicsRequest::default().with_topics(vec![topic]);
        self.ask(7, &request).await.topics[0].error_code
    }

    /// Metadata of one topic, which is made where it is missing.
    pub(super) async fn look_up(&mut self, name: &str) -> MetadataResponseTopic {
        let topic = MetadataRequestTopic::default().with_name(Some(topic_name(name)));
        let request = MetadataRequest::default()
            .with_topics(Some(vec![topic]))
            .with_allow_auto_topic_creation(true);
        let mut response = self.ask(12, &request).await;
        assert_eq!(response.topics.len(), 1);
        response.topics.remove(0)
    }

    /// Produces one batch to partition 0.
    pub(super) async fn produce(&mut self, topic: &str, batch: Bytes) -> PartitionProduceResponse {
        let response = self.ask(11, &produce(topic, -1, vec![(0, batch)])).await;
        response.responses[0].partition_responses[0].clone()
    }

    /// What is in partition 0 from `offset` on, without waiting.
    pub(super) async fn fetch(&mut self, topic: &str, offset: i64) -> PartitionData {
        let response = self.ask(12, &fetch(topic, &[(0, offset)])).await;
        response.responses[0].partitions[0].clone()
    }
}

pub(super) fn frame<R: Request>(version: i16, request: &R, correlation: i32) -> BytesMut {
    let mut frame = BytesMut::new();
    frame.put_u32(0);
    let header = RequestHeader::default()
        .with_request_api_key(R::KEY)
        .with_request_api_version(version)
        .with_correlation_id(correlation)
        .with_client_id(Some(str("test")));
    header
        .encode(&mut frame, R::header_version(version))
        .unwrap();
    request.encode(&mut frame, version).unwrap();
    let length = frame.len() as u32 - 4;
    frame[..4].copy_from_slice(&length.to_be_bytes());
    frame
}

pub(super) fn str(text: &str) -> StrBytes {
    StrBytes::from_string(text.to_owned())
}

pub(super) fn topic_name(name: &str) -> TopicName {
    str(name).into()
}

pub(super) fn produce(topic: &str, acks: i16, batches: Vec<(i32, Bytes)>) -> ProduceRequest {
    let data = batches.into_iter().map(|(index, batch)| {
        PartitionProduceData::default()
            .with_index(index)
            .with_records(Some(batch))
    });
    let topic = TopicProduceData::default()
        .with_name(topic_name(topic))
        .with_partition_data(data.collect());
    ProduceRequest::default()
        .with_acks(acks)
        .with_timeout_ms(30_000)
        .with_topic_data(vec![topic])
}

/// Of partitions from offsets, without a session, with generous limits and no wait.
pub(super) fn fetch(topic: &str, partitions: &[(i32, i64)]) -> FetchRequest {
    let partitions = partitions.iter().map(|(index, offset)| {
        FetchPartition::default()
            .with_partition(*index)
            .with_fetch_offset(*offset)
            .with_partition_max_bytes(1 << 20)
    });
    let topic = FetchTopic::default()
        .with_topic(topic_name(topic))
        .with_partitions(partitions.collect());
    FetchRequest::default()
        .with_max_wait_ms(0)
        .with_min_bytes(1)
        .with_max_bytes(8 << 20)
        .with_session_epoch(-1)
        .with_topics(vec![topic])
}

/// A batch of values with their times.
pub(super) fn batch(compression: Compression, values: &[(i64, &[u8])]) -> Bytes {
    builder(compression, values).build(None)
}

fn builder(compression: Compression, values: &[(i64, &[u8])]) -> BatchBuilder {
    let mut builder = BatchBuilder::new(compression).unwrap();
    for (timestamp, value) in values {
        let record = RecordRef {
            timestamp: *timestamp,
            key: None,
            value: Some(value),
            headers: &[],
        };
        builder.push(&record).unwrap();
    }
    builder
}

/// The batch with other records behind its header, as long and with the checksum as it must be.
pub(super) fn repacked(batch: &[u8], records: &[u8]) -> Bytes {
    let mut batch = batch[..61].to_vec();
    batch.extend_from_slice(records);
    let length = batch.len() as u32 - 12;
    batch[8..12].copy_from_slice(&length.to_be_bytes());
    let checksum = crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, &batch[21..]);
    batch[17..21].copy_from_slice(&(checksum as u32).to_be_bytes());
    batch.into()
}

/// A batch of one record of `bytes`.
pub(super) fn one(bytes: usize) -> Bytes {
    batch(Compression::None, &[(1, &vec![b'v'; bytes])])
}

/// A batch of one record of an idempotent producer.
pub(super) fn stamped(id: i64, epoch: i16, sequence: i32) -> Bytes {
    builder(Compression::None, &[(1, b"v")]).build(Some(ProducerStamp {
        id: ProducerId(id),
        epoch,
        base_sequence: sequence,
    }))
}

/// The records of an answer, as (offset, timestamp, value).
pub(super) fn records(data: &PartitionData) -> Vec<(u64, i64, Bytes)> {
    let bytes = data.records.clone().unwrap_or_default();
    let mut all = Vec::new();
    for batch in split(&bytes) {
        let batch = batch.unwrap();
        let base = (&batch[..8]).get_u64();
        for record in decode(&batch).unwrap() {
            let offset = base + u64::from(record.offset_delta);
            all.push((offset, record.timestamp, record.value.unwrap_or_default()));
        }
    }
    all
}

/// The values of an answer.
pub(super) fn values(data: &PartitionData) -> Vec<Bytes> {
    records(data).into_iter().map(|(.., value)| value).collect()
}
