//! The node as others call it, over real files and inline over memory.

use std::sync::Arc;

use hulse_proto::bookie::{
    Address, BookieCalls, BookieError, FenceRequest, RecoveryReadAnswer, RecoveryReadRequest,
};
use hulse_proto::id::{EntryId, FenceToken, LedgerId};
use hulse_proto::ledger::{LEDGER_IDS_KEY, LedgerState};

use super::support::*;
use crate::disk::OsDisk;
use crate::disk::memory::MemoryDisk;
use crate::{BookieNode, NodeConfig, StartError};

fn address(node: &BookieNode, ledger: u64) -> Address {
    Address {
        cell: CELL,
        incarnation: node.member().incarnation,
        ledger: LedgerId(ledger),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_on_files_keeps_what_it_confirmed() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(MapStore::default());
    let disk = Arc::new(OsDisk::open(dir.path()).unwrap());
    let roomy = NodeConfig {
        file_bytes: 4 << 20,
        queue_bytes_max: 4 << 20,
        ..config()
    };
    let node = BookieNode::start(roomy, seams(disk, store.clone(), 1))
        .await
        .unwrap();
    let to = address(&node, 7);
    store.ledger(7, LedgerState::Open, node.member());
    let adds: Vec<_> = (0..200)
        .map(|n| node.add(add(to, entry(7, n, 5000))))
        .collect();
    for answer in adds {
        answer.await.unwrap();
    }
    assert_eq!(
        store.gets("ledger/00000000000000000007"),
        1,
        "one read per ledger (B2)"
    );
    node.shutdown().await.unwrap();
    assert!(matches!(
        node.add(add(to, entry(7, 200, 1))).await,
        Err(BookieError::Failed { .. })
    ));
    drop(node);

    let disk = Arc::new(OsDisk::open(dir.path()).unwrap());
    let node = BookieNode::start(config(), seams(disk, store.clone(), 2))
        .await
        .unwrap();
    assert_eq!(node.status().boot_counter, 2);
    let mut first = 0;
    while first < 200 {
        let found = node.read(read(to, first, 200)).await.unwrap();
        for stored in &found {
            assert_eq!(stored.entry.header(), entry(7, first, 5000).header());
            assert_eq!(stored.entry.body(), entry(7, first, 5000).body());
            assert_eq!(stored.confirmed_end, EntryId(first));
            first += 1;
        }
    }
    fenced_and_deleted(&node, to).await;
    node.shutdown().await.unwrap();
}

/// Heads, fence, recovery reads and deletion of a ledger of 200 entries.
async fn fenced_and_deleted(node: &BookieNode, to: Address) {
    let heads = node.read_heads(read(to, 10, 20)).await.unwrap();
    assert_eq!(heads.len(), 10);
    assert_eq!(heads[3].header, *entry(7, 13, 5000).header());
    assert_eq!(heads[3].envelope, entry(7, 13, 5000).envelope());
    let token = FenceToken(3);
    let fenced = node.fence(FenceRequest { to, token }).await.unwrap();
    assert_eq!(
        (fenced.confirmed_end, fenced.held_end),
        (EntryId(199), EntryId(200))
    );
    let error = node.add(add(to, entry(7, 200, 1))).await.unwrap_err();
    assert_eq!(
        error,
        BookieError::Fenced {
            ledger: LedgerId(7),
            token
        }
    );
    let ask = |entry| RecoveryReadRequest {
        to,
        token,
        entry: EntryId(entry),
    };
    let answer = node.recovery_read(ask(199)).await.unwrap();
    assert!(
        matches!(answer, RecoveryReadAnswer::Positive(stored) if stored.entry.header().entry == EntryId(199))
    );
    let answer = node.recovery_read(ask(200)).await.unwrap();
    assert!(matches!(
        answer,
        RecoveryReadAnswer::Negative {
            unsynced_limbo: false
        }
    ));
    node.delete(to).await.unwrap();
    assert_eq!(
        node.read(read(to, 0, 1)).await.unwrap_err(),
        BookieError::Deleted {
            ledger: LedgerId(7)
        }
    );
}

#[tokio::test]
async fn node_inline_answers_before_the_method_returns() {
    let store = Arc::new(MapStore::default());
    let disk = Arc::new(MemoryDisk::default());
    let node = BookieNode::start(inline(), seams(disk, store.clone(), 1))
        .await
        .unwrap();
    let to = address(&node, 1);
    store.ledger(1, LedgerState::Open, node.member());
    node.add(add(to, entry(1, 0, 10))).await.unwrap();
    let mut second = node.add(add(to, entry(1, 1, 10)));
    let ready = futures::FutureExt::now_or_never(&mut second);
    assert_eq!(ready, Some(Ok(())));
    assert_eq!(node.read(read(to, 0, 9)).await.unwrap().len(), 2);
    node.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn second_node_on_a_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let store = Arc::new(MapStore::default());
    let disk = || Arc::new(OsDisk::open(dir.path()).unwrap());
    let node = BookieNode::start(config(), seams(disk(), store.clone(), 1))
        .await
        .unwrap();
    let error = BookieNode::start(config(), seams(disk(), store.clone(), 2))
        .await
        .unwrap_err();
    assert!(matches!(error, StartError::Locked { .. }), "{error}");
    node.shutdown().await.unwrap();
    BookieNode::start(config(), seams(disk(), store, 3))
        .await
        .unwrap();
}

#[tokio::test]
async fn metadata_that_never_gave_the_number_of_a_held_ledger_are_refused() {
    let store = Arc::new(MapStore::default());
    let disk = MemoryDisk::default();
    let start = || {
        let disk = Arc::new(disk.clone());
        BookieNode::start(inline(), seams(disk, store.clone(), 1))
    };
    let node = start().await.unwrap();
    store.ledger(5, LedgerState::Open, node.member());
    node.add(add(address(&node, 5), entry(5, 0, 10)))
        .await
        .unwrap();
    node.shutdown().await.unwrap();
    drop(node);
    let given = store.value(LEDGER_IDS_KEY).unwrap();
    store.remove(LEDGER_IDS_KEY);
    assert_eq!(
        start().await.unwrap_err(),
        StartError::MetadataOlder {
            ledger: LedgerId(5)
        }
    );
    store.put(LEDGER_IDS_KEY, given);
    start().await.unwrap();
}

#[tokio::test]
async fn first_contact_follows_metadata() {
    let store = Arc::new(MapStore::default());
    let disk = Arc::new(MemoryDisk::default());
    let node = BookieNode::start(inline(), seams(disk, store.clone(), 1))
        .await
        .unwrap();
    let me = node.member().clone();
    let ledger = LedgerId(1);
    let to = address(&node, 1);
    let answer = |number| node.add(add(to, entry(1, number, 10)));
    assert_eq!(answer(0).await, Err(BookieError::Deleted { ledger }));
    store.silence(true);
    assert_eq!(answer(0).await, Err(BookieError::MetadataUnavailable));
    store.silence(false);
    let mut other = me.clone();
    other.incarnation = hulse_proto::id::Incarnation(uuid::Uuid::from_u128(9));
    store.ledger(1, LedgerState::Open, &other);
    assert_eq!(answer(0).await, Err(BookieError::NotInEnsemble { ledger }));
    store.ledger(1, LedgerState::InRecovery, &me);
    assert_eq!(
        answer(0).await,
        Err(BookieError::Fenced {
            ledger,
            token: FenceToken(1)
        })
    );
    store.ledger(1, LedgerState::Open, &me);
    // What comes while metadata is asked waits in order.
    let (first, second) = (answer(0), answer(1));
    assert_eq!((first.await, second.await), (Ok(()), Ok(())));
    store.silence(true);
    assert_eq!(answer(2).await, Ok(()), "an open ledger needs no metadata");
}
