//! Brokers over one cell, and who is believed to own the partition. The real partitions, without their listener.
//!
//! Mostly two, each of which takes the partition whenever a client turns to it. In a cluster *among* brokers they follow metadata and
//! know whose it is (ARCHITECTURE D9); clients are sent on by those whose it is not.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{NodeName, Offset, OwnerEpoch, PartitionId, TopicId};
use rand::Rng;
use rand_chacha::ChaCha12Rng;
use serving_broker::{BrokerConfig, Lease, PartitionHandle, Partitions, PartitionsConfig, testing};
use tokio::time::{Instant, sleep, timeout};
use uuid::Uuid;

use crate::chaos::Victims;
use crate::process::Process;
use crate::trace;
use crate::trimmer::TrimBook;
use crate::truth::Truth;
use crate::world::World;

/// How long anyone waits for a broker to open a partition.
const OPEN_TIMEOUT: Duration = Duration::from_secs(4);
/// Times that a client is sent on.
const HOPS_MAX: u32 = 3;
/// Between two looks whether a broker knows the others.
const KNOWN_SOON: Duration = Duration::from_millis(20);

/// One boot of a broker.
pub struct SimBroker {
    /// Its process.
    pub process: Process,
    /// What it serves.
    pub partitions: Partitions,
    /// This start of it.
    pub boot: Uuid,
    /// It does not know yet whose partitions are.
    looking: AtomicBool,
}

/// By boot of a broker: how many entries a take-over may have to replay before the owner takes a snapshot.
const SNAPSHOT_ENTRIES_MIN: [u64; 4] = [0, 0, 3, 256];

/// Sizes that a run draws.
#[derive(Debug, Clone, Copy)]
pub struct BrokerSizes {
    /// A log ledger is rolled at this size.
    pub roll_bytes: u64,
    /// A log ledger with data is rolled at this age.
    pub roll_age: Duration,
    /// Bytes of recent entries in memory; small, so that reads reach the bookies.
    pub tail_bytes: usize,
}

impl SimBroker {
    /// A fresh process of this name.
    pub fn start(world: &World, name: &str, boot: u32, sizes: BrokerSizes) -> Arc<Self> {
        let process = Process::new(format!("{name}.{boot}"));
        let node = NodeName::new(name).expect("a short name is a name");
        let mut config = BrokerConfig::new(node, "nowhere:1");
        config.ledger_roll_bytes = sizes.roll_bytes;
        config.ledger_roll_age = sizes.roll_age;
        config.tail_cache_bytes = sizes.tail_bytes;
        // Mostly at once, so that short runs have snapshots enough; some boots as late as a real one, or nearly so.
        config.snapshot_entries_min = SNAPSHOT_ENTRIES_MIN[boot as usize % 4];
        config.mutation = world.mutation();
        let parts = PartitionsConfig {
            metadata: world.metadata(&process),
            client: world.client(&process),
            clock: world.clock.clone(),
            boot: world.seeds.id(process.name()),
            lease: Lease::none(),
        };
        let partitions = Partitions::new(&config, parts);
        trace!(world.trace, "{} starts", process.name());
        let (heart, sweeper) = (process.clone(), partitions.clone());
        tokio::spawn(async move {
            // As a broker does after its start; what it does not reach is left to the next one.
            let _ = heart.heard(sweeper.sweep_deleting()).await;
        });
        Arc::new(Self {
            boot: world.seeds.id(process.name()),
            process,
            partitions,
            looking: AtomicBool::new(false),
        })
    }

    /// As [`SimBroker::start`], of one that follows who owns what.
    pub fn start_among(world: &World, name: &str, boot: u32, sizes: BrokerSizes) -> Arc<Self> {
        let broker = Self::start(world, name, boot, sizes);
        broker.looking.store(true, Ordering::Relaxed);
        testing::follow(&broker.partitions);
        let following = broker.clone();
        tokio::spawn(async move {
            // Asked again and again: whoever waits is woken in a random order.
            while !testing::knows_owners(&following.partitions) {
                if following.process.is_dead() {
                    return;
                }
                sleep(KNOWN_SOON).await;
            }
            following.looking.store(false, Ordering::Relaxed);
        });
        broker
    }

    /// Its name, in every life.
    pub fn name(&self) -> &str {
        let name = self.process.name();
        name.split_once('.').map_or(name, |(name, _)| name)
    }

    /// Asks it to open the partition; `None`: no answer.
    pub async fn open(&self, partition: PartitionId) -> Option<Result<PartitionHandle, Fault>> {
        if self.looking.load(Ordering::Relaxed) {
            return None;
        }
        let open = self.process.heard(self.partitions.open(partition));
        timeout(OPEN_TIMEOUT, open).await.ok().flatten()
    }
}

/// First and highest high watermark seen of each epoch.
type Waters = BTreeMap<OwnerEpoch, (Offset, Offset)>;

/// Some brokers, one partition.
pub struct Cluster {
    /// The world.
    pub world: Arc<World>,
    /// The partition.
    pub partition: PartitionId,
    /// What clients sent, heard and saw.
    pub truth: Mutex<Truth>,
    sizes: BrokerSizes,
    /// Its brokers know whose it is.
    among: bool,
    brokers: Mutex<Vec<Arc<SimBroker>>>,
    boots: AtomicU32,
    preferred: AtomicUsize,
    waters: Mutex<Waters>,
    trims: Mutex<TrimBook>,
    /// Who opened the partition last, of each place.
    owners: Mutex<BTreeMap<usize, (Process, PartitionHandle)>>,
    /// The topic is marked as deleted: nobody opens it any more.
    deleting: AtomicBool,
    /// Its deletion is complete: nobody may be told that something was stored.
    deleted: AtomicBool,
    /// Some broker has not answered that it heard of the deletion.
    untold: AtomicBool,
}

fn start_broker(
    world: &World,
    place: usize,
    boot: u32,
    (sizes, among): (BrokerSizes, bool),
) -> Arc<SimBroker> {
    let name = format!("b{place}");
    match among {
        true => SimBroker::start_among(world, &name, boot, sizes),
        false => SimBroker::start(world, &name, boot, sizes),
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Cluster {
    /// Two brokers, just started, each of which takes what it is asked for.
    pub fn start(world: &Arc<World>, sizes: BrokerSizes) -> Arc<Self> {
        Self::start_with(world, sizes, (2, false))
    }

    /// So many brokers, just started, that know of each other once their keys are kept ([`crate::lives`]).
    pub fn among(world: &Arc<World>, sizes: BrokerSizes, brokers: usize) -> Arc<Self> {
        Self::start_with(world, sizes, (brokers, true))
    }

    fn start_with(
        world: &Arc<World>,
        sizes: BrokerSizes,
        (brokers, among): (usize, bool),
    ) -> Arc<Self> {
        let topic = TopicId(world.seeds.id("topic"));
        let start = |place: usize| start_broker(world, place, 0, (sizes, among));
        let brokers = (0..brokers).map(start).collect();
        Arc::new(Self {
            world: world.clone(),
            partition: PartitionId { topic, index: 0 },
            truth: Mutex::default(),
            sizes,
            among,
            brokers: Mutex::new(brokers),
            boots: AtomicU32::new(1),
            preferred: AtomicUsize::new(0),
            waters: Mutex::default(),
            trims: Mutex::default(),
            owners: Mutex::default(),
            deleting: AtomicBool::new(false),
            deleted: AtomicBool::new(false),
            untold: AtomicBool::new(false),
        })
    }

    /// The truth file.
    pub fn truth(&self) -> MutexGuard<'_, Truth> {
        locked(&self.truth)
    }

    /// What was trimmed.
    pub fn trims(&self) -> MutexGuard<'_, TrimBook> {
        locked(&self.trims)
    }

    /// A broker, by its place.
    pub fn broker(&self, place: usize) -> Arc<SimBroker> {
        let brokers = locked(&self.brokers);
        brokers[place % brokers.len()].clone()
    }

    /// All of them, by their places.
    pub fn brokers(&self) -> Vec<Arc<SimBroker>> {
        locked(&self.brokers).clone()
    }

    fn size(&self) -> usize {
        locked(&self.brokers).len()
    }

    /// Where clients find a broker of this name.
    pub fn endpoint(name: &str) -> String {
        format!("{name}:1")
    }

    /// Clients turn to this broker from now on.
    pub fn prefer(&self, place: usize) {
        self.preferred.store(place, Ordering::Relaxed);
    }

    /// Clients turn to the other broker.
    pub fn prefer_other(&self) {
        self.preferred.fetch_add(1, Ordering::Relaxed);
    }

    /// A new process in the place of a broker; the old one is killed.
    pub fn replace(&self, place: usize) -> Arc<SimBroker> {
        let boot = self.boots.fetch_add(1, Ordering::Relaxed);
        let place = place % self.size();
        let fresh = start_broker(&self.world, place, boot, (self.sizes, self.among));
        let old = std::mem::replace(&mut locked(&self.brokers)[place], fresh.clone());
        old.process.kill();
        fresh
    }

    /// True once the topic is marked.
    pub fn is_deleting(&self) -> bool {
        self.deleting.load(Ordering::Relaxed)
    }

    /// True once its deletion is complete.
    pub fn is_deleted(&self) -> bool {
        self.deleted.load(Ordering::Relaxed)
    }

    /// True when some broker has not answered that it heard of the deletion: a take-over that was under way there may still
    /// write the partition's key.
    pub fn is_untold(&self) -> bool {
        self.untold.load(Ordering::Relaxed)
    }

    /// The broker that a client believes to be the owner, opened; `None`: try again later.
    pub async fn route(&self, stale: bool) -> Option<(Arc<SimBroker>, PartitionHandle)> {
        if self.is_deleting() {
            return None;
        }
        let mut place = self.preferred.load(Ordering::Relaxed) + usize::from(stale);
        for _ in 0..=HOPS_MAX {
            let broker = self.broker(place);
            let fault = match broker.open(self.partition).await? {
                Ok(handle) => {
                    self.see(&handle);
                    self.owned(place % self.size(), &broker, &handle);
                    return Some((broker, handle));
                }
                Err(fault) => fault,
            };
            trace!(
                self.world.trace,
                "{} does not open: {fault}",
                broker.process.name()
            );
            let hard = matches!(fault.reason, Reason::DataDamaged | Reason::Internal);
            self.world
                .violations
                .check(!hard, || format!("opening failed hard: {fault}"));
            place = self.sent_to(&fault)?;
        }
        None
    }

    /// The place to which a broker sends a client.
    fn sent_to(&self, fault: &Fault) -> Option<usize> {
        let endpoint = fault.details.get("endpoint")?;
        let mut brokers = self.brokers().into_iter();
        brokers.position(|broker| Self::endpoint(broker.name()) == *endpoint)
    }

    /// Counts take-overs whose old owner lives and does not know of it yet: what these runs are for.
    fn owned(&self, place: usize, broker: &SimBroker, handle: &PartitionHandle) {
        let mut owners = locked(&self.owners);
        let known = owners.get(&place);
        if known.is_some_and(|(_, known)| known.leader_epoch() == handle.leader_epoch()) {
            return;
        }
        let others = owners.iter().filter(|(other, _)| **other != place);
        let lives_on = |(_, (other, old)): &(&usize, &(Process, PartitionHandle))| {
            let older = old.leader_epoch() < handle.leader_epoch();
            !other.is_dead() && old.ended().is_none() && older
        };
        if others.filter(lives_on).count() > 0 {
            self.world
                .counts
                .add("owners that lived on beside their successor");
        }
        owners.insert(place, (broker.process.clone(), handle.clone()));
    }

    /// Notes where the log begins and ends: within one epoch neither goes back.
    pub fn see(&self, handle: &PartitionHandle) {
        let start = handle.offsets().log_start;
        if let Some(wrong) = self.trims().see(handle.leader_epoch(), start) {
            self.world.violations.add(wrong);
        }
        let (epoch, now) = (handle.leader_epoch(), handle.offsets().high_watermark);
        let mut waters = locked(&self.waters);
        let (_, highest) = waters.entry(epoch).or_insert((now, now));
        let before = *highest;
        *highest = before.max(now);
        drop(waters);
        self.world.violations.check(now >= before, || {
            format!("high watermark of epoch {epoch} went from {before} to {now}")
        });
    }

    /// No epoch began below what an earlier one had shown.
    pub fn check_waters(&self) {
        let waters = locked(&self.waters);
        let mut highest = Offset(0);
        for (epoch, (first, last)) in waters.iter() {
            self.world.violations.check(*first >= highest, || {
                format!("epoch {epoch} began at {first}, an earlier one had shown {highest}")
            });
            highest = highest.max(*last);
        }
        for wrong in self.trims().check() {
            self.world.violations.add(wrong);
        }
    }

    /// Replaces dead brokers, moves clients to and fro and stops brokers in good order, for this long.
    pub async fn run(self: Arc<Self>, mut rng: ChaCha12Rng, victims: Victims, time: Duration) {
        let end = Instant::now() + time;
        let moves = rng.random_range(0..25);
        while Instant::now() < end {
            sleep(Duration::from_millis(rng.random_range(20..400))).await;
            for place in 0..self.size() {
                if self.broker(place).process.is_dead() && rng.random_bool(0.5) {
                    locked(&victims).push(self.replace(place).process.clone());
                }
            }
            if rng.random_range(0..100) < moves {
                self.prefer(rng.random_range(0..self.size()));
            }
            if rng.random_range(0..100) < 3 {
                let broker = self.broker(rng.random_range(0..self.size()));
                trace!(
                    self.world.trace,
                    "{} is told to stop",
                    broker.process.name()
                );
                tokio::spawn(async move {
                    let closing = broker.process.heard(broker.partitions.close_all());
                    // One that cannot finish is killed, as by any supervisor.
                    let _ = timeout(Duration::from_secs(3), closing).await;
                    broker.process.kill();
                });
            }
        }
    }

    /// Replaces whatever dies from now on, as a supervisor does, until it is dropped.
    pub async fn keep_alive(self: Arc<Self>) {
        loop {
            for place in 0..self.size() {
                let broker = self.broker(place);
                broker.process.resume();
                if broker.process.is_dead() {
                    self.replace(place);
                }
            }
            sleep(Duration::from_millis(200)).await;
        }
    }

    /// Deletes the topic as its broker would: mark, tell each broker, remove. Repeats until it is done.
    pub async fn delete(self: Arc<Self>) {
        self.deleting.store(true, Ordering::Relaxed);
        trace!(self.world.trace, "the topic is marked as deleted");
        let told = |place: usize| {
            let broker = self.broker(place);
            let partition = self.partition;
            async move {
                let gone = Fault::new(Reason::TopicDeleting, "the topic is being deleted");
                let close = broker
                    .process
                    .heard(broker.partitions.close(partition, gone));
                // One that does not hear it now finds its ledgers gone.
                timeout(Duration::from_secs(2), close)
                    .await
                    .is_ok_and(|heard| heard.is_some())
            }
        };
        let heard = futures::future::join_all((0..self.size()).map(told)).await;
        self.untold.store(heard.contains(&false), Ordering::Relaxed);
        let mut tries = 0;
        loop {
            let broker = self.broker(tries);
            let delete = broker
                .process
                .heard(broker.partitions.delete_data(self.partition));
            match timeout(Duration::from_secs(30), delete)
                .await
                .ok()
                .flatten()
            {
                Some(Ok(())) => break,
                Some(Err(fault)) => trace!(self.world.trace, "deletion stopped: {fault}"),
                None => trace!(self.world.trace, "deletion was not answered"),
            }
            tries += 1;
            sleep(Duration::from_millis(200)).await;
        }
        self.deleted.store(true, Ordering::Relaxed);
        trace!(self.world.trace, "the topic is deleted");
    }
}
