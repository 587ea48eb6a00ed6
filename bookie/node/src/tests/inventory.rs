//! What a node says that it holds (storage.md X8).

use hulse_proto::bookie::{
    AddRequest, BookieError, HeldRun, INVENTORY_RUNS_MAX, InventoryRequest, Origin, entry_mark,
};
use hulse_proto::id::{EntryId, Incarnation, LedgerId};

use super::support::*;
use crate::NodeConfig;
use crate::core::Event;
use crate::disk::memory::Survival;

fn small() -> NodeConfig {
    NodeConfig {
        file_bytes: 128 << 10,
        queue_bytes_max: 64 << 10,
        ..config()
    }
}

fn asked(
    rig: &Rig,
    ledgers: std::ops::Range<u64>,
    entries: std::ops::Range<u64>,
) -> InventoryRequest {
    InventoryRequest {
        to: rig.to(ledgers.start),
        ledgers_end: LedgerId(ledgers.end),
        first: EntryId(entries.start),
        end: EntryId(entries.end),
        digests: true,
    }
}

fn mark(ledger: u64, numbers: std::ops::Range<u64>) -> u64 {
    numbers.fold(0, |sum, number| {
        let digest = entry(ledger, number, 900).header().digest();
        sum.wrapping_add(entry_mark(EntryId(number), digest))
    })
}

/// The runs of one ledger.
fn runs(rig: &Rig, ledger: u64, entries: std::ops::Range<u64>) -> Vec<HeldRun> {
    let held = rig.node.inventory(&asked(rig, ledger..ledger + 1, entries));
    let mut ledgers = held.unwrap().ledgers;
    ledgers.pop().map_or(Vec::new(), |found| found.runs)
}

#[test]
fn inventory_tells_runs_and_digests_of_open_and_sealed_files_alike() {
    let mut rig = Rig::new(small());
    for number in (0..300).filter(|number| !(40..50).contains(number)) {
        rig.store(7, number..number + 1, 900);
        rig.store(9, number..number + 1, 900);
    }
    for _ in 0..2 {
        assert!(rig.node.core().state().files.len() > 3, "files are sealed");
        let found: Vec<_> = runs(&rig, 7, 10..280)
            .iter()
            .map(|run| (run.first.0..run.end.0, run.digest))
            .collect();
        assert_eq!(
            found,
            [
                (10..40, Some(mark(7, 10..40))),
                (50..280, Some(mark(7, 50..280)))
            ]
        );
        rig = rig.reopen(small(), Survival::Nothing, &[]);
    }
    let all = rig
        .node
        .inventory(&asked(&rig, 0..100, 0..u64::MAX))
        .unwrap();
    let ledgers: Vec<u64> = all.ledgers.iter().map(|found| found.ledger.0).collect();
    assert_eq!((ledgers, all.next), (vec![7, 9], None));
}

#[test]
fn inventory_leaves_out_what_is_damaged_deleted_or_of_another_disk() {
    let mut rig = Rig::new(small());
    rig.store(7, 0..20, 900);
    rig.store(8, 0..5, 900);
    let file = rig
        .node
        .slot(LedgerId(7), EntryId(6))
        .unwrap()
        .location
        .file;
    rig.node.event(Event::EntryDamaged {
        ledger: LedgerId(7),
        entry: EntryId(6),
        file,
    });
    let found: Vec<_> = runs(&rig, 7, 0..100)
        .iter()
        .map(|run| run.first.0..run.end.0)
        .collect();
    assert_eq!(found, [0..6, 7..20]);
    rig.delete(8);
    assert_eq!(runs(&rig, 8, 0..100), []);
    let mut other = asked(&rig, 7..8, 0..100);
    other.to.incarnation = Incarnation(uuid::Uuid::from_u128(99));
    let refused = rig.node.inventory(&other);
    assert!(matches!(refused, Err(BookieError::WrongIncarnation { .. })));
}

#[test]
fn inventory_of_many_ledgers_comes_in_pages_that_leave_none_out() {
    let mut rig = Rig::new(small());
    let count = INVENTORY_RUNS_MAX as u64 + 10;
    for ledger in 0..count {
        rig.store(ledger, 0..1, 10);
    }
    let mut request = asked(&rig, 0..u64::MAX, 0..10);
    request.digests = false;
    let first = rig.node.inventory(&request).unwrap();
    assert_eq!(first.ledgers.len(), INVENTORY_RUNS_MAX);
    request.to.ledger = first.next.unwrap();
    let rest = rig.node.inventory(&request).unwrap();
    assert_eq!((rest.ledgers.len(), rest.next), (10, None));
}

/// G6: what was copied here since metadata were asked is kept, be it stored anew or found here.
#[test]
fn copies_that_are_astray_go_unless_they_were_copied_again_since() {
    let mut rig = Rig::new(small());
    rig.store(7, 0..60, 900);
    rig.store(8, 0..60, 900);
    rig.store(9, 0..60, 900);
    rig.node.idle();
    let asked = rig.node.core().held();
    let copy = |rig: &Rig, number: u64| AddRequest {
        origin: Origin::Copy { bound: EntryId(60) },
        ..add(rig.to(8), entry(8, number, 900))
    };
    let (_, output) = rig.node.add(copy(&rig, 3));
    rig.take(output);
    rig.settle();
    let ledgers = [7, 8].map(LedgerId).to_vec();
    let output = rig.node.event(Event::Strayed {
        ledgers: ledgers.clone(),
        copies: asked.copies,
    });
    rig.take(output);
    assert_eq!(runs(&rig, 7, 0..100), []);
    assert_eq!(runs(&rig, 8, 0..100).len(), 1, "it was found here since");
    // Asked again, it goes, and what comes later is stored anew.
    let asked = rig.node.core().held();
    assert!(asked.empty.contains(&LedgerId(7)) && !asked.empty.contains(&LedgerId(8)));
    let output = rig.node.event(Event::Strayed {
        ledgers,
        copies: asked.copies,
    });
    rig.take(output);
    assert_eq!(runs(&rig, 8, 0..100), []);
    let (_, output) = rig.node.add(copy(&rig, 3));
    rig.take(output);
    rig.settle();
    let found: Vec<_> = runs(&rig, 8, 0..100)
        .iter()
        .map(|run| (run.first.0, run.end.0))
        .collect();
    assert_eq!(found, [(3, 4)]);
    assert_eq!(runs(&rig, 9, 0..100).len(), 1, "nobody spoke of it");
    // Without a record, so a restart may bring back what files still hold; what was copied since is there in any case.
    let rig = rig.reopen(small(), Survival::Nothing, &[]);
    assert!(runs(&rig, 8, 3..4).len() == 1 && runs(&rig, 9, 0..60).len() == 1);
}
