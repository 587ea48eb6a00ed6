//! The steps, in order: rates while filling, sizes, history, listing, restart, take-over, deletion.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bookie_metadata::{
    ListRequest, MetadataError, MetadataStore, Op, Revision, Txn, TxnOutcome, list_all,
};
use futures::StreamExt as _;
use hulse_proto::ledger::LedgerMetadata;
use serde_json::json;
use serving_broker::{PartitionHandle, Partitions};
use tokio::runtime::Runtime;

use super::super::disk;
use super::super::table::{Table, median};
use super::counted::Counted;
use super::fill::{AT_ONCE, Filled, grow, grow_one, open, partition};
use super::limits;
use super::process::{COMPACTION, Etcd, PORT, PREFIX, QUOTA_BYTES};

/// Ledgers of the log chains, unless `HULSE_BENCH_LEDGERS` says otherwise.
const LEDGERS: usize = 100_000;
/// Ledgers of one partition's log.
const PER_PARTITION: usize = 100;
/// Requests of a reference run.
const PLAIN_PUTS: usize = 4_000;
/// Partitions that are deleted.
const DELETED: u32 = 50;
/// Most bytes that a ledger is to take (storage.md Z2).
const LEDGER_BYTES: f64 = 300.0;

/// Everything.
pub(crate) fn measure(folder: &Path, table: &mut Table, runtime: &Runtime) -> anyhow::Result<()> {
    let Some(version) = Etcd::version() else {
        table.not_run("etcd", "it is not installed (Debian: etcd-server)");
        return Ok(());
    };
    println!("{version}, quota {QUOTA_BYTES} B, auto-compaction periodic {COMPACTION}");
    let asked = std::env::var("HULSE_BENCH_LEDGERS").ok();
    let ledgers = asked.map_or(Ok(LEDGERS), |text| text.parse())?;
    runtime.block_on(all(folder, table, ledgers))
}

/// What the steps share.
struct Bench<'a> {
    table: &'a mut Table,
    etcd: Etcd,
    store: Counted,
    cell: Filled,
    partitions: u32,
    /// All of the log and the state chains.
    ledgers: usize,
}

async fn all(folder: &Path, table: &mut Table, ledgers: usize) -> anyhow::Result<()> {
    limits::refused(folder, table).await?;
    let etcd = Etcd::start(folder.join("etcd"), PORT, QUOTA_BYTES).await?;
    let store = Counted::new(etcd.store()?);
    let mut bench = Bench {
        cell: Filled::new(Arc::new(store.clone())),
        store,
        etcd,
        table,
        partitions: (ledgers / PER_PARTITION) as u32,
        ledgers: 0,
    };
    reference(&mut bench, folder).await?;
    let broker = bench.cell.broker(1)?;
    let handles = fill(&mut bench, &broker).await?;
    sizes(&mut bench).await?;
    listing(&mut bench).await?;
    quiet_roll(&mut bench, &handles[0]).await?;
    history(&mut bench).await?;
    broker.close_all().await;
    restart(&mut bench).await?;
    let next = bench.cell.broker(2)?;
    take_over(&mut bench, &next).await?;
    delete(&mut bench, &next).await
}

fn per_second(count: usize, time: Duration) -> f64 {
    count as f64 / time.as_secs_f64()
}

/// Plain puts of a ledger's length, one at a time and many at once: what this etcd gives at all.
async fn reference(bench: &mut Bench<'_>, folder: &Path) -> anyhow::Result<()> {
    let store = &bench.store;
    let put = |number: usize| {
        let key = format!("bench/{number:020}");
        let ops = vec![Op::put(key, vec![7; 250])];
        let compares = Vec::new();
        store.txn(Txn { compares, ops })
    };
    let began = Instant::now();
    for number in 0..PLAIN_PUTS / 8 {
        put(number).await?;
    }
    let one = per_second(PLAIN_PUTS / 8, began.elapsed());
    let began = Instant::now();
    let done: Vec<Result<TxnOutcome, MetadataError>> = futures::stream::iter(0..PLAIN_PUTS)
        .map(put)
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    let many = per_second(PLAIN_PUTS, began.elapsed());
    done.into_iter().collect::<Result<Vec<_>, _>>()?;
    let key = |end: &str| STANDARD.encode(format!("{PREFIX}bench{end}"));
    let range = json!({ "key": key("/"), "range_end": key("0") });
    bench.etcd.ask("/v3/kv/deleterange", range).await?;
    let own = disk::one_sync(folder, 200)?;
    bench.table.row(
        "etcd, plain put of 250 B",
        &format!("{one:.0}/s by one, {many:.0}/s by {AT_ONCE} at once"),
        &format!("disk's own sync {own:.0?}"),
        "-",
        "-",
    );
    Ok(())
}

/// Opens every partition, then grows all of them: each ledger is one transaction that closes the one before.
async fn fill(bench: &mut Bench<'_>, broker: &Partitions) -> anyhow::Result<Vec<PartitionHandle>> {
    bench.store.take();
    let began = Instant::now();
    let handles = open(broker, bench.partitions).await?;
    let rate = per_second(handles.len(), began.elapsed());
    let (requests, _) = bench.store.take();
    bench.table.row(
        "take-over of partitions without ledgers",
        &format!("{rate:.0}/s by {AT_ONCE} at once"),
        &format!(
            "{:.1} requests each",
            requests as f64 / handles.len() as f64
        ),
        "-",
        "-",
    );
    let began = Instant::now();
    grow(&handles, PER_PARTITION).await?;
    let took = began.elapsed();
    let (requests, times) = bench.store.take();
    let ledgers = list_all(&bench.store, "ledger/").await?.len();
    bench.ledgers = ledgers;
    bench.table.row(
        "ledgers created, each closing the one before",
        &format!(
            "{:.0}/s by {AT_ONCE} partitions at once ({ledgers} in {took:.0?})",
            per_second(ledgers, took)
        ),
        &format!(
            "{:.1} requests each, {:.2} of them transactions (p50 {:.1?}, p99 {:.1?})",
            requests as f64 / ledgers as f64,
            times.len() as f64 / ledgers as f64,
            times[times.len() / 2],
            times[times.len() * 99 / 100],
        ),
        "-",
        "-",
    );
    Ok(handles)
}

/// Bytes of keys and values, by prefix, and what a ledger takes in all.
async fn sizes(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let mut ledger_bytes = 0.0;
    for prefix in ["ledger/", "chain/", "part/", "id/"] {
        let rows = list_all(&bench.store, prefix).await?;
        let keys: usize = rows.iter().map(|row| PREFIX.len() + row.key.len()).sum();
        let values: usize = rows.iter().map(|row| row.value.len()).sum();
        let longest = rows.iter().map(|row| row.value.len()).max().unwrap_or(0);
        let count = rows.len().max(1) as f64;
        if prefix != "id/" {
            ledger_bytes += (keys + values) as f64 / bench.ledgers as f64;
        }
        bench.table.row(
            &format!("keys {prefix}"),
            &format!(
                "{} keys; key {:.0} B, value {:.0} B, longest {longest} B",
                rows.len(),
                keys as f64 / count,
                values as f64 / count
            ),
            &format!(
                "{:.0} B per ledger",
                (keys + values) as f64 / bench.ledgers as f64
            ),
            "-",
            "-",
        );
        if prefix == "ledger/" {
            fragments(
                bench,
                &rows.iter().map(|row| &row.value[..]).collect::<Vec<_>>(),
            );
        }
    }
    let per_ledger = ledger_bytes;
    bench.table.row(
        "bytes of keys and values per ledger",
        &format!("{per_ledger:.0} B"),
        "ledger key, its share of the chain and of the partition's key",
        "-",
        &format!("at most {LEDGER_BYTES:.0} B"),
    );
    Ok(())
}

/// Value lengths by number of fragments.
fn fragments(bench: &mut Bench<'_>, values: &[&[u8]]) {
    for wanted in 1..=3 {
        let lengths: Vec<usize> = values
            .iter()
            .filter(|value| {
                LedgerMetadata::decode(value).is_ok_and(|found| found.fragments.len() == wanted)
            })
            .map(|value| value.len())
            .collect();
        if lengths.is_empty() {
            continue;
        }
        let mean = lengths.iter().sum::<usize>() as f64 / lengths.len() as f64;
        bench.table.row(
            &format!("values of ledgers with {wanted} fragment(s)"),
            &format!("{mean:.0} B"),
            &format!("{} ledgers, E = 3", lengths.len()),
            "-",
            "-",
        );
    }
}

/// All ledgers by pages of one revision, as each start of a broker reads them.
async fn listing(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let mut times = Vec::new();
    for _ in 0..3 {
        let began = Instant::now();
        list_all(&bench.store, "ledger/").await?;
        times.push(began.elapsed());
    }
    let time = median(&mut times);
    bench.table.row(
        "listing of all ledgers at one revision",
        &format!("{time:.1?}"),
        &format!("{} pages of 500", bench.ledgers.div_ceil(500)),
        &format!("{:.0} ledgers/s", per_second(bench.ledgers, time)),
        &format!("below the {COMPACTION} of history"),
    );
    Ok(())
}

/// One partition that rolls while nobody else does anything.
async fn quiet_roll(bench: &mut Bench<'_>, handle: &PartitionHandle) -> anyhow::Result<()> {
    bench.store.take();
    let began = Instant::now();
    grow_one(handle, PER_PARTITION).await?;
    let took = began.elapsed() / PER_PARTITION as u32;
    let (requests, times) = bench.store.take();
    bench.table.row(
        "one roll on a quiet etcd",
        &format!("{took:.1?}"),
        &format!(
            "{:.1} requests; the transaction p50 {:.1?}, p99 {:.1?}",
            requests as f64 / PER_PARTITION as f64,
            times[times.len() / 2],
            times[times.len() * 99 / 100]
        ),
        "-",
        "-",
    );
    bench.ledgers += PER_PARTITION;
    Ok(())
}

/// What history takes, and what is left of it after compaction and after defragmentation.
async fn history(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let revisions = bench.etcd.revision().await?;
    let (before, memory) = (bench.etcd.size().await?, bench.etcd.resident()?);
    let began = Instant::now();
    bench.etcd.compact().await?;
    let took = began.elapsed();
    let compacted = bench.etcd.size().await?;
    let request = ListRequest {
        prefix: "ledger/".to_owned(),
        after: None,
        limit: 1,
        at: Some(Revision(revisions - 1)),
    };
    let old = bench.store.list(request).await;
    anyhow::ensure!(
        matches!(old, Err(MetadataError::Compacted { .. })),
        "a listing at a compacted revision answered {old:?}"
    );
    let stood = bench.etcd.defragment().await?;
    let after = bench.etcd.size().await?;
    let megabytes = |bytes: u64| format!("{:.0} MB", bytes as f64 / 1e6);
    bench.table.row(
        "etcd's file with all history",
        &megabytes(before.file),
        &format!("{revisions} revisions; etcd's memory {memory:.0} MB"),
        &format!(
            "{:.0} B per revision",
            before.file as f64 / revisions as f64
        ),
        &format!("below {}", megabytes(QUOTA_BYTES)),
    );
    bench.table.row(
        "in use after compaction",
        &megabytes(compacted.used),
        &format!(
            "took {took:.1?}; the file stays at {}",
            megabytes(compacted.file)
        ),
        &format!(
            "{:.0} B per ledger",
            compacted.used as f64 / bench.ledgers as f64
        ),
        "-",
    );
    bench.table.row(
        "file after defragmentation",
        &megabytes(after.file),
        &format!("stood still for {stood:.1?}"),
        &format!(
            "{:.0} B per ledger",
            after.file as f64 / bench.ledgers as f64
        ),
        "-",
    );
    let room = QUOTA_BYTES as f64 * 0.6 / (after.file as f64 / bench.ledgers as f64);
    bench.table.note(&format!(
        "ledgers below the alert (60 % of {}): {:.1} million, without history",
        megabytes(QUOTA_BYTES),
        room / 1e6
    ));
    Ok(())
}

async fn restart(bench: &mut Bench<'_>) -> anyhow::Result<()> {
    let took = bench.etcd.restart().await?;
    let memory = bench.etcd.resident()?;
    bench.table.row(
        "etcd killed and started again",
        &format!("answers after {took:.1?}"),
        &format!("memory {memory:.0} MB"),
        "-",
        "-",
    );
    Ok(())
}

/// A new broker opens what another one closed: every ledger of both chains is looked at.
async fn take_over(bench: &mut Bench<'_>, broker: &Partitions) -> anyhow::Result<()> {
    let began = Instant::now();
    broker.open(partition(bench.partitions - 1)).await?;
    let one = began.elapsed();
    bench.store.take();
    let began = Instant::now();
    open(broker, bench.partitions - 1).await?;
    let took = began.elapsed();
    let (requests, _) = bench.store.take();
    let count = bench.partitions as usize - 1;
    bench.table.row(
        &format!("take-over of partitions with {PER_PARTITION} ledgers"),
        &format!(
            "{:.0}/s by {AT_ONCE} at once; one alone {one:.1?}",
            per_second(count, took)
        ),
        &format!("{:.0} requests each", requests as f64 / count as f64),
        "-",
        "-",
    );
    Ok(())
}

/// Deletes whole partitions: mark, bookies, key, for each ledger; then the chains.
async fn delete(bench: &mut Bench<'_>, broker: &Partitions) -> anyhow::Result<()> {
    let count = DELETED.min(bench.partitions - 1);
    let before = list_all(&bench.store, "ledger/").await?.len();
    bench.store.take();
    let began = Instant::now();
    let deleted = futures::stream::iter(1..=count)
        .map(|number| broker.delete_data(partition(bench.partitions - number)))
        .buffer_unordered(AT_ONCE)
        .collect::<Vec<_>>()
        .await;
    let took = began.elapsed();
    deleted.into_iter().collect::<Result<Vec<_>, _>>()?;
    let (requests, _) = bench.store.take();
    let gone = before - list_all(&bench.store, "ledger/").await?.len();
    bench.table.row(
        "ledgers deleted",
        &format!(
            "{:.0}/s by {count} partitions at once",
            per_second(gone, took)
        ),
        &format!("{:.1} requests each", requests as f64 / gone as f64),
        "-",
        "-",
    );
    Ok(())
}
