//! The classic protocol, rule by rule (serving.md B6; cases GR-01, GR-04, KA-06).

use std::sync::Arc;

use crate::testing::{World, at, beat, commit_of, join, protocol, sync};
use crate::{
    Answer, GroupError, GroupState, GroupsConfig, Input, Join, Joined, Leave, Leaver, Request,
    RequestId, Sync,
};

fn joined(answer: Option<Answer>) -> Joined {
    match answer {
        Some(Answer::Joined(Ok(joined))) => joined,
        other => panic!("{other:?}"),
    }
}

fn refused(answer: Option<Answer>) -> GroupError {
    match answer {
        Some(
            Answer::Joined(Err(error)) | Answer::Synced(Err(error)) | Answer::Beat(Err(error)),
        ) => error,
        other => panic!("{other:?}"),
    }
}

fn assignment(answer: Option<Answer>) -> String {
    match answer {
        Some(Answer::Synced(Ok(synced))) => String::from_utf8(synced.assignment.to_vec()).unwrap(),
        other => panic!("{other:?}"),
    }
}

fn send_join(world: &mut World, join: Join) -> RequestId {
    world.send(Request::Join(Box::new(join)))
}

/// A stable group of two members, `leader` and the other.
fn pair(world: &mut World) -> (Arc<str>, Arc<str>) {
    let first = send_join(world, join("g", ""));
    let second = send_join(world, join("g", ""));
    world.pass(6_100);
    let (first, second) = (joined(world.take(first)), joined(world.take(second)));
    assert_eq!((first.generation, second.generation), (1, 1));
    let (leader, other) = match first.members.is_empty() {
        true => (second.member, first.member),
        false => (first.member, second.member),
    };
    let waits = world.send(sync("g", &other, 1, &[]));
    assert_eq!(world.take(waits), None, "the leader has not assigned");
    let leads = world.send(sync("g", &leader, 1, &[(&leader, "L"), (&other, "O")]));
    assert_eq!(assignment(world.take(leads)), "L");
    assert_eq!(assignment(world.take(waits)), "O");
    (leader, other)
}

fn static_join(member: &str, instance: &str) -> Join {
    Join {
        instance: Some(instance.into()),
        ..join("g", member)
    }
}

#[test]
fn join_without_id_is_told_to_come_back_with_one() {
    let mut world = World::new(&[4]);
    let anonymous = Join {
        id_required: true,
        ..join("g", "")
    };
    let first = send_join(&mut world, anonymous);
    let GroupError::MemberIdRequired(id) = refused(world.take(first)) else {
        panic!("no id");
    };
    assert!(id.starts_with("app-"));
    let again = send_join(&mut world, join("g", &id));
    world.pass(3_000);
    assert_eq!(joined(world.take(again)).member, id);
}

#[test]
fn id_that_never_comes_back_is_forgotten_with_its_session() {
    let mut world = World::new(&[4]);
    let anonymous = Join {
        id_required: true,
        ..join("g", "")
    };
    let first = send_join(&mut world, anonymous);
    let GroupError::MemberIdRequired(id) = refused(world.take(first)) else {
        panic!("no id");
    };
    world.pass(10_000);
    let late = send_join(&mut world, join("g", &id));
    assert_eq!(refused(world.take(late)), GroupError::UnknownMember);
    let group = "g".into();
    let gone = world.ask(Request::Describe { group });
    assert_eq!(gone, Answer::Described(Err(GroupError::GroupNotFound)));
}

#[test]
fn first_generation_waits_for_the_initial_delay_and_for_newcomers() {
    let mut world = World::new(&[4]);
    let first = send_join(&mut world, join("g", ""));
    world.pass(2_900);
    let second = send_join(&mut world, join("g", ""));
    world.pass(200);
    assert_eq!(world.take(first), None, "one came during the wait");
    world.pass(3_000);
    assert_eq!(joined(world.take(first)).generation, 1);
    assert_eq!(joined(world.take(second)).generation, 1);
}

#[test]
fn leader_gets_the_bytes_of_everybody_and_the_others_none() {
    let mut world = World::new(&[4]);
    let odd = Join {
        protocols: vec![protocol("range", &b"\xff\x00odd"[..])],
        ..join("g", "")
    };
    let first = send_join(&mut world, odd.clone());
    let second = send_join(&mut world, odd);
    world.pass(6_100);
    let both = [joined(world.take(first)), joined(world.take(second))];
    let leader = both.iter().find(|one| !one.members.is_empty()).unwrap();
    assert_eq!(leader.leader, leader.member);
    assert_eq!(leader.members.len(), 2);
    assert!(
        leader
            .members
            .iter()
            .all(|m| &m.metadata[..] == b"\xff\x00odd")
    );
}

#[test]
fn protocol_that_most_put_first_is_chosen_among_the_common_ones() {
    let mut world = World::new(&[4]);
    let offers = |names: &[&str]| Join {
        protocols: names.iter().map(|name| protocol(name, "x")).collect(),
        ..join("g", "")
    };
    let first = send_join(&mut world, offers(&["only", "b", "a"]));
    send_join(&mut world, offers(&["b", "a"]));
    send_join(&mut world, offers(&["a", "b"]));
    world.pass(10_000);
    assert_eq!(&*joined(world.take(first)).protocol, "b");
}

#[test]
fn newcomer_without_a_common_protocol_is_refused_alone() {
    let mut world = World::new(&[4]);
    let (leader, other) = pair(&mut world);
    let stranger = Join {
        protocols: vec![protocol("own", "x")],
        ..join("g", "")
    };
    let stranger = send_join(&mut world, stranger);
    assert_eq!(
        refused(world.take(stranger)),
        GroupError::InconsistentProtocol
    );
    for member in [leader, other] {
        assert_eq!(world.ask(beat("g", &member, 1)), Answer::Beat(Ok(())));
    }
}

#[test]
fn member_that_dies_loses_its_place_after_its_session() {
    let mut world = World::new(&[4]);
    let (leader, other) = pair(&mut world);
    world.pass(6_000);
    assert_eq!(world.ask(beat("g", &leader, 1)), Answer::Beat(Ok(())));
    world.pass(4_100);
    let answer = world.ask(beat("g", &leader, 1));
    assert_eq!(answer, Answer::Beat(Err(GroupError::RebalanceInProgress)));
    let again = send_join(&mut world, join("g", &leader));
    assert_eq!(joined(world.take(again)).generation, 2);
    let answer = world.ask(beat("g", &other, 1));
    assert_eq!(answer, Answer::Beat(Err(GroupError::UnknownMember)));
}

#[test]
fn member_that_does_not_join_again_is_out_after_the_rebalance_time() {
    let mut world = World::new(&[4]);
    let (leader, other) = pair(&mut world);
    let newcomer = send_join(&mut world, join("g", ""));
    let again = send_join(&mut world, join("g", &leader));
    for _ in 0..5 {
        world.pass(5_000);
        world.ask(beat("g", &other, 1));
    }
    assert_eq!(world.take(newcomer), None);
    world.pass(5_000);
    assert_eq!(joined(world.take(newcomer)).generation, 2);
    assert_eq!(joined(world.take(again)).members.len(), 2);
}

#[test]
fn leader_that_never_assigns_is_out_and_the_rest_goes_on() {
    let mut world = World::new(&[4]);
    let first = send_join(&mut world, join("g", ""));
    let second = send_join(&mut world, join("g", ""));
    world.pass(6_100);
    let (first, second) = (joined(world.take(first)), joined(world.take(second)));
    let (leader, other) = match first.members.is_empty() {
        true => (second.member, first.member),
        false => (first.member, second.member),
    };
    let waits = world.send(sync("g", &other, 1, &[]));
    for _ in 0..6 {
        world.ask(beat("g", &leader, 1));
        world.pass(5_000);
    }
    assert_eq!(refused(world.take(waits)), GroupError::RebalanceInProgress);
    let again = send_join(&mut world, join("g", &other));
    let again = joined(world.take(again));
    assert_eq!((again.generation, again.leader), (2, other));
}

#[test]
fn wrong_generation_is_refused_everywhere() {
    let mut world = World::new(&[4]);
    let (leader, _) = pair(&mut world);
    let illegal = GroupError::IllegalGeneration;
    assert_eq!(
        world.ask(beat("g", &leader, 0)),
        Answer::Beat(Err(illegal.clone()))
    );
    assert_eq!(
        world.ask(sync("g", &leader, 2, &[])),
        Answer::Synced(Err(illegal.clone()))
    );
    assert_eq!(
        world.commit(commit_of("g", &leader, 7, at(1, 0), 5)),
        Err(illegal)
    );
}

#[test]
fn commit_is_taken_while_members_join_and_refused_while_the_leader_assigns() {
    let mut world = World::new(&[4]);
    let (leader, other) = pair(&mut world);
    let newcomer = send_join(&mut world, join("g", ""));
    assert_eq!(
        world.commit(commit_of("g", &other, 1, at(1, 0), 5)),
        Ok(vec![Ok(())])
    );
    send_join(&mut world, join("g", &leader));
    let again = send_join(&mut world, join("g", &other));
    assert_eq!(joined(world.take(newcomer)).generation, 2);
    assert_eq!(joined(world.take(again)).generation, 2);
    let refused = world.commit(commit_of("g", &other, 2, at(1, 0), 6));
    assert_eq!(refused, Err(GroupError::RebalanceInProgress));
    let old = world.commit(commit_of("g", &other, 1, at(1, 0), 6));
    assert_eq!(
        old,
        Err(GroupError::IllegalGeneration),
        "and it starts no round"
    );
    assert_eq!(world.describe("g").epoch, 2);
}

#[test]
fn rejoin_that_asks_for_the_same_keeps_the_generation_but_for_the_leader() {
    let mut world = World::new(&[4]);
    let (leader, other) = pair(&mut world);
    let same = send_join(&mut world, join("g", &other));
    assert_eq!(joined(world.take(same)).generation, 1);
    let leads = send_join(&mut world, join("g", &leader));
    assert_eq!(world.take(leads), None);
    assert_eq!(
        world.describe("g").listing.state,
        GroupState::PreparingRebalance
    );
}

#[test]
fn leave_of_several_tells_each_and_rebalances_once() {
    let mut world = World::new(&[4]);
    let (leader, other) = pair(&mut world);
    let leaver = |member: &str| Leaver {
        member: member.into(),
        instance: None,
    };
    let answer = world.ask(Request::Leave(Leave {
        group: "g".into(),
        members: vec![leaver(&leader), leaver("nobody"), leaver(&other)],
    }));
    let Answer::Left(Ok(left)) = answer else {
        panic!("{answer:?}");
    };
    let results: Vec<_> = left.into_iter().map(|(_, result)| result).collect();
    assert_eq!(results, [Ok(()), Err(GroupError::UnknownMember), Ok(())]);
    let description = world.describe("g");
    assert_eq!(
        (description.epoch, description.listing.state),
        (2, GroupState::Empty)
    );
}

/// GR-04 (1), B6: a move of the coordinator costs no rebalance.
#[test]
fn coordinator_that_moves_keeps_the_generation_and_restarts_sessions() {
    let mut world = World::new(&[4]);
    let (leader, other) = pair(&mut world);
    world.pass(9_000);
    world.moves_now();
    world.pass(9_000);
    for member in [&leader, &other] {
        assert_eq!(world.ask(beat("g", member, 1)), Answer::Beat(Ok(())));
    }
    let answer = world.send(sync("g", &other, 1, &[]));
    assert_eq!(assignment(world.take(answer)), "O");
}

#[test]
fn generation_that_was_not_complete_when_the_coordinator_moved_forms_anew() {
    let mut world = World::new(&[4]);
    let (leader, other) = pair(&mut world);
    send_join(&mut world, join("g", ""));
    send_join(&mut world, join("g", &leader));
    send_join(&mut world, join("g", &other));
    assert_eq!(
        world.describe("g").listing.state,
        GroupState::CompletingRebalance
    );
    world.moves_now();
    let description = world.describe("g");
    assert_eq!(
        (description.epoch, description.listing.state),
        (1, GroupState::Stable)
    );
    assert_eq!(
        world.ask(beat("g", &leader, 2)),
        Answer::Beat(Err(GroupError::IllegalGeneration))
    );
}

/// GR-04 (2): the new process gets the old partitions, and the other member sees no rebalance.
#[test]
fn static_member_that_comes_back_keeps_its_place() {
    let mut world = World::new(&[4]);
    let one = send_join(&mut world, static_join("", "i1"));
    let two = send_join(&mut world, static_join("", "i2"));
    world.pass(6_100);
    let (one, two) = (joined(world.take(one)), joined(world.take(two)));
    let leads = if one.members.is_empty() { &two } else { &one };
    world.send(sync(
        "g",
        &leads.member,
        1,
        &[(&one.member, "1"), (&two.member, "2")],
    ));
    world.pass(5_000);
    let again = send_join(&mut world, static_join("", "i1"));
    let again = joined(world.take(again));
    assert_eq!(again.generation, 1);
    assert_ne!(again.member, one.member);
    assert_eq!(again.skip_assignment, !one.members.is_empty());
    let answer = world.send(sync("g", &again.member, 1, &[]));
    assert_eq!(assignment(world.take(answer)), "1");
    assert_eq!(world.ask(beat("g", &two.member, 1)), Answer::Beat(Ok(())));
    // (3): exactly the older process is fenced, also after a move.
    world.moves_now();
    let old = Request::Beat(crate::Beat {
        group: "g".into(),
        member: one.member,
        instance: Some("i1".into()),
        generation: 1,
    });
    assert_eq!(
        world.ask(old),
        Answer::Beat(Err(GroupError::FencedInstance))
    );
    assert_eq!(world.ask(beat("g", &again.member, 1)), Answer::Beat(Ok(())));
}

#[test]
fn static_leader_of_an_old_client_is_not_made_to_assign_again() {
    let mut world = World::new(&[4]);
    let first = send_join(&mut world, static_join("", "i1"));
    world.pass(3_000);
    let first = joined(world.take(first));
    world.send(sync("g", &first.member, 1, &[(&first.member, "1")]));
    let old = Join {
        skip_assignment: false,
        ..static_join("", "i1")
    };
    let again = send_join(&mut world, old);
    let again = joined(world.take(again));
    assert_eq!((again.leader, again.members.len()), (first.member, 0));
}

#[test]
fn static_member_that_is_away_keeps_its_place_in_a_rebalance() {
    let mut world = World::new(&[4]);
    let (leader, _) = pair(&mut world);
    let long = Join {
        session_ms: 60_000,
        ..static_join("", "i1")
    };
    let sleeper = send_join(&mut world, long);
    send_join(&mut world, join("g", &leader));
    world.pass(10_100);
    let sleeper = joined(world.take(sleeper));
    world.send(sync("g", &sleeper.leader, sleeper.generation, &[]));
    let answer = send_join(&mut world, join("g", &sleeper.leader));
    world.pass(30_100);
    let members: Vec<_> = joined(world.take(answer)).members;
    assert!(members.iter().any(|known| known.member == sleeper.member));
}

#[test]
fn join_whose_caller_is_gone_leaves_nothing() {
    let mut world = World::new(&[4]);
    let first = send_join(&mut world, join("g", ""));
    world.input(Input::Gone(first));
    world.pass(3_000);
    assert_eq!(world.take(first), None);
    assert_eq!(world.coordinator.state().len(), 0);
}

#[test]
fn group_takes_no_more_members_than_it_may() {
    let config = GroupsConfig {
        members_max: 2,
        ..GroupsConfig::default()
    };
    let mut world = World::with(config, &[4], 1);
    pair(&mut world);
    let third = send_join(&mut world, join("g", ""));
    assert_eq!(refused(world.take(third)), GroupError::GroupFull);
}

#[test]
fn sessions_and_bytes_beyond_the_bounds_are_refused() {
    let mut world = World::new(&[4]);
    let short = Join {
        session_ms: 5_999,
        ..join("g", "")
    };
    let short = send_join(&mut world, short);
    assert_eq!(refused(world.take(short)), GroupError::InvalidSession);
    let large = Join {
        protocols: vec![protocol(
            "range",
            vec![0; crate::limits::MEMBER_BYTES_MAX + 1],
        )],
        ..join("g", "")
    };
    let large = send_join(&mut world, large);
    assert_eq!(refused(world.take(large)), GroupError::GroupTooLarge);
    let nameless = send_join(&mut world, join("", ""));
    assert_eq!(refused(world.take(nameless)), GroupError::InvalidGroup);
}

#[test]
fn assignment_that_is_too_large_is_refused_and_the_group_goes_on() {
    let mut world = World::new(&[4]);
    let first = send_join(&mut world, join("g", ""));
    world.pass(3_000);
    let member = joined(world.take(first)).member;
    let bytes = vec![0; crate::limits::MEMBER_BYTES_MAX + 1];
    let huge = Request::Sync(Sync {
        group: "g".into(),
        member: member.clone(),
        instance: None,
        generation: 1,
        protocol_type: None,
        protocol: None,
        assignments: vec![(member.clone(), bytes.into())],
    });
    assert_eq!(
        world.ask(huge),
        Answer::Synced(Err(GroupError::GroupTooLarge))
    );
    let again = send_join(&mut world, join("g", &member));
    assert_eq!(joined(world.take(again)).generation, 2);
}

#[test]
fn answer_waits_until_what_it_says_is_durable() {
    let mut world = World::new(&[4]);
    let first = send_join(&mut world, join("g", ""));
    world.pass(3_000);
    let member = joined(world.take(first)).member;
    world.slow = true;
    let waits = world.send(sync("g", &member, 1, &[(&member, "x")]));
    let other = send_join(&mut world, join("", ""));
    assert!(world.take(other).is_some(), "other groups do not wait");
    let behind = world.send(beat("g", &member, 1));
    assert_eq!((world.take(waits), world.take(behind)), (None, None));
    world.input(Input::Confirmed(1));
    assert_eq!(assignment(world.take(waits)), "x");
    assert_eq!(world.take(behind), Some(Answer::Beat(Ok(()))));
}
