//! Transactions that were given up commit late only if nothing has taken their place.

use std::time::Duration;

use futures::future::join_all;
use tokio::time::timeout;

use super::frozen::Way;
use super::process::Etcd;
use crate::etcd::fence::{Fence, is_needed};
use crate::etcd::{EtcdOptions, EtcdStore};
use crate::store::{
    Compare, ListRequest, MetadataError, MetadataStore, Op, Revision, Txn, TxnOutcome,
};

const QUOTA_BYTES: u64 = 256 << 20;

fn store(addresses: &[String]) -> EtcdStore {
    let mut options = EtcdOptions::new(addresses.to_vec(), "cell/");
    options.request_timeout = Duration::from_secs(2);
    EtcdStore::new(options).unwrap()
}

fn create(key: &str, value: &str) -> Txn {
    Txn {
        compares: vec![Compare::Absent(key.to_owned())],
        ops: vec![Op::put(key, value.to_owned())],
    }
}

fn delete(key: &str, version: Revision) -> Txn {
    let key = key.to_owned();
    Txn {
        compares: vec![Compare::Version(key.clone(), version)],
        ops: vec![Op::Delete { key }],
    }
}

async fn commit(store: &EtcdStore, txn: Txn) -> Revision {
    match store.txn(txn).await {
        Ok(TxnOutcome::Committed { revision }) => revision,
        other => panic!("{other:?}"),
    }
}

/// A way to one etcd that is frozen, and a store that has sent its creation of `k` into it; requests go directly from now on.
async fn frozen(etcd: &Etcd, gives_up: bool) -> (Way, EtcdStore) {
    let way = Way::to(&etcd.address()).await;
    let store = store(&[way.address(), etcd.address()]);
    assert_eq!(store.get("k").await.unwrap(), None);
    way.freeze();
    if gives_up {
        // The caller waits less than the store.
        let dropped = timeout(Duration::from_millis(600), store.txn(create("k", "late"))).await;
        assert!(dropped.is_err(), "{dropped:?}");
    } else {
        let answer = store.txn(create("k", "late")).await;
        let unknown = matches!(answer, Err(MetadataError::OutcomeUnknown { .. }));
        assert!(unknown, "{answer:?}");
    }
    (way, store)
}

#[tokio::test]
async fn creation_that_was_tried_again_and_undone_does_not_come_late() {
    let Some(etcd) = Etcd::start(QUOTA_BYTES).await else {
        return;
    };
    let (mut way, store) = frozen(&etcd, false).await;
    let version = commit(&store, create("k", "again")).await;
    commit(&store, delete("k", version)).await;
    way.thaw().await;
    assert_eq!(store.get("k").await.unwrap(), None);
}

#[tokio::test]
async fn creation_whose_caller_went_away_does_not_come_late() {
    let Some(etcd) = Etcd::start(QUOTA_BYTES).await else {
        return;
    };
    let (mut way, store) = frozen(&etcd, true).await;
    // The first request after it finds out that the way is frozen; then the fence is written, and then this is sent.
    let version = loop {
        match store.txn(create("k", "again")).await {
            Ok(TxnOutcome::Committed { revision }) => break revision,
            Err(MetadataError::Unavailable { .. } | MetadataError::OutcomeUnknown { .. }) => {}
            other => panic!("{other:?}"),
        }
    };
    commit(&store, delete("k", version)).await;
    way.thaw().await;
    assert_eq!(store.get("k").await.unwrap(), None);
}

#[tokio::test]
async fn creation_that_nobody_tries_again_does_not_come_late_either() {
    let Some(etcd) = Etcd::start(QUOTA_BYTES).await else {
        return;
    };
    let (mut way, store) = frozen(&etcd, false).await;
    // Another process makes it and deletes it.
    let other = self::store(&[etcd.address()]);
    let version = commit(&other, create("k", "other")).await;
    commit(&other, delete("k", version)).await;
    way.thaw().await;
    assert_eq!(store.get("k").await.unwrap(), None);
}

#[tokio::test]
async fn overwriting_that_was_given_up_does_not_come_late() {
    let Some(etcd) = Etcd::start(QUOTA_BYTES).await else {
        return;
    };
    let mut way = Way::to(&etcd.address()).await;
    let store = store(&[way.address(), etcd.address()]);
    let put = |value: &str| Txn {
        compares: Vec::new(),
        ops: vec![Op::put("k", value.to_owned())],
    };
    commit(&store, put("first")).await;
    way.freeze();
    let answer = store.txn(put("late")).await;
    assert!(matches!(answer, Err(MetadataError::OutcomeUnknown { .. })));
    commit(&store, put("newest")).await;
    way.thaw().await;
    assert_eq!(store.get("k").await.unwrap().unwrap().value, "newest");
}

#[tokio::test]
async fn nothing_that_could_come_late_is_sent_while_etcd_is_stopped() {
    let Some(etcd) = Etcd::start(QUOTA_BYTES).await else {
        return;
    };
    let store = store(&[etcd.address()]);
    assert_eq!(store.get("k").await.unwrap(), None);
    etcd.signal("-STOP");
    let answer = store.txn(create("k", "first")).await;
    assert!(matches!(answer, Err(MetadataError::OutcomeUnknown { .. })));
    let answer = store.txn(create("k", "second")).await;
    let unsent = matches!(answer, Err(MetadataError::Unavailable { .. }));
    assert!(unsent, "{answer:?}");
    etcd.signal("-CONT");
    let row = loop {
        // It was the first or it is the third: which one, is known from here on.
        match store.txn(create("k", "third")).await {
            Ok(TxnOutcome::Conflict { mut current }) => break current.pop().flatten().unwrap(),
            Ok(TxnOutcome::Committed { .. }) => break store.get("k").await.unwrap().unwrap(),
            Err(MetadataError::Unavailable { .. } | MetadataError::OutcomeUnknown { .. }) => {}
            other => panic!("{other:?}"),
        }
    };
    assert_ne!(row.value, "second");
    commit(&store, delete("k", row.version)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(store.get("k").await.unwrap(), None);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn fence_that_moves_under_many_transactions_fails_none() {
    const ROUNDS: usize = 30;
    const AT_ONCE: usize = 20;
    let Some(etcd) = Etcd::start(QUOTA_BYTES).await else {
        return;
    };
    let store = store(&[etcd.address()]);
    let mut fences = std::collections::BTreeSet::new();
    for round in 0..ROUNDS {
        let made = (0..AT_ONCE).map(|number| {
            let store = store.clone();
            async move {
                if number % 7 == 3 {
                    Fence::open_newest(&store.0);
                }
                commit(&store, create(&format!("{round}/{number}"), "x")).await
            }
        });
        join_all(made).await;
        fences.insert(store.0.fence.known());
        // A conflict of the caller's own is one, whatever the fence does.
        Fence::open_newest(&store.0);
        let again = store.txn(create(&format!("{round}/0"), "y")).await.unwrap();
        let TxnOutcome::Conflict { current } = again else {
            panic!("{again:?}");
        };
        assert_eq!(current.len(), 1);
        assert_eq!(current[0].as_ref().unwrap().value, "x");
    }
    assert_eq!(fences.len(), ROUNDS, "it moved in every round");
}

#[tokio::test]
async fn fence_is_not_written_without_need() {
    let Some(etcd) = Etcd::start(QUOTA_BYTES).await else {
        return;
    };
    let store = store(&[etcd.address()]);
    let version = commit(&store, create("k", "x")).await;
    let _conflict = store.txn(create("k", "y")).await.unwrap();
    commit(&store, delete("k", version)).await;
    commit(&store, create("l", "x")).await;
    let all = ListRequest {
        prefix: String::new(),
        after: None,
        limit: 10,
        at: None,
    };
    let keys = |page: crate::store::Page| -> Vec<String> {
        page.items.into_iter().map(|item| item.key).collect()
    };
    assert_eq!(keys(store.list(all.clone()).await.unwrap()), ["l"]);
    Fence::open_newest(&store.0);
    commit(&store, create("m", "x")).await;
    let with_fence = keys(store.list(all).await.unwrap());
    assert_eq!(with_fence.len(), 3, "{with_fence:?}");
    assert!(with_fence[0].starts_with("fence/"), "{with_fence:?}");
}

#[test]
fn only_what_no_version_ends_needs_the_fence() {
    let absent = || Compare::Absent("k".to_owned());
    let version = |key: &str| Compare::Version(key.to_owned(), Revision(7));
    let put = || vec![Op::put("k", "x")];
    let needs = |compares: Vec<Compare>, ops: Vec<Op>| is_needed(&Txn { compares, ops });
    assert!(needs(vec![], put()));
    assert!(needs(vec![absent()], put()));
    assert!(needs(vec![Compare::Exists("k".to_owned())], put()));
    assert!(needs(vec![version("other"), absent()], put()));
    assert!(!needs(vec![version("k")], put()));
    assert!(!needs(
        vec![Compare::Absent("l".to_owned()), version("k")],
        put()
    ));
    assert!(!needs(vec![absent()], vec![]));
}

#[tokio::test]
async fn etcd_that_was_restored_from_an_older_copy_is_written_to() {
    let Some(etcd) = Etcd::start(QUOTA_BYTES).await else {
        return;
    };
    let store = store(&[etcd.address()]);
    for (round, open) in [false, true].into_iter().enumerate() {
        commit(&store, create(&format!("{round}/before"), "x")).await;
        Fence::open_newest(&store.0);
        commit(&store, create(&format!("{round}/moved"), "x")).await;
        store.0.fence.as_before_a_restore(1_000_000, open);
        commit(&store, create(&format!("{round}/after"), "x")).await;
        let known = store.0.fence.known();
        assert!(known < 1_000_000, "{known}");
        // And it goes on to protect.
        let again = store
            .txn(create(&format!("{round}/after"), "y"))
            .await
            .unwrap();
        assert!(matches!(again, TxnOutcome::Conflict { .. }));
    }
}

/// Leases of nodes last three seconds and are renewed each second.
#[tokio::test]
async fn renewal_goes_to_the_next_member_before_the_lease_ends() {
    let Some(etcd) = Etcd::start(QUOTA_BYTES).await else {
        return;
    };
    let way = Way::to(&etcd.address()).await;
    let options = EtcdOptions::new([way.address(), etcd.address()], "cell/");
    let store = EtcdStore::new(options).unwrap();
    let lease = store.grant_lease(Duration::from_secs(3)).await.unwrap();
    way.freeze();
    let began = tokio::time::Instant::now();
    tokio::time::sleep(Duration::from_secs(1)).await;
    store.renew_lease(lease).await.unwrap();
    assert!(began.elapsed() < Duration::from_millis(2_900));
}

#[tokio::test]
async fn each_endpoint_tells_its_release() {
    let Some(etcd) = Etcd::start(QUOTA_BYTES).await else {
        return;
    };
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let mute = format!("http://{}", silent.local_addr().unwrap());
    let store = store(&[etcd.address(), mute.clone()]);
    let told = store.versions().await;
    assert_eq!(told.len(), 2);
    let version = told[0].version.as_ref().unwrap();
    assert!(version.starts_with("3."), "{version}");
    assert_eq!(told[1].endpoint, mute);
    assert!(told[1].version.is_err() && !told[1].ends_leases());
}
