//! Connections that break, freeze, or cannot be made.

use std::time::Duration;

use futures::future::join_all;
use hulse_proto::bookie::{BookieCalls as _, BookieError};
use tokio::time::{Instant, sleep};

use super::{Node, add, bookie, read};
use crate::remote::RemoteConfig;
use crate::serve::ServeLimits;
use crate::testing::Loopback;

fn unknown(answer: &Result<(), BookieError>) -> bool {
    matches!(answer, Err(BookieError::NoAnswer { .. }))
}

#[tokio::test(start_paused = true)]
async fn broken_stream_answers_every_call_and_sends_none_again() {
    let node = Node::new();
    let loopback = Loopback::start(&bookie(), node.clone());
    loopback.remote.add(add(0, 10)).await.unwrap();
    node.held.send_replace(true);
    let out: Vec<_> = (1..50)
        .map(|entry| loopback.remote.add(add(entry, 100)))
        .collect();
    node.saw(50).await;
    loopback.wire.cut();
    let answers = join_all(out).await;
    assert!(answers.iter().all(unknown), "{answers:?}");
    node.held.send_replace(false);
    sleep(Duration::from_secs(1)).await;
    loopback.remote.add(add(50, 10)).await.unwrap();
    assert_eq!(node.added(), (0..=50).collect::<Vec<_>>());
    assert_eq!(loopback.wire.dialled(), 2);
}

#[tokio::test(start_paused = true)]
async fn call_soon_after_a_break_is_answered_at_once_and_one_later_dials() {
    let node = Node::new();
    let loopback = Loopback::start(&bookie(), node.clone());
    loopback.remote.add(add(0, 10)).await.unwrap();
    loopback.wire.cut();
    while loopback.remote.add(add(1, 10)).await.is_ok() {}
    let before = Instant::now();
    assert!(unknown(&loopback.remote.add(add(2, 10)).await));
    assert_eq!(before.elapsed(), Duration::ZERO);
    sleep(RemoteConfig::default().redial_initial).await;
    loopback.remote.add(add(3, 10)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn frozen_bookie_is_found_by_its_silence_and_by_new_dials_that_do_not_open() {
    let node = Node::new();
    let loopback = Loopback::start(&bookie(), node.clone());
    loopback.remote.add(add(0, 10)).await.unwrap();
    loopback.wire.freeze(true);
    let before = Instant::now();
    assert!(unknown(&loopback.remote.add(add(1, 10)).await));
    let found = before.elapsed();
    assert!(found <= Duration::from_millis(5_100), "{found:?}");
    sleep(Duration::from_secs(1)).await;
    let before = Instant::now();
    assert!(unknown(&loopback.remote.add(add(2, 10)).await));
    assert_eq!(before.elapsed(), RemoteConfig::default().open_timeout);
    loopback.wire.freeze(false);
    sleep(RemoteConfig::default().redial_max).await;
    loopback.remote.add(add(3, 10)).await.unwrap();
    assert!(!node.added().contains(&2), "it was never sent");
}

#[tokio::test(start_paused = true)]
async fn idle_connection_that_froze_is_found_before_the_next_call() {
    let node = Node::new();
    let loopback = Loopback::start(&bookie(), node.clone());
    loopback.remote.add(add(0, 10)).await.unwrap();
    loopback.wire.freeze(true);
    sleep(Duration::from_secs(6)).await;
    loopback.wire.freeze(false);
    loopback.remote.add(add(1, 10)).await.unwrap();
    assert_eq!(loopback.wire.dialled(), 2);
}

#[tokio::test(start_paused = true)]
async fn failed_dials_are_further_and_further_apart() {
    let node = Node::new();
    let loopback = Loopback::start(&bookie(), node.clone());
    loopback.server.abort();
    sleep(Duration::from_millis(1)).await;
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(20) {
        assert!(unknown(&loopback.remote.add(add(0, 10)).await));
        sleep(Duration::from_millis(10)).await;
    }
    // 50 ms, 100 ms .. 1.6 s, then every 2 s.
    let dialled = loopback.wire.dialled();
    assert!((14..=16).contains(&dialled), "{dialled}");
}

#[tokio::test(start_paused = true)]
async fn call_that_the_bookie_forgot_is_given_up_and_leaves_its_room() {
    let node = Node::new();
    let config = RemoteConfig {
        add_bytes_max: 2_000,
        ..RemoteConfig::default()
    };
    let limits = ServeLimits::default();
    let loopback = Loopback::with(&bookie(), node.clone(), (config, limits));
    node.held.send_replace(true);
    let before = Instant::now();
    assert!(unknown(&loopback.remote.add(add(0, 1_000)).await));
    let waited = before.elapsed();
    assert!(waited >= config.answer_timeout && waited < config.answer_timeout * 2);
    node.held.send_replace(false);
    // Its answer comes late, and harms nobody.
    loopback.remote.add(add(1, 1_000)).await.unwrap();
    assert_eq!(loopback.wire.dialled(), 1);
}

#[tokio::test(start_paused = true)]
async fn bookie_that_leaves_answers_what_it_took_and_then_ends_the_stream() {
    let node = Node::new();
    let loopback = Loopback::start(&bookie(), node.clone());
    node.held.send_replace(true);
    let taken = loopback.remote.add(add(0, 10));
    node.saw(1).await;
    loopback.wire.leaving.cancel();
    sleep(Duration::from_millis(10)).await;
    let late = loopback.remote.add(add(1, 10));
    node.held.send_replace(false);
    assert_eq!(taken.await, Ok(()));
    assert!(unknown(&late.await));
    loopback.server.await.unwrap();
    assert_eq!(node.added(), [0]);
}

#[tokio::test(start_paused = true)]
async fn dropped_bookie_still_answers_what_is_out() {
    let node = Node::new();
    let loopback = Loopback::start(&bookie(), node.clone());
    node.held.send_replace(true);
    let out = loopback.remote.add(add(0, 10));
    let other = loopback.remote.read(read(10));
    node.saw(2).await;
    drop(loopback.remote);
    node.held.send_replace(false);
    assert_eq!(out.await, Ok(()));
    assert_eq!(other.await.unwrap().len(), 0);
}
