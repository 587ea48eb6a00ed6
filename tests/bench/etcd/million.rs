//! A million ledgers: what they take in etcd, and what one pass of the audit over them takes.
//!
//! Partitions of the product make the first of them; the rest are their rows under other numbers, so that sizes are the product's and
//! an hour is minutes. Only when it is named: it writes about a gigabyte.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use anyhow::Context as _;
use bookie_metadata::{
    EtcdStore, MetadataStore as _, Op, TXN_OPS_MAX, Txn, Versioned, counter::reserve, list_all,
};
use futures::StreamExt as _;
use hulse_proto::id::{LedgerId, TopicId};
use hulse_proto::ledger::{LEDGER_IDS_KEY, LEDGER_PREFIX, ledger_key};
use tokio::runtime::Runtime;
use uuid::Uuid;

use super::super::audit::{Asked, one_pass};
use super::super::table::Table;
use super::fill::{BOOKIES, Filled, grow, open};
use super::process::{Etcd, PORT, PREFIX, QUOTA_BYTES};

/// Ledgers, unless `HULSE_BENCH_LEDGERS` says otherwise.
const LEDGERS: usize = 1_000_000;
/// Partitions that make the sample, and log ledgers of each.
const SAMPLE: (u32, usize) = (100, 100);
/// The first number of a ledger: numbers of a cell that has lived, which take more bytes than small ones.
const FIRST: u64 = 10_000_000;
/// Transactions under way at once.
const AT_ONCE: usize = 8;
/// What a million are to take at most, MB.
const MEGABYTES: f64 = 300.0;

/// Everything.
pub(crate) fn measure(folder: &Path, table: &mut Table, runtime: &Runtime) -> anyhow::Result<()> {
    if Etcd::version().is_none() {
        table.not_run("a million ledgers", "etcd is not installed");
        return Ok(());
    }
    let asked = std::env::var("HULSE_BENCH_LEDGERS").ok();
    let wanted = asked.map_or(Ok(LEDGERS), |text| text.parse())?;
    let (etcd, bytes, ledgers) = runtime.block_on(async {
        let etcd = Etcd::start(folder.join("etcd"), PORT, QUOTA_BYTES).await?;
        let (bytes, ledgers) = fill(&etcd, table, wanted).await?;
        anyhow::Ok((etcd, bytes, ledgers))
    })?;
    table.row(
        &format!("{ledgers} ledgers: bytes of keys and values"),
        &format!("{:.0} MB", bytes as f64 / 1e6),
        &format!("{:.0} B per ledger", bytes as f64 / ledgers as f64),
        "-",
        &format!("at most {MEGABYTES:.0} MB for a million"),
    );
    runtime.block_on(sizes(&etcd, table, ledgers))?;
    let pass = one_pass(&etcd.url(), Asked::Assumed(BOOKIES))?;
    table.row(
        &format!("one pass of the audit over {} ledgers", pass.ledgers),
        &format!("{:.1?}, at most {:.0} MB", pass.took, pass.peak),
        &format!(
            "{:.0} MB before it; bookies that answer at once; {} findings",
            pass.before, pass.findings
        ),
        &format!(
            "{:.0} ledgers/s",
            pass.ledgers as f64 / pass.took.as_secs_f64()
        ),
        "memory that does not grow with ledgers",
    );
    Ok(())
}

/// Bytes of keys and values, and ledgers, of the log and the state chains.
async fn fill(etcd: &Etcd, table: &mut Table, wanted: usize) -> anyhow::Result<(u64, usize)> {
    let store = etcd.store()?;
    reserve(&store, LEDGER_IDS_KEY, FIRST).await?;
    let cell = Filled::new(Arc::new(store.clone()));
    let broker = cell.broker(1)?;
    grow(&open(&broker, SAMPLE.0).await?, SAMPLE.1).await?;
    broker.close_all().await;
    let mut rows = Vec::new();
    for prefix in [LEDGER_PREFIX, "chain/", "part/"] {
        rows.extend(list_all(&store, prefix).await?);
    }
    let numbers = rows.iter().filter_map(|row| number(&row.key));
    let (sample, last) = (numbers.clone().count(), numbers.max().unwrap_or(FIRST));
    let length = |row: &Versioned| (PREFIX.len() + row.key.len() + row.value.len()) as u64;
    let bytes: u64 = rows.iter().map(length).sum();
    let copies = wanted.div_ceil(sample) as u64;
    let began = Instant::now();
    for copy in 1..copies {
        let ops: Vec<Op> = rows
            .iter()
            .map(|row| {
                let key = moved(&row.key, copy, last + 1 - FIRST)?;
                anyhow::Ok(Op::put(key, row.value.clone()))
            })
            .collect::<Result<_, _>>()?;
        put(&store, ops).await?;
    }
    table.note(&format!(
        "{sample} ledgers were made by partitions, the others are copies of their rows; that took {:.0?}",
        began.elapsed()
    ));
    Ok((bytes * copies, sample * copies as usize))
}

/// The number of a ledger's key.
fn number(key: &str) -> Option<u64> {
    key.strip_prefix(LEDGER_PREFIX)?.parse().ok()
}

/// The same key of another ledger or topic, as long as before.
fn moved(key: &str, copy: u64, stride: u64) -> anyhow::Result<String> {
    if let Some(number) = number(key) {
        return Ok(ledger_key(LedgerId(number + copy * stride)));
    }
    let mut words: Vec<&str> = key.split('/').collect();
    let topic: Uuid = words.get(1).context("a key without topic")?.parse()?;
    let topic = TopicId(Uuid::from_u128(topic.as_u128() + (u128::from(copy) << 32)));
    let topic = topic.to_string();
    words[1] = &topic;
    Ok(words.join("/"))
}

async fn put(store: &EtcdStore, ops: Vec<Op>) -> anyhow::Result<()> {
    let txns = ops.chunks(TXN_OPS_MAX).map(|ops| {
        let (compares, ops) = (Vec::new(), ops.to_vec());
        store.txn(Txn { compares, ops })
    });
    let done: Vec<_> = futures::stream::iter(txns)
        .buffer_unordered(AT_ONCE)
        .collect()
        .await;
    done.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(())
}

/// etcd itself, and a listing of all of it.
async fn sizes(etcd: &Etcd, table: &mut Table, ledgers: usize) -> anyhow::Result<()> {
    etcd.compact().await?;
    let stood = etcd.defragment().await?;
    let size = etcd.size().await?;
    table.row(
        "etcd's file, compacted and defragmented",
        &format!("{:.0} MB", size.file as f64 / 1e6),
        &format!(
            "stood still for {stood:.1?}; etcd's memory {:.0} MB",
            etcd.resident()?
        ),
        &format!("{:.0} B per ledger", size.file as f64 / ledgers as f64),
        &format!("quota {:.0} MB", QUOTA_BYTES as f64 / 1e6),
    );
    Ok(())
}
