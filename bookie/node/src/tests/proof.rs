//! Storage.md G1–G3, §12 test 16: nothing that lives is ever proved dead, whatever the listing, the store or the numbers say.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bookie_metadata::cell::{CellSettings, ensure_cell};
use bookie_metadata::{
    BoxFuture, LeaseId, ListRequest, MemoryStore, MetadataError, MetadataStore, Op, Page, Revision,
    Txn, TxnOutcome, Versioned, WatchStream, counter,
};
use hulse_proto::id::{
    CellId, EntryId, FenceToken, Incarnation, LedgerId, NodeName, Offset, OwnerEpoch, PartitionId,
    TopicId,
};
use hulse_proto::ledger::{
    ClosedTotals, Fragment, Intent, LEDGER_IDS_KEY, LedgerKind, LedgerMetadata, LedgerState, Loss,
    LossKind, Member, Quorums, ledger_key,
};
use uuid::Uuid;

use super::support::CELL;
use crate::log::DamagedRange;
use crate::reclaim::{Findings, Held, ProofError, examine};

fn member(name: &str) -> Member {
    Member {
        bookie: NodeName::new(name).unwrap(),
        incarnation: Incarnation(Uuid::from_u128(7)),
    }
}

fn metadata(state: LedgerState, fragments: &[(u64, &[&str])], end: u64) -> LedgerMetadata {
    let ensemble = fragments[0].1.len() as u32;
    let closed = ClosedTotals {
        end: EntryId(end),
        offset_span: 0,
        record_count: 0,
        bytes: 0,
        digest: 0,
    };
    LedgerMetadata {
        kind: LedgerKind::Log,
        partition: PartitionId {
            topic: TopicId(Uuid::from_u128(1)),
            index: 0,
        },
        owner_epoch: OwnerEpoch(1),
        quorums: Quorums {
            ensemble,
            write: ensemble,
            ack: 1,
        },
        state,
        recovery_token: FenceToken(0),
        fragments: fragments
            .iter()
            .map(|(first, names)| Fragment {
                first: EntryId(*first),
                ensemble: names.iter().map(|name| member(name)).collect(),
            })
            .collect(),
        base_offset: Offset(0),
        writer_nonce: [0; 16],
        recovery_nonce: [0; 16],
        repair_nonce: [0; 16],
        tier: None,
        intents: Vec::new(),
        closed: (state == LedgerState::Closed || state == LedgerState::Deleting).then_some(closed),
        degraded: Vec::new(),
        loss: None,
        created_at: 0,
    }
}

async fn put(store: &dyn MetadataStore, ledger: u64, value: &LedgerMetadata) {
    let txn = Txn {
        compares: Vec::new(),
        ops: vec![Op::put(ledger_key(LedgerId(ledger)), value.encode())],
    };
    store.txn(txn).await.unwrap();
}

async fn stand(store: &dyn MetadataStore, ledger: u64, state: LedgerState) {
    put(store, ledger, &metadata(state, &[(0, &["a"])], 5)).await;
}

/// A cell in which the numbers below 100 were given.
async fn store(cell: CellId) -> MemoryStore {
    let store = MemoryStore::new();
    let settings = CellSettings {
        quorums: Quorums {
            ensemble: 1,
            write: 1,
            ack: 1,
        },
        group_shards: 1,
        transaction_shards: 1,
    };
    ensure_cell(&store, settings, cell, 0).await.unwrap();
    counter::reserve(&store, LEDGER_IDS_KEY, 100).await.unwrap();
    store
}

fn held(ledgers: impl IntoIterator<Item = u64>) -> Held {
    Held {
        ledgers: ledgers.into_iter().map(|id| (LedgerId(id), 10)).collect(),
        ..Held::default()
    }
}

async fn pass(store: &dyn MetadataStore, held: &Held) -> Result<Findings, ProofError> {
    examine(store, CELL, (&member("a"), 10), held).await
}

async fn dead(store: &dyn MetadataStore, held: &Held) -> Vec<u64> {
    let found = pass(store, held).await.unwrap();
    found.dead.into_iter().map(|ledger| ledger.0).collect()
}

/// What may be wrong with a listing.
#[derive(Clone, Copy)]
enum Listing {
    Empty,
    /// Says that a page was the last.
    CutOff,
    /// Every third row is missing.
    Holes,
    /// Everything is said to be going.
    Deleting,
}

struct BadListing {
    store: MemoryStore,
    bad: Listing,
    gets: AtomicUsize,
}

impl MetadataStore for BadListing {
    fn get(&self, key: &str) -> BoxFuture<'_, Result<Option<Versioned>, MetadataError>> {
        self.gets.fetch_add(1, Ordering::Relaxed);
        self.store.get(key)
    }

    fn txn(&self, txn: Txn) -> BoxFuture<'_, Result<TxnOutcome, MetadataError>> {
        self.store.txn(txn)
    }

    fn list(&self, request: ListRequest) -> BoxFuture<'_, Result<Page, MetadataError>> {
        let bad = self.bad;
        Box::pin(async move {
            let mut page = self.store.list(request).await?;
            match bad {
                Listing::Empty => page.items.clear(),
                Listing::CutOff => page.items.truncate(1),
                Listing::Holes => {
                    let mut at = 0;
                    page.items.retain(|_| {
                        at += 1;
                        at % 3 != 0
                    });
                }
                Listing::Deleting => {
                    let gone = metadata(LedgerState::Deleting, &[(0, &["a"])], 5).encode();
                    page.items
                        .iter_mut()
                        .for_each(|row| row.value = gone.clone());
                }
            }
            page.more = false;
            Ok(page)
        })
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

#[tokio::test]
async fn ledger_is_dead_when_it_is_being_deleted_or_absent_below_the_given_numbers() {
    let store = store(CELL).await;
    stand(&store, 1, LedgerState::Open).await;
    stand(&store, 2, LedgerState::InRecovery).await;
    stand(&store, 3, LedgerState::Closed).await;
    stand(&store, 4, LedgerState::Deleting).await;
    assert_eq!(dead(&store, &held([1, 2, 3, 4, 5, 99])).await, [4, 5, 99]);
}

/// A number that was never given is no ledger of this store: an older copy of it was put back, and what else it lacks proves nothing.
#[tokio::test]
async fn store_that_never_gave_a_held_number_proves_nothing_of_any_ledger() {
    let store = store(CELL).await;
    stand(&store, 4, LedgerState::Deleting).await;
    for newest in [100, 7_000] {
        let error = pass(&store, &held([4, 5, newest])).await.unwrap_err();
        let ledger = LedgerId(newest);
        assert_eq!(error, ProofError::Older { ledger });
    }
    assert_eq!(dead(&store, &held([4, 5, 99])).await, [4, 5, 99]);
}

#[tokio::test]
async fn faulty_listing_proves_nothing() {
    for bad in [
        Listing::Empty,
        Listing::CutOff,
        Listing::Holes,
        Listing::Deleting,
    ] {
        let store = store(CELL).await;
        for ledger in 1..60 {
            stand(&store, ledger, LedgerState::Closed).await;
        }
        let store = BadListing {
            store,
            bad,
            gets: AtomicUsize::new(0),
        };
        assert_eq!(dead(&store, &held(1..61)).await, [60]);
        assert!(
            store.gets.load(Ordering::Relaxed) > 10,
            "candidates are read"
        );
    }
}

#[tokio::test]
async fn listing_of_many_pages_is_read_to_its_end() {
    let store = store(CELL).await;
    counter::reserve(&store, LEDGER_IDS_KEY, 2_000)
        .await
        .unwrap();
    for ledger in 1..1_300 {
        stand(&store, ledger, LedgerState::Open).await;
    }
    assert_eq!(dead(&store, &held(1..1_301)).await, [1_300]);
}

#[tokio::test]
async fn store_of_another_cell_or_of_none_proves_nothing() {
    let other = store(CellId(Uuid::from_u128(9))).await;
    for store in [other, MemoryStore::new()] {
        let error = pass(&store, &held([1])).await.unwrap_err();
        assert!(matches!(error, ProofError::OtherCell { .. }), "{error}");
    }
}

#[tokio::test(start_paused = true)]
async fn silent_store_proves_nothing_and_is_waited_for() {
    let faulty = bookie_metadata::testing::FaultyStore::new(Arc::new(store(CELL).await));
    let unavailable = bookie_metadata::testing::Fate::Unavailable;
    faulty.plan_reads([unavailable]);
    let error = pass(&faulty, &held([1])).await.unwrap_err();
    assert!(
        matches!(error, ProofError::Metadata(_) | ProofError::Cell(_)),
        "{error}"
    );
    faulty.silence();
    let held = held([1]);
    let silent = tokio::time::timeout(Duration::from_secs(60), pass(&faulty, &held));
    assert!(silent.await.is_err(), "silence is no answer");
}

#[tokio::test]
async fn pass_that_would_drop_suspiciously_much_drops_nothing() {
    let store = store(CELL).await;
    counter::reserve(&store, LEDGER_IDS_KEY, 10_000)
        .await
        .unwrap();
    for ledger in 1..1_000 {
        stand(&store, ledger, LedgerState::Closed).await;
    }
    // A tenth of the ledgers may go, one more may not; and not much more than a tenth of the bytes.
    assert_eq!(dead(&store, &held(1..1_110)).await.len(), 110);
    let error = pass(&store, &held(1..1_120)).await.unwrap_err();
    assert!(
        matches!(
            error,
            ProofError::Breaker {
                dead: 120,
                held: 1_119,
                ..
            }
        ),
        "{error}"
    );
    let mut heavy = held(1..1_105);
    heavy.ledgers.insert(LedgerId(1_001), 1_000_000);
    let error = pass(&store, &heavy).await.unwrap_err();
    assert!(matches!(error, ProofError::Breaker { .. }), "{error}");
    // Few ledgers may always go.
    assert_eq!(dead(&store, &held(2_000..2_050)).await.len(), 50);
    let all = examine(&store, CELL, (&member("a"), 100), &held(3_000..4_000)).await;
    assert_eq!(all.unwrap().dead.len(), 1_000);
}

#[tokio::test]
async fn closed_ledger_in_limbo_tells_which_entries_belong_here() {
    let store = store(CELL).await;
    let three: [(u64, &[&str]); 3] = [(0, &["a", "b"]), (4, &["b", "c"]), (6, &["c", "a"])];
    for (ledger, state, end) in [
        (1, LedgerState::Closed, 9),
        (2, LedgerState::Closed, 5),
        (3, LedgerState::InRecovery, 9),
    ] {
        put(&store, ledger, &metadata(state, &three, end)).await;
    }
    let mut spread = metadata(LedgerState::Closed, &three, 9);
    spread.quorums.write = 1;
    put(&store, 4, &spread).await;
    let mut held = held([1, 2, 3, 4, 5, 6]);
    held.limbo = held.ledgers.keys().copied().collect();
    stand(&store, 5, LedgerState::Open).await;
    let mut lossy = metadata(LedgerState::Closed, &three, 9);
    lossy.loss = Some(Loss {
        kind: LossKind::Accepted,
        from: EntryId(7),
        at: 1,
    });
    put(&store, 6, &lossy).await;
    let found = pass(&store, &held).await.unwrap();
    assert!(found.dead.is_empty());
    let ours: BTreeMap<u64, Vec<(u64, u64)>> = found
        .settled
        .iter()
        .map(|settled| {
            assert_eq!(settled.token, FenceToken(1), "it fences");
            let ours = settled.ours.iter().map(|(first, end)| (first.0, end.0));
            (settled.ledger.0, ours.collect())
        })
        .collect();
    let expected = BTreeMap::from([
        (1, vec![(0, 4), (6, 9)]),
        (2, vec![(0, 4)]),
        (6, vec![(0, 4), (6, 7)]),
    ]);
    assert_eq!(ours, expected);
}

/// A damaged range of the log is told of until every closed ledger of this member is whole, or what it lacks was given up since.
#[tokio::test]
async fn damaged_range_is_covered_when_every_closed_ledger_is_whole_and_none_is_in_limbo() {
    let range = DamagedRange {
        file: 3,
        first: 4096,
        end: u64::MAX,
    };
    let store = store(CELL).await;
    let three: [(u64, &[&str]); 3] = [(0, &["a", "b"]), (4, &["b", "c"]), (6, &["c", "a"])];
    put(&store, 1, &metadata(LedgerState::Closed, &three, 9)).await;
    put(
        &store,
        2,
        &metadata(LedgerState::Closed, &[(0, &["b", "c"])], 9),
    )
    .await;
    stand(&store, 3, LedgerState::Open).await;
    let mut held = held([1, 3]);
    held.since = 1_000;
    let covers = async |held: &Held| {
        let found = pass(&store, held).await.unwrap();
        assert!(found.covered.is_empty() || found.covered == [range]);
        !found.covered.is_empty()
    };
    held.runs = BTreeMap::from([(LedgerId(1), vec![0..4, 6..9])]);
    assert!(!covers(&held).await, "there is no damage");
    held.ranges = vec![range];
    assert!(covers(&held).await);
    held.limbo.insert(LedgerId(3));
    assert!(!covers(&held).await);
    held.limbo.clear();
    held.runs.insert(LedgerId(1), vec![0..4, 6..8]);
    assert!(!covers(&held).await, "entry 8 is missing");
    // Given up before this boot is no word about what this boot found.
    for (at, covered) in [(999, false), (1_000, true)] {
        let mut lossy = metadata(LedgerState::Closed, &three, 9);
        lossy.loss = Some(Loss {
            kind: LossKind::Accepted,
            from: EntryId(8),
            at,
        });
        put(&store, 1, &lossy).await;
        assert_eq!(covers(&held).await, covered, "accepted at {at}");
    }
    // Of one that nobody knows how it is spread it cannot be told.
    let mut spread = metadata(LedgerState::Closed, &three, 9);
    spread.quorums.write = 1;
    put(&store, 5, &spread).await;
    assert!(!covers(&held).await);
}

/// G6: a copy of a ledger that lives is let go of only when it is closed and nothing in metadata names this member.
#[tokio::test]
async fn copy_is_astray_when_neither_a_fragment_nor_an_intent_names_this_member() {
    let store = store(CELL).await;
    let others = |state| metadata(state, &[(0, &["b", "c"]), (3, &["b", "d"])], 5);
    let mut intended = others(LedgerState::Closed);
    intended.intents.push(Intent {
        first: EntryId(3),
        old: member("d"),
        new: member("a"),
        task: [1; 16],
    });
    put(&store, 1, &others(LedgerState::Closed)).await;
    put(&store, 2, &intended).await;
    put(&store, 3, &others(LedgerState::Open)).await;
    put(&store, 4, &others(LedgerState::InRecovery)).await;
    let ours = metadata(
        LedgerState::Closed,
        &[(0, &["a", "c"]), (3, &["b", "d"])],
        5,
    );
    put(&store, 5, &ours).await;
    put(&store, 6, &others(LedgerState::Closed)).await;
    let mut holds = held(1..7);
    holds.empty.insert(LedgerId(6));
    let found = pass(&store, &holds).await.unwrap();
    assert_eq!((found.dead, found.strays), (vec![], vec![LedgerId(1)]));
    // Many go by and by.
    for ledger in 10..99 {
        put(&store, ledger, &others(LedgerState::Closed)).await;
    }
    let found = pass(&store, &held(1..99)).await.unwrap();
    assert_eq!(found.strays.len(), 91);
}
