//! Opening: what is refused and why, what a new boot changes, how long it takes.

use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

use redb::{Database, TableDefinition};

use crate::embedded::{EmbeddedOptions, EmbeddedStore, FORMAT_VERSION, OpenError, files};
use crate::store::{MetadataError, MetadataStore, Op, Revision, Txn, TxnOutcome};

fn open(path: &Path) -> Result<EmbeddedStore, OpenError> {
    EmbeddedStore::open(path, EmbeddedOptions::default())
}

fn refusal(path: &Path) -> OpenError {
    match open(path) {
        Ok(_) => panic!("it opened"),
        Err(error) => error,
    }
}

async fn put(store: &EmbeddedStore, op: Op) -> Revision {
    let ops = vec![op];
    let compares = vec![];
    match store.txn(Txn { compares, ops }).await.unwrap() {
        TxnOutcome::Committed { revision } => revision,
        conflict => panic!("{conflict:?}"),
    }
}

#[tokio::test]
async fn facts_survive_a_restart_and_leases_do_not() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.redb");
    let store = open(&path).unwrap();
    let lease = store.grant_lease(Duration::from_secs(3600)).await.unwrap();
    let kept = put(&store, Op::put("kept", "1")).await;
    let bound = Op::Put {
        key: "bound".to_owned(),
        value: "2".into(),
        lease: Some(lease),
    };
    let last = put(&store, bound).await;
    drop(store);
    let store = open(&path).unwrap();
    let row = store.get("kept").await.unwrap().unwrap();
    assert_eq!((&row.value[..], row.version), (&b"1"[..], kept));
    assert_eq!(store.get("bound").await.unwrap(), None);
    let renewed = store.renew_lease(lease).await;
    assert_eq!(renewed, Err(MetadataError::LeaseEnded(lease.0)));
    let fresh = store.grant_lease(Duration::from_secs(60)).await.unwrap();
    assert_ne!(fresh, lease);
    assert!(put(&store, Op::put("kept", "3")).await > last);
    // The end of old leases can be watched; what was before cannot.
    let mut watch = store.watch("", last);
    let gone = futures::StreamExt::next(&mut watch).await.unwrap().unwrap();
    assert!(matches!(gone, crate::store::WatchEvent::Deleted { key, .. } if key == "bound"));
    let mut old = store.watch("", kept);
    let compacted = futures::StreamExt::next(&mut old).await.unwrap();
    assert!(matches!(compacted, Err(MetadataError::Compacted { .. })));
}

#[tokio::test]
async fn second_opener_is_told_who_holds_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.redb");
    let store = open(&path).unwrap();
    let error = refusal(&path);
    assert!(matches!(error, OpenError::Locked { .. }), "{error}");
    let pid = format!("process {}", std::process::id());
    assert!(error.to_string().contains(&pid), "{error}");
    let mut watch = store.watch("", Revision(0));
    let clone = store.clone();
    store.close().await;
    open(&path).unwrap();
    let closed = clone.get("k").await;
    assert!(matches!(closed, Err(MetadataError::Unavailable { .. })));
    let ended = futures::StreamExt::next(&mut watch).await.unwrap();
    assert!(matches!(ended, Err(MetadataError::Unavailable { .. })));
}

#[test]
fn foreign_files_are_refused_and_left_alone() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.redb");
    let text = vec![b'x'; 100_000];
    std::fs::write(&path, &text).unwrap();
    let error = refusal(&path);
    assert!(matches!(error, OpenError::NotMetadata { .. }), "{error}");
    assert_eq!(std::fs::read(&path).unwrap(), text);

    let other = directory.path().join("other.redb");
    let table: TableDefinition<'_, u64, u64> = TableDefinition::new("meta");
    let db = Database::create(&other).unwrap();
    let txn = db.begin_write().unwrap();
    txn.open_table(table).unwrap().insert(1, 2).unwrap();
    txn.commit().unwrap();
    drop(db);
    let error = refusal(&other);
    assert!(matches!(error, OpenError::NotMetadata { .. }), "{error}");

    let folder = directory.path().join("folder");
    std::fs::create_dir(&folder).unwrap();
    let error = refusal(&folder);
    assert!(matches!(error, OpenError::NotMetadata { .. }), "{error}");
}

#[test]
fn newer_format_is_refused_with_both_numbers() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.redb");
    drop(open(&path).unwrap());
    let table: TableDefinition<'_, &str, u64> = TableDefinition::new("meta");
    let db = Database::open(&path).unwrap();
    let txn = db.begin_write().unwrap();
    let newer = FORMAT_VERSION + 1;
    txn.open_table(table)
        .unwrap()
        .insert("format", newer)
        .unwrap();
    txn.commit().unwrap();
    drop(db);
    let error = refusal(&path);
    let OpenError::NewerFormat { found, known, .. } = error else {
        panic!("{error}");
    };
    assert_eq!((found, known), (newer, FORMAT_VERSION));
}

#[test]
fn flipped_bytes_never_panic() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.redb");
    drop(open(&path).unwrap());
    let whole = std::fs::read(&path).unwrap();
    let mut refused = 0;
    for at in (0..whole.len()).step_by(whole.len() / 60).chain(0..40) {
        let mut bytes = whole.clone();
        bytes[at] ^= 0x5a;
        std::fs::write(&path, &bytes).unwrap();
        refused += usize::from(open(&path).is_err());
    }
    for length in [1, 100, 4096, whole.len() / 2] {
        std::fs::write(&path, &whole[..length]).unwrap();
        refused += usize::from(open(&path).is_err());
    }
    assert!(refused > 0);
}

#[test]
fn directory_that_cannot_be_written_is_named() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o555)).unwrap();
    // Root may write there all the same; nobody may make files in sysfs.
    let places = [directory.path(), Path::new("/sys/kernel")];
    let errors: Vec<_> = places
        .iter()
        .filter_map(|place| open(&place.join("m.redb")).err())
        .collect();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(!errors.is_empty());
    for error in errors {
        assert!(matches!(error, OpenError::ReadOnly { .. }), "{error}");
        assert!(error.to_string().contains("writable"), "{error}");
    }
}

#[test]
fn making_that_was_cut_short_starts_over() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.redb");
    std::fs::write(files::beside(&path, ".new"), b"half a file").unwrap();
    std::fs::write(&path, b"").unwrap();
    drop(open(&path).unwrap());
    assert!(!files::beside(&path, ".new").exists());
    let reserve = std::fs::metadata(files::beside(&path, ".reserve")).unwrap();
    assert_eq!(reserve.len(), 1 << 20);
}

#[tokio::test]
async fn commit_and_opening_are_quick_enough() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("m.redb");
    let store = open(&path).unwrap();
    for n in 0..200 {
        let ops = (0..100).map(|k| Op::put(format!("k/{n}/{k}"), vec![1u8; 300]));
        let ops = ops.collect();
        let compares = vec![];
        store.txn(Txn { compares, ops }).await.unwrap();
    }
    let began = Instant::now();
    const PUTS: u32 = 100;
    for n in 0..PUTS {
        put(&store, Op::put("one", n.to_string())).await;
    }
    let commit = began.elapsed() / PUTS;
    let began = Instant::now();
    let group = (0..256).map(|n| put(&store, Op::put(format!("many/{n}"), "x")));
    futures::future::join_all(group).await;
    let group = began.elapsed();
    // As after a SIGKILL: the file as it is while the store lives.
    let copy = directory.path().join("killed.redb");
    std::fs::copy(&path, &copy).unwrap();
    drop(store);
    let mut openings = Vec::new();
    for path in [&path, &copy] {
        let began = Instant::now();
        drop(open(path).unwrap());
        openings.push(began.elapsed());
    }
    let bytes = std::fs::metadata(&path).unwrap().len();
    println!(
        "embedded metadata: commit of one put {commit:?}, of 256 at once {group:?}; opening 20,000 keys ({bytes} bytes): {:?} clean, {:?} after a kill",
        openings[0], openings[1]
    );
    // Far above what is seen, so that a busy machine passes; a walk of a large file would not.
    assert!(openings.iter().all(|time| *time < Duration::from_secs(2)));
}
