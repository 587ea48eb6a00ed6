//! Dead letters: B3.11 of serving.md.

use hulse_proto::id::Offset;

use super::world::{World, quick, range};
use crate::*;

fn world(dead: DeadLetters) -> World {
    World::new(Policy {
        dead,
        attempts_max: 2,
        ..quick(Kind::Queue)
    })
}

/// Record 1 of 3 fails twice.
fn killed(dead: DeadLetters) -> (World, SessionId) {
    let mut w = world(dead);
    w.append(3);
    let a = w.join("a", 100);
    w.ack(a, 0, 1);
    w.ack(a, 2, 3);
    w.nack(a, 1, 2);
    w.got();
    w.nack(a, 1, 2);
    (w, a)
}

#[test]
fn b3_11_parked_record_stays_is_seen_and_can_be_tried_anew() {
    let (mut w, a) = killed(DeadLetters::Park);
    assert_eq!(w.got(), []);
    let stats = w.d.stats();
    assert_eq!((stats.parked, stats.base), (1, Offset(1)));
    assert_eq!(w.ack(a, 1, 2), Status::NotOwned);
    w.reopen();
    let a = w.join("a", 100);
    assert_eq!((w.got(), w.d.stats().parked), (vec![], 1));
    w.d.redrive(range(0, 100), w.now);
    w.step();
    assert_eq!(w.got_counts(), [(1, 1, 0)]);
    assert_eq!(w.ack(a, 1, 2), Status::Ok);
    assert_eq!(w.durable.base, Offset(3));
    assert!(w.durable.marks.is_empty());
}

#[test]
fn b3_11_dropped_record_counts_as_processed() {
    let (w, _) = killed(DeadLetters::Drop);
    assert_eq!(w.durable.base, Offset(3));
    assert_eq!(w.d.stats().skipped[&Skip::Dead], 1);
}

#[test]
fn b3_11_record_is_acked_only_after_its_copy_is_durable() {
    let (mut w, _) = killed(DeadLetters::Topic);
    let wanted = LetterWanted {
        offset: Offset(1),
        state_epoch: 0,
        seq: 0,
        failed: 2,
        why: Why::Rejected,
        asked: false,
    };
    assert_eq!(w.letters, [wanted]);
    assert_eq!(w.durable.base, Offset(1));
    w.d.letter_failed(0, 0, w.now);
    w.pass(999);
    assert_eq!(w.letters.len(), 1);
    w.pass(1);
    assert_eq!(w.letters.len(), 2, "asked for again");
    assert_eq!(w.letters[1].seq, 0);
    w.d.letter_done(0, 0, w.now);
    w.d.letter_done(0, 0, w.now);
    w.step();
    assert_eq!(w.durable.base, Offset(3));
    assert_eq!(w.d.stats().letters, 1);
}

/// SU-02 and A35: the owner dies between the copy and the ack; the copy is asked for again under the same number.
#[test]
fn b3_11_copy_keeps_its_number_over_a_take_over() {
    let (mut w, _) = killed(DeadLetters::Topic);
    let before = w.letters[0].clone();
    w.reopen();
    assert_eq!(w.letters, std::slice::from_ref(&before));
    // The copy was stored before; its owner says so, whether the record is in the window or not.
    w.d.letter_done(0, before.seq, w.now);
    w.step();
    assert_eq!(w.durable.base, Offset(3));
    w.join("a", 100);
    assert_eq!(w.got(), []);
    assert_eq!(w.durable.letters, 1);
}

#[test]
fn b3_11_number_is_durable_before_the_copy_is_asked_for() {
    let mut w = world(DeadLetters::Topic);
    w.append(1);
    let a = w.join("a", 100);
    w.say(a, Verdict::Reject, &[(0, 1)]);
    assert_eq!(w.letters.len(), 1, "asked for by the consumer");
    assert!(w.letters[0].asked);
    assert_eq!(w.durable.marks.get(0).letter, Letter::Numbered(0));
    assert_eq!(w.ack(a, 0, 1), Status::NotOwned, "it is on its way");
}

#[test]
fn b3_11_at_most_five_letters_are_under_way() {
    let mut w = world(DeadLetters::Topic);
    w.append(8);
    let a = w.join("a", 100);
    w.say(a, Verdict::Reject, &[(0, 8)]);
    let seqs = |w: &World| w.letters.iter().map(|it| it.seq).collect::<Vec<_>>();
    assert_eq!(seqs(&w), [0, 1, 2, 3, 4]);
    w.d.letter_done(0, 2, w.now);
    w.step();
    assert_eq!(seqs(&w), [0, 1, 2, 3, 4, 5]);
    for seq in [0, 1, 3, 4, 5, 6, 7] {
        w.d.letter_done(0, seq, w.now);
        w.step();
    }
    assert_eq!(w.durable.base, Offset(8));
    assert_eq!(w.d.stats().letters, 8);
}

#[test]
fn b3_11_seek_fences_the_letters_of_before() {
    let (mut w, _) = killed(DeadLetters::Topic);
    w.d.seek(Offset(0), 9, w.now);
    w.d.letter_done(0, 0, w.now);
    w.step();
    assert_eq!(w.moved, [9]);
    assert_eq!(w.durable.base, Offset(0));
    assert_eq!(w.durable.letters, 0);
}

#[test]
fn b3_11_parked_record_that_nobody_read_is_counted_and_tried_anew() {
    let (mut w, _) = killed(DeadLetters::Park);
    w.reopen();
    assert_eq!((w.d.stats().parked, w.d.parked(range(0, 100))), (1, 1));
    assert_eq!(w.d.parked(range(2, 100)), 0);
    // It is read while the redrive is written.
    w.writes_wait = true;
    w.d.redrive(range(0, 100), w.now);
    w.d.settle(Offset(1), 5);
    w.step();
    let a = w.join("a", 100);
    assert_eq!((w.got(), w.moved.clone()), (vec![], vec![]));
    w.written(Written::Done);
    w.writes_wait = false;
    w.step();
    assert_eq!(w.moved, [5]);
    assert_eq!(w.got_counts(), [(1, 1, 0)]);
    assert_eq!(w.d.stats().parked, 0);
    assert_eq!(w.ack(a, 1, 2), Status::Ok);
    assert!(w.durable.marks.is_empty());
}
