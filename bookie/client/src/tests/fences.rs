//! An owner that asks bookies whether somebody fenced its open ledger, while metadata are silent.

use std::time::Duration;

use bookie_metadata::Txn;
use bookie_metadata::testing::{Call, Fate};
use hulse_proto::id::EntryId;
use tokio::time::sleep;

use super::cluster::Cluster;
use super::{data, new_log};
use crate::testing::Fault;
use crate::{Fences, LedgerWriter};

async fn opened<const FAR: bool>(cluster: &Cluster<FAR>) -> LedgerWriter {
    let client = cluster.client(1);
    let writer = client.create(new_log(0), |_| Txn::default()).await.unwrap();
    for offset in 0..5 {
        writer.append(data(offset, 1)).await.unwrap();
    }
    writer
}

async fn told_of_a_recovery<const FAR: bool>() {
    let cluster = Cluster::<FAR>::new(3, 3, 3, 2);
    let writer = opened(&cluster).await;
    let reader = writer.reader();
    assert_eq!(reader.fences().await, Fences::Free);
    // One of three is no ack quorum's worth of silence.
    cluster.bookies[0].always(Some(Fault::RequestLost));
    assert_eq!(reader.fences().await, Fences::Free);
    cluster.bookies[1].always(Some(Fault::RequestLost));
    assert_eq!(reader.fences().await, Fences::Unknown);
    cluster.bookies[0].always(None);
    cluster.bookies[1].always(None);
    let other = cluster.client(2);
    let closed = other.recover(writer.ledger(), Txn::default()).await;
    assert_eq!(closed.unwrap().closed.unwrap().end, EntryId(5));
    // Whichever two are silent, the third knows.
    for silent in [[0, 1], [0, 2], [1, 2]] {
        for bookie in silent {
            cluster.bookies[bookie].always(Some(Fault::RequestLost));
        }
        assert_eq!(reader.fences().await, Fences::Fenced, "{silent:?}");
        for bookie in silent {
            cluster.bookies[bookie].always(None);
        }
    }
}

#[tokio::test(start_paused = true)]
async fn owner_is_told_of_a_recovery_by_whoever_was_fenced() {
    told_of_a_recovery::<false>().await;
}

#[tokio::test(start_paused = true)]
async fn owner_is_told_of_a_recovery_through_the_transport() {
    told_of_a_recovery::<true>().await;
}

#[tokio::test(start_paused = true)]
async fn ledger_that_was_never_written_to_is_free_until_it_is_recovered() {
    let cluster = Cluster::<false>::new(3, 3, 3, 2);
    let client = cluster.client(1);
    let writer = client.create(new_log(0), |_| Txn::default()).await.unwrap();
    assert_eq!(writer.reader().fences().await, Fences::Free);
    // A look is no first contact: what is written now is verified as ever (B2).
    let appended = writer.append(data(0, 1)).await;
    appended.unwrap();
    let other = cluster.client(2);
    let closed = other.recover(writer.ledger(), Txn::default()).await;
    assert_eq!(closed.unwrap().closed.unwrap().end, EntryId(1));
    assert_eq!(writer.reader().fences().await, Fences::Fenced);
}

#[tokio::test(start_paused = true)]
async fn closed_ledger_proves_nothing() {
    let cluster = Cluster::<false>::new(3, 3, 3, 2);
    let writer = opened(&cluster).await;
    let reader = writer.reader();
    let closing = tokio::spawn({
        let writer = writer.clone();
        cluster.store.silence();
        async move { writer.close(Txn::default()).await }
    });
    sleep(Duration::from_millis(500)).await;
    // The close may land, and the next ledger is another's then.
    assert_eq!(reader.fences().await, Fences::Unknown);
    cluster.store.speak();
    closing.await.unwrap().unwrap();
    assert_eq!(reader.fences().await, Fences::Unknown);
    let seen = cluster.client(2).describe(writer.ledger()).await;
    let seen = cluster
        .client(2)
        .reader(writer.ledger(), seen.unwrap().unwrap().0);
    assert_eq!(seen.fences().await, Fences::Unknown);
}

#[tokio::test(start_paused = true)]
async fn member_that_an_unresolved_change_replaces_proves_nothing() {
    let cluster = Cluster::<false>::new(4, 3, 3, 2);
    let writer = opened(&cluster).await;
    let reader = writer.reader();
    let ensemble = writer.metadata().last_fragment().ensemble.clone();
    let index = |position: usize| {
        let mut bookies = cluster.bookies.iter();
        bookies.position(|bookie| *bookie.member() == ensemble[position])
    };
    let at = |position| &cluster.bookies[index(position).unwrap()];
    // Its change is sent, and nothing is heard of it.
    cluster.store.choose(|call| match call {
        Call::Txn(_) => Fate::Silent(Duration::from_secs(600)),
        _ => Fate::Pass,
    });
    at(0).always(Some(Fault::RequestLost));
    for offset in 5..10 {
        writer.append(data(offset, 1)).await.unwrap();
        sleep(Duration::from_secs(1)).await;
    }
    at(0).always(None);
    assert_eq!(
        reader.fences().await,
        Fences::Free,
        "the two that stay are enough"
    );
    at(1).always(Some(Fault::RequestLost));
    assert_eq!(reader.fences().await, Fences::Unknown);
}
