//! Both halves by their rules, and their forms on disk.

use std::time::Duration;

use bytes::BytesMut;
use hulse_proto::entry::{BatchSummary, EntryKind, Envelope};
use hulse_proto::id::{Offset, ProducerId, SubscriptionId};
use proptest::prelude::*;
use serving_dispatch::OffsetRange;
use uuid::Uuid;

use super::*;
use crate::coordinator::Parts;
use crate::{Marker, Producer, RecordError, TxnError, Version};

const EXPIRY: Duration = Duration::from_millis(1_000);

fn producer(id: i64, epoch: i16) -> Producer {
    Producer {
        id: ProducerId(id),
        epoch,
    }
}

fn marker(producer: Producer, commit: bool, version: Version, serial: u32) -> Marker {
    Marker {
        producer,
        commit,
        coordinator_epoch: 1,
        version,
        serial,
    }
}

fn batch(producer: Producer, span: u32, transactional: bool) -> BatchSummary {
    BatchSummary {
        length: 70,
        span,
        count: span,
        producer_id: producer.id,
        producer_epoch: producer.epoch,
        attributes: if transactional { 1 << 4 } else { 0 },
        base_sequence: 0,
        max_timestamp: 0,
        hash_min: 0,
        hash_max: 0,
        expires_at: 0,
        base_timestamp: 0,
    }
}

fn subscription(number: u128) -> SubscriptionId {
    SubscriptionId(Uuid::from_u128(number))
}

/// A partition whose chains take everything at once.
#[derive(Default)]
struct Owner {
    log: LogTransactions,
    state: StateTransactions,
    door: Door,
    now: i64,
}

macro_rules! view {
    ($owner:expr) => {
        View {
            log: &$owner.log,
            state: &$owner.state,
        }
    };
}

impl Owner {
    fn entry(&mut self, kind: EntryKind, batches: Vec<BatchSummary>) {
        let first = self.log.end;
        let span: u64 = batches.iter().map(|batch| u64::from(batch.span)).sum();
        let envelope = Envelope {
            kind,
            append_time: self.now,
            running_max_timestamp: 0,
            batches,
        };
        let end = Offset(first.0 + span);
        self.log.apply(first, end, &envelope, EXPIRY);
    }

    fn data(&mut self, producer: Producer, span: u32) {
        self.entry(EntryKind::Data, vec![batch(producer, span, true)]);
    }

    fn marked(&mut self, marker: Marker) {
        self.entry(EntryKind::Control, vec![marker.summary(self.now)]);
    }

    fn judge(&mut self, producer: Producer, sequence: i32) -> Result<BatchVerdict, TxnError> {
        let facts = BatchFacts {
            producer,
            first_sequence: sequence,
            transactional: true,
            version: Version::Tv1,
            known: true,
        };
        self.door.judge_batch(view!(self), &facts)
    }

    fn judge_marker(&mut self, marker: &Marker) -> Result<MarkerPlan, TxnError> {
        let parts = Parts::DATA.with(Parts::ACKS);
        self.door.judge_marker(view!(self), marker, parts)
    }
}

#[test]
fn last_stable_offset_waits_for_the_oldest_open_transaction() {
    let mut owner = Owner::default();
    owner.entry(EntryKind::Data, vec![batch(producer(9, 0), 3, false)]);
    assert_eq!(owner.log.stable(), Offset(3));
    owner.data(producer(1, 0), 2);
    owner.data(producer(2, 0), 2);
    owner.data(producer(1, 0), 1);
    assert_eq!(owner.log.stable(), Offset(3));
    owner.marked(marker(producer(1, 0), false, Version::Tv1, 1));
    assert_eq!(owner.log.stable(), Offset(5));
    owner.marked(marker(producer(2, 0), true, Version::Tv1, 1));
    assert_eq!(owner.log.stable(), Offset(10));
    let aborted: Vec<_> = owner.log.aborted().iter().copied().collect();
    let expected = Aborted {
        first: Offset(3),
        last: Offset(8),
        producer: ProducerId(1),
        stable: Offset(5),
    };
    assert_eq!(aborted, [expected]);
}

#[test]
fn marker_that_ends_nothing_leaves_nothing_in_the_index() {
    let mut owner = Owner::default();
    owner.marked(marker(producer(1, 4), false, Version::Tv2, 1));
    assert!(owner.log.aborted().is_empty());
    assert_eq!(owner.log.get(ProducerId(1)).unwrap().epoch, 4);
}

#[test]
fn aborted_ranges_are_all_that_overlap_by_their_first_offsets() {
    let mut owner = Owner::default();
    // 0: begins at 0 and ends last; 1 and 2 end before it.
    owner.data(producer(0, 0), 1);
    owner.data(producer(1, 0), 1);
    owner.data(producer(2, 0), 1);
    owner.marked(marker(producer(2, 0), false, Version::Tv1, 1));
    owner.marked(marker(producer(1, 0), false, Version::Tv1, 1));
    owner.marked(marker(producer(0, 0), false, Version::Tv1, 1));
    let found = |from, end| -> Vec<i64> {
        let found = owner.log.aborted().overlapping(Offset(from), Offset(end));
        found.iter().map(|aborted| aborted.producer.0).collect()
    };
    assert_eq!(found(0, 6), [0, 1, 2]);
    assert_eq!(found(0, 1), [0]);
    assert_eq!(found(4, 5), [0, 1]);
    assert_eq!(found(5, 6), [0]);
    assert_eq!(found(6, 9), [0_i64; 0]);
}

#[test]
fn first_batch_waits_for_the_coordinator_and_a_marker_ends_the_wait() {
    let mut owner = Owner::default();
    let one = producer(1, 0);
    let Ok(BatchVerdict::Verify(ticket)) = owner.judge(one, 0) else {
        panic!("it waits");
    };
    // Nothing overtakes it; it comes again under the same ticket.
    assert_eq!(owner.judge(one, 5), Err(TxnError::Overtaken { first: 0 }));
    assert_eq!(owner.judge(one, 0), Ok(BatchVerdict::Verify(ticket)));
    let plan = owner
        .judge_marker(&marker(one, false, Version::Tv1, 1))
        .unwrap();
    assert_eq!(plan.log, Half::Write);
    owner.marked(marker(one, false, Version::Tv1, 1));
    // The word comes too late (test 7 of F2).
    assert!(!owner.door.verified_batches(one, ticket, true));
    let Ok(BatchVerdict::Verify(next)) = owner.judge(one, 0) else {
        panic!("it waits again");
    };
    assert!(next != ticket && owner.door.verified_batches(one, next, true));
    assert_eq!(owner.judge(one, 0), Ok(BatchVerdict::Append));
    owner.door.sent_to_log(1, OnItsWay::Batch(one));
    assert_eq!(owner.judge(one, 1), Ok(BatchVerdict::Append));
    // The append failed: nothing is open.
    owner.door.log_failed(1);
    assert!(matches!(owner.judge(one, 0), Ok(BatchVerdict::Verify(_))));
}

#[test]
fn batch_of_another_kind_or_epoch_is_refused() {
    let mut owner = Owner::default();
    owner.data(producer(1, 3), 1);
    let plain = |producer| BatchFacts {
        producer,
        first_sequence: 0,
        transactional: false,
        version: Version::Tv1,
        known: true,
    };
    let door = &mut owner.door;
    let view = view!(owner);
    let judged = door.judge_batch(view, &plain(producer(1, 3)));
    assert!(matches!(judged, Err(TxnError::InvalidState(_))));
    let judged = door.judge_batch(view, &plain(producer(1, 2)));
    assert!(matches!(judged, Err(TxnError::Fenced { .. })));
    let judged = door.judge_batch(view, &plain(producer(2, 0)));
    assert_eq!(judged, Ok(BatchVerdict::Append));
    assert_eq!(owner.judge(producer(1, 4), 0), Err(TxnError::Concurrent));
    let new = BatchFacts {
        producer: producer(5, 0),
        first_sequence: 7,
        transactional: true,
        version: Version::Tv2,
        known: false,
    };
    let judged = owner.door.judge_batch(view!(owner), &new);
    assert_eq!(judged, Err(TxnError::NotFirst { found: 7 }));
}

#[test]
fn marker_is_judged_by_its_epochs_and_its_serial() {
    let mut owner = Owner::default();
    owner.data(producer(1, 3), 1);
    let mut judge = |marker: Marker| owner.judge_marker(&marker).map(|plan| plan.log);
    let fenced = |judged| matches!(judged, Err(TxnError::Fenced { .. }));
    assert!(fenced(judge(marker(producer(1, 2), true, Version::Tv1, 1))));
    assert!(fenced(judge(marker(producer(1, 3), true, Version::Tv2, 1))));
    for (epoch, version) in [(3, Version::Tv1), (4, Version::Tv2)] {
        let judged = judge(marker(producer(1, epoch), true, version, 1));
        assert_eq!(judged, Ok(Half::Write));
    }
    owner.marked(marker(producer(1, 4), true, Version::Tv2, 1));
    let again = marker(producer(1, 4), true, Version::Tv2, 1);
    assert_eq!(owner.judge_marker(&again).unwrap().log, Half::Done);
    // One that comes late into the next transaction at the same epoch ends nothing.
    owner.data(producer(2, 0), 1);
    owner.marked(marker(producer(2, 0), true, Version::Tv1, 1));
    owner.data(producer(2, 0), 1);
    let late = marker(producer(2, 0), true, Version::Tv1, 1);
    assert_eq!(owner.judge_marker(&late).unwrap().log, Half::Done);
    // The admin's names no serial, and is taken by Kafka's rule.
    let admin = marker(producer(2, 0), false, Version::Tv1, 0);
    assert_eq!(owner.judge_marker(&admin).unwrap().log, Half::Write);
    let old = Marker {
        coordinator_epoch: 0,
        ..marker(producer(2, 0), true, Version::Tv1, 2)
    };
    let refused = TxnError::CoordinatorFenced { found: 0, known: 1 };
    assert_eq!(owner.judge_marker(&old), Err(refused));
}

#[test]
fn marker_that_is_on_its_way_is_waited_for_half_by_half() {
    let mut owner = Owner::default();
    owner.data(producer(1, 0), 1);
    let end = marker(producer(1, 1), true, Version::Tv2, 1);
    let both = |log, state| Ok(MarkerPlan { log, state });
    assert_eq!(owner.judge_marker(&end), both(Half::Write, Half::Write));
    owner.door.sent_to_log(1, OnItsWay::Marker(end));
    owner.door.sent_to_state(1, OnItsWay::Settled(end));
    assert_eq!(
        owner.judge_marker(&end),
        both(Half::OnItsWay, Half::OnItsWay)
    );
    owner.marked(end);
    owner.door.log_confirmed(1);
    assert_eq!(owner.judge_marker(&end), both(Half::Done, Half::OnItsWay));
    // The state could not be written: its half is written when it can.
    owner.door.state_failed(1);
    assert_eq!(owner.judge_marker(&end), both(Half::Done, Half::Write));
    owner
        .state
        .apply(&StateChange::Settled { at: 0, marker: end });
    assert_eq!(owner.judge_marker(&end), both(Half::Done, Half::Done));
}

#[test]
fn acks_are_staged_by_one_transaction_and_fenced_by_either_half() {
    let mut owner = Owner::default();
    let (one, two) = (producer(1, 0), producer(2, 0));
    let stages = |first, end| vec![(subscription(1), vec![OffsetRange::new(first, end)])];
    let Ok(BatchVerdict::Verify(ticket)) = owner.door.judge_acks(view!(owner), one, &stages(0, 5))
    else {
        panic!("it waits");
    };
    assert!(owner.door.verified_acks(one, ticket, true));
    let judged = owner.door.judge_acks(view!(owner), one, &stages(0, 5));
    assert_eq!(judged, Ok(BatchVerdict::Append));
    owner
        .door
        .sent_to_state(1, OnItsWay::Staged(one, stages(0, 5)));
    // Also while it is on its way.
    let judged = owner.door.judge_acks(view!(owner), two, &stages(4, 6));
    assert_eq!(judged, Err(TxnError::Conflict));
    owner.state.apply(&StateChange::Staged {
        at: 0,
        producer: one,
        stages: stages(0, 5),
    });
    owner.door.state_confirmed(1);
    let judged = owner.door.judge_acks(view!(owner), two, &stages(4, 6));
    assert_eq!(judged, Err(TxnError::Conflict));
    let judged = owner.door.judge_acks(view!(owner), one, &stages(5, 6));
    assert_eq!(judged, Ok(BatchVerdict::Append));
    assert_eq!(owner.state.staged_by(one.id), stages(0, 5));
    let held = owner.state.staged_of(subscription(1));
    assert_eq!(held, [(one.id, OffsetRange::new(0, 5))]);
    // The log knows a newer epoch: the state's acks are of the past (D10).
    owner.data(producer(1, 1), 1);
    let judged = owner.door.judge_acks(view!(owner), one, &stages(5, 6));
    assert!(matches!(judged, Err(TxnError::Fenced { .. })));
    let settled = marker(one.bumped(), true, Version::Tv2, 1);
    owner.state.apply(&StateChange::Settled {
        at: 0,
        marker: settled,
    });
    assert_eq!(owner.state.staged_by(one.id), []);
    let judged = owner.door.judge_acks(view!(owner), two, &stages(4, 6));
    assert!(matches!(judged, Ok(BatchVerdict::Verify(_))));
    // A cursor that goes takes what is staged of it along.
    owner.state.apply(&StateChange::Staged {
        at: 0,
        producer: two,
        stages: stages(4, 6),
    });
    owner.state.apply(&StateChange::Voided(subscription(1)));
    assert_eq!(owner.state.staged_of(subscription(1)), []);
}

#[test]
fn producer_is_forgotten_when_it_is_idle_and_never_while_it_has_something_open() {
    let mut owner = Owner::default();
    owner.data(producer(1, 0), 1);
    owner.marked(marker(producer(2, 0), true, Version::Tv1, 1));
    owner.now = 1_001;
    owner.data(producer(3, 0), 1);
    assert!(owner.log.get(ProducerId(1)).is_some());
    assert!(owner.log.get(ProducerId(2)).is_none());
}

#[test]
fn loss_of_the_first_batch_ends_its_transaction() {
    let mut owner = Owner::default();
    owner.data(producer(1, 0), 1);
    owner.data(producer(2, 0), 1);
    owner.data(producer(1, 0), 1);
    owner.log.drop_from(Offset(1));
    assert_eq!(owner.log.get(ProducerId(2)).unwrap().open, None);
    assert_eq!(owner.log.stable(), Offset(0));
}

fn entry() -> impl Strategy<Value = (EntryKind, Vec<BatchSummary>)> {
    let producers = (0..4_i64, 0..4_i16).prop_map(|(id, epoch)| producer(id, epoch));
    let data = (producers.clone(), 1..4_u32, any::<bool>());
    let data =
        data.prop_map(|(producer, span, transactional)| batch(producer, span, transactional));
    let data = prop::collection::vec(data, 1..3).prop_map(|batches| (EntryKind::Data, batches));
    let control = (producers, any::<bool>(), 0..5_u32, 0..3_i32);
    let control = control.prop_map(|(producer, commit, serial, coordinator_epoch)| {
        let marker = Marker {
            coordinator_epoch,
            ..marker(producer, commit, Version::Tv2, serial)
        };
        (EntryKind::Control, vec![marker.summary(0)])
    });
    prop_oneof![2 => data, 1 => control]
}

fn change() -> impl Strategy<Value = StateChange> {
    let producers = (0..4_i64, 0..4_i16).prop_map(|(id, epoch)| producer(id, epoch));
    let ranges = prop::collection::vec((0..20_u64, 1..5_u64), 0..3);
    let ranges = ranges.prop_map(|all| {
        let range = |(first, len)| OffsetRange::new(first, first + len);
        all.into_iter().map(range).collect::<Vec<_>>()
    });
    let stages = prop::collection::vec(((0..3_u128).prop_map(subscription), ranges), 0..3);
    let staged = (0..5_000_i64, producers.clone(), stages);
    let staged = staged.prop_map(|(at, producer, stages)| StateChange::Staged {
        at,
        producer,
        stages,
    });
    let settled = (0..5_000_i64, producers, any::<bool>(), 0..5_u32);
    let settled = settled.prop_map(|(at, producer, commit, serial)| StateChange::Settled {
        at,
        marker: marker(producer, commit, Version::Tv2, serial),
    });
    let voided = (0..3_u128).prop_map(|number| StateChange::Voided(subscription(number)));
    prop_oneof![3 => staged, 2 => settled, 1 => voided]
}

proptest! {
    #[test]
    fn log_replay_equals_live_from_any_snapshot_and_stable_never_falls(
        entries in prop::collection::vec((entry(), 0..400_i64), 0..40), at in any::<prop::sample::Index>(),
    ) {
        let at = at.index(entries.len() + 1);
        let mut live = Owner::default();
        let mut replayed = Owner::default();
        for (number, ((kind, batches), pause)) in entries.into_iter().enumerate() {
            if number == at {
                let bytes = live.log.encode();
                let mut rest = &bytes[..];
                replayed.log = LogTransactions::decode_from(&mut rest).unwrap();
                prop_assert!(rest.is_empty());
                prop_assert_eq!(&replayed.log, &live.log);
            }
            let before = live.log.stable();
            for owner in [&mut live, &mut replayed] {
                owner.now += pause;
                owner.entry(kind, batches.clone());
            }
            prop_assert!(live.log.stable() >= before);
            // What is found is what the whole index has.
            let (from, end) = (Offset(number as u64 % 7), Offset(live.log.end.0 / 2 + 1));
            let mut all: Vec<Aborted> = live.log.aborted().iter().copied().collect();
            all.retain(|aborted| aborted.first < end && aborted.last >= from);
            all.sort_unstable();
            prop_assert_eq!(live.log.aborted().overlapping(from, end), all);
        }
        prop_assert_eq!(replayed.log, live.log);
    }

    #[test]
    fn state_replay_equals_live_from_any_snapshot(
        changes in prop::collection::vec(change(), 0..30), at in any::<prop::sample::Index>(),
    ) {
        let at = at.index(changes.len() + 1);
        let (mut live, mut replayed) = (StateTransactions::default(), StateTransactions::default());
        for (number, change) in changes.iter().enumerate() {
            if number == at {
                replayed = StateTransactions::decode(&live.encode()).unwrap();
                prop_assert_eq!(&replayed, &live);
            }
            let mut out = BytesMut::new();
            change.encode_into(&mut out);
            let read = StateChange::decode_from(&mut &out[..]).unwrap();
            prop_assert_eq!(&read, change);
            live.apply(change);
            replayed.apply(&read);
        }
        prop_assert_eq!(replayed, live);
    }

    #[test]
    fn decode_rejects_or_reads_damaged_bytes(
        entries in prop::collection::vec(entry(), 0..10), changes in prop::collection::vec(change(), 0..10),
        cut in any::<prop::sample::Index>(), flip in any::<(prop::sample::Index, u8)>(),
    ) {
        let mut owner = Owner::default();
        entries.into_iter().for_each(|(kind, batches)| owner.entry(kind, batches));
        changes.iter().for_each(|change| owner.state.apply(change));
        let mut bytes = owner.log.encode().to_vec();
        prop_assert!(LogTransactions::decode_from(&mut &bytes[..cut.index(bytes.len())]).is_err());
        let place = flip.0.index(bytes.len());
        bytes[place] ^= flip.1;
        if let Ok(read) = LogTransactions::decode_from(&mut &bytes[..]) {
            prop_assert_eq!(LogTransactions::decode_from(&mut &read.encode()[..]).unwrap(), read);
        }
        let mut bytes = owner.state.encode().to_vec();
        prop_assert!(StateTransactions::decode(&bytes[..cut.index(bytes.len())]).is_err());
        let place = flip.0.index(bytes.len());
        bytes[place] ^= flip.1;
        if let Ok(read) = StateTransactions::decode(&bytes) {
            prop_assert_eq!(StateTransactions::decode(&read.encode()).unwrap(), read);
        }
    }
}

#[test]
fn counts_that_lie_are_refused_before_anything_is_allocated() {
    let log = [&[1][..], &[0; 8], &u32::MAX.to_le_bytes()].concat();
    let refused = LogTransactions::decode_from(&mut &log[..]);
    assert!(matches!(refused, Err(RecordError::CutOff { .. })));
    let state = [&[1][..], &u32::MAX.to_le_bytes()].concat();
    let refused = StateTransactions::decode(&state);
    assert!(matches!(refused, Err(RecordError::CutOff { .. })));
    let staged = [&[0][..], &[0; 18], &u32::MAX.to_le_bytes()].concat();
    let refused = StateChange::decode_from(&mut &staged[..]);
    assert!(matches!(refused, Err(RecordError::CutOff { .. })));
    assert!(matches!(
        StateChange::decode_from(&mut &[7][..]),
        Err(RecordError::Field { .. })
    ));
}
