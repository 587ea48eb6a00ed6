//! QUEUE: what comes back, rules B3.9, B3.10, B3.13 and B3.14 of serving.md.

use hulse_proto::id::Offset;

use super::world::{World, offsets, quick};
use crate::*;

const DELAYED: Verdict = Verdict::Nack {
    failed: true,
    delay: Delay::For(5_000),
};

fn world() -> World {
    World::new(quick(Kind::Queue))
}

fn with(change: impl FnOnce(&mut Policy)) -> World {
    let mut policy = quick(Kind::Queue);
    change(&mut policy);
    World::new(policy)
}

#[test]
fn b3_9_units_of_suspects_are_halved_and_the_last_attempt_is_alone() {
    let policy = Policy::new(Kind::Queue);
    let sizes: Vec<_> = (0..5).map(|failed| policy.suspects_max(failed)).collect();
    assert_eq!(sizes, [None, None, Some(4), Some(2), Some(1)]);
    for limit in 2..=100 {
        let policy = Policy {
            attempts_max: limit,
            ..Policy::new(Kind::Queue)
        };
        assert_eq!(policy.suspects_max(limit - 1), Some(1));
    }
}

/// A37: one record of 500 kills its consumer each time.
#[test]
fn b3_9_poison_record_takes_at_most_three_healthy_ones_beyond_two_failures() {
    let mut w = world();
    w.append(500);
    const POISON: u64 = 250;
    let mut crashes = 0;
    for round in 0.. {
        assert!(round < 2_000, "no end: {:?}", w.d.stats());
        let a = w.join(&format!("c{round}"), 1_000);
        loop {
            let units = std::mem::take(&mut w.units);
            let Some(unit) = units.first().cloned() else {
                break;
            };
            assert!(units.len() == 1);
            // It works in order, and dies of the poison before it acks anything of the unit.
            if offsets(&unit).contains(&POISON) {
                crashes += 1;
                break;
            }
            for offset in offsets(&unit) {
                w.ack(a, offset, offset + 1);
            }
        }
        if w.d.stats().parked == 1 && w.d.stats().unacked == 1 {
            break;
        }
        w.leave(a, Leave::Crashed);
    }
    assert_eq!(crashes, 5);
    assert_eq!(w.durable.marks.get(POISON).failed, 5);
    assert_eq!(w.d.stats().acked, 499);
    // 2 × 500, then 4, 2 and 1.
    assert_eq!(w.d.stats().failed, 1_007);
}

#[test]
fn b3_9_suspects_go_to_a_consumer_that_holds_nothing() {
    let mut w = world();
    w.append(1);
    let a = w.join("a", 100);
    w.nack(a, 0, 1);
    w.nack(a, 0, 1);
    w.got();
    assert_eq!(w.d.stats().sessions[0].unacked, 1);
    w.append(1);
    w.step();
    assert_eq!(w.got(), [], "it has a suspect, and nothing else beside it");
    let b = w.join("b", 100);
    assert_eq!(w.got(), [(b, vec![1])]);
    w.nack(a, 0, 1);
    assert_eq!(w.got(), [(a, vec![0])], "b holds one");
    w.pass(5_000);
    w.append(1);
    w.step();
    assert_eq!(w.got().len(), 1, "nobody waits for a suspect for ever");
}

#[test]
fn b3_10_nack_with_a_delay_waits_and_is_durable() {
    let mut w = world();
    w.append(3);
    let a = w.join("a", 100);
    w.got();
    w.say(a, DELAYED, &[(1, 2)]);
    assert_eq!(w.durable.marks.get(1).retry_at, w.now + 5_000);
    w.reopen();
    w.join("a", 100);
    assert_eq!(w.got(), [(SessionId(1), vec![0, 2])]);
    w.pass(4_999);
    assert_eq!(w.got(), []);
    w.pass(1);
    assert_eq!(w.got_counts(), [(1, 1, 1)]);
}

#[test]
fn b3_10_backoff_goes_by_the_list_or_doubles_with_jitter() {
    let verdict = Verdict::Nack {
        failed: true,
        delay: Delay::Policy,
    };
    let delays = |backoff: Backoff| {
        let mut w = with(|policy| {
            policy.backoff = backoff.clone();
            policy.attempts_max = 0;
        });
        w.append(1);
        let a = w.join("a", 100);
        let mut delays = Vec::new();
        for _ in 0..4 {
            w.say(a, verdict, &[(0, 1)]);
            delays.push(w.durable.marks.get(0).retry_at - w.now);
            w.pass(delays[delays.len() - 1]);
        }
        delays
    };
    assert_eq!(delays(Backoff::Steps(vec![10, 50])), [10, 50, 50, 50]);
    let doubled = delays(Backoff::Doubling { min_ms: 1_000 });
    for (n, delay) in doubled.iter().enumerate() {
        let least = 1_000 << n;
        assert!((least..=least + least / 4).contains(delay), "{doubled:?}");
    }
    assert_eq!(doubled, delays(Backoff::Doubling { min_ms: 1_000 }));
    let mut w = world();
    w.append(1);
    let a = w.join("a", 1);
    let delay = Delay::For(i64::MAX);
    w.say(
        a,
        Verdict::Nack {
            failed: true,
            delay,
        },
        &[(0, 1)],
    );
    assert_eq!(w.durable.marks.get(0).retry_at, w.now + 86_400_000);
}

#[test]
fn b3_13_disconnect_releases_at_once_and_only_its_own() {
    let mut w = with(|policy| policy.unit_records_max = 2);
    w.append(4);
    let (a, b) = (w.join("a", 2), w.join("b", 2));
    w.got();
    w.leave(a, Leave::Closed);
    let c = w.join("c", 2);
    assert_eq!(w.got(), [(c, vec![0, 1])]);
    assert_eq!(w.ack(b, 2, 4), Status::Ok);
}

#[test]
fn b3_14_new_owner_waits_for_acks_with_tickets() {
    let mut w = World::new(Policy {
        gather_ms: 0,
        ..Policy::new(Kind::Queue)
    });
    w.append(10);
    let a = w.join("a", 100);
    w.got();
    w.ack(a, 4, 6);
    w.append(5);
    w.reopen();
    let a = w.join("a", 100);
    let got: Vec<u64> = w.got().into_iter().flat_map(|(_, got)| got).collect();
    assert_eq!(
        got,
        [6, 7, 8, 9, 10, 11, 12, 13, 14],
        "the old window waits"
    );
    let ticket = w.say_as(a, Verdict::Ack, &[(0, 3)], 0, true);
    assert_eq!(w.status(ticket), Status::Ok);
    assert_eq!(w.ack(a, 3, 4), Status::NotOwned, "without a ticket");
    w.pass(1_000);
    assert_eq!(w.got(), [(a, vec![3])]);
    assert_eq!(w.durable.base, Offset(3));
}

#[test]
fn b3_14_ticket_counts_for_what_was_not_read_yet_and_for_the_same_name() {
    let mut w = world();
    w.append(10);
    let a = w.join("a", 0);
    let ticket = w.say_as(a, Verdict::Ack, &[(5, 7)], 0, true);
    assert_eq!(w.status(ticket), Status::Ok);
    w.d.grant(a, 100, 1 << 30);
    w.step();
    assert_eq!(w.got(), [(a, vec![0, 1, 2, 3, 4, 7, 8, 9])]);
    w.leave(a, Leave::Closed);
    let (b, again) = (w.join("b", 0), w.join("a", 0));
    let ticket = w.say_as(b, Verdict::Ack, &[(0, 1)], 0, true);
    assert_eq!(w.status(ticket), Status::NotOwned);
    let ticket = w.say_as(again, Verdict::Ack, &[(0, 1)], 0, true);
    assert_eq!(w.status(ticket), Status::Ok);
    let ticket = w.say_as(again, Verdict::Ack, &[(9, 11)], 0, true);
    assert_eq!(w.status(ticket), Status::Invalid, "beyond the end");
}

#[test]
fn b3_8_pause_gives_back_without_counting_and_its_time_ends_it() {
    let mut w = World::new(quick(Kind::Queue));
    w.append(4);
    let a = w.join("a", 100);
    w.got();
    let until = w.now + 10_000;
    w.d.pause_until(until, w.now);
    w.step();
    assert_eq!(w.restarts, [(a, 0, 0)], "what waits at the client is void");
    assert_eq!(w.blocked, [(a, BlockedReason::Paused, false)]);
    assert_eq!(w.d.stats().paused_until, Some(until));
    assert_eq!(w.d.stats().sessions[0].unacked, 0);
    // The application was at work on one.
    assert_eq!(w.ack(a, 1, 2), Status::Ok);
    w.append(2);
    w.pass(9_999);
    assert_eq!(w.got(), []);
    assert_eq!(w.d.next_deadline(), Some(until));
    w.pass(1);
    assert_eq!(w.got(), [(a, vec![0, 2, 3]), (a, vec![4, 5])]);
    assert_eq!(w.d.stats().failed, 0);
    assert_eq!(w.blocked[1], (a, BlockedReason::Paused, true));
}

#[test]
fn b3_8_pause_goes_on_for_those_that_come_until_somebody_resumes() {
    let mut w = World::new(quick(Kind::Queue));
    w.append(2);
    w.d.pause_until(i64::MAX, w.now);
    let a = w.join("a", 100);
    w.pass(1_000_000);
    assert_eq!((w.got(), w.d.next_deadline()), (vec![], None));
    w.d.pause_until(0, w.now);
    w.step();
    assert_eq!(w.got(), [(a, vec![0, 1])]);
}
