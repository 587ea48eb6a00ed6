//! Partitions that are told to stop while storage does not answer as it should.

use std::ops::Range;
use std::time::Duration;

use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{Offset, ProducerId, SubscriptionId};
use tokio::time::{sleep, timeout};
use uuid::Uuid;

use super::tests::batch;
use super::trim_tests::{fill, life, open};
use crate::state::OffsetRange;
use crate::subscriptions::SubscriptionKind;
use crate::testing::MemoryBroker;
use crate::{AckKind, CursorStart, NewConsumer, PartitionHandle, ProduceFuture};

const PRODUCER: ProducerId = ProducerId(7);
/// Before the storage gets into trouble.
const STORED: i32 = 3;
const ALL: i32 = 12;
/// A full storage answers, so all that waits is decided in less than the longest time that a stop may take …
const FULL_WITHIN: Duration = Duration::from_secs(4);
/// … which is this and somewhat more where it is silent.
const SILENT_WITHIN: Duration = Duration::from_secs(12);

/// What becomes of the storage while records come.
#[derive(Debug, Clone, Copy)]
enum Trouble {
    /// It takes none.
    Full,
    /// It is silent, so that much is on its way, and then takes none.
    SilentThenFull,
    /// It is silent for good.
    Silent,
}

/// Records of a batch so large that the next one does not wait for it.
const LARGE: i32 = 20_000;

/// Sends batches of so many records each and waits for none.
async fn send(handle: &PartitionHandle, batches: Range<i32>, records: i32) -> Vec<ProduceFuture> {
    let mut answers = Vec::new();
    for number in batches {
        let batch = batch(PRODUCER.0, 0, number * records, records as u32);
        answers.push(handle.produce(batch));
        sleep(Duration::from_millis(15)).await;
    }
    answers
}

/// One life with this trouble, told to stop at this time; the next one stores what was not stored, once and in order.
async fn stops(records: i32, roll_bytes: u64, trouble: Trouble, at: Duration) {
    let memory = MemoryBroker::default();
    let front = life(&memory, roll_bytes);
    let handle = open(&front).await;
    for answer in send(&handle, 0..STORED, records).await {
        answer.await.unwrap();
    }
    let (full, silent, within) = match trouble {
        Trouble::Full => (true, false, FULL_WITHIN),
        Trouble::SilentThenFull => (false, true, FULL_WITHIN),
        Trouble::Silent => (false, true, SILENT_WITHIN),
    };
    memory.bookie.hold(silent);
    memory.bookie.fill(full);
    let answers = send(&handle, STORED..ALL, records).await;
    if matches!(trouble, Trouble::SilentThenFull) {
        memory.bookie.fill(true);
    }
    sleep(at).await;
    let partition = handle.id();
    let why = Fault::new(Reason::ShuttingDown, "for a test");
    let stop = front.partitions.close(partition, why);
    let stopped = timeout(within, stop).await;
    assert!(
        stopped.is_ok(),
        "{records} {roll_bytes} {trouble:?} {at:?}: it hangs"
    );
    for answer in answers {
        // Each has one; which depends on the time.
        let answered = timeout(Duration::from_secs(1), answer).await;
        assert!(
            answered.is_ok(),
            "{records} {roll_bytes} {trouble:?} {at:?}"
        );
    }
    memory.bookie.hold(false);
    memory.bookie.fill(false);
    let next = open(&life(&memory, roll_bytes)).await;
    for (index, answer) in send(&next, STORED..ALL, records)
        .await
        .into_iter()
        .enumerate()
    {
        let produced = answer.await.unwrap();
        let expected = Offset((STORED as u64 + index as u64) * records as u64);
        assert_eq!(produced.base_offset, expected, "{trouble:?} {at:?}");
    }
    assert_eq!(
        next.offsets().high_watermark,
        Offset((ALL * records) as u64)
    );
}

#[tokio::test(start_paused = true)]
async fn partition_told_to_stop_ends_also_while_its_ledger_is_full_silent_or_rolled() {
    for trouble in [Trouble::Full, Trouble::SilentThenFull, Trouble::Silent] {
        // One ledger, and some that are rolled while batches are on their way.
        for (records, roll_bytes) in [(1, 1 << 30), (1, 400), (LARGE, 1 << 20), (LARGE, 2 << 20)] {
            for step in 0..10 {
                let at = Duration::from_millis(110 * step);
                stops(records, roll_bytes, trouble, at).await;
            }
        }
    }
}

const S: SubscriptionId = SubscriptionId(Uuid::from_u128(8));

/// A snapshot has the writer of the state chain while the ack comes; behind it the ack is made durable, as any other.
#[tokio::test(start_paused = true)]
async fn ack_that_waits_behind_a_snapshot_is_durable_when_its_partition_stops() {
    let memory = MemoryBroker::default();
    let front = life(&memory, 1);
    let handle = open(&front).await;
    fill(&handle, 0..6).await;
    let start = CursorStart {
        subscription: S,
        name: "public/default/s".into(),
        hold: true,
        base: Offset(3),
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
    tie.sent(turn, Offset(6));
    memory.bookie.hold(true);
    // What is behind the new start of the log waits for a snapshot, which waits for the bookie.
    handle.trim(Some(Offset(3))).await.unwrap();
    sleep(Duration::from_millis(10)).await;
    let all = OffsetRange {
        first: Offset(3),
        end: Offset(6),
    };
    let acked = tie.ack(0, AckKind::Cumulative, vec![all]);
    let why = Fault::new(Reason::ShuttingDown, "for a test");
    let stop = front.partitions.close(handle.id(), why);
    let bookie = async {
        sleep(Duration::from_millis(500)).await;
        memory.bookie.hold(false);
    };
    let (acked, (), ()) = tokio::join!(acked, stop, bookie);
    assert!(acked.is_ok(), "{acked:?}");
    let next = open(&life(&memory, 1)).await;
    let views = next.cursors(Some(S), 0).await.unwrap();
    assert_eq!(views[0].base, Offset(6));
}
