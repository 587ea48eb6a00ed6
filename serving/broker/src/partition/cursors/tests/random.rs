//! Random runs.

use std::collections::{BTreeMap, BTreeSet};

use hulse_proto::error::{Fault, Reason};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::world::{S, World};
use crate::partition::cursors::lane::{AckKind, AckStatus, ConsumerId, CursorAnswer};
use crate::subscriptions::SubscriptionKind;

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
        let mut asked = Asked::new();
        let mut alive: Vec<ConsumerId> = Vec::new();
        for _ in 0..120 {
            world.now += rng.random_range(0..400);
            step(&mut world, &mut rng, kind, &mut alive, &mut asked);
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

/// By ticket: the state epoch and the offsets that were acked.
type Asked = BTreeMap<u32, (u32, Vec<(u64, u64)>)>;

fn step(
    world: &mut World,
    rng: &mut ChaCha12Rng,
    kind: SubscriptionKind,
    alive: &mut Vec<ConsumerId>,
    asked: &mut Asked,
) {
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
                return;
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
}

fn judge(world: &World, asked: &Asked, seed: u64) {
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
