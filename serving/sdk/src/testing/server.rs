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
use hulse_proto::wire::v1::log_server::LogServer;
use hulse_proto::wire::v1::lookup_server::LookupServer;
use hulse_proto::wire::v1::produce_server::ProduceServer;
use hulse_proto::wire::v1::txn_server::TxnServer;
use hulse_proto::wire::v1::{self, produce_down as down, produce_up as up, read_response};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, watch};
use tokio::task::JoinHandle;
use tokio_stream::wrappers::{ReceiverStream, TcpListenerStream};
use tonic::{Request, Response, Status, Streaming};

use super::partition::{Partition, Verdict};

type Answers<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

const CREDIT: u64 = 8 << 20;

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
struct Log {
    partition: Partition,
    batches: Vec<(u64, Bytes)>,
}

struct Topic {
    id: TopicId,
    logs: Vec<Log>,
}

struct State {
    address: SocketAddr,
    topics: Mutex<BTreeMap<String, Topic>>,
    dice: Mutex<(Faults, ChaCha8Rng)>,
    next_producer: AtomicI64,
    /// Changes with each stored batch.
    stored: watch::Sender<u64>,
    partitions: u32,
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
        });
        let service = Service(Arc::clone(&state));
        let serving = tonic::transport::Server::builder()
            .add_service(LookupServer::new(service.clone()))
            .add_service(TxnServer::new(service.clone()))
            .add_service(LogServer::new(service.clone()))
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

    fn hit(&self, chance: impl Fn(&Faults) -> u32) -> bool {
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
        });
        v1::ResolvedTopic {
            name: name.to_owned(),
            topic_uuid: topic.id.to_bytes(),
            partitions: owners.collect(),
            fault: None,
        }
    }

    fn with_log<T>(
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

    fn store(&self, partition: &v1::Partition, batch: &Bytes) -> Result<v1::AckedBatch, Fault> {
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
struct Service(Arc<State>);

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
        Ok(Response::new(v1::ResolveResponse { topics }))
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

/// The broker's side of one lane.
struct Lane {
    partition: v1::Partition,
    answers: bool,
    expected: u64,
    refusing: bool,
}

#[tonic::async_trait]
impl v1::produce_server::Produce for Service {
    type SessionStream = Answers<v1::ProduceDown>;

    async fn session(
        &self,
        request: Request<Streaming<v1::ProduceUp>>,
    ) -> Result<Response<Self::SessionStream>, Status> {
        let (sender, receiver) = mpsc::channel(64);
        let session = Session {
            state: Arc::clone(&self.0),
            lanes: BTreeMap::new(),
            sender,
        };
        tokio::spawn(session.run(request.into_inner()));
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }
}

struct Session {
    state: Arc<State>,
    lanes: BTreeMap<u32, Lane>,
    sender: mpsc::Sender<Result<v1::ProduceDown, Status>>,
}

impl Session {
    async fn run(mut self, mut items: Streaming<v1::ProduceUp>) {
        while let Ok(Some(item)) = items.message().await {
            if self.on_item(item.item.unwrap()).await.is_none() {
                let _ = self.sender.send(Err(Status::unknown("cut"))).await;
                return;
            }
        }
    }

    async fn say(&self, item: down::Item) -> Option<()> {
        let item = v1::ProduceDown { item: Some(item) };
        self.sender.send(Ok(item)).await.ok()
    }

    /// `None`: the link breaks.
    async fn on_item(&mut self, item: up::Item) -> Option<()> {
        match item {
            up::Item::Hello(_) => {
                let welcome = v1::Welcome {
                    protocol_version: 1,
                    max_inflight_batches: 5,
                    ..Default::default()
                };
                self.say(down::Item::Welcome(welcome)).await?;
                let bytes = CREDIT;
                self.say(down::Item::Credit(v1::Credit {
                    bytes,
                    throttle_ms: 0,
                }))
                .await
            }
            up::Item::Open(open) => self.on_open(open).await,
            up::Item::Batch(batch) => {
                let bytes = batch.batch.len() as u64;
                self.on_batch(batch).await?;
                self.say(down::Item::Credit(v1::Credit {
                    bytes,
                    throttle_ms: 0,
                }))
                .await
            }
            up::Item::Resume(resume) => {
                let lane = self.lanes.get_mut(&resume.lane)?;
                lane.refusing = false;
                lane.expected = resume.from_seq;
                Some(())
            }
            up::Item::Flush(flush) => {
                let v1::FlushLane { lane, seq } = flush;
                self.say(down::Item::Flushed(v1::Flushed { lane, seq }))
                    .await
            }
            up::Item::Close(close) => {
                self.lanes.remove(&close.lane);
                Some(())
            }
            up::Item::Heartbeat(_) => Some(()),
        }
    }

    async fn on_open(&mut self, open: v1::OpenLane) -> Option<()> {
        let partition = open.partition?;
        let known = self.state.with_log(&partition, |log| {
            (
                log.partition.last(open.producer_id),
                log.partition.next_offset(),
            )
        });
        let lane = open.lane;
        match known {
            Err(fault) => {
                let fault = Some(fault.to_wire());
                self.say(down::Item::Closed(v1::LaneClosed { lane, fault }))
                    .await
            }
            Ok(((last_epoch, last_sequence), next_offset)) => {
                let answers = open.acks == v1::Acks::Quorum as i32;
                self.lanes.insert(
                    lane,
                    Lane {
                        partition,
                        answers,
                        expected: 0,
                        refusing: false,
                    },
                );
                let opened = v1::Opened {
                    lane,
                    leader_epoch: 1,
                    next_offset,
                    last_epoch,
                    last_sequence,
                };
                self.say(down::Item::Opened(opened)).await
            }
        }
    }

    async fn on_batch(&mut self, batch: v1::ProduceBatch) -> Option<()> {
        let v1::ProduceBatch {
            lane: number,
            seq,
            batch,
        } = batch;
        let state = Arc::clone(&self.state);
        let lane = self.lanes.get_mut(&number)?;
        let answer = if lane.refusing {
            Err(Fault::new(Reason::NackedBefore, "before"))
        } else {
            assert_eq!(seq, lane.expected);
            lane.expected += 1;
            if state.hit(|faults| faults.cut_before) {
                return None;
            }
            if state.hit(|faults| faults.refuse) {
                Err(Fault::new(Reason::Overloaded, "dice"))
            } else if state.hit(|faults| faults.refuse_finally) {
                Err(Fault::new(Reason::InvalidRecord, "dice"))
            } else {
                let answer = state.store(&lane.partition, &batch);
                if state.hit(|faults| faults.cut_after) {
                    return None;
                }
                answer
            }
        };
        lane.refusing = answer.is_err();
        if !lane.answers {
            return Some(());
        }
        let (lane, first_seq) = (number, seq);
        self.say(match answer {
            Ok(acked) => down::Item::Ack(v1::Ack {
                lane,
                first_seq,
                batches: vec![acked],
            }),
            Err(fault) => down::Item::Nack(v1::Nack {
                lane,
                seq,
                fault: Some(fault.to_wire()),
            }),
        })
        .await
    }
}

#[tonic::async_trait]
impl v1::log_server::Log for Service {
    type ReadStream = Answers<v1::ReadResponse>;

    async fn read(
        &self,
        request: Request<v1::ReadRequest>,
    ) -> Result<Response<Self::ReadStream>, Status> {
        let request = request.into_inner();
        let state = Arc::clone(&self.0);
        let partition = request.partition.clone().unwrap();
        let end = state.with_log(&partition, |log| log.partition.next_offset())?;
        if request.start > end {
            return Err(Fault::new(Reason::OffsetOutOfRange, "above the end").into());
        }
        let (sender, receiver) = mpsc::channel(4);
        tokio::spawn(async move {
            if let Some(status) = read(state, request, partition, &sender).await {
                let _ = sender.send(Err(status)).await;
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(receiver))))
    }

    async fn offsets(
        &self,
        request: Request<v1::OffsetsRequest>,
    ) -> Result<Response<v1::OffsetsResponse>, Status> {
        let partition = request.into_inner().partition.unwrap();
        let high_watermark = self
            .0
            .with_log(&partition, |log| log.partition.next_offset())?;
        Ok(Response::new(v1::OffsetsResponse {
            high_watermark,
            leader_epoch: 1,
            ..Default::default()
        }))
    }
}

async fn read(
    state: Arc<State>,
    request: v1::ReadRequest,
    partition: v1::Partition,
    sender: &mpsc::Sender<Result<v1::ReadResponse, Status>>,
) -> Option<Status> {
    let mut stored = state.stored.subscribe();
    let mut at = request.start;
    loop {
        stored.borrow_and_update();
        let found = state.with_log(&partition, |log| {
            let next = log
                .batches
                .partition_point(|(base, _)| *base <= at)
                .saturating_sub(1);
            let end = log.partition.next_offset();
            (at < end).then(|| (log.batches[next].clone(), end))
        });
        let item = match found {
            Err(fault) => return Some(fault.into()),
            Ok(Some(((base, batch), high_watermark))) => {
                if state.hit(|faults| faults.cut_read) {
                    return Some(Status::unknown("cut"));
                }
                let header = hulse_proto::batch::BatchHeader::view(&batch).unwrap();
                at = header.end_offset().0;
                read_response::Item::Batches(v1::ReadBatches {
                    prev_end_offset: base,
                    batches: vec![batch],
                    append_times: vec![1],
                    high_watermark,
                    leader_epoch: 1,
                    ..Default::default()
                })
            }
            Ok(None) => read_response::Item::EndOfLog(v1::EndOfLog { offset: at }),
        };
        let at_end = matches!(item, read_response::Item::EndOfLog(_));
        sender
            .send(Ok(v1::ReadResponse { item: Some(item) }))
            .await
            .ok()?;
        if at_end && !request.follow {
            return None;
        }
        if at_end {
            stored.changed().await.ok()?;
        }
    }
}
