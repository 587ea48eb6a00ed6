//! As fast as it goes: produce with and without sync, and reading it back.

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hulse_sdk::{Client, Record, Start};
use tokio::runtime::Runtime;

use super::disk::{self, incompressible, megabytes};
use super::server::Server;
use super::table::{Table, median};

/// Bytes of one timed run.
pub(crate) const RUN_BYTES: usize = 256 << 20;

pub(crate) struct Rate {
    pub(crate) megabytes: f64,
    records: f64,
}

pub(crate) fn produce_synced(
    folder: &Path,
    table: &mut Table,
    runtime: &Runtime,
) -> anyhow::Result<()> {
    let (mut ours, mut disks) = (
        Vec::new(),
        vec![disk::best_write_and_sync(folder, RUN_BYTES)?],
    );
    for _ in 0..3 {
        let _server = Server::start(folder, "always")?;
        ours.push(produce(runtime, 1024, RUN_BYTES)?.megabytes);
        disks.push(disk::best_write_and_sync(folder, RUN_BYTES)?);
    }
    let (ours, disk) = (median(&mut ours), median(&mut disks));
    table.row(
        "produce 1 KiB, sync on",
        &format!("{ours:.0} MB/s"),
        &format!("write + fdatasync {disk:.0} MB/s"),
        &format!("{:.2}", ours / disk),
        "0.80, or 300 MB/s",
    );
    Ok(())
}

pub(crate) fn produce_unsynced(
    folder: &Path,
    table: &mut Table,
    runtime: &Runtime,
) -> anyhow::Result<()> {
    let server = Server::start(folder, "off")?;
    produce(runtime, 1024, RUN_BYTES / 4)?;
    let before = server.processor_seconds()?;
    let rate = produce(runtime, 1024, RUN_BYTES)?;
    let used = server.processor_seconds()? - before;
    let per_gigabyte = used / (RUN_BYTES as f64 / 1e9);
    table.row(
        "produce 1 KiB, sync off",
        &format!("{:.0} MB/s", rate.megabytes),
        &format!("server uses {per_gigabyte:.2} s of processor per GB"),
        "-",
        "400 MB/s",
    );
    let rate = produce(runtime, 100, RUN_BYTES / 2)?;
    table.row(
        "produce 100 B, sync off",
        &format!("{:.0} records/s", rate.records),
        "-",
        "-",
        "1,000,000 records/s",
    );
    table.row(
        "memory under load",
        &format!("{:.0} MB", server.resident()?),
        "-",
        "-",
        "flat",
    );
    Ok(())
}

pub(crate) fn catch_up(folder: &Path, table: &mut Table, runtime: &Runtime) -> anyhow::Result<()> {
    let _server = Server::start(folder, "off")?;
    produce(runtime, 1024, 2 * RUN_BYTES)?;
    let mut rates = Vec::new();
    for _ in 0..3 {
        rates.push(runtime.block_on(read_all())?);
    }
    let rate = median(&mut rates);
    table.row(
        "catch-up from page cache",
        &format!("{rate:.0} MB/s"),
        "-",
        "-",
        "1000 MB/s",
    );
    Ok(())
}

pub(crate) fn produce(runtime: &Runtime, size: usize, total: usize) -> anyhow::Result<Rate> {
    runtime.block_on(async {
        let client = Client::builder(Server::address()).build()?;
        let producer = client.producer("load").build().await?;
        let value = Bytes::from(incompressible(size));
        let records = total / size;
        let began = Instant::now();
        for _ in 0..records {
            // Failures of dropped tickets are returned by close.
            drop(producer.send(Record::new(value.clone())).await?);
        }
        producer.flush().await?;
        let took = began.elapsed();
        producer.close().await?;
        Ok(Rate {
            megabytes: megabytes(records * size, took),
            records: records as f64 / took.as_secs_f64(),
        })
    })
}

async fn read_all() -> anyhow::Result<f64> {
    let client = Client::builder(Server::address()).build()?;
    let mut reader = client
        .reader("load")
        .start(Start::Earliest)
        .follow(false)
        .build()
        .await?;
    let began = Instant::now();
    let mut bytes = 0;
    while let Some(batch) = reader.next_batch().await? {
        bytes += batch.bytes.len();
    }
    anyhow::ensure!(bytes > 0, "nothing was read");
    Ok(megabytes(
        bytes,
        began.elapsed().max(Duration::from_millis(1)),
    ))
}
