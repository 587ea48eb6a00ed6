//! The registry over a memory store: races, unknown outcomes, and a deletion that is cut short at each of its steps.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

use bookie_metadata::testing::{Fate, FaultyStore, Late};
use bookie_metadata::{
    BoxFuture, LeaseId, ListRequest, MemoryStore, MetadataError, MetadataStore, Page, Revision,
    Txn, TxnOutcome, Versioned, WatchStream,
};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{PartitionId, TopicId, TopicName};
use hulse_proto::limits::TOPIC_PARTITIONS_MAX;
use hulse_proto::time::{TimestampMs, WallClock};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::{PartitionRemover, TopicState, Topics, TopicsConfig};

struct Wall;

impl WallClock for Wall {
    fn now_ms(&self) -> TimestampMs {
        1_700_000_000_000
    }
}

fn topics(store: Arc<dyn MetadataStore>, seed: u8) -> Topics {
    let config = TopicsConfig {
        default_partitions: 3,
        auto_create: true,
        seed: [seed; 32],
    };
    Topics::new(store, config, Arc::new(Wall))
}

fn memory() -> (Topics, Arc<MemoryStore>) {
    let store = Arc::new(MemoryStore::new());
    (topics(store.clone(), 1), store)
}

fn faulty() -> (Topics, Arc<FaultyStore<MemoryStore>>) {
    let store = Arc::new(FaultyStore::new(Arc::new(MemoryStore::new())));
    (topics(store.clone(), 1), store)
}

fn name(name: &str) -> TopicName {
    name.parse().unwrap()
}

fn reason<T: std::fmt::Debug>(result: Result<T, Fault>) -> Reason {
    result.unwrap_err().reason
}

/// Remembers what was closed and removed; can be told to fail.
#[derive(Default)]
struct Remover {
    closed: Mutex<Vec<PartitionId>>,
    removed: Mutex<BTreeSet<PartitionId>>,
    refuses: Mutex<Option<u32>>,
    fuse: Option<Arc<Fuse>>,
}

impl PartitionRemover for Remover {
    fn close(&self, partition: PartitionId, _why: Fault) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.burn().await;
            self.closed.lock().unwrap().push(partition);
        })
    }

    fn remove(&self, partition: PartitionId) -> BoxFuture<'_, Result<(), Fault>> {
        Box::pin(async move {
            self.burn().await;
            if *self.refuses.lock().unwrap() == Some(partition.index) {
                return Err(Fault::new(Reason::StorageUnavailable, "for a test"));
            }
            self.removed.lock().unwrap().insert(partition);
            Ok(())
        })
    }
}

impl Remover {
    async fn burn(&self) {
        tokio::task::yield_now().await;
        if let Some(fuse) = &self.fuse {
            fuse.burn().await;
        }
    }
}

/// Lets a number of calls pass; the next one and all later ones never come to an end, as in a process that died there.
struct Fuse(AtomicI64);

impl Fuse {
    async fn burn(&self) {
        if self.0.fetch_sub(1, Ordering::SeqCst) <= 0 {
            std::future::pending::<()>().await;
        }
    }
}

/// A store whose transactions burn a fuse.
struct FusedStore(Arc<MemoryStore>, Arc<Fuse>);

impl MetadataStore for FusedStore {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Versioned>, MetadataError>> {
        self.0.get(key)
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnOutcome, MetadataError>> {
        Box::pin(async move {
            self.1.burn().await;
            self.0.txn(txn).await
        })
    }

    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<Page, MetadataError>> {
        self.0.list(request)
    }

    fn watch(&self, prefix: &str, after: Revision) -> WatchStream {
        self.0.watch(prefix, after)
    }

    fn grant_lease(
        &self,
        ttl: std::time::Duration,
    ) -> BoxFuture<'_, Result<LeaseId, MetadataError>> {
        self.0.grant_lease(ttl)
    }

    fn renew_lease(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), MetadataError>> {
        self.0.renew_lease(lease)
    }

    fn end_lease(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), MetadataError>> {
        self.0.end_lease(lease)
    }
}

#[tokio::test(start_paused = true)]
async fn created_topic_is_found_by_name_and_identity_everywhere() {
    let (topics, store) = memory();
    let made = topics.create(&name("flights"), 0).await.unwrap();
    assert_eq!((made.partitions, made.created_at), (3, 1_700_000_000_000));
    let other = self::topics(store, 2);
    assert_eq!(
        other.get(&name("public/default/flights")).await.unwrap(),
        made
    );
    let third = self::topics(other.0.store.clone(), 3);
    assert_eq!(
        third.find(made.id).await.unwrap(),
        made,
        "a cache that never heard of it asks"
    );
    assert_eq!(
        reason(other.create(&name("flights"), 5).await),
        Reason::TopicExists
    );
    assert_eq!(
        reason(other.get(&name("trains")).await),
        Reason::TopicNotFound
    );
    let unknown = TopicId(Uuid::from_u128(7));
    assert_eq!(reason(other.find(unknown).await), Reason::TopicNotFound);
}

#[tokio::test(start_paused = true)]
async fn partitions_out_of_bounds_are_refused() {
    let (topics, _) = memory();
    let wrong = topics.create(&name("a"), TOPIC_PARTITIONS_MAX + 1).await;
    assert_eq!(reason(wrong), Reason::InvalidRequest);
    topics
        .create(&name("a"), TOPIC_PARTITIONS_MAX)
        .await
        .unwrap();
    assert_eq!(
        reason(topics.add_partitions(&name("a"), 0).await),
        Reason::InvalidRequest
    );
}

#[tokio::test]
async fn racing_creators_converge_on_one_identity() {
    let store = Arc::new(MemoryStore::new());
    let racers = (0..20).map(|seed| {
        let topics = topics(store.clone(), seed);
        tokio::spawn(async move { topics.resolve(&name("race"), true).await.unwrap().id })
    });
    let ids = futures::future::join_all(racers).await;
    let ids: BTreeSet<TopicId> = ids.into_iter().map(Result::unwrap).collect();
    assert_eq!(ids.len(), 1);
}

#[tokio::test(start_paused = true)]
async fn reader_and_closed_switch_create_nothing() {
    let (topics, store) = memory();
    assert_eq!(
        reason(topics.resolve(&name("a"), false).await),
        Reason::TopicNotFound
    );
    let config = TopicsConfig {
        default_partitions: 1,
        auto_create: false,
        seed: [9; 32],
    };
    let closed = Topics::new(store, config, Arc::new(Wall));
    assert_eq!(
        reason(closed.resolve(&name("a"), true).await),
        Reason::TopicNotFound
    );
}

#[tokio::test(start_paused = true)]
async fn creation_of_unknown_outcome_is_settled_by_identity() {
    let fates = [
        Fate::UnknownCommitted,
        Fate::UnknownNever,
        Fate::UnknownLater(Late::OnDemand),
    ];
    for fate in fates {
        let (topics, store) = faulty();
        store.plan_txns([fate]);
        let made = topics.create(&name("a"), 2).await.unwrap();
        let late = store.land_all().await;
        assert!(
            late.iter()
                .all(|late| matches!(late, Ok(TxnOutcome::Conflict { .. })))
        );
        assert_eq!(topics.get(&name("a")).await.unwrap(), made, "{fate:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn creation_that_never_gets_an_answer_says_so() {
    let (topics, store) = faulty();
    store.choose(|call| match call {
        bookie_metadata::testing::Call::Txn(_) => Fate::UnknownNever,
        _ => Fate::Pass,
    });
    assert_eq!(
        reason(topics.create(&name("a"), 2).await),
        Reason::MetadataUnknown
    );
    let (topics, store) = faulty();
    store.plan_txns([Fate::Unavailable]);
    assert_eq!(
        reason(topics.create(&name("a"), 2).await),
        Reason::MetadataUnavailable
    );
    assert_eq!(reason(topics.get(&name("a")).await), Reason::TopicNotFound);
}

#[tokio::test(start_paused = true)]
async fn number_of_partitions_only_grows() {
    let (topics, store) = faulty();
    let made = topics.create(&name("a"), 4).await.unwrap();
    let fault = topics.add_partitions(&name("a"), 3).await.unwrap_err();
    assert_eq!(fault.reason, Reason::PartitionsDecrease);
    assert!(fault.message.contains("lose their order"), "{fault}");
    assert_eq!(topics.add_partitions(&name("a"), 4).await.unwrap(), made);
    for (total, fate) in [
        (5, Fate::Pass),
        (6, Fate::UnknownCommitted),
        (7, Fate::UnknownNever),
        (8, Fate::UnknownLater(Late::OnDemand)),
    ] {
        store.plan_txns([fate]);
        let grown = topics.add_partitions(&name("a"), total).await.unwrap();
        assert_eq!((grown.partitions, grown.id), (total, made.id), "{fate:?}");
        store.land_all().await;
        assert_eq!(topics.get(&name("a")).await.unwrap().partitions, total);
    }
    assert_eq!(
        reason(topics.add_partitions(&name("b"), 5).await),
        Reason::TopicNotFound
    );
}

#[tokio::test(start_paused = true)]
async fn listing_gives_pages_of_one_namespace_in_order() {
    let (topics, _) = memory();
    for short in ["c", "a", "b"] {
        topics.create(&name(short), 1).await.unwrap();
        topics
            .create(&name(&format!("acme/prod/{short}")), 1)
            .await
            .unwrap();
    }
    let mut seen = Vec::new();
    let mut token = String::new();
    loop {
        let page = topics.list("acme/prod", &token, 2).await.unwrap();
        seen.extend(
            page.topics
                .iter()
                .map(|topic| topic.name.topic().to_owned()),
        );
        match page.next {
            Some(next) => token = next,
            None => break,
        }
    }
    assert_eq!(seen, ["a", "b", "c"]);
    assert_eq!(topics.list("", "", 0).await.unwrap().topics.len(), 6);
    assert_eq!(
        reason(topics.list("acme", "", 0).await),
        Reason::InvalidName
    );
    assert_eq!(
        reason(topics.list("a\0/b", "", 0).await),
        Reason::InvalidName
    );
    assert_eq!(
        reason(topics.list("", "\0", 0).await),
        Reason::InvalidRequest
    );
}

#[tokio::test(start_paused = true)]
async fn deleted_topic_is_gone_with_its_data_and_comes_back_as_another() {
    let (topics, store) = memory();
    let first = topics.create(&name("a"), 3).await.unwrap();
    assert!(topics.serves(first.id));
    let remover = Arc::new(Remover::default());
    topics.delete(&name("a"), remover.clone()).await.unwrap();
    let all: BTreeSet<_> = first.partition_ids().collect();
    assert_eq!(*remover.removed.lock().unwrap(), all);
    assert!(!topics.serves(first.id));
    assert_eq!(reason(topics.find(first.id).await), Reason::TopicNotFound);
    assert_eq!(
        reason(topics.delete(&name("a"), remover).await),
        Reason::TopicNotFound
    );
    let second = topics.create(&name("a"), 1).await.unwrap();
    assert_ne!(second.id, first.id);
    let other = self::topics(store, 5);
    assert_eq!(reason(other.find(first.id).await), Reason::TopicNotFound);
    assert_eq!(other.find(second.id).await.unwrap(), second);
}

#[tokio::test(start_paused = true)]
async fn topic_whose_data_cannot_be_removed_stays_in_deleting_and_refuses() {
    let (topics, _) = memory();
    let topic = topics.create(&name("a"), 3).await.unwrap();
    let remover = Arc::new(Remover::default());
    *remover.refuses.lock().unwrap() = Some(1);
    let result = topics.delete(&name("a"), remover.clone()).await;
    assert_eq!(reason(result), Reason::StorageUnavailable);
    assert_eq!(
        topics.get(&name("a")).await.unwrap().state,
        TopicState::Deleting
    );
    for refused in [
        reason(topics.find(topic.id).await),
        reason(topics.resolve(&name("a"), true).await),
        reason(topics.create(&name("a"), 1).await),
        reason(topics.add_partitions(&name("a"), 9).await),
    ] {
        assert_eq!(refused, Reason::TopicDeleting);
    }
    *remover.refuses.lock().unwrap() = None;
    topics.resume_deletions(remover.clone()).await.unwrap();
    assert_eq!(reason(topics.get(&name("a")).await), Reason::TopicNotFound);
}

#[tokio::test(start_paused = true)]
async fn deletion_cut_short_at_each_step_is_finished_by_the_next_start() {
    let steps = 2 + 3 * 3;
    for passed in 0..=steps {
        let store = Arc::new(MemoryStore::new());
        let topic = topics(store.clone(), 1)
            .create(&name("a"), 3)
            .await
            .unwrap();
        let fuse = Arc::new(Fuse(AtomicI64::new(passed)));
        let dying = topics(Arc::new(FusedStore(store.clone(), fuse.clone())), 2);
        let remover = Arc::new(Remover {
            fuse: Some(fuse.clone()),
            ..Remover::default()
        });
        // The mark is a transaction that hangs for ever when the fuse is out; nobody waits for it.
        let deletion = tokio::spawn(async move { dying.delete(&name("a"), remover).await });
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        deletion.abort();

        let remover = Arc::new(Remover::default());
        let next_start = topics(store.clone(), 3);
        next_start.resume_deletions(remover.clone()).await.unwrap();
        match next_start.get(&name("a")).await {
            Ok(found) => {
                assert_eq!(
                    (passed, found.state),
                    (0, TopicState::Active),
                    "never marked"
                );
            }
            Err(fault) => assert_eq!(fault.reason, Reason::TopicNotFound),
        }
        // Whoever did not get to the last step removed all data, in either life.
        if (1..=7).contains(&passed) {
            let all: BTreeSet<_> = topic.partition_ids().collect();
            assert_eq!(
                *remover.removed.lock().unwrap(),
                all,
                "after {passed} steps"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn deletions_of_unknown_outcome_are_settled() {
    for fate in [
        Fate::UnknownCommitted,
        Fate::UnknownNever,
        Fate::UnknownLater(Late::OnDemand),
    ] {
        for marked in [true, false] {
            let (topics, store) = faulty();
            topics.create(&name("a"), 2).await.unwrap();
            store.plan_txns(if marked {
                vec![fate]
            } else {
                vec![Fate::Pass, fate]
            });
            topics
                .delete(&name("a"), Arc::new(Remover::default()))
                .await
                .unwrap();
            assert_eq!(reason(topics.get(&name("a")).await), Reason::TopicNotFound);
            let again = topics.create(&name("a"), 2).await.unwrap();
            store.land_all().await;
            assert_eq!(
                topics.get(&name("a")).await.unwrap(),
                again,
                "{fate:?} hits the old only"
            );
        }
    }
}

#[tokio::test(start_paused = true)]
async fn deletions_of_one_topic_at_the_same_time_share_the_work() {
    let (topics, _) = memory();
    let topic = topics.create(&name("a"), 2).await.unwrap();
    let remover = Arc::new(Remover::default());
    let (name_a, name_b) = (name("a"), name("a"));
    let (first, second) = tokio::join!(
        topics.delete(&name_a, remover.clone()),
        topics.delete(&name_b, remover.clone())
    );
    assert_eq!((first, second), (Ok(()), Ok(())));
    let closed = remover.closed.lock().unwrap().len();
    assert_eq!(
        closed,
        2 * topic.partitions as usize,
        "one round before and one after"
    );
}

#[tokio::test(start_paused = true)]
async fn watch_tells_other_brokers_of_changes() {
    let (topics, store) = memory();
    let other = self::topics(store, 2);
    let stop = CancellationToken::new();
    let remover: Arc<Remover> = Arc::default();
    let run = {
        let (other, remover, stop) = (other.clone(), remover.clone(), stop.clone());
        tokio::spawn(async move { other.run(remover, stop).await })
    };
    let made = topics.create(&name("a"), 1).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    assert!(other.serves(made.id));
    topics.delete(&name("a"), remover).await.unwrap();
    tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    assert!(!other.serves(made.id));
    stop.cancel();
    run.await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn look_up_goes_on_while_metadata_are_silent() {
    let (topics, store) = faulty();
    let made = topics.create(&name("a"), 1).await.unwrap();
    store.silence();
    assert_eq!(topics.resolve(&name("a"), true).await.unwrap(), made);
    assert_eq!(
        reason(topics.resolve(&name("b"), true).await),
        Reason::MetadataUnavailable
    );
    assert_eq!(
        reason(topics.create(&name("b"), 1).await),
        Reason::MetadataUnknown
    );
}
