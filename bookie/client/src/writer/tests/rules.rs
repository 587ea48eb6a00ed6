//! One test per rule of the writer, and random schedules that keep W3–W5.

use std::time::Duration;

use hulse_proto::bookie::BookieError;
use hulse_proto::error::Fate;
use hulse_proto::id::{CellId, EntryId, Incarnation, LedgerId};
use proptest::prelude::*;
use uuid::Uuid;

use super::{Bench, LEDGER, busy, fenced};
use crate::writer::{AddTag, WriterEffect, WriterEvent};
use crate::{AppendError, NotWritten, WriterEnd};

#[test]
fn entry_goes_to_its_write_set_with_the_confirmed_end_of_its_time() {
    let mut bench = Bench::new(4, 3, 2);
    bench.append(2);
    let to: Vec<_> = bench.sent.iter().map(|call| call.position).collect();
    assert_eq!(to, vec![0, 1, 2, 1, 2, 3]);
    bench.ack(0, 0);
    bench.ack(0, 1);
    bench.append(1);
    let last = bench.sent.last().unwrap();
    assert_eq!(last.request.confirmed_end, EntryId(1));
    assert!(last.request.entry.verify().is_ok());
}

#[test]
fn confirmation_needs_the_ack_quorum_and_goes_in_order() {
    let mut bench = Bench::new(3, 3, 2);
    bench.append(3);
    bench.ack(1, 0);
    bench.ack(1, 1);
    bench.ack(2, 2);
    bench.ack(0, 1);
    assert!(bench.confirmed.is_empty());
    bench.ack(0, 2);
    assert_eq!(bench.confirmed, vec![0, 1]);
    bench.ack(2, 0);
    assert_eq!(bench.confirmed, vec![0, 1, 2]);
}

#[test]
fn one_members_ack_counts_once() {
    let mut bench = Bench::new(3, 3, 2);
    bench.append(1);
    bench.ack(0, 1);
    bench.ack(0, 1);
    assert!(bench.confirmed.is_empty());
}

#[test]
fn ack_that_is_not_exactly_of_this_add_does_not_count() {
    let spoil: [fn(&mut AddTag); 5] = [
        |tag| tag.from.incarnation = Incarnation(Uuid::from_u128(9)),
        |tag| tag.address.incarnation = Incarnation(Uuid::from_u128(9)),
        |tag| tag.address.ledger = LedgerId(2),
        |tag| tag.digest.payload_crc ^= 1,
        |tag| tag.position = 7,
    ];
    for spoil in spoil {
        let mut bench = Bench::new(1, 1, 1);
        bench.append(1);
        let mut tag = bench.tag(0, 0);
        spoil(&mut tag);
        bench.event(WriterEvent::Answer {
            tag,
            result: Ok(()),
        });
        assert!(bench.confirmed.is_empty());
    }
}

#[test]
fn fenced_writer_sends_nothing_more_but_counts_acks_of_what_was_sent() {
    let mut bench = Bench::new(3, 3, 2);
    bench.append(3);
    bench.ack(0, 0);
    bench.answer(0, 2, Err(fenced()));
    assert!(matches!(bench.ended, Some(WriterEnd::Fenced { .. })));
    let sent = bench.sent.len();
    bench.append(1);
    bench.pass(Duration::from_millis(200));
    assert_eq!(bench.sent.len(), sent);
    bench.ack(0, 1);
    assert_eq!(bench.confirmed, vec![0]);
    bench.answer(1, 0, Err(fenced()));
    bench.answer(1, 1, Err(fenced()));
    let fates: Vec<_> = bench
        .failed
        .iter()
        .map(|(entry, error)| (*entry, error.fate()))
        .collect();
    // Entry 3 was appended after the end: nothing of it was sent.
    assert_eq!(
        fates,
        vec![
            (1, Fate::Unknown),
            (2, Fate::Unknown),
            (3, Fate::NotApplied)
        ]
    );
    assert!(bench.core.is_finished());
}

#[test]
fn deleted_and_wrong_cell_end_the_writer() {
    let cell = |n| CellId(Uuid::from_u128(n));
    let wrong = BookieError::WrongCell {
        found: cell(1),
        asked: cell(2),
    };
    for error in [BookieError::Deleted { ledger: LEDGER }, wrong] {
        let mut bench = Bench::new(1, 1, 1);
        bench.append(1);
        bench.answer(0, 0, Err(error));
        assert!(bench.ended.is_some());
        assert_eq!(bench.failed.len(), 1);
    }
}

#[test]
fn busy_member_is_tried_with_one_entry_and_then_gets_all_in_order() {
    let mut bench = Bench::new(1, 1, 1);
    bench.append(3);
    for entry in 0..3 {
        bench.answer(entry, 0, Err(busy()));
    }
    bench.sent.clear();
    bench.append(1);
    assert!(bench.sent.is_empty(), "nothing is sent during the wait");
    bench.pass(Duration::from_millis(6));
    let probes: Vec<_> = bench.sent.iter().map(|call| call.tag().entry.0).collect();
    assert_eq!(probes, vec![0]);
    bench.answer(0, 0, Err(busy()));
    bench.pass(Duration::from_millis(6));
    assert_eq!(bench.sent.len(), 1, "the second wait is longer");
    bench.pass(Duration::from_millis(6));
    bench.ack(0, 0);
    let sent: Vec<_> = bench.sent.iter().map(|call| call.tag().entry.0).collect();
    assert_eq!(sent, vec![0, 0, 1, 2, 3]);
    assert_eq!(bench.confirmed, vec![0]);
}

#[test]
fn entry_unconfirmed_for_too_long_ends_the_writer_with_unknown_outcome() {
    let mut bench = Bench::new(1, 1, 1);
    bench.append(2);
    bench.pass(Duration::from_secs(9));
    assert!(bench.ended.is_none());
    bench.pass(Duration::from_secs(2));
    assert!(matches!(
        bench.ended,
        Some(WriterEnd::OutcomeUnknown { .. })
    ));
    assert!(
        bench
            .failed
            .iter()
            .all(|(_, error)| error.fate() == Fate::Unknown)
    );
    assert!(bench.core.is_finished());
    assert_eq!(bench.core.next_wakeup(), None);
}

#[test]
fn useless_only_member_ends_the_writer_at_once() {
    let mut bench = Bench::new(1, 1, 1);
    bench.append(1);
    bench.answer(0, 0, Err(BookieError::Limbo { ledger: LEDGER }));
    assert!(matches!(
        bench.ended,
        Some(WriterEnd::OutcomeUnknown { .. })
    ));
    let surveys = |effect: &WriterEffect| matches!(effect, WriterEffect::Survey);
    assert!(
        !bench.other.iter().any(surveys),
        "an ensemble of one is not changed"
    );
}

#[test]
fn useless_members_of_three_are_waited_for_until_the_deadline() {
    let limbo = || BookieError::Limbo { ledger: LEDGER };
    let mut bench = Bench::new(3, 3, 2);
    bench.append(1);
    bench.answer(0, 0, Err(limbo()));
    bench.append(1);
    assert!(
        bench
            .sent
            .iter()
            .all(|call| call.tag().entry.0 == 0 || call.position != 0)
    );
    bench.answer(0, 1, Err(limbo()));
    assert!(bench.ended.is_none());
    assert!(matches!(bench.other[..], [WriterEffect::Survey]));
    bench.pass(Duration::from_secs(11));
    assert!(matches!(
        bench.ended,
        Some(WriterEnd::OutcomeUnknown { .. })
    ));
}

#[test]
fn not_in_ensemble_makes_the_writer_look_at_metadata() {
    let mut bench = Bench::new(1, 1, 1);
    bench.append(1);
    bench.answer(0, 0, Err(BookieError::NotInEnsemble { ledger: LEDGER }));
    assert!(matches!(bench.other[..], [WriterEffect::CheckMetadata]));
    assert!(bench.ended.is_none());
    bench.event(WriterEvent::MetadataChanged);
    assert!(matches!(
        bench.ended,
        Some(WriterEnd::MetadataChanged { .. })
    ));
}

#[test]
fn late_copies_are_released_after_their_time_and_noted() {
    let mut bench = Bench::new(3, 3, 2);
    bench.append(2);
    for entry in 0..2 {
        bench.ack(entry, 0);
        bench.ack(entry, 1);
    }
    bench.pass(Duration::from_secs(3));
    let released = bench
        .other
        .iter()
        .filter(|effect| matches!(effect, WriterEffect::Released { .. }))
        .count();
    assert_eq!(released, 2);
    bench.event(WriterEvent::Stop);
    bench.event(WriterEvent::Freeze);
    let Some(WriterEffect::Frozen(sealing)) = bench.other.pop() else {
        panic!("{:?}", bench.other);
    };
    assert_eq!(sealing.totals.end, EntryId(2));
    assert_eq!(sealing.degraded[0].end, EntryId(2));
}

#[test]
fn member_whose_probe_was_given_up_before_its_answer_is_tried_again_and_used() {
    let mut bench = Bench::new(3, 3, 2);
    bench.append(1);
    bench.answer(0, 0, Err(busy()));
    bench.ack(0, 1);
    bench.ack(0, 2);
    // The entry is tried again, and released before that is answered.
    bench.pass(Duration::from_secs(3));
    let released = |effect: &WriterEffect| matches!(effect, WriterEffect::Released { .. });
    assert!(bench.other.iter().any(released));
    assert_eq!(bench.tag(0, 0).attempt, 1);
    bench.answer(0, 0, Err(busy()));
    bench.append(1);
    bench.pass(Duration::from_secs(1));
    bench.ack(1, 0);
    // It counts: one more that is missing is not missed.
    bench.ack(1, 1);
    assert_eq!(bench.confirmed, vec![0, 1]);
    bench.append(1);
    bench.ack(2, 0);
    bench.ack(2, 1);
    assert_eq!(bench.confirmed, vec![0, 1, 2]);
}

#[test]
fn late_copies_are_released_beyond_their_bytes() {
    let mut bench = Bench::new(3, 3, 2);
    let mut entry = 0;
    // Each late entry costs at least its overhead of 512 bytes: 64 MiB are passed before 140,000 entries.
    while bench.other.is_empty() && entry < 140_000 {
        bench.append(1);
        bench.ack(entry, 0);
        bench.ack(entry, 1);
        bench.sent.clear();
        entry += 1;
    }
    assert!(matches!(
        bench.other.first(),
        Some(WriterEffect::Released { .. })
    ));
}

#[test]
fn close_makes_what_lies_above_certainly_not_written() {
    let mut bench = Bench::new(1, 1, 1);
    bench.append(3);
    bench.ack(0, 0);
    bench.event(WriterEvent::Stop);
    assert!(bench.other.is_empty(), "it drains first");
    bench.pass(Duration::from_secs(11));
    assert!(matches!(bench.other.last(), Some(WriterEffect::Drained)));
    bench.event(WriterEvent::Freeze);
    // An ack after the freeze does not count.
    bench.ack(1, 0);
    assert_eq!(bench.confirmed, vec![0]);
    bench.event(WriterEvent::CloseCommitted);
    let closed = NotWritten::Closed {
        ledger: LEDGER,
        end: EntryId(1),
    };
    let expected = AppendError::NotWritten { why: closed };
    assert_eq!(bench.failed, vec![(1, expected.clone()), (2, expected)]);
}

#[test]
fn close_that_fails_leaves_what_lies_above_unknown() {
    let mut bench = Bench::new(1, 1, 1);
    bench.append(2);
    bench.ack(0, 0);
    bench.event(WriterEvent::Stop);
    bench.pass(Duration::from_secs(11));
    bench.event(WriterEvent::Freeze);
    bench.event(WriterEvent::CloseFailed(WriterEnd::MetadataChanged {
        ledger: LEDGER,
    }));
    assert_eq!(bench.failed.len(), 1);
    assert_eq!(bench.failed[0].1.fate(), Fate::Unknown);
}

#[test]
fn totals_of_a_close_are_those_of_the_confirmed_entries() {
    let mut bench = Bench::new(1, 1, 1);
    bench.append(4);
    for entry in 0..3 {
        bench.ack(entry, 0);
    }
    let last = bench
        .sent
        .iter()
        .map(|call| *call.request.entry.header())
        .find(|header| header.entry == EntryId(2))
        .unwrap();
    bench.event(WriterEvent::Stop);
    bench.pass(Duration::from_secs(11));
    bench.event(WriterEvent::Freeze);
    let Some(WriterEffect::Frozen(sealing)) = bench.other.pop() else {
        panic!("{:?}", bench.other);
    };
    let totals = sealing.totals;
    assert_eq!((totals.end, totals.offset_span), (EntryId(3), 3));
    assert_eq!(totals.bytes, last.cumulative_bytes);
    assert_eq!(totals.digest, last.cumulative_digest);
    assert_eq!(totals.record_count, 3);
}

/// One step of a random schedule.
#[derive(Debug, Clone)]
enum Step {
    Append,
    Answer(prop::sample::Index, u8),
    Pass(u16),
    Stop,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => Just(Step::Append),
        8 => (any::<prop::sample::Index>(), 0..20u8).prop_map(|(which, what)| Step::Answer(which, what)),
        2 => (0..2_000u16).prop_map(Step::Pass),
        1 => Just(Step::Stop),
    ]
}

fn answer_of(what: u8) -> Result<(), BookieError> {
    match what {
        0 => Err(busy()),
        1 => Err(BookieError::NoAnswer { why: String::new() }),
        2 => Err(BookieError::Limbo { ledger: LEDGER }),
        3 => Err(fenced()),
        _ => Ok(()),
    }
}

proptest! {
    #[test]
    fn random_schedules_answer_every_append_once_and_in_order(steps in prop::collection::vec(step(), 1..120)) {
        let mut bench = Bench::new(3, 3, 2);
        let mut acks = std::collections::BTreeSet::new();
        for step in steps {
            match step {
                Step::Append => bench.append(1),
                Step::Answer(which, what) if !bench.sent.is_empty() => {
                    let tag = bench.sent[which.index(bench.sent.len())].tag();
                    let result = answer_of(what);
                    if result.is_ok() {
                        acks.insert((tag.entry.0, tag.position));
                    }
                    bench.event(WriterEvent::Answer { tag, result });
                }
                Step::Answer(..) => {}
                Step::Pass(ms) => bench.pass(Duration::from_millis(u64::from(ms))),
                Step::Stop => bench.event(WriterEvent::Stop),
            }
            // W5: in order, none twice. W4: each confirmed entry has two distinct acks.
            let in_order = bench.confirmed.iter().copied().eq(0..bench.confirmed.len() as u64);
            prop_assert!(in_order, "{:?}", bench.confirmed);
            let quorum = bench.confirmed.iter().all(|entry| {
                (0..3).filter(|position| acks.contains(&(*entry, *position))).count() >= 2
            });
            prop_assert!(quorum);
        }
        // However it went, time answers every append.
        bench.event(WriterEvent::Stop);
        bench.pass(Duration::from_secs(30));
        bench.event(WriterEvent::Freeze);
        bench.event(WriterEvent::CloseCommitted);
        let first_failed = bench.confirmed.len() as u64;
        let failed = bench.failed.iter().map(|(entry, _)| *entry);
        prop_assert!(failed.eq(first_failed..bench.core.appended_end().0));
    }
}
