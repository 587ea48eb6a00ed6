//! Both disks against the contract; and that the memory disk forgets as it says.

use std::sync::Arc;

use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;

use crate::disk::memory::{MemoryDisk, Survival};
use crate::disk::{Disk, DiskErrorKind, OsDisk, conformance};

/// Keeps the directory while the disk lives.
struct Temporary(
    OsDisk,
    #[expect(dead_code, reason = "removes the directory at the end")] tempfile::TempDir,
);

impl Disk for Temporary {
    fn lock(&self) -> Result<Box<dyn crate::disk::DiskLock>, crate::DiskError> {
        self.0.lock()
    }
    fn list(&self) -> Result<Vec<String>, crate::DiskError> {
        self.0.list()
    }
    fn create(
        &self,
        name: &str,
        bytes: u64,
    ) -> Result<Arc<dyn crate::disk::DiskFile>, crate::DiskError> {
        self.0.create(name, bytes)
    }
    fn open(&self, name: &str) -> Result<Arc<dyn crate::disk::DiskFile>, crate::DiskError> {
        self.0.open(name)
    }
    fn rename(&self, from: &str, to: &str) -> Result<(), crate::DiskError> {
        self.0.rename(from, to)
    }
    fn remove(&self, name: &str) -> Result<(), crate::DiskError> {
        self.0.remove(name)
    }
    fn sync_dir(&self) -> Result<(), crate::DiskError> {
        self.0.sync_dir()
    }
    fn space(&self) -> Result<crate::disk::Space, crate::DiskError> {
        self.0.space()
    }
}

#[test]
fn files_keep_the_contract() {
    conformance::every_sentence(&|| {
        let dir = tempfile::tempdir().unwrap();
        Box::new(Temporary(OsDisk::open(dir.path()).unwrap(), dir))
    });
}

#[test]
fn memory_keeps_the_contract() {
    conformance::every_sentence(&|| Box::new(MemoryDisk::default()));
}

#[test]
fn synced_bytes_survive_crash_and_unsynced_ones_may_not() {
    let disk = MemoryDisk::default();
    let file = disk.create("a", 64).unwrap();
    file.write_at(0, b"kept").unwrap();
    file.sync().unwrap();
    disk.sync_dir().unwrap();
    file.write_at(4, b"lost").unwrap();
    disk.create("b", 8).unwrap();
    disk.crash(Survival::Nothing);
    assert!(
        file.read_at(0, 4).is_err(),
        "handles do not outlive a crash"
    );
    let file = disk.open("a").unwrap();
    assert_eq!(file.read_at(0, 8).unwrap(), b"kept\0\0\0\0");
    assert_eq!(disk.list().unwrap(), ["a"]);
}

#[test]
fn failed_sync_marks_pages_clean_and_loses_them() {
    let disk = MemoryDisk::default();
    let file = disk.create("a", 64).unwrap();
    disk.sync_dir().unwrap();
    file.write_at(0, b"lost").unwrap();
    disk.fail_syncs(1);
    assert!(file.sync().is_err());
    file.sync().unwrap();
    assert_eq!(
        file.read_at(0, 4).unwrap(),
        b"lost",
        "the page cache still shows it"
    );
    disk.crash(Survival::Everything);
    let file = disk.open("a").unwrap();
    assert_eq!(
        file.read_at(0, 4).unwrap(),
        b"lost",
        "and outlives the process"
    );
    file.settle().unwrap();
    assert_eq!(
        file.read_at(0, 4).unwrap(),
        [0; 4],
        "until the cache is dropped"
    );
}

#[test]
fn random_crash_of_one_seed_is_the_same_twice() {
    let bytes = |seed| {
        let disk = MemoryDisk::default();
        let file = disk.create("a", 4096).unwrap();
        disk.sync_dir().unwrap();
        file.write_at(0, &[7; 4096]).unwrap();
        disk.crash(Survival::Random(&mut ChaCha12Rng::seed_from_u64(seed)));
        disk.open("a").unwrap().read_at(0, 4096).unwrap()
    };
    assert!((0..20).all(|seed| bytes(seed) == bytes(seed)));
    assert!((0..20).any(|seed| bytes(seed) != bytes(seed + 1)));
}

#[test]
fn full_and_read_only_disks_say_so() {
    let disk = MemoryDisk::default();
    disk.set_capacity(Some(100));
    disk.create("a", 60).unwrap();
    assert_eq!(
        disk.create("b", 60).err().unwrap().kind,
        DiskErrorKind::Full
    );
    disk.set_read_only(true);
    assert_eq!(
        disk.create("c", 1).err().unwrap().kind,
        DiskErrorKind::ReadOnly
    );
    assert_eq!(disk.lock().err().unwrap().kind, DiskErrorKind::ReadOnly);
}
