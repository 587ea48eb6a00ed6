//! Cursors that are made or moved while a trim is decided or under way, and trims beside them (storage.md P6): what comes first counts.

use std::time::Duration;

use hulse_proto::id::{Offset, SubscriptionId};
use tokio::time::sleep;
use uuid::Uuid;

use super::trim_tests::{fill, life, open};
use crate::retention::Limits;
use crate::testing::MemoryBroker;
use crate::{CursorMove, CursorStart, PartitionHandle};

const S: SubscriptionId = SubscriptionId(Uuid::from_u128(8));

/// Of the first offset on.
fn from_the_start(hold: bool) -> CursorStart {
    CursorStart {
        subscription: S,
        name: "public/default/s".into(),
        hold,
        base: Offset(0),
    }
}

const EVERYTHING: Limits = Limits {
    time: Some(Duration::ZERO),
    bytes: None,
};

/// The cursor's base, which nothing of the log has passed.
async fn base(handle: &PartitionHandle) -> Offset {
    let views = handle.cursors(Some(S), 0).await.unwrap();
    let log_start = handle.offsets().log_start;
    assert!(
        views[0].base >= log_start,
        "the log begins at {log_start}: {views:?}"
    );
    views[0].base
}

/// A trim whose change of metadata is under way is not taken back.
#[tokio::test(start_paused = true)]
async fn cursor_that_is_made_or_moved_while_a_trim_is_under_way_begins_above_it() {
    for (moves, by_retention) in [(false, true), (false, false), (true, true), (true, false)] {
        let memory = MemoryBroker::default();
        let front = life(&memory, 1);
        let handle = open(&front).await;
        fill(&handle, 0..6).await;
        // Its ledger is there, so that others need no metadata.
        let other = CursorStart {
            subscription: SubscriptionId(Uuid::from_u128(9)),
            ..from_the_start(false)
        };
        handle.make_cursor(other).await.unwrap();
        if moves {
            let start = CursorStart {
                base: Offset(5),
                ..from_the_start(true)
            };
            handle.make_cursor(start).await.unwrap();
        }
        memory.metadata.silence();
        let trim = async {
            if by_retention {
                handle.retain(EVERYTHING).await.unwrap();
            } else {
                handle.trim(Some(Offset(5))).await.unwrap();
            }
        };
        let other = async {
            sleep(Duration::from_secs(1)).await;
            assert_eq!(
                handle.offsets().log_start,
                Offset(0),
                "the trim is under way"
            );
            if moves {
                let goal = CursorMove {
                    to: Offset(1),
                    keep_acked: false,
                };
                let moved = handle.move_cursor(S, goal).await.unwrap();
                assert_eq!(moved.new_base, Offset(5));
            } else {
                handle.make_cursor(from_the_start(true)).await.unwrap();
            }
            assert_eq!(base(&handle).await, Offset(5));
            memory.metadata.speak();
        };
        tokio::join!(trim, other);
        sleep(Duration::from_secs(10)).await;
        assert_eq!(handle.offsets().log_start, Offset(5));
        assert_eq!(base(&handle).await, Offset(5));
        handle.retain(EVERYTHING).await.unwrap();
        sleep(Duration::from_secs(10)).await;
        front.partitions.close_all().await;
        let handle = open(&life(&memory, 1)).await;
        assert_eq!(handle.offsets().log_start, Offset(5));
        assert_eq!(base(&handle).await, Offset(5));
    }
}

/// The delta that makes the cursor, or moves it back, is under way when retention comes by.
#[tokio::test(start_paused = true)]
async fn retention_stops_at_a_cursor_that_is_being_made_or_moved() {
    for moves in [false, true] {
        let memory = MemoryBroker::default();
        let front = life(&memory, 1);
        let handle = open(&front).await;
        fill(&handle, 0..6).await;
        let early = CursorStart {
            base: Offset(6),
            ..from_the_start(true)
        };
        if moves {
            handle.make_cursor(early).await.unwrap();
        }
        memory.bookie.hold(true);
        let promise = async {
            if moves {
                let goal = CursorMove {
                    to: Offset(2),
                    keep_acked: false,
                };
                let moved = handle.move_cursor(S, goal).await.unwrap();
                assert_eq!(moved.new_base, Offset(2));
            } else {
                let start = CursorStart {
                    base: Offset(2),
                    ..from_the_start(true)
                };
                handle.make_cursor(start).await.unwrap();
            }
        };
        let retention = async {
            sleep(Duration::from_millis(100)).await;
            handle.retain(EVERYTHING).await.unwrap();
            sleep(Duration::from_millis(100)).await;
            memory.bookie.hold(false);
        };
        tokio::join!(promise, retention);
        sleep(Duration::from_secs(10)).await;
        assert_eq!(base(&handle).await, Offset(2));
        assert_eq!(handle.offsets().log_start, Offset(2));
        front.partitions.close_all().await;
        let handle = open(&life(&memory, 1)).await;
        handle.retain(EVERYTHING).await.unwrap();
        sleep(Duration::from_secs(10)).await;
        assert_eq!(
            (base(&handle).await, handle.offsets().log_start),
            (Offset(2), Offset(2))
        );
    }
}

/// One that keeps nothing is passed.
#[tokio::test(start_paused = true)]
async fn cursor_without_a_hold_keeps_nothing_from_retention() {
    let memory = MemoryBroker::default();
    let front = life(&memory, 1);
    let handle = open(&front).await;
    fill(&handle, 0..6).await;
    handle.make_cursor(from_the_start(false)).await.unwrap();
    handle.retain(EVERYTHING).await.unwrap();
    sleep(Duration::from_secs(3)).await;
    assert_eq!(handle.offsets().log_start, Offset(5));
    assert_eq!(base(&handle).await, Offset(5));
}
