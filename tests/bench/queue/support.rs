//! What the parts share.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hulse_sdk::{Client, QueueConsumer, Record, Start};

use crate::disk::incompressible;
use crate::server::Server;

/// What has not happened after this long never will.
pub(super) const PATIENCE: Duration = Duration::from_secs(120);
/// Bytes of a record's value.
pub(super) const RECORD_BYTES: usize = 1024;

pub(super) fn client() -> anyhow::Result<Client> {
    Ok(Client::builder(Server::address()).build()?)
}

/// Stores so many records, in batches of at most 256 KiB, as topics of shared work have them (serving.md B3.3); `keys` of 0: without keys.
pub(super) async fn fill(
    topic: &str,
    partitions: u32,
    records: usize,
    keys: usize,
) -> anyhow::Result<()> {
    let client = client()?;
    client.admin().create_topic(topic, partitions).await?;
    let producer = client.producer(topic).max_bytes(256 << 10).build().await?;
    let value = Bytes::from(incompressible(RECORD_BYTES));
    for number in 0..records {
        let mut record = Record::new(value.clone());
        if keys > 0 {
            record = record.key(format!("key {}", number % keys));
        }
        // What fails of dropped tickets is returned by close.
        drop(producer.send(record).await?);
    }
    Ok(producer.close().await?)
}

/// Records a second of a reader from the start to the end, each decoded.
pub(super) async fn read(topic: &str) -> anyhow::Result<f64> {
    let client = client()?;
    let builder = client.reader(topic).start(Start::Earliest).follow(false);
    let mut reader = builder.build().await?;
    let (began, mut records) = (Instant::now(), 0_usize);
    while reader.next().await?.is_some() {
        records += 1;
    }
    Ok(records as f64 / began.elapsed().as_secs_f64())
}

/// A consumer of subscription `s`, on connections of its own.
pub(super) async fn share(
    topic: &str,
    name: &str,
    keyed: bool,
    queue: u32,
) -> anyhow::Result<QueueConsumer> {
    let builder = client()?.queue_consumer(topic).subscription("s").name(name);
    let builder = builder.keyed(keyed).start(Start::Earliest);
    Ok(builder.receive_queue_records(queue).build().await?)
}

/// Records that the subscription has not acked.
pub(super) async fn backlog(topic: &str) -> anyhow::Result<u64> {
    let admin = client()?.admin();
    let (_, cursors) = admin.describe_subscription("s", topic, false).await?;
    let mut total = 0;
    for cursor in cursors {
        let state = cursor.state.map_err(|fault| anyhow::anyhow!("{fault}"))?;
        total += state.backlog_records;
    }
    Ok(total)
}

/// The p50 and the p99 of times, which are sorted by it.
pub(super) fn percentiles(times: &mut [Duration]) -> (Duration, Duration) {
    times.sort_unstable();
    let at = |share: usize| {
        let place = (times.len() * share / 100).min(times.len().saturating_sub(1));
        times.get(place).copied().unwrap_or_default()
    };
    (at(50), at(99))
}
