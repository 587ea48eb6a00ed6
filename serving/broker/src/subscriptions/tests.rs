//! The registry: one identity per name, and what its record says.

use std::sync::Arc;

use bookie_metadata::{MemoryStore, MetadataStore};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::Offset;
use hulse_proto::time::{TimestampMs, WallClock};

use super::*;
use crate::topics::{Topic, Topics, TopicsConfig};

struct Wall;
impl WallClock for Wall {
    fn now_ms(&self) -> TimestampMs {
        1_000
    }
}

fn registry() -> (Subscriptions, Topics) {
    let store: Arc<dyn MetadataStore> = Arc::new(MemoryStore::new());
    let config = TopicsConfig {
        default_partitions: 2,
        auto_create: false,
        seed: [1; 32],
    };
    let topics = Topics::new(store.clone(), config, Arc::new(Wall));
    (Subscriptions::new(store, topics.clone()), topics)
}

async fn topic(topics: &Topics, name: &str) -> Topic {
    topics.create(&name.parse().unwrap(), 0).await.unwrap()
}

fn name(name: &str) -> SubscriptionName {
    SubscriptionName::parse(name, "public/default").unwrap()
}

const NEW: NewSubscription = NewSubscription {
    kind: SubscriptionKind::Exclusive,
    hold: true,
    insists_on_hold: false,
    sharing: Sharing {
        lock_ms: None,
        attempts_max: None,
        dead: Dead::Park,
        backoff_ms: None,
        order: Order::Sticky,
        named_slots: false,
    },
    ttl_ms: 0,
    start: StartPoint::Latest,
};

fn reason<T: std::fmt::Debug>(result: Result<T, Fault>) -> Reason {
    result.unwrap_err().reason
}

#[tokio::test]
async fn subscription_is_made_once_and_topics_are_added() {
    let (subscriptions, topics) = registry();
    let (one, two) = (topic(&topics, "one").await, topic(&topics, "two").await);
    let (made, new) = subscriptions.join(&name("s"), &one, NEW).await.unwrap();
    assert!(new);
    let (again, new) = subscriptions.join(&name("s"), &one, NEW).await.unwrap();
    assert!(!new);
    assert_eq!(again, made);
    let later = NewSubscription {
        start: StartPoint::Offset(Offset(7)),
        ..NEW
    };
    let (grown, new) = subscriptions.join(&name("s"), &two, later).await.unwrap();
    assert!(new);
    assert_eq!((grown.id, grown.topics.len()), (made.id, 2));
    let part = grown.topic(two.id).unwrap();
    assert_eq!(part.start_of(1), StartPoint::Offset(Offset(7)));
    assert_eq!(
        part.start_of(2),
        StartPoint::Earliest,
        "a partition that is added later"
    );
    assert_eq!(subscriptions.get(&name("s")).await.unwrap(), grown);
}

#[tokio::test]
async fn another_type_or_namespace_is_refused() {
    let (subscriptions, topics) = registry();
    let one = topic(&topics, "one").await;
    subscriptions.join(&name("s"), &one, NEW).await.unwrap();
    let failover = NewSubscription {
        kind: SubscriptionKind::Failover,
        ..NEW
    };
    let refused = subscriptions.join(&name("s"), &one, failover).await;
    assert_eq!(reason(refused), Reason::SubscriptionExists);
    let loose = NewSubscription {
        hold: !NEW.hold,
        ..NEW
    };
    let (there, _) = subscriptions
        .join(&name("s"), &one, loose.clone())
        .await
        .unwrap();
    assert_eq!(there.hold, NEW.hold, "it stays as it is");
    let strict = NewSubscription {
        insists_on_hold: true,
        sharing: Sharing::default(),
        ..loose
    };
    // On a topic that it would get, too: nothing is added.
    let two = topic(&topics, "two").await;
    for of in [&one, &two] {
        let refused = subscriptions
            .join(&name("s"), of, strict.clone())
            .await
            .unwrap_err();
        assert_eq!(refused.reason, Reason::SubscriptionExists);
        assert_eq!(refused.details["hold"], NEW.hold.to_string());
    }
    let same = NewSubscription {
        insists_on_hold: true,
        sharing: Sharing::default(),
        ..NEW
    };
    let (there, added) = subscriptions.join(&name("s"), &one, same).await.unwrap();
    assert_eq!((there.topics.len(), added), (1, false));
    let foreign = subscriptions.join(&name("a/b/s"), &one, NEW).await;
    assert_eq!(reason(foreign), Reason::InvalidRequest);
    let long = "x".repeat(300);
    for (bad, wrong) in [
        ("", "it is empty"),
        ("a//b", "its namespace is empty"),
        ("a/b", "it has 2 parts"),
        ("x y", "it has ' ' in it"),
        ("\u{fc}ml", "it has '\u{fc}' in it"),
        ("..", "are no names"),
        ("a/b/c/d", "it has 4 parts"),
        (&long, "it is 315 bytes long, of 249"),
    ] {
        let refused = SubscriptionName::parse(bad, "public/default").unwrap_err();
        assert_eq!(refused.reason, Reason::InvalidName, "{bad:?}");
        assert!(refused.message.contains(wrong), "{refused}");
        assert!(refused.message.contains("1 or more of [A-Za-z0-9._-]"));
    }
}

#[tokio::test]
async fn deletion_is_marked_first_and_a_new_one_has_another_identity() {
    let (subscriptions, topics) = registry();
    let one = topic(&topics, "one").await;
    let (made, _) = subscriptions.join(&name("s"), &one, NEW).await.unwrap();
    let marked = subscriptions.begin_delete(&made, None).await.unwrap();
    let marked = marked.unwrap();
    assert!(marked.deleting);
    let early = subscriptions.join(&name("s"), &one, NEW).await;
    assert_eq!(reason(early), Reason::SubscriptionDeleting);
    subscriptions.finish_delete(&marked, None).await.unwrap();
    assert_eq!(
        reason(subscriptions.get(&name("s")).await),
        Reason::SubscriptionNotFound
    );
    let (other, _) = subscriptions.join(&name("s"), &one, NEW).await.unwrap();
    assert_ne!(other.id, made.id);
    // A late last step of the first deletion does not hit the second subscription.
    subscriptions.finish_delete(&marked, None).await.unwrap();
    assert_eq!(subscriptions.get(&name("s")).await.unwrap().id, other.id);
}

#[tokio::test]
async fn topic_leaves_by_its_own_deletion_and_by_that_of_its_part() {
    let (subscriptions, topics) = registry();
    let (one, two) = (topic(&topics, "one").await, topic(&topics, "two").await);
    subscriptions.join(&name("s"), &one, NEW).await.unwrap();
    subscriptions.join(&name("s"), &two, NEW).await.unwrap();
    subscriptions.forget_topic(&one).await.unwrap();
    let left = subscriptions.get(&name("s")).await.unwrap();
    assert_eq!(left.topics.len(), 1);
    let marked = subscriptions.begin_delete(&left, Some(two.id)).await;
    let marked = marked.unwrap().unwrap();
    assert!(!marked.deleting);
    let early = subscriptions.join(&name("s"), &two, NEW).await;
    assert_eq!(reason(early), Reason::SubscriptionDeleting);
    subscriptions
        .finish_delete(&marked, Some(two.id))
        .await
        .unwrap();
    assert!(
        subscriptions
            .get(&name("s"))
            .await
            .unwrap()
            .topics
            .is_empty()
    );
    let (again, new) = subscriptions.join(&name("s"), &two, NEW).await.unwrap();
    assert!(new);
    assert_eq!(again.id, marked.id);
}

#[tokio::test]
async fn pages_list_one_namespace_in_order() {
    let (subscriptions, topics) = registry();
    let one = topic(&topics, "one").await;
    for number in 0..5 {
        let name = name(&format!("s{number}"));
        subscriptions.join(&name, &one, NEW).await.unwrap();
    }
    let first = subscriptions.list("public/default", "", 3).await.unwrap();
    assert_eq!(first.subscriptions.len(), 3);
    let next = first.next.unwrap();
    let rest = subscriptions
        .list("public/default", &next, 3)
        .await
        .unwrap();
    assert_eq!((rest.subscriptions.len(), rest.next), (2, None));
    let none = subscriptions.list("public/other", "", 0).await.unwrap();
    assert!(none.subscriptions.is_empty());
}
