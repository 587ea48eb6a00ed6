//! Single paths of the lane's core.

use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::ProducerId;
use tokio::time::Instant;

use super::world::{PRODUCER, TIMEOUT, TestBatch, parse};
use crate::lane::core::LaneCore;
use crate::lane::event::{Cause, Effect, Event, Failure, Room, Stored};

fn open(core: &mut LaneCore<TestBatch>) -> Vec<Effect<u64>> {
    core.on_event(Event::Opened {
        leader_epoch: 1,
        last_epoch: -1,
        last_sequence: -1,
        batches_in_flight_max: 0,
    })
}

fn batch(number: u64) -> TestBatch {
    TestBatch {
        number,
        records: 2,
        stamp: None,
    }
}

fn core(epoch: i16) -> LaneCore<TestBatch> {
    LaneCore::new(Some((ProducerId(PRODUCER), epoch)))
}

fn sent(effects: &[Effect<u64>]) -> Vec<(u64, TestBatch)> {
    let sends = effects.iter().filter_map(|effect| match effect {
        Effect::Send { seq, batch } => Some((*seq, parse(batch.clone()))),
        _ => None,
    });
    sends.collect()
}

fn sequences(effects: &[Effect<u64>]) -> Vec<(i16, i32)> {
    let stamps = sent(effects)
        .into_iter()
        .map(|(_, batch)| batch.stamp.unwrap());
    stamps
        .map(|stamp| (stamp.epoch, stamp.base_sequence))
        .collect()
}

#[test]
fn window_holds_five_and_only_full_batches_join_it() {
    let mut core = core(0);
    assert_eq!(core.room(), Room::None);
    open(&mut core);
    assert_eq!(core.room(), Room::Any);
    let deadline = Instant::now() + TIMEOUT;
    for number in 0..5 {
        core.offer(batch(number), deadline);
        let room = if number < 4 {
            Room::FullBatch
        } else {
            Room::None
        };
        assert_eq!(core.room(), room);
    }
}

#[test]
fn resumed_producer_goes_on_after_what_is_stored() {
    let mut core = core(3);
    core.on_event(Event::Opened {
        leader_epoch: 1,
        last_epoch: 3,
        last_sequence: 41,
        batches_in_flight_max: 0,
    });
    assert_eq!(core.last_sequence(), 41);
    let effects = core.offer(batch(0), Instant::now());
    assert_eq!(sequences(&effects), [(3, 42)]);
    assert_eq!(core.last_sequence(), 43);
}

#[test]
fn sequence_wraps_from_max_to_zero() {
    let mut core = core(0);
    core.on_event(Event::Opened {
        leader_epoch: 1,
        last_epoch: 0,
        last_sequence: i32::MAX - 1,
        batches_in_flight_max: 0,
    });
    let deadline = Instant::now() + TIMEOUT;
    assert_eq!(sequences(&core.offer(batch(0), deadline)), [(0, i32::MAX)]);
    assert_eq!(core.last_sequence(), 0);
    assert_eq!(sequences(&core.offer(batch(1), deadline)), [(0, 1)]);
}

#[test]
fn newer_epoch_in_the_partition_fences() {
    let mut core = core(1);
    let effects = core.on_event(Event::Opened {
        leader_epoch: 1,
        last_epoch: 2,
        last_sequence: 0,
        batches_in_flight_max: 0,
    });
    assert!(matches!(effects[..], [Effect::Stop { producer: true, .. }]));
}

#[test]
fn final_refusal_fails_one_batch_and_stamps_the_rest_anew() {
    let mut core = core(0);
    open(&mut core);
    let deadline = Instant::now() + TIMEOUT;
    for number in 0..3 {
        core.offer(batch(number), deadline);
    }
    let nack = |seq, reason| Event::Nacked {
        seq,
        fault: Fault::new(reason, ""),
    };
    assert!(core.on_event(nack(0, Reason::InvalidRecord)).is_empty());
    assert!(core.on_event(nack(1, Reason::NackedBefore)).is_empty());
    let effects = core.on_event(nack(2, Reason::NackedBefore));
    assert!(matches!(
        effects[..],
        [
            Effect::Settle {
                tag: 0,
                result: Err(Failure {
                    possibly_written: false,
                    ..
                })
            },
            Effect::Reopen { resolve: false, .. }
        ]
    ));
    assert_eq!(sequences(&open(&mut core)), [(1, 0), (1, 2)]);
}

#[test]
fn out_of_order_sequence_twice_of_one_owner_stops_the_lane_and_settles_everything() {
    let mut core = core(0);
    open(&mut core);
    core.offer(batch(0), Instant::now() + TIMEOUT);
    let out_of_order = || Event::Nacked {
        seq: 0,
        fault: Fault::new(Reason::OutOfOrderSequence, ""),
    };
    // The first time it may be the word of an owner that was overtaken.
    let effects = core.on_event(out_of_order());
    assert!(matches!(
        effects[..],
        [Effect::Reopen { resolve: true, .. }]
    ));
    assert_eq!(sequences(&open(&mut core)), [(0, 0)]);
    let effects = core.on_event(out_of_order());
    assert!(matches!(
        effects[..],
        [
            Effect::Settle { tag: 0, .. },
            Effect::Stop {
                producer: false,
                ..
            }
        ]
    ));
    assert!(open(&mut core).is_empty());
}

#[test]
fn delivery_timeout_tells_what_may_be_stored_and_grows_the_epoch_at_the_end() {
    let mut core = core(0);
    open(&mut core);
    let begin = Instant::now();
    core.offer(batch(0), begin + TIMEOUT);
    core.offer(batch(1), begin + 2 * TIMEOUT);
    let effects = core.on_event(Event::Tick(begin + TIMEOUT));
    assert!(matches!(
        effects[..],
        [Effect::Settle {
            tag: 0,
            result: Err(Failure {
                cause: Cause::TimedOut,
                possibly_written: true
            })
        }]
    ));
    // Nothing new joins, and what is left is still sent again as it was.
    assert_eq!(core.room(), Room::None);
    core.on_event(Event::LinkLost);
    assert_eq!(sequences(&open(&mut core)), [(0, 0), (0, 2)]);
    let effects = core.on_event(Event::Tick(begin + 2 * TIMEOUT));
    assert!(matches!(
        effects[..],
        [Effect::Settle { tag: 1, .. }, Effect::Reopen { .. }]
    ));
    assert_eq!(core.identity(), Some((ProducerId(PRODUCER), 1)));
    open(&mut core);
    let effects = core.offer(batch(2), begin + 3 * TIMEOUT);
    assert_eq!(sequences(&effects), [(1, 0)]);
}

/// An owner of this epoch that knows nothing of the producer.
fn opened(leader_epoch: u32) -> Event {
    Event::Opened {
        leader_epoch,
        last_epoch: -1,
        last_sequence: -1,
        batches_in_flight_max: 0,
    }
}

#[test]
fn owner_that_was_overtaken_is_left_whatever_it_says() {
    let mut core = core(0);
    core.on_event(opened(4));
    core.offer(batch(0), Instant::now() + TIMEOUT);
    core.on_event(Event::LinkLost);
    // It goes by an old look-up: nothing is sent there.
    let effects = core.on_event(opened(3));
    assert!(matches!(
        effects[..],
        [Effect::Reopen { resolve: true, .. }]
    ));
    assert_eq!(core.room(), Room::None);
    assert_eq!(sequences(&core.on_event(opened(4))), [(0, 0)]);
    // Out of order in epoch 4, and in order in the next: the word of epoch 4 was old.
    let fault = Fault::new(Reason::OutOfOrderSequence, "");
    core.on_event(Event::Nacked { seq: 0, fault });
    assert_eq!(sequences(&core.on_event(opened(5))), [(0, 0)]);
    let stored = Stored {
        base_offset: None,
        append_time: 0,
        duplicate: false,
    };
    let effects = core.on_event(Event::Acked { seq: 0, stored });
    assert!(matches!(
        effects[..],
        [Effect::Settle { result: Ok(_), .. }]
    ));
}

/// A directory that was put back knows lower epochs for good: no record waits for an owner that never comes.
#[test]
fn lower_epoch_is_believed_when_nothing_else_is_found_for_long() {
    let mut core = core(0);
    core.on_event(opened(4));
    core.offer(batch(0), Instant::now() + TIMEOUT);
    core.on_event(Event::LinkLost);
    let mut looks = 0;
    while sequences(&core.on_event(opened(2))).is_empty() {
        looks += 1;
        assert!(looks < 1_000, "it looks for ever");
    }
    // Waits between looks are of 100 ms at least before long.
    assert!(looks >= 40, "{looks}");
}

/// The owner of a topic that was made again begins at epoch 1: that is no word of an owner that was overtaken.
#[test]
fn topic_that_was_made_again_is_sent_to_at_once_whatever_the_epoch_of_the_old_one() {
    let mut core = core(0);
    core.on_event(opened(4));
    core.offer(batch(0), Instant::now() + TIMEOUT);
    let fault = Fault::new(Reason::TopicRecreated, "");
    let effects = core.on_event(Event::Recreated(Cause::Refused(fault)));
    assert!(
        matches!(effects[0], Effect::Settle { tag: 0, .. }),
        "what was for the old topic is told of"
    );
    core.on_event(opened(1));
    let effects = core.offer(batch(1), Instant::now() + TIMEOUT);
    assert_eq!(sequences(&effects), [(1, 0)], "nothing waits");
}
