//! One record at a time: from `send` to its receipt.

use std::path::Path;
use std::time::{Duration, Instant};

use hulse_sdk::{Client, Record};
use tokio::runtime::Runtime;

use super::disk;
use super::server::Server;
use super::table::{Table, median};

const RECORDS: usize = 2_000;

pub(crate) fn measure(folder: &Path, table: &mut Table, runtime: &Runtime) -> anyhow::Result<()> {
    // The disk drifts, so its own sync is measured before, between and after.
    let mut disks = vec![disk::one_sync(folder, RECORDS / 4)?];
    let mut medians = Vec::new();
    for _ in 0..3 {
        let server = Server::start(folder, "always")?;
        medians.push(one_at_a_time(runtime)?.0);
        drop(server);
        disks.push(disk::one_sync(folder, RECORDS / 4)?);
    }
    let (sync, own) = (median(&mut medians), median(&mut disks));
    let above = sync.saturating_sub(own);
    table.row(
        "one record at a time, sync on",
        &format!("{above:.0?} above the disk ({sync:.0?})"),
        &format!("disk's own sync {own:.0?}"),
        &format!("{:.1}", sync.as_secs_f64() / own.as_secs_f64()),
        "at most 300 µs above",
    );
    let _server = Server::start(folder, "off")?;
    let (p50, p99) = one_at_a_time(runtime)?;
    let echo = echo_round_trip()?;
    table.row(
        "one record at a time, sync off",
        &format!("p50 {p50:.0?}, p99 {p99:.0?}"),
        &format!("TCP echo on loopback {echo:.0?}"),
        &format!("{:.1}", p50.as_secs_f64() / echo.as_secs_f64()),
        "p50 at most 250 µs",
    );
    Ok(())
}

fn one_at_a_time(runtime: &Runtime) -> anyhow::Result<(Duration, Duration)> {
    runtime.block_on(async {
        let client = Client::builder(Server::address()).build()?;
        let producer = client.producer("latency").build().await?;
        let mut times = Vec::with_capacity(RECORDS);
        for number in 0..RECORDS + RECORDS / 10 {
            let began = Instant::now();
            producer.send(Record::new(vec![7; 100])).await?.await?;
            if number >= RECORDS / 10 {
                times.push(began.elapsed());
            }
        }
        producer.close().await?;
        times.sort_unstable();
        Ok((times[RECORDS / 2], times[RECORDS * 99 / 100]))
    })
}

/// What the machine takes for a small message there and back between two threads.
pub(crate) fn echo_round_trip() -> anyhow::Result<Duration> {
    use std::io::{Read, Write};
    let listener = std::net::TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    std::thread::spawn(move || -> std::io::Result<()> {
        let (mut stream, _) = listener.accept()?;
        stream.set_nodelay(true)?;
        let mut buffer = [0; 100];
        loop {
            stream.read_exact(&mut buffer)?;
            stream.write_all(&buffer)?;
        }
    });
    let mut stream = std::net::TcpStream::connect(address)?;
    stream.set_nodelay(true)?;
    let mut buffer = [7; 100];
    let mut times = Vec::with_capacity(RECORDS);
    for _ in 0..RECORDS {
        let began = Instant::now();
        stream.write_all(&buffer)?;
        stream.read_exact(&mut buffer)?;
        times.push(began.elapsed());
    }
    Ok(median(&mut times))
}
