//! Which shard has a group, which broker has the shard, and the way to its coordinator.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{NodeName, OwnerEpoch, PartitionId, TopicName};
use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;
use serving_groups::{Answer, GroupsConfig, Request, RequestId};
use tokio::sync::{Semaphore, oneshot, watch};

use super::names::{LOOK_EVERY, Seen, look};
use super::shard::{Asked, Asks, ShardParts, spawn};
use crate::listener::Front;
use crate::partition::PartitionHandle;
use crate::topics::Topic;

/// Tenant of what is not for clients.
pub(crate) const INTERNAL_TENANT: &str = "hulse";
/// The internal topic whose partitions are the shards.
const GROUPS_TOPIC: &str = "hulse/internal/groups";
/// Shards of a cell, fixed when its first group comes (serving.md B2.1).
const SHARDS: u32 = 64;
/// Requests about groups that are in a broker at once.
const REQUESTS_MAX: usize = 65_536;

/// The coordinators of this broker.
pub(crate) struct Groups {
    shards: Mutex<BTreeMap<PartitionId, (OwnerEpoch, Asks)>>,
    seen: watch::Sender<Seen>,
    looks: AtomicBool,
    ids: AtomicU64,
    room: Arc<Semaphore>,
}

impl Default for Groups {
    fn default() -> Self {
        Self {
            shards: Mutex::default(),
            seen: watch::Sender::new(Seen::default()),
            looks: AtomicBool::new(false),
            ids: AtomicU64::new(1),
            room: Arc::new(Semaphore::new(REQUESTS_MAX)),
        }
    }
}

/// A request that is waited for; when it is not any more, its coordinator hears of it (serving.md D2.15).
struct Waits {
    asks: Asks,
    id: RequestId,
    answered: bool,
}

impl Drop for Waits {
    fn drop(&mut self) {
        if !self.answered {
            // A coordinator that is gone has forgotten it already.
            let _ = self.asks.send(Asked::Gone(self.id));
        }
    }
}

impl Groups {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<PartitionId, (OwnerEpoch, Asks)>> {
        self.shards
            .lock()
            .expect("no code panics while it holds this lock")
    }
}

/// The shard of a group: FNV-1a of its name, which never changes.
fn shard_of(group: &str, shards: u32) -> u32 {
    let hash = group.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash % u64::from(shards)) as u32
}

impl Front {
    /// The internal topic of the shards, made at first use.
    async fn group_shards(&self) -> Result<Topic, Fault> {
        let name: TopicName = GROUPS_TOPIC.parse().expect("the name keeps the rules");
        if let Some(topic) = self.topics.hint(&name) {
            return Ok(topic);
        }
        match self.topics.resolve(&name, false).await {
            Err(fault) if fault.reason == Reason::TopicNotFound => {}
            found => return found,
        }
        match self.topics.create(&name, SHARDS).await {
            Err(fault) if fault.reason == Reason::TopicExists => {
                self.topics.resolve(&name, false).await
            }
            made => made,
        }
    }

    /// The broker that coordinates a group; `None`: this one.
    ///
    /// # Errors
    /// `METADATA_UNAVAILABLE`, `METADATA_UNKNOWN`: ask again.
    pub async fn group_coordinator(&self, group: &str) -> Result<Option<NodeName>, Fault> {
        let topic = self.group_shards().await?;
        let shard = shard_of(group, topic.partitions) as usize;
        let mut owners = self.partitions.owners_of(&topic).await?;
        Ok(owners.swap_remove(shard).0)
    }

    /// Asks the coordinator of the request's group, if that is this broker. Whoever stops waiting leaves nothing behind.
    ///
    /// # Errors
    /// `PARTITION_MOVED`: another broker coordinates it; `OVERLOADED`, and those of [`Front::open`]: ask again. With fate unknown: the
    /// coordinator ended meanwhile.
    pub async fn ask_group(&self, request: Request) -> Result<Answer, Fault> {
        let topic = self.group_shards().await?;
        let Some(group) = request.group() else {
            let why = "the groups of one shard are asked for by its number";
            return Err(Fault::new(Reason::Internal, why));
        };
        let index = shard_of(group, topic.partitions);
        self.see_topics(&request).await?;
        let topic = topic.id;
        self.ask_shard(PartitionId { topic, index }, request).await
    }

    /// The groups that this broker coordinates.
    ///
    /// # Errors
    /// As [`Front::ask_group`].
    pub async fn list_groups(&self) -> Result<Vec<serving_groups::Listing>, Fault> {
        let topic = self.group_shards().await?;
        let owners = self.partitions.owners_of(&topic).await?;
        let mut all = Vec::new();
        for (index, (owner, _)) in owners.into_iter().enumerate() {
            let partition = PartitionId {
                topic: topic.id,
                index: index as u32,
            };
            if owner.is_none()
                && let Answer::Listed(groups) = self.ask_shard(partition, Request::List).await?
            {
                all.extend(groups);
            }
        }
        Ok(all)
    }

    async fn ask_shard(&self, shard: PartitionId, request: Request) -> Result<Answer, Fault> {
        let open = self.open(shard).await?;
        if !request.changes() {
            open.told_offsets().await?;
        }
        let Ok(_room) = self.groups.room.clone().try_acquire_owned() else {
            let why = "too many requests about groups are under way; ask again later";
            return Err(Fault::new(Reason::Overloaded, why));
        };
        let asks = self.coordinator(&open);
        let id = RequestId(self.groups.ids.fetch_add(1, Ordering::Relaxed));
        let (answer, receiver) = oneshot::channel();
        let mut waits = Waits {
            asks,
            id,
            answered: false,
        };
        // One that has ended drops what it is sent.
        let _ = waits.asks.send(Asked::Request(id, request, answer));
        let answer = receiver.await;
        waits.answered = true;
        answer.map_err(|_| {
            open.ended().unwrap_or_else(|| {
                let why = "the coordinator of the group begins anew; ask again";
                Fault::new(Reason::PartitionLoading, why)
            })
        })
    }

    /// The coordinator of an open shard, begun where there is none.
    fn coordinator(&self, open: &PartitionHandle) -> Asks {
        let mut shards = self.groups.lock();
        let epoch = open.leader_epoch();
        if let Some((begun, asks)) = shards.get(&open.id())
            && *begun == epoch
            && !asks.is_closed()
        {
            return asks.clone();
        }
        let seed: Vec<u8> = [self.topics.mint(), self.topics.mint()]
            .iter()
            .flat_map(|id| id.into_bytes())
            .collect();
        let seed: [u8; 32] = seed.try_into().expect("two identities are 32 bytes");
        let asks = spawn(ShardParts {
            open: open.clone(),
            config: GroupsConfig::default(),
            clock: self.partitions.with.clock.clone(),
            seen: self.groups.seen.subscribe(),
            rng: ChaCha12Rng::from_seed(seed),
        });
        shards.insert(open.id(), (epoch, asks.clone()));
        asks
    }

    /// What a request names is known before it is looked at; from then on topics are looked at now and then.
    async fn see_topics(&self, request: &Request) -> Result<(), Fault> {
        let began = self.groups.looks.swap(true, Ordering::Relaxed);
        if !began {
            self.look_at_topics();
        }
        let Request::Member(beat) = request else {
            return match began {
                true => Ok(()),
                false => look(&self.topics, &self.groups.seen).await,
            };
        };
        let view = self.groups.seen.borrow().view.clone();
        let mut unknown = false;
        for name in beat.topics.iter().flatten() {
            if view.get(name).is_none()
                && let Ok(name) = name.parse::<TopicName>()
            {
                unknown |= self.topics.resolve(&name, false).await.is_ok();
            }
        }
        match unknown || beat.pattern.is_some() || !began {
            true => look(&self.topics, &self.groups.seen).await,
            false => Ok(()),
        }
    }

    fn look_at_topics(&self) {
        let (topics, seen) = (self.topics.clone(), self.groups.seen.clone());
        let drain = self.drain.clone();
        self.tasks.spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    () = drain.cancelled() => return,
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                }
                if let Err(fault) = look(&topics, &seen).await {
                    tracing::debug!(%fault, "topics cannot be looked at for groups now");
                }
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shard_of_a_group_never_changes() {
        let shards = ["", "g", "billing"].map(|group| shard_of(group, SHARDS));
        assert_eq!(shards, [37, 38, 28]);
    }
}
