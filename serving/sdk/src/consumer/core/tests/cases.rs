//! What must hold whatever happens.

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
