//! Committed offsets, and the administration of groups.

use std::collections::BTreeSet;

use hulse_proto::id::Offset;

use crate::testing::{World, at, commit_of, join, joins, topic};
use crate::{
    Answer, Commit, FetchOffsets, GroupError, GroupsConfig, Input, MemberBeat, NewOffset, Request,
};

const DAY: u64 = 24 * 3_600_000;

#[test]
fn offset_comes_back_as_it_was_committed() {
    let mut world = World::new(&[4]);
    let partitions = [at(1, 0), at(1, 1), at(1, 2)];
    let texts = [None, Some("".into()), Some("mine".into())];
    let offsets = partitions
        .iter()
        .zip(&texts)
        .map(|(partition, text)| NewOffset {
            partition: *partition,
            offset: Offset(42),
            leader_epoch: 5,
            metadata: text.clone(),
        });
    let commit = Commit {
        offsets: offsets.collect(),
        ..commit_of("g", "", -1, at(1, 0), 0)
    };
    assert_eq!(world.commit(commit).unwrap().len(), 3);
    world.moves_now();
    for (partition, text) in partitions.into_iter().zip(texts) {
        let found = world.committed("g", partition).unwrap();
        assert_eq!((found.offset, found.leader_epoch), (Offset(42), 5));
        assert_eq!(
            found.metadata, text,
            "D2.13: empty and none are not the same"
        );
    }
}

/// B2.9: no offset is an answer, not an error; B2.8: a rewind is a commit too.
#[test]
fn offset_that_was_never_committed_is_none_and_one_may_go_back() {
    let mut world = World::new(&[4]);
    assert_eq!(world.committed("g", at(1, 0)), None);
    for offset in [9, 4] {
        world
            .commit(commit_of("g", "", -1, at(1, 0), offset))
            .unwrap();
        assert_eq!(
            world.committed("g", at(1, 0)).unwrap().offset,
            Offset(offset)
        );
    }
    let all = FetchOffsets {
        group: "g".into(),
        member: None,
        partitions: None,
    };
    let Answer::Fetched(Ok(all)) = world.ask(Request::Fetch(all)) else {
        panic!("no offsets");
    };
    assert_eq!(all.len(), 1);
}

#[test]
fn metadata_that_are_too_long_refuse_their_offset_alone() {
    let mut world = World::new(&[4]);
    let mut commit = commit_of("g", "", -1, at(1, 0), 1);
    let long = NewOffset {
        partition: at(1, 1),
        metadata: Some("x".repeat(4097).into()),
        ..commit.offsets[0].clone()
    };
    commit.offsets.push(long);
    let results = world.commit(commit).unwrap();
    assert_eq!(results, [Ok(()), Err(GroupError::OffsetMetadataTooLarge)]);
}

#[test]
fn outsider_commits_only_while_nobody_is_in_the_group() {
    let mut world = World::new(&[4]);
    let unknown = commit_of("g", "x", 3, at(1, 0), 1);
    assert_eq!(
        world.commit(unknown.clone()),
        Err(GroupError::GroupNotFound)
    );
    let old = Commit {
        member_epochs: false,
        ..unknown
    };
    assert_eq!(world.commit(old), Err(GroupError::IllegalGeneration));
    world.ask(Request::Member(Box::new(joins("g", "a"))));
    let outsider = commit_of("g", "", -1, at(1, 0), 1);
    assert_eq!(world.commit(outsider), Err(GroupError::UnknownMember));
}

/// Clients of KIP-848 have an id before they are in any group, and say it where they assign partitions themselves.
#[test]
fn outsider_with_an_id_of_its_own_commits_too_while_nobody_is_in_the_group() {
    let mut world = World::new(&[4]);
    let outsider = commit_of("g", "mine", -1, at(1, 0), 50);
    assert_eq!(world.commit(outsider.clone()), Ok(vec![Ok(())]));
    assert_eq!(world.commit(outsider.clone()), Ok(vec![Ok(())]), "again");
    assert_eq!(world.committed("g", at(1, 0)).unwrap().offset.0, 50);
    world.ask(Request::Member(Box::new(joins("g", "a"))));
    assert_eq!(world.commit(outsider), Err(GroupError::UnknownMember));
}

#[test]
fn member_that_is_to_commit_what_it_has_commits_nothing_else() {
    let mut world = World::new(&[1]);
    world.ask(Request::Member(Box::new(joins("g", "a"))));
    let of = |partition| Commit {
        held_only: true,
        ..commit_of("g", "a", 1, partition, 5)
    };
    assert_eq!(world.commit(of(at(1, 0))), Ok(vec![Ok(())]));
    let strange = world.commit(of(at(9, 0)));
    assert_eq!(strange, Ok(vec![Err(GroupError::StaleMemberEpoch)]));
    assert_eq!(world.committed("g", at(9, 0)), None);
}

#[test]
fn fetch_of_a_member_says_its_epoch() {
    let mut world = World::new(&[4]);
    world.ask(Request::Member(Box::new(joins("g", "a"))));
    let mut fetch = |member: &str, epoch| {
        let fetch = FetchOffsets {
            group: "g".into(),
            member: Some((member.into(), epoch)),
            partitions: Some(vec![at(1, 0)]),
        };
        match world.ask(Request::Fetch(fetch)) {
            Answer::Fetched(answer) => answer,
            other => panic!("{other:?}"),
        }
    };
    assert!(fetch("a", 1).is_ok());
    assert_eq!(fetch("a", 9), Err(GroupError::StaleMemberEpoch));
    assert_eq!(fetch("b", 1), Err(GroupError::UnknownMember));
}

/// B2.10.
#[test]
fn offsets_of_a_group_without_members_go_after_their_time() {
    let mut world = World::new(&[4]);
    world.commit(commit_of("g", "", -1, at(1, 0), 1)).unwrap();
    world.pass(4 * DAY);
    world.commit(commit_of("g", "", -1, at(1, 1), 1)).unwrap();
    world.pass(3 * DAY + 120_000);
    assert_eq!(world.committed("g", at(1, 0)), None);
    assert!(world.committed("g", at(1, 1)).is_some());
    world.pass(4 * DAY + 120_000);
    assert_eq!(world.coordinator.state().len(), 0);
}

#[test]
fn offsets_of_a_group_with_members_stay() {
    let config = GroupsConfig {
        consumer_session_ms: 3_600_000_000,
        ..GroupsConfig::default()
    };
    let mut world = World::with(config, &[4], 1);
    world.ask(Request::Member(Box::new(joins("g", "a"))));
    world.commit(commit_of("g", "a", 1, at(1, 0), 1)).unwrap();
    world.pass(30 * DAY);
    assert!(world.committed("g", at(1, 0)).is_some());
    world.ask(Request::Member(Box::new(MemberBeat {
        epoch: -1,
        ..joins("g", "a")
    })));
    world.pass(6 * DAY);
    assert!(
        world.committed("g", at(1, 0)).is_some(),
        "counted from when it became empty"
    );
    world.pass(DAY + 120_000);
    assert_eq!(world.committed("g", at(1, 0)), None);
}

/// B2.11.
#[test]
fn topic_that_is_deleted_takes_its_offsets_along() {
    let mut world = World::new(&[4, 4]);
    world.commit(commit_of("g", "", -1, at(1, 0), 1)).unwrap();
    world.commit(commit_of("g", "", -1, at(2, 0), 1)).unwrap();
    world.input(Input::Deleted(BTreeSet::from([topic(1)])));
    assert_eq!(world.committed("g", at(1, 0)), None);
    assert!(world.committed("g", at(2, 0)).is_some());
}

#[test]
fn offsets_of_a_subscribed_topic_are_not_deleted() {
    let mut world = World::new(&[4, 4]);
    world.ask(Request::Member(Box::new(joins("g", "a"))));
    world.commit(commit_of("g", "a", 1, at(2, 0), 1)).unwrap();
    let delete = Request::DeleteOffsets {
        group: "g".into(),
        partitions: vec![at(1, 0), at(2, 0)],
    };
    let results = vec![
        (at(1, 0), Err(GroupError::SubscribedToTopic)),
        (at(2, 0), Ok(())),
    ];
    assert_eq!(world.ask(delete), Answer::OffsetsDeleted(Ok(results)));
    assert_eq!(world.committed("g", at(2, 0)), None);
}

/// What is not in view may be what its members read.
#[test]
fn offsets_of_a_topic_nobody_sees_are_not_deleted_while_members_read_by_name() {
    let mut world = World::new(&[4, 4]);
    world.commit(commit_of("g", "", -1, at(2, 0), 1)).unwrap();
    world.commit(commit_of("g", "", -1, at(9, 0), 1)).unwrap();
    let joined = world.send(Request::Join(Box::new(join("g", ""))));
    world.pass(6_100);
    assert!(matches!(world.take(joined), Some(Answer::Joined(Ok(_)))));
    let delete = Request::DeleteOffsets {
        group: "g".into(),
        partitions: vec![at(2, 0), at(9, 0)],
    };
    let results = vec![
        (at(2, 0), Ok(())),
        (at(9, 0), Err(GroupError::SubscribedToTopic)),
    ];
    assert_eq!(world.ask(delete), Answer::OffsetsDeleted(Ok(results)));
}

#[test]
fn group_is_deleted_only_when_nobody_is_in_it() {
    let mut world = World::new(&[4]);
    let delete = || Request::Delete { group: "g".into() };
    assert_eq!(
        world.ask(delete()),
        Answer::Deleted(Err(GroupError::GroupNotFound))
    );
    world.ask(Request::Member(Box::new(joins("g", "a"))));
    assert_eq!(
        world.ask(delete()),
        Answer::Deleted(Err(GroupError::NonEmptyGroup))
    );
    world.ask(Request::Member(Box::new(MemberBeat {
        epoch: -1,
        ..joins("g", "a")
    })));
    assert_eq!(world.ask(delete()), Answer::Deleted(Ok(())));
    let Answer::Listed(all) = world.ask(Request::List) else {
        panic!("no list");
    };
    assert_eq!(all, []);
}

#[test]
fn more_deltas_under_way_than_may_be_refuse_requests() {
    let mut world = World::new(&[4]);
    world.slow = true;
    for offset in 0..crate::limits::UNCONFIRMED_DELTAS_MAX {
        world.send(Request::Commit(commit_of("g", "", -1, at(1, 0), offset)));
    }
    let refused = world.commit(commit_of("h", "", -1, at(1, 0), 1));
    assert_eq!(refused, Err(GroupError::Busy));
    world.input(Input::Confirmed(1));
    let id = world.send(Request::Commit(commit_of("h", "", -1, at(1, 0), 1)));
    assert_eq!(world.take(id), None, "it is under way");
}
