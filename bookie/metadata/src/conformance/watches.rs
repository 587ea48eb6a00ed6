//! Watches: replay, live, order.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;
use tokio::time::Instant;

use super::steps::{commit, delete, event, leased_op, list, page, put, put_op, told, txn};
use crate::store::{MetadataStore, Revision};

type Store = Arc<dyn MetadataStore>;

pub(super) async fn watch_replays_from_an_old_revision_then_goes_live(store: Store) {
    let first = put(&*store, "w/a", "1").await;
    let pair = txn([], [put_op("w/b", "2"), put_op("w/a", "3")]);
    let second = commit(&*store, pair).await;
    let third = delete(&*store, "w/b").await;
    let mut watch = store.watch("w/", first);
    let mut expected = vec![
        ("+w/b=2".to_owned(), second),
        ("+w/a=3".to_owned(), second),
        ("-w/b".to_owned(), third),
    ];
    let live = {
        let store = Arc::clone(&store);
        tokio::spawn(async move { put(&*store, "w/c", "4").await })
    };
    let mut seen = Vec::new();
    for _ in 0..4 {
        seen.push(told(&event(&mut watch).await));
    }
    let fourth = live.await.expect("the writer does not panic");
    expected.push(("+w/c=4".to_owned(), fourth));
    assert_eq!(seen, expected);
    let quiet = tokio::time::timeout(Duration::from_millis(50), event(&mut watch)).await;
    assert!(quiet.is_err(), "{quiet:?}");
}

pub(super) async fn watch_of_a_prefix_sees_only_that_prefix(store: Store) {
    let mut watch = store.watch("w/", Revision(0));
    for key in ["w", "w0", "v/x", "w/x"] {
        put(&*store, key, "1").await;
    }
    delete(&*store, "w/never").await;
    put(&*store, "w/y", "2").await;
    assert_eq!(told(&event(&mut watch).await).0, "+w/x=1");
    assert_eq!(told(&event(&mut watch).await).0, "+w/y=2");
}

pub(super) async fn watch_keeps_order_across_concurrent_writers(store: Store) {
    const WRITERS: usize = 5;
    const WRITES: usize = 20;
    let mut watch = store.watch("w/", list(&*store, page("", 1)).await.revision);
    let writers = (0..WRITERS).map(|writer| {
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            for n in 0..WRITES {
                put(&*store, &format!("w/{writer}"), &n.to_string()).await;
            }
        })
    });
    let writers = tokio::spawn(join_all(writers));
    let mut last = Revision(0);
    let mut next = [0; WRITERS];
    for _ in 0..WRITERS * WRITES {
        let (told, revision) = told(&event(&mut watch).await);
        assert!(revision > last, "each write has a revision of its own");
        last = revision;
        let writer: usize = told[3..4].parse().expect("a digit");
        assert_eq!(told, format!("+w/{writer}={}", next[writer]));
        next[writer] += 1;
    }
    for writer in writers.await.expect("joined") {
        writer.expect("no writer panics");
    }
}

pub(super) async fn watch_sees_a_lease_expire_without_other_calls(store: Store) {
    let ttl = Duration::from_secs(2);
    let mut watch = store.watch("w/", Revision(0));
    let waiting = tokio::spawn(async move {
        let put = told(&event(&mut watch).await);
        let gone = told(&event(&mut watch).await);
        (put, gone, Instant::now())
    });
    tokio::task::yield_now().await;
    let lease = store.grant_lease(ttl).await.expect("answers");
    let granted = Instant::now();
    commit(&*store, txn([], [leased_op("w/a", lease)])).await;
    let (put, gone, when) = waiting.await.expect("the watcher does not panic");
    assert_eq!((put.0.as_str(), gone.0.as_str()), ("+w/a=", "-w/a"));
    assert!(gone.1 > put.1);
    assert!(when >= granted + ttl - Duration::from_millis(50));
}
