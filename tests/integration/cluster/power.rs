//! LD-09 as it is told: the power of the bookies fails, and what was not synced is gone.
//!
//! Each bookie has a file system of its own, with a journal. At the failure the process is frozen, the file system is shut down as if
//! its disk had lost power (nothing that the kernel still holds is written), and the process is killed; the file system is then mounted
//! anew and recovers as after a power failure.

use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::time::Duration;

use hulse_sdk::Client;

use super::super::report::rounds;
use super::super::volume::{Kind, Volume};
use super::load::{Load, runtime};
use super::ports::Ports;
use super::processes::Cluster;
use super::truth::{Id, Place, Truth, read_all};

const BOOKIES: usize = 3;
const VOLUME: u64 = 512 << 20;
const TOPIC: &str = "powered";
const WHAT: &str = "LD-09 with a failure of power";

/// A cluster whose bookies lose what they have not synced.
struct Powered {
    cluster: Cluster,
    volumes: Vec<Volume>,
}

impl Powered {
    /// `None`, and a word in the report, where it cannot be had.
    fn start(port: u16, settings: &[(&str, &str)]) -> Option<Self> {
        let volumes = (0..BOOKIES).map(|_| Volume::mount(Kind::Journaled, VOLUME, WHAT));
        let volumes = volumes.collect::<Option<Vec<_>>>()?;
        if !volumes[0].can_lose_power() {
            super::super::report::report(&format!(
                "NOT RUN: {WHAT}: its file system cannot be shut down here"
            ));
            return None;
        }
        let mut cluster = Cluster::start_with(port, 0, settings)?;
        for (index, volume) in volumes.iter().enumerate() {
            let name = format!("b{}", index + 1);
            let bookie = cluster.bookie_at(&volume.data(), index, &name);
            cluster.add_bookie(bookie);
        }
        cluster.add_broker();
        Some(Self { cluster, volumes })
    }

    /// The power of these fails, at once.
    fn fails(&mut self, bookies: &[usize]) {
        for index in bookies {
            self.cluster.bookies[*index].signal("-STOP");
        }
        for index in bookies {
            self.volumes[*index].power_fails();
        }
        for index in bookies {
            self.cluster.bookies[*index].kill();
        }
    }

    /// And is back.
    fn returns(&mut self, bookies: &[usize]) {
        for index in bookies {
            self.volumes[*index].power_returns();
            self.cluster.bookies[*index].spawn();
        }
        for index in bookies {
            self.cluster.bookies[*index].wait_ready();
        }
    }
}

#[test]
fn volume_whose_power_fails_keeps_what_was_synced_and_nothing_else() {
    let Some(volume) = Volume::mount(Kind::Journaled, 64 << 20, WHAT) else {
        return;
    };
    if !volume.can_lose_power() {
        return;
    }
    std::fs::create_dir(volume.data()).unwrap();
    let (synced, unsynced) = (volume.data().join("synced"), volume.data().join("unsynced"));
    let file = std::fs::File::create(&synced).unwrap();
    file.write_all_at(b"kept", 0).unwrap();
    file.sync_all().unwrap();
    std::fs::File::open(volume.data())
        .unwrap()
        .sync_all()
        .unwrap();
    file.write_all_at(b"lost", 0).unwrap();
    std::fs::write(&unsynced, b"lost").unwrap();
    drop(file);
    volume.power_fails();
    volume.power_returns();
    assert_eq!(std::fs::read(&synced).unwrap(), b"kept");
    assert!(!unsynced.exists());
}

/// Records as they were found, in order.
type Found = Vec<(Place, Id)>;

/// Produces through a failure of the power of all bookies; what was sent, and what was found.
fn all_lose_power(settings: &[(&str, &str)]) -> Option<(Arc<Truth>, Found)> {
    let ports = Ports::take();
    let mut powered = Powered::start(ports.first, settings)?;
    let runtime = runtime();
    let client = Client::builder(powered.cluster.broker_address(0));
    let client = client.build().unwrap();
    let load = runtime.block_on(Load::begin(&client, TOPIC, 3));
    for _ in 0..rounds(1, 5) {
        runtime.block_on(load.goes_on("the beginning"));
        std::thread::sleep(Duration::from_millis(rounds(500, 8_000) as u64));
        powered.fails(&[0, 1, 2]);
        powered.returns(&[0, 1, 2]);
        runtime.block_on(load.goes_on("the power is back"));
    }
    let (truth, followed) = runtime.block_on(load.end());
    let found = runtime.block_on(read_all(&client, TOPIC));
    if settings.is_empty() {
        truth.check(&followed, "what was followed over a failure of power");
    }
    powered.cluster.stop();
    Some((truth, found))
}

#[test]
fn nothing_acknowledged_is_lost_when_the_power_of_all_bookies_fails() {
    let Some((truth, found)) = all_lose_power(&[]) else {
        return;
    };
    truth.check(&found, WHAT);
}

/// One loses its power, another one is frozen, the owner is killed.
#[test]
fn nothing_acknowledged_is_lost_when_one_bookie_loses_power_and_another_one_sleeps() {
    let ports = Ports::take();
    let Some(mut powered) = Powered::start(ports.first, &[]) else {
        return;
    };
    let runtime = runtime();
    let client = Client::builder(powered.cluster.broker_address(0));
    let client = client.build().unwrap();
    let load = runtime.block_on(Load::begin(&client, TOPIC, 3));
    runtime.block_on(load.goes_on("the beginning"));
    powered.cluster.bookies[1].signal("-STOP");
    powered.fails(&[0]);
    std::thread::sleep(Duration::from_millis(rounds(1_500, 20_000) as u64));
    powered.cluster.brokers[0].kill();
    powered.cluster.bookies[1].signal("-CONT");
    powered.returns(&[0]);
    powered.cluster.brokers[0].start();
    runtime.block_on(load.goes_on("all are back"));
    let (truth, followed) = runtime.block_on(load.end());
    let found = runtime.block_on(read_all(&client, TOPIC));
    truth.check(&found, WHAT);
    truth.check(&followed, "what was followed");
    powered.cluster.stop();
}
