//! Deletion, and what other brokers hear of it.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicI64;

use bookie_metadata::testing::{Fate, Late};
use bookie_metadata::{MemoryStore, MetadataStore as _};
use hulse_proto::error::Reason;
use hulse_proto::id::NodeName;
use tokio_util::sync::CancellationToken;

use super::fakes::{Fuse, FusedStore, Remover, faulty, memory, name, reason, topics};
use crate::keys::pin_key;
use crate::topics::TopicState;

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
    let other = super::fakes::topics(store, 5);
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
    let other = super::fakes::topics(store, 2);
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
async fn topic_that_is_deleted_meanwhile_is_not_pinned() {
    let (topics, store) = memory();
    let topic = topics.create(&name("a"), 1).await.unwrap();
    let partition = topic.partition_ids().next().unwrap();
    let broker = NodeName::new("b").unwrap();
    let is_pinned = async || store.get(&pin_key(partition)).await.unwrap().is_some();
    topics.pin(&name("a"), partition, &broker).await.unwrap();
    assert!(is_pinned().await);
    topics.unpin(partition).await.unwrap();
    assert!(!is_pinned().await);
    // It was read before it was deleted, and written after.
    topics
        .delete(&name("a"), Arc::new(Remover::default()))
        .await
        .unwrap();
    assert!(!topics.pin_of(&topic, partition, &broker).await.unwrap());
    let gone = topics.pin(&name("a"), partition, &broker).await;
    assert_eq!(reason(gone), Reason::TopicNotFound);
    topics.create(&name("a"), 1).await.unwrap();
    let another = topics.pin(&name("a"), partition, &broker).await;
    assert_eq!(reason(another), Reason::TopicNotFound);
    assert!(!is_pinned().await);
}
