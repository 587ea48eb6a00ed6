//! What compaction of half-dead log files does to a producer at a steady rate, and how often each byte is written.
//!
//! Two topics are written by turns, so that every file holds both; one of them is deleted, and what is left of the files is copied
//! while the producer goes on. Its receipts are timed before, meanwhile and after. Control: `bare`, in the same run.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bookie_node::NodeConfig;
use bytes::Bytes;
use hulse_proto::id::{CellId, NodeName};
use hulse_sdk::{Client, Producer, Record};
use tokio::runtime::Runtime;
use tokio::time::MissedTickBehavior;
use uuid::Uuid;

use super::super::disk::{incompressible, percentile};
use super::super::server::Server;
use super::super::table::Table;
use super::bare;

/// Written before; more than half of it dies.
const FILL_BYTES: u64 = 3 << 30;
const FILL_RECORD_BYTES: usize = 64 << 10;
/// Of twenty records, those that live.
const LIVE_OF_TWENTY: u64 = 9;
/// The steady load: a record each millisecond.
const RECORD_BYTES: usize = 16 << 10;
const PERIOD: Duration = Duration::from_millis(1);
/// A window without compaction; there is one before and one after.
const QUIET: Duration = Duration::from_secs(20);
/// A run of the control.
const BARE: Duration = Duration::from_secs(15);
/// Compaction begins within this, and ends within this.
const PATIENCE: Duration = Duration::from_secs(180);
const LOOK: Duration = Duration::from_millis(200);

const COPIED: &str = "hulse_bookie_compaction_written_bytes_total";
const LOGGED: &str = "hulse_bookie_log_written_total";
const DEAD: &str = "hulse_bookie_log_dead_bytes";

pub(crate) fn measure(folder: &Path, table: &mut Table, runtime: &Runtime) -> anyhow::Result<()> {
    let name = NodeName::new("bookie-1")?;
    let rate = NodeConfig::new(CellId(Uuid::nil()), name).background_rate;
    let bare = bare::appends(folder, BARE, rate)?;
    let home = tempfile::tempdir_in(folder)?;
    let server = Server::start(home.path(), "always")?;
    let client = runtime.block_on(async { Client::builder(Server::address()).build() })?;
    let filled = runtime.block_on(fill(&client))?;
    let before = load_for(runtime, &client, QUIET)?;
    runtime.block_on(client.admin().delete_topic("dead"))?;
    let meanwhile = load_while_copying(runtime, &client, &server)?;
    let after = load_for(runtime, &client, QUIET)?;
    let produced =
        filled + ((before.len() + meanwhile.times.len() + after.len()) * RECORD_BYTES) as u64;
    let quiet = sorted([before.clone(), after.clone()].concat());
    let ratio = micros(&meanwhile.times, 99.0) / micros(&quiet, 99.0);
    table.row(
        "produce 16 KiB at 1,000/s while 55 % dead files are compacted, sync on",
        &words(&meanwhile.times),
        &format!(
            "without compaction {} (before {}; after {})",
            words(&quiet),
            words(&before),
            words(&after)
        ),
        &format!("p99 {:+.0} %", (ratio - 1.0) * 100.0),
        "p99 at most +30 %",
    );
    let bare_ratio = micros(&bare[1], 99.0) / micros(&bare[0], 99.0);
    table.row(
        "control: appends of 16 KiB on the bare disk beside a copy at that rate",
        &words(&bare[1]),
        &format!("without the copy {}", words(&bare[0])),
        &format!("p99 {:+.0} %", (bare_ratio - 1.0) * 100.0),
        "-",
    );
    let (copied, logged) = (server.counter(COPIED)?, server.counter(LOGGED)?);
    table.row(
        "write amplification with that compaction",
        &format!("{:.2}", (copied + logged) as f64 / produced as f64),
        &format!("log alone {:.2}", logged as f64 / produced as f64),
        &format!(
            "{:.2} on the device",
            server.device_written_bytes()? as f64 / produced as f64
        ),
        "1 + small",
    );
    table.note(&format!(
        "compaction copied {:.0} MB in {:.0?}, {} times produced at that; at most {} MiB/s are read and written",
        copied as f64 / 1e6, meanwhile.took, meanwhile.times.len(), rate >> 20
    ));
    Ok(())
}

fn micros(sorted: &[Duration], hundredths: f64) -> f64 {
    percentile(sorted, hundredths).as_secs_f64() * 1e6
}

fn words(sorted: &[Duration]) -> String {
    let of = |hundredths| percentile(sorted, hundredths).as_secs_f64() * 1e3;
    format!(
        "p50 {:.2}, p99 {:.2}, p99.9 {:.2} ms",
        of(50.0),
        of(99.0),
        of(99.9)
    )
}

fn sorted(mut times: Vec<Duration>) -> Vec<Duration> {
    times.sort_unstable();
    times
}

/// Writes the topics that live and die, by turns; how many bytes.
async fn fill(client: &Client) -> anyhow::Result<u64> {
    let live = client.producer("live").build().await?;
    let dead = client.producer("dead").build().await?;
    let value = Bytes::from(incompressible(FILL_RECORD_BYTES));
    let records = FILL_BYTES / FILL_RECORD_BYTES as u64;
    for number in 0..records {
        let producer = match number * LIVE_OF_TWENTY % 20 < LIVE_OF_TWENTY {
            true => &live,
            false => &dead,
        };
        drop(producer.send(Record::new(value.clone())).await?);
    }
    live.close().await?;
    dead.close().await?;
    Ok(records * FILL_RECORD_BYTES as u64)
}

/// The steady load until it is stopped: times from `send` to the receipt.
async fn load(producer: Producer, stop: Arc<AtomicBool>) -> anyhow::Result<Vec<Duration>> {
    let value = Bytes::from(incompressible(RECORD_BYTES));
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let mut receipts = tokio::task::JoinSet::new();
    while !stop.load(Ordering::Relaxed) {
        ticks.tick().await;
        let began = Instant::now();
        let ticket = producer.send(Record::new(value.clone())).await?;
        receipts.spawn(async move { ticket.await.map(|_| began.elapsed()) });
    }
    let mut times = Vec::with_capacity(receipts.len());
    while let Some(time) = receipts.join_next().await {
        times.push(time??);
    }
    producer.close().await?;
    Ok(sorted(times))
}

fn load_for(runtime: &Runtime, client: &Client, run: Duration) -> anyhow::Result<Vec<Duration>> {
    let producer = runtime.block_on(client.producer("load").build())?;
    let stop = Arc::new(AtomicBool::new(false));
    let load = runtime.spawn(load(producer, Arc::clone(&stop)));
    std::thread::sleep(run);
    stop.store(true, Ordering::Relaxed);
    runtime.block_on(load)?
}

struct Meanwhile {
    times: Vec<Duration>,
    took: Duration,
}

/// The load from the first copied byte to the last one.
fn load_while_copying(
    runtime: &Runtime,
    client: &Client,
    server: &Server,
) -> anyhow::Result<Meanwhile> {
    let asked = Instant::now();
    while server.counter(COPIED)? == 0 {
        anyhow::ensure!(asked.elapsed() < PATIENCE, "compaction does not begin");
        std::thread::sleep(LOOK);
    }
    let producer = runtime.block_on(client.producer("load").build())?;
    let stop = Arc::new(AtomicBool::new(false));
    let load = runtime.spawn(load(producer, Arc::clone(&stop)));
    let began = Instant::now();
    while server.counter(DEAD)? > FILL_BYTES / 8 {
        anyhow::ensure!(asked.elapsed() < PATIENCE, "compaction does not end");
        std::thread::sleep(LOOK);
    }
    stop.store(true, Ordering::Relaxed);
    let took = began.elapsed();
    let times = runtime.block_on(load)??;
    Ok(Meanwhile { times, took })
}
