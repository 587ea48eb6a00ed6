//! Unknown outcomes, and the rule that resolves them (storage.md, amendment to M3): only a read of a version other than the
//! compared one decides; until then the same bytes are sent again.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::future::join_all;

use super::steps::{get, put, put_op, txn, value};
use crate::store::{Compare, MetadataError, MetadataStore, Revision, Txn, TxnOutcome};
use crate::testing::{Fate, FaultRates, FaultyStore, Late};

type Store = Arc<dyn MetadataStore>;

/// Attempts at most before a case is given up as stuck.
const TRIES_MAX: usize = 200;

fn swap(key: &str, version: Revision, value: &str) -> Txn {
    txn(
        [Compare::Version(key.to_owned(), version)],
        [put_op(key, value)],
    )
}

/// Replaces version `old` by `nonce`; tells whether that happened.
async fn resolve(store: &dyn MetadataStore, key: &str, old: Revision, nonce: &str) -> bool {
    for _ in 0..TRIES_MAX {
        match store.txn(swap(key, old, nonce)).await {
            Ok(TxnOutcome::Committed { .. }) => return true,
            // A conflict after an unknown attempt does not say whose the newer version is.
            Ok(TxnOutcome::Conflict { .. }) | Err(MetadataError::OutcomeUnknown { .. }) => {}
            Err(MetadataError::Unavailable { .. }) => continue,
            Err(error) => panic!("{error}"),
        }
        let Ok(row) = store.get(key).await else {
            continue;
        };
        let row = row.expect("nobody deletes it");
        if row.version != old {
            return row.value == nonce.as_bytes();
        }
    }
    panic!("not resolved in {TRIES_MAX} tries");
}

pub(super) async fn transaction_that_commits_after_a_later_read_is_resolved_by_its_nonce(
    store: Store,
) {
    let faulty = FaultyStore::new(store);
    let old = put(&faulty, "k", "old").await;
    faulty.plan_txns([Fate::UnknownLater(Late::AfterReads(1))]);
    let answer = faulty.txn(swap("k", old, "mine")).await;
    assert!(matches!(answer, Err(MetadataError::OutcomeUnknown { .. })));
    let read = get(&faulty, "k").await.expect("exists");
    assert_eq!(read.version, old, "the read comes first");
    let read = get(&faulty, "k").await.expect("exists");
    assert!(read.version > old, "the transaction landed after the read");
    assert_eq!(&read.value[..], b"mine");
    // The same by the rule: it finds its own nonce, or another's.
    faulty.plan_txns([Fate::UnknownLater(Late::AfterReads(1))]);
    assert!(resolve(&faulty, "k", read.version, "mine-2").await);
    assert_eq!(&value(&faulty, "k").await[..], b"mine-2");
    faulty.plan_txns([Fate::UnknownCommitted]);
    let now = get(&faulty, "k").await.expect("exists").version;
    assert!(resolve(&faulty, "k", now, "mine-3").await);
}

pub(super) async fn transaction_that_never_commits_is_resolved_by_resending(store: Store) {
    let faulty = FaultyStore::new(store);
    let old = put(&faulty, "k", "old").await;
    faulty.plan_txns([Fate::UnknownNever, Fate::Unavailable, Fate::UnknownNever]);
    assert!(resolve(&faulty, "k", old, "mine").await);
    assert_eq!(&value(&faulty, "k").await[..], b"mine");
    faulty.plan_txns([Fate::Unavailable]);
    let answer = faulty.txn(txn([], [put_op("k", "lost")])).await;
    assert!(matches!(answer, Err(MetadataError::Unavailable { .. })));
    assert_eq!(&value(&faulty, "k").await[..], b"mine");
}

pub(super) async fn late_transaction_never_undoes_a_newer_one(store: Store) {
    let faulty = FaultyStore::new(store);
    let old = put(&faulty, "k", "old").await;
    faulty.plan_txns([Fate::UnknownLater(Late::OnDemand)]);
    assert!(faulty.txn(swap("k", old, "late")).await.is_err());
    let other = faulty.txn(swap("k", old, "other")).await;
    assert!(matches!(other, Ok(TxnOutcome::Committed { .. })));
    assert_eq!(faulty.pending(), 1);
    let landed = faulty.land_next().await.expect("one waits");
    assert!(matches!(landed, Ok(TxnOutcome::Conflict { .. })));
    assert_eq!(&value(&faulty, "k").await[..], b"other");
    // The late one's writer finds another's nonce and knows that it lost.
    assert!(!resolve(&faulty, "k", old, "late").await);
}

/// Each writer's count, as it stands in the shared value. Others' counts are carried along, so they serve as nonces.
fn counts(value: &[u8]) -> BTreeMap<usize, usize> {
    String::from_utf8_lossy(value)
        .split_terminator(';')
        .filter_map(|part| part.split_once('='))
        .map(|(writer, count)| {
            let number = |text: &str| text.parse().expect("a number");
            (number(writer), number(count))
        })
        .collect()
}

fn encode(counts: &BTreeMap<usize, usize>) -> String {
    counts.iter().map(|(w, n)| format!("{w}={n};")).collect()
}

/// Raises the writer's count to `to`, exactly once.
async fn raise(store: &dyn MetadataStore, writer: usize, to: usize) {
    let mut tried: Option<(Revision, String)> = None;
    for _ in 0..TRIES_MAX {
        let Ok(row) = store.get("counts").await else {
            continue;
        };
        let row = row.expect("nobody deletes it");
        let mut now = counts(&row.value);
        let mine = now.get(&writer).copied().unwrap_or(0);
        assert!(
            mine + 1 == to || mine == to,
            "writer {writer}: {mine}, {to}"
        );
        if mine == to {
            return;
        }
        let (old, next) = match tried.take() {
            // It may still land: the same bytes again.
            Some((old, next)) if old == row.version => (old, next),
            _ => {
                now.insert(writer, to);
                (row.version, encode(&now))
            }
        };
        if let Ok(TxnOutcome::Committed { .. }) = store.txn(swap("counts", old, &next)).await {
            return;
        }
        tried = Some((old, next));
    }
    panic!("writer {writer} is stuck at {to}");
}

pub(super) async fn every_update_counts_once_under_seeded_unknown_outcomes(store: Store) {
    const WRITERS: usize = 3;
    const UPDATES: usize = 8;
    let rates = FaultRates {
        unavailable: 0.1,
        slow: 0.1,
        unknown: 0.4,
        delay_max: Duration::from_millis(20),
    };
    let faulty = FaultyStore::new(store);
    for seed in 0..8 {
        faulty.choose(|_| Fate::Pass);
        put(&faulty, "counts", "").await;
        faulty.seed(seed, rates);
        let writers = (0..WRITERS).map(|writer| {
            let faulty = faulty.clone();
            tokio::spawn(async move {
                for to in 1..=UPDATES {
                    raise(&faulty, writer, to).await;
                }
            })
        });
        for writer in join_all(writers).await {
            writer.expect("no writer panics");
        }
        faulty.land_all().await;
        let end = value(&*faulty.store(), "counts").await;
        let expected = (0..WRITERS).map(|writer| (writer, UPDATES)).collect();
        assert_eq!(counts(&end), expected, "seed {seed}");
    }
}
