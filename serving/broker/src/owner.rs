//! Which partitions are open on this broker. Opening is single-flight and survives the request that asked for it. What becomes of
//! the data of deleted ones: `removal`.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use bookie_client::LedgerClient;
use bookie_metadata::MetadataStore;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{OwnerEpoch, PartitionId};
use hulse_proto::time::WallClock;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use uuid::Uuid;

use crate::complaints::Complaints;
use crate::config::BrokerConfig;
use crate::log::{TailBudget, TimeTurns};
use crate::owners::{Lease, Owners, Place};
use crate::partition::{
    CertainParts, Claim, Collaborators, Letterbox, PartitionHandle, PartitionPolicy, ReadAhead,
    RestingPartitions, certain_handle, spawn, take_over,
};
use crate::topics::Topic;

/// A failed opening is answered from memory for this long, so that clients' retries do not become a storm of take-overs.
const FAILED_FOR: Duration = Duration::from_millis(200);
/// A partition that ended twice in short order rests at least this long after its last take-over …
const REST_MIN: Duration = Duration::from_millis(100);
/// … and at most this long.
const REST_MAX: Duration = Duration::from_secs(5);
/// Ledgers whose data are removed at the same time.
const BURIALS_AT_ONCE: usize = 8;
/// Keys of partitions in doubt that are looked at at the same time.
const DOUBTS_AT_ONCE: usize = 64;
/// How long an opening waits at the start of a broker until the others are known.
const BROKERS_WAIT: Duration = Duration::from_secs(2);
/// Marks of removed partitions that are kept.
const REMOVED_MAX: usize = 100_000;

/// What [`Partitions::new`] works with besides the broker's config.
pub struct PartitionsConfig {
    /// The metadata store.
    pub metadata: Arc<dyn MetadataStore>,
    /// Ledgers.
    pub client: LedgerClient,
    /// The wall.
    pub clock: Arc<dyn WallClock>,
    /// This start of the broker.
    pub boot: Uuid,
    /// What others know of its life.
    pub lease: Lease,
}

/// How far a partition is here, as to its epoch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    /// Nobody opens it, or it has ended.
    Closed,
    /// It is being opened; an epoch more may be won at any time.
    Opening,
    /// This epoch was won; it serves under it, or will.
    Won(OwnerEpoch),
}

#[derive(Default)]
struct Slot {
    open: Option<PartitionHandle>,
    /// While a take-over is under way: the epoch that it won.
    opening: Option<Option<OwnerEpoch>>,
    /// Boxed: thousands are open, and nearly none has it.
    failed: Option<Box<(Instant, Fault)>>,
    /// When the last take-over succeeded, and how long the one before that has to rest.
    taken: Option<(Instant, Duration)>,
}

impl Slot {
    fn standing(&self) -> Standing {
        let serving = self.open.as_ref().filter(|open| open.ended().is_none());
        match (serving, self.opening) {
            (Some(open), _) => Standing::Won(open.leader_epoch()),
            (None, Some(Some(epoch))) => Standing::Won(epoch),
            (None, Some(None)) => Standing::Opening,
            (None, None) => Standing::Closed,
        }
    }

    /// The end of the open handle, while it is too early for another take-over: a partition that ends again and again (a full
    /// disk, say) must not move its epoch at the rate of its clients' retries.
    fn resting(&self) -> Option<(Fault, Duration)> {
        let (at, rest) = self.taken?;
        let why = self.open.as_ref()?.ended()?;
        let left = rest.checked_sub(at.elapsed())?;
        Some((why, left))
    }

    /// The rest of the next handle: none for the first, growing for those that follow one another quickly.
    fn next_rest(&self) -> Duration {
        match self.taken {
            Some((at, rest)) if at.elapsed() < REST_MAX * 2 => (rest * 2).clamp(REST_MIN, REST_MAX),
            _ => Duration::ZERO,
        }
    }
}

#[derive(Default)]
struct Slots {
    /// Who opens or closes a partition holds its turn.
    turns: BTreeMap<PartitionId, Arc<tokio::sync::Mutex<()>>>,
    state: BTreeMap<PartitionId, Slot>,
    /// Never opened again by this process.
    deleted: BTreeSet<PartitionId>,
    /// In the order in which their data went; the oldest are forgotten, as nobody can have looked them up so long ago.
    removed: VecDeque<PartitionId>,
    /// On their way to another broker, which this fault names.
    leaving: BTreeMap<PartitionId, Fault>,
    stopping: bool,
}

impl Slots {
    /// Nothing is left of a partition but the mark that it must not open again.
    fn forget(&mut self, partition: PartitionId) {
        self.state.remove(&partition);
        // Whoever waits for this turn holds it; the next one finds the mark.
        self.turns.remove(&partition);
        self.removed.push_back(partition);
        if self.removed.len() > REMOVED_MAX
            && let Some(oldest) = self.removed.pop_front()
        {
            self.deleted.remove(&oldest);
        }
    }

    fn may_open(&self, partition: PartitionId) -> Result<(), Fault> {
        if self.stopping {
            return Err(Fault::new(
                Reason::ShuttingDown,
                "broker is going down; retry at another one",
            ));
        }
        if self.deleted.contains(&partition) {
            return Err(Fault::new(
                Reason::TopicDeleting,
                "the topic is being deleted",
            ));
        }
        if let Some(moved) = self.leaving.get(&partition) {
            return Err(moved.clone());
        }
        let slot = self.state.get(&partition);
        if let Some((why, left)) = slot.and_then(Slot::resting) {
            let words = format!(
                "partition ended and rests before it is opened again: {}",
                why.message
            );
            return Err(Fault::new(Reason::PartitionLoading, words).retry_after(left));
        }
        match slot.and_then(|slot| slot.failed.as_deref()) {
            Some((at, fault)) if at.elapsed() < FAILED_FOR => {
                Err(fault.clone().retry_after(FAILED_FOR))
            }
            _ => Ok(()),
        }
    }
}

/// Every partition this broker may open. Cheap to clone.
#[derive(Clone)]
pub struct Partitions {
    pub(crate) with: Arc<Collaborators>,
    slots: Arc<Mutex<Slots>>,
}

impl Partitions {
    /// None open yet.
    pub fn new(config: &BrokerConfig, parts: PartitionsConfig) -> Self {
        let boot = bytes::Bytes::copy_from_slice(parts.boot.as_bytes());
        let with = Collaborators {
            metadata: parts.metadata.clone(),
            client: parts.client,
            clock: parts.clock,
            tail: TailBudget::new(config.tail_cache_bytes),
            time_turns: TimeTurns::new(),
            owners: Owners::new(config.name.clone(), boot, parts.metadata.clone()),
            broker: config.name.clone(),
            boot: parts.boot,
            lease: parts.lease,
            doubts: Semaphore::new(DOUBTS_AT_ONCE),
            producer_expiry: config.producer_expiry,
            roll_bytes: config.ledger_roll_bytes,
            roll_age: config.ledger_roll_age,
            snapshot_entries_min: config.snapshot_entries_min,
            max_batch_bytes: config.max_batch_bytes,
            burials: Semaphore::new(BURIALS_AT_ONCE),
            late: Complaints::default(),
            resting: RestingPartitions::default(),
            certain: CertainParts::default(),
            ahead: ReadAhead::default(),
            letters: Letterbox::default(),
            mutation: config.mutation,
        };
        Self {
            with: Arc::new(with),
            slots: Arc::default(),
        }
    }

    /// Forgets a partition of which nothing is left.
    pub(crate) fn forget(&self, partition: PartitionId) {
        self.with.certain.forget(partition);
        self.lock().forget(partition);
    }

    fn lock(&self) -> MutexGuard<'_, Slots> {
        self.slots
            .lock()
            .expect("no code panics while it holds this lock")
    }

    /// Opens by take-over on first use, or after the last handle ended; else answers the open handle. The caller has checked that
    /// the topic exists and has this partition. Cancel-safe: the take-over goes on for the next one who asks.
    ///
    /// # Errors
    /// METADATA_UNAVAILABLE, STORAGE_UNAVAILABLE, PARTITION_LOADING, SHUTTING_DOWN (retry); PARTITION_MOVED; TOPIC_DELETING;
    /// DATA_DAMAGED (an operator must look).
    pub async fn open(&self, partition: PartitionId) -> Result<PartitionHandle, Fault> {
        self.open_as(partition, PartitionPolicy::default()).await
    }

    /// As [`Partitions::open`], of a topic that says more. An open handle is answered as it was opened.
    ///
    /// # Errors
    /// As [`Partitions::open`].
    pub async fn open_as(
        &self,
        partition: PartitionId,
        policy: PartitionPolicy,
    ) -> Result<PartitionHandle, Fault> {
        self.open_claimed(partition, policy, Claim::Owner).await
    }

    /// As [`Partitions::open_as`], by this right.
    pub(crate) async fn open_claimed(
        &self,
        partition: PartitionId,
        policy: PartitionPolicy,
        claim: Claim,
    ) -> Result<PartitionHandle, Fault> {
        if let Some(handle) = self.opened(partition) {
            return Ok(handle);
        }
        let this = self.clone();
        let opening = tokio::spawn(async move { this.open_once(partition, policy, claim).await });
        opening.await.unwrap_or_else(|error| {
            let why = format!("opening partition {partition} ended by itself: {error}");
            Err(Fault::new(Reason::Internal, why))
        })
    }

    async fn open_once(
        &self,
        partition: PartitionId,
        policy: PartitionPolicy,
        claim: Claim,
    ) -> Result<PartitionHandle, Fault> {
        let turn = self.lock().turns.entry(partition).or_default().clone();
        let _turn = turn.lock().await;
        if let Some(handle) = self.opened(partition) {
            return Ok(handle);
        }
        {
            let mut slots = self.lock();
            slots.may_open(partition)?;
            // Before the epoch is won, else a look at metadata behind that would take it for one that is over.
            slots.state.entry(partition).or_default().opening = Some(None);
        }
        let won = |epoch| {
            if let Some(slot) = self.lock().state.get_mut(&partition) {
                slot.opening = Some(Some(epoch));
            }
        };
        self.with.owners.brokers_within(BROKERS_WAIT).await;
        let result = take_over(&self.with, partition, policy, claim, won).await;
        let mut slots = self.lock();
        if let Some(slot) = slots.state.get_mut(&partition) {
            slot.opening = None;
        }
        // A stop or deletion that came meanwhile has left its mark; one that comes later finds the slot filled.
        slots.may_open(partition)?;
        let slot = slots.state.entry(partition).or_default();
        match result {
            Ok(taken) => {
                tracing::debug!(%partition, epoch = %taken.config.epoch, replayed = taken.replayed, "partition is open");
                self.with.certain.forget(partition);
                let handle = spawn(self.with.clone(), taken);
                slot.taken = Some((Instant::now(), slot.next_rest()));
                slot.open = Some(handle.clone());
                slot.failed = None;
                Ok(handle)
            }
            Err(fault) => {
                // Where another one owns it nothing failed, and it may be handed over in a moment.
                if fault.reason != Reason::PartitionMoved {
                    slot.failed = Some(Box::new((Instant::now(), fault.clone())));
                }
                Err(fault)
            }
        }
    }

    /// It was opened here, or somebody tried: something of it is kept.
    pub(crate) fn remembers(&self, partition: PartitionId) -> bool {
        self.lock().turns.contains_key(&partition)
    }

    /// What a topic says now, for those of its partitions that are open here.
    pub(crate) fn topic_changed(&self, topic: &Topic) {
        let open: Vec<PartitionHandle> = {
            let slots = self.lock();
            let of_topic = PartitionId {
                topic: topic.id,
                index: 0,
            }..=PartitionId {
                topic: topic.id,
                index: u32::MAX,
            };
            let slots = slots.state.range(of_topic);
            slots.filter_map(|(_, slot)| slot.open.clone()).collect()
        };
        for handle in open {
            handle.replicate(topic.policy().replication);
        }
    }

    /// The open handle, if there is one that still serves.
    pub fn opened(&self, partition: PartitionId) -> Option<PartitionHandle> {
        let slots = self.lock();
        slots
            .state
            .get(&partition)?
            .open
            .clone()
            .filter(|handle| handle.ended().is_none())
    }

    /// How far each is, all at one moment.
    pub(crate) fn standings(&self, all: impl Iterator<Item = PartitionId>) -> Vec<Standing> {
        let slots = self.lock();
        let slot = |id| {
            slots
                .state
                .get(&id)
                .map_or(Standing::Closed, Slot::standing)
        };
        all.map(slot).collect()
    }

    fn serving(&self, also: impl Fn(&PartitionHandle) -> bool) -> Vec<PartitionHandle> {
        let slots = self.lock();
        let open = slots.state.values().filter_map(|slot| slot.open.as_ref());
        open.filter(|open| open.ended().is_none() && also(open))
            .cloned()
            .collect()
    }

    /// Those that serve and have subscriptions.
    pub(crate) fn consumed(&self) -> Vec<PartitionHandle> {
        self.serving(PartitionHandle::is_consumed)
    }

    /// Of those that serve: the leader epoch, and bytes in and out since it was opened.
    pub(crate) fn traffic(&self) -> Vec<(PartitionId, u32, u64)> {
        let told = |open: &PartitionHandle| (open.id(), open.leader_epoch().0, open.traffic());
        self.serving(|_| true).iter().map(told).collect()
    }

    /// Those that serve.
    pub(crate) fn open_ids(&self) -> Vec<PartitionId> {
        self.serving(|_| true)
            .iter()
            .map(PartitionHandle::id)
            .collect()
    }

    /// It is on its way to another broker, or is not any more.
    pub(crate) fn leaves(&self, partition: PartitionId, to: Option<Fault>) {
        let leaving = &mut self.lock().leaving;
        match to {
            Some(moved) => drop(leaving.insert(partition, moved)),
            None => drop(leaving.remove(&partition)),
        }
    }

    /// Another broker owns it, as far as is known without reading.
    pub(crate) fn is_elsewhere(&self, partition: PartitionId) -> bool {
        self.with.owners.place(partition) != Place::Here
    }

    /// What can be read of a partition that did not open because it is damaged; `fresh`: unless it is time for another try.
    pub(crate) fn certain(&self, partition: PartitionId, fresh: bool) -> Option<PartitionHandle> {
        certain_handle(&self.with, partition, fresh)
    }

    /// How many serve.
    pub fn open_count(&self) -> usize {
        let slots = self.lock();
        slots
            .state
            .values()
            .filter(|slot| {
                slot.open
                    .as_ref()
                    .is_some_and(|open| open.ended().is_none())
            })
            .count()
    }

    /// The fault that keeps a partition from opening, if the last try failed.
    pub fn last_fault(&self, partition: PartitionId) -> Option<Fault> {
        self.lock()
            .state
            .get(&partition)?
            .failed
            .as_ref()
            .map(|failed| failed.1.clone())
    }

    /// Stops serving one partition; everyone who waits there gets `why`. With TOPIC_DELETING or TOPIC_NOT_FOUND it never opens
    /// again on this broker.
    pub async fn close(&self, partition: PartitionId, why: Fault) {
        self.close_below(partition, OwnerEpoch(u32::MAX), why).await;
    }

    /// As [`Partitions::close`], unless it serves under this epoch or a newer one.
    pub(crate) async fn close_below(&self, partition: PartitionId, epoch: OwnerEpoch, why: Fault) {
        let turn = {
            let mut slots = self.lock();
            if matches!(why.reason, Reason::TopicDeleting | Reason::TopicNotFound) {
                slots.deleted.insert(partition);
            }
            // Without one nobody ever opened it here; whoever may ask must not fill memory with partitions that there are not.
            let Some(turn) = slots.turns.get(&partition) else {
                return;
            };
            Arc::clone(turn)
        };
        let _turn = turn.lock().await;
        self.with.certain.forget(partition);
        let handle = self
            .lock()
            .state
            .get_mut(&partition)
            .and_then(|slot| slot.open.take_if(|open| open.leader_epoch() < epoch));
        if let Some(handle) = handle {
            handle.stop(why).await;
        }
    }

    /// Stops all of them: what was sent is confirmed, ledgers are closed, nothing opens any more.
    pub async fn close_all(&self) {
        let open: Vec<PartitionHandle> = {
            let mut slots = self.lock();
            slots.stopping = true;
            slots
                .state
                .values_mut()
                .filter_map(|slot| slot.open.take())
                .collect()
        };
        let why = Fault::new(
            Reason::ShuttingDown,
            "broker is going down; retry at another one",
        );
        futures::future::join_all(open.iter().map(|handle| handle.stop(why.clone()))).await;
    }

    /// The next request opens a partition that did not open, however short ago that was.
    pub(crate) fn forget_failure(&self, partition: PartitionId) {
        if let Some(slot) = self.lock().state.get_mut(&partition) {
            slot.failed = None;
        }
    }
}
