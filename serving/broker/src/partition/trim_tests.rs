//! Trims and retention of real partitions over memory (storage.md P6, D3).

use std::sync::Arc;
use std::time::Duration;

use bookie_metadata::list_all;
use bookie_metadata::testing::{Fate, Late};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{EntryId, Offset, PartitionId, ProducerId, SubscriptionId, TopicId};
use hulse_proto::ledger::LedgerKind;
use tokio::time::sleep;
use uuid::Uuid;

use super::tests::batch;
use crate::retention::Limits;
use crate::testing::MemoryBroker;
use crate::{CursorStart, Front, PartitionHandle};

const PRODUCER: ProducerId = ProducerId(7);

fn partition() -> PartitionId {
    PartitionId {
        topic: TopicId(Uuid::from_u128(5)),
        index: 0,
    }
}

/// A life of a broker whose ledgers roll at this size; nothing is in memory, so that reads show what is stored.
pub(super) fn life(memory: &MemoryBroker, roll_bytes: u64) -> Arc<Front> {
    memory.front(|config| {
        config.ledger_roll_bytes = roll_bytes;
        config.tail_cache_bytes = 0;
    })
}

pub(super) async fn open(front: &Front) -> PartitionHandle {
    front.partitions.open(partition()).await.unwrap()
}

/// Stores batches of one record each, with these sequences.
pub(super) async fn fill(handle: &PartitionHandle, sequences: std::ops::Range<i32>) {
    for sequence in sequences {
        handle
            .produce(batch(PRODUCER.0, 0, sequence, 1))
            .await
            .unwrap();
    }
}

/// Numbers of the log's ledgers.
async fn log_ledgers(front: &Front) -> Vec<u64> {
    let views = front.partitions.ledgers(partition()).await.unwrap();
    let log = views.iter().filter(|view| view.kind == LedgerKind::Log);
    log.map(|view| view.ledger.0).collect()
}

async fn keys(memory: &MemoryBroker, prefix: &str) -> usize {
    list_all(&*memory.metadata.store(), prefix)
        .await
        .unwrap()
        .len()
}

fn refused<T: std::fmt::Debug>(result: Result<T, Fault>, reason: Reason) -> Fault {
    let fault = result.unwrap_err();
    assert_eq!(fault.reason, reason, "{fault}");
    fault
}

#[tokio::test(start_paused = true)]
async fn trim_inside_a_ledger_moves_the_log_start_for_good() {
    let memory = MemoryBroker::default();
    let front = life(&memory, 1 << 30);
    let handle = open(&front).await;
    fill(&handle, 0..10).await;
    assert_eq!(handle.trim(Some(Offset(4))).await, Ok(Offset(4)));
    assert_eq!(handle.trim(Some(Offset(2))).await, Ok(Offset(4)));
    refused(
        handle.trim(Some(Offset(11))).await,
        Reason::OffsetOutOfRange,
    );
    begins_at_four(&handle).await;
    front.partitions.close_all().await;
    begins_at_four(&open(&life(&memory, 1 << 30)).await).await;
}

/// A log of ten records of which the first four are trimmed.
async fn begins_at_four(handle: &PartitionHandle) {
    let fault = refused(handle.read(Offset(3), 1).await, Reason::OffsetOutOfRange);
    assert_eq!(&*fault.details["log_start"], "4");
    assert_eq!(handle.read(Offset(4), 1).await.unwrap().prev_end, Offset(4));
    assert_eq!(handle.offsets().log_start, Offset(4));
    let known = handle.producer(PRODUCER).await;
    assert_eq!(known.ok().flatten(), Some((0, 9)));
}

#[tokio::test(start_paused = true)]
async fn ledgers_below_the_log_start_go_with_their_keys_and_producers_stay_known() {
    let memory = MemoryBroker::default();
    let front = life(&memory, 1);
    let handle = open(&front).await;
    fill(&handle, 0..10).await;
    assert_eq!(log_ledgers(&front).await.len(), 10);
    assert_eq!(handle.trim(Some(Offset(7))).await, Ok(Offset(7)));
    sleep(Duration::from_secs(10)).await;
    // Three with records, and the open one.
    assert_eq!(log_ledgers(&front).await.len(), 4);
    assert_eq!(handle.trim(None).await, Ok(Offset(10)));
    sleep(Duration::from_secs(10)).await;
    assert_eq!(log_ledgers(&front).await.len(), 1, "the open one stays");
    fill(&handle, 10..12).await;
    front.partitions.close_all().await;
    let states = front.partitions.ledgers(partition()).await.unwrap();
    assert_eq!(keys(&memory, "ledger/").await, states.len());
    let next = open(&life(&memory, 1)).await;
    assert_eq!(next.offsets().log_start, Offset(10));
    assert_eq!(next.offsets().high_watermark, Offset(12));
    assert_eq!(next.producer(PRODUCER).await.ok().flatten(), Some((0, 11)));
    let again = next.produce(batch(PRODUCER.0, 0, 11, 1)).await.unwrap();
    assert!(again.duplicate && again.base_offset == Offset(11));
}

#[tokio::test(start_paused = true)]
async fn everything_may_go_and_offsets_go_on() {
    let memory = MemoryBroker::default();
    let front = life(&memory, 1 << 30);
    fill(&open(&front).await, 0..5).await;
    front.partitions.close_all().await;
    let front = life(&memory, 1 << 30);
    let handle = open(&front).await;
    assert_eq!(handle.trim(None).await, Ok(Offset(5)));
    sleep(Duration::from_secs(10)).await;
    assert!(log_ledgers(&front).await.is_empty());
    front.partitions.close_all().await;
    let handle = open(&life(&memory, 1 << 30)).await;
    let offsets = handle.offsets();
    assert_eq!(
        (
            offsets.log_start,
            offsets.high_watermark,
            offsets.stored_bytes
        ),
        (Offset(5), Offset(5), 0)
    );
    let stored = handle.produce(batch(PRODUCER.0, 0, 5, 1)).await.unwrap();
    assert_eq!((stored.base_offset, stored.duplicate), (Offset(5), false));
}

#[tokio::test(start_paused = true)]
async fn trim_of_unknown_outcome_is_resolved_and_nothing_is_trimmed_twice() {
    for fate in [
        Fate::Unavailable,
        Fate::UnknownCommitted,
        Fate::UnknownNever,
        Fate::UnknownLater(Late::OnDemand),
    ] {
        let memory = MemoryBroker::default();
        let front = life(&memory, 1);
        let handle = open(&front).await;
        fill(&handle, 0..4).await;
        // Of the log start, of the ledgers' marks.
        memory.metadata.plan_txns([fate, Fate::Pass, fate]);
        assert_eq!(
            handle.trim(Some(Offset(3))).await,
            Ok(Offset(3)),
            "{fate:?}"
        );
        sleep(Duration::from_secs(20)).await;
        memory.metadata.land_all().await;
        assert_eq!(log_ledgers(&front).await.len(), 2, "{fate:?}");
        fill(&handle, 4..6).await;
        assert_eq!(handle.offsets().high_watermark, Offset(6));
    }
}

#[tokio::test(start_paused = true)]
async fn ledger_is_rolled_while_metadata_keep_a_trim_waiting() {
    let memory = MemoryBroker::default();
    let front = life(&memory, 1);
    let handle = open(&front).await;
    fill(&handle, 0..2).await;
    memory.metadata.silence();
    let trim = handle.trim(Some(Offset(1)));
    let speak = async {
        sleep(Duration::from_secs(5)).await;
        memory.metadata.speak();
    };
    let (trimmed, produced, ()) =
        tokio::join!(trim, handle.produce(batch(PRODUCER.0, 0, 2, 1)), speak);
    assert_eq!(trimmed, Ok(Offset(1)));
    assert_eq!(produced.unwrap().base_offset, Offset(2));
    fill(&handle, 3..5).await;
}

#[tokio::test(start_paused = true)]
async fn former_owner_moves_nothing() {
    let memory = MemoryBroker::default();
    let (front, other) = (life(&memory, 1 << 30), life(&memory, 1 << 30));
    let former = open(&front).await;
    fill(&former, 0..4).await;
    let owner = open(&other).await;
    refused(former.trim(Some(Offset(2))).await, Reason::PartitionMoved);
    assert_eq!(owner.offsets().log_start, Offset(0));
    other.partitions.close_all().await;
    let next = open(&life(&memory, 1 << 30)).await;
    assert_eq!(next.offsets().log_start, Offset(0));
}

fn time(seconds: u64) -> Limits {
    Limits {
        time: Some(Duration::from_secs(seconds)),
        bytes: None,
    }
}

#[tokio::test(start_paused = true)]
async fn records_go_by_the_time_of_their_append_whatever_their_dates() {
    let memory = MemoryBroker::default();
    let front = life(&memory, 1);
    let handle = open(&front).await;
    // Their own dates are of 1970.
    fill(&handle, 0..3).await;
    sleep(Duration::from_secs(40)).await;
    fill(&handle, 3..5).await;
    handle.retain(time(60)).await.unwrap();
    sleep(Duration::from_secs(15)).await;
    handle.retain(time(60)).await.unwrap();
    assert_eq!(handle.offsets().log_start, Offset(0));
    sleep(Duration::from_secs(10)).await;
    handle.retain(time(60)).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(handle.offsets().log_start, Offset(3));
    // The wall's date leaps; the owner's clock does not.
    memory.wall.set(2_000_000_000_000);
    sleep(Duration::from_secs(10)).await;
    handle.retain(time(60)).await.unwrap();
    sleep(Duration::from_secs(1)).await;
    assert_eq!(handle.offsets().log_start, Offset(3));
}

#[tokio::test(start_paused = true)]
async fn newest_ledgers_with_the_limit_stay() {
    let memory = MemoryBroker::default();
    let front = life(&memory, 1);
    let handle = open(&front).await;
    fill(&handle, 0..10).await;
    let each = handle.offsets().stored_bytes / 10;
    for (limit, start) in [
        (20 * each, 0),
        (10 * each, 0),
        (5 * each, 5),
        (5 * each, 5),
        (1, 9),
    ] {
        let limits = Limits {
            time: None,
            bytes: Some(limit),
        };
        handle.retain(limits).await.unwrap();
        sleep(Duration::from_secs(3)).await;
        let offsets = handle.offsets();
        assert_eq!(offsets.log_start, Offset(start), "limit {limit}");
        assert!(offsets.stored_bytes >= limit.min(10 * each).min(each));
    }
}

/// Case ST-02, step 2.
#[tokio::test(start_paused = true)]
async fn retention_stops_at_what_a_subscription_holds_and_a_trim_does_not() {
    let memory = MemoryBroker::default();
    let front = life(&memory, 1);
    let handle = open(&front).await;
    fill(&handle, 0..6).await;
    let subscription = SubscriptionId(Uuid::from_u128(8));
    let start = CursorStart {
        subscription,
        name: "public/default/s".into(),
        hold: true,
        base: Offset(2),
    };
    handle.make_cursor(start).await.unwrap();
    let everything = Limits {
        time: Some(Duration::ZERO),
        bytes: None,
    };
    let retained = |start: u64| {
        let handle = &handle;
        async move {
            handle.retain(everything).await.unwrap();
            sleep(Duration::from_secs(3)).await;
            assert_eq!(handle.offsets().log_start, Offset(start));
        }
    };
    retained(2).await;
    assert_eq!(handle.trim(Some(Offset(4))).await, Ok(Offset(4)));
    sleep(Duration::from_secs(3)).await;
    retained(4).await;
    handle.remove_cursor(subscription, true).await.unwrap();
    retained(6).await;
}

#[tokio::test(start_paused = true)]
async fn idle_ledger_of_expired_records_goes_also_while_storage_is_full() {
    let memory = MemoryBroker::default();
    let front = life(&memory, 1 << 30);
    let handle = open(&front).await;
    fill(&handle, 0..3).await;
    memory.bookie.fill(true);
    sleep(Duration::from_secs(31)).await;
    for _ in 0..2 {
        handle.retain(time(30)).await.unwrap();
        sleep(Duration::from_secs(6)).await;
    }
    assert_eq!(handle.offsets().log_start, Offset(3));
    assert!(log_ledgers(&front).await.is_empty());
    memory.bookie.fill(false);
    fill(&handle, 3..4).await;
    assert_eq!(handle.offsets().high_watermark, Offset(4));
}

#[tokio::test(start_paused = true)]
async fn look_up_by_time_passes_over_what_was_trimmed() {
    let memory = MemoryBroker::default();
    let front = life(&memory, 1 << 30);
    let handle = open(&front).await;
    // Each batch has records of the dates 0, 1 and 2.
    for sequence in 0..4 {
        let batch = batch(PRODUCER.0, 0, sequence * 3, 3);
        handle.produce(batch).await.unwrap();
    }
    assert_eq!(handle.offset_at_time(1).await, Ok(Some((Offset(1), 1))));
    handle.trim(Some(Offset(5))).await.unwrap();
    assert_eq!(handle.offset_at_time(0).await, Ok(Some((Offset(5), 2))));
    assert_eq!(handle.offset_at_time(2).await, Ok(Some((Offset(5), 2))));
    handle.trim(Some(Offset(6))).await.unwrap();
    assert_eq!(handle.offset_at_time(0).await, Ok(Some((Offset(6), 0))));
    assert_eq!(handle.offset_of_max_time().await, Ok(Some((Offset(8), 2))));
    handle.trim(None).await.unwrap();
    assert_eq!(handle.offset_at_time(0).await, Ok(None));
}

/// The log start is in metadata, which are synced; the log's end may not have been.
#[tokio::test(start_paused = true)]
async fn log_whose_end_was_lost_below_its_start_goes_on_where_it_starts() {
    for state_lost in [false, true] {
        let memory = MemoryBroker::default();
        let front = life(&memory, 1 << 30);
        let handle = open(&front).await;
        fill(&handle, 0..10).await;
        assert_eq!(handle.trim(None).await, Ok(Offset(10)));
        sleep(Duration::from_secs(10)).await;
        for view in front.partitions.ledgers(partition()).await.unwrap() {
            match view.kind {
                LedgerKind::Log => memory.bookie.lose_tail(view.ledger, EntryId(5)),
                _ if state_lost => memory.bookie.lose_tail(view.ledger, EntryId(0)),
                _ => {}
            }
        }
        let next = life(&memory, 1 << 30);
        let handle = open(&next).await;
        assert_eq!(handle.offsets().log_start, Offset(10));
        assert_eq!(handle.offsets().high_watermark, Offset(10));
        let stored = handle.produce(batch(8, 0, 0, 3)).await.unwrap();
        assert_eq!(stored.base_offset, Offset(10));
        let read = handle.read(Offset(10), 1 << 20).await.unwrap();
        assert_eq!((read.batches.len(), read.end), (1, Offset(13)));
        next.partitions.close_all().await;
        let handle = open(&life(&memory, 1 << 30)).await;
        let read = handle.read(Offset(10), 1 << 20).await.unwrap();
        assert_eq!((read.batches.len(), read.end), (1, Offset(13)));
    }
}
