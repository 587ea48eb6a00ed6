//! Histories of storage.md §3 over the real storage nodes: each went wrong in another system, or in a model of one.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bookie_client::{LedgerWriter, NewLedger};
use bookie_metadata::{MetadataStore, Op, Txn};
use bytes::Bytes;
use hulse_proto::bookie::{Address, FenceRequest, ReadClass, ReadRequest};
use hulse_proto::id::{EntryId, FenceToken, LedgerId, Offset, OwnerEpoch, PartitionId, TopicId};
use hulse_proto::ledger::{Fragment, LedgerKind, LedgerMetadata, Quorums, ledger_key};
use hulse_proto::mutant::Mutant;
use tests_harness::bookie::{Reply, Request};
use tests_harness::network::{Delivery, Kind};
use tests_harness::{Process, World, WorldSetup, runtime};
use tokio::time::sleep;

use crate::ledger::entry;

const SOON: Delivery = Delivery::After(Duration::from_millis(1));

fn world(bookies: u32, mutant: Option<Mutant>) -> Arc<World> {
    let quorums = Quorums {
        ensemble: 3,
        write: 3,
        ack: 2,
    };
    Arc::new(World::new(WorldSetup {
        seed: 1,
        whole_trace: true,
        quorums,
        bookies,
        mutant,
    }))
}

async fn create(world: &Arc<World>, process: &Process) -> LedgerWriter {
    let new = NewLedger {
        kind: LedgerKind::Log,
        partition: PartitionId {
            topic: TopicId(world.seeds.id("topic")),
            index: 0,
        },
        owner_epoch: OwnerEpoch(1),
        base_offset: Offset(0),
    };
    world
        .client(process)
        .create(new, |_| Txn::default())
        .await
        .expect("nothing goes wrong yet")
}

fn body(number: u64) -> Bytes {
    Bytes::from(format!("entry {number}"))
}

async fn recover(world: &Arc<World>, process: &Process, ledger: LedgerId) -> LedgerMetadata {
    world
        .client(process)
        .recover(ledger, Txn::default())
        .await
        .expect("enough members answer")
}

fn end(metadata: &LedgerMetadata) -> EntryId {
    metadata.closed.expect("a recovered ledger has an end").end
}

fn all_is_well(world: &World) {
    world.check_copies();
    let violations = world.violations.all();
    assert!(
        violations.is_empty(),
        "{}\n{violations:#?}",
        world.trace.text()
    );
}

/// T1: a fence does not reach k3, and an add that was under way reaches k3 after the recoverer has read past it.
/// True when the writer was told that the entry is stored although the ledger ends before it.
fn late_add_at_an_unfenced_bookie(mutant: Option<Mutant>) -> (bool, Arc<World>) {
    runtime().block_on(async {
        let world = world(3, mutant);
        world.start_bookies().await;
        let (w, r) = (Process::new("w"), Process::new("r"));
        let writer = create(&world, &w).await;
        let first = writer.append(entry(0, body(0))).await;
        first.expect("nothing goes wrong yet");
        sleep(Duration::from_millis(100)).await;
        world.network.script(
            |message| match (message.kind, message.bookie, message.answer) {
                (Kind::Add, "k1", false) => Some(Delivery::Drop),
                (Kind::Add, "k3", false) => Some(Delivery::Hold),
                (Kind::Fence, "k3", false) => Some(Delivery::Drop),
                (Kind::RecoveryRead, "k2", false) => Some(Delivery::Drop),
                (Kind::WriteBack, "k3", false) => Some(SOON),
                _ => Some(SOON),
            },
        );
        let late = writer.append(entry(1, body(1)));
        sleep(Duration::from_millis(50)).await;
        let closed = recover(&world, &r, writer.ledger()).await;
        world.network.release();
        let confirmed = late.await.is_ok();
        (confirmed && end(&closed) <= EntryId(1), world)
    })
}

#[test]
fn late_add_at_an_unfenced_bookie_is_never_confirmed() {
    let (lost, world) = late_add_at_an_unfenced_bookie(None);
    assert!(!lost, "{}", world.trace.text());
    all_is_well(&world);
}

#[test]
fn late_add_at_an_unfenced_bookie_is_lost_without_fencing_reads() {
    let (lost, world) = late_add_at_an_unfenced_bookie(Some(Mutant::ReadWithoutFence));
    assert!(
        lost,
        "the history no longer shows what it is about:\n{}",
        world.trace.text()
    );
}

/// T2: the last fragment is empty and no bookie knows a confirmed end; recovery must not walk into older fragments.
#[test]
fn recovery_of_an_empty_last_fragment_ends_where_it_begins() {
    runtime().block_on(async {
        let world = world(4, None);
        world.start_bookies().await;
        let (w, r) = (Process::new("w"), Process::new("r"));
        let writer = create(&world, &w).await;
        let ledger = writer.ledger();
        // All five leave before any is confirmed, so no bookie learns of a confirmed end.
        let appends: Vec<_> = (0..5).map(|n| writer.append(entry(n, body(n)))).collect();
        for append in appends {
            append.await.unwrap();
        }
        sleep(Duration::from_millis(100)).await;
        w.kill();
        let mut metadata = writer.metadata();
        let mut ensemble = metadata.last_fragment().ensemble.clone();
        let fresh = world.bookies.iter().filter_map(|bookie| bookie.member());
        ensemble[2] = fresh
            .into_iter()
            .find(|member| !ensemble.contains(member))
            .unwrap();
        metadata.fragments.push(Fragment {
            first: EntryId(5),
            ensemble,
        });
        let put = Op::put(ledger_key(ledger), metadata.encode());
        world
            .store
            .txn(Txn {
                compares: vec![],
                ops: vec![put],
            })
            .await
            .unwrap();
        let closed = recover(&world, &r, ledger).await;
        assert_eq!(end(&closed), EntryId(5), "{}", world.trace.text());
        assert_eq!(closed.fragments, metadata.fragments);
        let reader = world.client(&r).reader(ledger, closed);
        let read = reader
            .read(EntryId(0), EntryId(5), 1 << 20, ReadClass::CatchUp)
            .await
            .unwrap();
        let bodies: Vec<Bytes> = read.iter().map(|entry| entry.body()).collect();
        assert_eq!(bodies, (0..5).map(body).collect::<Vec<_>>());
        all_is_well(&world);
    });
}

/// T4: a recoverer dies in the middle of its write-back; what it wrote must not count as confirmed for the next one.
#[test]
fn second_recoverer_starts_below_what_a_dead_one_wrote_back() {
    runtime().block_on(async {
        let world = world(3, None);
        world.start_bookies().await;
        let (w, a, b) = (Process::new("w"), Process::new("a"), Process::new("b"));
        let writer = create(&world, &w).await;
        let ledger = writer.ledger();
        let (victim, dead) = (a.clone(), Arc::new(AtomicBool::new(false)));
        let died = dead.clone();
        world.network.script(move |message| {
            let lost = match (message.client, message.kind, message.bookie) {
                ("w", Kind::Add, "k2" | "k3") | ("a", _, "k3") => !message.answer,
                ("a", Kind::WriteBack, "k2") if message.entry == Some(EntryId(1)) => {
                    victim.kill();
                    dead.store(true, Ordering::Relaxed);
                    true
                }
                _ => false,
            };
            Some(if lost { Delivery::Drop } else { SOON })
        });
        let appends: Vec<_> = (0..2).map(|n| writer.append(entry(n, body(n)))).collect();
        sleep(Duration::from_millis(50)).await;
        w.kill();
        let client = world.client(&a);
        assert!(
            a.heard(client.recover(ledger, Txn::default()))
                .await
                .is_none()
        );
        assert!(
            died.load(Ordering::Relaxed),
            "the first recoverer did not come so far"
        );
        let k1 = &world.bookies[0];
        let to = Address {
            cell: world.cell,
            incarnation: k1.member().unwrap().incarnation,
            ledger,
        };
        let read = ReadRequest {
            to,
            first: EntryId(0),
            end: EntryId(2),
            max_bytes: 1 << 20,
            class: ReadClass::CatchUp,
        };
        let kept = k1.look(&read).unwrap();
        assert!(
            kept.iter().all(|stored| stored.confirmed_end == EntryId(0)),
            "{kept:?}"
        );
        let closed = recover(&world, &b, ledger).await;
        assert_eq!(end(&closed), EntryId(2), "{}", world.trace.text());
        let fence = Request::Fence(FenceRequest {
            to,
            token: FenceToken(1_000),
        });
        match k1.ask(fence).await {
            Some(Reply::Fence(Ok(found))) => assert_eq!(found.confirmed_end, EntryId(0)),
            other => panic!("{other:?}"),
        }
        all_is_well(&world);
        drop(appends);
    });
}
