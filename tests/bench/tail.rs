//! Consumers that keep up: what they cost the disk, and how long a record takes from `send` to them.

use std::path::Path;
use std::time::{Duration, Instant};

use hulse_sdk::{Client, Reader, Record, Start};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::latency::echo_round_trip;
use super::load::{RUN_BYTES, produce};
use super::server::Server;
use super::table::Table;

/// Consumers that read what is produced at full rate.
const CONSUMERS: usize = 4;
/// Bytes that are there before anything is counted.
const WARM_BYTES: usize = RUN_BYTES / 64;
/// Records of the latency run.
const RECORDS: usize = 2_000;
/// A record that has not come after this long never will.
const PATIENCE: Duration = Duration::from_secs(60);

/// What a server had read so far.
struct Reads {
    device_bytes: u64,
    bookie_entries: u64,
    bookie_bytes: u64,
}

impl Reads {
    fn of(server: &Server) -> anyhow::Result<Self> {
        Ok(Self {
            device_bytes: server.device_read_bytes()?,
            bookie_entries: server.counter("hulse_bookie_read_entries_total")?,
            bookie_bytes: server.counter("hulse_bookie_read_volume_total")?,
        })
    }

    fn since(&self, before: &Self) -> Self {
        Self {
            device_bytes: self.device_bytes - before.device_bytes,
            bookie_entries: self.bookie_entries - before.bookie_entries,
            bookie_bytes: self.bookie_bytes - before.bookie_bytes,
        }
    }
}

/// What a run at full rate came to.
struct Run {
    reads: Reads,
    megabytes: f64,
    /// From the producer's end to the last consumer's.
    late: Duration,
}

pub(crate) fn at_full_rate(
    folder: &Path,
    table: &mut Table,
    runtime: &Runtime,
) -> anyhow::Result<()> {
    // What the process reads without consumers (maps of free blocks, its own code) is not their doing.
    let alone = produce_beside(folder, runtime, 0)?;
    let run = produce_beside(folder, runtime, CONSUMERS)?;
    table.row(
        &format!("{CONSUMERS} consumers at the tail, produce 1 KiB"),
        &format!(
            "{} B from the device, {:.0} MB/s",
            run.reads.device_bytes, run.megabytes
        ),
        &format!(
            "without consumers {} B, {:.0} MB/s",
            alone.reads.device_bytes, alone.megabytes
        ),
        "-",
        "no device reads",
    );
    table.note(&format!(
        "consumers at the tail: {} entries ({:.1} MB of {:.0} MB sent) had left the broker's memory and were read from the bookie; \
         the last consumer was done {:.0?} after the producer",
        run.reads.bookie_entries,
        run.reads.bookie_bytes as f64 / 1e6,
        (CONSUMERS * RUN_BYTES) as f64 / 1e6,
        run.late
    ));
    Ok(())
}

/// Produces at full rate while so many consumers, who have read all there is, read along.
fn produce_beside(folder: &Path, runtime: &Runtime, consumers: usize) -> anyhow::Result<Run> {
    let server = Server::start(folder, "off")?;
    produce(runtime, 1024, WARM_BYTES)?;
    let mut readers = Vec::new();
    for _ in 0..consumers {
        let mut reader = runtime.block_on(consumer("load"))?;
        runtime.block_on(take(&mut reader, WARM_BYTES / 1024))?;
        readers.push(reader);
    }
    let before = Reads::of(&server)?;
    let began = Instant::now();
    let tasks: Vec<JoinHandle<anyhow::Result<Duration>>> = readers
        .into_iter()
        .map(|mut reader| {
            runtime.spawn(async move {
                take(&mut reader, RUN_BYTES / 1024).await?;
                Ok(began.elapsed())
            })
        })
        .collect();
    let rate = produce(runtime, 1024, RUN_BYTES)?;
    let produced = began.elapsed();
    let mut last = Duration::ZERO;
    for task in tasks {
        last = last.max(runtime.block_on(task)??);
    }
    Ok(Run {
        reads: Reads::of(&server)?.since(&before),
        megabytes: rate.megabytes,
        late: last.saturating_sub(produced),
    })
}

pub(crate) fn send_to_consumer(
    folder: &Path,
    table: &mut Table,
    runtime: &Runtime,
) -> anyhow::Result<()> {
    let _server = Server::start(folder, "off")?;
    let mut times = runtime.block_on(one_at_a_time())?;
    times.sort_unstable();
    let (p50, p99) = (times[times.len() / 2], times[times.len() * 99 / 100]);
    let echo = echo_round_trip()?;
    table.row(
        "send to consumer, sync off",
        &format!("p50 {p50:.0?}, p99 {p99:.0?}"),
        &format!("TCP echo on loopback {echo:.0?}"),
        &format!("{:.1}", p50.as_secs_f64() / echo.as_secs_f64()),
        "p50 at most 500 µs",
    );
    Ok(())
}

/// A reader from the start of a topic, on a connection of its own.
async fn consumer(topic: &str) -> anyhow::Result<Reader> {
    let client = Client::builder(Server::address()).build()?;
    Ok(client.reader(topic).start(Start::Earliest).build().await?)
}

/// Reads until `records` have come.
async fn take(reader: &mut Reader, records: usize) -> anyhow::Result<()> {
    let mut left = records;
    while left > 0 {
        let next = tokio::time::timeout(PATIENCE, reader.next_batch()).await??;
        let batch = next.ok_or_else(|| anyhow::anyhow!("the reader ended"))?;
        left = left.saturating_sub(batch.header.count as usize);
    }
    Ok(())
}

async fn one_at_a_time() -> anyhow::Result<Vec<Duration>> {
    let client = Client::builder(Server::address()).build()?;
    let producer = client.producer("tail").build().await?;
    let mut reader = None;
    let mut times = Vec::with_capacity(RECORDS);
    for number in 0..RECORDS + RECORDS / 10 {
        let began = Instant::now();
        let ticket = producer.send(Record::new(vec![7; 100])).await?;
        let reader = match &mut reader {
            Some(reader) => reader,
            // The first record makes the topic.
            none => none.insert(consumer("tail").await?),
        };
        let next = tokio::time::timeout(PATIENCE, reader.next()).await??;
        anyhow::ensure!(next.is_some(), "the reader ended");
        if number >= RECORDS / 10 {
            times.push(began.elapsed());
        }
        // One record in flight, as the row says; the receipt comes about when the consumer has it.
        ticket.await?;
    }
    producer.close().await?;
    Ok(times)
}
