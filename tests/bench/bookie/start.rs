//! How long the server takes from exec to its first good answer of `/readyz` after a kill under load, on much data.
//!
//! The start is cold: written pages are synced, and then dropped with everything else that the kernel keeps of files. Its references
//! are a start on an empty directory, and reading the whole log once, which a start without footers would have to do.
//! `HULSE_BENCH_LOG_GIB` sets how much is written (default 2; the goal names 10).

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bookie_node::{Disk as _, OsDisk};
use bytes::Bytes;
use hulse_sdk::{Client, Producer, Record};
use tokio::runtime::Runtime;

use super::super::disk::{forget_pages, incompressible};
use super::super::server::Server;
use super::super::table::Table;

/// Written unless the environment says otherwise, GiB.
const GIB: u64 = 2;
/// Lengths of entries, by turns, bytes.
const SIZES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Partitions; each has one record in flight, so that each record is an entry of its own.
const PARTITIONS: u32 = 64;
/// The load goes on for so long before it is cut off.
const LOAD: Duration = Duration::from_secs(1);
/// Starts: the first after a kill under load, the others after a kill of the start before.
const STARTS: usize = 3;

struct Started {
    ready: Duration,
    device_bytes: u64,
    resident: f64,
}

pub(crate) fn measure(folder: &Path, table: &mut Table, runtime: &Runtime) -> anyhow::Result<()> {
    let gib = std::env::var("HULSE_BENCH_LOG_GIB").ok();
    let gib = gib.and_then(|gib| gib.parse().ok()).unwrap_or(GIB);
    let home = tempfile::tempdir_in(folder)?;
    let mut server = Server::start(home.path(), "always")?;
    let empty = server.ready_after;
    let began = Instant::now();
    let entries = runtime.block_on(fill(gib << 30))?;
    println!("{gib} GiB written in {:.0?}", began.elapsed());
    let load = runtime.spawn(fill(u64::MAX));
    std::thread::sleep(LOAD);
    let mut starts = Vec::new();
    let mut how = "";
    for _ in 0..STARTS {
        server.kill_and_keep();
        load.abort();
        how = forget_pages(&log_of(&home))?;
        server = Server::start(home.path(), "always")?;
        starts.push(Started {
            ready: server.ready_after,
            device_bytes: server.device_read_bytes()?,
            resident: server.resident()?,
        });
    }
    server.kill_and_keep();
    forget_pages(&log_of(&home))?;
    let (bytes, reading) = read_all(&log_of(&home))?;
    let words = starts.iter().map(|start| {
        let megabytes = start.device_bytes as f64 / 1e6;
        let (ready, resident) = (start.ready, start.resident);
        format!("{ready:.2?} ({megabytes:.0} MB read, {resident:.0} MB resident)")
    });
    let words: Vec<String> = words.collect();
    table.row(
        &format!("ready after SIGKILL, {gib} GiB in {entries} entries of 4 KiB to 1 MiB"),
        &words.join(", "),
        &format!(
            "empty directory {empty:.2?}; reading {:.1} GB of log {reading:.1?}",
            bytes as f64 / 1e9
        ),
        &format!(
            "{:.2} of reading",
            starts[0].ready.as_secs_f64() / reading.as_secs_f64()
        ),
        "at most 2 s with 10 GiB",
    );
    table.note(&format!(
        "the first kill was under load, the others of an idle server; before each start {how}"
    ));
    Ok(())
}

fn log_of(home: &tempfile::TempDir) -> std::path::PathBuf {
    home.path().join("data").join("bookie")
}

/// Writes so many bytes or until it is aborted; how many records.
async fn fill(bytes: u64) -> anyhow::Result<u64> {
    let client = Client::builder(Server::address()).build()?;
    if client.admin().describe_topic("much").await.is_err() {
        client.admin().create_topic("much", PARTITIONS).await?;
    }
    let producer = Arc::new(client.producer("much").build().await?);
    let bodies: Arc<[Bytes]> = SIZES.map(|size| Bytes::from(incompressible(size))).into();
    let written = Arc::new(AtomicU64::new(0));
    let mut tasks = tokio::task::JoinSet::new();
    for partition in 0..PARTITIONS {
        let (producer, written) = (Arc::clone(&producer), Arc::clone(&written));
        tasks.spawn(one_by_one(
            producer,
            partition,
            Arc::clone(&bodies),
            written,
            bytes,
        ));
    }
    let mut records = 0;
    while let Some(done) = tasks.join_next().await {
        records += done??;
    }
    Ok(records)
}

async fn one_by_one(
    producer: Arc<Producer>,
    partition: u32,
    bodies: Arc<[Bytes]>,
    written: Arc<AtomicU64>,
    bytes: u64,
) -> anyhow::Result<u64> {
    let mut records = 0;
    while written.load(Ordering::Relaxed) < bytes {
        let body = &bodies[(records as usize + partition as usize) % bodies.len()];
        let record = Record::new(body.clone()).partition(partition);
        producer.send(record).await?.await?;
        written.fetch_add(body.len() as u64, Ordering::Relaxed);
        records += 1;
    }
    Ok(records)
}

fn read_all(log: &Path) -> anyhow::Result<(u64, Duration)> {
    let disk = OsDisk::open(log)?;
    let began = Instant::now();
    let mut bytes = 0;
    for name in disk.list()? {
        let file = disk.open(&name)?;
        let (mut at, end) = (0, file.bytes()?);
        while at < end {
            at += file.read_at(at, 4 << 20)?.len() as u64;
        }
        bytes += end;
    }
    Ok((bytes, began.elapsed()))
}
