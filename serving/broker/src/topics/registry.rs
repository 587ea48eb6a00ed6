//! Creates, finds, lists and grows topics.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use bookie_metadata::{ListRequest, MetadataStore, Op, Revision, list_all};
use futures::future::{BoxFuture, FutureExt, Shared};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{TopicId, TopicName};
use hulse_proto::time::WallClock;
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::cache::Cache;
use super::change::{Changed, Expected, change, read};
use super::refusals::{
    check_partitions, decrease, exists, list_prefix, lost_every_race, recreated,
};
use super::topic::{
    NewTopic, PREFIX, Topic, TopicPage, TopicRules, TopicState, id_not_found, not_found,
};
use super::unknown::Unknown;

/// Topics per page when the caller names no number, and at most.
const PAGE: (usize, usize) = (100, 1000);
/// Racing changes of one topic are taken up again at most this often.
const RACES_MAX: usize = 16;

/// What the registry is told at start.
#[derive(Debug, Clone)]
pub struct TopicsConfig {
    /// Partitions of a topic made without a count.
    pub default_partitions: u32,
    /// Whether [`Topics::resolve`] may make a missing topic at all.
    pub auto_create: bool,
    /// Seeds the identities of new topics; from the operating system in production.
    pub seed: [u8; 32],
}

/// The topics of the cell. Cheap to clone.
#[derive(Clone)]
pub struct Topics(pub(super) Arc<Inner>);

/// The outcome that everybody who waits for one deletion shares.
pub(super) type Deletion = Shared<BoxFuture<'static, Result<(), Fault>>>;
/// A deletion under way.
#[derive(Clone)]
pub(super) struct UnderWay {
    pub(super) outcome: Deletion,
    /// Partitions whose data are not gone yet.
    pub(super) left: Arc<AtomicU32>,
}

type Refresh = Shared<BoxFuture<'static, Result<(), Fault>>>;

pub(super) struct Inner {
    pub(super) store: Arc<dyn MetadataStore>,
    config: TopicsConfig,
    clock: Arc<dyn WallClock>,
    rng: Mutex<ChaCha12Rng>,
    cache: Mutex<Cache>,
    unknown: Mutex<Unknown>,
    refresh: Mutex<Option<Refresh>>,
    /// Deletions under way in this process.
    pub(super) deletions: Mutex<HashMap<TopicId, UnderWay>>,
}

/// Locks a mutex of this module: none is held while code that may panic runs.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex
        .lock()
        .expect("no code panics while it holds this lock")
}

impl Topics {
    /// A registry over `store`.
    pub fn new(
        store: Arc<dyn MetadataStore>,
        config: TopicsConfig,
        clock: Arc<dyn WallClock>,
    ) -> Self {
        let rng = ChaCha12Rng::from_seed(config.seed);
        Self(Arc::new(Inner {
            store,
            config,
            clock,
            rng: Mutex::new(rng),
            cache: Mutex::default(),
            unknown: Mutex::default(),
            refresh: Mutex::default(),
            deletions: Mutex::default(),
        }))
    }

    fn new_id(&self) -> TopicId {
        TopicId(self.mint())
    }

    /// An identity that nothing has.
    pub(crate) fn mint(&self) -> uuid::Uuid {
        let mut bytes = [0; 16];
        lock(&self.0.rng).fill_bytes(&mut bytes);
        uuid::Builder::from_random_bytes(bytes).into_uuid()
    }

    /// The wall's time.
    pub(crate) fn now_ms(&self) -> hulse_proto::time::TimestampMs {
        self.0.clock.now_ms()
    }

    /// Makes a topic; `partitions` 0 means the default. Racing makers of one name: one wins, the others get `TOPIC_EXISTS`.
    ///
    /// # Errors
    /// `INVALID_REQUEST`, `TOPIC_EXISTS`, `TOPIC_DELETING`, `METADATA_UNAVAILABLE`, `METADATA_UNKNOWN`.
    pub async fn create(&self, name: &TopicName, partitions: u32) -> Result<Topic, Fault> {
        let new = NewTopic {
            partitions,
            ..NewTopic::default()
        };
        self.create_with(name, new).await
    }

    /// As [`Topics::create`], with more to say.
    ///
    /// # Errors
    /// As [`Topics::create`].
    pub async fn create_with(&self, name: &TopicName, new: NewTopic) -> Result<Topic, Fault> {
        let partitions = match new.partitions {
            0 => self.0.config.default_partitions,
            count => count,
        };
        check_partitions(partitions)?;
        let mut topic = Topic {
            name: name.clone(),
            id: self.new_id(),
            partitions,
            state: TopicState::Active,
            created_at: self.0.clock.now_ms(),
            log_append_time: new.log_append_time,
            retention: new.retention,
            backlog: new.backlog,
            quorums: new.quorums,
            version: Revision::default(),
        };
        let key = Topic::key(name);
        let op = Op::put(key.clone(), topic.encode());
        for _ in 0..RACES_MAX {
            let expected = Expected {
                key: &key,
                version: None,
            };
            match self.change(expected, op.clone()).await? {
                Changed::Committed(revision) => {
                    topic.version = revision;
                    self.learn(&topic);
                    return Ok(topic);
                }
                // Deleted between the transaction and its answer: the name is free again.
                Changed::Differs { current: None, .. } => {}
                Changed::Differs {
                    current: Some(current),
                    ..
                } => {
                    let current = Topic::decode(&current)?;
                    self.learn(&current);
                    if current.id == topic.id {
                        return Ok(current);
                    }
                    return Err(exists(&current));
                }
            }
        }
        Err(lost_every_race(name))
    }

    /// Reads a topic by name, as it is now.
    ///
    /// # Errors
    /// `TOPIC_NOT_FOUND`, `METADATA_UNAVAILABLE`. A topic that is being deleted is answered, with its state.
    pub async fn get(&self, name: &TopicName) -> Result<Topic, Fault> {
        let key = Topic::key(name);
        // Looked up before the read: only what the read can speak of may be forgotten after it.
        let known = self.cached(name);
        let stored = read(self.0.store.get(&key)).await?;
        match stored {
            Some(stored) => {
                let topic = Topic::decode(&stored)?;
                self.learn(&topic);
                Ok(topic)
            }
            None => {
                if let Some(known) = known {
                    self.forget(name, known.version);
                }
                Err(not_found(name))
            }
        }
    }

    /// What a client's look-up gets: the topic, made on the fly where both the caller and the config allow it. While metadata
    /// do not answer, what was last heard is given: a hint like every look-up, since whatever uses it names the identity.
    ///
    /// # Errors
    /// Those of [`Topics::get`] and [`Topics::create`]; `TOPIC_DELETING`.
    pub async fn resolve(&self, name: &TopicName, auto_create: bool) -> Result<Topic, Fault> {
        for _ in 0..RACES_MAX {
            match self.get(name).await {
                Err(fault) if fault.reason == Reason::MetadataUnavailable => {
                    return self.cached(name).ok_or(fault)?.serving();
                }
                Err(fault) if fault.reason == Reason::TopicNotFound => {
                    if !(auto_create && self.0.config.auto_create) {
                        return Err(fault);
                    }
                }
                other => return other?.serving(),
            }
            match self.create(name, 0).await {
                // Somebody else was faster: theirs is as good.
                Err(fault) if fault.reason == Reason::TopicExists => {}
                other => return other,
            }
        }
        Err(lost_every_race(name))
    }

    /// Reads a topic by identity, as it is now. One that is not there is looked for at most once a second.
    ///
    /// # Errors
    /// `TOPIC_NOT_FOUND`: there is none, or another one has its name; `TOPIC_DELETING`; `METADATA_UNAVAILABLE`.
    pub async fn find(&self, id: TopicId) -> Result<Topic, Fault> {
        let mut name = self.cached_id(id);
        if name.is_none() && !lock(&self.0.unknown).holds(id) {
            self.refresh().await?;
            name = self.cached_id(id);
        }
        let Some(name) = name else {
            lock(&self.0.unknown).note(id);
            return Err(id_not_found(id));
        };
        match self.get(&name).await {
            Ok(topic) if topic.id == id => topic.serving(),
            Err(fault) if fault.reason != Reason::TopicNotFound => Err(fault),
            _ => Err(id_not_found(id)),
        }
    }

    /// What was last heard of a serving topic of this name: no read, so a hint only. Whoever uses it names the identity.
    pub fn hint(&self, name: &TopicName) -> Option<Topic> {
        self.cached(name)?.serving().ok()
    }

    /// As [`Topics::hint`], by identity.
    pub fn hint_of(&self, id: TopicId) -> Option<Topic> {
        let found = lock(&self.0.cache).find(id).cloned();
        found?.serving().ok()
    }

    /// Whether this is a topic of the cell's own, as far as it was heard of: no read.
    pub(crate) fn is_internal(&self, id: TopicId) -> bool {
        lock(&self.0.cache).find(id).is_some_and(Topic::is_internal)
    }

    /// The topic for which this is largest, as far as topics were heard of, with what it is.
    pub(crate) fn largest(&self, of: impl Fn(&Topic) -> u32) -> Option<(TopicName, u32)> {
        lock(&self.0.cache).largest(of)
    }

    /// Whether the topic was serving when last heard of: no read. False as soon as a deletion has begun in this process.
    pub fn serves(&self, id: TopicId) -> bool {
        lock(&self.0.cache).serves(id) && !lock(&self.0.deletions).contains_key(&id)
    }

    /// Of a topic that this process deletes: partitions whose data are not gone yet.
    pub fn partitions_left(&self, id: TopicId) -> Option<u32> {
        let deletions = lock(&self.0.deletions);
        Some(deletions.get(&id)?.left.load(Ordering::Relaxed))
    }

    /// Lists topics in order of their names. `namespace` is `tenant/namespace`, or empty for all; `token` comes from the page
    /// before; `size` 0 means the default of 100, and at most 1000 are given.
    ///
    /// # Errors
    /// `INVALID_NAME`, `INVALID_REQUEST` (a token that is none), `METADATA_UNAVAILABLE`.
    pub async fn list(&self, namespace: &str, token: &str, size: u32) -> Result<TopicPage, Fault> {
        let prefix = list_prefix(namespace)?;
        let after = match token {
            "" => None,
            token => {
                let name: TopicName = token.parse().map_err(|_| {
                    let words = "page_token is none that this broker gave; begin without one";
                    Fault::new(Reason::InvalidRequest, words)
                })?;
                Some(Topic::key(&name))
            }
        };
        let limit = if size == 0 {
            PAGE.0
        } else {
            (size as usize).min(PAGE.1)
        };
        let request = ListRequest {
            prefix,
            after,
            limit,
            at: None,
        };
        let page = read(self.0.store.list(request)).await?;
        let topics = page
            .items
            .iter()
            .map(Topic::decode)
            .collect::<Result<Vec<_>, _>>()?;
        for topic in &topics {
            self.learn(topic);
        }
        let next = match topics.last() {
            Some(last) if page.more => Some(last.name.as_str().to_owned()),
            _ => None,
        };
        Ok(TopicPage { topics, next })
    }

    /// Raises the number of partitions to `total`; the same number is fine.
    ///
    /// # Errors
    /// `PARTITIONS_DECREASE`, `INVALID_REQUEST`, `TOPIC_NOT_FOUND`, `TOPIC_DELETING`, `METADATA_UNAVAILABLE`,
    /// `METADATA_UNKNOWN`.
    pub async fn add_partitions(&self, name: &TopicName, total: u32) -> Result<Topic, Fault> {
        check_partitions(total)?;
        let grow = |topic: &Topic, maybe_ours: bool| {
            // Ours may have landed before somebody went further: what was asked for holds.
            if total < topic.partitions && !maybe_ours {
                return Err(decrease(topic, total));
            }
            let mut grown = topic.clone();
            grown.partitions = total.max(topic.partitions);
            Ok(grown)
        };
        self.modify(name, grow).await
    }

    /// Changes how long the records of a topic stay, how much its subscriptions may keep, and how many copies its new ledgers have, at
    /// once. The sweep of retention goes by it from its next round on. `change` is asked again after a race.
    ///
    /// # Errors
    /// Those of `change`; `TOPIC_NOT_FOUND`, `TOPIC_DELETING`, `METADATA_UNAVAILABLE`, `METADATA_UNKNOWN`.
    pub async fn set_rules(
        &self,
        name: &TopicName,
        change: impl Fn(TopicRules) -> Result<TopicRules, Fault>,
    ) -> Result<Topic, Fault> {
        let set = |topic: &Topic, _: bool| {
            let rules = change(topic.rules())?;
            Ok(Topic {
                retention: rules.retention,
                backlog: rules.backlog,
                quorums: rules.quorums,
                ..topic.clone()
            })
        };
        self.modify(name, set).await
    }

    /// Puts what `change` makes of the topic in its place; what stays as it is is not written. `change` is asked again after a race,
    /// and told whether an earlier try of this very change may have landed before.
    async fn modify(
        &self,
        name: &TopicName,
        change: impl Fn(&Topic, bool) -> Result<Topic, Fault>,
    ) -> Result<Topic, Fault> {
        let key = Topic::key(name);
        let mut topic = self.get(name).await?.serving()?;
        let mut ours = false;
        for _ in 0..RACES_MAX {
            let mut changed = change(&topic, ours)?;
            if changed == topic {
                return Ok(topic);
            }
            let expected = Expected {
                key: &key,
                version: Some(topic.version),
            };
            let written = self.change(expected, Op::put(key.clone(), changed.encode()));
            match written.await? {
                Changed::Committed(revision) => {
                    changed.version = revision;
                    self.learn(&changed);
                    return Ok(changed);
                }
                Changed::Differs { current: None, .. } => return Err(not_found(name)),
                Changed::Differs {
                    current: Some(current),
                    maybe_ours,
                } => {
                    let current = Topic::decode(&current)?.serving()?;
                    self.learn(&current);
                    if current.id != topic.id {
                        return Err(recreated(name));
                    }
                    topic = current;
                    ours |= maybe_ours;
                }
            }
        }
        Err(lost_every_race(name))
    }

    pub(super) async fn change(&self, expected: Expected<'_>, op: Op) -> Result<Changed, Fault> {
        change(&*self.0.store, expected, op).await
    }

    pub(super) fn learn(&self, topic: &Topic) {
        lock(&self.0.cache).learn(topic.clone());
    }

    pub(super) fn forget(&self, name: &TopicName, revision: Revision) {
        lock(&self.0.cache).forget(name, revision);
    }

    pub(super) fn forget_unlisted(&self, listed: &[Topic], at: Revision) {
        lock(&self.0.cache).forget_unlisted(listed, at);
    }

    pub(super) fn forget_id(&self, id: TopicId) {
        lock(&self.0.cache).forget_id(id);
    }

    fn cached(&self, name: &TopicName) -> Option<Topic> {
        lock(&self.0.cache).named(name).cloned()
    }

    fn cached_id(&self, id: TopicId) -> Option<TopicName> {
        lock(&self.0.cache).find(id).map(|topic| topic.name.clone())
    }

    /// Reads every topic into the cache. Callers that come while a read is under way wait for the one that follows it, so that
    /// what a caller knew to exist before the call is seen; unknown identities thus cost one listing at a time.
    async fn refresh(&self) -> Result<(), Fault> {
        let under_way = lock(&self.0.refresh).clone();
        if let Some(under_way) = under_way {
            // Its listing may have begun before this call: only its end matters.
            let _ = under_way.await;
        }
        let refresh = {
            let mut slot = lock(&self.0.refresh);
            match &*slot {
                Some(next) if next.peek().is_none() => next.clone(),
                _ => {
                    let topics = self.clone();
                    let next = async move { topics.read_all().await.map(drop) }
                        .boxed()
                        .shared();
                    *slot = Some(next.clone());
                    next
                }
            }
        };
        refresh.await
    }

    /// Every topic at one revision, learnt on the way.
    pub(super) async fn read_all(&self) -> Result<Vec<Topic>, Fault> {
        let all = read(list_all(&*self.0.store, PREFIX)).await?;
        let topics = all
            .iter()
            .map(Topic::decode)
            .collect::<Result<Vec<_>, _>>()?;
        for topic in &topics {
            self.learn(topic);
        }
        Ok(topics)
    }
}
