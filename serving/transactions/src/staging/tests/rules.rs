//! Rule by rule.

use hulse_proto::id::Offset;
use hulse_proto::mutant::Mutation;

use super::world::{HOUR_MS, World, target};
use crate::TxnError;
use crate::staging::*;

fn world() -> World {
    World::new(Mutation::default())
}

fn checks(world: &World) -> Vec<u16> {
    let attempt = |effect: &Effect| match effect {
        Effect::Check { attempt, .. } => Some(*attempt),
        _ => None,
    };
    world.wanted.iter().filter_map(attempt).collect()
}

#[test]
fn first_decision_wins_and_is_told_to_whoever_decides_again() {
    for commit in [true, false] {
        let mut world = world();
        let id = world.half(1);
        assert_eq!(world.resolve(id, commit), Ok(()));
        assert_eq!(world.resolve(id, commit), Ok(()));
        let decision = if commit {
            Decision::Commit
        } else {
            Decision::Rollback
        };
        let refused = Err(TxnError::Decided(decision));
        assert_eq!(world.resolve(id, !commit), refused);
        world.work();
        assert_eq!(world.resolve(id, !commit), refused);
        let expected: &[ItemId] = if commit { &[id] } else { &[] };
        assert_eq!(world.stored(1), expected);
        // A day later nobody knows it any more.
        world.pass(24 * HOUR_MS + 1);
        assert_eq!(world.resolve(id, commit), Err(TxnError::NoItem));
    }
}

#[test]
fn check_counts_when_it_was_sent_and_the_last_one_discards() {
    let mut world = world();
    let id = world.half(1);
    world.online(true);
    world.pass(5_999);
    assert_eq!(checks(&world), [0_u16; 0]);
    world.pass(1);
    assert_eq!(checks(&world), [1]);
    world.wanted.clear();
    // It could not be sent: it is tried again, and is still the first one.
    world.input(Input::Checked { id, sent: false });
    world.pass(1_000);
    assert_eq!(checks(&world), [1]);
    for attempt in 2..=3 {
        world.work();
        world.pass(30_000);
        assert_eq!(checks(&world), [attempt]);
    }
    world.work();
    world.pass(30_000);
    assert_eq!(world.status(id), Some(Status::Discarding(false)));
    assert_eq!(
        world.resolve(id, true),
        Err(TxnError::Decided(Decision::Discard))
    );
    world.work();
    assert_eq!(world.status(id), Some(Status::Discarded(false)));
    // An operator has it checked anew, and it can be committed after all.
    let resumed = world.ask(Request::Resume { id });
    assert_eq!(resumed, Answer::Resumed(Ok(())));
    world.pass(0);
    assert_eq!(checks(&world), [1]);
    assert_eq!(world.resolve(id, true), Ok(()));
    world.work();
    assert_eq!(world.stored(1), [id]);
}

#[test]
fn group_that_is_gone_for_an_hour_burns_no_check_and_delays_nobody() {
    let mut world = world();
    let id = world.half(1);
    world.pass(HOUR_MS);
    assert_eq!(world.status(id), Some(Status::Waiting));
    let other = world.new_id();
    let request = Request::Prepare {
        id: other,
        target: target(2),
        group: "others".into(),
        check_after_ms: 1,
        checks_max: 1,
    };
    world.ask(request);
    let group = "others".into();
    world.input(Input::Sessions {
        group,
        online: true,
    });
    world.pass(1);
    assert_eq!(checks(&world), [1]);
    world.wanted.clear();
    // Also across another owner.
    world.moves(0);
    world.pass(HOUR_MS);
    world.online(true);
    world.pass(0);
    assert_eq!(checks(&world), [1]);
}

#[test]
fn scheduled_message_goes_at_its_time_or_is_recalled() {
    let mut world = world();
    let (first, second) = (world.new_id(), world.new_id());
    let due = world.now + 90_000;
    for id in [first, second] {
        let target = target(1);
        let kept = world.ask(Request::Schedule { id, target, due });
        assert_eq!(kept, Answer::Kept(Ok(id)));
    }
    let never = world.resolve(first, true);
    assert!(
        matches!(never, Err(TxnError::InvalidRequest(_))),
        "{never:?}"
    );
    assert_eq!(world.resolve(second, false), Ok(()));
    world.pass(89_999);
    assert_eq!(world.wanted, []);
    world.pass(1);
    world.work();
    assert_eq!(world.stored(1), [first]);
    assert_eq!(
        world.resolve(first, false),
        Err(TxnError::Decided(Decision::Commit))
    );
}

#[test]
fn bad_requests_are_refused_by_their_reason() {
    let mut world = world();
    let id = world.new_id();
    let due = world.now + 31 * 24 * HOUR_MS;
    let far = world.ask(Request::Schedule {
        id,
        target: target(1),
        due,
    });
    assert!(matches!(
        far,
        Answer::Kept(Err(TxnError::InvalidRequest(_)))
    ));
    for (group, checks_max) in [("", 1), ("g", 0)] {
        let request = Request::Prepare {
            id,
            target: target(1),
            group: group.into(),
            check_after_ms: 1,
            checks_max,
        };
        let refused = world.ask(request);
        assert!(matches!(
            refused,
            Answer::Kept(Err(TxnError::InvalidRequest(_)))
        ));
    }
    let nothing = world.ask(Request::Describe { id });
    assert_eq!(nothing, Answer::Described(Err(TxnError::NoItem)));
    let guessed = world.half(1);
    let guessed = ItemId {
        nonce: guessed.nonce + 1,
        ..guessed
    };
    assert_eq!(world.resolve(guessed, true), Err(TxnError::NoItem));
}

#[test]
fn no_more_are_on_their_way_than_the_target_remembers() {
    let mut world = world();
    let ids: Vec<ItemId> = (0..12).map(|_| world.half(1)).collect();
    for id in &ids {
        world.resolve(*id, true).unwrap();
    }
    let sent = world.wanted.len();
    assert_eq!(sent, crate::limits::PUBLISHING_MAX);
    world.work();
    assert_eq!(world.stored(1), ids);
}

#[test]
fn answer_that_is_lost_brings_no_second_copy_also_at_another_owner() {
    let mut world = world();
    let ids: Vec<ItemId> = (0..3).map(|_| world.half(1)).collect();
    for id in &ids {
        world.resolve(*id, true).unwrap();
    }
    for effect in std::mem::take(&mut world.wanted) {
        let Effect::Publish {
            id,
            target,
            sequence,
            ..
        } = effect
        else {
            panic!("{effect:?}");
        };
        world.store(id, target, sequence);
        world.input(Input::Published(id, PublishOutcome::Unknown));
    }
    world.pass(50);
    assert_eq!(world.wanted.len(), 3);
    world.moves(0);
    world.work();
    assert_eq!(world.stored(1), ids);
    assert!(
        ids.iter()
            .all(|id| world.status(*id) == Some(Status::Published))
    );
}

#[test]
fn decision_stays_where_the_target_is_gone() {
    let mut world = world();
    let (before, after) = (world.half(1), world.half(1));
    world.resolve(before, true).unwrap();
    world.targets.entry(target(1)).or_default().gone = true;
    world.work();
    assert_eq!(world.status(before), Some(Status::Discarded(true)));
    assert_eq!(world.resolve(before, true), Ok(()));
    assert_eq!(
        world.resolve(before, false),
        Err(TxnError::Decided(Decision::Commit))
    );
    // One that is committed later finds it so too.
    world.resolve(after, true).unwrap();
    world.work();
    assert_eq!(world.status(after), Some(Status::Discarded(true)));
}

#[test]
fn item_that_has_grown_old_is_appended_anew_and_holds_the_log_no_longer() {
    let mut world = world();
    let ids: Vec<ItemId> = (0..100).map(|_| world.half(1)).collect();
    let end = Offset(101);
    assert_eq!(world.machine.state().held_from(), Some(ids[0].first));
    world.resolve(ids[0], false).unwrap();
    assert_eq!(world.machine.state().held_from(), Some(ids[1].first));
    world.input(Input::MakeRoom { below: end });
    assert_eq!(world.wanted.len(), crate::limits::RENEWING_MAX);
    world.work();
    assert!(world.machine.state().held_from() >= Some(end));
    // Its id stays what it was.
    world.resolve(ids[5], true).unwrap();
    world.work();
    assert_eq!(world.stored(1), [ids[5]]);
}
