//! Create, find, list and grow.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bookie_metadata::testing::{Call, Fate, Late};
use bookie_metadata::{MemoryStore, TxnOutcome};
use hulse_proto::error::Reason;
use hulse_proto::id::TopicId;
use hulse_proto::limits::TOPIC_PARTITIONS_MAX;
use uuid::Uuid;

use super::fakes::{Wall, faulty, memory, name, reason, topics};
use crate::topics::{Topics, TopicsConfig};

#[tokio::test(start_paused = true)]
async fn created_topic_is_found_by_name_and_identity_everywhere() {
    let (topics, store) = memory();
    let made = topics.create(&name("flights"), 0).await.unwrap();
    assert_eq!((made.partitions, made.created_at), (3, 1_700_000_000_000));
    let other = super::fakes::topics(store, 2);
    assert_eq!(
        other.get(&name("public/default/flights")).await.unwrap(),
        made
    );
    let third = super::fakes::topics(other.0.store.clone(), 3);
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
async fn unknown_identity_costs_one_listing_a_second_however_often_it_is_asked_for() {
    let (topics, store) = faulty();
    topics.create(&name("a"), 1).await.unwrap();
    let listings = Arc::new(AtomicUsize::new(0));
    let count = listings.clone();
    store.choose(move |call| {
        if matches!(call, Call::List(_)) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        Fate::Pass
    });
    let nobody = TopicId(Uuid::from_u128(77));
    for second in 1..=2 {
        for _ in 0..100 {
            assert_eq!(reason(topics.find(nobody).await), Reason::TopicNotFound);
        }
        assert_eq!(listings.load(Ordering::Relaxed), second);
        tokio::time::advance(std::time::Duration::from_secs(1)).await;
    }
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
        Call::Txn(_) => Fate::UnknownNever,
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
