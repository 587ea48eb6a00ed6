//! QUEUE: rules B3.1–B3.10, B3.13, B3.14 of serving.md.

use hulse_proto::id::Offset;

use super::world::{World, named, offsets, quick, range};
use crate::*;

const DELAYED: Verdict = Verdict::Nack {
    failed: true,
    delay: Delay::For(5_000),
};
const RELEASE: Verdict = Verdict::Nack {
    failed: false,
    delay: Delay::None,
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
fn b3_1_what_holds_no_record_is_processed_by_itself() {
    let mut w = world();
    w.append(10);
    w.reads_wait = true;
    let a = w.join("a", 100);
    let wanted = w.reads.pop_front().unwrap();
    w.kept.insert(0);
    let batch = Batch {
        range: range(0, 4),
        bytes: 400,
        keys: Keys::Unknown,
    };
    let done = ReadDone {
        id: wanted.id,
        batches: vec![batch],
        skipped: vec![(range(4, 6), Skip::Control), (range(6, 9), Skip::Expired)],
        end: Offset(10),
    };
    w.d.read_done(done, w.now);
    w.step();
    assert_eq!(w.got(), [(a, vec![0, 1, 2, 3])]);
    let skipped = w.d.stats().skipped;
    assert_eq!(skipped[&Skip::Control], 2);
    assert_eq!(skipped[&Skip::Expired], 3);
    assert_eq!(skipped[&Skip::Compacted], 1);
    assert_eq!(w.ack(a, 0, 4), Status::Ok);
    assert_eq!(w.durable.base, Offset(10));
}

#[test]
fn b3_1_nothing_is_delivered_above_the_last_stable_offset() {
    let mut w = world();
    w.append(3);
    let a = w.join("a", 100);
    assert_eq!(w.got(), [(a, vec![0, 1, 2])]);
    w.log.push(super::world::Stored {
        range: range(3, 6),
        keys: vec![None; 3],
        stamp: None,
    });
    w.step();
    assert_eq!(w.got(), []);
    w.d.readable(Offset(6));
    w.step();
    assert_eq!(w.got(), [(a, vec![3, 4, 5])]);
}

#[test]
fn b3_2_replay_goes_before_what_was_read_meanwhile() {
    let mut w = with(|policy| policy.unit_records_max = 2);
    w.append(2);
    let a = w.join("a", 2);
    assert_eq!(w.got(), [(a, vec![0, 1])]);
    w.reads_wait = true;
    w.d.grant(a, 1, 0);
    w.append(2);
    w.step();
    assert_eq!(w.reads.len(), 1);
    w.say(a, RELEASE, &[(0, 2)]);
    let tail = w.reads.pop_front().unwrap();
    w.answer_read(&tail);
    w.step();
    assert_eq!(w.got(), [], "what was read waits for the replay");
    w.reads_wait = false;
    w.step();
    assert_eq!(w.got(), [(a, vec![0, 1])]);
    w.d.grant(a, 10, 0);
    w.step();
    assert_eq!(w.got(), [(a, vec![2, 3])]);
}

#[test]
fn b3_2_replay_that_cannot_be_read_lets_others_go_on() {
    let mut w = world();
    w.append(2);
    let a = w.join("a", 100);
    w.got();
    w.reads_wait = true;
    w.append(2);
    w.say(a, RELEASE, &[(0, 2)]);
    while let Some(wanted) = w.reads.pop_front() {
        match wanted.again {
            true => w.d.read_failed(wanted.id, w.now),
            false => w.answer_read(&wanted),
        }
    }
    w.step();
    assert_eq!(w.got(), [(a, vec![2, 3])]);
    w.reads_wait = false;
    w.pass(1_000);
    assert_eq!(w.got(), [(a, vec![0, 1])]);
}

#[test]
fn b3_3_unit_is_a_batch_and_names_what_is_left_of_it() {
    let mut w = world();
    w.append(10);
    let a = w.join("a", 100);
    w.got();
    w.ack(a, 1, 3);
    w.ack(a, 5, 6);
    w.leave(a, Leave::Closed);
    let b = w.join("b", 100);
    assert_eq!(w.units.len(), 1);
    assert_eq!(w.units[0].batch, range(0, 10));
    assert_eq!(w.got(), [(b, vec![0, 3, 4, 6, 7, 8, 9])]);
}

#[test]
fn b3_4_highest_priority_then_most_credit_then_in_turn() {
    let mut w = world();
    let mut high = named("high");
    high.priority = 1;
    let high = w.join_as(&high, 1);
    let (rich, poor) = (w.join("rich", 20), w.join("poor", 10));
    for _ in 0..3 {
        w.append(5);
    }
    w.step();
    let to: Vec<_> = w.got().into_iter().map(|(id, _)| id).collect();
    assert_eq!(to, [high, rich, rich], "5 of 20 left it with 15");
    w.append(1);
    w.append(1);
    w.step();
    let to: Vec<_> = w.got().into_iter().map(|(id, _)| id).collect();
    assert_eq!(
        to,
        [poor, rich],
        "10 and 10: the one that was served longer ago"
    );
}

#[test]
fn b3_5_lock_that_ends_brings_the_record_back_and_counts() {
    let mut w = world();
    w.append(3);
    let a = w.join("a", 100);
    assert_eq!(w.units[0].lock_until, Some(w.now + 30_000));
    assert_eq!(w.units[0].seq, 1);
    w.got();
    w.pass(29_999);
    assert_eq!(w.got(), []);
    w.pass(1);
    assert_eq!(w.got_counts(), [(0, 2, 1)]);
    assert_eq!(w.d.stats().sessions[0].unacked, 3);
    let mark = w.durable.marks.get(1);
    assert_eq!((mark.failed, mark.why), (1, Why::LockExpired));
    let _ = a;
}

#[test]
fn b3_5_renewed_lock_keeps_its_record_for_ten_times_the_lock() {
    let mut w = world();
    w.append(4);
    let a = w.join("a", 100);
    w.got();
    for _ in 0..15 {
        w.pass(20_000);
        let ticket = w.say(a, Verdict::Renew, &[(1, 3)]);
        assert_eq!(w.status(ticket), Status::Ok);
        w.got();
    }
    assert_eq!(w.durable.marks.get(1).failed, 0);
    assert_eq!(w.durable.marks.get(2).failed, 0);
    assert!(w.durable.marks.get(0).failed > 2);
    assert_eq!(w.ack(a, 1, 3), Status::Ok);
}

#[test]
fn b3_5_without_a_lock_nothing_comes_back_by_itself() {
    let mut w = with(|policy| policy.lock_ms = 0);
    w.append(1);
    let a = w.join("a", 100);
    w.got();
    w.pass(100_000_000);
    assert_eq!(w.got(), []);
    assert_eq!(w.d.next_deadline(), None);
    assert_eq!(w.ack(a, 0, 1), Status::Ok);
}

#[test]
fn b3_6_acks_are_judged_range_by_range() {
    let mut w = with(|policy| policy.unit_records_max = 5);
    w.append(10);
    let (a, b) = (w.join("a", 5), w.join("b", 5));
    assert_eq!(
        w.got(),
        [(a, vec![0, 1, 2, 3, 4]), (b, vec![5, 6, 7, 8, 9])]
    );
    let ticket = w.say(a, Verdict::Ack, &[(0, 2), (6, 7), (4, 6), (3, 11), (2, 2)]);
    use Status::{Invalid, NotOwned, Ok};
    assert_eq!(
        w.receipts[&ticket],
        [Ok, NotOwned, NotOwned, Invalid, Invalid]
    );
    let ticket = w.say(a, Verdict::Ack, &[(0, 2), (4, 5), (0, 1)]);
    assert_eq!(w.receipts[&ticket], [Ok, Ok, Ok], "acked before");
    assert_eq!(w.durable.base, Offset(2));
    let acked: Vec<_> = w.durable.acked.iter().collect();
    assert_eq!(acked, [range(4, 5)]);
    let ticket = w.say_as(b, Verdict::Ack, &[(5, 6)], 7, false);
    assert_eq!(w.receipts[&ticket], [Status::Stale]);
}

#[test]
fn b3_6_late_ack_saves_a_redelivery() {
    let mut w = world();
    w.append(2);
    let a = w.join("a", 2);
    w.got();
    w.pass(30_000);
    assert_eq!(w.d.stats().waiting, 2, "without credit nobody has it");
    assert_eq!(w.ack(a, 0, 1), Status::Ok);
    w.join("b", 100);
    w.got();
    assert_eq!(w.ack(a, 1, 2), Status::NotOwned, "b has it");
}

#[test]
fn b3_7_refused_delta_puts_the_record_back_to_its_holder() {
    let mut w = world();
    w.append(4);
    let (a, _) = (w.join("a", 4), w.join("b", 0));
    w.got();
    w.writes_wait = true;
    let ack = w.say(a, Verdict::Ack, &[(0, 2)]);
    let nack = w.say(
        a,
        Verdict::Nack {
            failed: true,
            delay: Delay::None,
        },
        &[(2, 3)],
    );
    w.written(Written::Refused);
    w.step();
    assert_eq!(w.receipts[&ack], [Status::Retry]);
    w.written(Written::Refused);
    w.writes_wait = false;
    w.step();
    assert_eq!(w.receipts[&nack], [Status::Retry]);
    assert_eq!(w.d.stats().acquired, 4);
    assert_eq!(w.durable, QueueState::default());
    assert_eq!(w.ack(a, 0, 4), Status::Ok);
    assert_eq!(w.durable.base, Offset(4));
}

#[test]
fn b3_7_refused_delta_frees_the_record_of_a_consumer_that_went() {
    let mut w = world();
    w.append(2);
    let a = w.join("a", 2);
    w.got();
    w.writes_wait = true;
    w.say(a, Verdict::Ack, &[(0, 1)]);
    w.leave(a, Leave::Crashed);
    w.written(Written::Refused);
    w.writes_wait = false;
    w.step();
    let b = w.join("b", 10);
    w.step();
    let got: Vec<u64> = w.got().into_iter().flat_map(|(_, got)| got).collect();
    assert_eq!(got, [0, 1]);
    assert_eq!(w.ack(b, 0, 2), Status::Ok);
}

#[test]
fn b3_7_ack_before_the_lock_ends_wins_while_its_delta_is_under_way() {
    let mut w = world();
    w.append(1);
    let a = w.join("a", 100);
    w.got();
    w.pass(29_999);
    w.writes_wait = true;
    let ticket = w.say(a, Verdict::Ack, &[(0, 1)]);
    w.pass(1_500);
    assert_eq!(w.got(), []);
    w.written(Written::Done);
    w.step();
    assert_eq!(w.receipts[&ticket], [Status::Ok]);
    assert_eq!(w.durable.base, Offset(1));
    assert_eq!(w.d.stats().failed, 0);
}

#[test]
fn b3_7_lock_that_ended_while_a_refused_ack_was_under_way_ends_then() {
    let mut w = world();
    w.append(1);
    let a = w.join("a", 100);
    w.got();
    w.pass(29_999);
    w.writes_wait = true;
    w.say(a, Verdict::Ack, &[(0, 1)]);
    w.pass(1_500);
    w.written(Written::Refused);
    w.writes_wait = false;
    w.step();
    assert_eq!(w.got_counts(), [(0, 2, 1)]);
}

/// Each event of the table, and what it adds to `acquired` and `delivery`.
#[test]
fn b3_8_two_counters_follow_the_table() {
    type Event = fn(&mut World, SessionId);
    let events: [(&str, u16, Event); 8] = [
        ("nack", 1, |w, a| {
            w.nack(a, 0, 1);
        }),
        ("lock", 1, |w, _| w.pass(30_000)),
        ("crash", 1, |w, a| w.leave(a, Leave::Crashed)),
        ("release", 0, |w, a| {
            w.say(a, RELEASE, &[(0, 1)]);
        }),
        ("close", 0, |w, a| w.leave(a, Leave::Closed)),
        ("pause", 0, |w, a| w.d.pause(a, w.now)),
        ("not failed, later", 0, |w, a| {
            let delay = Delay::For(10);
            w.say(
                a,
                Verdict::Nack {
                    failed: false,
                    delay,
                },
                &[(0, 1)],
            );
            w.pass(10);
        }),
        ("reject without a limit", 1, |w, a| {
            w.say(a, Verdict::Reject, &[(0, 1)]);
            w.d.redrive(range(0, 1), w.now);
            w.step();
        }),
    ];
    for (name, failed, event) in events {
        let mut w = with(|policy| policy.attempts_max = 0);
        w.append(1);
        let a = w.join("a", 1);
        assert_eq!(w.got_counts(), [(0, 1, 0)], "{name}");
        event(&mut w, a);
        w.join("b", 1);
        w.step();
        let redriven = name.starts_with("reject");
        let expected = if redriven { 0 } else { failed };
        assert_eq!(w.got_counts(), [(0, 2, expected)], "{name}");
        assert_eq!(w.d.stats().failed, u64::from(failed), "{name}");
    }
}

#[test]
fn b3_8_owner_that_moves_keeps_failures_and_counts_none() {
    let mut w = world();
    w.append(2);
    let a = w.join("a", 100);
    w.got();
    w.nack(a, 0, 1);
    w.got();
    w.reopen();
    w.join("a", 100);
    assert_eq!(w.got_counts(), [(0, 1, 1), (1, 1, 0)]);
    let unit = Acquired {
        range: range(0, 1),
        acquired: 1,
        failed: 1,
    };
    assert_eq!(unit.delivery_count(), 2);
}

#[test]
fn a34_record_that_failed_comes_again_only_when_its_count_is_durable() {
    let mut w = world();
    w.append(1);
    let a = w.join("a", 100);
    w.got();
    w.writes_wait = true;
    let verdict = Verdict::Nack {
        failed: true,
        delay: Delay::None,
    };
    w.say(a, verdict, &[(0, 1)]);
    assert_eq!(w.got(), []);
    w.written(Written::Done);
    w.step();
    assert_eq!(w.got_counts(), [(0, 2, 1)]);
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
