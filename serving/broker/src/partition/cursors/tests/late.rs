//! What is acked or trimmed before the lane has told that it was sent.

use hulse_proto::id::Offset;

use super::world::exclusive;
use crate::partition::cursors::core::Handed;
use crate::partition::cursors::lane::AckKind;

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
