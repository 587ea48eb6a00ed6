//! Steps that many cases take.

use bytes::Bytes;

use crate::store::{
    Compare, LeaseId, ListRequest, MetadataStore, Op, Page, Revision, Txn, TxnOutcome, Versioned,
    WatchEvent, WatchStream,
};
use futures::StreamExt;

/// A transaction of these parts.
pub(super) fn txn(
    compares: impl IntoIterator<Item = Compare>,
    ops: impl IntoIterator<Item = Op>,
) -> Txn {
    Txn {
        compares: compares.into_iter().collect(),
        ops: ops.into_iter().collect(),
    }
}

/// A put of text.
pub(super) fn put_op(key: &str, value: &str) -> Op {
    Op::put(key, Bytes::copy_from_slice(value.as_bytes()))
}

/// A put that is bound to a lease.
pub(super) fn leased_op(key: &str, lease: LeaseId) -> Op {
    Op::Put {
        key: key.to_owned(),
        value: Bytes::new(),
        lease: Some(lease),
    }
}

/// Commits or panics.
pub(super) async fn commit(store: &dyn MetadataStore, txn: Txn) -> Revision {
    match store.txn(txn).await.expect("the store answers") {
        TxnOutcome::Committed { revision } => revision,
        TxnOutcome::Conflict { current } => panic!("unexpected conflict with {current:?}"),
    }
}

/// Writes one key.
pub(super) async fn put(store: &dyn MetadataStore, key: &str, value: &str) -> Revision {
    commit(store, txn([], [put_op(key, value)])).await
}

/// Removes one key.
pub(super) async fn delete(store: &dyn MetadataStore, key: &str) -> Revision {
    let key = key.to_owned();
    commit(store, txn([], [Op::Delete { key }])).await
}

/// Reads one key.
pub(super) async fn get(store: &dyn MetadataStore, key: &str) -> Option<Versioned> {
    store.get(key).await.expect("the store answers")
}

/// Reads the value of a key that exists.
pub(super) async fn value(store: &dyn MetadataStore, key: &str) -> Bytes {
    get(store, key).await.expect("the key exists").value
}

/// A first page.
pub(super) fn page(prefix: &str, limit: usize) -> ListRequest {
    ListRequest {
        prefix: prefix.to_owned(),
        after: None,
        limit,
        at: None,
    }
}

/// Lists or panics.
pub(super) async fn list(store: &dyn MetadataStore, request: ListRequest) -> Page {
    store.list(request).await.expect("the store answers")
}

/// The keys of a page.
pub(super) fn keys(page: &Page) -> Vec<&str> {
    page.items.iter().map(|row| row.key.as_str()).collect()
}

/// The next event; panics when the stream ends or fails.
pub(super) async fn event(watch: &mut WatchStream) -> WatchEvent {
    watch
        .next()
        .await
        .expect("the watch goes on")
        .expect("the watch does not fail")
}

/// `+key=value` or `-key`, and when.
pub(super) fn told(event: &WatchEvent) -> (String, Revision) {
    match event {
        WatchEvent::Put(row) => {
            let value = String::from_utf8_lossy(&row.value);
            (format!("+{}={value}", row.key), row.version)
        }
        WatchEvent::Deleted { key, revision } => (format!("-{key}"), *revision),
    }
}
