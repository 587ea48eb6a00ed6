//! What must hold whatever happens.

use std::time::Duration;

use super::world::World;

#[test]
fn every_record_is_handed_out_and_acknowledged_for_certain_through_cuts_and_seeks() {
    for seed in 0..300 {
        let mut world = World::new(seed);
        for _ in 0..2500 {
            world.step(seed % 3 == 0, true);
        }
        // Then all is well: the backlog goes to 0 without a restart of the consumer (case SU-07).
        for _ in 0..200_000 {
            if world.done() {
                break;
            }
            world.step(false, false);
        }
        let bases: Vec<_> = world.stored.iter().map(|s| (s.base, s.end)).collect();
        assert!(
            world.done(),
            "stuck, seed {seed}: {bases:?}, {:?}",
            world.core.figures()
        );
        assert!(world.core.is_flushed());
        for (index, stored) in (0..).zip(&world.stored) {
            let missed = (0..stored.end)
                .find(|offset| stored.holds(*offset) && !world.handed.contains(&(index, *offset)));
            assert_eq!(missed, None, "never handed out, seed {seed}");
        }
        for answered in &mut world.seeks {
            assert!(
                matches!(answered.try_recv(), Ok(Ok(()))),
                "a seek without an answer, seed {seed}"
            );
        }
    }
}

/// After a break the broker sends nothing and the application receives nothing until it has its receipts: neither waits for ever.
#[test]
fn acknowledgements_are_sent_again_without_a_second_delivery() {
    let mut waited = 0;
    for seed in 0..100 {
        let mut world = World::new(seed);
        world.honours = 1.0;
        for _ in 0..500 {
            world.step(false, false);
        }
        world.ack();
        waited += world.asked.len();
        world.cut();
        world.starved = true;
        for _ in 0..3_000 {
            world.broker();
            world.arrive();
            world.now += Duration::from_millis(20);
            world.learn();
            world.attach();
        }
        assert!(world.asked.is_empty(), "seed {seed}: {:?}", world.asked);
        world.starved = false;
        for _ in 0..200_000 {
            if world.done() {
                break;
            }
            world.step(false, false);
        }
        assert!(world.done(), "stuck, seed {seed}");
    }
    assert!(waited > 100, "{waited}");
}
