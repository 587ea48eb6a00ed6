//! Cases SU-01, SU-02, SU-05 and OR-01, as far as they touch the core.

use std::collections::{BTreeMap, BTreeSet};

use hulse_proto::id::Offset;

use super::world::{World, offsets, quick};
use crate::chance::Chance;
use crate::*;

/// SU-01: consumers join and reconnect, and one holds a record for 30 s. Only its slots wait.
#[test]
fn su_01_joins_and_reconnects_block_only_the_keys_of_the_slow_consumer() {
    let mut w = World::new(Policy {
        lock_ms: 60_000,
        ..quick(Kind::Keyed(KeyOrder::Sticky))
    });
    let mut c = Chance::new(1);
    let mut sessions: Vec<SessionId> = (0..4).map(|n| w.join(&format!("c{n}"), 10)).collect();
    let mut held: Option<(SessionId, u64)> = None;
    let mut due: BTreeMap<i64, Vec<(SessionId, u64)>> = BTreeMap::new();
    let mut delivered: BTreeMap<u64, i64> = BTreeMap::new();
    let start = w.now;
    for tick in 0..6_000i64 {
        w.now = start + tick * 20;
        for _ in 0..4 {
            w.append_keyed(&[Some((c.below(10) * 6_553) as u16)]);
        }
        if tick % 500 == 499 && sessions.len() < 12 {
            let name = format!("c{}", sessions.len());
            sessions.push(w.join(&name, 10));
        }
        if tick % 750 == 749 {
            let at = c.below(sessions.len() as u64) as usize;
            let gone = sessions[at];
            w.leave(gone, Leave::Crashed);
            held = held.filter(|(id, _)| *id != gone);
            sessions[at] = w.join(&format!("c{at}"), 10);
        }
        w.step();
        for unit in std::mem::take(&mut w.units) {
            for offset in offsets(&unit) {
                delivered.entry(offset).or_insert(w.now);
                if held.is_none() && (tick == 1_000 || tick == 1_001) {
                    held = Some((unit.session, offset));
                } else {
                    due.entry(w.now + 20)
                        .or_default()
                        .push((unit.session, offset));
                }
            }
        }
        let now: Vec<_> = due.range(..=w.now).map(|(at, _)| *at).collect();
        for (id, offset) in now.into_iter().flat_map(|at| due.remove(&at).unwrap()) {
            w.ack(id, offset, offset + 1);
            w.d.grant(id, 1, 0);
        }
        if tick == 2_500
            && let Some((id, offset)) = held.take()
        {
            w.ack(id, offset, offset + 1);
        }
        w.step();
        // Each record was appended at its tick; what waits belongs to a slot that somebody else has to leave.
        let stats = w.d.stats();
        assert!(
            stats.stalled == stats.waiting || stats.waiting < 200,
            "{stats:?}"
        );
    }
    drain(&mut w, &mut due, &sessions);
    assert_eq!(w.durable.base, Offset(24_000));
    assert_eq!(w.d.stats().slots_held, 0);
}

/// Everybody acks at once, from now on.
fn drain(w: &mut World, due: &mut BTreeMap<i64, Vec<(SessionId, u64)>>, sessions: &[SessionId]) {
    for _ in 0..100 {
        w.pass(20);
        for unit in std::mem::take(&mut w.units) {
            for offset in offsets(&unit) {
                w.ack(unit.session, offset, offset + 1);
            }
        }
        let left: Vec<_> = due.split_off(&0).into_values().flatten().collect();
        for (id, offset) in left {
            w.ack(id, offset, offset + 1);
        }
        for id in sessions {
            w.d.grant(*id, 100, 0);
        }
    }
}

/// SU-02: consumers that never ack; each poison record is in the dead-letter topic once, after 1 + 3 deliveries, and no other.
#[test]
fn su_02_poison_is_a_dead_letter_once_after_all_its_deliveries() {
    for batch in [1, 10] {
        let mut w = World::new(Policy {
            lock_ms: 2_000,
            attempts_max: 4,
            dead: DeadLetters::Topic,
            ..quick(Kind::Queue)
        });
        for _ in 0..100 / batch {
            w.append(batch);
        }
        for n in 0..3 {
            w.join(&format!("c{n}"), 1_000);
        }
        let poison = BTreeSet::from([3, 17, 18, 55, 99]);
        let mut seen: BTreeMap<u64, u32> = BTreeMap::new();
        let mut letters = Vec::new();
        for _ in 0..2_000 {
            for unit in std::mem::take(&mut w.units) {
                for offset in offsets(&unit) {
                    *seen.entry(offset).or_default() += 1;
                    if !poison.contains(&offset) {
                        w.ack(unit.session, offset, offset + 1);
                    }
                }
            }
            for letter in std::mem::take(&mut w.letters) {
                letters.push(letter.offset.0);
                w.d.letter_done(letter.state_epoch, letter.seq, w.now);
            }
            w.pass(100);
        }
        letters.sort_unstable();
        assert_eq!(letters, poison.iter().copied().collect::<Vec<_>>());
        for (offset, times) in seen {
            let expected = if poison.contains(&offset) { 4 } else { 1 };
            assert_eq!(times, expected, "{offset} in batches of {batch}");
        }
        assert_eq!(w.durable.base, Offset(100));
    }
}

/// SU-02, variant: what lies in a queue of the client, and is renewed there, is no failure.
#[test]
fn su_02_prefetched_records_that_are_renewed_are_not_dead_lettered_unseen() {
    let mut w = World::new(Policy {
        lock_ms: 2_000,
        attempts_max: 4,
        dead: DeadLetters::Topic,
        ..quick(Kind::Queue)
    });
    w.append(50);
    let a = w.join("a", 1_000);
    for _ in 0..20 {
        w.pass(1_000);
        w.say(a, Verdict::Renew, &[(0, 50)]);
    }
    assert_eq!((w.letters.len(), w.got().len()), (0, 1));
    assert_eq!(w.ack(a, 0, 50), Status::Ok);
}

/// SU-05: half acked, a third given back, the rest times out or is lost with its consumer; counters end at 0.
#[test]
fn su_05_unacked_counts_never_drift() {
    for (per_consumer, per_cursor) in [(10, 20), (1, 1)] {
        let mut w = World::new(Policy {
            unacked_max: per_consumer,
            window_max: per_cursor,
            lock_ms: 2_000,
            attempts_max: 0,
            ..quick(Kind::Queue)
        });
        let mut c = Chance::new(per_consumer);
        for _ in 0..143 {
            w.append(7);
        }
        let mut sessions: Vec<_> = (0..4).map(|n| w.join(&format!("c{n}"), 5)).collect();
        let mut rounds = 0;
        while w.durable.base < Offset(1_001) {
            rounds += 1;
            assert!(rounds < 30_000, "{:?}", w.d.stats());
            let units = std::mem::take(&mut w.units);
            for unit in &units {
                let id = unit.session;
                let n = offsets(unit).len() as u64;
                w.d.grant(id, n, 0);
                for offset in offsets(unit) {
                    match c.below(10) {
                        0..=4 => {
                            w.ack(id, offset, offset + 1);
                        }
                        5..=7 => {
                            let verdict = Verdict::Nack {
                                failed: true,
                                delay: Delay::For(200),
                            };
                            w.say(id, verdict, &[(offset, offset + 1)]);
                        }
                        8 => {}
                        _ => {
                            let at = sessions.iter().position(|other| *other == id);
                            if let Some(at) = at {
                                w.leave(id, Leave::Closed);
                                sessions[at] = w.join(&format!("c{at}"), 5);
                            }
                        }
                    }
                }
            }
            w.pass(20);
            let stats = w.d.stats();
            for session in &stats.sessions {
                assert!(session.unacked < per_consumer + 7, "{stats:?}");
                assert!(session.records > -7, "{stats:?}");
            }
            assert!(stats.acquired <= per_cursor + 7, "{stats:?}");
        }
        let stats = w.d.stats();
        assert_eq!((stats.unacked, stats.acquired, stats.holds), (0, 0, 0));
        for session in stats.sessions {
            assert_eq!((session.unacked, session.blocked), (0, None));
        }
    }
}

/// OR-01: consumers are closed in turn with records in their queues, and the owner changes once.
#[test]
fn or_01_keys_are_handed_over_in_order_and_never_to_two() {
    let mut w = World::new(quick(Kind::Keyed(KeyOrder::Sticky)));
    let mut c = Chance::new(7);
    let mut sessions: Vec<_> = (0..3).map(|n| w.join(&format!("c{n}"), 10)).collect();
    let mut held: BTreeMap<u64, (SessionId, i64)> = BTreeMap::new();
    let mut first: BTreeMap<u16, u64> = BTreeMap::new();
    let mut ever = BTreeSet::new();
    let keys: Vec<u16> = (0..100).map(|n| n * 655).collect();
    let mut key_of = Vec::new();
    for ms in 0..70_000i64 {
        w.now = 1_000 + ms;
        if ms < 60_000 {
            let key = keys[c.below(100) as usize];
            key_of.push(key);
            w.append_keyed(&[Some(key)]);
        }
        let turn = (ms / 5_000) as usize % 3;
        if ms % 5_000 == 4_999 && ms < 60_000 {
            let gone = sessions[turn];
            held.retain(|_, (id, _)| *id != gone);
            w.leave(gone, Leave::Closed);
        }
        if ms % 5_000 == 999 && ms > 5_000 {
            let turn = (ms / 5_000 + 2) as usize % 3;
            sessions[turn] = w.join(&format!("c{turn}"), 10);
        }
        if ms == 30_000 {
            held.clear();
            w.reopen();
            sessions = (0..3).map(|n| w.join(&format!("c{n}"), 10)).collect();
        }
        let done: Vec<_> = held
            .iter()
            .filter(|(_, (_, at))| *at <= w.now)
            .map(|(o, h)| (*o, h.0))
            .collect();
        for (offset, id) in done {
            held.remove(&offset);
            w.d.grant(id, 1, 0);
            assert_eq!(w.ack(id, offset, offset + 1), Status::Ok);
        }
        w.step();
        for unit in std::mem::take(&mut w.units) {
            for offset in offsets(&unit) {
                let key = key_of[offset as usize];
                let rival = held.iter().find(|(other, (id, _))| {
                    *id != unit.session && key_of[**other as usize] == key
                });
                assert_eq!(rival, None, "{offset} of {key} to {:?}", unit.session);
                if ever.insert(offset) {
                    let last = first.insert(key, offset);
                    assert!(last.is_none_or(|last| last < offset));
                }
                let late = if c.below(10) == 0 {
                    50 + c.below(150) as i64
                } else {
                    0
                };
                held.insert(offset, (unit.session, w.now + late));
            }
        }
    }
    assert_eq!(ever.len(), 60_000, "LOST = 0");
    assert_eq!(w.durable.base, Offset(60_000));
}
