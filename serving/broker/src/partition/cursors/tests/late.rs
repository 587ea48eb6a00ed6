//! What is acked or trimmed before the lane has told that it was sent, and what comes before a move is durable.

use hulse_proto::id::Offset;

use super::world::{S, World, exclusive};
use crate::partition::cursors::core::Handed;
use crate::partition::cursors::lane::{AckKind, Cause, CursorMove, MoveCommand};

/// The lane tells late what it sent; acks of a consumer that came back, and trims, overtake it.
#[test]
fn acks_and_trims_that_come_before_what_was_sent_are_counted_when_it_is_known() {
    for ahead in [true, false] {
        let (mut world, consumer) = exclusive();
        world.sent(consumer, 30);
        let state_epoch = world.begin(consumer).unwrap().state_epoch;
        world.core.detach(consumer, world.now);
        let end = Offset(30);
        world.handed = Some(Handed { end, state_epoch });
        let back = world.exclusive("back");
        if ahead {
            world.ack(back, AckKind::Individual, &[(20, 25)]);
        }
        world.core.trimmed(Offset(15), world.now);
        world.sent(back, 22);
        world.sent(back, 30);
        world.take();
        let view = &world.views[&back];
        // Of the twenty from 10 on.
        let left = if ahead { 10 } else { 15 };
        assert_eq!(view.released + view.passed, 20 - left, "ahead {ahead}");
    }
}

fn moves(world: &mut World, to: u64, keep_acked: bool, evicts: bool) {
    let goal = CursorMove {
        to: Offset(to),
        keep_acked,
    };
    let command = MoveCommand {
        subscription: S,
        goal,
        by: None,
        evicts,
    };
    world.core.move_to(command, 1_000, world.now);
}

/// Who sought back has what the eviction took, so nothing is lost below where it stands.
#[test]
fn seek_behind_an_eviction_is_told_as_a_seek_and_a_skip_as_the_eviction() {
    for (keep_acked, to, cause) in [(false, 5, Cause::Moved), (true, 25, Cause::Evicted)] {
        for in_flight in [true, false] {
            let (mut world, consumer) = exclusive();
            moves(&mut world, 20, true, true);
            if in_flight {
                assert!(world.core.begin_write(world.now));
            }
            moves(&mut world, to, keep_acked, false);
            if in_flight {
                world.written();
            }
            assert!(world.write());
            let begin = world.begin(consumer).unwrap();
            assert_eq!((begin.base, begin.cause), (Offset(to), cause));
        }
    }
}
