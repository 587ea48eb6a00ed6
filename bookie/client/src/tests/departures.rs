//! Bookies that are to leave: writers replace them, also while nothing is written.

use std::time::Duration;

use bookie_metadata::{MetadataStore as _, Op, Txn};
use hulse_proto::id::{EntryId, Incarnation};
use hulse_proto::ledger::Member;
use hulse_proto::wire::{Message as _, metadata as wire};
use tokio::time::{Instant, sleep};
use uuid::Uuid;

use super::Cluster;
use super::face::{fill, open};

async fn register(cluster: &Cluster, member: &Member, state: wire::bookie::State) {
    let value = wire::Bookie {
        incarnation: member.incarnation.to_bytes(),
        state: state as i32,
        ..wire::Bookie::default()
    };
    let key = format!("bookie/{}", member.bookie);
    let txn = Txn {
        compares: Vec::new(),
        ops: vec![Op::put(key, value.encode_to_vec())],
    };
    cluster.store.txn(txn).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn members_that_leave_or_were_replaced_leave_a_ledger_that_rests() {
    let cluster = Cluster::new(5, 3, 3, 2);
    for bookie in &cluster.bookies {
        register(&cluster, bookie.member(), wire::bookie::State::Active).await;
    }
    let client = cluster.client(1);
    let follower = client.clone();
    tokio::spawn(async move { follower.follow_departures().await });
    let writer = open(&client, 0).await;
    fill(&writer, 0, 10).await;
    let before = writer.metadata().last_fragment().ensemble.clone();
    sleep(Duration::from_secs(60)).await;
    assert_eq!(writer.metadata().last_fragment().ensemble, before);

    register(&cluster, &before[1], wire::bookie::State::Draining).await;
    let other_disk = Member {
        incarnation: Incarnation(Uuid::from_u128(999)),
        ..before[2].clone()
    };
    register(&cluster, &other_disk, wire::bookie::State::Active).await;
    let began = Instant::now();
    let left = |member: &Member| !writer.metadata().last_fragment().ensemble.contains(member);
    while !(left(&before[1]) && left(&before[2])) {
        assert!(began.elapsed() < Duration::from_secs(10));
        sleep(Duration::from_millis(100)).await;
    }
    let metadata = writer.metadata();
    assert_eq!(
        metadata.fragments.len(),
        2,
        "what was written stays where it is"
    );
    assert_eq!(metadata.last_fragment().first, EntryId(10));
    fill(&writer, 0, 10).await;
    assert_eq!(writer.confirmed_end(), EntryId(20));
}

/// A bookie that is lost stays registered: it wakes no writer that does not name it.
#[tokio::test(start_paused = true)]
async fn writers_that_rest_are_not_woken_for_a_lost_bookie_of_others() {
    let cluster = Cluster::new(4, 3, 3, 2);
    for bookie in &cluster.bookies {
        register(&cluster, bookie.member(), wire::bookie::State::Active).await;
    }
    let client = cluster.client(1);
    let writer = open(&client, 0).await;
    fill(&writer, 0, 10).await;
    let ensemble = writer.metadata().last_fragment().ensemble.clone();
    let mut members = cluster.bookies.iter().map(|bookie| bookie.member());
    let other = members.find(|member| !ensemble.contains(member)).unwrap();
    register(&cluster, other, wire::bookie::State::Lost).await;
    let tasks = || {
        tokio::runtime::Handle::current()
            .metrics()
            .num_alive_tasks()
    };
    sleep(Duration::from_secs(5)).await;
    let resting = tasks();
    let follower = client.clone();
    tokio::spawn(async move { follower.follow_departures().await });
    for _ in 0..300 {
        sleep(Duration::from_millis(400)).await;
        assert_eq!(tasks(), resting + 1, "the follower, and no writer");
    }
    register(&cluster, &ensemble[0], wire::bookie::State::Lost).await;
    let began = Instant::now();
    register(&cluster, other, wire::bookie::State::Active).await;
    while writer
        .metadata()
        .last_fragment()
        .ensemble
        .contains(&ensemble[0])
    {
        assert!(began.elapsed() < Duration::from_secs(40));
        sleep(Duration::from_millis(100)).await;
    }
}
