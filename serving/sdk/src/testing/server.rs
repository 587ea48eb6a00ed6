//! A broker in memory: Lookup, Txn, Produce and Log as far as this crate's tests need them, with dice for refusals and broken links.
//! It reorders nothing.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bytes::Bytes;
use futures::Stream;
use hulse_proto::batch::{ProducerStamp, place, verify_produced};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{Offset, OwnerEpoch, TopicId};
use hulse_proto::limits::BATCH_BYTES_MAX;
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::consume_server::ConsumeServer;
use hulse_proto::wire::v1::log_server::LogServer;
use hulse_proto::wire::v1::lookup_server::LookupServer;
use hulse_proto::wire::v1::produce_server::ProduceServer;
use hulse_proto::wire::v1::txn_server::TxnServer;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

use super::consume::{Cursor, CursorKey};
use super::partition::{Partition, Verdict};

pub(super) type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// Chances of a thousand, per batch or message.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Faults {
    /// Refuse for now.
    pub(crate) refuse: u32,
    /// Store, and break the session before the answer.
    pub(crate) cut_after: u32,
    /// Break the session without storing.
    pub(crate) cut_before: u32,
    /// Break a read stream.
    pub(crate) cut_read: u32,
    /// Refuse for ever.
    pub(crate) refuse_finally: u32,
}

#[derive(Default)]
pub(super) struct Log {
    pub(super) partition: Partition,
    pub(super) batches: Vec<(u64, Bytes)>,
}

struct Topic {
    id: TopicId,
    logs: Vec<Log>,
}

pub(super) struct State {
    address: SocketAddr,
    topics: Mutex<BTreeMap<String, Topic>>,
    dice: Mutex<(Faults, ChaCha8Rng)>,
    next_producer: AtomicI64,
    /// Changes with each stored batch.
    pub(super) stored: watch::Sender<u64>,
    partitions: u32,
    pub(super) cursors: Mutex<BTreeMap<CursorKey, Cursor>>,
    pub(super) next_session: AtomicI64,
}

/// A running fake. Dropping it breaks every link.
pub(crate) struct Server {
    state: Arc<State>,
    task: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start(seed: u64, partitions: u32) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let state = Arc::new(State {
            address: listener.local_addr().unwrap(),
            topics: Mutex::default(),
            dice: Mutex::new((Faults::default(), ChaCha8Rng::seed_from_u64(seed))),
            next_producer: AtomicI64::new(100),
            stored: watch::channel(0).0,
            partitions,
            cursors: Mutex::default(),
            next_session: AtomicI64::new(1),
        });
        let service = Service(Arc::clone(&state));
        let serving = tonic::transport::Server::builder()
            .add_service(LookupServer::new(service.clone()))
            .add_service(TxnServer::new(service.clone()))
            .add_service(LogServer::new(service.clone()))
            .add_service(ConsumeServer::new(service.clone()))
            .add_service(ProduceServer::new(service).max_decoding_message_size(BATCH_BYTES_MAX * 2))
            .serve_with_incoming(TcpListenerStream::new(listener));
        let task = tokio::spawn(async move { serving.await.unwrap() });
        Self { state, task }
    }

    pub(crate) fn address(&self) -> String {
        self.state.address.to_string()
    }

    pub(crate) fn set_faults(&self, faults: Faults) {
        self.state.dice.lock().unwrap().0 = faults;
    }

    pub(crate) fn forget_producers(&self) {
        for topic in self.state.lock().values_mut() {
            topic
                .logs
                .iter_mut()
                .for_each(|log| log.partition.forget_producers());
        }
    }

    /// Makes a topic anew under its name.
    pub(crate) fn recreate(&self, topic: &str) {
        self.state.lock().remove(topic);
        self.state.resolve(topic, true);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl State {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Topic>> {
        self.topics.lock().unwrap()
    }

    pub(super) fn hit(&self, chance: impl Fn(&Faults) -> u32) -> bool {
        let (faults, rng) = &mut *self.dice.lock().unwrap();
        rng.random_range(0..1000) < chance(faults)
    }

    fn resolve(&self, name: &str, auto_create: bool) -> v1::ResolvedTopic {
        let mut topics = self.lock();
        if auto_create && !topics.contains_key(name) {
            let id =
                uuid::Uuid::from_u128(self.next_producer.fetch_add(1, Ordering::Relaxed) as u128);
            let logs = (0..self.partitions).map(|_| Log::default()).collect();
            topics.insert(
                name.to_owned(),
                Topic {
                    id: TopicId(id),
                    logs,
                },
            );
        }
        let Some(topic) = topics.get(name) else {
            let fault = Fault::new(
                Reason::TopicNotFound,
                format!("topic {name} does not exist"),
            );
            return v1::ResolvedTopic {
                name: name.to_owned(),
                fault: Some(fault.to_wire()),
                ..Default::default()
            };
        };
        let owners = (0..topic.logs.len() as u32).map(|index| v1::PartitionOwner {
            index,
            endpoint: self.address.to_string(),
            leader_epoch: 1,
            ..Default::default()
        });
        v1::ResolvedTopic {
            name: name.to_owned(),
            topic_uuid: topic.id.to_bytes(),
            partitions: owners.collect(),
            fault: None,
        }
    }

    pub(super) fn with_log<T>(
        &self,
        partition: &v1::Partition,
        work: impl FnOnce(&mut Log) -> T,
    ) -> Result<T, Fault> {
        let mut topics = self.lock();
        let id = TopicId::from_slice(&partition.topic_uuid);
        let topic = topics.values_mut().find(|topic| Some(topic.id) == id);
        let log = topic.and_then(|topic| topic.logs.get_mut(partition.index as usize));
        log.map(work)
            .ok_or_else(|| Fault::new(Reason::TopicNotFound, "no such partition"))
    }

    pub(super) fn store(
        &self,
        partition: &v1::Partition,
        batch: &Bytes,
    ) -> Result<v1::AckedBatch, Fault> {
        let header = verify_produced(batch, BATCH_BYTES_MAX)
            .map_err(|error| Fault::new(error.reason(), error.to_string()))?;
        let stamp = (header.producer_id.0 >= 0).then_some(ProducerStamp {
            id: header.producer_id,
            epoch: header.producer_epoch,
            base_sequence: header.base_sequence,
        });
        let verdict = self.with_log(partition, |log| {
            let verdict = log.partition.take(stamp, header.count);
            if let Verdict::Stored(base) = verdict {
                let placed = place(batch, Offset(base), OwnerEpoch(1)).concat();
                log.batches.push((base, placed.into()));
            }
            verdict
        })?;
        self.stored.send_modify(|count| *count += 1);
        let (base_offset, duplicate) = match verdict {
            Verdict::Stored(base_offset) => (base_offset, false),
            Verdict::Duplicate(base_offset) => (base_offset, true),
            Verdict::Refused(reason) => return Err(Fault::new(reason, "sequence is wrong")),
        };
        Ok(v1::AckedBatch {
            base_offset,
            append_time: 1,
            duplicate,
        })
    }
}

#[derive(Clone)]
pub(super) struct Service(pub(super) Arc<State>);

#[tonic::async_trait]
impl v1::lookup_server::Lookup for Service {
    async fn resolve(
        &self,
        request: Request<v1::ResolveRequest>,
    ) -> Result<Response<v1::ResolveResponse>, Status> {
        let request = request.into_inner();
        let names = request.topics.iter();
        let topics = names
            .map(|name| self.0.resolve(name, request.auto_create))
            .collect();
        Ok(Response::new(v1::ResolveResponse {
            topics,
            ..Default::default()
        }))
    }
}

#[tonic::async_trait]
impl v1::txn_server::Txn for Service {
    async fn init_producer(
        &self,
        _: Request<v1::InitProducerRequest>,
    ) -> Result<Response<v1::InitProducerResponse>, Status> {
        Ok(Response::new(v1::InitProducerResponse {
            producer_id: self.0.next_producer.fetch_add(1, Ordering::Relaxed),
            producer_epoch: 0,
        }))
    }
}
