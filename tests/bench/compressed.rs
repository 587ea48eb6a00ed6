//! What compression by the producer is worth: records per second of log-like records where the disk is the limit, what is stored, and
//! what a stored byte costs the server.

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hulse_proto::batch::Compression;
use hulse_sdk::{Client, Record};
use rand::{RngCore, SeedableRng};
use rand_chacha::ChaCha8Rng;
use tokio::runtime::Runtime;

use super::server::Server;
use super::slow_disk::SlowDisk;
use super::table::Table;

const RECORD_BYTES: usize = 1024;
/// Records that are made ahead and sent again and again, far more than a batch holds.
const RECORDS: usize = 50_000;
/// What the slow disk takes: a small cloud volume.
const DISK_BYTES: u64 = 16 << 20;
/// How long is sent.
const RUN: Duration = Duration::from_secs(6);
const CODECS: [(&str, Compression); 3] = [
    ("none", Compression::None),
    ("lz4", Compression::Lz4),
    ("zstd", Compression::Zstd),
];

/// What a run came to.
struct Run {
    records_per_second: f64,
    stored_bytes: u64,
    seconds: f64,
    /// Of what was sent, by what was stored.
    ratio: f64,
    /// Processor seconds of the server per second, and of the client.
    server_cores: f64,
    client_cores: f64,
}

impl Run {
    fn stored_per_second(&self) -> f64 {
        self.stored_bytes as f64 / 1e6 / self.seconds
    }

    /// Of the server, per stored byte.
    fn nanoseconds_per_byte(&self) -> f64 {
        self.server_cores * self.seconds * 1e9 / self.stored_bytes as f64
    }
}

pub(crate) fn measure(folder: &Path, table: &mut Table, runtime: &Runtime) -> anyhow::Result<()> {
    let records = log_like();
    let what = "log-like 1 KiB records on a slow disk";
    match SlowDisk::new(folder, DISK_BYTES) {
        Err(error) => table.not_run(what, &format!("no group of slowed processes: {error}")),
        Ok(disk) => {
            let name = format!("disk of {} MiB/s, sync on", DISK_BYTES >> 20);
            compare(&name, table, (&records, runtime), || {
                Server::start_on(&disk, folder, "always")
            })?;
        }
    }
    compare("disk as it is, sync on", table, (&records, runtime), || {
        Server::start(folder, "always")
    })
}

/// One run of each codec, each on a server of its own.
fn compare(
    conditions: &str,
    table: &mut Table,
    (records, runtime): (&[Bytes], &Runtime),
    start: impl Fn() -> anyhow::Result<Server>,
) -> anyhow::Result<()> {
    let mut plain = None;
    for (name, codec) in CODECS {
        let server = start()?;
        let run = send(&server, records, codec, runtime)?;
        drop(server);
        let plain = plain.get_or_insert(run.records_per_second);
        let more = run.records_per_second / *plain;
        table.row(
            &format!("produce log-like 1 KiB, {name}; {conditions}"),
            &format!("{:.0} records/s", run.records_per_second),
            &format!("uncompressed {plain:.0} records/s"),
            &format!("{more:.1}"),
            match codec {
                Compression::None => "-",
                _ => "at least 10 where the disk is the limit",
            },
        );
        table.note(&format!(
            "{name}; {conditions}: {:.0} MB/s of values, {:.1} MB/s stored, stored 1/{:.1}; server {:.2} cores, client {:.2} cores, \
             server {:.2} ns of processor per stored byte",
            run.records_per_second * RECORD_BYTES as f64 / 1e6,
            run.stored_per_second(),
            run.ratio,
            run.server_cores,
            run.client_cores,
            run.nanoseconds_per_byte(),
        ));
    }
    Ok(())
}

/// Lines of a log: the same words, and in each a time, a number and an identity that no codec can shrink. About 20:1.
pub(crate) fn log_like() -> Vec<Bytes> {
    let mut rng = ChaCha8Rng::seed_from_u64(11);
    let stack = "at com.example.orders.checkout.PaymentGateway.authorise(PaymentGateway.java:214) "
        .repeat(16);
    let lines = (0..RECORDS).map(|number| {
        let (left, right, took) = (rng.next_u64(), rng.next_u64(), rng.next_u32() % 1_000);
        let mut line = format!(
            "{{\"time\":{},\"level\":\"WARN\",\"service\":\"checkout\",\"trace\":\"{left:016x}{right:016x}\",\"took_ms\":{took},\
             \"message\":\"payment provider did not answer in time, trying again\",\"stack\":\"{stack}",
            1_700_000_000_000_u64 + number as u64 * 7
        );
        line.truncate(RECORD_BYTES - 2);
        line.push_str("\"}");
        Bytes::from(line)
    });
    lines.collect()
}

fn send(
    server: &Server,
    records: &[Bytes],
    codec: Compression,
    runtime: &Runtime,
) -> anyhow::Result<Run> {
    runtime.block_on(async {
        let client = Client::builder(Server::address()).build()?;
        let producer = client.producer("logs").compression(codec).build().await?;
        // Makes the topic and its ledger.
        producer
            .send(Record::new(records[0].clone()))
            .await?
            .await?;
        let stored = server.counter("hulse_bytes_in_total")?;
        let (processor, own) = (server.processor_seconds()?, own_processor_seconds()?);
        let began = Instant::now();
        let mut sent = 0_usize;
        while began.elapsed() < RUN {
            for _ in 0..256 {
                let value = records[sent % records.len()].clone();
                // Failures of dropped tickets are returned by flush.
                drop(producer.send(Record::new(value)).await?);
                sent += 1;
            }
        }
        producer.flush().await?;
        let seconds = began.elapsed().as_secs_f64();
        let stored_bytes = server.counter("hulse_bytes_in_total")? - stored;
        producer.close().await?;
        Ok(Run {
            records_per_second: sent as f64 / seconds,
            stored_bytes,
            seconds,
            ratio: (sent * RECORD_BYTES) as f64 / stored_bytes as f64,
            server_cores: (server.processor_seconds()? - processor) / seconds,
            client_cores: (own_processor_seconds()? - own) / seconds,
        })
    })
}

fn own_processor_seconds() -> anyhow::Result<f64> {
    super::server::processor_seconds(std::process::id())
}
