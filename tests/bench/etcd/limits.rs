//! What a store over etcd takes and refuses: the longest requests that are ours, and every put once etcd's quota is used up. And how
//! soon a watch sees.

use std::path::Path;
use std::time::{Duration, Instant};

use bookie_metadata::{
    Compare, EtcdStore, MetadataError, MetadataStore, Op, Revision, TXN_BYTES_MAX, TXN_OPS_MAX,
    Txn, TxnOutcome, WatchEvent,
};
use futures::StreamExt as _;
use serde_json::json;

use super::super::table::{Table, median};
use super::process::{Etcd, PORT};

/// A quota that is soon used up.
const SMALL_QUOTA_BYTES: u64 = 16 << 20;
/// Changes that a watch is to see.
const CHANGES: usize = 100;

/// On an etcd of its own, which is of no use afterwards.
pub(crate) async fn refused(folder: &Path, table: &mut Table) -> anyhow::Result<()> {
    let etcd = Etcd::start(folder.join("etcd-small"), PORT, SMALL_QUOTA_BYTES).await?;
    let store = etcd.store()?;
    let ours = told(store.txn(txn(TXN_OPS_MAX, 8)).await);
    let beyond = told(store.txn(txn(TXN_OPS_MAX + 1, 8)).await);
    table.row(
        "operations in one transaction",
        &format!("{TXN_OPS_MAX}: {ours}; one more: {beyond}"),
        "etcd takes 128 of each kind",
        "-",
        &format!("{TXN_OPS_MAX}: taken"),
    );
    let ours = told(store.txn(txn(16, TXN_BYTES_MAX / 16 - 64)).await);
    let beyond = told(store.txn(txn(17, TXN_BYTES_MAX / 16 - 64)).await);
    table.row(
        "bytes in one transaction",
        &format!("1 MiB: {ours}; 1.1 MiB: {beyond}"),
        "etcd takes 1.5 MiB",
        "-",
        "1 MiB: taken",
    );
    watched(&store, &etcd, table).await?;
    used_up(&store, &etcd, table).await
}

/// Puts of distinct keys, and a compare for each of the first ones.
fn txn(ops: usize, bytes: usize) -> Txn {
    let key = |number: usize| format!("bench/{number:010}");
    Txn {
        compares: Vec::new(),
        ops: (0..ops)
            .map(|number| Op::put(key(number), vec![7; bytes]))
            .collect(),
    }
}

fn told(result: Result<TxnOutcome, MetadataError>) -> String {
    match result {
        Ok(TxnOutcome::Committed { .. }) => "taken".to_owned(),
        Ok(TxnOutcome::Conflict { .. }) => "conflict".to_owned(),
        Err(MetadataError::Invalid { .. }) => "refused as invalid".to_owned(),
        Err(MetadataError::Unavailable { why }) if why.contains("space exceeded") => {
            "refused for space".to_owned()
        }
        Err(error) => error.to_string(),
    }
}

/// From a put to the event of a watch of its prefix; and a watch that begins in forgotten history.
async fn watched(store: &EtcdStore, etcd: &Etcd, table: &mut Table) -> anyhow::Result<()> {
    let key = "topic/a/b/c";
    let put = |number: usize| Txn {
        compares: Vec::new(),
        ops: vec![Op::put(key, format!("value-{number}"))],
    };
    let TxnOutcome::Committed { revision } = store.txn(put(0)).await? else {
        anyhow::bail!("a put without a compare conflicted");
    };
    let mut events = store.watch("topic/", revision);
    let mut times = Vec::new();
    for number in 1..=CHANGES {
        let began = Instant::now();
        store.txn(put(number)).await?;
        let seen = tokio::time::timeout(Duration::from_secs(10), events.next()).await?;
        match seen {
            Some(Ok(WatchEvent::Put(row))) if row.value == format!("value-{number}") => {}
            other => anyhow::bail!("the watch saw {other:?}"),
        }
        times.push(began.elapsed());
    }
    drop(events);
    etcd.compact().await?;
    let old = store.watch("topic/", Revision(2)).next().await;
    let words = match old {
        Some(Err(MetadataError::Compacted { .. })) => {
            "one that begins in compacted history is told so"
        }
        _ => "one that begins in compacted history is NOT told",
    };
    table.row(
        "from a put to its watcher",
        &format!("p50 {:.1?}, put included", median(&mut times)),
        words,
        "-",
        "-",
    );
    Ok(())
}

/// What still works when the quota is used up, and what brings puts back.
async fn used_up(store: &EtcdStore, etcd: &Etcd, table: &mut Table) -> anyhow::Result<()> {
    let mut last = String::new();
    for _ in 0..64 {
        last = told(store.txn(txn(16, TXN_BYTES_MAX / 16 - 64)).await);
        if last != "taken" {
            break;
        }
    }
    let mixed = Txn {
        compares: vec![Compare::Exists("bench/0000000000".to_owned())],
        ops: vec![
            Op::put("mark", vec![1]),
            Op::Delete {
                key: "bench/0000000000".to_owned(),
            },
        ],
    };
    let mark = told(store.txn(mixed).await);
    let deletes = (0..16).map(|number| Op::Delete {
        key: format!("bench/{number:010}"),
    });
    let removal = Txn {
        compares: Vec::new(),
        ops: deletes.collect(),
    };
    let removed = told(store.txn(removal).await);
    etcd.compact().await?;
    etcd.defragment().await?;
    let before = told(store.txn(txn(1, 8)).await);
    let alarms = etcd.ask("/v3/maintenance/alarm", json!({})).await?;
    let member = alarms["alarms"][0]["memberID"].clone();
    let disarm = json!({ "action": "DEACTIVATE", "memberID": member, "alarm": "NOSPACE" });
    etcd.ask("/v3/maintenance/alarm", disarm).await?;
    let after = told(store.txn(txn(1, 8)).await);
    table.row(
        "etcd at its quota",
        &format!("put: {last}; transaction with a put: {mark}; only deletes: {removed}"),
        &format!(
            "put after compaction and defragmentation: {before}; with the alarm ended: {after}"
        ),
        "-",
        "-",
    );
    Ok(())
}
