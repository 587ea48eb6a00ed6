//! The broker.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU8, Ordering};
use std::time::Duration;

use bookie_client::{BookieDirectory, Candidate, ClientConfig, LedgerClient};
use bookie_metadata::cell::{CellSettings, ensure_cell};
use bookie_metadata::testing::{Call, Fate, FaultyStore};
use bookie_metadata::{BoxFuture, MemoryStore, MetadataError, MetadataStore, Op, Txn};
use hulse_proto::bookie::BookieCalls;
use hulse_proto::error::Fault;
use hulse_proto::id::{CellId, Incarnation, NodeName};
use hulse_proto::ledger::{Member, Quorums};
use hulse_proto::time::{TimestampMs, WallClock};
use hulse_proto::wire::{Message as _, metadata};
use prometheus_client::registry::Registry;
use uuid::Uuid;

use super::bookie::MemoryBookie;
use crate::listener::FrontParts;
use crate::{
    Broker, BrokerConfig, DrainOrder, Front, Lease, Metrics, PartitionHandle, Partitions,
    PartitionsConfig, Topics, TopicsConfig,
};

/// A bookie that does not answer an add in time.
const ADD_TIMEOUT: Duration = Duration::from_millis(500);
/// A bookie that refuses records for so long is full.
const FULL_PATIENCE: Duration = Duration::from_millis(200);

/// A wall clock that a test moves.
#[derive(Debug)]
pub struct Wall(AtomicI64);

impl Wall {
    /// Sets it, ms since 1970.
    pub fn set(&self, now: TimestampMs) {
        self.0.store(now, Ordering::Relaxed);
    }
}

impl WallClock for Wall {
    fn now_ms(&self) -> TimestampMs {
        self.0.load(Ordering::Relaxed)
    }
}

/// A directory of one bookie, which is writable while it is not full.
struct OnlyBookie {
    member: Member,
    bookie: Arc<MemoryBookie>,
}

impl BookieDirectory for OnlyBookie {
    fn calls(&self, _: &Member) -> Option<Arc<dyn BookieCalls>> {
        Some(self.bookie.clone())
    }

    fn candidates(&self) -> BoxFuture<'_, Result<Vec<Candidate>, MetadataError>> {
        let candidate = Candidate {
            member: self.member.clone(),
            live: true,
            writable: !self.bookie.is_full(),
            zone: String::new(),
        };
        Box::pin(async { Ok(vec![candidate]) })
    }
}

/// The identity of one life.
fn boot(life: u8) -> Uuid {
    Uuid::from_u128(u128::from(life) + 1)
}

/// What outlives one life of the broker.
#[derive(Clone)]
pub struct MemoryBroker {
    /// Where its ledgers lie.
    pub bookie: Arc<MemoryBookie>,
    /// Its metadata.
    pub metadata: Arc<FaultyStore<MemoryStore>>,
    /// The date.
    pub wall: Arc<Wall>,
    /// What the next lives are told of their lease.
    pub lease: Lease,
    /// Lives so far: each has a chance of its own, else it would give identities again.
    lives: Arc<AtomicU8>,
}

impl Default for MemoryBroker {
    fn default() -> Self {
        Self {
            bookie: Arc::new(MemoryBookie::new()),
            metadata: Arc::new(FaultyStore::new(Arc::new(MemoryStore::new()))),
            wall: Arc::new(Wall(AtomicI64::new(1_700_000_000_000))),
            lease: Lease::none(),
            lives: Arc::default(),
        }
    }
}

impl MemoryBroker {
    /// The same storage and the same metadata, which fail on their own, and with a lease: another process of the cell.
    pub fn leased(&self, time: Duration) -> Self {
        let store = self.metadata.store();
        Self {
            metadata: Arc::new(FaultyStore::new(store)),
            lease: Lease::of(self.wall.clone(), time),
            ..self.clone()
        }
    }

    /// A life of it, to be served.
    pub fn broker(&self, config: BrokerConfig) -> Broker {
        let life = self.lives.fetch_add(1, Ordering::Relaxed);
        let mut registry = Registry::default();
        let metrics = Arc::new(Metrics::register(&mut registry));
        let metadata: Arc<dyn MetadataStore> = self.metadata.clone();
        let clock: Arc<dyn WallClock> = self.wall.clone();
        let parts = PartitionsConfig {
            metadata: metadata.clone(),
            client: self.client([life; 32]),
            clock: clock.clone(),
            boot: boot(life),
            lease: self.lease.clone(),
        };
        let topics = TopicsConfig {
            default_partitions: config.default_partitions,
            auto_create: config.auto_create_topics,
            seed: [life; 32],
        };
        Broker {
            partitions: Partitions::new(&config, parts),
            topics: Topics::new(metadata.clone(), topics, clock.clone()),
            config,
            metadata,
            metrics,
            registry: Arc::new(registry),
            clock,
            storage_mode: None,
            storage_damage: None,
            order: DrainOrder::default(),
            whole_cell: false,
        }
    }

    /// A life of it as its listeners see it; nothing listens. Needs a tokio runtime.
    pub fn front(&self, change: impl FnOnce(&mut BrokerConfig)) -> Arc<Front> {
        let name = NodeName::new("broker-1").expect("a right name");
        let mut config = BrokerConfig::new(name, "127.0.0.1:7400");
        change(&mut config);
        let broker = self.broker(config);
        Front::new(FrontParts {
            config: broker.config,
            partitions: broker.partitions,
            topics: broker.topics,
            metadata: broker.metadata,
            metrics: broker.metrics,
            storage_damage: broker.storage_damage,
            order: broker.order,
        })
    }

    /// Makes the cell's record, as the first process of a cell does: one copy of everything.
    pub async fn make_cell(&self) {
        let one = Quorums {
            ensemble: 1,
            write: 1,
            ack: 1,
        };
        let settings = CellSettings {
            quorums: one,
            group_shards: 1,
            transaction_shards: 1,
        };
        let cell = CellId(Uuid::from_u128(1));
        let made = ensure_cell(&*self.metadata, settings, cell, 0).await;
        made.expect("memory takes it");
    }

    /// Registers a broker as the command line does: life `life` of it, from 0, which Kafka's clients reach here, if at all.
    pub async fn register(&self, name: &str, life: u8, endpoint: &str, kafka: Option<(&str, u16)>) {
        let place = |(host, port): (&str, u16)| metadata::KafkaPlace {
            listener: String::new(),
            host: host.to_owned(),
            port: u32::from(port),
        };
        let node = metadata::Node {
            boot_uuid: boot(life).as_bytes().to_vec().into(),
            endpoint: endpoint.to_owned(),
            kafka: kafka.map(place).into_iter().collect(),
            ..Default::default()
        };
        let op = Op::put(format!("node/broker/{name}"), node.encode_to_vec());
        let txn = Txn {
            compares: Vec::new(),
            ops: vec![op],
        };
        self.metadata.txn(txn).await.expect("memory takes it");
    }

    /// From now on this broker knows those that are registered, as one that is served does. Answers when it does.
    pub async fn follow(front: &Arc<Front>) {
        let owners = front.partitions.with.owners.clone();
        owners.begin();
        let (following, partitions) = (owners.clone(), front.partitions.clone());
        tokio::spawn(async move { following.run(&partitions).await });
        owners.known_within(Duration::from_secs(1)).await;
    }

    /// From now on a take-over goes on for twice this time after it has won its epoch, and a new ledger takes it once more; of zero,
    /// all is as fast as ever.
    pub fn slow_openings(&self, time: Duration) {
        self.metadata.choose(move |call| match call {
            Call::List(prefix) if prefix.starts_with("chain/") && !time.is_zero() => {
                Fate::Slow(time)
            }
            _ => Fate::Pass,
        });
    }

    /// From now on every change of metadata is answered after this time.
    pub fn slow_changes(&self, time: Duration) {
        self.metadata.choose(move |call| match call {
            Call::Txn(_) => Fate::Slow(time),
            _ => Fate::Pass,
        });
    }

    fn client(&self, seed: [u8; 32]) -> LedgerClient {
        let quorums = Quorums {
            ensemble: 1,
            write: 1,
            ack: 1,
        };
        let member = Member {
            bookie: NodeName::new("bookie-1").expect("a right name"),
            incarnation: Incarnation(Uuid::from_u128(1)),
        };
        let bookie = self.bookie.clone();
        LedgerClient::new(
            CellId(Uuid::from_u128(9)),
            ClientConfig {
                add_timeout: ADD_TIMEOUT,
                full_patience: FULL_PATIENCE,
                ..ClientConfig::new(quorums)
            },
            self.metadata.clone(),
            Arc::new(OnlyBookie { member, bookie }),
            self.wall.clone(),
            seed,
        )
    }
}

/// As the watch of backlogs does it: the open partition refuses batches with this, or takes them again.
pub fn refuse_batches(open: &PartitionHandle, why: Option<Fault>) {
    open.0.refusal.set(why);
}
