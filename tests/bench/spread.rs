//! Many partitions: how fast records go into them beside one partition at equal bytes, what a producer's first record to each costs, and
//! how long it takes to list them.
//!
//! Before each run a file is written and removed, so that it finds memory that was touched: see `backlog.rs`.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use hulse_sdk::{Client, Record};
use tokio::runtime::Runtime;

use super::disk::{incompressible, megabytes, write_into_memory};
use super::server::Server;
use super::table::{Table, median};

/// Bytes of one timed run.
const RUN_BYTES: usize = 256 << 20;
const RECORD_BYTES: usize = 1024;
/// Partitions of the topics that are compared; the first is the reference.
const COUNTS: [u32; 3] = [1, 1_000, 10_000];
const ROUNDS: usize = 5;
/// Memory that is touched before each run: more than it takes of the page cache, of tails and of the client.
const TOUCHED_BYTES: usize = 1 << 30;
/// Topics of the list, and partitions of the wide topic.
const MANY: u32 = 10_000;
/// Topics that are made at the same time.
const AT_ONCE: usize = 64;

pub(crate) fn measure(folder: &Path, table: &mut Table, runtime: &Runtime) -> anyhow::Result<()> {
    let server = Server::start(folder, "off")?;
    for count in COUNTS {
        runtime.block_on(open(count))?;
    }
    let mut rates = COUNTS.map(|_| Vec::new());
    let mut firsts = COUNTS.map(|_| Vec::new());
    for _ in 0..ROUNDS {
        for (at, count) in COUNTS.iter().enumerate() {
            write_into_memory(folder, TOUCHED_BYTES)?;
            let (first, rate) = runtime.block_on(fill(*count))?;
            firsts[at].push(first);
            rates[at].push(rate);
        }
    }
    let rates = rates.map(|mut rates| median(&mut rates));
    let firsts = firsts.map(|mut firsts| median(&mut firsts));
    for (count, rate) in COUNTS.iter().zip(rates).skip(1) {
        table.row(
            &format!("produce 1 KiB into {count} partitions, sync off"),
            &format!("{rate:.0} MB/s"),
            &format!("1 partition {:.0} MB/s", rates[0]),
            &format!("{:.2}", rate / rates[0]),
            "at least 0.80",
        );
    }
    for (count, first) in COUNTS.iter().zip(firsts) {
        table.note(&format!(
            "a new producer's first record to each of {count} partitions: {first:.1?} until all are durable"
        ));
    }
    table.note(&format!(
        "server with {} open partitions: {:.0} MB resident",
        COUNTS.iter().sum::<u32>(),
        server.resident()?
    ));
    drop(server);
    listing(folder, table, runtime)
}

fn name(count: u32) -> String {
    format!("spread-{count}")
}

/// One record in each partition, so that all of them are open.
async fn open(count: u32) -> anyhow::Result<()> {
    let client = Client::builder(Server::address()).build()?;
    client.admin().create_topic(&name(count), count).await?;
    let producer = client.producer(name(count)).build().await?;
    for index in 0..count {
        let record = Record::new(Bytes::from_static(b"first")).partition(index);
        drop(producer.send(record).await?);
    }
    producer.flush().await?;
    producer.close().await?;
    Ok(())
}

/// Sends a record to each partition and waits for all of them, then records without a key, which the client spreads batch by batch: how
/// long the first ones took, and MB/s of the others.
async fn fill(count: u32) -> anyhow::Result<(Duration, f64)> {
    let client = Client::builder(Server::address()).build()?;
    let producer = client.producer(name(count)).build().await?;
    let began = Instant::now();
    for index in 0..count {
        let record = Record::new(Bytes::from_static(b"first")).partition(index);
        drop(producer.send(record).await?);
    }
    producer.flush().await?;
    let first = began.elapsed();
    let value = Bytes::from(incompressible(RECORD_BYTES));
    let began = Instant::now();
    for _ in 0..RUN_BYTES / RECORD_BYTES {
        // Failures of dropped tickets are returned by flush.
        drop(producer.send(Record::new(value.clone())).await?);
    }
    producer.flush().await?;
    let took = began.elapsed();
    producer.close().await?;
    Ok((first, megabytes(RUN_BYTES, took)))
}

/// `hulse topics list` of ten thousand topics, and `hulse topics describe` of one with ten thousand partitions that are all open.
fn listing(folder: &Path, table: &mut Table, runtime: &Runtime) -> anyhow::Result<()> {
    let _server = Server::start(folder, "off")?;
    runtime.block_on(open(MANY))?;
    let described = timed(&["topics", "describe", &name(MANY)])?;
    runtime.block_on(async {
        let client = Client::builder(Server::address()).build()?;
        let admin = client.admin();
        let made = stream::iter(0..MANY).map(|number| {
            let admin = &admin;
            async move { admin.create_topic(&format!("topic-{number}"), 1).await }
        });
        made.buffer_unordered(AT_ONCE)
            .try_for_each(|_| async { Ok(()) })
            .await?;
        anyhow::Ok(())
    })?;
    let listed = timed(&["topics", "list"])?;
    table.row(
        &format!("`hulse topics list`, {} topics", MANY + 1),
        &format!("{listed:.1?}"),
        "-",
        "-",
        "at most 100 ms",
    );
    table.row(
        &format!("`hulse topics describe`, {MANY} open partitions"),
        &format!("{described:.1?}"),
        "-",
        "-",
        "at most 100 ms",
    );
    Ok(())
}

/// Median time of a command from its start to its end.
fn timed(words: &[&str]) -> anyhow::Result<Duration> {
    let mut times = Vec::new();
    for _ in 0..ROUNDS * 2 + 1 {
        let began = Instant::now();
        let status = Command::new(env!("CARGO_BIN_EXE_hulse"))
            .args(["--server", &Server::address()])
            .args(words)
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()?;
        anyhow::ensure!(status.success(), "`hulse {}` failed", words.join(" "));
        times.push(began.elapsed());
    }
    Ok(median(&mut times))
}
