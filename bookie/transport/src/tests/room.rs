//! Bounds at both ends.

use std::time::Duration;

use futures::FutureExt as _;
use futures::future::join_all;
use hulse_proto::bookie::{BookieCalls as _, BookieError};
use tokio::time::sleep;

use super::node::fence;
use super::{Node, add, bookie, read};
use crate::remote::RemoteConfig;
use crate::serve::ServeLimits;
use crate::testing::Loopback;

#[tokio::test(start_paused = true)]
async fn records_beyond_the_room_are_refused_as_busy_and_room_comes_back() {
    let node = Node::new();
    let config = RemoteConfig {
        add_bytes_max: 10_000,
        ..RemoteConfig::default()
    };
    let limits = ServeLimits::default();
    let loopback = Loopback::with(&bookie(), node.clone(), (config, limits));
    node.held.send_replace(true);
    let mut out = Vec::new();
    let refused = loop {
        let mut add = loopback.remote.add(add(out.len() as u64, 1_000));
        match (&mut add).now_or_never() {
            Some(answer) => break answer,
            None => out.push(add),
        }
    };
    assert_eq!(out.len(), 8, "1,213 bytes each");
    let Err(BookieError::Busy { queued_bytes }) = refused else {
        panic!("{refused:?}");
    };
    assert!((9_000..10_000).contains(&queued_bytes), "{queued_bytes}");
    let fence = loopback.remote.fence(fence(1));
    node.held.send_replace(false);
    assert!(join_all(out).await.iter().all(Result::is_ok));
    assert!(
        fence.await.is_ok(),
        "records do not take the room of all others"
    );
    loopback.remote.add(add(8, 1_000)).await.unwrap();
    // A single one may be larger than all the room.
    loopback.remote.add(add(9, 20_000)).await.unwrap();
    assert_eq!(node.added(), (0..10).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn node_that_has_enough_reads_no_further_and_then_goes_on_in_order() {
    let node = Node::new();
    let limits = ServeLimits {
        calls_max: 4096,
        bytes_max: 50_000,
    };
    let loopback = Loopback::with(&bookie(), node.clone(), (RemoteConfig::default(), limits));
    node.held.send_replace(true);
    let out: Vec<_> = (0..500)
        .map(|entry| loopback.remote.add(add(entry, 10_000)))
        .collect();
    sleep(Duration::from_secs(2)).await;
    assert_eq!(node.count(), 5, "10,213 bytes each");
    node.held.send_replace(false);
    assert!(join_all(out).await.iter().all(Result::is_ok));
    assert_eq!(node.added(), (0..500).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn number_of_calls_is_bounded_too() {
    let node = Node::new();
    let config = RemoteConfig {
        calls_max: 100,
        ..RemoteConfig::default()
    };
    let limits = ServeLimits {
        calls_max: 10,
        ..ServeLimits::default()
    };
    let loopback = Loopback::with(&bookie(), node.clone(), (config, limits));
    node.held.send_replace(true);
    let out: Vec<_> = (1..=100)
        .map(|token| loopback.remote.fence(fence(token)))
        .collect();
    let refused = loopback.remote.fence(fence(101)).await;
    assert!(
        matches!(refused, Err(BookieError::Busy { .. })),
        "{refused:?}"
    );
    sleep(Duration::from_secs(1)).await;
    assert_eq!(node.count(), 10);
    node.held.send_replace(false);
    assert!(join_all(out).await.iter().all(Result::is_ok));
}

#[tokio::test(start_paused = true)]
async fn reads_beyond_the_room_wait_and_adds_do_not_wait_for_them() {
    let node = Node::new();
    let config = RemoteConfig {
        read_bytes_max: 3 << 20,
        ..RemoteConfig::default()
    };
    let limits = ServeLimits::default();
    let loopback = Loopback::with(&bookie(), node.clone(), (config, limits));
    node.held.send_replace(true);
    let out: Vec<_> = (0..20)
        .map(|_| loopback.remote.read(read(1 << 20)))
        .collect();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(node.count(), 3);
    let added = loopback.remote.add(add(0, 10));
    node.saw(4).await;
    node.held.send_replace(false);
    added.await.unwrap();
    assert!(join_all(out).await.iter().all(Result::is_ok));
}

#[tokio::test(start_paused = true)]
async fn add_that_waited_for_longer_than_it_may_is_dropped_unsent() {
    let node = Node::new();
    let config = RemoteConfig {
        open_timeout: Duration::from_secs(60),
        ..RemoteConfig::default()
    };
    let limits = ServeLimits::default();
    let loopback = Loopback::with(&bookie(), node.clone(), (config, limits));
    // Bytes of the dial are held meanwhile.
    loopback.wire.freeze(true);
    let mut hasty = add(0, 10);
    hasty.timeout = Duration::from_millis(1_500);
    let hasty = loopback.remote.add(hasty);
    let patient = loopback.remote.add(add(1, 10));
    sleep(Duration::from_secs(2)).await;
    loopback.wire.freeze(false);
    patient.await.unwrap();
    let hasty = hasty.await;
    assert!(
        matches!(hasty, Err(BookieError::NoAnswer { .. })),
        "{hasty:?}"
    );
    assert_eq!(node.added(), [1]);
}
