//! Storage.md D1 and D15: what passes at which level of a full disk, and that the way back needs no hand; S4: how limbo ends.

use std::time::Duration;

use hulse_proto::bookie::BookieError;
use hulse_proto::entry::EntryClass;
use hulse_proto::id::{EntryId, FenceToken, LedgerId};

use super::support::*;
use crate::NodeConfig;
use crate::core::{Event, Level};
use crate::disk::memory::Survival;
use crate::log::LimboKind;
use crate::reclaim::Settled;
use crate::step::StepAnswer;

fn small() -> NodeConfig {
    NodeConfig {
        file_bytes: 256 << 10,
        queue_bytes_max: 64 << 10,
        ..config()
    }
}

fn submit(rig: &mut Rig, class: EntryClass, number: u64) -> Result<(), BookieError> {
    let request = add(rig.to(1), entry_of(class, 1, number, 4_000));
    let (_, output) = rig.node.add(request);
    stored(rig.answer(output))
}

fn stored(answer: StepAnswer) -> Result<(), BookieError> {
    match answer {
        StepAnswer::Add(result) => result,
        other => panic!("{other:?}"),
    }
}

fn recover(rig: &mut Rig, number: u64) -> Result<(), BookieError> {
    let request = recovery_add(rig.to(2), entry(2, number, 4_000), 1);
    let (_, output) = rig.node.add(request);
    stored(rig.answer(output))
}

fn is_read_only(result: &Result<(), BookieError>) -> bool {
    matches!(result, Err(BookieError::ReadOnly { .. }))
}

#[test]
fn classes_pass_down_to_their_level_and_the_disk_heals_by_itself() {
    let mut rig = Rig::new(small());
    rig.store(1, 0..3, 4_000);
    rig.store(3, 0..3, 4_000);
    assert!(recover(&mut rig, 0).is_ok());
    rig.node.make_spare();
    assert_eq!(rig.node.core().level(), Level::Normal);
    rig.disk.set_capacity(Some(rig.disk.used()));
    rig.node.look_at_disk();
    assert_eq!(rig.node.core().level(), Level::ReadOnly);
    assert!(is_read_only(&submit(&mut rig, EntryClass::Data, 3)));
    // META goes on until the disk is down to its reserve; it is not fast, so time passes.
    let mut number = 3;
    while rig.node.core().level() < Level::Reserve {
        rig.node.advance(Duration::from_secs(1));
        assert!(submit(&mut rig, EntryClass::Meta, number).is_ok());
        if rig.node.core().level() < Level::Reserve {
            assert!(recover(&mut rig, number).is_ok());
        }
        rig.node.idle();
        number += 1;
        assert!(number < 500, "it never ends");
    }
    assert!(number > 20);
    assert!(is_read_only(&submit(&mut rig, EntryClass::Meta, number)));
    assert!(is_read_only(&recover(&mut rig, number)));
    // What is held is held, and fences and tombstones have room of their own.
    assert!(recover(&mut rig, 0).is_ok());
    assert!(matches!(rig.fence(1, 9), StepAnswer::Fence(Ok(_))));
    for ledger in [1, 3] {
        assert!(matches!(rig.delete(ledger), StepAnswer::Delete(Ok(()))));
    }
    rig.disk.set_capacity(None);
    rig.node.idle();
    assert_eq!(rig.node.core().level(), Level::Normal);
    rig.confirmed.clear();
    rig.store(4, 0..3, 4_000);
    rig.check();
}

#[test]
fn what_passes_a_full_disk_is_bounded_in_rate() {
    let mut rig = Rig::new(NodeConfig {
        file_bytes: 64 << 20,
        queue_bytes_max: 16 << 20,
        ..config()
    });
    rig.store(1, 0..1, 100);
    rig.node.make_spare();
    rig.disk.set_capacity(Some(rig.disk.used()));
    rig.node.look_at_disk();
    let mut taken = 0;
    for number in 0..40 {
        let request = recovery_add(rig.to(2), entry(2, number, 1 << 20), 1);
        let (_, output) = rig.node.add(request);
        match stored(rig.answer(output)) {
            Ok(()) => taken += 1,
            Err(error) => assert!(matches!(error, BookieError::Busy { .. }), "{error}"),
        }
    }
    assert!((10..20).contains(&taken), "{taken} MiB at once");
    rig.node.advance(Duration::from_secs(1));
    assert!(recover(&mut rig, 100).is_ok());
}

fn limbo(rig: &mut Rig) -> bool {
    let state = &rig.node.core().state().ledgers[&LedgerId(1)];
    state.limbo().is_some()
}

#[test]
fn limbo_ends_for_a_closed_ledger_of_which_nothing_is_missing_and_leaves_a_fence() {
    let mut rig = Rig::new(small());
    rig.store(1, 0..4, 1_000);
    let mut state = rig.node.core().state().clone();
    state.enter_limbo(&[LedgerId(1)], LimboKind::Unsynced, 1);
    rig.node.set_state(state);
    let settle = |rig: &mut Rig, ours: &[(u64, u64)]| {
        let ours = ours
            .iter()
            .map(|(first, end)| (EntryId(*first), EntryId(*end)));
        let settled = Settled {
            ledger: LedgerId(1),
            token: FenceToken(3),
            ours: ours.collect(),
        };
        rig.node.event(Event::Settled(Box::new(settled)));
        rig.settle();
    };
    settle(&mut rig, &[(0, 5)]);
    assert!(limbo(&mut rig), "entry 4 is missing");
    let (ledger, entry) = (LedgerId(1), EntryId(2));
    let file = rig.node.core().state().ledgers[&ledger]
        .entries
        .file_of(entry);
    rig.node.event(Event::EntryDamaged {
        ledger,
        entry,
        file: file.unwrap(),
    });
    settle(&mut rig, &[(0, 4)]);
    assert!(limbo(&mut rig), "entry 2 is damaged");
    settle(&mut rig, &[(0, 2), (3, 4)]);
    assert!(!limbo(&mut rig));
    let refused = submit(&mut rig, EntryClass::Data, 4);
    assert!(matches!(refused, Err(BookieError::Fenced { .. })));
    let rig = rig.reopen(small(), Survival::Nothing, &[]);
    let state = &rig.node.core().state().ledgers[&LedgerId(1)];
    assert_eq!(state.fence, FenceToken(3));
    assert!(state.limbo().is_none());
}
