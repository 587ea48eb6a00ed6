//! One test per rule of recovery (storage.md R1–R14).

use bookie_metadata::Txn;
use hulse_proto::bookie::BookieError;
use hulse_proto::id::{CellId, EntryId, FenceToken};
use hulse_proto::ledger::{LedgerMetadata, LedgerState, LossKind, ledger_key};
use uuid::Uuid;

use super::{LEDGER, Scene, end_of, entries};
use crate::recovery::{BookieAsk, Policy, RecoveryConfig, RecoveryCore, RecoveryEvent};
use crate::testing::{Limbo, MemoryLedgers};
use crate::tests::{data, member, open_metadata};
use crate::{ClientConfig, RecoverError};

#[test]
fn recovery_bumps_the_token_also_of_a_ledger_in_recovery() {
    let mut metadata = open_metadata(1, 1, 1);
    metadata.state = LedgerState::InRecovery;
    metadata.recovery_token = FenceToken(7);
    let mut scene = Scene::new(&metadata, 1, None);
    let mut recoverer = scene.recoverer(1);
    let closed = scene.run(&mut recoverer, |_, _| true).unwrap();
    assert_eq!(closed.recovery_token.0, 8);
    assert_eq!(closed.writer_nonce, metadata.writer_nonce);
}

#[test]
fn recovery_with_one_hanging_bookie_finishes() {
    let mut scene = Scene::new(&open_metadata(3, 3, 2), 3, None);
    for entry in &entries(3) {
        scene.add(0, entry, 0);
        scene.add(1, entry, 0);
    }
    let mut recoverer = scene.recoverer(1);
    let closed = scene.run(&mut recoverer, |position, _| position != 2);
    assert_eq!(end_of(&closed), 3);
    let degraded = &closed.unwrap().degraded;
    assert_eq!(degraded[0].bookies, vec![member(2).bookie]);
}

#[test]
fn recovery_without_coverage_never_closes() {
    let mut scene = Scene::new(&open_metadata(3, 3, 2), 3, None);
    let mut recoverer = scene.recoverer(1);
    let failed = scene.run(&mut recoverer, |position, _| position == 0);
    assert!(
        matches!(failed, Err(RecoverError::Unavailable { .. })),
        "{failed:?}"
    );
    let row = scene.table.get(&ledger_key(LEDGER)).unwrap();
    let state = LedgerMetadata::decode(&row.value).unwrap().state;
    assert_eq!(state, LedgerState::InRecovery);
}

#[test]
fn recovery_with_unknown_reads_never_closes() {
    let mut scene = Scene::new(&open_metadata(3, 3, 2), 3, None);
    for bookie in 0..2 {
        scene.bookies[bookie].lose_from(LEDGER, EntryId(0), Limbo::Lost);
    }
    let mut recoverer = scene.recoverer(1);
    let failed = scene.run(&mut recoverer, |_, _| true);
    assert!(
        matches!(failed, Err(RecoverError::Damaged { .. })),
        "{failed:?}"
    );
}

#[test]
fn bookie_of_another_cell_at_a_members_address_is_no_lost_disk() {
    let mut scene = Scene::new(&open_metadata(3, 3, 2), 3, None);
    scene.bookies[0].lose_from(LEDGER, EntryId(0), Limbo::Lost);
    let other = CellId(Uuid::from_u128(2));
    scene.bookies[1] = MemoryLedgers::new(other, member(1));
    let mut recoverer = scene.recoverer(1);
    let failed = scene.run(&mut recoverer, |_, _| true);
    assert!(
        matches!(failed, Err(RecoverError::Unavailable { .. })),
        "{failed:?}"
    );
}

#[test]
fn recovery_ignores_what_lies_beyond_the_first_negative() {
    let mut scene = Scene::new(&open_metadata(1, 1, 1), 1, None);
    let all = entries(5);
    for number in [0, 1, 3, 4] {
        assert!(scene.add(0, &all[number], 0));
    }
    let mut recoverer = scene.recoverer(1);
    let closed = scene.run(&mut recoverer, |_, _| true);
    assert_eq!(end_of(&closed), 2);
}

#[test]
fn recovery_of_a_broken_chain_is_corrupt() {
    let mut scene = Scene::new(&open_metadata(1, 1, 1), 1, None);
    let first = &entries(1)[0];
    let wrong = data(5, 0).seal(LEDGER, EntryId(1), first.header().totals());
    assert!(scene.add(0, first, 0) && scene.add(0, &wrong, 0));
    let mut recoverer = scene.recoverer(1);
    let failed = scene.run(&mut recoverer, |_, _| true);
    assert!(
        matches!(failed, Err(RecoverError::Corrupt { .. })),
        "{failed:?}"
    );
}

#[test]
fn recovery_begins_at_the_base_and_counts_from_its_anchor() {
    let mut scene = Scene::new(&open_metadata(1, 1, 1), 1, None);
    for entry in &entries(50) {
        assert!(scene.add(0, entry, entry.header().entry.0));
    }
    let mut recoverer = scene.recoverer(1);
    scene.event(&mut recoverer, RecoveryEvent::Start);
    scene.deliver(&mut recoverer, |_, _| true);
    let asked: Vec<u64> = recoverer
        .asks
        .iter()
        .map(|(_, _, ask)| match ask {
            BookieAsk::Read(request) => request.entry.0,
            other => panic!("{other:?}"),
        })
        .collect();
    // The last add carried 49: entry 48 is the anchor, 49 is looked for.
    assert_eq!(asked, vec![48]);
    while recoverer.done.is_none() {
        scene.deliver(&mut recoverer, |_, _| true);
    }
    let totals = recoverer.done.unwrap().unwrap().closed.unwrap();
    assert_eq!((totals.end, totals.record_count), (EntryId(50), 50));
}

#[test]
fn recovery_beaten_at_its_close_adopts_the_other_result() {
    let mut scene = Scene::new(&open_metadata(1, 1, 1), 1, None);
    scene.add(0, &entries(1)[0], 0);
    let mut slow = scene.recoverer(1);
    scene.event(&mut slow, RecoveryEvent::Start);
    scene.deliver(&mut slow, |_, _| true);
    let mut fast = scene.recoverer(2);
    let closed = scene.run(&mut fast, |_, _| true);
    while slow.done.is_none() {
        scene.deliver(&mut slow, |_, _| true);
    }
    // Its read meets the newer token first: it begins anew, and then finds the ledger closed.
    let ended = slow.done.unwrap();
    assert!(
        matches!(ended, Err(RecoverError::Superseded { .. })),
        "{ended:?}"
    );
    let mut again = scene.recoverer(3);
    assert_eq!(scene.run(&mut again, |_, _| true), closed);
}

#[test]
fn recovery_whose_guard_fails_is_refused_without_effect() {
    let mut scene = Scene::new(&open_metadata(1, 1, 1), 1, None);
    let before = scene.table.get(&ledger_key(LEDGER));
    let mut recoverer = scene.recoverer(1);
    let part = Txn {
        compares: vec![bookie_metadata::Compare::Exists("part/1".to_owned())],
        ops: Vec::new(),
    };
    let mut config = RecoveryConfig::new(
        CellId::default(),
        LEDGER,
        &ClientConfig::new(open_metadata(1, 1, 1).quorums),
        [[1; 16], [2; 16]],
    );
    config.part = part;
    recoverer.core = RecoveryCore::new(config);
    let refused = scene.run(&mut recoverer, |_, _| true);
    assert!(
        matches!(refused, Err(RecoverError::Conflict(_))),
        "{refused:?}"
    );
    assert_eq!(scene.table.get(&ledger_key(LEDGER)), before);
}

#[test]
fn unsynced_limbo_counts_only_when_coverage_fails_through_it() {
    // Two of three lost their unsynced tail; the third, synced, still holds the entry.
    let mut scene = Scene::new(&open_metadata(3, 3, 2), 3, None);
    for entry in &entries(4) {
        scene.add(2, entry, 0);
    }
    for bookie in 0..2 {
        scene.bookies[bookie].lose_from(LEDGER, EntryId(0), Limbo::Unsynced);
    }
    let mut recoverer = scene.recoverer(1);
    let closed = scene.run(&mut recoverer, |_, _| true);
    assert_eq!(end_of(&closed), 4);
    let loss = closed.unwrap().loss.unwrap();
    assert_eq!((loss.kind, loss.from), (LossKind::TailLost, EntryId(4)));
}

#[test]
fn accepted_loss_at_zero_seals_an_empty_ledger_when_nobody_answers() {
    let mut scene = Scene::new(&open_metadata(1, 1, 1), 1, None);
    scene.add(0, &entries(1)[0], 0);
    let up_to = Some(EntryId(0));
    let mut recoverer = scene.recoverer_with(1, Policy::AcceptLoss { up_to });
    let closed = scene.run(&mut recoverer, |_, _| false);
    assert_eq!(end_of(&closed), 0);
    let loss = closed.unwrap().loss.unwrap();
    assert_eq!((loss.kind, loss.from), (LossKind::Accepted, EntryId(0)));
}

#[test]
fn accepted_loss_at_an_entry_that_is_not_there_is_refused() {
    let mut scene = Scene::new(&open_metadata(1, 1, 1), 1, None);
    scene.add(0, &entries(1)[0], 0);
    let up_to = Some(EntryId(9));
    let mut recoverer = scene.recoverer_with(1, Policy::AcceptLoss { up_to });
    let refused = scene.run(&mut recoverer, |_, _| true);
    assert!(
        matches!(refused, Err(RecoverError::Damaged { .. })),
        "{refused:?}"
    );
}

#[test]
fn accepted_loss_never_empties_a_ledger_whose_bookies_are_merely_down() {
    let mut scene = Scene::new(&open_metadata(1, 1, 1), 1, None);
    scene.add(0, &entries(1)[0], 0);
    let mut recoverer = scene.recoverer_with(1, Policy::AcceptLoss { up_to: None });
    let refused = scene.run(&mut recoverer, |_, _| false);
    assert!(
        matches!(refused, Err(RecoverError::Unavailable { .. })),
        "{refused:?}"
    );
}

/// Ten entries of which the bookie knows `confirmed` as confirmed, without those that are damaged; where it is sealed, and the loss.
fn sealed_without(confirmed: u64, damaged: &[u64]) -> (LedgerMetadata, Option<u64>) {
    let mut scene = Scene::new(&open_metadata(1, 1, 1), 1, None);
    let entries = entries(10);
    for entry in &entries {
        scene.add(0, entry, confirmed);
    }
    for entry in damaged {
        scene.bookies[0].damage(LEDGER, EntryId(*entry));
    }
    let mut recoverer = scene.recoverer_with(1, Policy::AcceptLoss { up_to: None });
    let closed = scene.run(&mut recoverer, |_, _| true).unwrap();
    let totals = closed.closed.unwrap();
    if let Some(last) = totals.end.0.checked_sub(1) {
        let last = entries[last as usize].header();
        assert_eq!(totals.bytes, last.cumulative_bytes);
        assert_eq!(totals.digest, last.cumulative_digest);
        assert_eq!(totals.offset_span, last.end_offset().0);
    }
    let loss = closed.loss.map(|loss| loss.from.0);
    (closed, loss)
}

#[test]
fn accepted_loss_keeps_what_can_be_read_behind_what_is_damaged() {
    for (confirmed, damaged, end, from) in [
        (3, &[5][..], 10, 5),
        (3, &[5, 6, 8], 10, 5),
        // The last that is known to be confirmed.
        (3, &[2], 10, 2),
        (9, &[8], 10, 8),
        (0, &[0], 10, 0),
        // Nothing is behind it.
        (3, &[5, 8, 9], 8, 5),
        (3, &[2, 3, 4, 5, 6, 7, 8, 9], 2, 2),
        (10, &[8, 9], 8, 8),
        (1, &[0, 1, 2, 3, 4, 5, 6, 7, 8, 9], 0, 0),
    ] {
        let (closed, loss) = sealed_without(confirmed, damaged);
        assert_eq!(
            (closed.closed.unwrap().end, loss),
            (EntryId(end), Some(from)),
            "{confirmed} confirmed, without {damaged:?}"
        );
    }
}

#[test]
fn accepted_loss_ends_where_an_entry_is_proven_to_be_absent() {
    let mut scene = Scene::new(&open_metadata(3, 3, 2), 3, None);
    let entries = entries(8);
    // Entry 5 reached nobody, so nothing from there on was confirmed; of entry 3 no copy can be read.
    for entry in entries.iter().filter(|entry| entry.header().entry.0 != 5) {
        for bookie in 0..3 {
            scene.add(bookie, entry, 2);
        }
    }
    for bookie in &mut scene.bookies {
        bookie.damage(LEDGER, EntryId(3));
    }
    let mut recoverer = scene.recoverer_with(1, Policy::AcceptLoss { up_to: None });
    let closed = scene.run(&mut recoverer, |_, _| true);
    assert_eq!(end_of(&closed), 5);
    assert_eq!(closed.unwrap().loss.unwrap().from, EntryId(3));
}

/// A bookie that has no time now, or whose answer is lost once, has what it has.
#[test]
fn accepted_loss_waits_for_bookies_that_only_answer_late() {
    let mut scene = Scene::new(&open_metadata(1, 1, 1), 1, None);
    for entry in &entries(10) {
        scene.add(0, entry, 3);
    }
    scene.bookies[0].damage(LEDGER, EntryId(5));
    let mut recoverer = scene.recoverer_with(1, Policy::AcceptLoss { up_to: None });
    let busy = std::cell::Cell::new(3);
    scene.event(&mut recoverer, RecoveryEvent::Start);
    while recoverer.done.is_none() {
        if recoverer.asks.is_empty() {
            recoverer.now = recoverer.core.next_wakeup().unwrap().max(recoverer.now);
            scene.event(&mut recoverer, RecoveryEvent::Tick);
        }
        let asks = std::mem::take(&mut recoverer.asks);
        for (position, member, ask) in asks {
            let answered = match &ask {
                BookieAsk::Read(request) if request.entry == EntryId(7) && busy.get() > 0 => {
                    busy.set(busy.get() - 1);
                    let entry = request.entry;
                    let why = "connection closed".to_owned();
                    let result = Err(BookieError::NoAnswer { why });
                    RecoveryEvent::Read {
                        position,
                        entry,
                        result,
                    }
                }
                _ => {
                    recoverer.asks.push((position, member, ask));
                    scene.deliver(&mut recoverer, |_, _| true);
                    continue;
                }
            };
            scene.event(&mut recoverer, answered);
        }
    }
    let closed = recoverer.done.take().unwrap();
    assert_eq!((end_of(&closed), busy.get()), (10, 0));
    assert_eq!(closed.unwrap().loss.unwrap().from, EntryId(5));
}
