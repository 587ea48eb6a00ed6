//! The traces that are worth keeping as regression tests (storage.md §3): each is safe, and is not once its rule is switched off.

use hulse_proto::id::EntryId;
use hulse_proto::ledger::{Fragment, LedgerMetadata};

use super::{LEDGER, Scene, end_of, entries};
use crate::RecoverError;
use crate::recovery::{BookieAsk, RecoveryEvent};
use crate::testing::Mutant;
use crate::tests::{member, open_metadata};

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
