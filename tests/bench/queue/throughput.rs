//! As many acks as go: each record is acked by itself, and counts when its ack is durable.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use hulse_sdk::QueueConsumer;
use tokio::runtime::Runtime;
use tokio::time::timeout;

use super::support::{PATIENCE, backlog, fill, read, share};
use crate::server::Server;
use crate::table::Table;

const CONSUMERS: usize = 50;
const PARTITIONS: u32 = 4;
/// Of one run.
const RECORDS: usize = 400_000;
/// Of the run with keys.
const KEYS: usize = 10_000;
/// Records that wait for one consumer.
const QUEUE: u32 = 1_000;
/// Records that are taken at once.
const TAKEN: usize = 500;

pub(super) fn queue(folder: &Path, table: &mut Table, runtime: &Runtime) -> anyhow::Result<()> {
    measure((folder, table, runtime), 0, "200,000 acked/s on 2 cores")
}

pub(super) fn keyed(folder: &Path, table: &mut Table, runtime: &Runtime) -> anyhow::Result<()> {
    measure((folder, table, runtime), KEYS, "150,000 acked/s on 2 cores")
}

fn measure(
    (folder, table, runtime): (&Path, &mut Table, &Runtime),
    keys: usize,
    goal: &str,
) -> anyhow::Result<()> {
    let server = Server::start(folder, "off")?;
    runtime.block_on(fill("jobs", PARTITIONS, RECORDS, keys))?;
    let before = runtime.block_on(read("jobs"))?;
    let used = server.processor_seconds()?;
    let took = runtime.block_on(work(keys > 0))?;
    let used = server.processor_seconds()? - used;
    let after = runtime.block_on(read("jobs"))?;
    let (rate, reader) = (
        RECORDS as f64 / took.as_secs_f64(),
        f64::midpoint(before, after),
    );
    let what = match keys {
        0 => format!("QUEUE, {CONSUMERS} consumers, 1 KiB, sync off"),
        keys => format!("KEYED, {CONSUMERS} consumers, {keys} keys, 1 KiB, sync off"),
    };
    table.row(
        &what,
        &format!("{rate:.0} acked/s"),
        &format!("a reader {reader:.0} records/s"),
        &format!("{:.2}", rate / reader),
        goal,
    );
    table.note(&format!(
        "the server used {:.2} µs of processor per acked record",
        used * 1e6 / RECORDS as f64
    ));
    Ok(())
}

/// From the first consumer's attachment to the last durable ack.
async fn work(keyed: bool) -> anyhow::Result<Duration> {
    let mut consumers = Vec::new();
    for number in 0..CONSUMERS {
        consumers.push(share("jobs", &format!("c{number}"), keyed, QUEUE).await?);
    }
    let acked = Arc::new(AtomicUsize::new(0));
    let began = Instant::now();
    let tasks = consumers
        .iter()
        .map(|consumer| tokio::spawn(take(consumer.clone(), acked.clone())));
    let tasks: Vec<_> = tasks.collect();
    let done = async {
        while acked.load(Ordering::Relaxed) < RECORDS {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
    };
    let in_time = timeout(PATIENCE, done).await;
    let took = began.elapsed();
    for consumer in &consumers {
        consumer.close().await?;
    }
    for task in tasks {
        task.await??;
    }
    anyhow::ensure!(
        in_time.is_ok(),
        "{} of {RECORDS} are acked, {} are left",
        acked.load(Ordering::Relaxed),
        backlog("jobs").await?
    );
    Ok(took)
}

/// Takes and acks until the consumer is closed. Receipts are awaited beside it.
async fn take(consumer: QueueConsumer, acked: Arc<AtomicUsize>) -> anyhow::Result<()> {
    loop {
        let taken = match consumer.receive(TAKEN, PATIENCE).await {
            Ok(taken) => taken,
            // It was closed.
            Err(_) if acked.load(Ordering::Relaxed) >= RECORDS => return Ok(()),
            Err(error) => return Err(error.into()),
        };
        let receipts: Vec<_> = taken.iter().map(|message| consumer.ack(message)).collect();
        let acked = acked.clone();
        tokio::spawn(async move {
            for receipt in receipts {
                acked.fetch_add(usize::from(receipt.await.is_ok()), Ordering::Relaxed);
            }
        });
    }
}
