//! QUEUE: rules B3.1–B3.8 of serving.md.

use hulse_proto::id::Offset;

use super::world::{World, named, quick, range};
use crate::*;

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
