//! Histories in which a rule matters.

use std::sync::Arc;
use std::time::Duration;

use rand::Rng;
use rand::seq::SliceRandom;
use rand_chacha::ChaCha12Rng;
use tests_harness::World;
use tests_harness::network::{Delivery, Kind};

use super::hunt::Profile;

/// The names of all bookies, in random order.
fn shuffled(world: &World, rng: &mut ChaCha12Rng) -> Vec<String> {
    let mut names: Vec<String> = world
        .bookies
        .iter()
        .map(|bookie| bookie.name().to_owned())
        .collect();
    names.shuffle(rng);
    names
}

/// T1: no fence reaches one member, and the writer's adds reach it late; another one's answers to recovery are lost; the third
/// lacks the newest entries.
pub const LATE_ADDS: Profile = Profile {
    quorums: (3, 3, 2),
    spares: 0,
    appends: (60, 20),
    recoverers: 1,
    delay: 10..200,
    trouble: late_adds,
    fire: Duration::from_secs(3),
};

fn late_adds(world: &Arc<World>, rng: &mut ChaCha12Rng) {
    let names = shuffled(world, rng);
    let late = rng.random_range(200..900);
    world.network.script(move |message| {
        let [deaf, mute, lacking] = [0, 1, 2].map(|place| names[place] == message.bookie);
        let late = Duration::from_millis(late);
        match (message.kind, message.answer) {
            (Kind::Add, false) if deaf => Some(Delivery::After(late)),
            (Kind::Fence, false) if deaf => Some(Delivery::Drop),
            (Kind::RecoveryRead, true) if mute => Some(Delivery::Drop),
            (Kind::Add, false) if lacking => Some(Delivery::Drop),
            _ => None,
        }
    });
}
