//! A broker for a test, and what is sent to it.

use std::sync::Arc;

use bookie_metadata::MemoryStore;
use bookie_metadata::testing::FaultyStore;
use bytes::Bytes;
use hulse_proto::batch::{BatchBuilder, Compression, ProducerStamp, RecordRef};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{NodeName, ProducerId};
use hulse_proto::limits::MESSAGE_BYTES_MAX;
use hulse_proto::wire::v1;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tonic::transport::{Channel, Endpoint};

use crate::testing::{MemoryBookie, MemoryBroker};
use crate::{BrokerConfig, ServeError, serve};

/// A serving broker; ends when dropped or stopped.
pub(super) struct World {
    pub(super) memory: MemoryBroker,
    pub(super) channel: Channel,
    endpoint: Endpoint,
    pub(super) bookie: Arc<MemoryBookie>,
    pub(super) metadata: Arc<FaultyStore<MemoryStore>>,
    http: std::net::SocketAddr,
    shutdown: CancellationToken,
    serving: Option<JoinHandle<Result<(), ServeError>>>,
}

impl Drop for World {
    fn drop(&mut self) {
        self.shutdown.cancel();
    }
}

impl World {
    pub(super) async fn new() -> Self {
        Self::with(|_| {}).await
    }

    pub(super) async fn with(change: impl FnOnce(&mut BrokerConfig)) -> Self {
        Self::over(MemoryBroker::default(), change).await
    }

    /// Another life of the broker over the same storage. This one lives on and does not know, as after a lost network: to everybody
    /// else that is a kill.
    pub(super) async fn killed(&self) -> Self {
        Self::over(self.memory.clone(), |_| {}).await
    }

    /// "host:port" of its listener.
    pub(super) fn address(&self) -> String {
        let authority = self.endpoint.uri().authority();
        authority.map(ToString::to_string).unwrap()
    }

    pub(super) async fn over(memory: MemoryBroker, change: impl FnOnce(&mut BrokerConfig)) -> Self {
        let grpc = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let http = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let (address, http_address) = (grpc.local_addr().unwrap(), http.local_addr().unwrap());
        let mut config = BrokerConfig::new(NodeName::new("broker-1").unwrap(), address.to_string());
        change(&mut config);
        let broker = memory.broker(config);
        let MemoryBroker {
            bookie, metadata, ..
        } = memory.clone();
        let shutdown = CancellationToken::new();
        let serving = tokio::spawn(serve(broker, grpc, http, shutdown.clone()));
        let endpoint = Channel::from_shared(format!("http://{address}")).unwrap();
        let endpoint = endpoint.tcp_nodelay(true);
        let channel = endpoint.connect().await.unwrap();
        Self {
            memory,
            channel,
            endpoint,
            bookie,
            metadata,
            http: http_address,
            shutdown,
            serving: Some(serving),
        }
    }

    /// Begins the shutdown; [`World::stopped`] waits for its end.
    pub(super) fn stop(&self) {
        self.shutdown.cancel();
    }

    pub(super) async fn stopped(&mut self) {
        self.serving.take().unwrap().await.unwrap().unwrap();
    }

    /// The answer of the HTTP listener, headers included.
    pub(super) async fn get(&self, path: &str) -> String {
        let mut socket = TcpStream::connect(self.http).await.unwrap();
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
        socket.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        socket.read_to_string(&mut answer).await.unwrap();
        answer
    }

    pub(super) fn admin(&self) -> v1::admin_client::AdminClient<Channel> {
        v1::admin_client::AdminClient::new(self.channel.clone())
    }

    pub(super) fn lookup(&self) -> v1::lookup_client::LookupClient<Channel> {
        v1::lookup_client::LookupClient::new(self.channel.clone())
    }

    /// Service Log on a connection of its own.
    pub(super) async fn another(&self) -> v1::log_client::LogClient<Channel> {
        let channel = self.endpoint.connect().await.unwrap();
        v1::log_client::LogClient::new(channel).max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    pub(super) fn log(&self) -> v1::log_client::LogClient<Channel> {
        v1::log_client::LogClient::new(self.channel.clone())
            .max_decoding_message_size(MESSAGE_BYTES_MAX)
    }

    pub(super) fn subscriptions(&self) -> v1::subscriptions_client::SubscriptionsClient<Channel> {
        v1::subscriptions_client::SubscriptionsClient::new(self.channel.clone())
    }

    /// Makes a topic; its identity.
    pub(super) async fn topic(&self, name: &str, partitions: u32) -> Bytes {
        let request = v1::CreateTopicRequest {
            name: name.to_owned(),
            partitions,
            ..Default::default()
        };
        let made = self
            .admin()
            .create_topic(request)
            .await
            .unwrap()
            .into_inner();
        made.topic.unwrap().topic_uuid
    }
}

pub(super) fn partition(topic_uuid: &Bytes, index: u32) -> Option<v1::Partition> {
    Some(v1::Partition {
        topic_uuid: topic_uuid.clone(),
        index,
    })
}

/// A batch of `records` records of `bytes` each, without a producer id.
pub(super) fn plain(records: u32, bytes: usize) -> Bytes {
    builder(records, bytes).build(None)
}

/// A batch of one record from an idempotent producer.
pub(super) fn stamped(id: i64, sequence: i32) -> Bytes {
    let stamp = ProducerStamp {
        id: ProducerId(id),
        epoch: 0,
        base_sequence: sequence,
    };
    builder(1, 10).build(Some(stamp))
}

fn builder(records: u32, bytes: usize) -> BatchBuilder {
    let value = vec![b'v'; bytes];
    let mut builder = BatchBuilder::new(Compression::None).unwrap();
    for timestamp in 0..i64::from(records) {
        let record = RecordRef {
            timestamp,
            key: None,
            value: Some(&value),
            headers: &[],
        };
        builder.push(&record).unwrap();
    }
    builder
}

/// The reason of a failed call.
pub(super) fn reason<T: std::fmt::Debug>(result: Result<T, tonic::Status>) -> Reason {
    fault(result).reason
}

pub(super) fn fault<T: std::fmt::Debug>(result: Result<T, tonic::Status>) -> Fault {
    let status = result.unwrap_err();
    Fault::from_status(&status).unwrap_or_else(|| panic!("not one of our faults: {status:?}"))
}
