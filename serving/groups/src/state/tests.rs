//! Live equals replay, and bytes that lie.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hulse_proto::id::{Offset, PartitionId, TopicId};
use proptest::prelude::*;
use uuid::Uuid;

use super::*;
use crate::request::{Client, Protocol};
use crate::topics::Partitions;

fn text() -> impl Strategy<Value = Arc<str>> {
    prop::sample::select(vec!["", "a", "b", "c", "ä-long-name"]).prop_map(Arc::from)
}

fn partition() -> impl Strategy<Value = PartitionId> {
    (0..3_u128, 0..6_u32).prop_map(|(topic, index)| PartitionId {
        topic: TopicId(Uuid::from_u128(topic)),
        index,
    })
}

fn partitions() -> impl Strategy<Value = Partitions> {
    prop::collection::btree_set(partition(), 0..5)
}

fn client() -> impl Strategy<Value = Client> {
    (text(), text()).prop_map(|(id, host)| Client { id, host })
}

fn protocols() -> impl Strategy<Value = Vec<Protocol>> {
    let bytes = prop::collection::vec(any::<u8>(), 0..9);
    let protocol = (text(), bytes).prop_map(|(name, metadata)| Protocol {
        name,
        metadata: metadata.into(),
    });
    prop::collection::vec(protocol, 0..3)
}

prop_compose! {
    fn classic_member()(
        instance in prop::option::of(text()), client in client(), session_ms in any::<u32>(),
        rebalance_ms in any::<u32>(), protocols in protocols(), assignment in prop::collection::vec(any::<u8>(), 0..9),
    ) -> ClassicMember {
        ClassicMember { instance, client, session_ms, rebalance_ms, protocols, assignment: assignment.into() }
    }
}

prop_compose! {
    fn classic_group()(
        generation in any::<i32>(), protocol_type in text(), protocol in text(), leader in text(),
        members in prop::collection::btree_map(text(), classic_member(), 0..4),
    ) -> ClassicGroup {
        ClassicGroup { generation, protocol_type, protocol, leader, members }
    }
}

prop_compose! {
    fn facts()(
        instance in prop::option::of(text()), rack in prop::option::of(text()), client in client(),
        rebalance_ms in any::<u32>(), topics in prop::collection::btree_set(text(), 0..3),
        pattern in prop::option::of(text()), assignor in prop::option::of(text()),
        classic in prop::option::of((any::<u32>(), protocols())),
    ) -> MemberFacts {
        let classic = classic.map(|(session_ms, protocols)| ClassicFacts { session_ms, protocols });
        MemberFacts { instance, rack, client, rebalance_ms, topics, pattern, assignor, classic }
    }
}

prop_compose! {
    fn current()(
        epoch in any::<i32>(), previous_epoch in any::<i32>(), state in 0..3_usize,
        assigned in prop::collection::btree_map(partition(), any::<i32>(), 0..4), revoking in partitions(),
    ) -> Current {
        let state = [MemberState::Stable, MemberState::Unrevoked, MemberState::Unreleased][state];
        Current { epoch, previous_epoch, state, assigned, revoking }
    }
}

fn change() -> impl Strategy<Value = Change> {
    let topics = prop::collection::btree_map(0..3_u128, any::<u32>(), 0..3);
    let topics = topics.prop_map(|topics| -> BTreeMap<TopicId, u32> {
        let topics = topics.into_iter();
        topics
            .map(|(topic, count)| (TopicId(Uuid::from_u128(topic)), count))
            .collect()
    });
    let offset = (
        any::<u64>(),
        any::<i32>(),
        prop::option::of(text()),
        any::<i64>(),
    );
    let offset = offset.prop_map(|(offset, leader_epoch, metadata, at)| CommittedOffset {
        offset: Offset(offset),
        leader_epoch,
        metadata,
        at,
    });
    prop_oneof![
        (any::<i64>(), classic_group()).prop_map(|(at, group)| Change::Classic { at, group }),
        (any::<i64>(), any::<i32>(), text(), topics).prop_map(|(at, epoch, assignor, topics)| {
            Change::Epoch {
                at,
                epoch,
                assignor,
                topics,
            }
        }),
        (text(), facts()).prop_map(|(member, facts)| Change::Member { member, facts }),
        (
            any::<i32>(),
            prop::collection::btree_map(text(), partitions(), 0..3)
        )
            .prop_map(|(epoch, members)| Change::Target { epoch, members }),
        (text(), current()).prop_map(|(member, current)| Change::Current { member, current }),
        (any::<i64>(), text()).prop_map(|(at, member)| Change::MemberGone { at, member }),
        (partition(), offset)
            .prop_map(|(partition, offset)| Change::Committed { partition, offset }),
        partition().prop_map(|partition| Change::OffsetGone { partition }),
        Just(Change::Gone),
    ]
}

fn deltas() -> impl Strategy<Value = Vec<Delta>> {
    let delta = prop::collection::vec((text(), change()), 0..6).prop_map(Delta);
    prop::collection::vec(delta, 0..12)
}

proptest! {
    /// B2.2: whatever the deltas, the fold of their bytes is the state of the one who wrote them, from any snapshot on.
    #[test]
    fn replay_equals_live_from_any_snapshot(deltas in deltas(), at in any::<prop::sample::Index>()) {
        let at = at.index(deltas.len() + 1);
        let mut live = ShardState::default();
        let mut replayed = ShardState::default();
        for (number, delta) in deltas.iter().enumerate() {
            if number == at {
                replayed = ShardState::decode(&live.encode()).unwrap();
            }
            live.apply(delta);
            replayed.apply(&Delta::decode(&delta.encode()).unwrap());
        }
        prop_assert_eq!(&ShardState::decode(&live.encode()).unwrap(), &live);
        prop_assert_eq!(replayed, live);
    }

    #[test]
    fn roundtrip_delta(deltas in deltas()) {
        for delta in deltas {
            prop_assert_eq!(Delta::decode(&delta.encode()).unwrap(), delta);
        }
    }

    /// Bytes that are cut off or changed are refused, or read as something that is written as the same bytes again.
    #[test]
    fn decode_rejects_or_reads_damaged_bytes(
        deltas in deltas(), cut in any::<prop::sample::Index>(), flip in any::<(prop::sample::Index, u8)>(),
    ) {
        let mut state = ShardState::default();
        deltas.iter().for_each(|delta| state.apply(delta));
        let mut bytes = state.encode().to_vec();
        prop_assert!(ShardState::decode(&bytes[..cut.index(bytes.len())]).is_err());
        let place = flip.0.index(bytes.len());
        bytes[place] ^= flip.1;
        if let Ok(read) = ShardState::decode(&bytes) {
            prop_assert_eq!(&ShardState::decode(&read.encode()).unwrap(), &read);
        }
        for delta in &deltas {
            let mut bytes = delta.encode().to_vec();
            let place = flip.0.index(bytes.len());
            bytes[place] ^= flip.1;
            if let Ok(read) = Delta::decode(&bytes) {
                prop_assert_eq!(&Delta::decode(&read.encode()).unwrap(), &read);
                state.apply(&read);
            }
        }
    }

    #[test]
    fn decode_rejects_or_reads_any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..96)) {
        let versioned = [&[1], &bytes[..]].concat();
        let _ = (Delta::decode(&versioned), ShardState::decode(&versioned));
        prop_assert!(bytes.is_empty() || bytes[0] == 1 || Delta::decode(&bytes).is_err());
    }
}

#[test]
fn counts_that_lie_are_refused_before_anything_is_allocated() {
    let huge = [&[1][..], &u32::MAX.to_le_bytes()].concat();
    assert!(matches!(
        ShardState::decode(&huge),
        Err(RecordError::CutOff { .. })
    ));
    let target = [&[1, 3, 1, 0, b'g', 0, 0, 0, 0][..], &u32::MAX.to_le_bytes()].concat();
    assert!(matches!(
        Delta::decode(&target),
        Err(RecordError::CutOff { .. })
    ));
    assert_eq!(Delta::decode(&[9]), Err(RecordError::Version(9)));
}

#[test]
fn partition_that_moves_on_has_one_holder() {
    let part = |index| PartitionId {
        topic: TopicId(Uuid::from_u128(1)),
        index,
    };
    let group: Arc<str> = "g".into();
    let mut state = ShardState::default();
    let mut say = |change| state.apply(&Delta(vec![(group.clone(), change)]));
    for member in ["a", "b"] {
        say(Change::Member {
            member: member.into(),
            facts: MemberFacts::default(),
        });
    }
    let has = |assigned: &[u32], revoking: &[u32]| Current {
        assigned: assigned.iter().map(|index| (part(*index), 1)).collect(),
        revoking: revoking
            .iter()
            .map(|index| part(*index))
            .collect::<BTreeSet<_>>(),
        ..Current::default()
    };
    let current = |member: &str, current| Change::Current {
        member: member.into(),
        current,
    };
    say(current("a", has(&[0], &[1])));
    say(current("a", has(&[0], &[])));
    say(current("b", has(&[1], &[])));
    let GroupKind::Consumer(consumer) = &state.group("g").unwrap().kind else {
        panic!("it is of the newer protocol");
    };
    let holders = [0, 1, 2].map(|index| consumer.holder(part(index)).map(|id| id.to_string()));
    assert_eq!(holders, [Some("a".into()), Some("b".into()), None]);
}
