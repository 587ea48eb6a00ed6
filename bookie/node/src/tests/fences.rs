//! The rules of storage.md B3–B14 and the promise of §12, 3 and 4, step by step.

use std::time::Duration;

use hulse_proto::bookie::{
    Address, BookieError, FenceAnswer, Origin, RecoveryReadAnswer, RecoveryReadRequest,
};
use hulse_proto::entry::EntryClass;
use hulse_proto::id::{CellId, EntryId, FenceToken, Incarnation, LedgerId};
use uuid::Uuid;

use super::support::*;
use crate::NodeConfig;
use crate::core::{Event, Verdict};
use crate::disk::memory::Survival;
use crate::log::Record;
use crate::step::StepAnswer;

const ONE: LedgerId = LedgerId(1);

pub(super) fn refused(answer: StepAnswer) -> BookieError {
    match answer {
        StepAnswer::Add(Err(error))
        | StepAnswer::Fence(Err(error))
        | StepAnswer::RecoveryRead(Err(error))
        | StepAnswer::Delete(Err(error)) => error,
        other => panic!("{other:?}"),
    }
}

fn submit(rig: &mut Rig, request: hulse_proto::bookie::AddRequest) -> StepAnswer {
    let (_, output) = rig.node.add(request);
    rig.answer(output)
}

fn negative(answer: &StepAnswer) -> bool {
    matches!(
        answer,
        StepAnswer::RecoveryRead(Ok(RecoveryReadAnswer::Negative {
            unsynced_limbo: false
        }))
    )
}

#[test]
fn negative_is_a_promise_across_restarts() {
    let mut rig = Rig::new(config());
    rig.store(1, 0..2, 10);
    assert!(negative(&rig.recovery_read(1, 1, 2)));
    for _ in 0..3 {
        let late = add(rig.to(1), entry(1, 2, 10));
        let error = refused(submit(&mut rig, late));
        assert_eq!(
            error,
            BookieError::Fenced {
                ledger: ONE,
                token: FenceToken(1)
            }
        );
        rig = rig.reopen(config(), Survival::Nothing, &[]);
        rig.check();
    }
    assert!(negative(&rig.recovery_read(1, 1, 2)));
}

#[test]
fn fence_answers_after_the_adds_before_it() {
    let mut rig = Rig::new(config());
    rig.store(1, 0..1, 10);
    rig.add(1, 1, 10);
    let to = rig.to(1);
    let token = FenceToken(1);
    let (fence, output) = rig
        .node
        .fence(hulse_proto::bookie::FenceRequest { to, token });
    assert!(output.answers.is_empty());
    let (late, output) = rig.node.add(add(to, entry(1, 2, 10)));
    assert!(
        matches!(&output.answers[..], [(ticket, StepAnswer::Add(Err(BookieError::Fenced { .. })))] if *ticket == late)
    );
    assert!(
        rig.node.write_group().answers.is_empty(),
        "a fence is not answered before its sync"
    );
    let output = rig.node.sync_group();
    assert_eq!(output.answers.len(), 2);
    let (ticket, answer) = &output.answers[1];
    assert_eq!(*ticket, fence);
    let StepAnswer::Fence(Ok(answer)) = answer else {
        panic!("{answer:?}")
    };
    let expected = FenceAnswer {
        token,
        confirmed_end: EntryId(1),
        held_end: EntryId(2),
    };
    assert_eq!(*answer, expected);
}

#[test]
fn fences_are_ordered_by_token() {
    let mut rig = Rig::new(config());
    assert!(
        matches!(rig.fence(1, 5), StepAnswer::Fence(Ok(_))),
        "an unknown ledger is made fenced"
    );
    let stale = BookieError::StaleToken {
        ledger: ONE,
        token: FenceToken(5),
        asked: FenceToken(4),
    };
    assert_eq!(refused(rig.fence(1, 4)), stale);
    assert_eq!(refused(rig.recovery_read(1, 4, 0)), stale);
    let request = recovery_add(rig.to(1), entry(1, 0, 10), 4);
    assert_eq!(refused(submit(&mut rig, request)), stale);
    let syncs = rig.disk.counts().syncs;
    assert!(matches!(rig.fence(1, 5), StepAnswer::Fence(Ok(_))));
    assert_eq!(
        rig.disk.counts().syncs,
        syncs,
        "a durable fence is answered at once"
    );
    assert!(matches!(
        refused(rig.recovery_read(1, 0, 0)),
        BookieError::Invalid { .. }
    ));
    let mut rig = rig.reopen(config(), Survival::Nothing, &[]);
    assert_eq!(refused(rig.fence(1, 4)), stale);
}

#[test]
fn recovery_read_waits_for_an_add_under_way() {
    let mut rig = Rig::new(config());
    assert!(matches!(rig.fence(1, 1), StepAnswer::Fence(Ok(_))));
    let request = recovery_add(rig.to(1), entry(1, 0, 10), 1);
    rig.node.add(request);
    let (to, token, number) = (rig.to(1), FenceToken(1), EntryId(0));
    let ask = RecoveryReadRequest {
        to,
        token,
        entry: number,
    };
    let (ticket, output) = rig.node.recovery_read(ask);
    assert!(output.answers.is_empty(), "the entry is unresolved");
    let answers = rig.settle();
    let (_, answer) = answers.iter().find(|(of, _)| *of == ticket).unwrap();
    assert!(matches!(
        answer,
        StepAnswer::RecoveryRead(Ok(RecoveryReadAnswer::Positive(_)))
    ));
}

#[test]
fn recovery_and_copy_adds_do_not_raise_the_confirmed_end() {
    let mut rig = Rig::new(config());
    rig.store(1, 0..2, 10);
    assert!(matches!(rig.fence(1, 1), StepAnswer::Fence(Ok(_))));
    let mut request = recovery_add(rig.to(1), entry(1, 2, 10), 1);
    request.confirmed_end = EntryId(77);
    assert!(matches!(submit(&mut rig, request), StepAnswer::Add(Ok(()))));
    let mut request = add(rig.to(1), entry(1, 3, 10));
    request.origin = Origin::Copy { bound: EntryId(4) };
    request.confirmed_end = EntryId(78);
    assert!(matches!(submit(&mut rig, request), StepAnswer::Add(Ok(()))));
    let mut request = add(rig.to(1), entry(1, 4, 10));
    request.origin = Origin::Copy { bound: EntryId(4) };
    assert!(matches!(
        refused(submit(&mut rig, request)),
        BookieError::Invalid { .. }
    ));
    for _ in 0..2 {
        let StepAnswer::Fence(Ok(answer)) = rig.fence(1, 1) else {
            panic!()
        };
        assert_eq!(
            (answer.confirmed_end, answer.held_end),
            (EntryId(1), EntryId(4))
        );
        rig = rig.reopen(config(), Survival::Nothing, &[]);
    }
}

#[test]
fn duplicate_waits_for_the_first_copy_and_conflict_overwrites_nothing() {
    let mut rig = Rig::new(config());
    rig.store(1, 0..1, 10);
    rig.add(1, 1, 10);
    let twin = add(rig.to(1), entry(1, 1, 10));
    let (ticket, output) = rig.node.add(twin.clone());
    assert!(output.answers.is_empty(), "the first copy is not durable");
    let other = add(rig.to(1), entry(1, 1, 11));
    let (_, output) = rig.node.add(other.clone());
    let conflict = BookieError::Conflict {
        ledger: ONE,
        entry: EntryId(1),
    };
    assert!(
        matches!(&output.answers[..], [(_, StepAnswer::Add(Err(error)))] if *error == conflict)
    );
    let answers = rig.settle();
    assert!(matches!(&answers[..], [(of, StepAnswer::Add(Ok(())))] if *of == ticket));
    let writes = rig.disk.counts().writes;
    assert!(matches!(submit(&mut rig, twin), StepAnswer::Add(Ok(()))));
    assert_eq!(refused(submit(&mut rig, other)), conflict);
    assert_eq!(rig.disk.counts().writes, writes, "neither was written");
    rig.check();
}

#[test]
fn deleted_ledger_stays_deleted() {
    let mut rig = Rig::new(config());
    rig.store(1, 0..3, 10);
    assert!(matches!(rig.delete(1), StepAnswer::Delete(Ok(()))));
    let deleted = BookieError::Deleted { ledger: ONE };
    for _ in 0..2 {
        let request = add(rig.to(1), entry(1, 3, 10));
        assert_eq!(refused(submit(&mut rig, request)), deleted);
        let request = recovery_add(rig.to(1), entry(1, 0, 10), 9);
        assert_eq!(refused(submit(&mut rig, request)), deleted);
        assert_eq!(refused(rig.fence(1, 9)), deleted);
        assert_eq!(
            refused(rig.recovery_read(1, 9, 7)),
            deleted,
            "never NEGATIVE (B12)"
        );
        assert_eq!(rig.node.read(&read(rig.to(1), 0, 1)).unwrap_err(), deleted);
        assert!(matches!(rig.delete(1), StepAnswer::Delete(Ok(()))));
        rig = rig.reopen(config(), Survival::Nothing, &[]);
    }
}

#[test]
fn unknown_ledger_below_the_dead_watermark_asks_metadata_even_for_a_fence() {
    let mut rig = Rig::new(config());
    let mut state = rig.node.core().state().clone();
    let nowhere = crate::Location {
        file: 0,
        offset: 0,
        bytes: 0,
    };
    state.apply(
        &Record::DeadBelow {
            below: LedgerId(10),
        },
        nowhere,
    );
    rig.node.set_state(state);
    let (to, token) = (rig.to(3), FenceToken(1));
    let fence = hulse_proto::bookie::FenceRequest { to, token };
    let (_, output) = rig.node.fence(fence);
    assert_eq!(output.verify, [LedgerId(3)]);
    let output = rig.node.verified(LedgerId(3), Verdict::Deleted);
    assert!(matches!(
        &output.answers[..],
        [(_, StepAnswer::Fence(Err(BookieError::Deleted { .. })))]
    ));
    let (_, output) = rig.node.fence(fence);
    assert_eq!(output.verify, [LedgerId(3)]);
    let output = rig.node.verified(LedgerId(3), Verdict::Fenced { token });
    assert!(matches!(rig.answer(output), StepAnswer::Fence(Ok(_))));
    assert!(
        matches!(rig.fence(11, 1), StepAnswer::Fence(Ok(_))),
        "above it no question is asked"
    );
}

#[test]
fn wrong_cell_and_incarnation_come_first_and_change_nothing() {
    let mut rig = Rig::new(config());
    rig.store(1, 0..1, 10);
    let right = rig.to(1);
    let cell = CellId(Uuid::from_u128(5));
    let incarnation = Incarnation(Uuid::from_u128(6));
    let wrong_cell = add(Address { cell, ..right }, entry(1, 1, 10));
    assert!(matches!(
        refused(submit(&mut rig, wrong_cell)),
        BookieError::WrongCell { .. }
    ));
    let to = Address {
        incarnation,
        ..right
    };
    let (_, output) = rig.node.delete(to);
    assert!(matches!(
        refused(rig.answer(output)),
        BookieError::WrongIncarnation { .. }
    ));
    assert!(matches!(
        rig.node.read(&read(to, 0, 1)),
        Err(BookieError::WrongIncarnation { .. })
    ));
    let mismatch = add(rig.to(2), entry(1, 1, 10));
    assert!(matches!(
        refused(submit(&mut rig, mismatch)),
        BookieError::Invalid { .. }
    ));
    rig.check();
}

#[test]
fn expired_add_is_dropped_before_append_and_its_neighbours_are_not() {
    let mut rig = Rig::new(config());
    rig.store(1, 0..1, 10);
    let mut hasty = add(rig.to(1), entry(1, 1, 10));
    hasty.timeout = Duration::from_millis(5);
    let (ticket, _) = rig.node.add(hasty.clone());
    let (twin, _) = rig.node.add(hasty);
    rig.add(1, 2, 10);
    let (to, token) = (rig.to(2), FenceToken(1));
    rig.node
        .fence(hulse_proto::bookie::FenceRequest { to, token });
    rig.node.advance(Duration::from_millis(5));
    let answers = rig.settle();
    let busy = |ticket| {
        answers.iter().any(|(of, answer)| {
            *of == ticket && matches!(answer, StepAnswer::Add(Err(BookieError::Busy { .. })))
        })
    };
    assert!(busy(ticket) && busy(twin), "{answers:?}");
    assert!(rig.has(1, 2));
    let mut rig = rig.reopen(config(), Survival::Nothing, &[]);
    rig.check();
    assert!(matches!(
        rig.node.read(&read(rig.to(1), 1, 2)),
        Err(BookieError::NotHere { .. })
    ));
    let stale = BookieError::StaleToken {
        ledger: LedgerId(2),
        token: FenceToken(2),
        asked: FenceToken(1),
    };
    assert!(matches!(rig.fence(2, 2), StepAnswer::Fence(Ok(_))));
    assert_eq!(refused(rig.fence(2, 1)), stale);
}

#[test]
fn full_queue_is_busy_early_and_leaves_room_for_what_seals() {
    let mut rig = Rig::new(NodeConfig {
        queue_bytes_max: 100_000,
        ..config()
    });
    rig.store(1, 0..1, 10);
    let mut number = 1;
    let busy = loop {
        let (_, output) = rig.node.add(add(rig.to(1), entry(1, number, 10_000)));
        if let Some((_, StepAnswer::Add(Err(error)))) = output.answers.first() {
            break error.clone();
        }
        number += 1;
    };
    assert!(matches!(busy, BookieError::Busy { queued_bytes } if queued_bytes > 80_000));
    let meta = add(rig.to(1), entry_of(EntryClass::Meta, 1, number, 10_000));
    assert!(
        rig.node.add(meta).1.answers.is_empty(),
        "META has permits of its own"
    );
    let (to, token) = (rig.to(1), FenceToken(1));
    assert!(
        rig.node
            .fence(hulse_proto::bookie::FenceRequest { to, token })
            .1
            .answers
            .is_empty()
    );
    rig.settle();
    assert!(rig.node.core().queued_bytes() == 0);
}

#[test]
fn failed_sync_confirms_nothing_of_that_group_or_later() {
    let mut rig = Rig::new(config());
    rig.store(1, 0..3, 10);
    rig.disk.fail_syncs(1);
    rig.add(1, 3, 10);
    let answers = rig.settle();
    assert!(matches!(
        &answers[..],
        [(_, StepAnswer::Add(Err(BookieError::Failed { .. })))]
    ));
    let writes = rig.disk.counts().writes;
    let request = add(rig.to(1), entry(1, 4, 10));
    assert!(matches!(
        refused(submit(&mut rig, request)),
        BookieError::Failed { .. }
    ));
    assert!(matches!(
        refused(rig.fence(1, 1)),
        BookieError::Failed { .. }
    ));
    assert!(matches!(refused(rig.delete(1)), BookieError::Failed { .. }));
    assert_eq!(
        rig.disk.counts().writes,
        writes,
        "nothing is written after a failed sync"
    );
    rig.check();
    let mut rig = rig.reopen(config(), Survival::Everything, &[]);
    rig.check();
    assert!(!rig.has(1, 3), "the pages were marked clean and lost");
    rig.store(1, 4..5, 10);
}

/// LD-09 step 4: between receipt and answer of each add lies a sync that covers it.
#[test]
fn every_confirmation_is_covered_by_a_sync() {
    let mut rig = Rig::new(config());
    let mut number = 0;
    let mut covered = 0;
    for round in 0..50 {
        let received = rig.disk.counts().syncs;
        for _ in 0..=round % 7 {
            rig.add(1, number, 100 * round as usize);
            number += 1;
        }
        let before = rig.confirmed.len();
        while rig.node.busy() {
            let output = rig.node.write_group();
            rig.take(output);
            let output = rig.node.sync_group();
            rig.take(output);
            let clean = log_files(&rig.disk)
                .iter()
                .all(|name| rig.disk.unsynced(name).is_empty());
            assert!(clean, "answered while bytes were unsynced");
        }
        assert!(rig.disk.counts().syncs > received);
        covered += rig.confirmed.len() - before;
        rig.node.idle();
    }
    assert_eq!(covered as u64, number);
    println!(
        "LD-09 step 4: {covered} confirmations, {} syncs",
        rig.disk.counts().syncs
    );
}

#[test]
fn operators_wish_refuses_data_only() {
    let mut rig = Rig::new(config());
    rig.store(1, 0..1, 10);
    rig.node
        .event(Event::ReadOnly(Some("lease lost".to_owned())));
    let request = add(rig.to(1), entry(1, 1, 10));
    assert!(
        matches!(refused(submit(&mut rig, request)), BookieError::ReadOnly { why } if why == "lease lost")
    );
    let twin = add(rig.to(1), entry(1, 0, 10));
    assert!(matches!(submit(&mut rig, twin), StepAnswer::Add(Ok(()))));
    let control = add(rig.to(1), entry_of(EntryClass::Control, 1, 1, 10));
    assert!(matches!(submit(&mut rig, control), StepAnswer::Add(Ok(()))));
    rig.node.event(Event::ReadOnly(None));
    rig.store(1, 2..3, 10);
}

/// A late write-back reached a disk that lost its fence; then the old writer's add of that entry arrives. That it is held is no
/// reason to say that the writer may count it.
#[test]
fn writers_first_add_of_an_entry_that_repair_stored_asks_metadata() {
    let mut rig = Rig::new(config());
    let mut copy = add(rig.to(1), entry(1, 0, 100));
    copy.origin = Origin::Copy { bound: EntryId(1) };
    assert!(matches!(submit(&mut rig, copy), StepAnswer::Add(Ok(()))));
    let (_, output) = rig.node.add(add(rig.to(1), entry(1, 0, 100)));
    assert_eq!(output.verify, [ONE]);
    assert!(output.answers.is_empty());
    let token = FenceToken(3);
    let output = rig.node.verified(ONE, Verdict::Fenced { token });
    assert_eq!(
        refused(rig.answer(output)),
        BookieError::Fenced { ledger: ONE, token }
    );
}
