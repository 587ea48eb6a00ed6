//! Errors of the disk that the process outlives.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use futures::StreamExt;
use redb::StorageBackend;

use super::disk::{Disk, Trouble};
use super::workload::{formatted, open, options, run, shown};
use crate::embedded::EmbeddedStore;
use crate::embedded::backend::{AnyBackend, Medium};
use crate::store::{MetadataError, MetadataStore, Op, Revision, Txn};

#[tokio::test]
async fn disk_error_at_each_operation_is_outlived_and_answers_are_true() {
    let image = formatted();
    let (mut hits, mut syncs, mut refused) = (0, 0, 0);
    let quiet = Disk::with(image.clone());
    drop(open(&quiet).unwrap());
    let opening = quiet.operations();
    for point in 0.. {
        let disk = Disk::with(image.clone());
        let store = open(&disk).unwrap();
        disk.plan(point, Trouble::ErrorOnce);
        let mut watch = store.watch("", Revision(0));
        let ran = run(&store, || false).await;
        let Some(struck) = disk.struck() else {
            break;
        };
        hits += 1;
        syncs += usize::from(struck == "sync");
        refused += ran.refused;
        assert_eq!(
            ran.caught, None,
            "{struck} {point}: reopened, so all is known"
        );
        assert_eq!(shown(&store).await.unwrap(), ran.answered, "{point}");
        let first = watch.next().await.unwrap();
        assert!(first.is_ok(), "the watch outlives it, too: {first:?}");
        drop((store, watch));
        // What was answered is on the medium, also when the kernel lied about a failed sync.
        let after = open(&Disk::with(disk.synced())).unwrap();
        let expected = ran.answered.after_boot();
        assert_eq!(shown(&after).await.unwrap(), expected, "{struck} {point}");
    }
    println!("disk errors: {hits} hits, {syncs} of them syncs, {refused} refusals");
    assert!(hits > 100 && syncs > 20 && refused > 20 && opening > 0);
}

#[tokio::test]
async fn answer_after_a_disk_error_is_durable_at_once() {
    let image = formatted();
    let mut committed = 0;
    for point in 0.. {
        let disk = Disk::with(image.clone());
        let store = open(&disk).unwrap();
        disk.plan(point, Trouble::ErrorOnce);
        let ran = run(&store, || disk.struck().is_some()).await;
        let Some(struck) = disk.struck() else {
            break;
        };
        committed += usize::from(ran.refused == 0);
        let after = open(&Disk::with(disk.synced())).unwrap();
        let expected = ran.answered.after_boot();
        assert_eq!(shown(&after).await.unwrap(), expected, "{struck} {point}");
    }
    // The error came after redb's point of no return: found out by reopening, and answered as what it is.
    assert!(committed > 20, "{committed}");
}

#[test]
fn settled_backend_is_durable_after_a_failed_sync_or_write() {
    let image = formatted();
    for lost_by_a_sync in [true, false] {
        let disk = Disk::with(image.clone());
        let backend = AnyBackend::new(disk.open().unwrap(), Arc::default());
        // redb happens to repair its header by itself when it opens; what we promise must not hang on that.
        backend.write(4096, b"answered").unwrap();
        if lost_by_a_sync {
            disk.plan(0, Trouble::ErrorOnce);
            backend.sync_data().unwrap_err();
            backend.sync_data().unwrap();
            assert_eq!(disk.synced(), image, "the kernel lied");
        }
        backend.settle().unwrap();
        assert_eq!(&disk.synced()[4096..4104], b"answered");
    }
}

fn put(key: &str, bytes: usize) -> Txn {
    Txn {
        compares: vec![],
        ops: vec![Op::put(key, vec![7u8; bytes])],
    }
}

#[tokio::test]
async fn full_disk_refuses_writes_serves_reads_and_heals() {
    let disk = Disk::with(formatted());
    let options = crate::embedded::EmbeddedOptions {
        abort: || panic!("a full disk must not end the process"),
        ..options()
    };
    let store = EmbeddedStore::on_medium(Box::new(disk.clone()), &options).unwrap();
    disk.set_room(Some(200_000));
    let mut kept = 0;
    let refusal = loop {
        match store.txn(put(&format!("fill/{kept:04}"), 20_000)).await {
            Ok(_) => kept += 1,
            Err(error) => break error,
        }
        assert!(kept < 100, "the disk never filled");
    };
    assert!(
        matches!(refusal, MetadataError::Unavailable { .. }),
        "{refusal}"
    );
    for _ in 0..3 {
        let again = store.txn(put("more", 60_000)).await;
        assert!(
            matches!(again, Err(MetadataError::Unavailable { .. })),
            "{again:?}"
        );
        let rows = crate::store::list_all(&store, "fill/").await.unwrap();
        assert_eq!(rows.len(), kept);
    }
    disk.set_room(None);
    store.txn(put("more", 60_000)).await.unwrap();
    drop(store);
    let after = open(&Disk::with(disk.synced())).unwrap();
    assert_eq!(shown(&after).await.unwrap().rows.len(), kept + 1);
}

#[tokio::test(start_paused = true)]
async fn lease_end_caught_by_a_disk_error_is_tried_again() {
    let disk = Disk::with(formatted());
    let store = open(&disk).unwrap();
    let lease = store.grant_lease(Duration::from_secs(1)).await.unwrap();
    let bound = Op::Put {
        key: "bound".to_owned(),
        value: "v".into(),
        lease: Some(lease),
    };
    let txn = Txn {
        compares: vec![],
        ops: vec![bound],
    };
    store.txn(txn).await.unwrap();
    tokio::time::sleep(Duration::from_secs(2)).await;
    disk.plan(1, Trouble::ErrorOnce);
    // The key is never shown once its lease is over, not even when it cannot be removed.
    let first = store.get("bound").await;
    assert!(
        matches!(first, Err(MetadataError::Unavailable { .. })),
        "{first:?}"
    );
    assert_eq!(store.get("bound").await, Ok(None));
}

static ABORTS: AtomicU32 = AtomicU32::new(0);

#[tokio::test]
async fn disk_that_stays_dead_ends_the_process_and_leases_are_not_called_lost() {
    let disk = Disk::with(formatted());
    let options = crate::embedded::EmbeddedOptions {
        abort: || {
            ABORTS.fetch_add(1, Ordering::Relaxed);
        },
        ..options()
    };
    let store = EmbeddedStore::on_medium(Box::new(disk.clone()), &options).unwrap();
    let lease = store.grant_lease(Duration::from_secs(60)).await.unwrap();
    disk.plan(1, Trouble::Crash);
    let caught = store.txn(put("k", 1)).await;
    assert!(
        matches!(caught, Err(MetadataError::OutcomeUnknown { .. })),
        "{caught:?}"
    );
    assert_eq!(ABORTS.load(Ordering::Relaxed), 1);
    let unavailable = |error| matches!(error, MetadataError::Unavailable { .. });
    assert!(unavailable(store.txn(put("k", 1)).await.unwrap_err()));
    assert!(unavailable(store.get("k").await.unwrap_err()));
    assert!(unavailable(store.renew_lease(lease).await.unwrap_err()));
    let watched = store.watch("", Revision(0)).next().await.unwrap();
    assert!(unavailable(watched.unwrap_err()));
}
