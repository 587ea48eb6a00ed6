//! Ensemble change through the async face: a dead bookie is replaced, readers follow, metadata may be silent.

use std::time::Duration;

use bookie_metadata::Txn;
use hulse_proto::bookie::ReadClass;
use hulse_proto::id::EntryId;
use tokio::time::sleep;

use super::{Cluster, data, new_log};
use crate::testing::Fault;
use crate::{LedgerReader, LedgerWriter};

async fn fill(writer: &LedgerWriter, count: u64) {
    for _ in 0..count {
        let offset = writer.appended_end().0;
        writer.append(data(offset, offset as u8)).await.unwrap();
    }
}

async fn read_all(reader: &LedgerReader, end: u64) -> usize {
    let mut next = 0;
    while next < end {
        let found = reader
            .read(EntryId(next), EntryId(end), u32::MAX, ReadClass::CatchUp)
            .await
            .unwrap();
        next += found.len() as u64;
    }
    next as usize
}

/// The bookie at a position of the writer's last fragment.
fn index_of(cluster: &Cluster, writer: &LedgerWriter, position: usize) -> usize {
    let member = writer.metadata().last_fragment().ensemble[position].clone();
    let mut bookies = cluster.bookies.iter();
    bookies
        .position(|bookie| *bookie.member() == member)
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn dead_members_are_replaced_one_after_the_other_and_readers_follow() {
    let cluster = Cluster::new(6, 3, 3, 2);
    let client = cluster.client(1);
    let writer = client.create(new_log(0), |_| Txn::default()).await.unwrap();
    let reader = writer.reader();
    for round in 0..3 {
        fill(&writer, 10).await;
        let dead = index_of(&cluster, &writer, round);
        cluster.bookies[dead].always(Some(Fault::RequestLost));
        fill(&writer, 10).await;
        sleep(Duration::from_secs(5)).await;
        fill(&writer, 10).await;
        assert_eq!(writer.metadata().fragments.len(), round + 2);
        assert_ne!(index_of(&cluster, &writer, round), dead);
    }
    // The members of the first fragment are all dead; what they hold comes back with them.
    for bookie in &cluster.bookies {
        bookie.always(None);
    }
    assert_eq!(read_all(&reader, 90).await, 90);
    let next = client
        .roll(&writer, new_log(0), |_, _| Txn::default())
        .await
        .unwrap();
    assert_eq!(next.metadata().base_offset.0, 90);
    let (closed, _) = client.describe(writer.ledger()).await.unwrap().unwrap();
    assert_eq!(closed.fragments.len(), 4);
    assert_eq!(closed.closed.unwrap().end, EntryId(90));
    let reader = client.reader(writer.ledger(), closed);
    assert_eq!(read_all(&reader, 90).await, 90);
}

#[tokio::test(start_paused = true)]
async fn silence_of_metadata_does_not_stop_a_ledger_with_a_dead_member() {
    let cluster = Cluster::new(4, 3, 3, 2);
    let client = cluster.client(1);
    let writer = client.create(new_log(0), |_| Txn::default()).await.unwrap();
    fill(&writer, 5).await;
    cluster.store.silence();
    cluster.bookies[index_of(&cluster, &writer, 1)].always(Some(Fault::RequestLost));
    for _ in 0..30 {
        fill(&writer, 3).await;
        sleep(Duration::from_secs(5)).await;
    }
    assert_eq!(writer.metadata().fragments.len(), 1);
    cluster.store.speak();
    for _ in 0..30 {
        fill(&writer, 1).await;
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!(writer.metadata().fragments.len(), 2);
    assert!(writer.ended().borrow().is_none());
    writer.close(Txn::default()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn recovery_after_changes_finds_everything_and_replaces_the_dead() {
    let cluster = Cluster::new(6, 3, 3, 2);
    let client = cluster.client(1);
    let writer = client.create(new_log(0), |_| Txn::default()).await.unwrap();
    fill(&writer, 10).await;
    let dead = index_of(&cluster, &writer, 0);
    cluster.bookies[dead].always(Some(Fault::RequestSilent));
    fill(&writer, 10).await;
    sleep(Duration::from_secs(6)).await;
    fill(&writer, 10).await;
    assert_eq!(writer.metadata().fragments.len(), 2);
    let second = index_of(&cluster, &writer, 1);
    cluster.bookies[second].always(Some(Fault::RequestSilent));
    let closed = cluster
        .client(2)
        .recover(writer.ledger(), Txn::default())
        .await
        .unwrap();
    assert_eq!(closed.closed.unwrap().end, EntryId(30));
    let reader = client.reader(writer.ledger(), closed);
    assert_eq!(read_all(&reader, 30).await, 30);
    let after = writer.append(data(30, 30)).await;
    assert!(after.is_err(), "{after:?}");
}
