//! Moves and skips (serving.md B2.4, B9.3, B9.4, A39, A53).

use hulse_proto::id::Offset;

use super::world::{World, quick, range};
use crate::*;

#[test]
fn a39_seek_voids_answers_of_before_and_delivers_anew() {
    let mut w = World::new(quick(Kind::Queue));
    w.append(10);
    let a = w.join("a", 100);
    w.got();
    w.ack(a, 0, 4);
    w.writes_wait = true;
    w.d.seek(Offset(2), 7, w.now);
    w.step();
    assert_eq!(w.got(), [], "not before it is durable");
    w.written(Written::Done);
    w.writes_wait = false;
    w.step();
    assert_eq!(w.moved, [7]);
    assert_eq!(w.restarts, [(a, 1, 2)]);
    assert_eq!(w.got(), [(a, vec![2, 3, 4, 5, 6, 7, 8, 9])]);
    let old = w.say_as(a, Verdict::Ack, &[(4, 5)], 0, false);
    assert_eq!(w.status(old), Status::Stale);
    assert_eq!(w.ack(a, 2, 10), Status::Ok);
    assert_eq!(w.durable.base, Offset(10));
}

#[test]
fn a39_read_and_write_of_before_a_seek_change_nothing_after_it() {
    let mut w = World::new(quick(Kind::Queue));
    w.append(10);
    let a = w.join("a", 5);
    w.got();
    w.writes_wait = true;
    w.reads_wait = true;
    let ack = w.say(a, Verdict::Ack, &[(0, 10)]);
    w.append(10);
    w.d.grant(a, 100, 0);
    w.step();
    let read = w.reads.pop_front().unwrap();
    w.d.seek(Offset(0), 1, w.now);
    w.d.seek(Offset(5), 2, w.now);
    w.answer_read(&read);
    w.step();
    w.written(Written::Done);
    w.writes_wait = false;
    w.reads_wait = false;
    w.step();
    assert_eq!(w.receipts[&ack], [Status::Ok], "it was durable");
    assert_eq!(w.moved, [1, 2]);
    assert_eq!(w.restarts, [(a, 2, 5)]);
    assert_eq!(w.durable.base, Offset(5));
    assert_eq!(w.got(), [(a, vec![5, 6, 7, 8, 9]), (a, (10..20).collect())]);
}

#[test]
fn a53_records_are_passed_over_without_a_consumer() {
    let mut w = World::new(quick(Kind::Queue));
    w.append(10);
    w.d.skip(range(0, 4), Skip::Expired, w.now);
    w.step();
    assert_eq!(w.durable.base, Offset(4));
    let a = w.join("a", 100);
    assert_eq!(w.got(), [(a, vec![4, 5, 6, 7, 8, 9])]);
}

#[test]
fn b9_3_skip_over_what_is_held_waits_and_failed_is_no_move() {
    let mut w = World::new(quick(Kind::Queue));
    w.append(10);
    let a = w.join("a", 100);
    w.got();
    w.nack(a, 1, 2);
    w.got();
    let delay = Delay::For(1_000);
    w.say(
        a,
        Verdict::Nack {
            failed: true,
            delay,
        },
        &[(2, 3)],
    );
    w.d.skip(range(0, 5), Skip::Evicted, w.now);
    w.step();
    assert_eq!(w.durable.base, Offset(5));
    assert!(w.durable.marks.is_empty());
    assert_eq!(w.d.stats().sessions[0].unacked, 5);
    assert_eq!(
        w.ack(a, 0, 3),
        Status::Ok,
        "it is processed, whoever says so"
    );
    assert_eq!(
        w.ack(a, 5, 10),
        Status::Ok,
        "what is delivered besides stays valid"
    );
    w.pass(100_000);
    assert_eq!(w.got(), []);
    assert_eq!(w.d.stats().state_epoch, 0);
}
