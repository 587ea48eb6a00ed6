//! Three copies of each record on one machine beside one: throughput, and who uses the processors.

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hulse_sdk::{Client, Record};
use tokio::runtime::Runtime;

use super::super::disk::{best_write_and_sync, incompressible, megabytes};
use super::super::server::processor_seconds;
use super::super::table::{Table, median};
use super::cell::Cell;

const TOPIC: &str = "copied";
const PARTITIONS: u32 = 4;
const RECORD_BYTES: usize = 1024;
/// Payload of one timed run.
const RUN_BYTES: usize = 192 << 20;
const ROUNDS: usize = 3;

/// Processor seconds of a run, or of a gigabyte.
#[derive(Debug, Clone, Copy)]
struct Used {
    client: f64,
    broker: f64,
    bookies: f64,
}

struct Runs {
    megabytes: f64,
    per_gigabyte: Used,
}

pub(crate) fn measure(folder: &Path, table: &mut Table, runtime: &Runtime) -> anyhow::Result<()> {
    for (sync, words) in [("always", "on"), ("off", "off")] {
        let disk = best_write_and_sync(folder, RUN_BYTES)?;
        let one = run(folder, runtime, (1, "1"), sync)?;
        let three = run(folder, runtime, (3, "2"), sync)?;
        table.row(
            &format!("produce 1 KiB through a broker to 3 bookies, Qw 3, Qa 2, sync {words}"),
            &format!(
                "{:.0} MB/s ({:.0} MB/s stored)",
                three.megabytes,
                3.0 * three.megabytes
            ),
            &format!(
                "to 1 bookie {:.0} MB/s; write + fdatasync {disk:.0} MB/s",
                one.megabytes
            ),
            &format!("{:.2}", three.megabytes / one.megabytes),
            &format!(
                "0.33 where the disk is the limit, {:.2} where processors are",
                arithmetic(&one, &three)
            ),
        );
        for (name, runs) in [("1 copy", &one), ("3 copies", &three)] {
            let Used {
                client,
                broker,
                bookies,
            } = runs.per_gigabyte;
            table.note(&format!(
                "{name}, sync {words}: processor seconds per GB: client {client:.2}, broker {broker:.2}, bookies {bookies:.2}"
            ));
        }
    }
    table.note(
        "where processors are the limit: what client, broker and bookie use for a byte of one copy, over what the client uses, the broker \
         as it was measured with three copies, and the bookie three times; on three machines each bookie has its own",
    );
    Ok(())
}

/// The ratio of rates when the processors are the limit: work per byte of one copy over that of three, the bookies' tripled and the
/// broker's as measured.
fn arithmetic(one: &Runs, three: &Runs) -> f64 {
    let before = one.per_gigabyte.client + one.per_gigabyte.broker + one.per_gigabyte.bookies;
    let tripled = one.per_gigabyte.client + three.per_gigabyte.broker;
    before / (tripled + 3.0 * one.per_gigabyte.bookies)
}

/// A fresh cell; the median of its runs.
fn run(
    folder: &Path,
    runtime: &Runtime,
    (bookies, ack): (usize, &str),
    sync: &str,
) -> anyhow::Result<Runs> {
    let count = bookies.to_string();
    let settings = [
        ("HULSE_BROKER__REPLICATION__ENSEMBLE", count.as_str()),
        ("HULSE_BROKER__REPLICATION__WRITE_QUORUM", count.as_str()),
        ("HULSE_BROKER__REPLICATION__ACK_QUORUM", ack),
        ("HULSE_BOOKIE__SYNC", sync),
    ];
    let cell = Cell::start(folder, runtime, (bookies, 1), &settings)?;
    let client = cell.client()?;
    runtime.block_on(async {
        client.admin().create_topic(TOPIC, PARTITIONS).await?;
        produce(&client, RUN_BYTES / 4).await
    })?;
    let before = used(&cell)?;
    let mut rates = Vec::new();
    for _ in 0..ROUNDS {
        let took = runtime.block_on(produce(&client, RUN_BYTES))?;
        rates.push(megabytes(RUN_BYTES, took));
    }
    let after = used(&cell)?;
    let gigabytes = (ROUNDS * RUN_BYTES) as f64 / 1e9;
    Ok(Runs {
        megabytes: median(&mut rates),
        per_gigabyte: Used {
            client: (after.client - before.client) / gigabytes,
            broker: (after.broker - before.broker) / gigabytes,
            bookies: (after.bookies - before.bookies) / gigabytes,
        },
    })
}

fn used(cell: &Cell) -> anyhow::Result<Used> {
    let bookies = cell.bookies.iter().map(|of| of.processor_seconds());
    Ok(Used {
        client: processor_seconds(std::process::id())?,
        broker: cell.brokers[0].processor_seconds()?,
        bookies: bookies.sum::<Result<f64, _>>()?,
    })
}

/// As fast as it goes, over all partitions.
async fn produce(client: &Client, bytes: usize) -> anyhow::Result<Duration> {
    let producer = client.producer(TOPIC).build().await?;
    let value = Bytes::from(incompressible(RECORD_BYTES));
    let began = Instant::now();
    for _ in 0..bytes / RECORD_BYTES {
        // Failures of dropped tickets are returned by flush.
        drop(producer.send(Record::new(value.clone())).await?);
    }
    producer.flush().await?;
    let took = began.elapsed();
    producer.close().await?;
    Ok(took)
}
