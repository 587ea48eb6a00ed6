//! One trouble, made.

use std::sync::{Arc, PoisonError};
use std::time::Duration;

use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha12Rng;
use tokio::time::sleep;

use super::{Chaos, Victims};
use crate::bookie::{PowerLoss, SimBookie};
use crate::crash_point::Side;
use crate::process::Process;
use crate::trace;
use crate::world::World;

/// One kind of trouble.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Trouble {
    /// A bookie's machine dies.
    PowerLoss,
    /// All of them.
    AllPowerLoss,
    /// A bookie's process dies.
    BookieKill,
    /// A bookie dies at its n-th turn of the disk from now.
    BookieDoom,
    /// A sync fails.
    SyncFailure,
    /// A disk fills, and later gets room.
    FullDisk,
    /// All disks fill at once, so that no ack quorum takes records.
    AllFull,
    /// A disk does nothing for a while, longer than adds wait for it (E3).
    StalledDisk,
    /// A synced bit flips.
    Flip,
    /// A synced log file is gone.
    LostFile,
    /// A disk is put back to what it was before its last start.
    OldCopy,
    /// Messages from one to another are lost.
    Cut,
    /// Metadata do not answer.
    Silence,
    /// A process stands still.
    Pause,
    /// A process dies.
    Kill,
    /// A process dies at its n-th effect from now.
    Doom,
    /// The wall clock is set.
    ClockStep,
}

impl Chaos {
    pub(super) fn make(&mut self, world: &Arc<World>, victims: &Victims, trouble: Trouble) {
        let rng = &mut self.rng;
        let bookie = any_bookie(world, rng);
        let time = Duration::from_millis(rng.random_range(50..3_000));
        match trouble {
            Trouble::PowerLoss => bookie.crash(PowerLoss::Yes),
            Trouble::AllPowerLoss => {
                world
                    .bookies
                    .iter()
                    .for_each(|bookie| bookie.crash(PowerLoss::Yes));
            }
            Trouble::BookieKill => bookie.crash(PowerLoss::No),
            Trouble::BookieDoom => bookie.doom(rng.random_range(0..40)),
            Trouble::SyncFailure => bookie.disk().fail_syncs(1),
            Trouble::FullDisk => fill(world, bookie, rng.random_range(0..200_000), time),
            Trouble::AllFull => {
                let room = rng.random_range(0..20_000);
                for bookie in &world.bookies {
                    fill(world, bookie.clone(), room, time);
                }
            }
            Trouble::StalledDisk => {
                world.counts.add("disks stalled");
                bookie.stall_disk(time);
            }
            Trouble::Flip | Trouble::LostFile | Trouble::OldCopy => self.scar(world, trouble),
            Trouble::ClockStep => world.clock.step(rng.random_range(-90_000..90_000)),
            Trouble::Silence => silence(world, time),
            Trouble::Cut | Trouble::Pause | Trouble::Kill | Trouble::Doom => {
                let Some(process) = living(victims, rng) else {
                    return;
                };
                trace!(world.trace, "{trouble:?} of {}", process.name());
                match trouble {
                    Trouble::Kill => process.kill(),
                    Trouble::Doom => {
                        let side = [Side::Before, Side::After][rng.random_range(0..2)];
                        process.doom(rng.random_range(0..120), side);
                        world.counts.add("processes doomed to die at an effect");
                    }
                    Trouble::Pause => pause(process, time),
                    _ if rng.random_bool(0.5) => cut(world, process.name(), bookie.name(), time),
                    _ => cut(world, bookie.name(), process.name(), time),
                }
            }
        }
    }

    /// A disk loses what was synced. At most Qa − 1 bookies of a world do, so that no entry loses Qa copies (fault model).
    fn scar(&mut self, world: &Arc<World>, trouble: Trouble) {
        let most = world.quorums().ack as usize - 1;
        if most == 0 {
            return;
        }
        let place = self.scarred + self.rng.random_range(0..most);
        let bookie = &world.bookies[place % world.bookies.len()];
        let done = match trouble {
            Trouble::Flip => bookie.flip_bit(),
            Trouble::LostFile => bookie.lose_file(),
            _ => bookie.go_back(),
        };
        if done {
            world.counts.add(match trouble {
                Trouble::Flip => "synced bits flipped",
                Trouble::LostFile => "log files lost",
                _ => "disks put back to an older copy",
            });
        }
    }
}

fn any_bookie(world: &World, rng: &mut ChaCha12Rng) -> Arc<SimBookie> {
    let bookie = world.bookies.choose(rng);
    bookie.expect("a world has bookies").clone()
}

fn living(victims: &Victims, rng: &mut ChaCha12Rng) -> Option<Process> {
    let living: Vec<Process> = victims
        .lock()
        .unwrap_or_else(PoisonError::into_inner)
        .iter()
        .filter(|process| !process.is_dead())
        .cloned()
        .collect();
    living.choose(rng).cloned()
}

fn fill(world: &Arc<World>, bookie: Arc<SimBookie>, room: u64, time: Duration) {
    world.counts.add("disks filled");
    bookie.fill_disk(room);
    tokio::spawn(async move {
        // Longer than a cut: it takes a while until the files that are there are full.
        sleep(time * 2).await;
        bookie.free_disk();
    });
}

fn silence(world: &Arc<World>, time: Duration) {
    let world = world.clone();
    trace!(world.trace, "metadata is silent for {time:?}");
    world.silence();
    tokio::spawn(async move {
        sleep(time).await;
        world.speak();
    });
}

fn pause(process: Process, time: Duration) {
    process.pause();
    tokio::spawn(async move {
        sleep(time).await;
        process.resume();
    });
}

fn cut(world: &Arc<World>, from: &str, to: &str, time: Duration) {
    let world = world.clone();
    world.network.cut(from, to);
    tokio::spawn(async move {
        sleep(time).await;
        world.network.mend();
    });
}
