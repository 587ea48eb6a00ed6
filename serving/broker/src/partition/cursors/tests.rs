//! The state machine without tasks: who is active, what is acked, what is written.

use std::collections::{BTreeMap, BTreeSet};

use hulse_proto::error::{Fate, Fault, Reason};
use hulse_proto::id::{Offset, SubscriptionId};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;
use uuid::Uuid;

use super::core::{CursorCore, NewConsumer, SWITCH_GRACE};
use super::lane::{
    AckCommand, AckKind, AckStatus, Acked, Begin, ConsumerId, CursorAnswer, CursorMove, LaneView,
    MoveCommand, Stand,
};
use crate::state::{Cursors, MetaState, NewCursor, OffsetRange};
use crate::subscriptions::SubscriptionKind;

const S: SubscriptionId = SubscriptionId(Uuid::from_u128(1));
const GRACE: i64 = SWITCH_GRACE.as_millis() as i64;

/// The machine, what is durable, and what lanes see.
struct World {
    core: CursorCore<u32>,
    durable: Cursors,
    views: BTreeMap<ConsumerId, LaneView>,
    answers: BTreeMap<u32, Result<CursorAnswer, Fault>>,
    now: i64,
    tickets: u32,
}

impl World {
    fn new(index: u32) -> Self {
        Self::after(index, Cursors::default())
    }

    fn after(index: u32, durable: Cursors) -> Self {
        Self {
            core: CursorCore::new(index, durable.clone(), 0),
            durable,
            views: BTreeMap::new(),
            answers: BTreeMap::new(),
            now: 1_000,
            tickets: 0,
        }
    }

    fn ticket(&mut self) -> u32 {
        self.tickets += 1;
        self.tickets
    }

    fn take(&mut self) {
        self.views.extend(self.core.take_views());
        self.answers.extend(self.core.take_answers());
    }

    fn make(&mut self, id: SubscriptionId, name: &str, base: u64) -> u32 {
        let new = NewCursor {
            name: name.into(),
            hold: true,
            base: Offset(base),
            at: self.now,
        };
        let ticket = self.ticket();
        self.core.make(id, new, ticket, self.now);
        self.take();
        ticket
    }

    /// What is due becomes durable.
    fn write(&mut self) -> bool {
        self.now += 10;
        if !self.core.begin_write(self.now) {
            return false;
        }
        let (_, delta) = self.core.delta(self.now).unwrap();
        // As the chain has it.
        let bytes = Cursors::encode_delta(&delta);
        self.durable.apply(&Cursors::decode_delta(&bytes).unwrap());
        self.core.written(self.now);
        self.take();
        true
    }

    fn attach_as(
        &mut self,
        kind: SubscriptionKind,
        name: &str,
        priority: i32,
        takeover: bool,
    ) -> Result<ConsumerId, Fault> {
        let new = NewConsumer {
            subscription: S,
            kind,
            name: name.into(),
            client: "c".into(),
            priority,
            takeover,
        };
        let (consumer, view) = self.core.attach(new, self.now)?;
        self.views.insert(consumer, view);
        self.take();
        Ok(consumer)
    }

    fn exclusive(&mut self, name: &str) -> ConsumerId {
        self.attach_as(SubscriptionKind::Exclusive, name, 0, false)
            .unwrap()
    }

    fn failover(&mut self, name: &str, priority: i32) -> ConsumerId {
        self.attach_as(SubscriptionKind::Failover, name, priority, false)
            .unwrap()
    }

    fn begin(&self, consumer: ConsumerId) -> Option<Begin> {
        match &self.views[&consumer].stand {
            Stand::Active(begin) => Some(begin.clone()),
            _ => None,
        }
    }

    fn sent(&mut self, consumer: ConsumerId, to: u64) {
        let turn = self.views[&consumer].turn;
        self.core.sent(consumer, turn, Offset(to));
    }

    fn ack(&mut self, consumer: ConsumerId, kind: AckKind, ranges: &[(u64, u64)]) -> u32 {
        let state_epoch = self.begin(consumer).map_or(0, |begin| begin.state_epoch);
        self.ack_of(consumer, state_epoch, kind, ranges)
    }

    fn ack_of(
        &mut self,
        consumer: ConsumerId,
        state_epoch: u32,
        kind: AckKind,
        ranges: &[(u64, u64)],
    ) -> u32 {
        let ranges = ranges.iter().map(|(first, end)| OffsetRange {
            first: Offset(*first),
            end: Offset(*end),
        });
        let command = AckCommand {
            consumer,
            state_epoch,
            kind,
            ranges: ranges.collect(),
        };
        let ticket = self.ticket();
        self.core.ack(&command, ticket, self.now);
        self.take();
        ticket
    }

    fn statuses(&self, ticket: u32) -> Vec<AckStatus> {
        match self.answers.get(&ticket) {
            Some(Ok(CursorAnswer::Acked(Acked { statuses }))) => statuses.clone(),
            other => panic!("{other:?}"),
        }
    }

    fn seek(&mut self, to: u64, by: Option<(ConsumerId, u64)>) -> u32 {
        let command = MoveCommand {
            subscription: S,
            goal: CursorMove {
                to: Offset(to),
                keep_acked: false,
            },
            by,
        };
        let ticket = self.ticket();
        self.core.move_to(command, ticket, self.now);
        self.take();
        ticket
    }

    fn base(&self) -> u64 {
        self.durable.get(S).unwrap().base.0
    }
}

fn exclusive() -> (World, ConsumerId) {
    let mut world = World::new(0);
    world.make(S, "a/b/s", 10);
    assert!(world.write());
    let consumer = world.exclusive("one");
    (world, consumer)
}

#[test]
fn cursor_is_answered_for_only_when_it_is_durable() {
    let mut world = World::new(0);
    let ticket = world.make(S, "a/b/s", 10);
    assert!(!world.answers.contains_key(&ticket));
    let early = world.attach_as(SubscriptionKind::Exclusive, "one", 0, false);
    assert_eq!(early.unwrap_err().reason, Reason::SubscriptionNotFound);
    assert!(world.write());
    assert_eq!(world.answers[&ticket], Ok(CursorAnswer::Made));
    assert_eq!(world.base(), 10);
    let again = world.make(S, "a/b/s", 99);
    assert_eq!(world.answers[&again], Ok(CursorAnswer::Made));
    assert_eq!(world.base(), 10, "the start is resolved once");
    assert!(!world.write(), "nothing is written when nothing changed");
}

#[test]
fn receipt_comes_after_the_delta_and_acks_of_the_same_time_share_it() {
    let (mut world, consumer) = exclusive();
    world.sent(consumer, 20);
    let one = world.ack(consumer, AckKind::Individual, &[(12, 14)]);
    let two = world.ack(consumer, AckKind::Cumulative, &[(0, 11)]);
    assert!(world.answers.is_empty() || !world.answers.contains_key(&one));
    assert_eq!(
        world.views[&consumer].released, 3,
        "the window opens at once"
    );
    assert!(world.write());
    assert_eq!(world.statuses(one), [AckStatus::Ok]);
    assert_eq!(world.statuses(two), [AckStatus::Ok]);
    assert_eq!(world.base(), 11);
    let known = world.ack(consumer, AckKind::Individual, &[(12, 13), (3, 4)]);
    assert_eq!(world.statuses(known), [AckStatus::Ok, AckStatus::Ok]);
    assert!(!world.write());
}

#[test]
fn ack_of_what_was_never_sent_is_invalid_and_changes_nothing() {
    let (mut world, consumer) = exclusive();
    world.sent(consumer, 20);
    for (kind, ranges) in [
        (AckKind::Cumulative, [(0, 21)]),
        (AckKind::Individual, [(19, 21)]),
        (AckKind::Individual, [(100, 200)]),
        (AckKind::Individual, [(15, 15)]),
        (AckKind::Individual, [(u64::MAX, u64::MAX)]),
    ] {
        let ticket = world.ack(consumer, kind, &ranges);
        assert_eq!(world.statuses(ticket), [AckStatus::Invalid], "{ranges:?}");
    }
    assert!(!world.write());
    assert_eq!(world.base(), 10);
    // The other ranges of an ack stand.
    let ticket = world.ack(consumer, AckKind::Individual, &[(10, 12), (19, 21)]);
    assert!(world.write());
    assert_eq!(world.statuses(ticket), [AckStatus::Ok, AckStatus::Invalid]);
    assert_eq!(world.base(), 12);
}

#[test]
fn second_consumer_is_refused_or_takes_over_and_fences_the_first() {
    let (mut world, first) = exclusive();
    let second = world.attach_as(SubscriptionKind::Exclusive, "two", 0, false);
    assert_eq!(second.unwrap_err().reason, Reason::ConsumerExists);
    world.sent(first, 20);
    let second = world
        .attach_as(SubscriptionKind::Exclusive, "two", 0, true)
        .unwrap();
    let ended = world.views[&first].ended.clone().unwrap();
    assert_eq!(ended.reason, Reason::ConsumerFenced);
    let void = world.ack_of(first, 0, AckKind::Cumulative, &[(0, 20)]);
    assert_eq!(world.statuses(void), [AckStatus::NotOwned]);
    assert_eq!(world.begin(second).unwrap().base, Offset(10));
    world.core.detach(first, world.now);
    world.take();
    assert!(
        world.begin(second).is_some(),
        "a late end of the first changes nothing"
    );
}

#[test]
fn active_one_is_chosen_by_priority_then_name_then_partition() {
    for (index, expected) in [(0, "a"), (1, "b"), (2, "a")] {
        let mut world = World::new(index);
        world.make(S, "a/b/s", 0);
        world.write();
        let b = world.failover("b", 5);
        let a = world.failover("a", 5);
        let low = world.failover("0", 1);
        // The first to come was active, and yields if another one is chosen.
        world.now += GRACE;
        world.core.tick(world.now);
        world.take();
        let active = if expected == "a" { a } else { b };
        for consumer in [a, b, low] {
            assert_eq!(world.begin(consumer).is_some(), consumer == active);
        }
    }
}

#[test]
fn one_that_yields_may_ack_in_its_grace_and_the_next_begins_behind_its_acks() {
    let mut world = World::new(0);
    world.make(S, "a/b/s", 0);
    world.write();
    let old = world.failover("b", 0);
    world.sent(old, 10);
    let new = world.failover("a", 0);
    assert!(matches!(world.views[&old].stand, Stand::Yielding(_)));
    assert!(world.begin(new).is_none(), "never two at a time");
    let acked = world.ack_of(old, 0, AckKind::Individual, &[(0, 3), (5, 6)]);
    let strange = world.ack_of(new, 0, AckKind::Cumulative, &[(0, 3)]);
    assert_eq!(world.statuses(strange), [AckStatus::NotOwned]);
    world.core.yielded(old, world.now);
    world.take();
    let begin = world.begin(new).unwrap();
    assert_eq!(begin.base, Offset(3));
    assert_eq!(begin.acked.iter().count(), 1);
    let late = world.ack_of(old, 0, AckKind::Cumulative, &[(0, 10)]);
    assert_eq!(world.statuses(late), [AckStatus::NotOwned]);
    world.write();
    assert_eq!(world.statuses(acked), [AckStatus::Ok, AckStatus::Ok]);
    world.core.detach(new, world.now);
    world.take();
    assert_eq!(
        world.begin(old).unwrap().base,
        Offset(3),
        "the other one takes over at once"
    );
}

#[test]
fn seek_voids_acks_of_the_time_before_and_deliveries_begin_when_it_is_durable() {
    let (mut world, consumer) = exclusive();
    world.sent(consumer, 30);
    let pending = world.ack(consumer, AckKind::Cumulative, &[(0, 20)]);
    let seek = world.seek(5, Some((consumer, 7)));
    assert!(matches!(world.views[&consumer].stand, Stand::Moving));
    let stale = world.ack_of(consumer, 0, AckKind::Cumulative, &[(0, 30)]);
    assert_eq!(world.statuses(stale), [AckStatus::Stale]);
    assert!(!world.answers.contains_key(&seek));
    world.write();
    assert_eq!(world.base(), 5);
    assert_eq!(world.statuses(pending), [AckStatus::Ok]);
    let begin = world.begin(consumer).unwrap();
    assert_eq!(
        (begin.base, begin.state_epoch, begin.seek_id),
        (Offset(5), 1, 7)
    );
    // What was sent before the seek is not sent any more.
    let beyond = world.ack(consumer, AckKind::Cumulative, &[(0, 30)]);
    assert_eq!(world.statuses(beyond), [AckStatus::Invalid]);
}

#[test]
fn seeks_that_come_faster_than_deltas_are_one_and_each_is_answered() {
    let (mut world, consumer) = exclusive();
    let first: Vec<u32> = (0..100).map(|to| world.seek(to, None)).collect();
    assert!(world.write());
    let second: Vec<u32> = (0..100).map(|to| world.seek(to, None)).collect();
    assert!(world.write());
    assert!(!world.write());
    for ticket in first.iter().chain(&second) {
        assert!(matches!(world.answers[ticket], Ok(CursorAnswer::Moved(_))));
    }
    assert_eq!(world.base(), 99);
    let begin = world.begin(consumer).unwrap();
    assert_eq!((begin.base, begin.state_epoch), (Offset(99), 200));
}

#[test]
fn skip_keeps_what_is_acked_behind_it() {
    let (mut world, consumer) = exclusive();
    world.sent(consumer, 30);
    world.ack(consumer, AckKind::Individual, &[(20, 25)]);
    let command = MoveCommand {
        subscription: S,
        goal: CursorMove {
            to: Offset(15),
            keep_acked: true,
        },
        by: None,
    };
    world.core.move_to(command, 1_000, world.now);
    world.write();
    let cursor = world.durable.get(S).unwrap();
    assert_eq!((cursor.base, cursor.state_epoch), (Offset(15), 1));
    assert_eq!(cursor.acked().offsets(), 5);
    assert_eq!(world.begin(consumer).unwrap().acked.offsets(), 5);
}

#[test]
fn delta_that_fails_is_written_again_with_what_came_since() {
    let (mut world, consumer) = exclusive();
    world.sent(consumer, 30);
    let one = world.ack(consumer, AckKind::Individual, &[(12, 14)]);
    world.now += 10;
    assert!(world.core.begin_write(world.now));
    let two = world.ack(consumer, AckKind::Cumulative, &[(0, 13)]);
    let why = Fault::new(Reason::NotEnoughBookies, "too few");
    world.core.not_written(why.clone(), world.now);
    world.take();
    assert_eq!(world.views[&consumer].acks_wait, Some(why));
    assert!(!world.write(), "not before the wait is over");
    assert!(!world.answers.contains_key(&one));
    world.now += 1_000;
    assert!(world.write());
    assert_eq!(world.statuses(one), [AckStatus::Ok]);
    assert_eq!(world.statuses(two), [AckStatus::Ok]);
    assert_eq!(world.base(), 14);
    assert_eq!(world.views[&consumer].acks_wait, None);
}

#[test]
fn end_of_the_partition_leaves_acks_unknown() {
    let (mut world, consumer) = exclusive();
    world.sent(consumer, 30);
    let ticket = world.ack(consumer, AckKind::Cumulative, &[(0, 13)]);
    world
        .core
        .fail(&Fault::new(Reason::PartitionMoved, "moved"));
    world.take();
    let fault = world.answers[&ticket].clone().unwrap_err();
    assert_eq!(
        (fault.reason, fault.fate),
        (Reason::PartitionMoved, Fate::Unknown)
    );
}

#[test]
fn recreated_subscription_inherits_nothing_and_the_old_cursor_goes() {
    let (mut world, consumer) = exclusive();
    world.sent(consumer, 30);
    world.ack(consumer, AckKind::Cumulative, &[(0, 30)]);
    world.write();
    let other = SubscriptionId(Uuid::from_u128(2));
    world.make(other, "a/b/s", 10);
    world.write();
    let ended = world.views[&consumer].ended.clone().unwrap();
    assert_eq!(ended.reason, Reason::SubscriptionNotFound);
    assert!(world.durable.get(S).is_none());
    assert_eq!(world.durable.get(other).unwrap().base, Offset(10));
}

#[test]
fn removal_waits_for_consumers_unless_it_is_forced() {
    let (mut world, consumer) = exclusive();
    world.core.remove(S, false, 500, world.now);
    world.take();
    let fault = world.answers[&500].clone().unwrap_err();
    assert_eq!(fault.reason, Reason::PreconditionFailed);
    world.core.remove(S, true, 501, world.now);
    world.take();
    assert!(world.views[&consumer].ended.is_some());
    assert!(!world.answers.contains_key(&501));
    world.write();
    assert_eq!(world.answers[&501], Ok(CursorAnswer::Removed));
    assert!(world.durable.is_empty());
    world.core.remove(S, true, 502, world.now);
    world.take();
    assert_eq!(world.answers[&502], Ok(CursorAnswer::Removed));
}

#[test]
fn base_passes_over_what_is_trimmed_and_what_holds_no_record() {
    let (mut world, consumer) = exclusive();
    world.core.trimmed(Offset(15), world.now);
    world.core.skipped(
        consumer,
        OffsetRange {
            first: Offset(15),
            end: Offset(18),
        },
        world.now,
    );
    world.write();
    assert_eq!(world.base(), 18);
    assert_eq!(world.views[&consumer].released, 0, "nobody acked that");
}

/// Ranges beyond the cap stop new deliveries, and no ack is lost without a word (serving.md B2.7).
#[test]
fn acked_ranges_beyond_the_cap_stop_deliveries_and_are_kept() {
    let (mut world, consumer) = exclusive();
    world.sent(consumer, 100_000);
    let ranges: Vec<_> = (0..25_000).map(|n| (11 + 2 * n, 12 + 2 * n)).collect();
    let ticket = world.ack(consumer, AckKind::Individual, &ranges);
    assert!(world.views[&consumer].crowded);
    while world.write() {}
    let statuses = world.statuses(ticket);
    let taken = statuses.iter().filter(|status| **status == AckStatus::Ok);
    let taken = taken.count();
    assert_eq!(taken, 20_000);
    assert!(
        statuses[taken..]
            .iter()
            .all(|status| *status == AckStatus::Retry)
    );
    let durable = world.durable.get(S).unwrap();
    assert_eq!(durable.acked().len(), taken);
    world.ack(consumer, AckKind::Cumulative, &[(0, 30_000)]);
    assert!(!world.views[&consumer].crowded);
}

/// Random consumers, acks, seeks and failures: what is durable is exactly what was acked, and no receipt is given before.
#[test]
fn receipts_are_never_ahead_of_what_is_durable() {
    for seed in 0..200 {
        let mut rng = ChaCha12Rng::seed_from_u64(seed);
        let mut world = World::new(rng.random_range(0..3));
        world.make(S, "a/b/s", 0);
        world.write();
        let kind = match rng.random_bool(0.5) {
            true => SubscriptionKind::Exclusive,
            false => SubscriptionKind::Failover,
        };
        // By ticket: the state epoch and the offsets that were acked.
        let mut asked: BTreeMap<u32, (u32, Vec<(u64, u64)>)> = BTreeMap::new();
        let mut alive: Vec<ConsumerId> = Vec::new();
        for _ in 0..120 {
            world.now += rng.random_range(0..400);
            match rng.random_range(0..12) {
                0 => {
                    let name = format!("n{}", rng.random_range(0..4));
                    let priority = rng.random_range(0..2);
                    alive.extend(world.attach_as(kind, &name, priority, rng.random_bool(0.3)));
                }
                1 if !alive.is_empty() => {
                    let gone = alive.swap_remove(rng.random_range(0..alive.len()));
                    world.core.detach(gone, world.now);
                }
                2 => {
                    world.seek(rng.random_range(0..60), None);
                }
                3 => {
                    world.core.tick(world.now);
                }
                4 => {
                    world.now += 10;
                    if world.core.begin_write(world.now) {
                        let why = Fault::new(Reason::StorageTimeout, "late");
                        world.core.not_written(why, world.now);
                    }
                }
                5 | 6 => {
                    world.write();
                }
                _ if !alive.is_empty() => {
                    let consumer = alive[rng.random_range(0..alive.len())];
                    let Some(begin) = world.begin(consumer) else {
                        continue;
                    };
                    let to = begin.base.0 + rng.random_range(0..40);
                    world.sent(consumer, to);
                    let first = rng.random_range(0..=to);
                    let end = rng.random_range(first..=to + 3);
                    let ticket = world.ack(consumer, AckKind::Individual, &[(first, end)]);
                    asked.insert(ticket, (begin.state_epoch, vec![(first, end)]));
                }
                _ => {}
            }
            world.take();
            alive.retain(|consumer| world.views[consumer].ended.is_none());
            let active = alive
                .iter()
                .filter(|consumer| world.begin(**consumer).is_some());
            assert!(active.count() <= 1, "seed {seed}: two are active");
            judge(&world, &asked, seed);
        }
    }
}

fn judge(world: &World, asked: &BTreeMap<u32, (u32, Vec<(u64, u64)>)>, seed: u64) {
    let cursor = world.durable.get(S).unwrap();
    let mut processed: BTreeSet<u64> = (0..cursor.base.0).collect();
    processed.extend(cursor.acked().iter().flat_map(|r| r.first.0..r.end.0));
    for (ticket, (state_epoch, ranges)) in asked {
        let Some(Ok(CursorAnswer::Acked(acked))) = world.answers.get(ticket) else {
            continue;
        };
        for ((first, end), status) in ranges.iter().zip(&acked.statuses) {
            if *status == AckStatus::Ok && *state_epoch == cursor.state_epoch {
                assert!(
                    (*first..*end).all(|offset| processed.contains(&offset)),
                    "seed {seed}: {first}..{end} has a receipt and is not durable"
                );
            }
        }
    }
}
