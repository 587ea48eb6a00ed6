//! Assignors: complete, unique, even, sticky.

use proptest::prelude::*;
use uuid::Uuid;

use hulse_proto::id::PartitionId;

use super::*;

fn topic(number: u8) -> TopicId {
    TopicId(Uuid::from_u128(number.into()))
}

fn demand(members: &[(&str, &[u8])], topics: &[(u8, u32)]) -> Demand {
    let members = members.iter().map(|(name, topics)| {
        let topics = topics.iter().map(|number| topic(*number));
        (Arc::from(*name), topics.collect())
    });
    let topics = topics
        .iter()
        .map(|(number, count)| (topic(*number), *count));
    Demand {
        members: members.collect(),
        topics: topics.collect(),
        before: BTreeMap::new(),
    }
}

fn loads(target: &BTreeMap<Arc<str>, Partitions>) -> Vec<usize> {
    target.values().map(BTreeSet::len).collect()
}

#[test]
fn range_gives_neighbours_and_cuts_equal_topics_alike() {
    let target = assign(
        RANGE,
        &demand(&[("a", &[1, 2]), ("b", &[1, 2])], &[(1, 5), (2, 5)]),
    );
    let indexes = |member: &str, number| -> Vec<u32> {
        let own = target[member].iter();
        let own = own.filter(|partition| partition.topic == topic(number));
        own.map(|partition| partition.index).collect()
    };
    assert_eq!(indexes("a", 1), [0, 1, 2]);
    assert_eq!(indexes("b", 1), [3, 4]);
    assert_eq!(indexes("a", 1), indexes("a", 2));
}

#[test]
fn range_gives_only_to_subscribed_members() {
    let target = assign(
        RANGE,
        &demand(&[("a", &[1]), ("b", &[2])], &[(1, 2), (2, 3)]),
    );
    assert_eq!(loads(&target), [2, 3]);
}

#[test]
fn uniform_moves_no_more_than_a_joining_member_needs() {
    let mut world = demand(&[("a", &[1]), ("b", &[1])], &[(1, 9)]);
    world.before = assign(UNIFORM, &world);
    assert_eq!(loads(&world.before), [5, 4]);
    world.members.insert("c".into(), [topic(1)].into());
    let after = assign(UNIFORM, &world);
    assert_eq!(loads(&after), [3, 3, 3]);
    assert!(after["a"].is_subset(&world.before["a"]));
    assert!(after["b"].is_subset(&world.before["b"]));
}

#[test]
fn uniform_leaves_members_beyond_the_partitions_without_any() {
    let target = assign(
        UNIFORM,
        &demand(&[("a", &[1]), ("b", &[1]), ("c", &[1])], &[(1, 2)]),
    );
    assert_eq!(loads(&target), [1, 1, 0]);
}

fn worlds() -> impl Strategy<Value = Demand> {
    let members = prop::collection::vec(prop::collection::btree_set(0..4_u8, 0..4), 1..8);
    let before = prop::collection::vec((0..8_u8, 0..5_u8, 0..12_u32), 0..30);
    (members, prop::collection::vec(0..12_u32, 4), before).prop_map(|(members, topics, before)| {
        let members = members.into_iter().enumerate().map(|(number, topics)| {
            let topics = topics.into_iter().map(topic);
            (Arc::from(format!("m{number}")), topics.collect())
        });
        let mut demand = Demand {
            members: members.collect(),
            topics: (0..4).map(topic).zip(topics).collect(),
            before: BTreeMap::new(),
        };
        let mut taken = Partitions::new();
        for (member, number, index) in before {
            let partition = PartitionId {
                topic: topic(number),
                index,
            };
            if taken.insert(partition) {
                let name = Arc::from(format!("m{member}"));
                demand.before.entry(name).or_default().insert(partition);
            }
        }
        demand
    })
}

proptest! {
    /// B7: each partition of a subscribed topic has exactly one member, which is subscribed to it.
    #[test]
    fn every_partition_goes_to_one_subscribed_member(world in worlds(), which in 0..2_usize) {
        let target = assign(ALL[which], &world);
        prop_assert_eq!(target.keys().collect::<Vec<_>>(), world.members.keys().collect::<Vec<_>>());
        for (topic, count) in &world.topics {
            let wanted = world.members.values().any(|topics| topics.contains(topic));
            for index in 0..*count {
                let partition = PartitionId { topic: *topic, index };
                let owners = target.iter().filter(|(_, has)| has.contains(&partition));
                prop_assert_eq!(owners.count(), usize::from(wanted));
            }
        }
        for (member, has) in &target {
            prop_assert!(has.iter().all(|p| world.members[member].contains(&p.topic)));
        }
    }

    /// B7: what moves is what one that comes gets, or one that goes had; nothing goes from one that stays to another that stays.
    #[test]
    fn uniform_moves_only_what_comes_and_goes(members in 1..12_usize, partitions in 0..60_u32) {
        let names: Vec<String> = (0..=members).map(|number| format!("m{number:02}")).collect();
        let all: Vec<(&str, &[u8])> = names.iter().map(|name| (&**name, &[1][..])).collect();
        let mut world = demand(&all[..members], &[(1, partitions)]);
        world.before = assign(UNIFORM, &world);
        world.members.insert(names[members].as_str().into(), [topic(1)].into());
        let more = assign(UNIFORM, &world);
        for (member, had) in &world.before {
            prop_assert!(more[member].is_subset(had), "{member} had {had:?} of {more:?}");
        }
        let gone = world.members.pop_first().unwrap().0;
        world.before = more.clone();
        let fewer = assign(UNIFORM, &world);
        for (member, has) in &fewer {
            prop_assert!(more[member].is_subset(has), "{member} had {:?} when {gone} went", more[member]);
        }
    }

    /// Runner-up of serving.md F1.25: an uneven result is a fault.
    #[test]
    fn uniform_is_even_sticky_and_settled(world in worlds()) {
        let target = assign(UNIFORM, &world);
        for (member, has) in &target {
            for partition in has {
                for (other, topics) in &world.members {
                    let may = topics.contains(&partition.topic);
                    prop_assert!(!may || target[other].len() + 1 >= has.len(), "{member} could give to {other}");
                }
            }
        }
        let again = assign(UNIFORM, &Demand { before: target.clone(), ..world });
        prop_assert_eq!(again, target);
    }
}
