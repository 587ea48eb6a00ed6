//! Listings: order, pages, pins, compaction.

use std::sync::Arc;

use super::steps::{commit, delete, event, keys, list, page, put, put_op, told, txn};
use crate::store::{
    MetadataError, MetadataStore, Revision, TXN_OPS_MAX, Versioned, WatchEvent, WatchStream,
    list_all,
};
use futures::StreamExt;

type Store = Arc<dyn MetadataStore>;

/// A store may keep this many changes and must not need to keep more.
const HISTORY_CHANGES_MAX: usize = 20_000;

pub(super) async fn keys_sort_bytewise_and_only_the_prefix_is_listed(store: Store) {
    let mut sorted = ["p", "p/", "p/0", "p/00", "p/A", "p/a", "p/a/b", "p/~", "p0"];
    for key in ["p/a", "p/~", "p0", "o", "p/A", "q", "p/00", "p/", "p"] {
        put(&*store, key, "x").await;
    }
    put(&*store, "p/0", "x").await;
    put(&*store, "p/a/b", "x").await;
    sorted.sort_unstable_by(|a, b| a.as_bytes().cmp(b.as_bytes()));
    let all = list(&*store, page("p", 100)).await;
    assert_eq!(keys(&all), sorted);
    assert!(!all.more);
    let inner = list(&*store, page("p/", 100)).await;
    assert_eq!(keys(&inner), &sorted[1..8]);
    assert_eq!(list(&*store, page("", 100)).await.items.len(), 11);
    assert_eq!(list(&*store, page("none", 100)).await.items.len(), 0);
}

pub(super) async fn pages_join_without_gap_or_double(store: Store) {
    let ops = (0..25).map(|n| put_op(&format!("n/{n:03}"), "x"));
    commit(&*store, txn([], ops)).await;
    put(&*store, "m", "x").await;
    put(&*store, "o", "x").await;
    let expected: Vec<String> = (0..25).map(|n| format!("n/{n:03}")).collect();
    for limit in [1, 2, 5, 24, 25, 26] {
        let mut found = Vec::new();
        let mut request = page("n/", limit);
        loop {
            let part = list(&*store, request.clone()).await;
            assert!(part.items.len() <= limit);
            found.extend(part.items.iter().map(|row| row.key.clone()));
            assert_eq!(part.more, found.len() < expected.len(), "limit {limit}");
            if !part.more {
                break;
            }
            request.after = found.last().cloned();
        }
        assert_eq!(found, expected, "limit {limit}");
    }
    let all = list_all(&*store, "n/").await.expect("answers");
    assert_eq!(all.len(), 25);
}

async fn ends_compacted(watch: &mut WatchStream) {
    let answer = watch.next().await;
    let compacted = matches!(answer, Some(Err(MetadataError::Compacted { .. })));
    assert!(compacted, "{answer:?}");
    assert!(watch.next().await.is_none(), "a failed watch ends");
}

/// A watch that fell behind shows every change, or those up to the point where it says that it cannot.
async fn skips_nothing(watch: &mut WatchStream) {
    for n in 0..HISTORY_CHANGES_MAX / TXN_OPS_MAX + 1 {
        for k in 0..TXN_OPS_MAX {
            match watch.next().await {
                Some(Ok(change)) => assert_eq!(told(&change).0, format!("+d/{k}={n}")),
                Some(Err(MetadataError::Compacted { .. })) => {
                    assert!(watch.next().await.is_none(), "a failed watch ends");
                    return;
                }
                other => panic!("{other:?}"),
            }
        }
    }
}

async fn pinned(store: &dyn MetadataStore, at: Revision, limit: usize) -> Vec<Versioned> {
    let mut request = page("d/", limit);
    request.at = Some(at);
    let mut rows = Vec::new();
    loop {
        let part = list(store, request.clone()).await;
        assert_eq!(part.revision, at);
        rows.extend(part.items);
        if !part.more {
            return rows;
        }
        request.after = rows.last().map(|row: &Versioned| row.key.clone());
    }
}

pub(super) async fn pinned_pages_show_one_revision_under_writes(store: Store) {
    let mut states = Vec::new();
    for n in 0..30u32 {
        // Creates, overwrites and removes, at the front, the middle and the end.
        let key = format!("d/{:02}", n * 7 % 10);
        if n % 3 == 2 {
            delete(&*store, &key).await;
        } else {
            put(&*store, &key, &n.to_string()).await;
        }
        put(&*store, "elsewhere", "x").await;
        let now = list(&*store, page("d/", 100)).await;
        states.push((now.revision, now.items));
    }
    for (revision, expected) in &states {
        for limit in [1, 3, 100] {
            let found = pinned(&*store, *revision, limit).await;
            assert_eq!(&found, expected, "at {revision:?} by {limit}");
        }
    }
    let writer = {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for n in 0..40 {
                put(&*store, &format!("d/{:02}", n % 12), "late").await;
            }
        })
    };
    let (revision, expected) = states.last().expect("there are some");
    while !writer.is_finished() {
        assert_eq!(&pinned(&*store, *revision, 2).await, expected);
        tokio::task::yield_now().await;
    }
    writer.await.expect("the writer does not panic");
    assert_eq!(&pinned(&*store, *revision, 2).await, expected);
}

pub(super) async fn pinned_page_before_any_write_is_empty(store: Store) {
    let empty = list(&*store, page("", 10)).await.revision;
    put(&*store, "d/1", "x").await;
    assert_eq!(pinned(&*store, empty, 10).await, vec![]);
    let mut future = page("", 10);
    future.at = Some(Revision(u64::MAX));
    let error = store.list(future).await.expect_err("not reached");
    assert!(matches!(error, MetadataError::Invalid { .. }), "{error}");
}

pub(super) async fn revision_too_old_is_compacted_for_lists_and_watches(store: Store) {
    let old = put(&*store, "d/0", "first").await;
    let mut slow = store.watch("d/", Revision(old.0 - 1));
    assert_eq!(told(&event(&mut slow).await).0, "+d/0=first");
    for n in 0..HISTORY_CHANGES_MAX / TXN_OPS_MAX + 1 {
        let ops = (0..TXN_OPS_MAX).map(|k| put_op(&format!("d/{k}"), &n.to_string()));
        commit(&*store, txn([], ops)).await;
    }
    let mut request = page("d/", 10);
    request.at = Some(old);
    let error = store.list(request.clone()).await.expect_err("too old");
    let MetadataError::Compacted { asked, oldest } = error else {
        panic!("{error}");
    };
    assert!(asked == old.0 && oldest > asked);
    request.at = Some(Revision(oldest));
    assert_eq!(list(&*store, request).await.items.len(), 10);
    ends_compacted(&mut store.watch("d/", old)).await;
    skips_nothing(&mut slow).await;
    let mut kept = store.watch("d/", Revision(oldest));
    let WatchEvent::Put(row) = event(&mut kept).await else {
        panic!("only puts were made");
    };
    assert!(row.version.0 > oldest);
}
