//! Which shard has a group, which broker has the shard, and the way to its coordinator.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bookie_metadata::cell::read_cell;
use hulse_proto::error::{ErrorKind, Fate, Fault, Reason};
use hulse_proto::id::{NodeName, OwnerEpoch, PartitionId, TopicName};
use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;
use serving_groups::{Answer, Request, RequestId};
use tokio::sync::{Semaphore, oneshot};

use super::claims::{Claims, canonical, record_of};
use super::names::{LOOK_EVERY, Names};
use super::shard::{Asked, Asks, ShardParts, spawn};
use super::watching::Watch;
use crate::listener::Front;
use crate::partition::PartitionHandle;
use crate::topics::Topic;

/// Tenant of what is not for clients.
pub(crate) const INTERNAL_TENANT: &str = "hulse";
/// The internal topic whose partitions are the shards.
const GROUPS_TOPIC: &str = "hulse/internal/groups";
/// Shards of a cell whose record does not say (serving.md B2.1).
const SHARDS: u32 = 64;
/// Requests about groups that are in a broker at once.
const REQUESTS_MAX: usize = 65_536;

/// The coordinators of this broker.
pub(crate) struct Groups {
    shards: Mutex<BTreeMap<PartitionId, Seat>>,
    names: Arc<Names>,
    looks: AtomicBool,
    ids: AtomicU64,
    room: Arc<Semaphore>,
}

/// A coordinator, and what is claimed for it.
#[derive(Clone)]
pub(super) struct Seat {
    epoch: OwnerEpoch,
    asks: Asks,
    pub(super) claims: Arc<Claims>,
}

impl Default for Groups {
    fn default() -> Self {
        Self {
            shards: Mutex::default(),
            names: Arc::new(Names::new()),
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
    fn lock(&self) -> MutexGuard<'_, BTreeMap<PartitionId, Seat>> {
        self.shards
            .lock()
            .expect("no code panics while it holds this lock")
    }

    /// Shards that are coordinated here.
    pub(super) fn begun(&self) -> Vec<PartitionId> {
        let shards = self.lock();
        let begun = shards.iter().filter(|(_, seat)| !seat.asks.is_closed());
        begun.map(|(shard, _)| *shard).collect()
    }
}

/// The shard of a group: FNV-1a of its name, which never changes.
pub(super) fn shard_of(group: &str, shards: u32) -> u32 {
    let hash = group.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    (hash % u64::from(shards)) as u32
}

/// The group that a request may make.
fn makes(request: &Request) -> Option<&Arc<str>> {
    let makes = match request {
        Request::Join(_) | Request::Commit(_) => true,
        Request::Member(beat) => beat.epoch >= 0,
        _ => false,
    };
    request.group().filter(|_| makes)
}

impl Front {
    /// The internal topic of the shards, made at first use.
    pub(super) async fn group_shards(&self) -> Result<Topic, Fault> {
        let name: TopicName = GROUPS_TOPIC.parse().expect("the name keeps the rules");
        if let Some(topic) = self.topics.hint(&name) {
            return Ok(topic);
        }
        match self.topics.resolve(&name, false).await {
            Err(fault) if fault.reason == Reason::TopicNotFound => {}
            found => return found,
        }
        let shards = self.shards_of_cell().await?;
        match self.topics.create(&name, shards).await {
            Err(fault) if fault.reason == Reason::TopicExists => {
                self.topics.resolve(&name, false).await
            }
            made => made,
        }
    }

    /// As many as the cell record says (ARCHITECTURE D4).
    async fn shards_of_cell(&self) -> Result<u32, Fault> {
        let cell = read_cell(&*self.metadata).await.map_err(|error| {
            let words =
                format!("how many shards the groups of the cell have cannot be read: {error}");
            let reason = match error.kind() {
                ErrorKind::Corrupt | ErrorKind::Conflict => Reason::DataDamaged,
                _ => Reason::MetadataUnavailable,
            };
            Fault::new(reason, words)
        })?;
        let shards = cell.map_or(0, |cell| cell.settings.group_shards);
        Ok(match shards {
            0 => SHARDS,
            shards => shards,
        })
    }

    /// The broker that coordinates a group, by any of its names; `None`: this one.
    ///
    /// # Errors
    /// `METADATA_UNAVAILABLE`, `METADATA_UNKNOWN`: ask again.
    pub async fn group_coordinator(&self, group: &str) -> Result<Option<NodeName>, Fault> {
        let topic = self.group_shards().await?;
        let name = canonical(group);
        let shard = shard_of(name.as_deref().unwrap_or(group), topic.partitions) as usize;
        let mut owners = self.partitions.owners_of(&topic).await?;
        Ok(owners.swap_remove(shard).0)
    }

    /// Asks the coordinator of the request's group, if that is this broker. The group may be called by any of its names; answers have the
    /// short one. Whoever stops waiting leaves nothing behind.
    ///
    /// # Errors
    /// `SUBSCRIPTION_EXISTS`: the group would have the name of a subscription of another type (serving.md B1).
    /// `PARTITION_MOVED`: another broker coordinates it; `OVERLOADED`, and those of [`Front::open`]: ask again. With fate unknown: the
    /// coordinator ended meanwhile.
    pub async fn ask_group(&self, mut request: Request) -> Result<Answer, Fault> {
        let topic = self.group_shards().await?;
        if let Some(name) = request.group().and_then(|group| canonical(group)) {
            request.set_group(name);
        }
        let Some(group) = request.group() else {
            let why = "the groups of one shard are asked for by its number";
            return Err(Fault::new(Reason::Internal, why));
        };
        let index = shard_of(group, topic.partitions);
        self.see_topics(&request).await?;
        let topic = topic.id;
        let deleted = match &request {
            Request::Delete { group } => record_of(group),
            _ => None,
        };
        let answer = self.ask_shard(PartitionId { topic, index }, request);
        let answer = answer.await?;
        if let (Some(name), Answer::Deleted(Ok(()))) = (deleted, &answer) {
            self.give_back(&name).await;
        }
        Ok(answer)
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

    pub(super) async fn ask_shard(
        &self,
        shard: PartitionId,
        request: Request,
    ) -> Result<Answer, Fault> {
        let open = self.open(shard).await?;
        let changes = request.changes();
        if !changes {
            open.told_offsets().await?;
        }
        let Ok(_room) = self.groups.room.clone().try_acquire_owned() else {
            let why = "too many requests about groups are under way; ask again later";
            return Err(Fault::new(Reason::Overloaded, why));
        };
        let seat = self.coordinator(&open);
        let id = self.next_request();
        let (answer, receiver) = oneshot::channel();
        let mut waits = Waits {
            asks: seat.asks.clone(),
            id,
            answered: false,
        };
        self.put(&seat, id, request, answer).await?;
        let answer = receiver.await;
        waits.answered = true;
        answer.map_err(|_| {
            let ended = open.ended().unwrap_or_else(|| {
                let why = "the coordinator of the group begins anew; ask again";
                Fault::new(Reason::PartitionLoading, why)
            });
            match changes {
                // It may have been written when the coordinator ended.
                true => Fault {
                    fate: Fate::Unknown,
                    ..ended
                },
                false => ended,
            }
        })
    }

    fn next_request(&self) -> RequestId {
        RequestId(self.groups.ids.fetch_add(1, Ordering::Relaxed))
    }

    /// Puts a request in the coordinator's queue; one that may make its group, with the claim on its name.
    ///
    /// # Errors
    /// `SUBSCRIPTION_EXISTS`: the name is one of another type; those of [`crate::Subscriptions::claim_group`].
    async fn put(
        &self,
        seat: &Seat,
        id: RequestId,
        request: Request,
        answer: oneshot::Sender<Answer>,
    ) -> Result<(), Fault> {
        let name = makes(&request).and_then(|group| Some((group.clone(), record_of(group)?)));
        let asked = Asked::Request(id, request, answer);
        if let Some((group, name)) = name {
            {
                let known = seat.claims.known();
                if known.contains(&group) {
                    // One that has ended drops what it is sent.
                    let _ = seat.asks.send(asked);
                    return Ok(());
                }
            }
            let _looking = seat.claims.looking.lock().await;
            self.subscriptions.claim_group(&name).await?;
            let mut known = seat.claims.known();
            known.insert(group);
            let _ = seat.asks.send(asked);
            return Ok(());
        }
        let _ = seat.asks.send(asked);
        Ok(())
    }

    /// What a coordinator says, asked directly: behind all that is in its queue. `None`: it ended.
    pub(super) async fn ask_seat(&self, seat: &Seat, request: Request) -> Option<Answer> {
        let (answer, receiver) = oneshot::channel();
        let asked = Asked::Request(self.next_request(), request, answer);
        seat.asks.send(asked).ok()?;
        receiver.await.ok()
    }

    /// Watches a member whose coordinator this broker is. A watch of the same member that was there is over.
    ///
    /// # Errors
    /// As [`Front::ask_group`].
    pub(crate) async fn watch_group(
        &self,
        group: &Arc<str>,
        member: &Arc<str>,
    ) -> Result<Watch, Fault> {
        let topic = self.group_shards().await?;
        let index = shard_of(group, topic.partitions);
        let topic = topic.id;
        let open = self.open(PartitionId { topic, index }).await?;
        let seat = self.coordinator(&open);
        let number = self.next_request().0;
        Ok(Watch::begin(
            seat.asks,
            group.clone(),
            member.clone(),
            number,
        ))
    }

    /// The coordinator of an open shard, begun where there is none.
    pub(super) fn coordinator(&self, open: &PartitionHandle) -> Seat {
        let mut shards = self.groups.lock();
        let epoch = open.leader_epoch();
        if let Some(seat) = shards.get(&open.id())
            && seat.epoch == epoch
            && !seat.asks.is_closed()
        {
            return seat.clone();
        }
        let seed: Vec<u8> = [self.topics.mint(), self.topics.mint()]
            .iter()
            .flat_map(|id| id.into_bytes())
            .collect();
        let seed: [u8; 32] = seed.try_into().expect("two identities are 32 bytes");
        let claims = Arc::<Claims>::default();
        let asks = spawn(ShardParts {
            open: open.clone(),
            config: self.config.groups.clone(),
            clock: self.partitions.with.clock.clone(),
            seen: self.groups.names.watch(),
            rng: ChaCha12Rng::from_seed(seed),
            claims: claims.clone(),
        });
        let seat = Seat {
            epoch,
            asks,
            claims,
        };
        shards.insert(open.id(), seat.clone());
        seat
    }

    /// What a request names is known before it is looked at; from then on topics are looked at now and then.
    async fn see_topics(&self, request: &Request) -> Result<(), Fault> {
        if !self.groups.looks.swap(true, Ordering::Relaxed) {
            self.look_at_topics();
        }
        // Nobody is told that a topic is not there because nobody looked yet.
        if !self.groups.names.seen().looked {
            self.groups.names.look(&self.topics).await?;
        }
        let Request::Member(beat) = request else {
            return Ok(());
        };
        let view = self.groups.names.seen().view.clone();
        let mut unknown = false;
        for name in beat.topics.iter().flatten() {
            if view.get(name).is_none()
                && let Ok(name) = name.parse::<TopicName>()
            {
                unknown |= self.topics.resolve(&name, false).await.is_ok();
            }
        }
        match unknown || beat.pattern.is_some() {
            true => self.groups.names.look(&self.topics).await,
            false => Ok(()),
        }
    }

    fn look_at_topics(&self) {
        let (topics, names) = (self.topics.clone(), Arc::clone(&self.groups.names));
        let drain = self.drain.clone();
        self.tasks.spawn(async move {
            loop {
                tokio::select! {
                    biased;
                    () = drain.cancelled() => return,
                    () = tokio::time::sleep(LOOK_EVERY) => {}
                }
                if let Err(fault) = names.look(&topics).await {
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
