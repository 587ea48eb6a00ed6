//! The order of a lane's answers, without any I/O.

use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::Offset;
use hulse_proto::wire::v1::produce_down::Item;
use proptest::prelude::*;

use super::lane::{Lane, LaneConfig, Take};
use crate::Produced;

fn produced(offset: u64) -> Produced {
    Produced {
        base_offset: Offset(offset),
        append_time: 1,
        duplicate: false,
    }
}

fn fault(reason: Reason) -> Fault {
    Fault::new(reason, "for a test")
}

fn opening(answers: bool) -> Lane<u64> {
    Lane::opening(LaneConfig {
        lane: 7,
        answers,
        inflight_max: 5,
    })
}

fn open(answers: bool) -> Lane<u64> {
    let mut lane = opening(answers);
    assert!(lane.opened());
    lane
}

/// Gives batch `seq` to the lane, which must hand it on.
fn take(lane: &mut Lane<u64>, seq: u64) -> u64 {
    match lane.take(seq, seq) {
        Take::Produce(ticket, batch) => {
            assert_eq!(batch, seq);
            ticket
        }
        other => panic!("{other:?}"),
    }
}

/// What the lane says, in short words.
fn said(lane: &mut Lane<u64>) -> Vec<String> {
    let mut out = Vec::new();
    let released = lane.speak(&mut out);
    let mut words: Vec<String> = out.iter().map(word).collect();
    words.extend(released.iter().map(|(_, batch)| format!("produce {batch}")));
    words
}

fn word(item: &Item) -> String {
    let reason = |fault: &Option<hulse_proto::wire::v1::Fault>| {
        fault
            .as_ref()
            .map_or("-".to_owned(), |fault| fault.reason.clone())
    };
    match item {
        Item::Ack(ack) => {
            let offsets: Vec<_> = ack.batches.iter().map(|batch| batch.base_offset).collect();
            format!("ack {} {offsets:?}", ack.first_seq)
        }
        Item::Nack(nack) => format!("nack {} {}", nack.seq, reason(&nack.fault)),
        Item::Flushed(flushed) => format!("flushed {}", flushed.seq),
        Item::Closed(closed) => format!("closed {}", reason(&closed.fault)),
        Item::Fenced(fenced) => format!("fenced {}", reason(&fenced.fault)),
        other => format!("{other:?}"),
    }
}

#[test]
fn outcomes_out_of_order_are_acked_in_order_and_together() {
    let mut lane = open(true);
    let tickets: Vec<_> = (0..3).map(|seq| take(&mut lane, seq)).collect();
    lane.settle(tickets[2], Ok(produced(12)));
    lane.settle(tickets[1], Ok(produced(11)));
    assert_eq!(said(&mut lane), [""; 0]);
    lane.settle(tickets[0], Ok(produced(10)));
    assert_eq!(said(&mut lane), ["ack 0 [10, 11, 12]"]);
}

#[test]
fn gap_in_seq_is_refused_and_so_is_what_follows_until_resume() {
    let mut lane = open(true);
    let first = take(&mut lane, 0);
    assert_eq!(lane.take(2, 2), Take::Dropped(2));
    assert_eq!(lane.take(3, 3), Take::Dropped(3));
    assert_eq!(
        said(&mut lane),
        [""; 0],
        "the first batch has no answer yet"
    );
    lane.settle(first, Ok(produced(10)));
    let expected = [
        "ack 0 [10]",
        "nack 2 INVALID_REQUEST",
        "nack 3 NACKED_BEFORE",
    ];
    assert_eq!(said(&mut lane), expected);
    lane.resume(1);
    assert_eq!(said(&mut lane), [""; 0]);
    let again = take(&mut lane, 1);
    lane.settle(again, Ok(produced(11)));
    assert_eq!(said(&mut lane), ["ack 1 [11]"]);
}

#[test]
fn batches_after_an_early_resume_wait_for_the_answers_that_are_out() {
    let mut lane = open(true);
    let tickets: Vec<_> = (0..3).map(|seq| take(&mut lane, seq)).collect();
    lane.settle(tickets[0], Err(fault(Reason::StorageUnavailable)));
    assert_eq!(said(&mut lane), ["nack 0 STORAGE_UNAVAILABLE"]);
    lane.resume(0);
    assert_eq!(lane.take(0, 100), Take::Parked);
    lane.settle(tickets[1], Err(fault(Reason::StorageUnknown)));
    assert_eq!(said(&mut lane), ["nack 1 STORAGE_UNKNOWN"]);
    lane.settle(tickets[2], Ok(produced(9)));
    assert_eq!(said(&mut lane), ["ack 2 [9]", "produce 100"]);
}

#[test]
fn batches_before_opened_are_parked_in_order() {
    let mut lane = opening(true);
    assert_eq!(
        (lane.take(0, 0), lane.take(1, 1)),
        (Take::Parked, Take::Parked)
    );
    lane.flush(1);
    assert_eq!(said(&mut lane), [""; 0]);
    assert!(lane.opened());
    assert_eq!(said(&mut lane), ["produce 0", "produce 1"]);
    lane.settle(0, Ok(produced(3)));
    lane.settle(1, Ok(produced(4)));
    assert_eq!(said(&mut lane), ["ack 0 [3, 4]", "flushed 1"]);
}

#[test]
fn gap_before_opened_closes_the_lane_and_drops_what_was_parked() {
    let mut lane = opening(true);
    assert_eq!(lane.take(0, 0), Take::Parked);
    assert_eq!(lane.take(2, 2), Take::Dropped(2));
    assert_eq!(lane.take(1, 1), Take::Dropped(1));
    assert_eq!(said(&mut lane), [""; 0]);
    assert!(!lane.opened(), "the client is not told that it opened");
    assert_eq!(said(&mut lane), ["closed INVALID_REQUEST"]);
    assert_eq!((lane.take(3, 3), lane.unanswered()), (Take::Dropped(3), 0));
}

#[test]
fn more_in_flight_than_allowed_is_overloaded() {
    let mut lane = open(true);
    for seq in 0..5 {
        take(&mut lane, seq);
    }
    assert_eq!(lane.take(5, 5), Take::Dropped(5));
    for ticket in 0..5 {
        lane.settle(ticket, Ok(produced(ticket)));
    }
    assert_eq!(
        said(&mut lane),
        ["ack 0 [0, 1, 2, 3, 4]", "nack 5 OVERLOADED"]
    );
}

#[test]
fn lane_without_answers_is_silent_until_something_fails() {
    let mut lane = open(false);
    for seq in 0..20 {
        take(&mut lane, seq);
    }
    lane.flush(18);
    for ticket in 0..19 {
        lane.settle(ticket, Ok(produced(ticket)));
    }
    assert_eq!(said(&mut lane), ["flushed 18"]);
    lane.settle(19, Err(fault(Reason::BatchCorrupt)));
    assert_eq!(said(&mut lane), ["closed BATCH_CORRUPT"]);
    assert_eq!(lane.take(20, 20), Take::Dropped(20));
    assert_eq!(said(&mut lane), [""; 0]);
}

#[test]
fn fenced_producer_gets_every_answer_and_then_the_fence() {
    let mut lane = open(true);
    take(&mut lane, 0);
    take(&mut lane, 1);
    lane.settle(0, Err(fault(Reason::FencedEpoch)));
    assert_eq!(said(&mut lane), ["nack 0 FENCED_EPOCH"]);
    assert_eq!(lane.take(2, 2), Take::Dropped(2));
    lane.settle(1, Err(fault(Reason::FencedEpoch)));
    let expected = [
        "nack 1 FENCED_EPOCH",
        "nack 2 NACKED_BEFORE",
        "fenced FENCED_EPOCH",
    ];
    assert_eq!(said(&mut lane), expected);
    assert!(lane.is_gone());
}

#[test]
fn close_waits_for_the_answers_and_stale_outcomes_change_nothing() {
    let mut lane = open(true);
    take(&mut lane, 0);
    lane.close();
    assert_eq!(said(&mut lane), [""; 0]);
    assert!(!lane.is_live());
    lane.settle(0, Ok(produced(1)));
    assert_eq!(said(&mut lane), ["ack 0 [1]", "closed -"]);
    lane.settle(0, Ok(produced(1)));
    lane.settle(99, Ok(produced(1)));
    lane.resume(4);
    lane.close();
    assert_eq!(said(&mut lane), [""; 0]);
}

#[test]
fn resume_without_a_refusal_ends_the_lane() {
    let mut lane = open(true);
    take(&mut lane, 0);
    lane.resume(1);
    assert!(lane.is_live(), "naming what is due anyway changes nothing");
    lane.resume(7);
    lane.settle(0, Ok(produced(1)));
    assert_eq!(said(&mut lane), ["ack 0 [1]", "closed INVALID_REQUEST"]);
}

proptest! {
    /// Whatever order outcomes come in, each batch is answered once, in the order of its lane.
    #[test]
    fn each_batch_is_answered_once_in_order(
        steps in prop::collection::vec((0_u8..6, any::<prop::sample::Index>()), 1..200)
    ) {
        let mut lane = open(true);
        let mut next = 0_u64;
        let mut sent = Vec::new();
        let mut answered = Vec::new();
        let mut out_tickets: Vec<u64> = Vec::new();
        let mut refused = false;
        for (step, pick) in steps {
            match step {
                0..=2 => {
                    sent.push(next);
                    match lane.take(next, next) {
                        Take::Produce(ticket, _) => out_tickets.push(ticket),
                        Take::Parked => {}
                        Take::Dropped(_) => refused = true,
                    }
                    next += 1;
                }
                3 | 4 if !out_tickets.is_empty() => {
                    let ticket = out_tickets.swap_remove(pick.index(out_tickets.len()));
                    let failed = step == 4;
                    refused |= failed;
                    let outcome = if failed { Err(fault(Reason::Overloaded)) } else { Ok(produced(1)) };
                    lane.settle(ticket, outcome);
                }
                5 if refused && lane.is_live() => {
                    // Each seq has one meaning here: the client goes on above all that it sent.
                    lane.resume(next);
                    refused = false;
                }
                _ => {}
            }
            let mut out = Vec::new();
            out_tickets.extend(lane.speak(&mut out).into_iter().map(|(ticket, _)| ticket));
            for item in out {
                match item {
                    Item::Ack(ack) => answered.extend(ack.first_seq..ack.first_seq + ack.batches.len() as u64),
                    Item::Nack(nack) => answered.push(nack.seq),
                    _ => {}
                }
            }
        }
        // A lane that has to end drops what would come behind it; what it did answer keeps its order.
        if lane.is_live() {
            prop_assert_eq!(&answered[..], &sent[..answered.len()]);
            prop_assert_eq!(sent.len() - answered.len(), lane.unanswered());
        } else {
            prop_assert!(answered.windows(2).all(|pair| pair[0] < pair[1]));
        }
    }
}
