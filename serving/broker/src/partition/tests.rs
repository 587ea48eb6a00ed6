//! The state machine, without tasks: numbering, judging, coalescing, answering.

use std::time::Duration;

use bytes::Bytes;
use hulse_proto::batch::{BatchBuilder, BatchHeader, Compression, ProducerStamp, RecordRef};
use hulse_proto::error::{Fate, Fault, Reason};
use hulse_proto::id::{EntryId, Offset, OwnerEpoch, PartitionId, ProducerId, TopicId};

use super::core::{CoreConfig, Effect, PartitionCore};
use super::handle::Produced;
use crate::state::{Cursors, PartitionState};

pub(super) type Core = PartitionCore<Cursors, u32>;

pub(super) fn core() -> Core {
    core_that_rolls_at(1 << 20)
}

pub(super) fn core_that_rolls_at(roll_bytes: u64) -> Core {
    let config = CoreConfig {
        partition: PartitionId {
            topic: TopicId::default(),
            index: 0,
        },
        epoch: OwnerEpoch(1),
        producer_expiry: Duration::from_secs(3600),
        log_append_time: false,
        roll_bytes,
        roll_age: Duration::from_secs(1_000),
        snapshot_entries_min: 1,
        in_flight_bytes_max: 3 << 20,
    };
    Core::new(config, PartitionState::default(), Offset(0), 0)
}

fn push(builder: &mut BatchBuilder, timestamp: i64, value: &[u8]) {
    let record = RecordRef {
        timestamp,
        key: None,
        value: Some(value),
        headers: &[],
    };
    builder.push(&record).unwrap();
}

pub(super) fn batch(producer: i64, epoch: i16, sequence: i32, records: u32) -> Bytes {
    let mut builder = BatchBuilder::new(Compression::None).unwrap();
    for number in 0..records {
        push(&mut builder, i64::from(number), b"value");
    }
    let stamp = ProducerStamp {
        id: ProducerId(producer),
        epoch,
        base_sequence: sequence,
    };
    builder.build((producer >= 0).then_some(stamp))
}

pub(super) fn produce(core: &mut Core, ticket: u32, bytes: &Bytes) {
    core.produce(BatchHeader::view(bytes).unwrap(), bytes, ticket, 0);
}

pub(super) fn open(core: &mut Core) {
    core.flush(1);
    let effects = core.take_effects();
    assert!(
        matches!(effects[..], [Effect::OpenLog { .. }]),
        "{effects:?}"
    );
    core.log_opened(1);
}

pub(super) fn answers(effects: Vec<Effect<u32>>) -> Vec<(u32, Result<Produced, Fault>)> {
    let answers = effects.into_iter().filter_map(|effect| match effect {
        Effect::Answer { ticket, result } => Some((ticket, result)),
        _ => None,
    });
    answers.collect()
}

pub(super) fn appends(effects: &[Effect<u32>]) -> Vec<(u64, u32)> {
    let appends = effects.iter().filter_map(|effect| match effect {
        Effect::Append(entry) => Some((entry.first_offset.0, entry.offset_span)),
        _ => None,
    });
    appends.collect()
}

#[test]
fn batches_that_wait_while_an_append_is_in_flight_become_one_entry() {
    let mut core = core();
    produce(&mut core, 1, &batch(-1, -1, -1, 3));
    open(&mut core);
    assert_eq!(appends(&core.take_effects()), [(0, 3)]);
    produce(&mut core, 2, &batch(-1, -1, -1, 2));
    produce(&mut core, 3, &batch(-1, -1, -1, 4));
    core.flush(2);
    assert!(core.take_effects().is_empty());
    core.confirmed(EntryId(0), 3);
    let effects = core.take_effects();
    assert_eq!(appends(&effects), [(3, 6)]);
    let offsets: Vec<_> = answers(effects)
        .into_iter()
        .map(|(ticket, r)| (ticket, r.unwrap().base_offset.0))
        .collect();
    assert_eq!(offsets, [(1, 0)]);
    core.confirmed(EntryId(1), 4);
    let offsets: Vec<_> = answers(core.take_effects())
        .into_iter()
        .map(|(ticket, r)| (ticket, r.unwrap().base_offset.0))
        .collect();
    assert_eq!(offsets, [(2, 3), (3, 5)]);
}

#[test]
fn duplicate_of_an_unconfirmed_batch_waits_for_its_confirmation() {
    let mut core = core();
    let first = batch(7, 0, 0, 3);
    produce(&mut core, 1, &first);
    open(&mut core);
    core.take_effects();
    produce(&mut core, 2, &first);
    core.flush(2);
    assert!(
        core.take_effects().is_empty(),
        "a duplicate was answered from memory alone (LD-03)"
    );
    core.confirmed(EntryId(0), 3);
    let answers = answers(core.take_effects());
    let [(1, Ok(one)), (2, Ok(two))] = &answers[..] else {
        panic!("{answers:?}")
    };
    assert_eq!((one.base_offset, one.duplicate), (Offset(0), false));
    assert_eq!((two.base_offset, two.duplicate), (Offset(0), true));
}

/// Cases LD-03 and LD-07: the owner's clock is far ahead of the last entry, as after a take-over or an idle day.
#[test]
fn duplicate_after_a_long_idle_time_waits_for_the_first_copy() {
    const NOW: i64 = 1_700_000_000_000;
    let mut core = core();
    let first = batch(7, 0, 0, 3);
    let header = BatchHeader::view(&first).unwrap();
    core.produce(header, &first, 1, NOW);
    core.flush(NOW);
    core.take_effects();
    core.log_opened(NOW);
    assert_eq!(appends(&core.take_effects()), [(0, 3)]);
    core.produce(header, &first, 2, NOW);
    core.flush(NOW);
    assert!(
        core.take_effects().is_empty(),
        "the copy was taken as another batch"
    );
    core.confirmed(EntryId(0), NOW);
    let answers = answers(core.take_effects());
    let [(1, Ok(one)), (2, Ok(two))] = &answers[..] else {
        panic!("{answers:?}")
    };
    assert_eq!((one.base_offset, two.base_offset), (Offset(0), Offset(0)));
    core.produce(header, &first, 3, NOW);
    let again = self::answers(core.take_effects());
    assert!(matches!(&again[..], [(3, Ok(found))] if found.duplicate && found.append_time == NOW));
}

#[test]
fn failure_leaves_sent_batches_unknown_and_waiting_ones_unwritten() {
    let mut core = core();
    let first = batch(7, 0, 0, 1);
    produce(&mut core, 1, &first);
    open(&mut core);
    core.take_effects();
    produce(&mut core, 2, &batch(7, 0, 1, 1));
    produce(&mut core, 3, &first);
    core.flush(2);
    core.fail(Fault::new(Reason::StorageUnknown, "the ledger is fenced"));
    produce(&mut core, 4, &batch(7, 0, 2, 1));
    let fates: Vec<_> = answers(core.take_effects())
        .into_iter()
        .map(|(ticket, result)| (ticket, result.unwrap_err().fate))
        .collect();
    assert_eq!(
        fates,
        [
            (1, Fate::Unknown),
            (3, Fate::Unknown),
            (2, Fate::NotApplied),
            (4, Fate::NotApplied)
        ]
    );
    assert!(core.is_idle());
}

/// Case LD-04.
#[test]
fn batch_that_overlaps_stored_sequences_is_refused_and_nothing_of_it_is_stored() {
    let mut core = core();
    produce(&mut core, 0, &batch(7, 0, 1, 3));
    open(&mut core);
    core.confirmed(EntryId(0), 2);
    core.take_effects();
    for (sequence, count, reason) in [
        (2, 4, Reason::SequenceOverlap),
        (5, 2, Reason::OutOfOrderSequence),
        (1, 4, Reason::SequenceOverlap),
        (8, 1, Reason::OutOfOrderSequence),
    ] {
        produce(&mut core, 9, &batch(7, 0, sequence, count));
        core.flush(3);
        let answers = answers(core.take_effects());
        let [(9, Err(fault))] = &answers[..] else {
            panic!("{answers:?}")
        };
        assert_eq!((fault.reason, fault.fate), (reason, Fate::NotApplied));
    }
    produce(&mut core, 10, &batch(7, 0, 4, 6));
    core.flush(4);
    assert_eq!(appends(&core.take_effects()), [(3, 6)]);
}

#[test]
fn each_of_the_last_five_batches_is_a_duplicate_and_the_sixth_is_not() {
    let mut core = core();
    produce(&mut core, 0, &batch(7, 0, 0, 1));
    open(&mut core);
    core.confirmed(EntryId(0), 2);
    for number in 1..6_i32 {
        produce(&mut core, 0, &batch(7, 0, number, 1));
        core.flush(2);
        core.confirmed(EntryId(number as u64), 2);
    }
    core.take_effects();
    for number in 1..6_i32 {
        produce(&mut core, 1, &batch(7, 0, number, 1));
        let answers = answers(core.take_effects());
        let [(1, Ok(found))] = &answers[..] else {
            panic!("{answers:?}")
        };
        assert_eq!(
            (found.base_offset, found.duplicate),
            (Offset(number as u64), true)
        );
    }
    produce(&mut core, 1, &batch(7, 0, 0, 1));
    assert!(
        matches!(&answers(core.take_effects())[..], [(1, Err(fault))] if fault.reason == Reason::SequenceOverlap)
    );
}

#[test]
fn epoch_rules_fence_the_old_and_let_the_new_begin_at_zero() {
    let mut core = core();
    produce(&mut core, 0, &batch(7, 3, 0, 1));
    open(&mut core);
    core.take_effects();
    for (epoch, sequence, reason) in [
        (2, 0, Some(Reason::FencedEpoch)),
        (4, 5, Some(Reason::OutOfOrderSequence)),
        (4, 0, None),
        (3, 1, Some(Reason::FencedEpoch)),
    ] {
        produce(&mut core, 1, &batch(7, epoch, sequence, 1));
        let found = answers(core.take_effects())
            .into_iter()
            .next()
            .map(|(_, result)| result.unwrap_err().reason);
        assert_eq!(found, reason, "epoch {epoch}");
    }
}

#[test]
fn sequence_wraps_from_the_largest_to_zero() {
    let mut core = core();
    produce(&mut core, 0, &batch(7, 0, i32::MAX - 1, 4));
    open(&mut core);
    core.take_effects();
    produce(&mut core, 1, &batch(7, 0, 2, 1));
    core.flush(2);
    assert!(answers(core.take_effects()).is_empty());
    produce(&mut core, 2, &batch(7, 0, i32::MAX, 1));
    assert!(
        matches!(&answers(core.take_effects())[..], [(2, Err(fault))] if fault.reason == Reason::SequenceOverlap)
    );
}

#[test]
fn full_ledger_rolls_before_the_next_entry_and_a_refused_roll_goes_on() {
    let mut core = core();
    let large = {
        let mut builder = BatchBuilder::new(Compression::None).unwrap();
        for _ in 0..20 {
            push(&mut builder, 0, &[7; 60_000]);
        }
        builder.build(None)
    };
    produce(&mut core, 0, &large);
    open(&mut core);
    core.confirmed(EntryId(0), 2);
    core.take_effects();
    produce(&mut core, 1, &large);
    core.flush(3);
    assert!(matches!(
        core.take_effects()[..],
        [Effect::RollLog { base: Offset(20) }]
    ));
    core.log_kept(4);
    assert_eq!(appends(&core.take_effects()), [(20, 20)]);
    core.confirmed(EntryId(1), 5);
    produce(&mut core, 2, &large);
    core.flush(6);
    assert!(
        core.take_effects()
            .iter()
            .any(|effect| matches!(effect, Effect::RollLog { base: Offset(40) }))
    );
    core.log_opened(7);
    assert_eq!(appends(&core.take_effects()), [(40, 20)]);
}

#[test]
fn entries_in_flight_stay_within_the_room_of_a_writer() {
    let mut core = core_that_rolls_at(1 << 30);
    let mut builder = BatchBuilder::new(Compression::None).unwrap();
    for _ in 0..25 {
        push(&mut builder, 0, &[7; 60_000]);
    }
    let large = builder.build(None);
    produce(&mut core, 0, &large);
    open(&mut core);
    for ticket in 1..8 {
        produce(&mut core, ticket, &large);
    }
    core.take_effects();
    core.flush(2);
    let sent = appends(&core.take_effects()).len();
    core.confirmed(EntryId(0), 3);
    let more = appends(&core.take_effects()).len();
    // Each is 1.5 MB, and 3 MiB are passed by one entry at most.
    assert_eq!((sent, more), (2, 1));
}

#[test]
fn snapshot_follows_the_first_entry_of_a_ledger_and_is_tried_again_after_a_failure() {
    let mut core = core();
    produce(&mut core, 0, &batch(7, 0, 0, 1));
    open(&mut core);
    core.take_effects();
    core.confirmed(EntryId(0), 10);
    let snapshots = |core: &mut Core| {
        core.take_effects()
            .iter()
            .filter(|effect| matches!(effect, Effect::Snapshot))
            .count()
    };
    assert_eq!(snapshots(&mut core), 1);
    core.snapshot_done(false, 10);
    core.tick(11);
    assert_eq!(snapshots(&mut core), 0);
    core.tick(6_000);
    assert_eq!(snapshots(&mut core), 1);
    core.snapshot_done(true, 6_001);
    core.tick(60_000);
    assert_eq!(snapshots(&mut core), 0);
}

#[test]
fn snapshot_waits_until_a_take_over_would_have_entries_enough_to_replay() {
    let mut config = core().config;
    config.snapshot_entries_min = 3;
    let after = |replayed: u64| {
        let state = PartitionState::default();
        let mut core = Core::new(config.clone(), state, Offset(0), replayed);
        produce(&mut core, 0, &batch(7, 0, 0, 1));
        open(&mut core);
        core.take_effects();
        core.confirmed(EntryId(0), 10);
        let effects = core.take_effects();
        effects
            .iter()
            .any(|effect| matches!(effect, Effect::Snapshot))
    };
    // The first entry counts, too.
    assert_eq!([0, 1, 2, 3].map(after), [false, false, true, true]);
}
