//! Full disks (storage.md D1 as amended, D2, E5): records are refused in time and in words, everything else goes on, and so do records
//! once there is room.

use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use bookie_client::{AppendError, Appended, LedgerWriter, NewLedger, NotWritten};
use bookie_metadata::Txn;
use bytes::Bytes;
use hulse_proto::batch::{BatchBuilder, Compression, RecordRef};
use hulse_proto::entry::{EntryClass, EntryKind, Envelope, NewEntry};
use hulse_proto::error::{Fate, Fault, Reason};
use hulse_proto::id::{Offset, OwnerEpoch, PartitionId, TopicId};
use hulse_proto::ledger::{LedgerKind, LedgerState, Quorums};
use tests_harness::reader::read_all;
use tests_harness::{BrokerSizes, Cluster, Outcome, Process, RecordId, World, WorldSetup, runtime};
use tokio::time::{Instant, sleep, timeout};

use crate::scenarios::{REPLICATED, all_is_well};

pub(crate) const SINGLE: Quorums = Quorums {
    ensemble: 1,
    write: 1,
    ack: 1,
};
/// A refusal that takes longer has waited for something.
const AT_ONCE: Duration = Duration::from_millis(20);

pub(crate) async fn world(quorums: Quorums, bookies: u32) -> Arc<World> {
    let setup = WorldSetup {
        seed: 11,
        whole_trace: true,
        quorums,
        bookies,
        mutant: None,
    };
    let world = Arc::new(World::new(setup));
    world.start_bookies().await;
    world
}

pub(crate) async fn cell(quorums: Quorums, bookies: u32) -> Arc<Cluster> {
    let sizes = BrokerSizes {
        roll_bytes: 1 << 30,
        roll_age: Duration::from_secs(360_000),
        tail_bytes: 0,
    };
    Cluster::start(&world(quorums, bookies).await, sizes)
}

/// Sends one record after the other, without a producer id.
pub(crate) struct Client {
    cluster: Arc<Cluster>,
    next: u64,
}

impl Client {
    pub(crate) fn new(cluster: &Arc<Cluster>) -> Self {
        Self {
            cluster: cluster.clone(),
            next: 0,
        }
    }

    /// One record of about `bytes`; what the answer says is what must hold at the end.
    pub(crate) async fn send(&mut self, bytes: usize) -> Result<(), Fault> {
        let id = RecordId {
            producer: 77,
            number: self.next,
        };
        self.next += 1;
        self.cluster.truth().send(id);
        let route = self.cluster.route(false).await;
        let (broker, handle) = route.expect("the partition opens");
        let answer = broker.process.heard(handle.produce(batch(id, bytes))).await;
        match answer.expect("the broker lives") {
            Ok(produced) => {
                let outcome = Outcome::Ok(Some(produced.base_offset.0));
                self.cluster.truth().answer(id, outcome);
                Ok(())
            }
            Err(fault) => {
                if fault.fate == Fate::NotApplied {
                    self.cluster.truth().answer(id, Outcome::Failed);
                }
                Err(fault)
            }
        }
    }

    /// Sends until a record is refused; the fault, and how long it took.
    async fn fill(&mut self) -> (Fault, Duration) {
        for _ in 0..1_000 {
            let begun = Instant::now();
            if let Err(fault) = self.send(3_000).await {
                return (fault, begun.elapsed());
            }
        }
        panic!("the disks never filled");
    }

    async fn refused_at_once(&mut self) {
        let begun = Instant::now();
        let fault = self.send(10).await.expect_err("the disks are full");
        assert!(begun.elapsed() < AT_ONCE, "{:?}", begun.elapsed());
        assert_full(&fault);
    }

    /// Sends until a record is stored.
    async fn heals(&mut self) {
        let begun = Instant::now();
        while self.send(10).await.is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20), "it stays full");
            sleep(Duration::from_millis(500)).await;
        }
    }
}

fn batch(id: RecordId, bytes: usize) -> Bytes {
    let mut builder = BatchBuilder::new(Compression::None).expect("no compression is supported");
    let (key, value) = (vec![b'k'; bytes], id.payload());
    let record = RecordRef {
        timestamp: 0,
        key: Some(&key),
        value: Some(value.as_bytes()),
        headers: &[],
    };
    builder.push(&record).expect("a small record fits");
    builder.build(None)
}

fn assert_full(fault: &Fault) {
    assert_eq!(
        (fault.reason, fault.fate),
        (Reason::StorageFull, Fate::NotApplied),
        "{fault}"
    );
    assert!(fault.retry_after.is_some());
}

/// Log ledgers that metadata know, by state: open and closed.
pub(crate) fn log_ledgers(world: &World) -> (usize, usize) {
    let ledgers = world.store.ledgers();
    let count = |state: LedgerState| {
        let of = ledgers
            .iter()
            .filter(|(_, found)| found.kind == LedgerKind::Log && found.state == state);
        of.count()
    };
    (count(LedgerState::Open), count(LedgerState::Closed))
}

/// ST-03, and the same where two of three disks are full.
#[test]
fn full_disks_are_told_at_once_reading_goes_on_and_producing_heals() {
    for (quorums, full) in [(SINGLE, 1), (REPLICATED, 2), (REPLICATED, 3)] {
        runtime().block_on(async {
            let cluster = cell(quorums, quorums.ensemble).await;
            let world = &cluster.world;
            let mut client = Client::new(&cluster);
            client.send(10).await.unwrap();
            for bookie in &world.bookies[..full] {
                bookie.fill_disk(0);
            }
            let (fault, took) = client.fill().await;
            assert_full(&fault);
            assert!(took < Duration::from_secs(2), "{took:?}");
            assert_eq!(log_ledgers(world), (0, 1));
            let (_, handle) = cluster.route(false).await.unwrap();
            for _ in 0..240 {
                client.refused_at_once().await;
                sleep(Duration::from_millis(500)).await;
            }
            // One close for all that time, and the same owner.
            assert_eq!(log_ledgers(world), (0, 1));
            let (_, still) = cluster.route(false).await.unwrap();
            assert_eq!(still.leader_epoch(), handle.leader_epoch());
            let log = read_all(&cluster, &handle).await.unwrap();
            assert_eq!(log.len() as u64, handle.offsets().high_watermark.0);
            for bookie in &world.bookies {
                bookie.free_disk();
            }
            client.heals().await;
            assert_eq!(log_ledgers(world), (1, 1));
            all_is_well(&cluster).await;
        });
    }
}

#[test]
fn records_go_on_while_an_ack_quorum_has_room_or_spares_have() {
    for (bookies, full) in [(3, 1), (4, 2), (6, 3)] {
        runtime().block_on(async {
            let cluster = cell(REPLICATED, bookies).await;
            let mut client = Client::new(&cluster);
            client.send(10).await.unwrap();
            for bookie in &cluster.world.bookies[..full] {
                bookie.fill_disk(0);
            }
            for _ in 0..200 {
                client.send(3_000).await.unwrap();
            }
            all_is_well(&cluster).await;
        });
    }
}

/// D2, E5: a take-over needs no room, whether the full ledger was closed or not.
#[test]
fn partition_is_taken_over_while_its_disks_are_full() {
    for quorums in [SINGLE, REPLICATED] {
        for after in [0, 300, 3_000] {
            runtime().block_on(async {
                let cluster = cell(quorums, quorums.ensemble).await;
                let world = &cluster.world;
                let mut client = Client::new(&cluster);
                client.send(10).await.unwrap();
                for bookie in &world.bookies {
                    bookie.fill_disk(0);
                }
                while world.bookies.iter().any(|bookie| bookie.is_writable()) {
                    let _ = timeout(Duration::from_millis(100), client.send(3_000)).await;
                }
                let _ = timeout(Duration::from_millis(1), client.send(10)).await;
                sleep(Duration::from_millis(after)).await;
                cluster.replace(0);
                let (_, handle) = cluster.route(false).await.unwrap();
                let log = read_all(&cluster, &handle).await.unwrap();
                assert!(!log.is_empty());
                let fault = client.send(10).await.unwrap_err();
                assert_full(&fault);
                client.refused_at_once().await;
                for bookie in &world.bookies {
                    bookie.free_disk();
                }
                client.heals().await;
                all_is_well(&cluster).await;
            });
        }
    }
}

/// Nothing can be closed without metadata: what was sent waits for its fate, what comes is refused.
#[test]
fn full_disk_while_metadata_are_silent_keeps_the_fate_of_what_was_sent() {
    runtime().block_on(async {
        let cluster = cell(SINGLE, 1).await;
        let world = &cluster.world;
        let mut client = Client::new(&cluster);
        client.send(10).await.unwrap();
        // Its first snapshot is written.
        sleep(Duration::from_secs(2)).await;
        world.silence();
        world.bookies[0].fill_disk(0);
        while timeout(Duration::from_secs(1), client.send(3_000))
            .await
            .is_ok()
        {}
        for _ in 0..30 {
            client.refused_at_once().await;
            sleep(Duration::from_secs(1)).await;
        }
        assert_eq!(log_ledgers(world), (1, 0));
        world.speak();
        sleep(Duration::from_secs(3)).await;
        assert_eq!(log_ledgers(world), (0, 1));
        world.bookies[0].free_disk();
        client.heals().await;
        all_is_well(&cluster).await;
    });
}

pub(crate) fn new(kind: LedgerKind, base: u64) -> NewLedger {
    NewLedger {
        kind,
        partition: PartitionId {
            topic: TopicId::default(),
            index: 0,
        },
        owner_epoch: OwnerEpoch(1),
        base_offset: Offset(base),
    }
}

/// An entry of `span` offsets behind what the writer has.
fn entry(writer: &LedgerWriter, class: EntryClass, next: &mut u64, bytes: usize) -> NewEntry {
    let span = u32::from(class != EntryClass::Meta);
    let kind = match class {
        EntryClass::Data => EntryKind::Data,
        EntryClass::Control => EntryKind::Control,
        EntryClass::Meta => EntryKind::Meta,
    };
    let first = match writer.metadata().kind {
        LedgerKind::Log => *next,
        LedgerKind::State => 0,
    };
    *next += u64::from(span);
    data(class, kind, first, span, bytes)
}

fn data(class: EntryClass, kind: EntryKind, first: u64, span: u32, bytes: usize) -> NewEntry {
    let envelope = Envelope {
        kind,
        append_time: 0,
        running_max_timestamp: 0,
        batches: Vec::new(),
    };
    NewEntry {
        class,
        first_offset: Offset(first),
        offset_span: span,
        record_count: 0,
        envelope: envelope.encode(),
        body: vec![Bytes::from(vec![7; bytes])],
    }
}

/// An entry of one record.
pub(crate) fn record(first: u64) -> NewEntry {
    data(EntryClass::Data, EntryKind::Data, first, 1, 30)
}

/// A batch that no oracle waits for.
pub(crate) fn stray_batch() -> Bytes {
    let id = RecordId {
        producer: 9,
        number: 0,
    };
    batch(id, 10)
}

fn is_closed(error: &AppendError) -> bool {
    let why = |why: &NotWritten| matches!(why, NotWritten::Closed { .. });
    matches!(error, AppendError::NotWritten { why: found } if why(found))
}

fn is_full<T>(result: &Result<T, AppendError>) -> bool {
    let why = |why: &NotWritten| matches!(why, NotWritten::Full { .. });
    matches!(result, Err(AppendError::NotWritten { why: found }) if why(found))
}

type Answer = Pin<Box<dyn Future<Output = Result<Appended, AppendError>>>>;

/// Fills every disk with the writer's records until one is blocked: its answer, to come.
async fn fill(world: &World, writer: &LedgerWriter, next: &mut u64) -> Answer {
    for bookie in &world.bookies {
        bookie.fill_disk(0);
    }
    let mut full = writer.full();
    loop {
        let mut answer: Answer =
            Box::pin(writer.append(entry(writer, EntryClass::Data, next, 3_000)));
        tokio::select! {
            biased;
            found = &mut answer => assert!(found.is_ok(), "{found:?}"),
            found = full.wait_for(Option::is_some) => {
                assert!(found.is_ok_and(|why| why.is_some()));
                return answer;
            }
        }
    }
}

/// Amended D1: CONTROL does not wait behind blocked DATA; it goes on in a ledger on read-only bookies, which takes DATA again once
/// Qa of its members are writable. META goes on anyway.
#[test]
fn control_goes_on_in_a_ledger_of_its_own_and_meta_in_its_own() {
    runtime().block_on(async {
        let world = world(REPLICATED, 3).await;
        let process = Process::new("owner");
        let client = world.client(&process);
        let create = client.create(new(LedgerKind::Log, 0), |_| Txn::default());
        let writer = create.await.unwrap();
        let mut next = 0;
        let blocked = fill(&world, &writer, &mut next).await;
        let control = writer.append(entry(&writer, EntryClass::Control, &mut next, 30));
        let refused = writer
            .append(entry(&writer, EntryClass::Data, &mut next, 30))
            .await;
        assert!(is_full(&refused));
        let totals = writer.close(Txn::default()).await.unwrap();
        assert!(is_closed(&blocked.await.unwrap_err()));
        assert!(is_closed(&control.await.unwrap_err()));
        assert_eq!(totals.offset_span, totals.end.0);

        let refused = client.create(new(LedgerKind::Log, totals.end.0), |_| Txn::default());
        let Err(refused) = refused.await else {
            panic!("records have no room")
        };
        assert!(refused.is_full(), "{refused}");
        assert!(!client.takes_data(None).await.unwrap());
        let state = client.create(new(LedgerKind::State, 0), |_| Txn::default());
        let state = state.await.unwrap();
        let meta = entry(&state, EntryClass::Meta, &mut next, 30);
        state.append(meta).await.unwrap();

        next = totals.end.0;
        let log = client.create_for_control(new(LedgerKind::Log, next), |_| Txn::default());
        let log = log.await.unwrap();
        for _ in 0..3 {
            let control = entry(&log, EntryClass::Control, &mut next, 30);
            log.append(control).await.unwrap();
        }
        let early = log
            .append(entry(&log, EntryClass::Data, &mut next.clone(), 30))
            .await;
        assert!(is_full(&early));
        assert!(!client.takes_data(Some(&log)).await.unwrap());
        for bookie in &world.bookies[..2] {
            bookie.free_disk();
        }
        sleep(Duration::from_secs(1)).await;
        assert!(client.takes_data(Some(&log)).await.unwrap());
        log.admit_data();
        let data = entry(&log, EntryClass::Data, &mut next, 30);
        log.append(data).await.unwrap();
        let after = log.close(Txn::default()).await.unwrap();
        assert_eq!(after.end.0, 4);
        world.check_copies();
        let violations = world.violations.all();
        assert!(violations.is_empty(), "{violations:#?}");
    });
}
