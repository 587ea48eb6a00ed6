//! What etcd refuses: too many operations, too long a request, and every put once its quota is used up. And how soon a watch sees.

use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use bookie_metadata::{Compare, MetadataError, MetadataStore, Op, TXN_BYTES_MAX};
use bookie_metadata::{TXN_OPS_MAX, Txn, TxnOutcome};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};

use super::super::table::{Table, median};
use super::process::Etcd;
use super::store::EtcdStore;

/// A quota that is soon used up.
const SMALL_QUOTA_BYTES: u64 = 16 << 20;
/// Changes that a watch is to see.
const CHANGES: usize = 100;

/// On an etcd of its own, which is of no use afterwards.
pub(crate) async fn refused(folder: &Path, table: &mut Table) -> anyhow::Result<()> {
    let etcd = Etcd::start(folder.join("etcd-small"), SMALL_QUOTA_BYTES).await?;
    let store = EtcdStore(etcd.gateway.clone());
    let most = [TXN_OPS_MAX, 128, 129].map(|count| txn(count, 8));
    let ours = told(store.txn(most[0].clone()).await);
    let last = told(store.txn(most[1].clone()).await);
    let beyond = told(store.txn(most[2].clone()).await);
    table.row(
        "operations in one transaction",
        &format!("{TXN_OPS_MAX}: {ours}; 128: {last}; 129: {beyond}"),
        "etcd's default limit",
        "-",
        &format!("{TXN_OPS_MAX}: taken"),
    );
    let ours = told(store.txn(txn(16, TXN_BYTES_MAX / 16 - 64)).await);
    let beyond = told(store.txn(txn(16, (3 << 20) / 2 / 16)).await);
    table.row(
        "bytes in one transaction",
        &format!("1 MiB: {ours}; 1.5 MiB: {beyond}"),
        "etcd's default limit",
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

/// From a put's answer to the line of a client that watches the prefix; and a watch that begins in forgotten history.
async fn watched(store: &EtcdStore, etcd: &Etcd, table: &mut Table) -> anyhow::Result<()> {
    let what = "from a put to its watcher";
    let Ok(mut child) = watch(&[]) else {
        table.not_run(what, "etcdctl is not installed (Debian: etcd-client)");
        return Ok(());
    };
    let output = child.stdout.take().expect("it was asked for");
    let mut lines = BufReader::new(output).lines();
    // The watch is there when it has seen something.
    let mut times = Vec::new();
    for number in 0..CHANGES + 10 {
        let value = format!("value-{number}");
        let began = Instant::now();
        let ops = vec![Op::put("topic/a/b/c", value.clone().into_bytes())];
        let compares = Vec::new();
        store.txn(Txn { compares, ops }).await?;
        let wait = match number {
            0 => Duration::from_secs(1),
            _ => Duration::from_secs(10),
        };
        let seen = tokio::time::timeout(wait, async {
            while let Some(line) = lines.next_line().await? {
                if line == value {
                    return Ok(());
                }
            }
            anyhow::bail!("the watch ended")
        });
        match seen.await {
            Ok(seen) => seen?,
            Err(_) if number == 0 => continue,
            Err(late) => return Err(late.into()),
        }
        if number >= 10 {
            times.push(began.elapsed());
        }
    }
    child.kill().await?;
    etcd.compact().await?;
    let old = watch(&["--rev", "2"])?.wait_with_output().await?;
    let told = String::from_utf8_lossy(&old.stderr).into_owned();
    let words = match told.contains("compacted") {
        true => "one that begins in compacted history is told so",
        false => "one that begins in compacted history is NOT told",
    };
    table.row(
        what,
        &format!("p50 {:.1?}, put included", median(&mut times)),
        words,
        "-",
        "-",
    );
    Ok(())
}

fn watch(more: &[&str]) -> std::io::Result<Child> {
    let endpoint = format!("http://{}", Etcd::address());
    Command::new("etcdctl")
        .env("ETCDCTL_API", "3")
        .args(["--endpoints", &endpoint, "watch", "--prefix", "topic/"])
        .args(more)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
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
