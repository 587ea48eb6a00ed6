//! A backlog of a hundred million records: what it does to producers and to consumers at the tail, and how fast it is drained.
//!
//! The host of a virtual machine gives memory when it is touched first, at some hundred MB/s, and takes it back when it is free: behind
//! the backlog every new page of the page cache is such a one, and before it hardly any. So before each round a file is written and
//! removed, which leaves as much memory as a round takes free and touched; the same once more is the control.

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hulse_proto::batch::{BatchBuilder, Compression, RecordRef};
use hulse_proto::id::Offset;
use hulse_sdk::{Client, Record, Start};
use tokio::runtime::Runtime;

use super::disk::{incompressible, megabytes, write_into_memory};
use super::server::Server;
use super::table::{Table, median};

/// Records of the backlog.
const RECORDS: u64 = 100_000_000;
const RECORD_BYTES: usize = 100;
/// Records of one batch that is sent into the backlog.
const BATCH_RECORDS: u32 = 5_000;
/// Bytes of one timed run beside a consumer at the tail.
const RUN_BYTES: usize = 256 << 20;
const RUN_RECORD_BYTES: usize = 1024;
const ROUNDS: usize = 5;
/// Room on the disk below which the backlog is not made: itself, the files that are made ahead, and as much again.
const ROOM_BYTES: u64 = 25 << 30;
/// Memory that is touched before each round: more than it takes of the page cache, of tails and of the client.
const TOUCHED_BYTES: usize = 1 << 30;
/// A record that has not come after this long never will.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a round at the tail came to.
struct Tail {
    produced: f64,
    consumed: f64,
    /// The control.
    file: f64,
}

pub(crate) fn measure(folder: &Path, table: &mut Table, runtime: &Runtime) -> anyhow::Result<()> {
    let what = "produce and consume at the tail behind a backlog of 100,000,000 records";
    if free_bytes(folder)? < ROOM_BYTES {
        table.not_run(what, "it needs 25 GiB of free disk");
        return Ok(());
    }
    let server = Server::start(folder, "off")?;
    // The same topic before and after, so that nothing but the backlog differs.
    let before = rounds(folder, runtime)?;
    let took = runtime.block_on(fill())?;
    // What is not on the disk yet is written now: that is the filling, not the backlog.
    rustix::fs::sync();
    table.note(&format!(
        "backlog of {RECORDS} records of {RECORD_BYTES} B in batches of {BATCH_RECORDS}: made in {took:.0?}, {:.1} GB stored",
        server.counter("hulse_bytes_in_total")? as f64 / 1e9
    ));
    let after = rounds(folder, runtime)?;
    for (what, before, after, goal) in [
        ("produce", before.produced, after.produced, "at least 0.95"),
        (
            "consume at the tail",
            before.consumed,
            after.consumed,
            "at least 0.95",
        ),
        (
            "control: a plain file instead,",
            before.file,
            after.file,
            "-",
        ),
    ] {
        table.row(
            &format!("{what} 1 KiB behind a backlog of {RECORDS} records"),
            &format!("{after:.0} MB/s"),
            &format!("without the backlog {before:.0} MB/s"),
            &format!("{:.2}", after / before),
            goal,
        );
    }
    drain(&server, table, runtime)
}

fn free_bytes(folder: &Path) -> anyhow::Result<u64> {
    let stat = rustix::fs::statvfs(folder)?;
    Ok(stat.f_bavail * stat.f_frsize)
}

/// Medians of some rounds.
fn rounds(folder: &Path, runtime: &Runtime) -> anyhow::Result<Tail> {
    let (mut produced, mut consumed, mut file) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        write_into_memory(folder, TOUCHED_BYTES)?;
        file.push(write_into_memory(folder, TOUCHED_BYTES)?);
        let (sent, read) = runtime.block_on(at_the_tail())?;
        produced.push(sent);
        consumed.push(read);
    }
    Ok(Tail {
        produced: median(&mut produced),
        consumed: median(&mut consumed),
        file: median(&mut file),
    })
}

/// Produces beside a consumer that begins at the end and reads it all; MB/s of each.
async fn at_the_tail() -> anyhow::Result<(f64, f64)> {
    let client = Client::builder(Server::address()).build()?;
    let producer = client.producer("backlog").build().await?;
    // The first one makes the topic.
    let last = producer.send(Record::new(vec![7; 1])).await?.await?;
    let last = last.offset.ok_or_else(|| anyhow::anyhow!("no offset"))?;
    let start = Start::Offset(Offset(last.0 + 1));
    let beside = Client::builder(Server::address()).build()?;
    let mut reader = beside.reader("backlog").start(start).build().await?;
    let records = RUN_BYTES / RUN_RECORD_BYTES;
    let began = Instant::now();
    let consumer = tokio::spawn(async move {
        let mut left = records;
        while left > 0 {
            let next = tokio::time::timeout(PATIENCE, reader.next_batch()).await??;
            let batch = next.ok_or_else(|| anyhow::anyhow!("the reader ended"))?;
            left = left.saturating_sub(batch.header.count as usize);
        }
        anyhow::Ok(began.elapsed())
    });
    let value = Bytes::from(incompressible(RUN_RECORD_BYTES));
    for _ in 0..records {
        // Failures of dropped tickets are returned by flush.
        drop(producer.send(Record::new(value.clone())).await?);
    }
    producer.flush().await?;
    let produced = began.elapsed();
    let consumed = consumer.await??;
    producer.close().await?;
    Ok((
        megabytes(RUN_BYTES, produced),
        megabytes(RUN_BYTES, consumed),
    ))
}

/// Sends the backlog, in batches that are built once: what is measured later is the server, not how it was filled.
async fn fill() -> anyhow::Result<Duration> {
    let values = incompressible(RECORD_BYTES * BATCH_RECORDS as usize);
    let mut builder = BatchBuilder::new(Compression::None)?;
    for value in values.chunks(RECORD_BYTES) {
        builder.push(&RecordRef {
            timestamp: 1_700_000_000_000,
            key: None,
            value: Some(value),
            headers: &[],
        })?;
    }
    let batch = builder.build(None);
    let client = Client::builder(Server::address()).build()?;
    let producer = client.producer("backlog").idempotent(false).build().await?;
    let began = Instant::now();
    let mut tickets = std::collections::VecDeque::new();
    for _ in 0..RECORDS / u64::from(BATCH_RECORDS) {
        let ticket = hulse_sdk::raw::send(&producer, 0, batch.clone(), BATCH_RECORDS)?;
        tickets.push_back(ticket);
        // What is sent past the producer's memory is bounded here.
        if tickets.len() > 32
            && let Some(oldest) = tickets.pop_front()
        {
            oldest.await?;
        }
    }
    for ticket in tickets {
        ticket.await?;
    }
    let took = began.elapsed();
    producer.close().await?;
    Ok(took)
}

/// Reads the backlog from its start, every record decoded.
fn drain(server: &Server, table: &mut Table, runtime: &Runtime) -> anyhow::Result<()> {
    let (device, processor) = (server.device_read_bytes()?, server.processor_seconds()?);
    let (records, took) = runtime.block_on(async {
        let client = Client::builder(Server::address()).build()?;
        let reader = client.reader("backlog").start(Start::Earliest);
        let mut reader = reader.follow(false).build().await?;
        let began = Instant::now();
        let (mut records, mut bytes) = (0_u64, 0);
        while records < RECORDS {
            // One look at the clock for many records.
            let some = tokio::time::timeout(PATIENCE, async {
                for _ in 0..BATCH_RECORDS {
                    let record = reader.next().await?;
                    let record = record.ok_or_else(|| anyhow::anyhow!("the log ended early"))?;
                    bytes += record.value.map_or(0, |value| value.len());
                }
                anyhow::Ok(())
            });
            some.await??;
            records += u64::from(BATCH_RECORDS);
        }
        anyhow::ensure!(bytes > 0, "nothing was read");
        anyhow::Ok((records, began.elapsed()))
    })?;
    let processor = server.processor_seconds()? - processor;
    table.row(
        "drain the backlog, records decoded",
        &format!("{:.0} records/s", records as f64 / took.as_secs_f64()),
        &format!(
            "{:.1} GB came from the device; server {:.2} cores",
            (server.device_read_bytes()? - device) as f64 / 1e9,
            processor / took.as_secs_f64()
        ),
        "-",
        "1,000,000 records/s",
    );
    Ok(())
}
