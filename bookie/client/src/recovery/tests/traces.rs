//! The traces that are worth keeping as regression tests (storage.md §3): each is safe, and is not once its rule is switched off.

use std::time::Duration;

use bookie_metadata::{Op, Txn};
use hulse_proto::bookie::{AddRequest, Address, BookieError, Origin};
use hulse_proto::id::{CellId, EntryId, Incarnation};
use hulse_proto::ledger::{Fragment, LedgerMetadata, ledger_key};
use uuid::Uuid;

use super::{LEDGER, Scene, end_of, entries};
use crate::RecoverError;
use crate::recovery::{BookieAsk, RecoveryEvent};
use crate::testing::{Limbo, MemoryLedgers};
use crate::tests::{member, open_metadata};
use hulse_proto::mutant::Mutant;

fn is_fence(ask: &BookieAsk) -> bool {
    matches!(ask, BookieAsk::Fence(_))
}

/// T1: the fence reaches b0 and b1 and is lost to b2; e0 is on b1; b0 and b2 are read first; then the writer's e0 reaches b2.
/// Returns whether the writer had two acks for e0, and where the ledger was closed.
fn trace_1(mutant: Option<Mutant>) -> (bool, u64) {
    let mut scene = Scene::new(&open_metadata(3, 3, 2), 3, mutant);
    let e0 = &entries(1)[0];
    let first = scene.add(1, e0, 0);
    let mut recoverer = scene.recoverer(1);
    scene.event(&mut recoverer, RecoveryEvent::Start);
    scene.deliver(&mut recoverer, |position, _| position != 2);
    // The fences are out, so only reads are left: b1's answer is lost.
    scene.deliver(&mut recoverer, |position, ask| {
        position != 1 && !is_fence(ask)
    });
    let closed = recoverer.done.take();
    let second = scene.add(2, e0, 0);
    let end = closed.map_or(0, |closed| end_of(&closed));
    (first && second, end)
}

#[test]
fn trace_1_read_of_an_unfenced_bookie_fences_it() {
    let (acked, end) = trace_1(None);
    assert!(!acked, "b2 must refuse the writer after its negative");
    assert_eq!(end, 0);
}

#[test]
fn trace_1_without_the_fence_on_reads_loses_an_acked_entry() {
    let (acked, end) = trace_1(Some(Mutant::ReadWithoutFence));
    assert!(acked && end == 0);
}

/// T2: the last fragment begins at entry 10, is empty, and its members know of no confirmed entry.
fn trace_2(mutant: Option<Mutant>) -> Result<LedgerMetadata, RecoverError> {
    let mut metadata = open_metadata(3, 3, 2);
    metadata.fragments.push(Fragment {
        first: EntryId(10),
        ensemble: vec![member(3), member(4), member(5)],
    });
    let mut scene = Scene::new(&metadata, 6, mutant);
    for entry in &entries(10) {
        for bookie in 0..3 {
            assert!(scene.add(bookie, entry, entry.header().entry.0));
        }
    }
    let mut recoverer = scene.recoverer(1);
    scene.run(&mut recoverer, |_, _| true)
}

#[test]
fn trace_2_empty_last_fragment_is_closed_at_its_first_entry() {
    let closed = trace_2(None).unwrap();
    let totals = closed.closed.unwrap();
    assert_eq!((totals.end, totals.offset_span), (EntryId(10), 10));
    assert_eq!(totals.digest, entries(10)[9].header().cumulative_digest);
    assert_eq!(closed.fragments.len(), 2);
}

#[test]
fn trace_2_recovery_from_zero_truncates_older_fragments() {
    assert_eq!(end_of(&trace_2(Some(Mutant::RecoverFromZero))), 0);
}

/// T4: entries 0 and 1 only on b0. Recoverer A's write-back of 0 is lost, that of 1 reaches b1; A dies. B then recovers.
fn trace_4(mutant: Option<Mutant>) -> (Result<LedgerMetadata, RecoverError>, usize) {
    let mut scene = Scene::new(&open_metadata(3, 3, 2), 3, mutant);
    let both = entries(2);
    for entry in &both {
        assert!(scene.add(0, entry, 0));
    }
    let mut a = scene.recoverer(1);
    scene.event(&mut a, RecoveryEvent::Start);
    scene.deliver(&mut a, |_, _| true);
    let of_one = |ask: &BookieAsk| match ask {
        BookieAsk::Add(request) => request.entry.header().entry == EntryId(1),
        _ => true,
    };
    for _ in 0..4 {
        scene.deliver(&mut a, |position, ask| position < 2 && of_one(ask));
    }
    assert!(a.done.is_none(), "A dies before it closes");
    assert!(scene.bookies[1].held(LEDGER, EntryId(1)).is_some());
    let mut b = scene.recoverer(2);
    let closed = scene.run(&mut b, |_, _| true);
    let copies = closed.as_ref().map_or(0, |closed| scene.copies(closed, 0));
    (closed, copies)
}

#[test]
fn trace_4_frozen_confirmed_end_gives_every_entry_its_copies() {
    let (closed, copies) = trace_4(None);
    assert_eq!(end_of(&closed), 2);
    assert!(copies >= 2, "{copies} copies");
}

#[test]
fn trace_4_recovery_that_raises_the_confirmed_end_leaves_one_copy() {
    let (closed, copies) = trace_4(Some(Mutant::RecoveryRaisesConfirmedEnd));
    assert_eq!(end_of(&closed), 2);
    assert_eq!(copies, 1);
}

/// T5: an entry has two acks; one of its bookies loses its tail and its fence, then recovery begins. Returns where it closes.
fn trace_5(mutant: Option<Mutant>) -> Result<LedgerMetadata, RecoverError> {
    let mut scene = Scene::new(&open_metadata(3, 3, 2), 3, mutant);
    let e0 = &entries(1)[0];
    assert!(scene.add(0, e0, 0) && scene.add(1, e0, 0));
    scene.bookies[1].lose_from(LEDGER, EntryId(0), Limbo::Lost);
    let mut recoverer = scene.recoverer(1);
    // The bookie that still has it is asked and not heard; it comes back later.
    scene.event(&mut recoverer, RecoveryEvent::Start);
    for _ in 0..3 {
        scene.deliver(&mut recoverer, |position, ask| {
            position != 0 || is_fence(ask)
        });
    }
    match recoverer.done.take() {
        Some(done) => done,
        None => {
            let mut later = scene.recoverer(2);
            scene.run(&mut later, |_, _| true)
        }
    }
}

#[test]
fn trace_5_bookie_that_lost_its_tail_promises_nothing() {
    assert_eq!(end_of(&trace_5(None)), 1);
}

#[test]
fn trace_5_negative_from_limbo_truncates_an_acked_entry() {
    assert_eq!(end_of(&trace_5(Some(Mutant::NegativeFromLimbo))), 0);
}

/// The writer's add of the first entry, first contact included (B2).
fn contact(scene: &mut Scene, bookie: usize) -> Result<(), BookieError> {
    let entry = entries(1).remove(0);
    let request = AddRequest {
        to: Address {
            cell: CellId::default(),
            incarnation: member(bookie).incarnation,
            ledger: LEDGER,
        },
        origin: Origin::Normal,
        confirmed_end: EntryId(0),
        entry,
        timeout: Duration::from_secs(1),
    };
    let row = scene.table.get(&ledger_key(LEDGER));
    let metadata = row.map(|row| LedgerMetadata::decode(&row.value).unwrap());
    let bookie = &mut scene.bookies[bookie];
    if bookie.must_verify(&request) {
        bookie.verify(LEDGER, metadata.as_ref())?;
    }
    bookie.add(&request)
}

#[test]
fn trace_6_fresh_bookies_at_the_same_addresses_take_nothing() {
    let mut scene = Scene::new(&open_metadata(3, 3, 2), 3, None);
    for index in 1..3 {
        let mut fresh = member(index);
        fresh.incarnation = Incarnation(Uuid::from_u128(900 + index as u128));
        scene.bookies[index] = MemoryLedgers::new(CellId::default(), fresh);
    }
    assert_eq!(contact(&mut scene, 0), Ok(()));
    for index in 1..3 {
        let answer = contact(&mut scene, index);
        assert!(matches!(answer, Err(BookieError::WrongIncarnation { .. })));
    }
}

#[test]
fn trace_7_adds_to_a_deleted_ledger_are_refused_by_bookies_that_have_forgotten_it() {
    let mut scene = Scene::new(&open_metadata(3, 3, 2), 3, None);
    let mut recoverer = scene.recoverer(1);
    let closed = scene.run(&mut recoverer, |_, _| true);
    assert_eq!(end_of(&closed), 0);
    let forget = |scene: &mut Scene| {
        for index in 0..3 {
            scene.bookies[index] = MemoryLedgers::new(CellId::default(), member(index));
        }
    };
    forget(&mut scene);
    let closed = contact(&mut scene, 0);
    assert!(matches!(closed, Err(BookieError::Fenced { .. })));
    let ops = vec![Op::Delete {
        key: ledger_key(LEDGER),
    }];
    scene.table.txn(Txn {
        compares: Vec::new(),
        ops,
    });
    forget(&mut scene);
    for index in 0..3 {
        let answer = contact(&mut scene, index);
        assert!(matches!(answer, Err(BookieError::Deleted { .. })));
    }
}

/// Three entries on b0 alone; b1 and b2 take fences and reads but no write-back, b3 and b4 are spares.
#[test]
fn failing_members_are_replaced_in_the_local_copy_and_recorded_by_the_close() {
    let mut scene = Scene::new(&open_metadata(3, 3, 2), 5, None);
    for entry in &entries(3) {
        assert!(scene.add(0, entry, 0));
    }
    scene.spares = vec![3, 4];
    let mut recoverer = scene.recoverer(1);
    let is_add = |ask: &BookieAsk| matches!(ask, BookieAsk::Add(_));
    let down = [member(1), member(2)];
    let closed = scene.run_where(&mut recoverer, |_, to, ask| {
        !(is_add(ask) && down.contains(to))
    });
    assert_eq!(end_of(&closed), 3);
    let closed = closed.unwrap();
    assert_eq!(closed.fragments.len(), 1);
    assert_eq!(closed.fragments[0].ensemble, [0, 3, 4].map(member).to_vec());
    assert!((0..3).all(|entry| scene.copies(&closed, entry) == 3));
}

/// As above, but b2 takes the write-back of the first entry before it dies.
#[test]
fn local_fragment_begins_at_the_first_entry_that_is_not_written_back() {
    let mut scene = Scene::new(&open_metadata(3, 3, 2), 4, None);
    for entry in &entries(3) {
        assert!(scene.add(0, entry, 0));
        assert!(scene.add(1, entry, 0));
    }
    scene.spares = vec![3];
    let mut recoverer = scene.recoverer(1);
    let first = |ask: &BookieAsk| match ask {
        BookieAsk::Add(request) => request.entry.header().entry == EntryId(0),
        _ => true,
    };
    let closed = scene.run_where(&mut recoverer, |_, to, ask| *to != member(2) || first(ask));
    let closed = closed.unwrap();
    let firsts: Vec<u64> = closed.fragments.iter().map(|f| f.first.0).collect();
    assert_eq!(firsts, vec![0, 1]);
    assert_eq!(closed.fragments[1].ensemble[2], member(3));
    assert!((0..3).all(|entry| scene.copies(&closed, entry) == 3));
}
