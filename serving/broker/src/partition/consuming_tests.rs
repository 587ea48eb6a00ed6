//! Consumers of a real partition over memory, as their lanes see the owner (serving.md B5).

use hulse_proto::id::{Offset, SubscriptionId};
use uuid::Uuid;

use super::trim_tests::{fill, life, open};
use crate::state::OffsetRange;
use crate::subscriptions::SubscriptionKind;
use crate::testing::MemoryBroker;
use crate::{AckKind, AckStatus, CursorStart, NewConsumer};

const S: SubscriptionId = SubscriptionId(Uuid::from_u128(8));

/// The owner comes to the ack only when more was sent; what counts is what had been sent when the ack came.
#[tokio::test(start_paused = true)]
async fn ack_of_what_is_sent_only_while_it_waits_for_the_owner_is_invalid() {
    let memory = MemoryBroker::default();
    let front = life(&memory, 1 << 30);
    let handle = open(&front).await;
    fill(&handle, 0..6).await;
    let start = CursorStart {
        subscription: S,
        name: "public/default/s".into(),
        hold: true,
        base: Offset(0),
    };
    handle.make_cursor(start).await.unwrap();
    let consumer = NewConsumer {
        subscription: S,
        kind: SubscriptionKind::Exclusive,
        name: "c".into(),
        client: "c".into(),
        priority: 0,
        takeover: false,
        handed: None,
    };
    let tie = handle.attach(consumer).await.unwrap();
    let turn = tie.view().borrow().turn;
    let ack = |first, end| {
        let range = OffsetRange {
            first: Offset(first),
            end: Offset(end),
        };
        tie.ack(0, AckKind::Individual, vec![range])
    };
    tie.sent(turn, Offset(2));
    let (good, early) = (ack(0, 2), ack(2, 5));
    tie.sent(turn, Offset(6));
    assert_eq!(good.await.unwrap().statuses, [AckStatus::Ok]);
    assert_eq!(early.await.unwrap().statuses, [AckStatus::Invalid]);
    let views = handle.cursors(Some(S), 9).await.unwrap();
    assert_eq!((views[0].base, views[0].ranges.len()), (Offset(2), 0));
    assert_eq!(ack(2, 5).await.unwrap().statuses, [AckStatus::Ok]);
}
