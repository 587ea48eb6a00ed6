//! The thread that works on whole log files: what is slow there holds up nobody, and what fails there is told.

use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use hulse_proto::bookie::{Address, BookieCalls, BookieError};
use hulse_proto::id::LedgerId;
use hulse_proto::ledger::LedgerState;
use tokio::time::timeout;

use super::support::*;
use crate::disk::memory::MemoryDisk;
use crate::disk::{Disk, DiskError, DiskErrorKind, DiskFile, DiskLock, Space};
use crate::{BookieNode, NodeConfig};

/// Nothing here takes that long.
const PATIENCE: Duration = Duration::from_secs(20);

/// What becomes of a change of directory entries that is not the start's.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Gate {
    Open,
    /// It waits until the gate is open.
    Closed,
    Fails(DiskErrorKind),
}

/// A disk whose log files are made, and named, through a gate.
#[derive(Clone)]
struct Gated {
    disk: MemoryDisk,
    gate: Arc<(Mutex<Gate>, Condvar)>,
}

impl Gated {
    fn new(disk: MemoryDisk) -> Self {
        let gate = Arc::new((Mutex::new(Gate::Open), Condvar::new()));
        Self { disk, gate }
    }

    fn set(&self, gate: Gate) {
        *self.gate.0.lock().unwrap() = gate;
        self.gate.1.notify_all();
    }

    fn pass(&self, name: &str) -> Result<(), DiskError> {
        let gate = self.gate.0.lock().unwrap();
        let mut closed = |gate: &mut Gate| *gate == Gate::Closed;
        match *self.gate.1.wait_while(gate, &mut closed).unwrap() {
            Gate::Fails(kind) => Err(DiskError {
                kind,
                operation: "create",
                name: name.to_owned(),
                why: "the gate says so".to_owned(),
            }),
            _ => Ok(()),
        }
    }
}

impl Disk for Gated {
    fn lock(&self) -> Result<Box<dyn DiskLock>, DiskError> {
        self.disk.lock()
    }
    fn list(&self) -> Result<Vec<String>, DiskError> {
        self.disk.list()
    }
    fn create(&self, name: &str, bytes: u64) -> Result<Arc<dyn DiskFile>, DiskError> {
        if name == "log.tmp" {
            self.pass(name)?;
        }
        self.disk.create(name, bytes)
    }
    fn open(&self, name: &str) -> Result<Arc<dyn DiskFile>, DiskError> {
        self.disk.open(name)
    }
    fn rename(&self, from: &str, to: &str) -> Result<(), DiskError> {
        self.disk.rename(from, to)
    }
    fn remove(&self, name: &str) -> Result<(), DiskError> {
        self.disk.remove(name)
    }
    fn sync_dir(&self) -> Result<(), DiskError> {
        self.disk.sync_dir()
    }
    fn space(&self) -> Result<Space, DiskError> {
        self.disk.space()
    }
}

/// A node on a gated disk that serves ledger 1.
struct Scene {
    disk: Gated,
    store: Arc<MapStore>,
    node: Arc<BookieNode>,
    next: u64,
}

fn small() -> NodeConfig {
    NodeConfig {
        file_bytes: 64 << 10,
        queue_bytes_max: 32 << 10,
        ..config()
    }
}

impl Scene {
    /// The gate is `gate` from the start's end on.
    async fn new(gate: Gate) -> Self {
        let disk = Gated::new(MemoryDisk::default());
        let store = Arc::new(MapStore::default());
        let seams = seams(Arc::new(disk.clone()), store.clone(), 1);
        let node = BookieNode::start(small(), seams).await.unwrap();
        store.ledger(1, LedgerState::Open, node.member());
        disk.set(gate);
        Self {
            disk,
            store,
            node,
            next: 0,
        }
    }

    fn to(&self) -> Address {
        Address {
            cell: CELL,
            incarnation: self.node.member().incarnation,
            ledger: LedgerId(1),
        }
    }

    async fn add(&mut self) -> Result<(), BookieError> {
        let request = add(self.to(), entry(1, self.next, 1000));
        let answer = timeout(PATIENCE, self.node.add(request)).await;
        let answer = answer.expect("an add is answered, whatever the disk does with whole files");
        self.next += u64::from(answer.is_ok());
        answer
    }

    /// Adds until one is refused.
    async fn fill(&mut self) -> BookieError {
        loop {
            if let Err(error) = self.add().await {
                return error;
            }
        }
    }

    /// Adds until one is taken again.
    async fn taken_again(&mut self) {
        let again = async {
            while self.add().await.is_err() {
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        };
        timeout(PATIENCE, again)
            .await
            .expect("adds are taken again");
    }

    /// Stops the node, and reads all that it confirmed from its disk.
    async fn stop_and_check(self) {
        let to = self.to();
        self.node.shutdown().await.unwrap();
        drop(self.node);
        let seams = seams(Arc::new(self.disk), self.store, 2);
        let node = BookieNode::start(small(), seams).await.unwrap();
        assert_eq!(node.status().damage, []);
        let mut first = 0;
        while first < self.next {
            let found = node.read(read(to, first, self.next)).await.unwrap();
            first += found.len() as u64;
        }
        node.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn next_file_that_takes_long_holds_up_no_add_while_there_is_room() {
    let mut scene = Scene::new(Gate::Closed).await;
    let refused = scene.fill().await;
    assert!(matches!(refused, BookieError::Busy { .. }), "{refused}");
    assert!(scene.next > 5, "{} fit into the first file", scene.next);
    scene.disk.set(Gate::Open);
    scene.taken_again().await;
    for _ in 0..200 {
        scene.taken_again().await;
    }
    scene.stop_and_check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_waits_for_the_file_that_is_being_made() {
    let mut scene = Scene::new(Gate::Closed).await;
    scene.add().await.unwrap();
    let node = Arc::clone(&scene.node);
    let mut stop = tokio::spawn(async move { node.shutdown().await });
    let early = timeout(Duration::from_millis(100), &mut stop).await;
    assert!(early.is_err(), "its thread still has the disk");
    scene.disk.set(Gate::Open);
    stop.await.unwrap().unwrap();
    scene.stop_and_check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn error_of_the_next_file_is_final() {
    let mut scene = Scene::new(Gate::Fails(DiskErrorKind::Io)).await;
    let mut failed = scene.node.failed();
    let _ = scene.add().await;
    let why = timeout(PATIENCE, failed.wait_for(Option::is_some)).await;
    let why = why.expect("it is told").unwrap().clone().unwrap();
    assert!(why.contains("the gate says so"), "{why}");
    scene.disk.set(Gate::Open);
    let refused = scene.fill().await;
    assert!(matches!(refused, BookieError::Failed { .. }), "{refused}");
    assert!(scene.node.shutdown().await.is_err());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_disk_for_the_next_file_is_read_only_and_heals() {
    let mut scene = Scene::new(Gate::Fails(DiskErrorKind::Full)).await;
    let refused = scene.fill().await;
    let full = matches!(
        refused,
        BookieError::ReadOnly { .. } | BookieError::Busy { .. }
    );
    assert!(full, "{refused}");
    assert!(scene.node.failed().borrow().is_none());
    scene.disk.set(Gate::Open);
    scene.taken_again().await;
    scene.stop_and_check().await;
}
