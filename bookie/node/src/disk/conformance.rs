//! What every disk must do; run against files and memory. Each function is one sentence of the contract.

use super::{Disk, DiskErrorKind};

/// Runs every sentence that needs no crash. `make` gives an empty disk.
pub fn every_sentence(make: &dyn Fn() -> Box<dyn Disk>) {
    written_bytes_are_read_back(&*make());
    preallocated_bytes_read_as_zero(&*make());
    reads_end_at_the_end_of_the_file(&*make());
    create_refuses_an_existing_name(&*make());
    rename_replaces_and_remove_is_idempotent(&*make());
    open_refuses_a_missing_name(&*make());
    removed_file_is_still_read_by_its_handle(&*make());
    truncated_bytes_are_gone(&*make());
    data_is_found_behind_zeros(&*make());
    lock_is_exclusive_and_ends_with_its_guard(&*make());
}

fn written_bytes_are_read_back(disk: &dyn Disk) {
    let file = disk.create("a", 8192).expect("room");
    file.write_at(4096, b"hello").expect("room");
    file.sync().expect("works");
    assert_eq!(file.read_at(4096, 5).expect("works"), b"hello");
    let again = disk.open("a").expect("there");
    assert_eq!(again.read_at(4097, 3).expect("works"), b"ell");
    assert_eq!(again.bytes().expect("works"), 8192);
    assert_eq!(disk.list().expect("works"), ["a"]);
}

fn preallocated_bytes_read_as_zero(disk: &dyn Disk) {
    let file = disk.create("a", 10_000).expect("room");
    assert_eq!(file.read_at(0, 10_000).expect("works"), vec![0; 10_000]);
    assert_eq!(file.bytes().expect("works"), 10_000);
}

fn reads_end_at_the_end_of_the_file(disk: &dyn Disk) {
    let file = disk.create("a", 0).expect("room");
    file.write_at(0, b"12345").expect("room");
    assert_eq!(file.read_at(3, 100).expect("works"), b"45");
    assert_eq!(file.read_at(5, 100).expect("works"), b"");
    assert_eq!(file.read_at(500, 100).expect("works"), b"");
}

fn create_refuses_an_existing_name(disk: &dyn Disk) {
    disk.create("a", 0).expect("room");
    let error = disk.create("a", 0).err().expect("it exists");
    assert_eq!(error.kind, DiskErrorKind::Exists);
}

fn rename_replaces_and_remove_is_idempotent(disk: &dyn Disk) {
    disk.create("a", 0)
        .expect("room")
        .write_at(0, b"new")
        .expect("room");
    disk.create("b", 0).expect("room");
    disk.rename("a", "b").expect("works");
    disk.sync_dir().expect("works");
    assert_eq!(
        disk.open("b").expect("there").read_at(0, 9).expect("works"),
        b"new"
    );
    disk.remove("b").expect("works");
    disk.remove("b").expect("a missing one is fine");
    assert!(disk.list().expect("works").is_empty());
}

fn open_refuses_a_missing_name(disk: &dyn Disk) {
    let error = disk.open("a").err().expect("it is not there");
    assert_eq!(error.kind, DiskErrorKind::Missing);
    let error = disk.rename("a", "b").expect_err("it is not there");
    assert_eq!(error.kind, DiskErrorKind::Missing);
}

fn removed_file_is_still_read_by_its_handle(disk: &dyn Disk) {
    let file = disk.create("a", 0).expect("room");
    file.write_at(0, b"kept").expect("room");
    disk.remove("a").expect("works");
    assert_eq!(file.read_at(0, 4).expect("works"), b"kept");
}

fn truncated_bytes_are_gone(disk: &dyn Disk) {
    let file = disk.create("a", 0).expect("room");
    file.write_at(0, b"0123456789").expect("room");
    file.truncate(4).expect("works");
    file.sync().expect("works");
    assert_eq!(file.bytes().expect("works"), 4);
    assert_eq!(file.read_at(0, 10).expect("works"), b"0123");
}

fn data_is_found_behind_zeros(disk: &dyn Disk) {
    let file = disk.create("a", 1 << 20).expect("room");
    file.write_at(512 << 10, b"x").expect("room");
    let found = file.next_data(0).expect("works").expect("there is data");
    assert!(found <= 512 << 10);
    let behind = file.next_data(1 << 20).expect("works");
    assert_eq!(behind, None);
}

fn lock_is_exclusive_and_ends_with_its_guard(disk: &dyn Disk) {
    let guard = disk.lock().expect("free");
    let error = disk.lock().err().expect("it is taken");
    assert_eq!(error.kind, DiskErrorKind::Locked);
    drop(guard);
    disk.lock().expect("free again");
    assert!(
        disk.list().expect("works").is_empty(),
        "the lock is no file of the node's"
    );
}
