//! Leases.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::sleep;

use super::steps::{commit, event, get, leased_op, list, page, put, told, txn};
use crate::store::{Compare, LeaseId, MetadataError, MetadataStore, TxnOutcome};

type Store = Arc<dyn MetadataStore>;

const TTL: Duration = Duration::from_secs(2);

async fn grant(store: &dyn MetadataStore) -> LeaseId {
    store.grant_lease(TTL).await.expect("answers")
}

async fn bind(store: &dyn MetadataStore, key: &str, lease: LeaseId) {
    commit(store, txn([], [leased_op(key, lease)])).await;
}

pub(super) async fn lease_not_renewed_takes_its_keys_along(store: Store) {
    let lease = grant(&*store).await;
    put(&*store, "stays", "x").await;
    bind(&*store, "goes", lease).await;
    sleep(TTL / 2).await;
    let bound = get(&*store, "goes").await.expect("still there");
    assert_eq!(bound.lease, Some(lease));
    sleep(TTL).await;
    assert_eq!(get(&*store, "goes").await, None);
    // Seen by a compare, too, whoever asks first.
    let other = grant(&*store).await;
    bind(&*store, "goes", other).await;
    sleep(TTL * 2).await;
    let free = txn([Compare::Absent("goes".to_owned())], []);
    let outcome = store.txn(free).await.expect("answers");
    assert!(matches!(outcome, TxnOutcome::Committed { .. }));
    assert!(get(&*store, "stays").await.is_some());
}

pub(super) async fn renewed_lease_lives_on(store: Store) {
    let lease = grant(&*store).await;
    bind(&*store, "k", lease).await;
    for _ in 0..4 {
        sleep(TTL * 3 / 4).await;
        store.renew_lease(lease).await.expect("alive");
    }
    assert!(get(&*store, "k").await.is_some());
    sleep(TTL * 2).await;
    let late = store.renew_lease(lease).await;
    assert_eq!(late, Err(MetadataError::LeaseEnded(lease.0)));
    assert_eq!(get(&*store, "k").await, None);
}

pub(super) async fn ended_lease_takes_all_keys_in_one_revision(store: Store) {
    let lease = grant(&*store).await;
    for n in 0..5 {
        bind(&*store, &format!("l/{n}"), lease).await;
    }
    let before = list(&*store, page("l/", 10)).await;
    assert_eq!(before.items.len(), 5);
    store.end_lease(lease).await.expect("answers");
    assert_eq!(list(&*store, page("l/", 10)).await.items, vec![]);
    let mut watch = store.watch("l/", before.revision);
    let (_, first) = told(&event(&mut watch).await);
    for _ in 1..5 {
        let (told, revision) = told(&event(&mut watch).await);
        assert!(told.starts_with("-l/"));
        assert_eq!(revision, first);
    }
    let again = store.end_lease(lease).await;
    assert_eq!(again, Ok(()), "an ended lease may be ended");
}

pub(super) async fn ended_lease_can_neither_be_renewed_nor_bound(store: Store) {
    let lease = grant(&*store).await;
    store.end_lease(lease).await.expect("answers");
    let never = LeaseId(u64::MAX);
    for gone in [lease, never] {
        let ended = MetadataError::LeaseEnded(gone.0);
        assert_eq!(store.renew_lease(gone).await, Err(ended.clone()));
        let bind = txn([], [leased_op("a", gone)]);
        assert_eq!(store.txn(bind).await, Err(ended));
    }
    assert_eq!(get(&*store, "a").await, None);
    let next = grant(&*store).await;
    assert_ne!(next, lease, "numbers are never given twice");
}

pub(super) async fn key_bound_anew_survives_its_former_lease(store: Store) {
    let (old, new) = (grant(&*store).await, grant(&*store).await);
    for key in ["unbound", "rebound", "deleted", "bound"] {
        bind(&*store, key, old).await;
    }
    put(&*store, "unbound", "x").await;
    bind(&*store, "rebound", new).await;
    super::steps::delete(&*store, "deleted").await;
    put(&*store, "deleted", "again").await;
    store.end_lease(old).await.expect("answers");
    let kept = list(&*store, page("", 10)).await;
    let kept: Vec<_> = kept
        .items
        .iter()
        .map(|row| (row.key.as_str(), row.lease))
        .collect();
    assert_eq!(
        kept,
        [("deleted", None), ("rebound", Some(new)), ("unbound", None)]
    );
}
