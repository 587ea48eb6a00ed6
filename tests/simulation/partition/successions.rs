//! A subscription that is deleted and made again and again, while requests that knew an earlier one of its name come late.
//!
//! What must hold: a subscription that was made keeps its cursor where it was made, whatever comes late; and once nobody asks any
//! more, the sweep leaves no cursor that no record has.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bookie_metadata::MetadataStore;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{Offset, OwnerEpoch, SubscriptionId};
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha12Rng;
use serving_broker::testing::{Orphans, topic};
use serving_broker::{
    NewSubscription, PartitionHandle, Partitions, StartPoint, Subscription, SubscriptionKind,
    SubscriptionName, Subscriptions, Topic, Topics, TopicsConfig,
};
use tests_harness::{Cluster, trace};
use tokio::time::{sleep, timeout};

/// Without an answer for this long a request is given up; what it asked for may be done.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(3);
/// Earlier subscriptions that requests still know.
const KNOWN_MAX: usize = 4;

/// A subscription that somebody was told of.
#[derive(Debug, Clone, Copy)]
struct Live {
    cursor: SubscriptionId,
    /// Who made the cursor.
    since: OwnerEpoch,
    /// What is stored from here on came after it was made.
    base_max: Offset,
}

#[derive(Default)]
struct Book {
    known: Vec<Subscription>,
    live: Option<Live>,
}

/// The subscription, and who asks for it.
pub struct Successions {
    cluster: Arc<Cluster>,
    name: SubscriptionName,
    topic: Topic,
    registries: AtomicU32,
    book: Mutex<Book>,
}

impl Successions {
    /// Nobody has asked yet.
    pub fn new(cluster: &Arc<Cluster>) -> Arc<Self> {
        let name = "t/n/again".parse().expect("a topic may be called so");
        Arc::new(Self {
            cluster: cluster.clone(),
            name: SubscriptionName::parse("again", "t/n").expect("a subscription may be called so"),
            topic: topic(name, cluster.partition.topic, 1),
            registries: AtomicU32::default(),
            book: Mutex::default(),
        })
    }

    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The records, as somebody sees them who has this store.
    fn registry(&self, store: Arc<dyn MetadataStore>) -> Subscriptions {
        let number = self.registries.fetch_add(1, Ordering::Relaxed);
        let config = TopicsConfig {
            default_partitions: 1,
            auto_create: false,
            seed: self
                .cluster
                .world
                .seeds
                .bytes(&format!("registry {number}")),
        };
        let clock = self.cluster.world.clock.clone();
        Subscriptions::new(store.clone(), Topics::new(store, config, clock))
    }

    /// Makes, looks at and deletes it, until it is dropped.
    pub async fn live(self: Arc<Self>, mut rng: ChaCha12Rng) {
        loop {
            sleep(Duration::from_millis(rng.random_range(20..600))).await;
            let Some((broker, handle)) = self.cluster.route(false).await else {
                continue;
            };
            let records = self.registry(self.cluster.world.metadata(&broker.process));
            let (stays, start) = (rng.random_bool(0.5), rng.random_bool(0.5));
            let live = self.book().live;
            let step = async {
                match live {
                    Some(live) if stays => self.look(&handle, live).await,
                    Some(_) => self.delete(&records, &handle).await,
                    None => self.make(&records, &handle, start).await,
                }
            };
            // What was cut short goes on with the next step.
            drop(timeout(ANSWER_TIMEOUT, broker.process.heard(Box::pin(step))).await);
        }
    }

    /// Asks for cursors of subscriptions that it knows from before, until it is dropped.
    pub async fn come_late(self: Arc<Self>, mut rng: ChaCha12Rng) {
        loop {
            sleep(Duration::from_millis(rng.random_range(20..400))).await;
            let known = self.book().known.choose(&mut rng).cloned();
            let stale = rng.random_bool(0.2);
            let Some(known) = known else { continue };
            let Some((broker, handle)) = self.cluster.route(stale).await else {
                continue;
            };
            let records = self.registry(self.cluster.world.metadata(&broker.process));
            let asked = broker
                .process
                .heard(Box::pin(records.make_cursor(&handle, &known)));
            drop(timeout(ANSWER_TIMEOUT, asked).await);
            self.cluster
                .world
                .counts
                .add("late requests of subscriptions");
        }
    }

    async fn make(
        &self,
        records: &Subscriptions,
        handle: &PartitionHandle,
        from_start: bool,
    ) -> Result<(), Fault> {
        let new = NewSubscription {
            kind: SubscriptionKind::Exclusive,
            hold: false,
            insists_on_hold: false,
            sharing: Default::default(),
            ttl_ms: 0,
            start: match from_start {
                true => StartPoint::Earliest,
                false => StartPoint::Latest,
            },
        };
        let joined = match records.join(&self.name, &self.topic, new).await {
            Err(fault) if fault.reason == Reason::SubscriptionDeleting => {
                return self.delete(records, handle).await;
            }
            joined => joined?.0,
        };
        self.remember(&joined);
        records.make_cursor(handle, &joined).await?;
        let live = Live {
            cursor: self.cursor(&joined).unwrap_or(joined.id),
            since: handle.leader_epoch(),
            base_max: handle.offsets().high_watermark,
        };
        trace!(self.cluster.world.trace, "a subscription is made: {live:?}");
        self.cluster.world.counts.add("subscriptions made anew");
        self.book().live = Some(live);
        Ok(())
    }

    fn remember(&self, subscription: &Subscription) {
        let mut book = self.book();
        if book
            .known
            .last()
            .is_none_or(|last| last.id != subscription.id)
        {
            book.known.push(subscription.clone());
        }
        if book.known.len() > KNOWN_MAX {
            book.known.remove(0);
        }
    }

    fn cursor(&self, subscription: &Subscription) -> Option<SubscriptionId> {
        subscription.topic(self.topic.id).map(|known| known.cursor)
    }

    async fn delete(&self, records: &Subscriptions, handle: &PartitionHandle) -> Result<(), Fault> {
        self.book().live = None;
        let found = match records.get(&self.name).await {
            Err(fault) if fault.reason == Reason::SubscriptionNotFound => return Ok(()),
            found => found?,
        };
        let Some(marked) = records.begin_delete(&found, None).await? else {
            return Ok(());
        };
        if let Some(cursor) = self.cursor(&marked) {
            handle.remove_cursor(cursor, true).await?;
        }
        records.finish_delete(&marked, None).await?;
        trace!(self.cluster.world.trace, "a subscription is deleted");
        Ok(())
    }

    /// Its cursor is there, where it was made.
    async fn look(&self, handle: &PartitionHandle, live: Live) -> Result<(), Fault> {
        // An owner from before does not know of it.
        if handle.leader_epoch() < live.since {
            return Ok(());
        }
        let views = handle.cursors(Some(live.cursor), 0).await?;
        let highest = live.base_max.max(handle.offsets().log_start);
        let stands = views.first().is_some_and(|view| view.base <= highest);
        self.cluster.world.violations.check(stands, || {
            format!(
                "LOST CURSOR of a subscription: {live:?}, and owner {} shows {views:?}",
                handle.leader_epoch()
            )
        });
        Ok(())
    }

    /// The last word, when nobody asks any more.
    ///
    /// # Errors
    /// The fault with which the owner ended meanwhile.
    pub async fn judge(
        &self,
        partitions: &Partitions,
        handle: &PartitionHandle,
    ) -> Result<(), Fault> {
        let live = self.book().live;
        if let Some(live) = live {
            self.look(handle, live).await?;
        }
        let world = &self.cluster.world;
        let records = self.registry(world.store.clone());
        Orphans::new(partitions.clone(), records.clone())
            .sweep()
            .await?;
        let record = records.get(&self.name).await.ok();
        let known = record.and_then(|record| self.cursor(&record));
        let left = handle.cursors(None, 0).await?;
        let left: Vec<_> = left
            .iter()
            .filter(|view| Some(view.subscription) != known)
            .collect();
        world.violations.check(left.is_empty(), || {
            format!("cursors that no subscription has: {left:?}")
        });
        Ok(())
    }
}
