//! The cluster.

use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bookie_metadata::{MetadataStore as _, Op, Txn};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::time::TimestampMs;
use hulse_sdk::{Client, ClientBuilder, Error, ProducerIdentity, Record, WallClock};
use serving_broker::testing::MemoryBroker;
use tokio::time::{Instant, timeout};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::builder::{StartError, TestBrokerBuilder};
use crate::links::Links;
use crate::node::Node;

/// How often the date goes on.
const TICK: Duration = Duration::from_millis(5);
/// Brokers of one process find each other at once.
const READY_MAX: Duration = Duration::from_secs(30);
/// Between two looks whether they have.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// A cluster in this process: brokers that keep everything in memory. Dropping it ends them without a wait; [`TestBroker::stop`] drains
/// them.
///
/// Needs a tokio runtime with I/O and time that passes (not paused), and ends with it.
pub struct TestBroker {
    memory: MemoryBroker,
    nodes: Vec<Node>,
    links: Links,
    clients: AtomicU8,
    /// Brokers that were cut off.
    lost: Mutex<Vec<String>>,
    _date: DropGuard,
}

impl TestBroker {
    /// A cluster of one broker.
    ///
    /// # Errors
    /// Those of [`TestBrokerBuilder::start`].
    pub async fn start() -> Result<Self, StartError> {
        Self::builder().start().await
    }

    /// Begins a cluster of another size or configuration.
    pub fn builder() -> TestBrokerBuilder {
        TestBrokerBuilder::new()
    }

    pub(crate) async fn begin(parts: TestBrokerBuilder) -> Result<Self, StartError> {
        let memory = MemoryBroker::default();
        let date = CancellationToken::new();
        memory.wall.set(parts.date);
        tokio::spawn(tick(memory.clone(), parts.date, date.clone()));
        memory.make_cell().await;
        let mut nodes = Vec::new();
        for number in 1..=parts.brokers {
            nodes.push(Node::start(&memory, number, number - 1, &parts.change).await?);
        }
        let cluster = Self {
            memory,
            nodes,
            links: Links::new(),
            clients: AtomicU8::new(1),
            lost: Mutex::default(),
            _date: date.drop_guard(),
        };
        let ready = timeout(READY_MAX, cluster.all_known()).await;
        ready.map_err(|_| StartError::NotReady)?;
        Ok(cluster)
    }

    /// Until every broker knows every other one.
    async fn all_known(&self) {
        for node in &self.nodes {
            let client = Client::builder(&node.address).build();
            let admin = client.expect("an address is host and port").admin();
            loop {
                let cluster = admin.cluster(false).await;
                if cluster.is_ok_and(|cluster| cluster.brokers.len() == self.nodes.len()) {
                    break;
                }
                tokio::time::sleep(LOOK_EVERY).await;
            }
        }
    }

    /// A client of this cluster, over [`TestBroker::links`].
    pub fn client(&self) -> Client {
        let built = self.client_builder().build();
        built.expect("addresses are host and port, and there is one")
    }

    /// As [`TestBroker::client`], to be changed before it is built. Its choices by chance are those of its number: the first client of
    /// one test makes the same ones in each run.
    pub fn client_builder(&self) -> ClientBuilder {
        let addresses: Vec<&str> = self.nodes.iter().map(|node| &node.address[..]).collect();
        let number = self.clients.fetch_add(1, Ordering::Relaxed);
        Client::builder(addresses.join(","))
            .connector(self.links.clone())
            .clock(self.memory.wall.clone())
            .seed([number; 32])
    }

    /// The connections of its clients.
    pub fn links(&self) -> &Links {
        &self.links
    }

    /// Its date.
    pub fn clock(&self) -> Arc<dyn WallClock> {
        self.memory.wall.clone()
    }

    /// `host:port` of every broker: for clients in other languages, and past [`TestBroker::links`].
    pub fn addresses(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.address.clone()).collect()
    }

    /// Names of the brokers.
    pub fn brokers(&self) -> Vec<String> {
        self.nodes.iter().map(|node| node.name.clone()).collect()
    }

    /// From now on records and acknowledgements are stored, and nobody hears so; or everybody does, also of what came meanwhile.
    pub fn hold_storage(&self, hold: bool) {
        self.memory.bookie.hold(hold);
    }

    /// From now on no records are taken, as by a full disk, though acknowledgements are; or they are again.
    pub fn fill_storage(&self, full: bool) {
        self.memory.bookie.fill(full);
    }

    /// From now on it takes a broker about so long to open a partition.
    pub fn slow_openings(&self, time: Duration) {
        self.memory.slow_openings(time / 2);
    }

    /// The name of the broker that has a partition, or would open it.
    ///
    /// # Errors
    /// Why no broker answers; TOPIC_NOT_FOUND, PARTITION_NOT_FOUND.
    pub async fn owner(&self, topic: &str, partition: u32) -> Result<String, Error> {
        let topic = self.inside().admin().describe_topic(topic).await?;
        let mut partitions = topic.partition.iter();
        let found = partitions.find(|of| of.index == partition);
        let address = found.and_then(|of| of.owner.as_deref());
        let owner = self
            .nodes
            .iter()
            .find(|node| Some(&node.address[..]) == address);
        owner.map(|node| node.name.clone()).ok_or_else(|| {
            let words = format!("topic {} has no partition {partition}", topic.name);
            Fault::new(Reason::PartitionNotFound, words).into()
        })
    }

    /// Hands a partition over to another broker, as planned: its clients follow, and nothing is lost. Answers the epoch under which it is
    /// served there.
    ///
    /// # Errors
    /// TOPIC_NOT_FOUND, PARTITION_NOT_FOUND, PRECONDITION_FAILED (no such broker, or it was lost).
    pub async fn move_partition(
        &self,
        topic: &str,
        partition: u32,
        to: &str,
    ) -> Result<u32, Error> {
        let admin = self.inside().admin();
        admin.move_partition(topic, partition, to, false).await
    }

    /// Cuts a broker off: no client reaches it any more, and the others take it for dead. It does not know: what it writes is refused by
    /// storage, as that of any former owner. It never comes back. Answers whether there was one.
    pub async fn lose_broker(&self, name: &str) -> bool {
        let Some(node) = self.nodes.iter().find(|node| node.name == name) else {
            return false;
        };
        self.links.lose(&node.address);
        self.lost().push(name.to_owned());
        let op = Op::Delete {
            key: format!("node/broker/{name}"),
        };
        let txn = Txn {
            compares: Vec::new(),
            ops: vec![op],
        };
        let deleted = self.memory.metadata.txn(txn).await;
        deleted.expect("memory takes it");
        self.links.cut();
        true
    }

    /// Fences a producer in one partition, as the next life of it does: a record with the value `fence` is stored under the next epoch of
    /// its identity. Whatever the producer sends there later is refused as fenced.
    ///
    /// # Errors
    /// Why the record was not stored; `is_fenced` when the producer is fenced already.
    pub async fn fence_producer(
        &self,
        topic: &str,
        partition: u32,
        producer: ProducerIdentity,
    ) -> Result<(), Error> {
        let next = ProducerIdentity {
            epoch: producer.epoch.saturating_add(1),
            ..producer
        };
        let successor = self.inside().producer(topic).resume(next).build().await?;
        let record = Record::new("fence").partition(partition);
        successor.send(record).await?.await?;
        successor.close().await
    }

    fn lost(&self) -> MutexGuard<'_, Vec<String>> {
        self.lost.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A client of the brokers that were not lost, past [`TestBroker::links`].
    fn inside(&self) -> Client {
        let lost = self.lost();
        let living = self.nodes.iter().filter(|node| !lost.contains(&node.name));
        let addresses: Vec<&str> = living.map(|node| &node.address[..]).collect();
        let built = Client::builder(addresses.join(",")).build();
        built.expect("a broker that lives has an address")
    }

    /// Ends it as an operator would: partitions are handed over, what was taken is answered.
    pub async fn stop(mut self) {
        // All at once: those that are left have nobody to hand over to.
        for node in &self.nodes {
            node.begin_stop();
        }
        for node in &mut self.nodes {
            node.stop().await;
        }
    }
}

/// The date goes on with tokio's time.
async fn tick(memory: MemoryBroker, began: TimestampMs, end: CancellationToken) {
    let since = Instant::now();
    loop {
        tokio::select! {
            biased;
            () = end.cancelled() => return,
            () = tokio::time::sleep(TICK) => {}
        }
        let passed = i64::try_from(since.elapsed().as_millis()).unwrap_or(i64::MAX);
        memory.wall.set(began.saturating_add(passed));
    }
}
