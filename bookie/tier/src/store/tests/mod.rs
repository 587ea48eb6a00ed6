//! The same promises of every store: memory, a directory, and an S3 server over HTTP.

mod contract;
mod s3;

use std::sync::Arc;

use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::memory::InMemory;

use super::{Bucket, BucketConfig, OpenError};

#[test]
fn memory_keeps_the_contract() {
    runtime().block_on(contract::all(Arc::new(InMemory::new())));
}

#[test]
fn directory_keeps_the_contract() {
    let directory = tempfile::tempdir().unwrap();
    let store: Arc<dyn ObjectStore> =
        Arc::new(LocalFileSystem::new_with_prefix(directory.path()).unwrap());
    runtime().block_on(contract::all(store));
}

#[test]
fn directory_is_made_and_lists_what_is_in_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("not/there/yet");
    let bucket = Bucket::open("main", "hulse", &BucketConfig::Directory(path)).unwrap();
    assert_eq!(runtime().block_on(bucket.list(None)), Ok(Vec::new()));
}

#[test]
fn names_that_cannot_be_are_refused() {
    let long = "x".repeat(600);
    for (name, prefix) in [
        ("", "p"),
        ("main", "a/../b"),
        ("main", "a b"),
        ("main", &long),
        ("main", "a//b"),
    ] {
        let refused = Bucket::new(name, prefix, Arc::new(InMemory::new()));
        assert!(
            matches!(refused, Err(OpenError::Name { .. })),
            "{name} {prefix}"
        );
    }
    assert!(Bucket::new("main", "/a/b/", Arc::new(InMemory::new())).is_ok());
}

#[test]
fn secrets_are_not_shown() {
    let config = BucketConfig::S3 {
        bucket: "b".to_owned(),
        endpoint: String::new(),
        region: String::new(),
        access_key: "key".to_owned(),
        secret_key: "hidden".to_owned(),
    };
    assert!(!format!("{config:?}").contains("hidden"));
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .unwrap()
}
