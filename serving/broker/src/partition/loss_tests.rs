//! Entries of closed ledgers that nobody has any more (storage.md R14): refused until an operator accepts it, then a visible gap.

use std::sync::Arc;
use std::time::Duration;

use bookie_client::testing::{FixedClock, MemoryBookie, StaticDirectory};
use bookie_client::{ClientConfig, LedgerClient};
use bookie_metadata::{MemoryStore, MetadataStore};
use bytes::Bytes;
use hulse_proto::batch::{BatchBuilder, Compression, RecordRef};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{
    CellId, EntryId, Incarnation, LedgerId, NodeName, Offset, PartitionId, SubscriptionId, TopicId,
};
use hulse_proto::ledger::{LedgerKind, LedgerState, LossKind, Quorums};
use uuid::Uuid;

use super::tests::batch;
use crate::log::SkipReason;
use crate::{
    BrokerConfig, CursorMove, CursorStart, Lease, PartitionHandle, Partitions, PartitionsConfig,
};

struct Cell {
    bookie: Arc<MemoryBookie>,
    store: Arc<dyn MetadataStore>,
    partition: PartitionId,
}

impl Cell {
    fn new() -> Self {
        let store: Arc<dyn MetadataStore> = Arc::new(MemoryStore::new());
        let incarnation = Incarnation(Uuid::from_u128(2));
        let cell = CellId(Uuid::from_u128(1));
        Self {
            bookie: MemoryBookie::start(cell, "a", incarnation, Some(store.clone())),
            store,
            partition: PartitionId {
                topic: TopicId(Uuid::from_u128(5)),
                index: 0,
            },
        }
    }

    /// A broker's next life.
    fn broker(&self, boot: u8) -> Partitions {
        let quorums = Quorums {
            ensemble: 1,
            write: 1,
            ack: 1,
        };
        let mut config = ClientConfig::new(quorums);
        config.recovery_deadline = Duration::from_secs(2);
        let clock = Arc::new(FixedClock(1_000));
        let parts = PartitionsConfig {
            metadata: self.store.clone(),
            client: LedgerClient::new(
                CellId(Uuid::from_u128(1)),
                config,
                self.store.clone(),
                Arc::new(StaticDirectory::of(std::slice::from_ref(&self.bookie))),
                clock.clone(),
                [boot; 32],
            ),
            clock,
            boot: Uuid::from_u128(u128::from(boot)),
            lease: Lease::none(),
        };
        let mut config = BrokerConfig::new(NodeName::new("b").unwrap(), "nowhere:1");
        config.tail_cache_bytes = 0;
        config.snapshot_entries_min = 1;
        Partitions::new(&config, parts)
    }

    /// Stores `count` batches of one record, each in an entry of its own, and stops in good order; the log ledger.
    async fn fill(&self, count: i32) -> LedgerId {
        let batches = (0..count).map(|sequence| batch(7, 0, sequence, 1));
        self.fill_with(batches).await
    }

    /// The same with these batches.
    async fn fill_with(&self, batches: impl Iterator<Item = Bytes>) -> LedgerId {
        let (partitions, ledger) = self.begin_with(batches).await;
        partitions.close_all().await;
        ledger
    }

    /// The same with a broker that is still there: its ledger is open.
    async fn begin_with(&self, batches: impl Iterator<Item = Bytes>) -> (Partitions, LedgerId) {
        let partitions = self.broker(1);
        let handle = partitions.open(self.partition).await.unwrap();
        for batch in batches {
            handle.produce(batch).await.unwrap();
        }
        let ledgers = partitions.ledgers(self.partition).await.unwrap();
        let log = ledgers.iter().find(|view| view.kind == LedgerKind::Log);
        (partitions, log.unwrap().ledger)
    }

    /// Ten entries of one record in a ledger whose broker died, without these; the next broker could not open it.
    async fn stuck(&self, rotten: &[u64]) -> (Partitions, LedgerId) {
        let batches = (0..10).map(|sequence| batch(7, 0, sequence, 1));
        let (dead, ledger) = self.begin_with(batches).await;
        drop(dead);
        self.rot(ledger, rotten);
        let partitions = self.broker(2);
        let refused = partitions.open(self.partition).await;
        assert_eq!(reason(refused), Some(Reason::DataDamaged));
        (partitions, ledger)
    }

    fn rot(&self, ledger: LedgerId, entries: &[u64]) {
        for entry in entries {
            self.bookie.ledgers().damage(ledger, EntryId(*entry));
        }
    }
}

/// A batch of one record of this time.
fn timed(timestamp: i64) -> Bytes {
    let mut builder = BatchBuilder::new(Compression::None).unwrap();
    let record = RecordRef {
        timestamp,
        key: None,
        value: Some(b"v"),
        headers: &[],
    };
    builder.push(&record).unwrap();
    builder.build(None)
}

/// Base offsets of what is shown, and the gaps.
async fn shown(handle: &PartitionHandle) -> (Vec<u64>, Vec<(u64, u64)>) {
    let (mut bases, mut gaps) = (Vec::new(), Vec::new());
    let end = handle.offsets().high_watermark;
    let mut next = Offset(0);
    while next < end {
        let chunk = handle.read(next, 1 << 20).await.unwrap();
        assert!(chunk.end > next, "reading stands still at {next}");
        bases.extend(chunk.batches.iter().map(|batch| {
            let view = hulse_proto::batch::BatchHeader::view(&batch.bytes);
            view.unwrap().base_offset.0
        }));
        for (from, to, why) in chunk.skipped {
            assert_eq!(why, SkipReason::Lost);
            gaps.push((from.0, to.0));
        }
        next = chunk.end;
    }
    (bases, gaps)
}

fn reason<T>(result: Result<T, Fault>) -> Option<Reason> {
    result.err().map(|fault| fault.reason)
}

#[tokio::test(start_paused = true)]
async fn rotten_entries_of_a_closed_ledger_are_a_gap_once_an_operator_accepts_it() {
    let cell = Cell::new();
    let ledger = cell.fill(10).await;
    cell.rot(ledger, &[4, 5, 9]);
    let partitions = cell.broker(2);
    let refused = partitions.open(cell.partition).await;
    assert_eq!(reason(refused), Some(Reason::DataDamaged));
    let cut = partitions.accept_loss(ledger, Some(EntryId(4))).await;
    assert_eq!(
        reason(cut),
        Some(Reason::PreconditionFailed),
        "its end stands"
    );
    let accepted = partitions.accept_loss(ledger, None).await.unwrap();
    let loss = accepted.loss.unwrap();
    assert_eq!((loss.kind, loss.from), (LossKind::Accepted, EntryId(4)));
    assert_eq!(accepted.state, LedgerState::Closed);
    assert_eq!(accepted.closed.unwrap().end, EntryId(10));
    let handle = partitions.open(cell.partition).await.unwrap();
    assert_eq!(handle.offsets().high_watermark, Offset(10));
    let (bases, gaps) = shown(&handle).await;
    assert_eq!(bases, [0, 1, 2, 3, 6, 7, 8]);
    assert_eq!(gaps, [(4, 6), (9, 10)]);
    // Reading may begin inside a gap.
    let chunk = handle.read(Offset(5), 1 << 20).await.unwrap();
    assert_eq!(chunk.skipped, [(Offset(5), Offset(6), SkipReason::Lost)]);
    // The log goes on above the gap.
    let next = handle.produce(batch(-1, -1, -1, 1)).await.unwrap();
    assert_eq!(next.base_offset, Offset(10));
    let again = partitions.accept_loss(ledger, None).await;
    assert_eq!(reason(again), Some(Reason::PreconditionFailed));
}

/// Recovery reads from the last confirmed entry on; what is damaged below is given up by the same word, and what is behind is kept.
#[tokio::test(start_paused = true)]
async fn rotten_entries_of_a_ledger_in_recovery_are_given_up_by_one_word() {
    for rotten in [&[2, 8, 9][..], &[0, 9], &[4, 5, 9], &[9], &[8], &[2, 8]] {
        let cell = Cell::new();
        let (partitions, ledger) = cell.stuck(rotten).await;
        let accepted = partitions.accept_loss(ledger, None).await.unwrap();
        assert_eq!(accepted.loss.unwrap().from, EntryId(rotten[0]));
        let handle = partitions.open(cell.partition).await.unwrap();
        let (bases, _) = shown(&handle).await;
        let there: Vec<u64> = (0..10).filter(|entry| !rotten.contains(entry)).collect();
        assert_eq!(bases, there, "{rotten:?}");
        let again = partitions.accept_loss(ledger, None).await;
        assert_eq!(reason(again), Some(Reason::PreconditionFailed));
    }
}

#[tokio::test(start_paused = true)]
async fn word_about_a_ledger_that_cannot_be_read_then_seals_it_and_says_so() {
    for up_to in [None, Some(EntryId(9))] {
        let cell = Cell::new();
        let (partitions, ledger) = cell.stuck(&[2, 9]).await;
        cell.bookie.refuse_reads(true);
        let fault = partitions.accept_loss(ledger, up_to).await.unwrap_err();
        assert_eq!(fault.reason, Reason::StorageUnavailable);
        assert!(fault.message.contains("sealed at entry 9"), "{fault}");
        let ledgers = partitions.ledgers(cell.partition).await.unwrap();
        let sealed = ledgers.iter().find(|view| view.ledger == ledger).unwrap();
        let sealed = sealed.metadata.as_ref().unwrap();
        assert_eq!(sealed.closed.as_ref().unwrap().end, EntryId(9));
        cell.bookie.refuse_reads(false);
        // The same word again.
        let accepted = partitions.accept_loss(ledger, up_to).await.unwrap();
        assert_eq!(accepted.loss.unwrap().from, EntryId(2));
        let handle = partitions.open(cell.partition).await.unwrap();
        assert_eq!(shown(&handle).await.0, [0, 1, 3, 4, 5, 6, 7, 8]);
        let elsewhere = partitions.accept_loss(ledger, Some(EntryId(5))).await;
        assert_eq!(reason(elsewhere), Some(Reason::PreconditionFailed));
    }
}

#[tokio::test(start_paused = true)]
async fn whole_closed_ledger_loses_nothing_by_a_word() {
    let cell = Cell::new();
    let ledger = cell.fill(3).await;
    let partitions = cell.broker(2);
    let refused = partitions.accept_loss(ledger, None).await;
    assert_eq!(reason(refused), Some(Reason::PreconditionFailed));
    let handle = partitions.open(cell.partition).await.unwrap();
    assert_eq!(shown(&handle).await.0, [0, 1, 2]);
}

/// Times 10, 20 … stand at offsets 0, 1 …; of those that are lost the next one is found.
#[tokio::test(start_paused = true)]
async fn times_are_found_past_what_is_recorded_as_lost() {
    for lost in [&[0, 1][..], &[4, 5], &[9], &[0, 3, 4, 8, 9]] {
        let cell = Cell::new();
        let ledger = cell.fill_with((1..=10).map(|n| timed(n * 10))).await;
        cell.rot(ledger, lost);
        let partitions = cell.broker(2);
        partitions.accept_loss(ledger, None).await.unwrap();
        let handle = partitions.open(cell.partition).await.unwrap();
        let there = |offset: &u64| !lost.contains(offset);
        for asked in 0..=100 {
            let first = (0..10)
                .filter(there)
                .find(|offset| offset * 10 + 10 >= asked);
            let expected = first.map(|offset| (Offset(offset), offset as i64 * 10 + 10));
            let found = handle.offset_at_time(asked as i64).await.unwrap();
            assert_eq!(found, expected, "{asked} without {lost:?}");
        }
        let last = (0..10).rev().find(there).unwrap();
        let expected = Some((Offset(last), last as i64 * 10 + 10));
        assert_eq!(handle.offset_of_max_time().await.unwrap(), expected);
        // The ledger behind is found, too.
        handle.produce(timed(500)).await.unwrap();
        let found = handle.offset_at_time(499).await.unwrap();
        assert_eq!(found, Some((Offset(10), 500)));
    }
}

/// The state chain: a snapshot that is recorded as lost is void, and the log is replayed from its start.
#[tokio::test(start_paused = true)]
async fn rotten_snapshot_is_passed_over_once_an_operator_accepts_it() {
    let cell = Cell::new();
    cell.fill(5).await;
    let partitions = cell.broker(2);
    let ledgers = partitions.ledgers(cell.partition).await.unwrap();
    let state = ledgers.iter().find(|view| view.kind == LedgerKind::State);
    let state = state.expect("a snapshot follows the first entry").ledger;
    cell.rot(state, &[0]);
    let refused = partitions.open(cell.partition).await;
    assert_eq!(reason(refused), Some(Reason::DataDamaged));
    partitions.accept_loss(state, None).await.unwrap();
    let handle = partitions.open(cell.partition).await.unwrap();
    assert_eq!(shown(&handle).await.0, [0, 1, 2, 3, 4]);
    let known = handle
        .producer(hulse_proto::id::ProducerId(7))
        .await
        .unwrap();
    assert_eq!(known, Some((0, 4)), "rebuilt from the log");
}

/// An open partition meets the damage when somebody reads there.
#[tokio::test(start_paused = true)]
async fn accepted_loss_shows_in_a_partition_that_was_open() {
    let cell = Cell::new();
    let ledger = cell.fill(10).await;
    let partitions = cell.broker(2);
    let handle = partitions.open(cell.partition).await.unwrap();
    cell.rot(ledger, &[2]);
    let refused = handle.read(Offset(2), 1 << 20).await;
    assert_eq!(reason(refused), Some(Reason::DataDamaged));
    partitions.accept_loss(ledger, None).await.unwrap();
    assert!(handle.ended().is_some());
    let handle = partitions.open(cell.partition).await.unwrap();
    let (bases, gaps) = shown(&handle).await;
    assert_eq!(bases, [0, 1, 3, 4, 5, 6, 7, 8, 9]);
    assert_eq!(gaps, [(2, 3)]);
}

/// The state chain with cursors: what the lost entries said of them is not known any more, what comes after holds.
#[tokio::test(start_paused = true)]
async fn lost_deltas_are_passed_over_once_an_operator_accepts_it() {
    let id = SubscriptionId(Uuid::from_u128(8));
    // The snapshot after the first entry, the making of the cursor, the acks, the snapshot at the end.
    for lost in [&[2][..], &[0], &[0, 1], &[2, 3], &[5]] {
        let cell = Cell::new();
        let partitions = cell.broker(1);
        let handle = partitions.open(cell.partition).await.unwrap();
        for sequence in 0..10 {
            handle.produce(batch(7, 0, sequence, 1)).await.unwrap();
        }
        let start = CursorStart {
            subscription: id,
            name: "public/default/s".into(),
            hold: true,
            base: Offset(0),
        };
        handle.make_cursor(start.clone()).await.unwrap();
        for to in 2..6 {
            let goal = CursorMove {
                to: Offset(to),
                keep_acked: true,
            };
            handle.move_cursor(id, goal).await.unwrap();
        }
        let ledgers = partitions.ledgers(cell.partition).await.unwrap();
        let state = ledgers.iter().find(|view| view.kind == LedgerKind::State);
        let state = state.unwrap().ledger;
        partitions.close_all().await;
        cell.rot(state, lost);
        let partitions = cell.broker(2);
        let refused = partitions.open(cell.partition).await;
        assert_eq!(reason(refused), Some(Reason::DataDamaged), "{lost:?}");
        partitions.accept_loss(state, None).await.unwrap();
        let handle = partitions.open(cell.partition).await.unwrap();
        handle.make_cursor(start).await.unwrap();
        let goal = CursorMove {
            to: Offset(7),
            keep_acked: true,
        };
        handle.move_cursor(id, goal).await.unwrap();
        partitions.close_all().await;
        let handle = cell.broker(3).open(cell.partition).await.unwrap();
        let cursors = handle.cursors(Some(id), 0).await.unwrap();
        assert_eq!(cursors[0].base, Offset(7), "{lost:?}");
    }
}

/// The newest ledger cannot be recovered now: what is below it is closed, and read; what may stand in it is in doubt, and said to be.
#[tokio::test(start_paused = true)]
async fn closed_ledgers_below_one_that_cannot_be_recovered_are_read() {
    let cell = Cell::new();
    cell.fill(4).await;
    let dead = cell.broker(2);
    let handle = dead.open(cell.partition).await.unwrap();
    for sequence in 4..9 {
        handle.produce(batch(7, 0, sequence, 1)).await.unwrap();
    }
    let ledgers = dead.ledgers(cell.partition).await.unwrap();
    let newest = ledgers.iter().rfind(|view| view.kind == LedgerKind::Log);
    let newest = newest.unwrap().ledger;
    drop((handle, dead));
    cell.rot(newest, &[4]);
    let partitions = cell.broker(3);
    assert!(partitions.certain(cell.partition, false).is_none());
    for _ in 0..2 {
        let refused = partitions.open(cell.partition).await;
        assert_eq!(reason(refused), Some(Reason::DataDamaged));
        let certain = partitions.certain(cell.partition, true).unwrap();
        assert_eq!(certain.offsets().high_watermark, Offset(4));
        assert_eq!(shown(&certain).await, (vec![0, 1, 2, 3], vec![]));
        // Also where records were: that they are not here is not known.
        for offset in [4, 5, 8, 99] {
            let fault = certain.read(Offset(offset), 1 << 20).await.unwrap_err();
            assert_eq!(fault.reason, Reason::DataDamaged, "{offset}");
            assert!(fault.message.contains(&newest.to_string()), "{fault}");
        }
        assert_eq!(certain.beyond().unwrap().reason, Reason::DataDamaged);
        assert!(reason(certain.produce(batch(7, 0, 9, 1)).await).is_some());
        tokio::time::advance(Duration::from_secs(3)).await;
        assert!(partitions.certain(cell.partition, true).is_none());
    }
    // Once it opens there is no doubt any more.
    partitions.accept_loss(newest, None).await.unwrap();
    assert!(partitions.certain(cell.partition, false).is_none());
    let handle = partitions.open(cell.partition).await.unwrap();
    assert_eq!(handle.beyond(), None);
    assert_eq!(shown(&handle).await.0, [0, 1, 2, 3, 4, 5, 6, 7]);
}

/// The log is whole, what is known of its producers and cursors is not: it does not open, and all of it is read.
#[tokio::test(start_paused = true)]
async fn log_below_a_state_that_is_lost_is_read() {
    let cell = Cell::new();
    cell.fill(5).await;
    let partitions = cell.broker(2);
    let ledgers = partitions.ledgers(cell.partition).await.unwrap();
    let state = ledgers.iter().find(|view| view.kind == LedgerKind::State);
    cell.rot(state.unwrap().ledger, &[0]);
    let refused = partitions.open(cell.partition).await;
    assert_eq!(reason(refused), Some(Reason::DataDamaged));
    let certain = partitions.certain(cell.partition, true).unwrap();
    assert_eq!(shown(&certain).await.0, [0, 1, 2, 3, 4]);
    let end = certain.read(Offset(5), 1 << 20).await;
    assert_eq!(reason(end), Some(Reason::DataDamaged));
}
