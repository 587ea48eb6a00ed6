//! Both protocols in one group (serving.md B7, test 19 of F2).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::tests::{member, parts, world_epoch};
use crate::embedded::decode_assignment;
use crate::testing::{
    World, at, beat, commit_of, join, joins, protocol, stays, subscription, sync,
};
use crate::{Answer, GroupError, GroupState, GroupType, Join, Joined, Leave, Leaver, Request};

fn classic(world: &mut World, id: &str, owned: &[u32]) -> Result<Joined, GroupError> {
    let owned = match owned {
        [] => BTreeMap::new(),
        some => [(Arc::from("t1"), some.to_vec())].into(),
    };
    let request = Join {
        protocols: vec![protocol(
            "cooperative-sticky",
            subscription(&["t1"], &owned),
        )],
        ..join("g", id)
    };
    let id = world.send(Request::Join(Box::new(request)));
    match world.take(id) {
        Some(Answer::Joined(answer)) => answer,
        other => panic!("{other:?}"),
    }
}

fn synced(world: &mut World, joined: &Joined) -> BTreeSet<u32> {
    match world.ask(sync("g", &joined.member, joined.generation, &[])) {
        Answer::Synced(Ok(answer)) => {
            let read = decode_assignment(&answer.assignment).unwrap();
            read.into_iter().map(|(_, index)| index).collect()
        }
        other => panic!("{other:?}"),
    }
}

/// A classic group of one member with all four partitions.
fn classic_one(world: &mut World) -> Arc<str> {
    let request = Join {
        protocols: vec![protocol(
            "cooperative-sticky",
            subscription(&["t1"], &BTreeMap::new()),
        )],
        ..join("g", "")
    };
    let id = world.send(Request::Join(Box::new(request)));
    world.pass(3_000);
    let Some(Answer::Joined(Ok(joined))) = world.take(id) else {
        panic!("it did not join");
    };
    let all = [(Arc::from("t1"), vec![0, 1, 2, 3])].into();
    let bytes = crate::embedded::encode_assignment(&all);
    world.ask(Request::Sync(crate::Sync {
        group: "g".into(),
        member: joined.member.clone(),
        instance: None,
        generation: 1,
        protocol_type: None,
        protocol: None,
        assignments: vec![(joined.member.clone(), bytes)],
    }));
    joined.member
}

/// B7, test 19: a group becomes one of the newer protocol while a classic member works, and classic again.
#[test]
fn group_migrates_there_and_back_while_members_work() {
    let mut world = World::new(&[4]);
    let old = classic_one(&mut world);
    let new = member(&mut world, joins("g", "n")).unwrap();
    assert_eq!((new.epoch, new.assigned), (2, Some(parts([]))));
    assert_eq!(world.describe("g").listing.kind, GroupType::Consumer);
    assert_eq!(
        world.ask(beat("g", &old, 1)),
        Answer::Beat(Err(GroupError::RebalanceInProgress))
    );
    let first = classic(&mut world, &old, &[0, 1, 2, 3]).unwrap();
    assert_eq!(first.generation, 1, "it has to give up first");
    let kept = synced(&mut world, &first);
    assert_eq!(kept.len(), 2);
    assert_eq!(
        world.ask(beat("g", &old, 1)),
        Answer::Beat(Err(GroupError::RebalanceInProgress))
    );
    let kept: Vec<u32> = kept.into_iter().collect();
    let second = classic(&mut world, &old, &kept).unwrap();
    assert_eq!(second.generation, 2);
    assert_eq!(synced(&mut world, &second).len(), 2);
    assert_eq!(world.ask(beat("g", &old, 2)), Answer::Beat(Ok(())));
    assert_eq!(
        member(&mut world, stays("g", "n", 2))
            .unwrap()
            .assigned
            .unwrap()
            .len(),
        2
    );
    assert_eq!(
        world.commit(commit_of("g", &old, 2, at(1, kept[0]), 4)),
        Ok(vec![Ok(())])
    );
    world.moves_now();
    member(&mut world, stays("g", "n", -1)).unwrap();
    let description = world.describe("g");
    assert_eq!(description.listing.kind, GroupType::Classic);
    assert_eq!(description.listing.state, GroupState::PreparingRebalance);
    assert_eq!(
        world.ask(beat("g", &old, 2)),
        Answer::Beat(Err(GroupError::RebalanceInProgress))
    );
    let id = world.send(Request::Join(Box::new(Join {
        protocols: vec![protocol(
            "cooperative-sticky",
            subscription(&["t1"], &BTreeMap::new()),
        )],
        ..join("g", &old)
    })));
    let Some(Answer::Joined(Ok(back))) = world.take(id) else {
        panic!("it did not join");
    };
    assert!(back.generation > 2);
    assert_eq!(back.leader, old);
}

#[test]
fn classic_member_that_does_not_come_back_is_out() {
    let mut world = World::new(&[4]);
    let old = classic_one(&mut world);
    member(&mut world, joins("g", "n")).unwrap();
    let told = world.ask(beat("g", &old, 1));
    assert_eq!(told, Answer::Beat(Err(GroupError::RebalanceInProgress)));
    for _ in 0..6 {
        world.pass(5_000);
        let epoch = world_epoch(&world, "n");
        member(&mut world, stays("g", "n", epoch)).unwrap();
        let _ = world.ask(beat("g", &old, 1));
    }
    let epoch = world_epoch(&world, "n");
    let all = member(&mut world, stays("g", "n", epoch)).unwrap();
    assert_eq!(all.epoch, 3);
    assert_eq!(
        world.ask(beat("g", &old, 1)),
        Answer::Beat(Err(GroupError::UnknownMember))
    );
}

#[test]
fn classic_members_leave_a_group_of_the_newer_protocol_by_their_own_request() {
    let mut world = World::new(&[4]);
    let old = classic_one(&mut world);
    member(&mut world, joins("g", "n")).unwrap();
    let members = vec![Leaver {
        member: old,
        instance: None,
    }];
    let left = world.ask(Request::Leave(Leave {
        group: "g".into(),
        members: members.clone(),
    }));
    assert_eq!(left, Answer::Left(Ok(vec![(members[0].clone(), Ok(()))])));
    let got = member(&mut world, stays("g", "n", 2)).unwrap();
    assert_eq!(got.assigned, Some(parts(0..4)));
}

#[test]
fn group_of_opaque_bytes_is_not_migrated() {
    let mut world = World::new(&[4]);
    let other = Join {
        protocol_type: "connect".into(),
        protocols: vec![protocol("v0", "x")],
        ..join("g", "")
    };
    world.send(Request::Join(Box::new(other)));
    let refused = member(&mut world, joins("g", "n"));
    assert_eq!(refused, Err(GroupError::InconsistentProtocol));
}
