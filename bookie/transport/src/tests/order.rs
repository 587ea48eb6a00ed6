//! What was called arrives, in order, and answers find their callers.

use std::time::Duration;

use bytes::Bytes;
use futures::future::join_all;
use hulse_proto::bookie::{
    BookieCalls as _, BookieError, InventoryRequest, RecoveryReadAnswer, RecoveryReadRequest,
    StoredEntry,
};
use hulse_proto::id::{EntryId, FenceToken, LedgerId};

use super::node::fence;
use super::{Node, add, address, bookie, read, sealed};
use crate::testing::Loopback;
use crate::wire::Call;

fn stored(entry: u64, bytes: usize) -> StoredEntry {
    StoredEntry {
        entry: sealed(entry, vec![Bytes::from(vec![1; bytes])]),
        confirmed_end: EntryId(entry / 2),
    }
}

#[tokio::test(start_paused = true)]
async fn calls_arrive_in_the_order_of_the_methods_whoever_polls_what() {
    let node = Node::new();
    let loopback = Loopback::start(&bookie(), node.clone());
    let mut calls: Vec<_> = (0..1000)
        .map(|entry| loopback.remote.add(add(entry, 300)))
        .collect();
    let fence = loopback.remote.fence(fence(9));
    let delete = loopback.remote.delete(address());
    // The last first, and the first never.
    calls.reverse();
    drop(calls.pop());
    assert_eq!(delete.await, Ok(()));
    let fenced = fence.await.unwrap();
    assert_eq!(
        (fenced.token.0, fenced.confirmed_end.0, fenced.held_end.0),
        (9, 3, 5)
    );
    assert!(join_all(calls).await.iter().all(Result::is_ok));
    assert_eq!(node.added(), (0..1000).collect::<Vec<_>>());
    let calls = node.calls.lock().unwrap();
    let [.., Call::Fence(fenced), Call::Delete(deleted)] = &calls[..] else {
        panic!("{:?}", calls.last());
    };
    assert_eq!((fenced.token.0, *deleted), (9, address()));
    let Call::Add(added) = &calls[500] else {
        panic!("{:?}", calls[500]);
    };
    assert_eq!(added.to, address());
    assert_eq!(added.entry.verify(), Ok(()));
    assert_eq!(added.confirmed_end, EntryId(500));
    assert!(added.timeout <= Duration::from_secs(10) && added.timeout > Duration::from_secs(9));
}

#[tokio::test(start_paused = true)]
async fn inventory_travels_whole() {
    let node = Node::new();
    let loopback = Loopback::start(&bookie(), node.clone());
    let request = InventoryRequest {
        to: address(),
        ledgers_end: LedgerId(70),
        first: EntryId(3),
        end: EntryId(u64::MAX),
        digests: true,
    };
    let held = loopback.remote.inventory(request).await.unwrap();
    assert_eq!(held.next, Some(LedgerId(70)));
    let run = held.ledgers[0].runs[0];
    assert_eq!((run.first, run.end), (EntryId(3), EntryId(u64::MAX)));
    assert_eq!(run.digest, Some(u64::MAX));
    let calls = node.calls.lock().unwrap();
    let [Call::Inventory(asked)] = &calls[..] else {
        panic!("{calls:?}");
    };
    assert_eq!(*asked, request);
}

#[tokio::test(start_paused = true)]
async fn reads_bring_what_is_stored_whole_and_not_more_than_was_asked_for() {
    let node = Node::new();
    let all: Vec<StoredEntry> = (0..3000).map(|entry| stored(entry, 400)).collect();
    *node.stored.lock().unwrap() = all.clone();
    let loopback = Loopback::start(&bookie(), node.clone());
    let found = loopback.remote.read(read(u32::MAX)).await.unwrap();
    assert_eq!(found.len(), 3000);
    for (found, stored) in found.iter().zip(&all) {
        assert_eq!(found.entry.header(), stored.entry.header());
        assert_eq!(found.entry.verify(), Ok(()));
        assert_eq!(found.confirmed_end, stored.confirmed_end);
    }
    let few = loopback.remote.read(read(5_000)).await.unwrap();
    assert_eq!(few.len(), 11, "a node may count less than the answer takes");
    let heads = loopback.remote.read_heads(read(1 << 20)).await.unwrap();
    assert_eq!(heads.len(), 3000);
    assert_eq!(&heads[7].envelope[..], b"envelope.");
    assert_eq!(heads[7].header, *all[7].entry.header());
    *node.stored.lock().unwrap() = Vec::new();
    assert_eq!(loopback.remote.read(read(1)).await.unwrap().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn largest_entry_in_many_parts_goes_both_ways() {
    let node = Node::new();
    let parts: Vec<Bytes> = (0..1024)
        .map(|part| Bytes::from(vec![part as u8; 8_100]))
        .collect();
    let entry = sealed(1, parts);
    let loopback = Loopback::start(&bookie(), node.clone());
    let mut request = add(1, 0);
    request.entry = entry.clone();
    loopback.remote.add(request).await.unwrap();
    *node.stored.lock().unwrap() = vec![StoredEntry {
        entry: entry.clone(),
        confirmed_end: EntryId(1),
    }];
    let wanted = RecoveryReadRequest {
        to: address(),
        token: FenceToken(3),
        entry: EntryId(1),
    };
    let found = loopback.remote.recovery_read(wanted).await.unwrap();
    let RecoveryReadAnswer::Positive(found) = found else {
        panic!("{found:?}");
    };
    assert_eq!(found.entry.verify(), Ok(()));
    assert_eq!(found.entry.header(), entry.header());
    node.stored.lock().unwrap().clear();
    let absent = loopback.remote.recovery_read(wanted).await.unwrap();
    let negative = matches!(
        absent,
        RecoveryReadAnswer::Negative {
            unsynced_limbo: true
        }
    );
    assert!(negative, "{absent:?}");
}

#[tokio::test(start_paused = true)]
async fn refusal_of_the_node_comes_back_as_it_was() {
    let node = Node::new();
    let loopback = Loopback::start(&bookie(), node.clone());
    let error = BookieError::ReadOnly {
        why: "the disk is full".to_owned(),
    };
    *node.verdict.lock().unwrap() = Err(error.clone());
    assert_eq!(loopback.remote.add(add(0, 10)).await, Err(error));
}
