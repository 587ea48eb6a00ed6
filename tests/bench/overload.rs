//! Ten times the load that a slowed bookie takes: memory stays flat, producers are slowed, or told so where they asked for that, and
//! nothing else fails.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use hulse_proto::error::ErrorKind;
use hulse_sdk::{Client, Producer, Record, Start};
use tokio::runtime::Runtime;

use super::disk::incompressible;
use super::server::Server;
use super::slow_disk::SlowDisk;
use super::table::{Table, median};

/// What the disk takes a second.
const DISK_BYTES: u64 = 16 << 20;
/// What is offered, beside that.
const LOAD: u64 = 10;
const RECORD_BYTES: usize = 1024;
/// Producers that wait, and as many that do not.
const PRODUCERS: u64 = 2;
/// What each offers at once.
const STEP: Duration = Duration::from_millis(5);
const RUN: Duration = Duration::from_secs(24);
/// From then on memory is to be flat: buffers are full.
const FULL_AFTER: Duration = Duration::from_secs(8);
const LOOK: Duration = Duration::from_millis(250);
/// Records of the topic that is read meanwhile.
const CALM_RECORDS: usize = 1_000;
/// Whatever takes longer beside the load has failed.
const PATIENCE: Duration = Duration::from_secs(20);

#[derive(Default)]
struct Counts {
    offered: AtomicU64,
    told: AtomicU64,
    over: AtomicBool,
}

/// What was done beside the load.
#[derive(Default)]
struct Beside {
    times: Vec<Duration>,
    failures: Vec<String>,
}

pub(crate) fn measure(folder: &Path, table: &mut Table, runtime: &Runtime) -> anyhow::Result<()> {
    let what = "ten times the load of a slowed disk";
    let disk = match SlowDisk::new(folder, DISK_BYTES) {
        Ok(disk) => disk,
        Err(error) => {
            table.not_run(what, &format!("no group of slowed processes: {error}"));
            return Ok(());
        }
    };
    let server = Server::start_on(&disk, folder, "always")?;
    runtime.block_on(run(&server, table))
}

async fn run(server: &Server, table: &mut Table) -> anyhow::Result<()> {
    let calm = client()?.producer("calm").build().await?;
    for _ in 0..CALM_RECORDS {
        drop(calm.send(Record::new(vec![1; 100])).await?);
    }
    calm.flush().await?;
    let counts = Arc::new(Counts::default());
    let stored = server.counter("hulse_bytes_in_total")?;
    let began = Instant::now();
    let mut producers = Vec::new();
    for number in 0..2 * PRODUCERS {
        let producer = client()?.producer("load").build().await?;
        producers.push(tokio::spawn(offer(
            producer,
            number % 2 == 0,
            counts.clone(),
        )));
    }
    let beside = tokio::spawn(look_beside(counts.clone()));
    let mut memory = Vec::new();
    while began.elapsed() < RUN {
        tokio::time::sleep(LOOK).await;
        memory.push((began.elapsed(), server.resident()?));
    }
    counts.over.store(true, Ordering::Relaxed);
    let offered = counts.offered.load(Ordering::Relaxed) as f64 / began.elapsed().as_secs_f64();
    let taken = server.counter("hulse_bytes_in_total")? - stored;
    let taken = taken as f64 / began.elapsed().as_secs_f64();
    let mut beside = beside.await?;
    for producer in producers {
        if let Err(error) = producer.await? {
            beside.failures.push(format!("producer: {error}"));
        }
    }
    report(table, (offered, taken), &memory, &mut beside);
    table.note(&format!(
        "producers that do not wait were told so {} times; those that wait were slowed; records that failed: {}",
        counts.told.load(Ordering::Relaxed),
        beside.failures.iter().filter(|why| why.starts_with("producer")).count()
    ));
    Ok(())
}

fn report(
    table: &mut Table,
    (offered, taken): (f64, f64),
    memory: &[(Duration, f64)],
    beside: &mut Beside,
) {
    let late: Vec<f64> = memory
        .iter()
        .filter(|(at, _)| *at >= FULL_AFTER)
        .map(|(_, resident)| *resident)
        .collect();
    let (least, most) = late.iter().fold((f64::MAX, 0.0_f64), |(least, most), now| {
        (least.min(*now), most.max(*now))
    });
    table.row(
        &format!(
            "memory under {LOAD} times the load of a disk of {} MiB/s",
            DISK_BYTES >> 20
        ),
        &format!("{least:.0} to {most:.0} MB"),
        &format!(
            "wanted {:.0} MB/s, tried {:.0}, taken {:.0}",
            (LOAD * DISK_BYTES) as f64 / 1e6,
            offered / 1e6,
            taken / 1e6
        ),
        &format!("{:.2}", most / least),
        "flat",
    );
    let worst = beside.times.iter().max().copied().unwrap_or_default();
    let usual = if beside.times.is_empty() {
        Duration::ZERO
    } else {
        median(&mut beside.times)
    };
    table.row(
        "beside it: topics made and listed, another topic read and written",
        &format!(
            "{} failures in {} rounds",
            beside.failures.len(),
            beside.times.len()
        ),
        &format!("a round takes {usual:.0?}, at worst {worst:.0?}"),
        "-",
        "no failure",
    );
    for why in beside.failures.iter().take(3) {
        table.note(&format!("failed: {why}"));
    }
}

fn client() -> anyhow::Result<Client> {
    Ok(Client::builder(Server::address()).build()?)
}

/// Offers its share of the load at an even pace. One that waits has less to offer once it is slowed; one that does not is told.
async fn offer(producer: Producer, waits: bool, counts: Arc<Counts>) -> anyhow::Result<()> {
    let value = Bytes::from(incompressible(RECORD_BYTES));
    let share = LOAD * DISK_BYTES / (2 * PRODUCERS) / RECORD_BYTES as u64;
    let per_step = share * STEP.as_millis() as u64 / 1_000;
    let mut pace = tokio::time::interval(STEP);
    while !counts.over.load(Ordering::Relaxed) {
        pace.tick().await;
        for _ in 0..per_step {
            let record = Record::new(value.clone());
            counts
                .offered
                .fetch_add(RECORD_BYTES as u64, Ordering::Relaxed);
            if waits {
                // Failures of dropped tickets are returned by flush.
                drop(producer.send(record).await?);
                continue;
            }
            match producer.try_send(record) {
                Ok(ticket) => drop(ticket),
                Err(error) if error.kind() == ErrorKind::Overloaded => {
                    counts.told.fetch_add(1, Ordering::Relaxed);
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
    producer.flush().await?;
    producer.close().await?;
    Ok(())
}

/// Again and again: makes a topic, lists all, reads another topic, and stores a record in a third.
async fn look_beside(counts: Arc<Counts>) -> Beside {
    let mut beside = Beside::default();
    let mut number = 0;
    while !counts.over.load(Ordering::Relaxed) {
        let began = Instant::now();
        match tokio::time::timeout(PATIENCE, one_round(number)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => beside.failures.push(format!("beside the load: {error}")),
            Err(_) => beside
                .failures
                .push("beside the load: no answer in time".to_owned()),
        }
        beside.times.push(began.elapsed());
        number += 1;
        tokio::time::sleep(LOOK).await;
    }
    beside
}

async fn one_round(number: u32) -> anyhow::Result<()> {
    let client = client()?;
    let admin = client.admin();
    admin.create_topic(&format!("beside-{number}"), 1).await?;
    let topics = admin.list_topics("").await?;
    anyhow::ensure!(topics.len() > number as usize, "topics are missing");
    let reader = client.reader("calm").start(Start::Earliest);
    let mut reader = reader.follow(false).build().await?;
    let mut records = 0;
    while reader.next().await?.is_some() {
        records += 1;
    }
    anyhow::ensure!(records == CALM_RECORDS, "{records} records were read");
    let producer = client.producer("other").build().await?;
    producer.send(Record::new(vec![2; 100])).await?.await?;
    producer.close().await?;
    Ok(())
}
