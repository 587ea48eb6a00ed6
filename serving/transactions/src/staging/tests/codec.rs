//! Live equals replay, and bytes that lie.

use hulse_proto::id::{Offset, ProducerId};
use proptest::prelude::*;

use super::world::target;
use crate::staging::*;
use crate::{Producer, RecordError};

fn id() -> impl Strategy<Value = ItemId> {
    (0..4_u64, 0..2_u64).prop_map(|(first, nonce)| ItemId {
        first: Offset(first),
        nonce,
    })
}

fn item() -> impl Strategy<Value = Item> {
    let kind = prop_oneof![
        Just(Kind::Scheduled),
        ("[a-c]{1,3}", 1..9_u16).prop_map(|(group, checks_max)| Kind::Half {
            group: group.into(),
            checks_max,
        }),
    ];
    let numbers = (0..9_u64, any::<i64>(), any::<i64>(), 0..9_u16);
    (kind, 0..3_u8, numbers).prop_map(|(kind, to, (place, made_at, due, checks))| Item {
        kind,
        target: target(to),
        place: Offset(place),
        made_at,
        due,
        checks,
        status: Status::Waiting,
    })
}

fn change() -> impl Strategy<Value = Change> {
    let decisions = [Decision::Commit, Decision::Rollback, Decision::Discard];
    let decided = (id(), prop::sample::select(decisions.to_vec()), any::<i64>());
    let topics = prop::collection::btree_set((0..3_u8).prop_map(|to| target(to).topic), 0..2);
    prop_oneof![
        1 => (0..9_i64).prop_map(|id| Change::Publisher(Producer::first(ProducerId(id)))),
        6 => (id(), item()).prop_map(|(id, item)| Change::Added(id, item)),
        5 => decided.prop_map(|(id, decision, forget_at)| Change::Decided { id, decision, forget_at }),
        2 => (id(), 0..9_u16, any::<i64>()).prop_map(|(id, checks, due)| Change::Checked { id, checks, due }),
        4 => (id(), 0..20_i32).prop_map(|(id, sequence)| Change::Publishing { id, sequence }),
        3 => (id(), any::<i64>()).prop_map(|(id, forget_at)| Change::Done { id, forget_at }),
        1 => topics.prop_map(Change::TargetsGone),
        2 => (id(), 0..99_u64).prop_map(|(id, place)| Change::Renewed { id, place: Offset(place) }),
        1 => (id(), any::<i64>()).prop_map(|(id, due)| Change::Resumed { id, due }),
        1 => id().prop_map(Change::Forgotten),
    ]
}

fn deltas() -> impl Strategy<Value = Vec<Delta>> {
    let delta = prop::collection::vec(change(), 0..6).prop_map(Delta);
    prop::collection::vec(delta, 0..12)
}

proptest! {
    #[test]
    fn replay_equals_live_from_any_snapshot(deltas in deltas(), at in any::<prop::sample::Index>()) {
        let at = at.index(deltas.len() + 1);
        let (mut live, mut replayed) = (StagingState::default(), StagingState::default());
        for (number, delta) in deltas.iter().enumerate() {
            if number == at {
                replayed = StagingState::decode(&live.encode()).unwrap();
                prop_assert_eq!(&replayed, &live);
            }
            live.apply(delta);
            let read = Delta::decode(&delta.encode()).unwrap();
            prop_assert_eq!(&read, delta);
            replayed.apply(&read);
            let held = live.iter().filter(|(_, item)| item.status.needs_payload());
            prop_assert_eq!(live.held_from(), held.map(|(_, item)| item.place).min());
        }
        prop_assert_eq!(replayed, live);
    }

    #[test]
    fn decode_rejects_or_reads_damaged_bytes(
        deltas in deltas(), cut in any::<prop::sample::Index>(), flip in any::<(prop::sample::Index, u8)>(),
    ) {
        let mut state = StagingState::default();
        for delta in &deltas {
            state.apply(delta);
            let mut bytes = delta.encode().to_vec();
            let place = flip.0.index(bytes.len());
            bytes[place] ^= flip.1;
            if let Ok(read) = Delta::decode(&bytes) {
                prop_assert_eq!(&Delta::decode(&read.encode()).unwrap(), &read);
                state.apply(&read);
            }
        }
        let mut bytes = state.encode().to_vec();
        prop_assert!(StagingState::decode(&bytes[..cut.index(bytes.len())]).is_err());
        let place = flip.0.index(bytes.len());
        bytes[place] ^= flip.1;
        if let Ok(read) = StagingState::decode(&bytes) {
            prop_assert_eq!(StagingState::decode(&read.encode()).unwrap(), read);
        }
    }
}

#[test]
fn counts_that_lie_are_refused_before_anything_is_allocated() {
    let targets = [&[1][..], &[0; 10], &u32::MAX.to_le_bytes()].concat();
    let refused = StagingState::decode(&targets);
    assert!(matches!(refused, Err(RecordError::CutOff { .. })));
    let topics = [&[1, 6][..], &u32::MAX.to_le_bytes()].concat();
    assert!(matches!(
        Delta::decode(&topics),
        Err(RecordError::CutOff { .. })
    ));
    assert_eq!(Delta::decode(&[2]), Err(RecordError::Version(2)));
}
