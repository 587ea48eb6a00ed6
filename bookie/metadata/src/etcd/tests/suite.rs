//! The suite on a real etcd, and what only etcd does: it dies, comes back, fills up.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hulse_proto::wire::etcd::CompactionRequest;
use hulse_proto::wire::etcd::kv_client::KvClient;

use super::process::Etcd;
use crate::conformance;
use crate::etcd::{EtcdOptions, EtcdStore};
use crate::store::{
    BoxFuture, Compare, LeaseId, ListRequest, MetadataError, MetadataStore, Op, Page, Revision,
    Txn, TxnOutcome, Versioned, WatchStream,
};

const QUOTA_BYTES: u64 = 256 << 20;
/// After so many transactions the wrapped store loses its history but for the last few revisions.
const COMPACTED_EVERY: u64 = 200;
const KEPT: u64 = 10;

/// etcd forgets by time; this one forgets by number, as the suite expects of a store.
struct Forgetful {
    store: EtcdStore,
    /// Of its own: another case's lost history would be lost to this one, too.
    etcd: Etcd,
    txns: AtomicU64,
}

impl Forgetful {
    async fn forget(&self, committed: Revision) {
        if self.txns.fetch_add(1, Ordering::Relaxed) % COMPACTED_EVERY != COMPACTED_EVERY - 1 {
            return;
        }
        let mut etcd = KvClient::connect(self.etcd.address()).await.unwrap();
        let revision = committed.0.saturating_sub(KEPT).cast_signed();
        let physical = false;
        let request = CompactionRequest { revision, physical };
        etcd.compact(request).await.unwrap();
    }
}

impl MetadataStore for Forgetful {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Versioned>, MetadataError>> {
        self.store.get(key)
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnOutcome, MetadataError>> {
        Box::pin(async move {
            let outcome = self.store.txn(txn).await;
            if let Ok(TxnOutcome::Committed { revision }) = &outcome {
                self.forget(*revision).await;
            }
            outcome
        })
    }

    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<Page, MetadataError>> {
        self.store.list(request)
    }

    fn watch(&self, prefix: &str, after: Revision) -> WatchStream {
        self.store.watch(prefix, after)
    }

    fn grant_lease(&self, ttl: Duration) -> BoxFuture<'_, Result<LeaseId, MetadataError>> {
        self.store.grant_lease(ttl)
    }

    fn renew_lease(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), MetadataError>> {
        self.store.renew_lease(lease)
    }

    fn end_lease(&self, lease: LeaseId) -> BoxFuture<'_, Result<(), MetadataError>> {
        self.store.end_lease(lease)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn etcd_store_keeps_every_promise() {
    if Etcd::start(QUOTA_BYTES).await.is_none() {
        return;
    }
    let make = || async {
        let etcd = Etcd::start(QUOTA_BYTES).await.unwrap();
        Arc::new(Forgetful {
            store: etcd.store("cell/"),
            etcd,
            txns: AtomicU64::new(0),
        }) as Arc<dyn MetadataStore>
    };
    let cases = conformance::run(make).await;
    println!("conformance of etcd: {cases} cases");
}

fn put(key: &str, value: &str) -> Txn {
    Txn {
        compares: Vec::new(),
        ops: vec![Op::put(key, value.to_owned())],
    }
}

#[tokio::test]
async fn etcd_that_died_is_unavailable_and_serves_the_same_facts_again() {
    let Some(mut etcd) = Etcd::start(QUOTA_BYTES).await else {
        return;
    };
    let store = etcd.store("cell/");
    store.txn(put("k", "1")).await.unwrap();
    let before = store.get("k").await.unwrap();
    let mut watch = store.watch("", Revision(0));
    assert!(futures::StreamExt::next(&mut watch).await.unwrap().is_ok());
    etcd.kill();
    let ended = futures::StreamExt::next(&mut watch).await;
    let unavailable = matches!(ended, Some(Err(MetadataError::Unavailable { .. })));
    assert!(unavailable, "{ended:?}");
    let error = store.get("k").await.unwrap_err();
    assert!(
        matches!(error, MetadataError::Unavailable { .. }),
        "{error}"
    );
    // Refused connections: certainly not done.
    let error = store.txn(put("k", "2")).await.unwrap_err();
    assert!(
        matches!(error, MetadataError::Unavailable { .. }),
        "{error}"
    );
    etcd.restart(QUOTA_BYTES).await;
    assert_eq!(store.get("k").await.unwrap(), before);
    store.txn(put("k", "3")).await.unwrap();
}

#[tokio::test]
async fn full_etcd_refuses_writes_never_as_done_and_still_reads() {
    let quota_bytes = 16 << 20;
    let Some(etcd) = Etcd::start(quota_bytes).await else {
        return;
    };
    let store = etcd.store("cell/");
    store.txn(put("bound", "1")).await.unwrap();
    let bound = store.get("bound").await.unwrap().unwrap();
    let value = "x".repeat(60 << 10);
    let mut written = 0;
    let error = loop {
        let ops = (0..10).map(|n| Op::put(format!("{written:04}/{n}"), value.clone()));
        let txn = Txn {
            compares: Vec::new(),
            ops: ops.collect(),
        };
        match store.txn(txn).await {
            Ok(_) => written += 1,
            Err(error) => break error,
        }
        assert!(written < 100, "the quota is never reached");
    };
    // etcd may have done the one that has reached the quota.
    let MetadataError::OutcomeUnknown { why } = &error else {
        panic!("{error}");
    };
    assert!(why.contains("quota"), "{why}");
    let over = Txn {
        compares: vec![Compare::Version("bound".to_owned(), bound.version)],
        ops: vec![Op::put("bound", "2")],
    };
    let refused = store.txn(over).await.unwrap_err();
    let undone = matches!(&refused, MetadataError::Unavailable { why } if why.contains("quota"));
    assert!(undone, "its version tells: {refused}");
    assert_eq!(store.get("bound").await.unwrap(), Some(bound));
    // It is over: the next one need not wait until it cannot come late, and a deletion needs no room.
    let deleted = Txn {
        compares: Vec::new(),
        ops: vec![Op::Delete {
            key: "0000/1".to_owned(),
        }],
    };
    let deleted = store.txn(deleted).await.unwrap();
    assert!(matches!(deleted, TxnOutcome::Committed { .. }));
    let request = ListRequest {
        prefix: format!("{written:04}/"),
        after: None,
        limit: 10,
        at: None,
    };
    let refused = store.list(request).await.unwrap();
    assert_eq!(refused.items, vec![], "what was refused was not done");
    assert!(store.get("0000/0").await.unwrap().is_some());
}

#[tokio::test]
async fn second_endpoint_answers_when_the_first_does_not() {
    let Some(etcd) = Etcd::start(QUOTA_BYTES).await else {
        return;
    };
    // Nobody listens on the first; the second takes connections and never answers.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = "http://127.0.0.1:1".to_owned();
    let mute = format!("http://{}", silent.local_addr().unwrap());
    let mut options = EtcdOptions::new([nobody, mute, etcd.address()], "cell/");
    options.request_timeout = Duration::from_secs(3);
    let store = EtcdStore::new(options).unwrap();
    let absent = Txn {
        compares: vec![Compare::Absent("k".to_owned())],
        ops: vec![Op::put("k", "1")],
    };
    // The mute one swallows the request: its outcome is unknown until a read of the key says otherwise.
    let answer = store.txn(absent.clone()).await;
    let unknown = matches!(answer, Err(MetadataError::OutcomeUnknown { .. }));
    assert!(unknown, "{answer:?}");
    assert_eq!(store.get("k").await.unwrap(), None);
    let again = store.txn(absent).await.unwrap();
    assert!(matches!(again, TxnOutcome::Committed { .. }));
}
