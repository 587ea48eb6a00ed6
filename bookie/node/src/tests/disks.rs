//! Both disks against the contract; and that the memory disk forgets as it says.

use std::sync::Arc;

use rand::SeedableRng;
use rand_chacha::ChaCha12Rng;

use crate::disk::memory::{Calls, Fault, MemoryDisk, Survival};
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
    disk.set_capacity(Some(10_000));
    let file = disk.create("a", 6_000).unwrap();
    assert_eq!(
        disk.create("b", 6_000).err().unwrap().kind,
        DiskErrorKind::Full
    );
    // A block that is there is written to its end.
    file.write_at(6_000, &[1; 2_192]).unwrap();
    let error = file.write_at(8_192, &[1]).unwrap_err();
    assert_eq!(error.kind, DiskErrorKind::Full);
    disk.set_read_only(true);
    assert_eq!(
        disk.create("c", 1).err().unwrap().kind,
        DiskErrorKind::ReadOnly
    );
    assert_eq!(disk.lock().err().unwrap().kind, DiskErrorKind::ReadOnly);
}

/// Contract 2: what was not synced of the directory may survive in any subset, each change whole.
#[test]
fn unsynced_names_survive_in_any_subset() {
    let mut left = std::collections::BTreeSet::new();
    for seed in 0..400 {
        let disk = MemoryDisk::default();
        for name in ["old", "gone"] {
            disk.create(name, 64).unwrap();
        }
        disk.sync_dir().unwrap();
        disk.create("new", 64).unwrap();
        disk.rename("old", "renamed").unwrap();
        disk.remove("gone").unwrap();
        disk.crash(Survival::Random(&mut ChaCha12Rng::seed_from_u64(seed)));
        let names = disk.list().unwrap();
        assert!(names.contains(&"old".to_owned()) != names.contains(&"renamed".to_owned()));
        left.insert(names);
    }
    assert_eq!(left.len(), 8, "{left:?}");
}

#[test]
fn ordered_faults_meet_the_calls_they_are_about() {
    let disk = MemoryDisk::default();
    let file = disk.create("a", 64).unwrap();
    let fault = |calls, after, times| {
        Some(Fault {
            calls,
            after,
            times,
        })
    };
    disk.order(fault(Calls::Changes, 1, 1));
    file.write_at(0, b"whole").unwrap();
    assert_eq!(file.sync().unwrap_err().kind, DiskErrorKind::Io);
    assert_eq!(disk.struck(), Some(("sync", "a".to_owned())));
    file.sync().unwrap();
    file.settle().unwrap();
    assert_eq!(
        file.read_at(0, 5).unwrap(),
        [0; 5],
        "the medium never got it"
    );
    disk.order(fault(Calls::Changes, 0, u64::MAX));
    assert!(file.write_at(0, b"half").is_err() && file.write_at(0, b"half").is_err());
    assert_eq!(file.read_at(0, 4).unwrap(), b"ha\0\0");
    disk.order(fault(Calls::Reads, 0, 1));
    assert!(file.read_at(0, 4).is_err() && file.read_at(0, 4).is_ok());
    disk.order(None);
    disk.fill_after(0);
    assert_eq!(
        disk.create("b", 64).err().unwrap().kind,
        DiskErrorKind::Full
    );
    disk.remove("a").unwrap();
    disk.create("b", 64).unwrap();
}
