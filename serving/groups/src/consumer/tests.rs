//! The newer protocol, rule by rule (serving.md B7, B8; KIP-848).

use crate::testing::{World, at, commit_of, joins, stays};
use crate::{
    Answer, Effect, GroupError, GroupState, GroupsConfig, Input, MemberAnswer, MemberBeat,
    Partitions, Progress, Request,
};

pub(super) fn member(world: &mut World, beat: MemberBeat) -> Result<MemberAnswer, GroupError> {
    match world.ask(Request::Member(Box::new(beat))) {
        Answer::Member(answer) => answer,
        other => panic!("{other:?}"),
    }
}

pub(super) fn parts(indexes: impl IntoIterator<Item = u32>) -> Partitions {
    indexes.into_iter().map(|index| at(1, index)).collect()
}

fn owning(group: &str, id: &str, epoch: i32, owned: &Partitions) -> MemberBeat {
    MemberBeat {
        owned: Some(owned.clone()),
        ..stays(group, id, epoch)
    }
}

/// `a` has all four partitions at epoch 1.
fn one(world: &mut World) {
    let answer = member(world, joins("g", "a")).unwrap();
    assert_eq!((answer.epoch, answer.assigned), (1, Some(parts(0..4))));
}

/// `a` and `b` have two each, at epoch 2.
fn two(world: &mut World) {
    one(world);
    let joined = member(world, joins("g", "b")).unwrap();
    assert_eq!((joined.epoch, joined.assigned), (2, Some(parts([]))));
    let kept = member(world, stays("g", "a", 1)).unwrap();
    let assigned = kept.assigned.unwrap();
    assert_eq!((kept.epoch, assigned.len()), (1, 2));
    let moved = member(world, owning("g", "a", 1, &assigned)).unwrap();
    assert_eq!(moved.epoch, 2);
    let got = member(world, stays("g", "b", 2)).unwrap();
    let all: Partitions = got.assigned.unwrap().union(&assigned).copied().collect();
    assert_eq!(all, parts(0..4));
}

#[test]
fn first_member_gets_everything_at_once() {
    one(&mut World::new(&[4]));
}

#[test]
fn member_without_an_id_gets_one_from_the_coordinator() {
    let mut world = World::new(&[4]);
    let answer = member(&mut world, joins("g", "")).unwrap();
    assert_eq!(answer.member.len(), 36);
    assert!(member(&mut world, stays("g", &answer.member, 1)).is_ok());
}

/// B7: a member gives up before its epoch grows, and nobody gets a partition that another holds.
#[test]
fn partitions_are_given_up_before_they_are_given() {
    two(&mut World::new(&[4]));
}

#[test]
fn member_that_gives_up_keeps_its_epoch_until_it_shows_so() {
    let mut world = World::new(&[4]);
    one(&mut world);
    member(&mut world, joins("g", "b")).unwrap();
    let first = member(&mut world, owning("g", "a", 1, &parts(0..4))).unwrap();
    assert_eq!(first.epoch, 1);
    let still = member(&mut world, owning("g", "a", 1, &parts(0..4))).unwrap();
    assert_eq!((still.epoch, still.assigned), (1, None));
    let waits = member(&mut world, stays("g", "b", 2)).unwrap();
    assert_eq!(waits.assigned, None);
    assert_eq!(world.describe("g").listing.state, GroupState::Reconciling);
}

#[test]
fn member_that_does_not_give_up_in_time_is_fenced() {
    let mut world = World::new(&[4]);
    one(&mut world);
    member(&mut world, joins("g", "b")).unwrap();
    member(&mut world, stays("g", "a", 1)).unwrap();
    for _ in 0..4 {
        world.pass(5_000);
        let _ = member(&mut world, owning("g", "a", 1, &parts(0..4)));
        let epoch = world_epoch(&world, "b");
        let _ = member(&mut world, stays("g", "b", epoch));
    }
    world.pass(1_000);
    let fenced = member(&mut world, owning("g", "a", 1, &parts(0..4)));
    assert_eq!(fenced, Err(GroupError::UnknownMember));
    let epoch = world_epoch(&world, "b");
    let all = member(&mut world, owning("g", "b", epoch, &parts([]))).unwrap();
    assert_eq!(
        world.coordinator.state().group("g").map(|_| all.epoch),
        Some(3)
    );
}

pub(super) fn world_epoch(world: &World, member: &str) -> i32 {
    let group = world.coordinator.consumer_group("g").unwrap();
    group.members[member].current.epoch
}

#[test]
fn session_that_ends_frees_the_partitions() {
    let mut world = World::new(&[4]);
    two(&mut world);
    world.pass(40_000);
    member(&mut world, stays("g", "b", 2)).unwrap();
    world.pass(5_100);
    let got = member(&mut world, stays("g", "b", 2)).unwrap();
    assert_eq!((got.epoch, got.assigned), (3, Some(parts(0..4))));
    let fenced = member(&mut world, stays("g", "a", 2));
    assert_eq!(fenced, Err(GroupError::UnknownMember));
    let late = world.commit(commit_of("g", "a", 2, at(1, 0), 9));
    assert_eq!(
        late,
        Err(GroupError::UnknownMember),
        "GR-05: the late commit is refused"
    );
}

/// B7: a lost answer is no reason to fence.
#[test]
fn epoch_before_is_taken_with_no_more_than_is_assigned() {
    let mut world = World::new(&[4]);
    two(&mut world);
    let kept = world.coordinator.consumer_group("g").unwrap().members["a"]
        .current
        .assigned
        .clone();
    let kept: Partitions = kept.keys().copied().collect();
    let again = member(&mut world, owning("g", "a", 1, &kept)).unwrap();
    assert_eq!((again.epoch, again.assigned), (2, Some(kept)));
    let more = member(&mut world, owning("g", "a", 1, &parts(0..4)));
    assert_eq!(more, Err(GroupError::FencedMemberEpoch));
    let silent = member(&mut world, stays("g", "a", 1));
    assert_eq!(silent, Err(GroupError::FencedMemberEpoch));
    let ahead = member(&mut world, stays("g", "a", 3));
    assert_eq!(ahead, Err(GroupError::FencedMemberEpoch));
}

#[test]
fn commit_needs_an_epoch_that_covers_the_partition() {
    let mut world = World::new(&[4]);
    two(&mut world);
    let group = world.coordinator.consumer_group("g").unwrap();
    let kept = *group.members["a"].current.assigned.keys().next().unwrap();
    let got = *group.members["b"].current.assigned.keys().next().unwrap();
    let mut commit = |member: &str, epoch, partition| {
        world
            .commit(commit_of("g", member, epoch, partition, 7))
            .map(|mut all| all.remove(0))
    };
    assert_eq!(commit("a", 2, kept), Ok(Ok(())));
    assert_eq!(
        commit("a", 1, kept),
        Ok(Ok(())),
        "it had it at that epoch, and has it"
    );
    assert_eq!(commit("b", 1, got), Ok(Err(GroupError::StaleMemberEpoch)));
    assert_eq!(commit("a", 1, got), Ok(Err(GroupError::StaleMemberEpoch)));
    assert_eq!(commit("a", 3, kept), Err(GroupError::StaleMemberEpoch));
    let mut old = commit_of("g", "a", 2, kept, 8);
    old.member_epochs = false;
    assert_eq!(world.commit(old), Err(GroupError::IllegalGeneration));
}

#[test]
fn member_that_leaves_is_gone_and_the_others_get_its_share() {
    let mut world = World::new(&[4]);
    two(&mut world);
    let left = member(&mut world, stays("g", "a", -1)).unwrap();
    assert_eq!(left.epoch, -1);
    assert!(
        world.told.contains(&Effect::Changed("g".into())),
        "B8: pushed at once"
    );
    let got = member(&mut world, stays("g", "b", 2)).unwrap();
    assert_eq!(got.assigned, Some(parts(0..4)));
}

#[test]
fn static_member_keeps_its_place_while_it_is_away() {
    let mut world = World::new(&[4]);
    let fixed = |id: &str, epoch| MemberBeat {
        instance: Some("i".into()),
        epoch,
        ..joins("g", id)
    };
    let first = member(&mut world, fixed("a", 0)).unwrap();
    assert_eq!(first.assigned, Some(parts(0..4)));
    let busy = member(&mut world, fixed("b", 0));
    assert_eq!(busy, Err(GroupError::UnreleasedInstance));
    let away = MemberBeat {
        instance: Some("i".into()),
        ..stays("g", "a", -2)
    };
    assert_eq!(member(&mut world, away).unwrap().epoch, -2);
    world.moves_now();
    let back = member(&mut world, fixed("b", 0)).unwrap();
    assert_eq!(
        (back.epoch, back.assigned),
        (1, Some(parts(0..4))),
        "no new epoch"
    );
    let old = MemberBeat {
        instance: Some("i".into()),
        ..stays("g", "a", 1)
    };
    assert_eq!(member(&mut world, old), Err(GroupError::FencedInstance));
}

#[test]
fn static_member_that_stays_away_is_out_after_its_session() {
    let mut world = World::new(&[4]);
    let fixed = MemberBeat {
        instance: Some("i".into()),
        ..joins("g", "a")
    };
    member(&mut world, fixed).unwrap();
    let away = MemberBeat {
        instance: Some("i".into()),
        ..stays("g", "a", -2)
    };
    member(&mut world, away).unwrap();
    world.pass(45_100);
    assert_eq!(world.describe("g").listing.state, GroupState::Empty);
}

/// GR-02: partitions that are added are given to somebody.
#[test]
fn topics_that_grow_or_come_give_a_new_epoch() {
    let mut world = World::new(&[4]);
    one(&mut world);
    world.set_topics(&[6]);
    let got = member(&mut world, stays("g", "a", 1)).unwrap();
    assert_eq!((got.epoch, got.assigned), (2, Some(parts(0..6))));
    world.set_topics(&[6, 3]);
    let same = member(&mut world, stays("g", "a", 2)).unwrap();
    assert_eq!(
        (same.epoch, same.assigned),
        (2, None),
        "it is of no concern"
    );
}

#[test]
fn pattern_subscribes_to_topics_that_come_later() {
    let mut world = World::new(&[2]);
    let pattern = MemberBeat {
        topics: None,
        pattern: Some("t[0-9]".into()),
        ..joins("g", "a")
    };
    let first = member(&mut world, pattern).unwrap();
    assert_eq!(first.assigned.unwrap().len(), 2);
    world.set_topics(&[2, 3]);
    let more = member(&mut world, stays("g", "a", 1)).unwrap();
    assert_eq!(more.assigned.unwrap().len(), 5);
    let other = MemberBeat {
        pattern: Some("[t1".into()),
        ..joins("g", "b")
    };
    assert_eq!(member(&mut world, other), Err(GroupError::InvalidPattern));
}

#[test]
fn assignor_is_the_one_that_most_ask_for() {
    let mut world = World::new(&[5]);
    let ask = |id: &str, assignor: &str| MemberBeat {
        assignor: Some(assignor.into()),
        ..joins("g", id)
    };
    member(&mut world, ask("a", "range")).unwrap();
    member(&mut world, joins("g", "b")).unwrap();
    assert_eq!(&*world.describe("g").protocol, "range");
    let other = member(&mut world, ask("c", "sticky"));
    assert_eq!(other, Err(GroupError::UnsupportedAssignor));
}

#[test]
fn heartbeats_that_lie_are_refused() {
    let mut world = World::new(&[4]);
    one(&mut world);
    let invalid = |beat| matches!(beat, Err(GroupError::InvalidRequest(_)));
    assert!(invalid(member(&mut world, stays("g", "x", -3))));
    assert!(invalid(member(&mut world, stays("g", "x", -2))));
    assert!(invalid(member(&mut world, stays("g", "", 4))));
    assert!(invalid(member(&mut world, stays("g", "x", 0))));
    let holds = MemberBeat {
        owned: Some(parts([0])),
        ..joins("g", "x")
    };
    assert!(invalid(member(&mut world, holds)));
    assert_eq!(
        member(&mut world, stays("new", "x", 4)),
        Err(GroupError::UnknownMember)
    );
    assert_eq!(world.coordinator.state().len(), 1);
}

/// Amendment "Livelock guard".
#[test]
fn application_that_stands_with_records_waiting_is_warned_and_then_out() {
    let mut world = World::new(&[4]);
    one(&mut world);
    let says = |world: &mut World, took| {
        let progress = Progress {
            group: "g".into(),
            member: "a".into(),
            took,
            waiting: true,
        };
        world.input(Input::Progress(progress));
    };
    says(&mut world, true);
    let beats = |world: &mut World, seconds: u64| {
        for _ in 0..seconds / 10 {
            world.pass(10_000);
            let _ = member(world, stays("g", "a", 1));
        }
    };
    beats(&mut world, 290);
    says(&mut world, true);
    beats(&mut world, 290);
    world.told.clear();
    says(&mut world, false);
    beats(&mut world, 20);
    let idle = |fenced| Effect::Idle {
        group: "g".into(),
        member: "a".into(),
        fenced,
    };
    assert!(world.told.contains(&idle(false)));
    beats(&mut world, 40);
    assert!(world.told.contains(&idle(true)));
    assert_eq!(
        member(&mut world, stays("g", "a", 1)),
        Err(GroupError::UnknownMember)
    );
}

#[test]
fn group_takes_no_more_members_of_the_newer_protocol_than_it_may() {
    let config = GroupsConfig {
        members_max: 1,
        ..GroupsConfig::default()
    };
    let mut world = World::with(config, &[4], 1);
    one(&mut world);
    assert_eq!(
        member(&mut world, joins("g", "b")),
        Err(GroupError::GroupFull)
    );
    assert!(
        member(&mut world, joins("g", "a")).is_ok(),
        "one that is in comes again"
    );
}
