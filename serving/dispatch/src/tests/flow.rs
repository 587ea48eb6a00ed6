//! Flow: credit, caps, blocks, and storage that does not answer (serving.md B2.7, B9.1, B9.2, B10).

use hulse_proto::id::Offset;

use super::world::{RECORD_BYTES, World, quick};
use crate::*;

fn with(change: impl FnOnce(&mut Policy)) -> World {
    let mut policy = quick(Kind::Queue);
    change(&mut policy);
    World::new(policy)
}

#[test]
fn b9_1_unit_needs_credit_in_records_and_bytes_and_overdraws_once() {
    let mut w = with(|_| {});
    for _ in 0..4 {
        w.append(10);
    }
    let a = w.join("a", 0);
    w.d.grant(a, 0, 0);
    assert_eq!(w.got(), []);
    w.d.grant(a, 1, 0);
    w.step();
    assert_eq!(w.got().len(), 1, "bytes were granted when it came");
    w.d.grant(a, 8, 0);
    w.step();
    assert_eq!(w.got(), [], "it owes one");
    w.d.grant(a, 2, 0);
    w.step();
    assert_eq!(w.got().len(), 1);
    let (records, _) = w.d.revoke(a);
    assert_eq!(records, 0);
    let b =
        w.d.attach(&super::world::named("b"), Offset(0), w.now)
            .unwrap();
    w.d.grant(b, 100, 1);
    w.step();
    assert_eq!(w.got().len(), 1);
    w.d.grant(b, 0, 10 * RECORD_BYTES - 1);
    w.step();
    assert_eq!(w.got(), [], "at 0 bytes");
    assert_eq!(w.d.revoke(b).0, 90);
}

#[test]
fn b9_1_credit_dies_with_its_session_and_acks_make_none() {
    let mut w = with(|_| {});
    w.append(5);
    let a = w.join("a", 1_000);
    w.got();
    w.ack(a, 0, 5);
    assert_eq!(w.d.stats().sessions[0].records, 995);
    w.leave(a, Leave::Crashed);
    w.d.grant(a, 500, 500);
    let again = w.join("a", 0);
    w.append(1);
    w.step();
    assert_eq!(w.got(), []);
    assert_eq!(w.d.stats().sessions[0].records, 0);
    w.d.grant(again, 1, 0);
    w.step();
    assert_eq!(w.got().len(), 1);
}

#[test]
fn b9_2_consumer_with_too_many_unacked_is_told_once_and_when_it_is_over() {
    let mut w = with(|policy| policy.unacked_max = 10);
    for _ in 0..3 {
        w.append(7);
    }
    let a = w.join("a", 1_000);
    assert_eq!(w.got().len(), 2, "10 and what is left of one unit");
    w.pass(499);
    assert_eq!(w.blocked, []);
    w.pass(10_000);
    let reason = BlockedReason::UnackedOfConsumer;
    assert_eq!(w.blocked, [(a, reason, false)]);
    w.ack(a, 0, 5);
    assert_eq!(w.blocked, [(a, reason, false), (a, reason, true)]);
    assert_eq!(w.got().len(), 1);
}

#[test]
fn b2_7_cursor_with_too_many_unacked_reads_no_more_and_redelivers() {
    let mut w = with(|policy| policy.window_max = 20);
    for _ in 0..5 {
        w.append(7);
    }
    let a = w.join("a", 1_000);
    assert_eq!(w.got().len(), 3, "20 and what is left of one batch");
    w.pass(500);
    assert_eq!(w.blocked, [(a, BlockedReason::UnackedOfCursor, false)]);
    w.nack(a, 3, 5);
    assert_eq!(w.got(), [(a, vec![3, 4])]);
    w.ack(a, 0, 7);
    assert_eq!(w.got().len(), 1);
}

#[test]
fn b2_7_at_the_cap_of_ack_ranges_nothing_is_read_and_nothing_is_lost() {
    let mut w = with(|policy| {
        policy.ack_ranges_max = 10;
        policy.look_ahead_per_consumer = 10;
    });
    for _ in 0..10 {
        w.append(10);
    }
    let a = w.join("a", 10);
    while w.d.stats().ack_ranges < 10 {
        for (_, got) in w.got() {
            for offset in got.into_iter().filter(|offset| offset % 2 == 1) {
                w.ack(a, offset, offset + 1);
            }
        }
        w.d.grant(a, 10, 0);
        w.step();
    }
    let end = w.d.stats().window_end;
    w.d.grant(a, 1_000, 0);
    w.pass(600);
    assert_eq!(w.d.stats().window_end, end);
    assert!(w.blocked.contains(&(a, BlockedReason::AckRanges, false)));
    w.reopen();
    let a = w.join("a", 1_000);
    let got: Vec<u64> = w.got().into_iter().flat_map(|(_, got)| got).collect();
    assert!(
        got.iter().all(|offset| offset % 2 == 0 || *offset >= 20),
        "{got:?}"
    );
    w.ack(a, 0, 2);
    let mut rounds = 0;
    while w.d.stats().base < Offset(100) {
        let end = w.d.stats().window_end.0;
        w.ack(a, 0, end);
        w.step();
        rounds += 1;
        assert!(rounds < 100, "{:?}", w.d.stats());
    }
}

#[test]
fn b10_undurable_acks_stop_dispatch_after_two_seconds() {
    let mut w = with(|_| {});
    w.append(1);
    let a = w.join("a", 1_000);
    w.got();
    w.writes_wait = true;
    let ticket = w.say(a, Verdict::Ack, &[(0, 1)]);
    w.append(1);
    w.pass(1_000);
    assert_eq!(w.got().len(), 1, "goes on meanwhile");
    w.pass(1_000);
    w.append(1);
    w.step();
    assert_eq!(w.got(), []);
    assert_eq!(w.blocked, [(a, BlockedReason::AcksWait, false)]);
    w.written(Written::Later);
    w.pass(499);
    assert!(w.write.is_none());
    w.pass(1);
    w.written(Written::Done);
    w.step();
    assert_eq!(w.receipts[&ticket], [Status::Ok]);
    assert_eq!(w.blocked.len(), 2);
    assert_eq!(w.got().len(), 1);
}

#[test]
fn b2_3_changes_are_gathered_and_written_one_delta_at_a_time() {
    let mut w = World::new(Policy {
        reattach_grace_ms: 0,
        ..Policy::new(Kind::Queue)
    });
    w.append(100);
    let a = w.join("a", 1_000);
    w.writes_wait = true;
    for offset in 0..50 {
        w.say(a, Verdict::Ack, &[(offset, offset + 1)]);
    }
    assert!(w.write.is_none());
    w.pass(4);
    let (_, delta) = w.write.clone().unwrap();
    assert_eq!(delta.acked, [OffsetRange::new(0, 50)]);
    let later = w.say(a, Verdict::Ack, &[(60, 61), (0, 1)]);
    w.pass(100);
    w.written(Written::Done);
    w.step();
    assert_eq!(w.receipts.len(), 50);
    w.written(Written::Done);
    w.step();
    assert_eq!(w.receipts[&later], [Status::Ok, Status::Ok]);
}

#[test]
fn consumers_of_one_cursor_are_bounded() {
    let mut w = with(|_| {});
    for n in 0..1_000 {
        w.d.attach(&super::world::named(&n.to_string()), Offset(0), 0)
            .unwrap();
    }
    let full = w.d.attach(&super::world::named("x"), Offset(0), 0);
    assert_eq!(full, Err(AttachFault::Full));
}

#[test]
fn policy_says_all_that_is_out_of_bounds() {
    let mut policy = Policy::new(Kind::Queue);
    assert_eq!(policy.validate(), Ok(()));
    policy.lock_ms = 14_999;
    policy.attempts_max = 101;
    policy.window_max = 0;
    policy.backoff = Backoff::Steps(Vec::new());
    let faults = policy.validate().unwrap_err();
    let fields: Vec<_> = faults.iter().map(|fault| fault.field).collect();
    let expected = ["lock_ms", "attempts_max", "window_max", "backoff steps"];
    assert_eq!(fields, expected);
}
