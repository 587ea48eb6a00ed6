//! The state machine when storage is full, and when its ledger is rolled or looked at (storage.md D1, W14, W15).

use hulse_proto::error::{Fate, Fault, Reason};
use hulse_proto::id::{EntryId, Offset};

use super::core::{Effect, Ledger};
use super::tests::{Core, answers, appends, batch, core, core_that_rolls_at, open, produce};
use crate::storage_fault;

/// A partition with one stored batch of producer 7, one in flight and one that waits.
fn filling() -> Core {
    let mut core = core();
    produce(&mut core, 1, &batch(7, 0, 0, 1));
    open(&mut core);
    core.confirmed(EntryId(0), 2);
    produce(&mut core, 2, &batch(7, 0, 1, 2));
    core.flush(3);
    produce(&mut core, 3, &batch(7, 0, 3, 1));
    core.flush(3);
    let effects = core.take_effects();
    assert_eq!(appends(&effects), [(0, 1), (1, 2)]);
    core
}

fn refused(core: &mut Core) -> Vec<(u32, Reason, Fate)> {
    let answers = answers(core.take_effects()).into_iter();
    answers
        .map(|(ticket, result)| {
            let fault = result.unwrap_err();
            (ticket, fault.reason, fault.fate)
        })
        .collect()
}

fn full() -> Fault {
    storage_fault::full("for a test")
}

const FULL: (Reason, Fate) = (Reason::StorageFull, Fate::NotApplied);

#[test]
fn full_storage_refuses_what_waits_at_once_and_what_was_sent_once_the_ledger_is_closed() {
    let mut core = filling();
    core.storage_full(full());
    assert_eq!(refused(&mut core), [(3, FULL.0, FULL.1)]);
    // A copy of what is in flight waits with it, anything new is refused.
    produce(&mut core, 4, &batch(7, 0, 1, 2));
    produce(&mut core, 5, &batch(7, 0, 3, 1));
    produce(&mut core, 6, &batch(-1, -1, -1, 1));
    core.flush(4);
    core.tick(1_000_000);
    assert_eq!(
        refused(&mut core),
        [(5, FULL.0, FULL.1), (6, FULL.0, FULL.1)]
    );
    core.log_closed(&full());
    assert_eq!(
        refused(&mut core),
        [(2, FULL.0, FULL.1), (4, FULL.0, FULL.1)]
    );
    assert!(core.is_idle());
    // What was stored before is still known.
    produce(&mut core, 7, &batch(7, 0, 0, 1));
    let stored = answers(core.take_effects());
    assert!(matches!(&stored[..], [(7, Ok(found))] if found.duplicate));
    produce(&mut core, 8, &batch(7, 0, 1, 2));
    assert_eq!(refused(&mut core), [(8, FULL.0, FULL.1)]);
}

#[test]
fn producers_go_on_where_the_closed_ledger_ends_when_there_is_room_again() {
    let mut core = filling();
    core.storage_full(full());
    core.log_closed(&full());
    core.take_effects();
    core.room_returned();
    produce(&mut core, 9, &batch(7, 0, 1, 2));
    produce(&mut core, 10, &batch(7, 0, 3, 1));
    core.flush(5);
    let effects = core.take_effects();
    assert!(
        matches!(effects[..], [Effect::OpenLog { base: Offset(1) }]),
        "{effects:?}"
    );
    core.log_opened(6);
    assert_eq!(appends(&core.take_effects()), [(1, 3)]);
    core.confirmed(EntryId(0), 7);
    let stored: Vec<_> = answers(core.take_effects())
        .into_iter()
        .map(|(ticket, result)| (ticket, result.unwrap().base_offset.0))
        .collect();
    assert_eq!(stored, [(9, 1), (10, 3)]);
}

fn outcomes(core: &mut Core) -> Vec<(u32, Result<u64, Reason>)> {
    let answers = answers(core.take_effects()).into_iter();
    answers
        .map(|(ticket, result)| {
            let offset = result.map(|produced| produced.base_offset.0);
            (ticket, offset.map_err(|fault| fault.reason))
        })
        .collect()
}

/// Several batches of a producer that is not known are on their way; the first finds no room and a later one does.
#[test]
fn batch_behind_a_refused_one_of_a_new_producer_is_not_stored_before_it() {
    let mut core = core();
    core.storage_full(full());
    produce(&mut core, 1, &batch(7, 0, 0, 2));
    produce(&mut core, 2, &batch(7, 0, 2, 1));
    core.room_returned();
    produce(&mut core, 3, &batch(7, 0, 3, 1));
    assert_eq!(
        outcomes(&mut core),
        [
            (1, Err(Reason::StorageFull)),
            (2, Err(Reason::StorageFull)),
            (3, Err(Reason::OutOfOrderSequence))
        ]
    );
    for (ticket, sequence, count) in [(4, 0, 2), (5, 2, 1), (6, 3, 1)] {
        produce(&mut core, ticket, &batch(7, 0, sequence, count));
    }
    core.flush(1);
    core.log_opened(1);
    core.confirmed(EntryId(0), 2);
    assert_eq!(outcomes(&mut core), [(4, Ok(0)), (5, Ok(2)), (6, Ok(3))]);
}

/// The same when the ledger is closed below all that is known of the producer.
#[test]
fn batch_behind_those_that_a_closed_ledger_left_behind_is_not_stored_before_them() {
    let mut core = core();
    produce(&mut core, 1, &batch(7, 0, 0, 2));
    open(&mut core);
    produce(&mut core, 2, &batch(7, 0, 2, 1));
    core.take_effects();
    core.log_closed(&Fault::new(Reason::StorageUnavailable, "closed below"));
    core.log_opened(5);
    core.take_effects();
    produce(&mut core, 3, &batch(7, 0, 3, 1));
    assert_eq!(outcomes(&mut core), [(3, Err(Reason::OutOfOrderSequence))]);
    // A producer that gave up goes on under a new epoch, and one of which nothing was refused goes on where it was.
    produce(&mut core, 4, &batch(7, 1, 0, 1));
    produce(&mut core, 5, &batch(8, 0, 500, 1));
    core.flush(6);
    core.confirmed(EntryId(0), 7);
    assert_eq!(outcomes(&mut core), [(4, Ok(0)), (5, Ok(1))]);
}

/// Room came back while the full ledger drained: what it confirmed stays.
#[test]
fn batch_that_is_confirmed_while_the_full_ledger_drains_is_stored() {
    let mut core = filling();
    core.storage_full(full());
    produce(&mut core, 4, &batch(7, 0, 1, 2));
    core.take_effects();
    core.confirmed(EntryId(1), 4);
    core.log_closed(&full());
    let stored: Vec<_> = answers(core.take_effects())
        .into_iter()
        .map(|(ticket, result)| (ticket, result.unwrap().base_offset.0))
        .collect();
    assert_eq!(stored, [(2, 1), (4, 1)]);
    core.room_returned();
    produce(&mut core, 5, &batch(7, 0, 3, 1));
    core.flush(5);
    assert!(matches!(
        core.take_effects()[..],
        [Effect::OpenLog { base: Offset(3) }]
    ));
}

/// W14: a roll that closed below what was sent.
#[test]
fn roll_that_leaves_entries_behind_refuses_them_and_goes_on() {
    let mut core = filling();
    let why = Fault::new(Reason::StorageUnavailable, "closed below");
    core.log_closed(&why);
    let reasons = refused(&mut core);
    let certain = (Reason::StorageUnavailable, Fate::NotApplied);
    assert_eq!(
        reasons,
        [(2, certain.0, certain.1), (3, certain.0, certain.1)]
    );
    core.log_opened(5);
    produce(&mut core, 4, &batch(7, 0, 1, 2));
    core.flush(6);
    assert_eq!(appends(&core.take_effects()), [(1, 2)]);
}

fn rolls(core: &mut Core) -> bool {
    let effects = core.take_effects();
    effects
        .iter()
        .any(|effect| matches!(effect, Effect::RollLog { .. }))
}

#[test]
fn worn_ledger_rolls_once_it_has_data_and_waits_when_it_cannot() {
    let mut core = core_that_rolls_at(1 << 30);
    produce(&mut core, 1, &batch(-1, -1, -1, 1));
    open(&mut core);
    core.take_effects();
    core.confirmed(EntryId(0), 2);
    core.note_worn(true);
    core.tick(3);
    assert!(rolls(&mut core));
    core.log_kept(4);
    produce(&mut core, 2, &batch(-1, -1, -1, 1));
    core.flush(5);
    assert!(!rolls(&mut core), "it was just not possible");
    core.confirmed(EntryId(1), 6);
    core.tick(5_004);
    assert!(rolls(&mut core));
    core.log_opened(5_005);
    core.note_worn(true);
    core.tick(60_000);
    assert!(!rolls(&mut core), "it is empty");
}

#[test]
fn ledger_with_other_quorums_than_new_ones_rolls_also_without_data() {
    let mut core = core_that_rolls_at(1 << 30);
    produce(&mut core, 1, &batch(-1, -1, -1, 1));
    open(&mut core);
    core.take_effects();
    core.confirmed(EntryId(0), 2);
    core.note_outdated(true);
    core.tick(3);
    assert!(rolls(&mut core));
    core.log_kept(4);
    core.tick(5);
    assert!(!rolls(&mut core), "it was just not possible");
    core.tick(5_005);
    assert!(rolls(&mut core));
    core.log_opened(5_006);
    core.note_outdated(true);
    core.tick(5_007);
    assert!(rolls(&mut core), "it is empty");
    core.log_opened(5_008);
    core.note_outdated(false);
    core.tick(90_000);
    assert!(!rolls(&mut core));
}

#[test]
fn ledger_that_rested_is_looked_at_before_it_is_written_to() {
    let mut core = core_that_rolls_at(1 << 30);
    produce(&mut core, 1, &batch(-1, -1, -1, 1));
    open(&mut core);
    core.confirmed(EntryId(0), 1_000);
    core.take_effects();
    produce(&mut core, 2, &batch(-1, -1, -1, 1));
    core.flush(60_999);
    assert_eq!(appends(&core.take_effects()), [(1, 1)], "no rest yet");
    // Something is in flight: the ledger is not at rest, however long that takes.
    produce(&mut core, 3, &batch(-1, -1, -1, 1));
    core.flush(200_000);
    assert!(core.take_effects().is_empty());
    core.confirmed(EntryId(1), 200_000);
    core.confirmed(EntryId(2), 200_001);
    core.take_effects();
    produce(&mut core, 4, &batch(-1, -1, -1, 1));
    core.flush(270_000);
    let effects = core.take_effects();
    assert!(
        matches!(effects[..], [Effect::VerifyLog { base: Offset(3) }]),
        "{effects:?}"
    );
    produce(&mut core, 5, &batch(-1, -1, -1, 1));
    core.flush(270_001);
    assert!(core.take_effects().is_empty(), "one look at a time");
    core.log_verified(270_002);
    assert_eq!(appends(&core.take_effects()), [(3, 2)]);
}

/// However much came at once, and however slow the storage is.
#[test]
fn burst_does_not_outgrow_its_ledger() {
    let mut core = core_that_rolls_at(3 * PIPELINED);
    produce(&mut core, 0, &large(0));
    open(&mut core);
    (1..40).for_each(|number| produce(&mut core, number as u32, &large(number)));
    core.flush(2);
    let mut ledgers = vec![0];
    loop {
        for effect in core.take_effects() {
            match effect {
                Effect::Append(entry) => *ledgers.last_mut().unwrap() += entry.payload_len() as u64,
                Effect::RollLog { .. } => ledgers.push(0),
                _ => {}
            }
        }
        // The ledger is closed when everything of it is confirmed.
        if !core.in_flight.is_empty() {
            core.confirmed(EntryId(0), 3);
        } else if core.ledger == Ledger::Coming {
            core.log_opened(3);
        } else {
            break;
        }
    }
    assert!(core.is_idle());
    let (last, full) = ledgers.split_last().unwrap();
    assert!(full.len() >= 2, "{ledgers:?}");
    let right = 3 * PIPELINED..3 * PIPELINED + (2 << 20);
    assert!(
        full.iter().all(|bytes| right.contains(bytes)),
        "{ledgers:?}"
    );
    assert!(*last > 0, "{ledgers:?}");
}

/// More than is waited for before a further entry is sent.
const PIPELINED: u64 = 300 << 10;

fn large(number: i32) -> bytes::Bytes {
    batch(7, 0, number * 20_000, 20_000)
}
