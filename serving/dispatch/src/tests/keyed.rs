//! KEYED: rules B4.1–B4.10 of serving.md.

use hulse_proto::id::Offset;

use super::world::{World, named, quick, range};
use crate::slots::SlotMap;
use crate::*;

const RELEASE: Verdict = Verdict::Nack {
    failed: false,
    delay: Delay::None,
};

fn world(order: KeyOrder) -> World {
    World::new(quick(Kind::Keyed(order)))
}

/// A hash whose slot is that of a consumer.
fn hash_of(w: &World, id: SessionId, nth: usize) -> u16 {
    let slots = w.d.slots.as_ref().unwrap();
    let mut all = (0..SLOTS).filter(|slot| slots.target(*slot) == id);
    (all.nth(nth).unwrap() << 4) as u16
}

/// Consumers come until one of them has slot 0.
fn heir_of_slot_0(w: &mut World) -> SessionId {
    for n in 0..1_000 {
        let id = w.join(&format!("b{n}"), 100);
        if w.d.slots.as_ref().unwrap().target(0) == id {
            return id;
        }
    }
    panic!("a thousand names, and none has slot 0");
}

#[test]
fn b4_1_slots_are_shared_by_weight_and_move_little() {
    let mut map = SlotMap::new(false);
    let mut heavy = named("heavy");
    heavy.weight = 2;
    let all = [named("a"), named("b"), heavy];
    for (n, new) in all.iter().enumerate() {
        map.join(new, SessionId(n as u32 + 1)).unwrap();
    }
    let count = |map: &SlotMap, id: u32| {
        (0..SLOTS)
            .filter(|slot| map.target(*slot) == SessionId(id))
            .count()
    };
    for (id, share) in [(1, 1_024), (2, 1_024), (3, 2_048)] {
        let found = count(&map, id);
        assert!(found.abs_diff(share) < share / 5, "{id} has {found}");
    }
    let before: Vec<_> = (0..SLOTS).map(|slot| map.target(slot)).collect();
    map.join(&named("d"), SessionId(4)).unwrap();
    for (slot, was) in before.iter().enumerate() {
        let is = map.target(slot);
        assert!(is == *was || is == SessionId(4));
    }
    map.leave(SessionId(4));
    let after: Vec<_> = (0..SLOTS).map(|slot| map.target(slot)).collect();
    assert_eq!(before, after);
    let mut other = SlotMap::new(false);
    for (n, new) in all.iter().enumerate().rev() {
        other.join(new, SessionId(n as u32 + 1)).unwrap();
    }
    let other: Vec<_> = (0..SLOTS).map(|slot| other.target(slot)).collect();
    assert_eq!(before, other, "the order of joining does not matter");
}

#[test]
fn b4_1_named_slots_that_overlap_are_refused() {
    let mut w = World::new(Policy {
        named_slots: true,
        ..quick(Kind::Keyed(KeyOrder::Sticky))
    });
    let with = |name: &str, slots: (u16, u16)| NewSession {
        slots: vec![slots],
        ..named(name)
    };
    let a = w.join_as(&with("a", (0, 100)), 100);
    let taken = w.d.attach(&with("b", (99, 200)), Offset(0), w.now);
    assert!(matches!(
        taken,
        Err(AttachFault::SlotsTaken { first: 99, .. })
    ));
    let none = w.d.attach(&with("b", (7, 7)), Offset(0), w.now);
    assert_eq!(none, Err(AttachFault::NoSlots { first: 7, end: 7 }));
    let b = w.join_as(&with("b", (100, 200)), 100);
    w.append_keyed(&[Some(5 << 4), Some(150 << 4), Some(300 << 4)]);
    w.step();
    assert_eq!(w.got(), [(a, vec![0]), (b, vec![1])]);
    assert_eq!(w.d.stats().stalled, 1, "nobody has slot 300");
    let c = w.join_as(&with("c", (200, 4096)), 100);
    assert_eq!(w.got(), [(c, vec![2])]);
}

#[test]
fn b4_keyless_records_go_to_anybody() {
    let mut w = world(KeyOrder::OneInFlight);
    let (a, b) = (w.join("a", 1), w.join("b", 1));
    w.append_keyed(&[None]);
    w.append_keyed(&[None]);
    w.step();
    let to: Vec<_> = w.got().into_iter().map(|(id, _)| id).collect();
    assert!(to.contains(&a) && to.contains(&b));
}

#[test]
fn b4_3_slot_drains_before_it_changes_hands_and_others_flow_on() {
    let mut w = world(KeyOrder::Sticky);
    let a = w.join("a", 100);
    let all: Vec<Option<u16>> = (0..64).map(|n| Some(n << 10)).collect();
    w.append_keyed(&all);
    w.step();
    assert_eq!(w.got().len(), 1);
    let b = w.join("b", 100);
    let moved: Vec<u64> = (0..64)
        .filter(|n| w.d.slots.as_ref().unwrap().target((*n as usize) << 6) == b)
        .collect();
    assert!(!moved.is_empty() && moved.len() < 64);
    assert_eq!(w.d.stats().slots_draining, moved.len());
    w.append_keyed(&all);
    w.step();
    let kept: Vec<u64> = (64..128).filter(|n| !moved.contains(&(n - 64))).collect();
    assert_eq!(w.got(), [(a, kept)], "nothing of what moves");
    let last = moved[0];
    w.ack(a, last, last + 1);
    assert_eq!(w.got(), [(b, vec![64 + last])]);
    w.leave(a, Leave::Closed);
    let mut rest: Vec<u64> = w.got().into_iter().flat_map(|(_, got)| got).collect();
    rest.sort_unstable();
    let expected: Vec<u64> = (0..128).filter(|n| *n != last && *n != 64 + last).collect();
    assert_eq!(rest, expected);
}

#[test]
fn b4_3_slot_is_free_only_when_the_ack_is_durable() {
    let mut w = world(KeyOrder::Sticky);
    let a = w.join("a", 100);
    w.append_keyed(&[Some(0), Some(0)]);
    w.step();
    w.got();
    let b = heir_of_slot_0(&mut w);
    w.append_keyed(&[Some(0)]);
    w.writes_wait = true;
    w.say(a, Verdict::Ack, &[(0, 2)]);
    assert_eq!(w.got(), []);
    w.written(Written::Done);
    w.step();
    assert_eq!(w.got(), [(b, vec![2])]);
}

/// pulsar#23870: between the loss of a consumer and the release of what it held nobody gets a record of its slots.
#[test]
fn b4_4_consumer_leaves_the_map_before_its_records_are_released() {
    let mut w = world(KeyOrder::Sticky);
    let (a, b) = (w.join("a", 100), w.join("b", 100));
    let hash = hash_of(&w, a, 3);
    w.append_keyed(&[Some(hash), Some(hash)]);
    w.step();
    assert_eq!(w.got(), [(a, vec![0, 1])]);
    w.append_keyed(&[Some(hash)]);
    w.writes_wait = true;
    w.d.detach(a, Leave::Crashed, w.now);
    w.step();
    assert_eq!(w.got(), []);
    w.writes_wait = false;
    w.step();
    assert_eq!(w.got(), [(b, vec![0, 1]), (b, vec![2])], "in order");
}

#[test]
fn b4_4_skip_keeps_the_hold_of_a_draining_slot() {
    let mut w = world(KeyOrder::Sticky);
    let a = w.join("a", 100);
    w.append_keyed(&[Some(0)]);
    w.step();
    w.got();
    let b = heir_of_slot_0(&mut w);
    w.d.skip(range(0, 1), Skip::Expired, w.now);
    w.append_keyed(&[Some(0)]);
    w.step();
    assert_eq!(w.durable.base, Offset(1));
    assert_eq!(w.got(), [], "a still works on what was passed over");
    assert_eq!(w.ack(a, 0, 1), Status::Ok);
    assert_eq!(w.got(), [(b, vec![1])]);
}

#[test]
fn b4_4_seek_keeps_holds_until_the_consumer_knows_or_its_lock_ends() {
    for settles in [true, false] {
        let mut w = world(KeyOrder::Sticky);
        let a = w.join("a", 100);
        w.append_keyed(&[Some(0)]);
        w.step();
        w.got();
        let b = heir_of_slot_0(&mut w);
        w.d.seek(Offset(0), 1, w.now);
        w.step();
        assert_eq!(w.got(), []);
        match settles {
            true => w.d.settled(a, 1),
            false => w.pass(30_000),
        }
        w.step();
        assert_eq!(w.got(), [(b, vec![0])]);
    }
}

#[test]
fn b4_5_blocked_slot_stops_nobody_and_look_ahead_is_bounded() {
    let mut w = world(KeyOrder::Sticky);
    let (a, b) = (w.join("a", 1), w.join("b", 1 << 30));
    let (slow, fast) = (hash_of(&w, a, 0), hash_of(&w, b, 0));
    for _ in 0..40 {
        let mut keys = vec![Some(slow); 99];
        keys.push(Some(fast));
        w.append_keyed(&keys);
    }
    w.step();
    for (id, got) in w.got() {
        if id == b {
            w.ack(b, got[0], got[0] + 1);
        }
    }
    let stats = w.d.stats();
    assert!(stats.waiting >= 2_000, "{stats:?}");
    assert!(stats.waiting < 2_100, "{stats:?}");
    assert!(stats.buffered_bytes <= 8 << 20);
    w.d.grant(a, 1 << 30, 1 << 40);
    w.ack(a, 0, 99);
    let mut rounds = 0;
    while w.d.stats().base < Offset(4_000) {
        for (id, got) in w.got() {
            for offset in got {
                w.ack(id, offset, offset + 1);
            }
        }
        rounds += 1;
        assert!(rounds < 1_000, "{:?}", w.d.stats());
    }
}

#[test]
fn b4_6_what_was_skipped_of_a_slot_holds_back_the_rest_of_it() {
    let mut w = world(KeyOrder::Sticky);
    let a = w.join("a", 1);
    w.append_keyed(&[Some(16)]);
    w.append_keyed(&[Some(16)]);
    w.step();
    assert_eq!(w.got(), [(a, vec![0])], "one unit of credit");
    w.say(a, RELEASE, &[(0, 1)]);
    w.d.grant(a, 1, 0);
    w.step();
    assert_eq!(w.got(), [(a, vec![0])]);
}

#[test]
fn b4_7_sticky_promises_no_order_after_a_nack() {
    let mut w = world(KeyOrder::Sticky);
    let a = w.join("a", 100);
    w.append_keyed(&[Some(16)]);
    w.step();
    w.got();
    let delay = Delay::For(100);
    w.say(
        a,
        Verdict::Nack {
            failed: true,
            delay,
        },
        &[(0, 1)],
    );
    w.append_keyed(&[Some(16)]);
    w.step();
    assert_eq!(w.got(), [(a, vec![1])]);
}

#[test]
fn b4_7_block_on_nack_stops_the_slot_until_the_record_is_acked_or_dead() {
    let mut w = World::new(Policy {
        attempts_max: 20,
        ..quick(Kind::Keyed(KeyOrder::BlockOnNack))
    });
    let a = w.join("a", 100);
    w.append_keyed(&[Some(16), Some(16), Some(32)]);
    w.step();
    assert_eq!(w.got(), [(a, vec![0, 1, 2])]);
    let delay = Delay::For(100);
    w.say(
        a,
        Verdict::Nack {
            failed: true,
            delay,
        },
        &[(0, 1)],
    );
    w.append_keyed(&[Some(16), Some(32)]);
    w.step();
    assert_eq!(w.got(), [(a, vec![4])], "the other slot flows on");
    w.pass(100);
    assert_eq!(w.got(), [(a, vec![0])]);
    for _ in 0..3 {
        w.nack(a, 0, 1);
        assert_eq!(w.got(), [(a, vec![0])]);
    }
    w.say(a, Verdict::Reject, &[(0, 1)]);
    assert_eq!(w.d.stats().parked, 1);
    assert_eq!(w.got(), [(a, vec![3])]);
    w.nack(a, 1, 2);
    assert_eq!(w.got(), [(a, vec![1])]);
    w.append_keyed(&[Some(16)]);
    w.step();
    assert_eq!(w.got(), []);
    w.ack(a, 1, 2);
    assert_eq!(w.got(), [(a, vec![5])]);
}

#[test]
fn b4_7_one_in_flight_delivers_the_next_of_a_key_after_the_durable_ack() {
    let mut w = world(KeyOrder::OneInFlight);
    let a = w.join("a", 100);
    w.append_keyed(&[Some(1), Some(1), Some(2), Some(1)]);
    w.step();
    assert_eq!(
        w.got(),
        [(a, vec![0, 2])],
        "1 and 2 are of one slot, and two keys"
    );
    w.writes_wait = true;
    w.say(a, Verdict::Ack, &[(0, 1)]);
    assert_eq!(w.got(), []);
    w.written(Written::Done);
    w.writes_wait = false;
    w.step();
    assert_eq!(w.got(), [(a, vec![1])]);
    let delay = Delay::For(50);
    w.say(
        a,
        Verdict::Nack {
            failed: true,
            delay,
        },
        &[(1, 2)],
    );
    w.pass(49);
    assert_eq!(w.got(), []);
    w.pass(1);
    assert_eq!(w.got(), [(a, vec![1])]);
    w.ack(a, 1, 2);
    assert_eq!(w.got(), [(a, vec![3])]);
}

#[test]
fn b4_8_batch_of_many_keys_goes_to_several_consumers_and_is_read_once() {
    let mut w = world(KeyOrder::Sticky);
    let (a, b) = (w.join("a", 100), w.join("b", 100));
    let keys: Vec<_> = [a, b, a, b].map(|id| Some(hash_of(&w, id, 1))).into();
    w.append_keyed(&keys);
    w.step();
    assert_eq!(w.got(), [(a, vec![0, 2]), (b, vec![1, 3])]);
    let stats = w.d.stats();
    assert_eq!((stats.bytes_read, stats.bytes_sent), (400, 800));
    assert_eq!(w.reads_seen.len(), 1);
    assert_eq!(w.reads_seen[0].hashes, Hashes::Stamp);
}

#[test]
fn b4_9_stamped_batch_is_delivered_without_hashes_if_one_consumer_has_its_slots() {
    let mut w = world(KeyOrder::Sticky);
    let a = w.join("a", 100);
    w.append_stamped(&[16, 4_000, 9]);
    w.step();
    assert_eq!(w.got(), [(a, vec![0, 1, 2])]);
    assert_eq!(w.reads_seen.len(), 1);
}

#[test]
fn b4_9_stamped_batch_over_the_slots_of_several_is_read_with_hashes() {
    let mut w = world(KeyOrder::Sticky);
    let (a, b) = (w.join("a", 100), w.join("b", 100));
    let keys = [hash_of(&w, a, 0), hash_of(&w, b, 0), hash_of(&w, a, 900)];
    w.append_stamped(&keys);
    w.append_keyed(&[Some(keys[1])]);
    w.step();
    let mut got = w.got();
    got.sort();
    let unit = (b, vec![1]);
    assert!(
        got.contains(&(a, vec![0, 2])) && got.contains(&unit),
        "{got:?}"
    );
    let of_b = got.iter().filter(|(id, _)| *id == b);
    let of_b: Vec<_> = of_b.flat_map(|(_, got)| got.clone()).collect();
    assert_eq!(of_b, [1, 3], "in order behind it");
    let mut reads = w.reads_seen.iter();
    assert!(reads.any(|read| read.hashes == Hashes::Each && read.again));
}

#[test]
fn b4_9_stamped_batch_under_a_blocked_slot_holds_back_what_is_behind_it() {
    let mut w = world(KeyOrder::Sticky);
    let a = w.join("a", 100);
    w.append_keyed(&[Some(0)]);
    w.step();
    w.got();
    let mut named_b = named("b");
    named_b.weight = u16::MAX;
    let b = w.join_as(&named_b, 100);
    let slots = w.d.slots.as_ref().unwrap();
    assert_eq!(slots.target(0), b);
    let run = (1..SLOTS)
        .find(|slot| slots.target(*slot) != b)
        .unwrap_or(SLOTS);
    let last = ((run - 1) << 4) as u16;
    w.append_stamped(&[0, last]);
    w.append_keyed(&[Some(last)]);
    w.step();
    assert_eq!(w.got(), []);
    w.ack(a, 0, 1);
    assert_eq!(w.got(), [(b, vec![1, 2]), (b, vec![3])]);
}

#[test]
fn b4_10_slots_wait_for_the_name_of_a_consumer_that_went() {
    let mut w = World::new(Policy {
        name_grace_ms: 5_000,
        ..quick(Kind::Keyed(KeyOrder::Sticky))
    });
    let (a, b) = (w.join("a", 100), w.join("b", 100));
    let hash = hash_of(&w, a, 0);
    w.append_keyed(&[Some(hash)]);
    w.step();
    w.got();
    w.leave(a, Leave::Closed);
    w.pass(4_000);
    assert_eq!(w.got(), []);
    assert_eq!(w.d.stats().stalled, 1);
    let again = w.join("a", 100);
    assert_eq!(w.got(), [(again, vec![0])]);
    w.leave(again, Leave::Closed);
    w.pass(5_000);
    assert_eq!(w.got(), [(b, vec![0])]);
}

#[test]
fn b3_14_keyed_old_window_blocks_its_slots_until_the_grace_is_over() {
    let mut w = World::new(Policy {
        reattach_grace_ms: 1_000,
        ..quick(Kind::Keyed(KeyOrder::Sticky))
    });
    let a = w.join("a", 100);
    w.append_keyed(&[Some(16), Some(32), Some(48)]);
    w.step();
    w.pass(1_000);
    w.got();
    w.ack(a, 1, 2);
    w.append_keyed(&[Some(16), Some(48)]);
    w.reopen();
    let a = w.join("a", 100);
    assert_eq!(w.got(), [(a, vec![2]), (a, vec![4])], "slot 1 waits");
    w.pass(1_000);
    assert_eq!(w.got(), [(a, vec![0]), (a, vec![3])]);
}
