//! Who is active, what is acked, what is written.

use hulse_proto::error::{Fate, Fault, Reason};
use hulse_proto::id::{Offset, SubscriptionId};
use uuid::Uuid;

use super::world::{S, World, exclusive};
use crate::partition::cursors::core::{Handed, SWITCH_GRACE};
use crate::partition::cursors::lane::{
    AckKind, AckStatus, CursorAnswer, CursorMove, MoveCommand, Stand,
};
use crate::state::OffsetRange;
use crate::subscriptions::SubscriptionKind;

const GRACE: i64 = SWITCH_GRACE.as_millis() as i64;

#[test]
fn cursor_is_answered_for_only_when_it_is_durable() {
    let mut world = World::new(0);
    let ticket = world.make(S, "a/b/s", 10);
    assert!(!world.answers.contains_key(&ticket));
    let early = world.attach_as(SubscriptionKind::Exclusive, "one", 0, false);
    assert_eq!(early.unwrap_err().reason, Reason::SubscriptionNotFound);
    assert!(world.write());
    assert_eq!(world.answers[&ticket], Ok(CursorAnswer::Made));
    assert_eq!(world.base(), 10);
    let again = world.make(S, "a/b/s", 99);
    assert_eq!(world.answers[&again], Ok(CursorAnswer::Made));
    assert_eq!(world.base(), 10, "the start is resolved once");
    assert!(!world.write(), "nothing is written when nothing changed");
}

#[test]
fn receipt_comes_after_the_delta_and_acks_of_the_same_time_share_it() {
    let (mut world, consumer) = exclusive();
    world.sent(consumer, 20);
    let one = world.ack(consumer, AckKind::Individual, &[(12, 14)]);
    let two = world.ack(consumer, AckKind::Cumulative, &[(0, 11)]);
    assert!(world.answers.is_empty() || !world.answers.contains_key(&one));
    assert_eq!(
        world.views[&consumer].released, 3,
        "the window opens at once"
    );
    assert!(world.write());
    assert_eq!(world.statuses(one), [AckStatus::Ok]);
    assert_eq!(world.statuses(two), [AckStatus::Ok]);
    assert_eq!(world.base(), 11);
    let known = world.ack(consumer, AckKind::Individual, &[(12, 13), (3, 4)]);
    assert_eq!(world.statuses(known), [AckStatus::Ok, AckStatus::Ok]);
    assert!(!world.write());
}

#[test]
fn ack_of_what_was_never_sent_is_invalid_and_changes_nothing() {
    let (mut world, consumer) = exclusive();
    world.sent(consumer, 20);
    for (kind, ranges) in [
        (AckKind::Cumulative, [(0, 21)]),
        (AckKind::Individual, [(19, 21)]),
        (AckKind::Individual, [(100, 200)]),
        (AckKind::Individual, [(15, 15)]),
        (AckKind::Individual, [(u64::MAX, u64::MAX)]),
    ] {
        let ticket = world.ack(consumer, kind, &ranges);
        assert_eq!(world.statuses(ticket), [AckStatus::Invalid], "{ranges:?}");
    }
    assert!(!world.write());
    assert_eq!(world.base(), 10);
    // The other ranges of an ack stand.
    let ticket = world.ack(consumer, AckKind::Individual, &[(10, 12), (19, 21)]);
    assert!(world.write());
    assert_eq!(world.statuses(ticket), [AckStatus::Ok, AckStatus::Invalid]);
    assert_eq!(world.base(), 12);
}

#[test]
fn ack_of_what_another_one_acked_is_good_below_the_base_only_and_changes_nothing() {
    let (mut world, one) = exclusive();
    world.sent(one, 30);
    world.ack(one, AckKind::Individual, &[(15, 20), (21, 25)]);
    world.write();
    world.core.detach(one, world.now);
    let two = world.exclusive("two");
    world.sent(two, 15);
    let above = world.ack(two, AckKind::Individual, &[(12, 17), (15, 17)]);
    assert_eq!(world.statuses(above), [AckStatus::Invalid; 2]);
    let all = world.ack(two, AckKind::Cumulative, &[(0, 15)]);
    world.write();
    assert_eq!(world.statuses(all), [AckStatus::Ok]);
    assert_eq!(world.base(), 20, "it closes up with what is acked");
    // Never sent to this one, and processed.
    for kind in [AckKind::Cumulative, AckKind::Individual] {
        let below = world.ack(two, kind, &[(12, 17), (12, 20)]);
        assert_eq!(world.statuses(below), [AckStatus::Ok; 2]);
        let above = world.ack(two, kind, &[(12, 21), (21, 25)]);
        assert_eq!(world.statuses(above), [AckStatus::Invalid; 2]);
    }
    assert!(!world.write());
    assert_eq!(world.views[&two].released, 5);
}

#[test]
fn second_consumer_is_refused_or_takes_over_and_fences_the_first() {
    let (mut world, first) = exclusive();
    let second = world.attach_as(SubscriptionKind::Exclusive, "two", 0, false);
    assert_eq!(second.unwrap_err().reason, Reason::ConsumerExists);
    world.sent(first, 20);
    let second = world
        .attach_as(SubscriptionKind::Exclusive, "two", 0, true)
        .unwrap();
    let ended = world.views[&first].ended.clone().unwrap();
    assert_eq!(ended.reason, Reason::ConsumerFenced);
    let void = world.ack_of(first, 0, AckKind::Cumulative, &[(0, 20)]);
    assert_eq!(world.statuses(void), [AckStatus::NotOwned]);
    assert_eq!(world.begin(second).unwrap().base, Offset(10));
    world.core.detach(first, world.now);
    world.take();
    assert!(
        world.begin(second).is_some(),
        "a late end of the first changes nothing"
    );
}

#[test]
fn active_one_is_chosen_by_priority_then_name_then_partition() {
    for (index, expected) in [(0, "a"), (1, "b"), (2, "a")] {
        let mut world = World::new(index);
        world.make(S, "a/b/s", 0);
        world.write();
        let b = world.failover("b", 5);
        let a = world.failover("a", 5);
        let low = world.failover("0", 1);
        // The first to come was active, and yields if another one is chosen.
        world.now += GRACE;
        world.core.tick(world.now);
        world.take();
        let active = if expected == "a" { a } else { b };
        for consumer in [a, b, low] {
            assert_eq!(world.begin(consumer).is_some(), consumer == active);
        }
    }
}

#[test]
fn one_that_yields_may_ack_in_its_grace_and_the_next_begins_behind_its_acks() {
    let mut world = World::new(0);
    world.make(S, "a/b/s", 0);
    world.write();
    let old = world.failover("b", 0);
    world.sent(old, 10);
    let new = world.failover("a", 0);
    assert!(matches!(world.views[&old].stand, Stand::Yielding(_)));
    assert!(world.begin(new).is_none(), "never two at a time");
    let acked = world.ack_of(old, 0, AckKind::Individual, &[(0, 3), (5, 6)]);
    let strange = world.ack_of(new, 0, AckKind::Cumulative, &[(0, 3)]);
    assert_eq!(world.statuses(strange), [AckStatus::NotOwned]);
    world.core.yielded(old, world.now);
    world.take();
    let begin = world.begin(new).unwrap();
    assert_eq!(begin.base, Offset(3));
    assert_eq!(begin.acked.iter().count(), 1);
    let late = world.ack_of(old, 0, AckKind::Cumulative, &[(0, 10)]);
    assert_eq!(world.statuses(late), [AckStatus::NotOwned]);
    world.write();
    assert_eq!(world.statuses(acked), [AckStatus::Ok, AckStatus::Ok]);
    world.core.detach(new, world.now);
    world.take();
    assert_eq!(
        world.begin(old).unwrap().base,
        Offset(3),
        "the other one takes over at once"
    );
}

#[test]
fn seek_voids_acks_of_the_time_before_and_deliveries_begin_when_it_is_durable() {
    let (mut world, consumer) = exclusive();
    world.sent(consumer, 30);
    let pending = world.ack(consumer, AckKind::Cumulative, &[(0, 20)]);
    let seek = world.seek(5, Some((consumer, 7)));
    assert!(matches!(world.views[&consumer].stand, Stand::Moving));
    let stale = world.ack_of(consumer, 0, AckKind::Cumulative, &[(0, 30)]);
    assert_eq!(world.statuses(stale), [AckStatus::Stale]);
    assert!(!world.answers.contains_key(&seek));
    world.write();
    assert_eq!(world.base(), 5);
    assert_eq!(world.statuses(pending), [AckStatus::Ok]);
    let begin = world.begin(consumer).unwrap();
    assert_eq!(
        (begin.base, begin.state_epoch, begin.seek_id),
        (Offset(5), 1, 7)
    );
    // What was sent before the seek is not sent any more.
    let beyond = world.ack(consumer, AckKind::Cumulative, &[(0, 30)]);
    assert_eq!(world.statuses(beyond), [AckStatus::Invalid]);
}

#[test]
fn seeks_that_come_faster_than_deltas_are_one_and_each_is_answered() {
    let (mut world, consumer) = exclusive();
    let first: Vec<u32> = (0..100).map(|to| world.seek(to, None)).collect();
    assert!(world.write());
    let second: Vec<u32> = (0..100).map(|to| world.seek(to, None)).collect();
    assert!(world.write());
    assert!(!world.write());
    for ticket in first.iter().chain(&second) {
        assert!(matches!(world.answers[ticket], Ok(CursorAnswer::Moved(_))));
    }
    assert_eq!(world.base(), 99);
    let begin = world.begin(consumer).unwrap();
    assert_eq!((begin.base, begin.state_epoch), (Offset(99), 200));
}

#[test]
fn skip_keeps_what_is_acked_behind_it() {
    let (mut world, consumer) = exclusive();
    world.sent(consumer, 30);
    world.ack(consumer, AckKind::Individual, &[(20, 25)]);
    let command = MoveCommand {
        subscription: S,
        goal: CursorMove {
            to: Offset(15),
            keep_acked: true,
        },
        by: None,
        evicts: false,
    };
    world.core.move_to(command, 1_000, world.now);
    world.write();
    let cursor = world.durable.get(S).unwrap();
    assert_eq!((cursor.base, cursor.state_epoch), (Offset(15), 1));
    assert_eq!(cursor.acked().offsets(), 5);
    assert_eq!(world.begin(consumer).unwrap().acked.offsets(), 5);
}

#[test]
fn delta_that_fails_is_written_again_with_what_came_since() {
    let (mut world, consumer) = exclusive();
    world.sent(consumer, 30);
    let one = world.ack(consumer, AckKind::Individual, &[(12, 14)]);
    world.now += 10;
    assert!(world.core.begin_write(world.now));
    let two = world.ack(consumer, AckKind::Cumulative, &[(0, 13)]);
    let why = Fault::new(Reason::NotEnoughBookies, "too few");
    world.core.not_written(why.clone(), world.now);
    world.take();
    assert_eq!(world.views[&consumer].acks_wait, Some(why));
    assert!(!world.write(), "not before the wait is over");
    assert!(!world.answers.contains_key(&one));
    world.now += 1_000;
    assert!(world.write());
    assert_eq!(world.statuses(one), [AckStatus::Ok]);
    assert_eq!(world.statuses(two), [AckStatus::Ok]);
    assert_eq!(world.base(), 14);
    assert_eq!(world.views[&consumer].acks_wait, None);
}

#[test]
fn end_of_the_partition_leaves_acks_unknown() {
    let (mut world, consumer) = exclusive();
    world.sent(consumer, 30);
    let ticket = world.ack(consumer, AckKind::Cumulative, &[(0, 13)]);
    world
        .core
        .fail(&Fault::new(Reason::PartitionMoved, "moved"));
    world.take();
    let fault = world.answers[&ticket].clone().unwrap_err();
    assert_eq!(
        (fault.reason, fault.fate),
        (Reason::PartitionMoved, Fate::Unknown)
    );
}

/// Its deletion removes the old one; what comes late of either must not touch the other.
#[test]
fn recreated_subscription_inherits_nothing_and_leaves_its_namesake_alone() {
    let (mut world, consumer) = exclusive();
    world.sent(consumer, 30);
    world.ack(consumer, AckKind::Cumulative, &[(0, 30)]);
    world.write();
    let other = SubscriptionId(Uuid::from_u128(2));
    world.make(other, "a/b/s", 10);
    world.write();
    assert_eq!(world.views[&consumer].ended, None);
    assert_eq!(world.base(), 30);
    assert_eq!(world.durable.get(other).unwrap().base, Offset(10));
}

#[test]
fn removal_waits_for_consumers_unless_it_is_forced() {
    let (mut world, consumer) = exclusive();
    world.core.remove(S, false, 500, world.now);
    world.take();
    let fault = world.answers[&500].clone().unwrap_err();
    assert_eq!(fault.reason, Reason::PreconditionFailed);
    world.core.remove(S, true, 501, world.now);
    world.take();
    assert!(world.views[&consumer].ended.is_some());
    assert!(!world.answers.contains_key(&501));
    world.write();
    assert_eq!(world.answers[&501], Ok(CursorAnswer::Removed));
    assert!(world.durable.is_empty());
    world.core.remove(S, true, 502, world.now);
    world.take();
    assert_eq!(world.answers[&502], Ok(CursorAnswer::Removed));
}

#[test]
fn cursor_that_comes_behind_a_trim_begins_above_it() {
    let mut world = World::new(0);
    world.make(S, "a/b/s", 3);
    assert!(world.write());
    world.core.trim_decided(Offset(20));
    let late = SubscriptionId(Uuid::from_u128(2));
    world.make(late, "a/b/late", 10);
    let moved = world.seek(12, None);
    assert!(world.write());
    assert_eq!(world.durable.get(late).unwrap().base, Offset(20));
    let Ok(CursorAnswer::Moved(moved)) = world.answers.remove(&moved).unwrap() else {
        panic!("{:?}", world.answers);
    };
    assert_eq!(moved.new_base, Offset(20));
    assert_eq!(world.base(), 20);
    // Decided once is decided, also while a lower one comes, and beyond it everybody goes where they like.
    world.core.trim_decided(Offset(15));
    world.core.trimmed(Offset(20), world.now);
    world.seek(19, None);
    assert!(world.write());
    assert_eq!(world.base(), 20);
    world.seek(21, None);
    assert!(world.write());
    assert_eq!(world.base(), 21);
}

#[test]
fn trim_stops_at_what_was_taken_before_it_and_is_not_durable() {
    let mut world = World::new(0);
    assert_eq!(world.core.held_from(), None);
    world.make(S, "a/b/s", 10);
    assert_eq!(
        (world.core.held_from(), world.durable.held_from()),
        (Some(Offset(10)), None)
    );
    assert!(world.write());
    world.seek(4, None);
    assert_eq!(world.core.held_from(), Some(Offset(4)));
    assert_eq!(world.durable.held_from(), Some(Offset(10)));
    // Forth again: what is durable says how far that reaches.
    world.seek(30, None);
    assert_eq!(world.core.held_from(), Some(Offset(30)));
    assert_eq!(world.durable.held_from(), Some(Offset(10)));
    let ticket = world.ticket();
    world.core.hold(S, false, ticket, world.now);
    assert_eq!(world.core.held_from(), None);
    assert!(world.write());
    assert_eq!(world.durable.held_from(), None);
    let ticket = world.ticket();
    world.core.hold(S, true, ticket, world.now);
    assert_eq!(world.core.held_from(), Some(Offset(30)));
}

#[test]
fn base_passes_over_what_is_trimmed_and_what_holds_no_record() {
    let (mut world, consumer) = exclusive();
    world.core.trimmed(Offset(15), world.now);
    world.core.skipped(
        consumer,
        OffsetRange {
            first: Offset(15),
            end: Offset(18),
        },
        world.now,
    );
    world.write();
    assert_eq!(world.base(), 18);
    assert_eq!(world.views[&consumer].released, 0, "nobody acked that");
}

/// Ranges beyond the cap stop new deliveries, and no ack is lost without a word (serving.md B2.7).
#[test]
fn acked_ranges_beyond_the_cap_stop_deliveries_and_are_kept() {
    let (mut world, consumer) = exclusive();
    world.sent(consumer, 100_000);
    let ranges: Vec<_> = (0..25_000).map(|n| (11 + 2 * n, 12 + 2 * n)).collect();
    let ticket = world.ack(consumer, AckKind::Individual, &ranges);
    assert!(world.views[&consumer].crowded);
    while world.write() {}
    let statuses = world.statuses(ticket);
    let taken = statuses.iter().filter(|status| **status == AckStatus::Ok);
    let taken = taken.count();
    assert_eq!(taken, 20_000);
    assert!(
        statuses[taken..]
            .iter()
            .all(|status| *status == AckStatus::Retry)
    );
    let durable = world.durable.get(S).unwrap();
    assert_eq!(durable.acked().len(), taken);
    world.ack(consumer, AckKind::Cumulative, &[(0, 30_000)]);
    assert!(!world.views[&consumer].crowded);
}

/// Nobody else was active meanwhile: what it was sent is its own still.
#[test]
fn active_consumer_whose_rival_goes_within_the_grace_may_ack_what_it_was_sent() {
    let mut world = World::new(0);
    world.make(S, "a/b/s", 10);
    assert!(world.write());
    let first = world.failover("first", 0);
    world.sent(first, 20);
    let rival = world.failover("rival", 1);
    assert!(matches!(world.views[&first].stand, Stand::Yielding(_)));
    world.core.detach(rival, world.now);
    world.take();
    assert!(world.begin(first).is_some());
    let ticket = world.ack(first, AckKind::Individual, &[(12, 20)]);
    assert!(world.write());
    assert_eq!(world.statuses(ticket), [AckStatus::Ok]);
    // A move voids it.
    let rival = world.failover("rival", 1);
    world.seek(5, None);
    assert!(world.write());
    world.core.detach(rival, world.now);
    world.take();
    let ticket = world.ack(first, AckKind::Individual, &[(12, 20)]);
    assert_eq!(world.statuses(ticket), [AckStatus::Invalid]);
}

/// Both would be sent what is neither acked nor kept.
#[test]
fn trim_counts_for_the_window_what_was_sent_and_not_acked() {
    let (mut world, consumer) = exclusive();
    world.sent(consumer, 30);
    world.ack(consumer, AckKind::Individual, &[(12, 15), (22, 24)]);
    assert_eq!(world.views[&consumer].passed, 0);
    world.core.trimmed(Offset(20), world.now);
    world.take();
    let view = &world.views[&consumer];
    assert_eq!((view.released, view.passed), (5, 7));
    world.core.trimmed(Offset(40), world.now);
    world.take();
    let view = &world.views[&consumer];
    assert_eq!((view.released, view.passed), (5, 15));
}

/// Its stream broke: it need not wait until all comes again.
#[test]
fn consumer_that_comes_back_may_ack_what_it_was_given_unless_the_cursor_was_moved() {
    let (mut world, consumer) = exclusive();
    world.sent(consumer, 30);
    let state_epoch = world.begin(consumer).unwrap().state_epoch;
    world.core.detach(consumer, world.now);
    let handed = Handed {
        end: Offset(20),
        state_epoch,
    };
    world.handed = Some(handed);
    let back = world.exclusive("back");
    assert_eq!(world.begin(back).unwrap().acks_to, Offset(20));
    let given = world.ack(back, AckKind::Individual, &[(12, 20)]);
    let beyond = world.ack(back, AckKind::Individual, &[(19, 21)]);
    assert!(world.write());
    assert_eq!(world.statuses(given), [AckStatus::Ok]);
    assert_eq!(world.statuses(beyond), [AckStatus::Invalid]);
    // What is sent again and acked before counts once for the window.
    world.sent(back, 30);
    world.core.trimmed(Offset(11), world.now);
    world.take();
    let view = &world.views[&back];
    assert_eq!((view.released, view.passed), (8, 1));

    world.seek(15, None);
    assert!(world.write());
    world.core.detach(back, world.now);
    world.handed = Some(handed);
    let late = world.exclusive("late");
    let begin = world.begin(late).unwrap();
    assert_eq!((begin.base, begin.acks_to), (Offset(15), Offset(15)));
    let ticket = world.ack(late, AckKind::Individual, &[(16, 20)]);
    assert_eq!(world.statuses(ticket), [AckStatus::Invalid]);
}
