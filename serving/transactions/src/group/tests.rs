//! Offsets of transactions by their rules, and their forms on disk.

use std::sync::Arc;

use bytes::BytesMut;
use hulse_proto::id::{Offset, PartitionId, ProducerId, TopicId};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::{Marker, Producer, RecordError, TxnError, Version};

fn producer(id: i64, epoch: i16) -> Producer {
    Producer {
        id: ProducerId(id),
        epoch,
    }
}

fn part(index: u32) -> PartitionId {
    PartitionId {
        topic: TopicId(Uuid::from_u128(1)),
        index,
    }
}

fn offset(offset: u64) -> StagedOffset {
    StagedOffset {
        offset: Offset(offset),
        leader_epoch: 3,
        metadata: Some("m".into()),
        at: 5,
    }
}

fn staged(producer: Producer, index: u32, to: u64) -> StageChange {
    StageChange::Staged {
        at: 0,
        producer,
        group: "g".into(),
        offsets: vec![(part(index), offset(to))],
    }
}

fn settled(producer: Producer, commit: bool, serial: u32) -> StageChange {
    let marker = Marker {
        producer,
        commit,
        coordinator_epoch: 1,
        version: Version::Tv2,
        serial,
    };
    StageChange::Settled { at: 0, marker }
}

fn overtaken(index: u32) -> StageChange {
    StageChange::Overtaken {
        group: "g".into(),
        partition: part(index),
    }
}

fn offsets(committed: &[Committed]) -> Vec<u64> {
    let offsets = committed.iter().map(|committed| committed.offset.offset.0);
    offsets.collect()
}

#[test]
fn staged_offset_is_unstable_until_its_transaction_is_decided() {
    let group: Arc<str> = "g".into();
    for commit in [true, false] {
        let mut stages = OffsetStages::default();
        stages.apply(&staged(producer(1, 0), 0, 7));
        assert!(stages.is_unstable(&group, part(0)) && stages.holds(&group));
        assert!(!stages.is_unstable(&group, part(1)));
        let committed = stages.apply(&settled(producer(1, 1), commit, 1));
        let expected: &[u64] = if commit { &[7] } else { &[] };
        assert_eq!(offsets(&committed), expected);
        assert!(!stages.is_unstable(&group, part(0)) && !stages.holds(&group));
    }
}

#[test]
fn commit_that_was_recorded_last_wins() {
    let mut stages = OffsetStages::default();
    stages.apply(&staged(producer(1, 0), 0, 7));
    stages.apply(&staged(producer(1, 0), 1, 8));
    // A plain commit comes in between, for one of the two.
    stages.apply(&overtaken(0));
    let committed = stages.apply(&settled(producer(1, 1), true, 1));
    assert_eq!(offsets(&committed), [8]);
    // Of two transactions the one that staged later, also if it is decided first.
    stages.apply(&staged(producer(1, 1), 0, 10));
    stages.apply(&staged(producer(2, 0), 0, 11));
    assert_eq!(
        offsets(&stages.apply(&settled(producer(2, 1), true, 1))),
        [11]
    );
    assert_eq!(
        offsets(&stages.apply(&settled(producer(1, 2), true, 2))),
        [0_u64; 0]
    );
    // What it staged again behind the plain commit counts.
    stages.apply(&staged(producer(3, 0), 0, 20));
    stages.apply(&overtaken(0));
    stages.apply(&staged(producer(3, 0), 0, 21));
    assert_eq!(
        offsets(&stages.apply(&settled(producer(3, 1), true, 1))),
        [21]
    );
    // One that is aborted overtakes nothing.
    stages.apply(&staged(producer(4, 0), 0, 30));
    stages.apply(&staged(producer(5, 0), 0, 31));
    stages.apply(&settled(producer(5, 1), false, 1));
    assert_eq!(
        offsets(&stages.apply(&settled(producer(4, 1), true, 1))),
        [30]
    );
}

#[test]
fn first_stage_waits_for_the_coordinator_and_a_fenced_one_is_refused() {
    let (mut stages, mut door) = (OffsetStages::default(), StageDoor::default());
    let one = producer(1, 1);
    let ticket = door.judge(&stages, one, 1).unwrap().expect("it waits");
    assert_eq!(door.judge(&stages, one, 1), Ok(Some(ticket)));
    assert!(door.verified(one, ticket, true));
    assert_eq!(door.judge(&stages, one, 1), Ok(None));
    stages.apply(&staged(one, 0, 7));
    door.staged(one);
    assert_eq!(door.judge(&stages, one, 1), Ok(None));
    let judged = door.judge(&stages, producer(1, 0), 1);
    assert!(matches!(judged, Err(TxnError::Fenced { .. })));
    let judged = door.judge(&stages, one, 100_000);
    assert!(matches!(judged, Err(TxnError::TooMany { .. })));
    // A marker drops the guard of what would come behind it.
    let late = producer(2, 0);
    let ticket = door.judge(&stages, late, 1).unwrap().expect("it waits");
    let StageChange::Settled { marker, .. } = settled(late.bumped(), false, 1) else {
        panic!("it is a marker");
    };
    assert_eq!(door.judge_marker(&stages, &marker), Ok(true));
    assert!(!door.verified(late, ticket, true));
}

#[test]
fn marker_that_comes_again_or_from_the_past_changes_nothing() {
    let (mut stages, mut door) = (OffsetStages::default(), StageDoor::default());
    let one = producer(1, 0);
    let end = |version, serial, coordinator_epoch| Marker {
        producer: one,
        commit: true,
        coordinator_epoch,
        version,
        serial,
    };
    stages.apply(&staged(one, 0, 7));
    assert_eq!(
        door.judge_marker(&stages, &end(Version::Tv1, 1, 2)),
        Ok(true)
    );
    let marker = end(Version::Tv1, 1, 2);
    stages.apply(&StageChange::Settled { at: 0, marker });
    stages.apply(&staged(one, 0, 8));
    assert_eq!(door.judge_marker(&stages, &marker), Ok(false));
    let refused = TxnError::CoordinatorFenced { found: 1, known: 2 };
    assert_eq!(
        door.judge_marker(&stages, &end(Version::Tv1, 2, 1)),
        Err(refused)
    );
    let open = door.judge_marker(&stages, &end(Version::Tv2, 2, 2));
    assert!(matches!(open, Err(TxnError::Fenced { .. })));
    assert_eq!(
        door.judge_marker(&stages, &end(Version::Tv1, 2, 2)),
        Ok(true)
    );
}

#[test]
fn what_is_staged_goes_with_its_group_and_its_topic() {
    let group: Arc<str> = "g".into();
    for gone in [
        StageChange::GroupGone(group.clone()),
        StageChange::TopicGone(part(0).topic),
    ] {
        let mut stages = OffsetStages::default();
        stages.apply(&staged(producer(1, 0), 0, 7));
        stages.apply(&gone);
        assert!(!stages.is_unstable(&group, part(0)));
        assert_eq!(stages.apply(&settled(producer(1, 1), true, 1)), []);
    }
}

#[test]
fn producer_is_forgotten_a_day_after_its_last_offset() {
    let mut stages = OffsetStages::default();
    stages.apply(&settled(producer(1, 0), true, 1));
    let mut late = settled(producer(2, 0), true, 1);
    if let StageChange::Settled { at, .. } = &mut late {
        *at = 24 * 3600 * 1000 + 1;
    }
    stages.apply(&late);
    assert!(stages.get(ProducerId(1)).is_none() && stages.get(ProducerId(2)).is_some());
}

fn change() -> impl Strategy<Value = StageChange> {
    let producers = || (0..3_i64, 0..4_i16).prop_map(|(id, epoch)| producer(id, epoch));
    let stage =
        (producers(), 0..3_u32, any::<u64>()).prop_map(|(p, index, to)| staged(p, index, to));
    let settle = (producers(), any::<bool>(), 0..5_u32);
    let settle = settle.prop_map(|(producer, commit, serial)| settled(producer, commit, serial));
    prop_oneof![
        4 => stage,
        3 => settle,
        2 => (0..3_u32).prop_map(overtaken),
        1 => Just(StageChange::GroupGone("g".into())),
        1 => Just(StageChange::TopicGone(part(0).topic)),
    ]
}

proptest! {
    #[test]
    fn replay_equals_live_from_any_snapshot(
        changes in prop::collection::vec(change(), 0..40), at in any::<prop::sample::Index>(),
    ) {
        let at = at.index(changes.len() + 1);
        let (mut live, mut replayed) = (OffsetStages::default(), OffsetStages::default());
        for (number, change) in changes.iter().enumerate() {
            if number == at {
                replayed = OffsetStages::decode(&live.encode()).unwrap();
                prop_assert_eq!(&replayed, &live);
            }
            let mut out = BytesMut::new();
            change.encode_into(&mut out);
            let read = StageChange::decode_from(&mut &out[..]).unwrap();
            prop_assert_eq!(&read, change);
            prop_assert_eq!(live.apply(change), replayed.apply(&read));
        }
        prop_assert_eq!(replayed, live);
    }

    #[test]
    fn decode_rejects_or_reads_damaged_bytes(
        changes in prop::collection::vec(change(), 0..10), cut in any::<prop::sample::Index>(),
        flip in any::<(prop::sample::Index, u8)>(),
    ) {
        let mut stages = OffsetStages::default();
        for change in &changes {
            stages.apply(change);
            let mut out = BytesMut::new();
            change.encode_into(&mut out);
            let place = flip.0.index(out.len());
            out[place] ^= flip.1;
            if let Ok(read) = StageChange::decode_from(&mut &out[..]) {
                stages.apply(&read);
            }
        }
        let mut bytes = stages.encode().to_vec();
        prop_assert!(OffsetStages::decode(&bytes[..cut.index(bytes.len())]).is_err());
        let place = flip.0.index(bytes.len());
        bytes[place] ^= flip.1;
        if let Ok(read) = OffsetStages::decode(&bytes) {
            prop_assert_eq!(OffsetStages::decode(&read.encode()).unwrap(), read);
        }
    }
}

#[test]
fn counts_that_lie_are_refused_before_anything_is_allocated() {
    let huge = [&[1][..], &[0; 8], &u32::MAX.to_le_bytes()].concat();
    let refused = OffsetStages::decode(&huge);
    assert!(matches!(refused, Err(RecordError::CutOff { .. })));
}
