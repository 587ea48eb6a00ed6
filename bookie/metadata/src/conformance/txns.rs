//! Transactions and reads of one key.

use std::sync::Arc;

use futures::future::join_all;

use super::steps::{commit, delete, get, list, page, put, put_op, txn, value};
use crate::store::{Compare, MetadataStore, Op, Revision, TxnOutcome};

type Store = Arc<dyn MetadataStore>;

pub(super) async fn written_key_is_read_with_the_revision_that_wrote_it(store: Store) {
    assert_eq!(get(&*store, "a").await, None);
    let first = put(&*store, "a", "1").await;
    let second = put(&*store, "b", "2").await;
    let row = get(&*store, "a").await.expect("written");
    assert_eq!(
        (&row.value[..], row.version, row.lease),
        (&b"1"[..], first, None)
    );
    assert_eq!(get(&*store, "b").await.map(|r| r.version), Some(second));
    delete(&*store, "a").await;
    assert_eq!(get(&*store, "a").await, None);
    // A key that does not exist may be deleted.
    delete(&*store, "a").await;
}

pub(super) async fn transaction_of_many_keys_applies_whole_or_not_at_all(store: Store) {
    let old = put(&*store, "c", "old").await;
    let ops = || {
        [
            put_op("a", "1"),
            put_op("b", "2"),
            Op::Delete {
                key: "c".to_owned(),
            },
        ]
    };
    let refused = txn(
        [
            Compare::Absent("a".to_owned()),
            Compare::Exists("b".to_owned()),
        ],
        ops(),
    );
    let outcome = store.txn(refused).await.expect("answers");
    assert!(matches!(outcome, TxnOutcome::Conflict { .. }));
    assert_eq!(get(&*store, "a").await, None);
    assert_eq!(get(&*store, "c").await.map(|r| r.version), Some(old));
    let granted = txn([Compare::Version("c".to_owned(), old)], ops());
    let revision = commit(&*store, granted).await;
    assert_eq!(get(&*store, "a").await.map(|r| r.version), Some(revision));
    assert_eq!(get(&*store, "b").await.map(|r| r.version), Some(revision));
    assert_eq!(get(&*store, "c").await, None);
}

pub(super) async fn absent_exists_and_version_compare_what_is_there(store: Store) {
    let first = put(&*store, "k", "1").await;
    let second = put(&*store, "k", "2").await;
    let key = || "k".to_owned();
    let none = || "none".to_owned();
    for (compare, holds) in [
        (Compare::Absent(key()), false),
        (Compare::Absent(none()), true),
        (Compare::Exists(key()), true),
        (Compare::Exists(none()), false),
        (Compare::Version(key(), second), true),
        (Compare::Version(key(), first), false),
        (Compare::Version(key(), Revision(second.0 + 1)), false),
        (Compare::Version(none(), second), false),
        (Compare::Version(none(), Revision(0)), false),
    ] {
        let probe = txn([compare.clone()], [put_op("probe", "x")]);
        let outcome = store.txn(probe).await.expect("answers");
        assert_eq!(
            matches!(outcome, TxnOutcome::Committed { .. }),
            holds,
            "{compare:?}"
        );
    }
}

pub(super) async fn conflict_returns_each_compared_key_in_order(store: Store) {
    put(&*store, "b", "2").await;
    put(&*store, "a", "1").await;
    let compares = [
        Compare::Exists("b".to_owned()),
        Compare::Exists("none".to_owned()),
        Compare::Absent("a".to_owned()),
    ];
    let outcome = store.txn(txn(compares, [])).await.expect("answers");
    let TxnOutcome::Conflict { current } = outcome else {
        panic!("{outcome:?}");
    };
    let expected = vec![get(&*store, "b").await, None, get(&*store, "a").await];
    assert_eq!(current, expected);
}

pub(super) async fn revisions_grow_with_every_commit(store: Store) {
    let mut last = list(&*store, page("", 1)).await.revision;
    for n in 0..20 {
        let revision = match n % 3 {
            0 => put(&*store, "k", "v").await,
            1 => put(&*store, "other", "v").await,
            _ => delete(&*store, "k").await,
        };
        assert!(revision > last, "{revision:?} after {last:?}");
        last = revision;
        assert_eq!(list(&*store, page("", 9)).await.revision, last);
    }
}

pub(super) async fn transaction_without_operations_only_compares(store: Store) {
    let revision = put(&*store, "k", "v").await;
    let holds = txn([Compare::Version("k".to_owned(), revision)], []);
    commit(&*store, holds).await;
    let fails = txn([Compare::Absent("k".to_owned())], []);
    let outcome = store.txn(fails).await.expect("answers");
    assert!(matches!(outcome, TxnOutcome::Conflict { .. }));
    assert_eq!(get(&*store, "k").await.map(|r| r.version), Some(revision));
}

pub(super) async fn concurrent_compare_and_set_loses_no_update(store: Store) {
    const WRITERS: usize = 8;
    const UPDATES: usize = 10;
    put(&*store, "sum", "0").await;
    let writers = (0..WRITERS).map(|_| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for _ in 0..UPDATES {
                while !add_one(&*store).await {}
            }
        })
    });
    for writer in join_all(writers).await {
        writer.expect("no writer panics");
    }
    let sum = value(&*store, "sum").await;
    assert_eq!(&sum[..], (WRITERS * UPDATES).to_string().as_bytes());
}

async fn add_one(store: &dyn MetadataStore) -> bool {
    let row = get(store, "sum").await.expect("exists");
    let sum: usize = String::from_utf8_lossy(&row.value)
        .parse()
        .expect("a number");
    let swap = txn(
        [Compare::Version("sum".to_owned(), row.version)],
        [put_op("sum", &(sum + 1).to_string())],
    );
    matches!(
        store.txn(swap).await.expect("answers"),
        TxnOutcome::Committed { .. }
    )
}

pub(super) async fn reads_see_what_was_answered_and_never_go_back(store: Store) {
    let writer = {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for n in 0..50 {
                let revision = put(&*store, "k", &n.to_string()).await;
                let row = get(&*store, "k").await.expect("written");
                assert_eq!(row.version, revision);
                let page = list(&*store, page("k", 1)).await;
                assert_eq!(page.items, vec![row]);
                assert!(page.revision >= revision);
            }
        })
    };
    let mut last = Revision(0);
    while !writer.is_finished() {
        let seen = get(&*store, "k").await.map_or(last, |row| row.version);
        assert!(seen >= last, "{seen:?} after {last:?}");
        last = seen;
        tokio::task::yield_now().await;
    }
    writer.await.expect("the writer does not panic");
}

pub(super) async fn dropped_transaction_is_whole_or_absent(store: Store) {
    for n in 0..10 {
        let key = format!("dropped/{n}/");
        let pair = txn(
            [],
            [
                put_op(&format!("{key}a"), "x"),
                put_op(&format!("{key}b"), "x"),
            ],
        );
        let mut call = store.txn(pair);
        // Polled once: it may be on its way.
        let _ = futures::poll!(&mut call);
        drop(call);
    }
    // A later answered transaction comes after all that were on their way.
    put(&*store, "later", "x").await;
    for n in 0..10 {
        let found = list(&*store, page(&format!("dropped/{n}/"), 3)).await;
        assert!(matches!(found.items.len(), 0 | 2), "{found:?}");
    }
}
