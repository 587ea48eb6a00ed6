//! Ten thousand partitions: what an open one costs the broker in memory.
//!
//! Measured in a child of this program that is nothing but a broker: its metadata are in the embedded store, which keeps them on the
//! disk behind a small cache, and its bookie keeps nothing. So what grows with the partitions is the broker's.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use anyhow::Context as _;
use bookie_client::{ClientConfig, LedgerClient};
use bookie_metadata::{EmbeddedOptions, EmbeddedStore, MetadataStore};
use bytes::Bytes;
use futures::stream::{self, StreamExt, TryStreamExt};
use hulse_proto::batch::{BatchBuilder, Compression, ProducerStamp, RecordRef};
use hulse_proto::bookie::BookieCalls;
use hulse_proto::id::{CellId, NodeName, PartitionId, ProducerId, TopicId};
use hulse_proto::ledger::Quorums;
use serving_broker::{BrokerConfig, Lease, Partitions, PartitionsConfig};
use uuid::Uuid;

use super::sink::{Bookies, Sink, SystemClock, member};
use super::table::Table;

/// The child's first argument.
pub(crate) const CHILD: &str = "partitions-child";
/// Partitions that are counted.
const PARTITIONS: u32 = 10_000;
/// Partitions before anything is counted: buffers and caches of the process are then as large as they become.
const WARM: u32 = 1_000;
/// Partitions that are opened at the same time.
const AT_ONCE: usize = 64;
/// Pages of the metadata's file that the child keeps.
const METADATA_CACHE_BYTES: usize = 1 << 20;
/// Nothing of what was on its way is left after this.
const SETTLED: Duration = Duration::from_secs(3);

pub(crate) fn measure(folder: &Path, table: &mut Table) -> anyhow::Result<()> {
    let [opened, produced] = [0, 1].map(|records| child_bytes(folder, records));
    table.row(
        "broker memory per open partition, one record in each",
        &format!("{} B", produced?),
        &format!("opened, nothing produced {} B", opened?),
        "-",
        "at most 8,192 B",
    );
    Ok(())
}

/// Resident bytes per partition, as a child finds them.
fn child_bytes(folder: &Path, records: u32) -> anyhow::Result<i64> {
    let place = tempfile::tempdir_in(folder)?;
    let out = Command::new(std::env::current_exe()?)
        .arg(CHILD)
        .arg(place.path())
        .arg(records.to_string())
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output()?;
    anyhow::ensure!(out.status.success(), "the child failed");
    Ok(String::from_utf8(out.stdout)?.trim().parse()?)
}

/// What the child does: in `folder`, so many records (0 or 1) in each partition.
pub(crate) fn child(arguments: &[String]) -> anyhow::Result<()> {
    let [folder, records] = arguments else {
        anyhow::bail!("a folder and a number are needed");
    };
    let records: u32 = records.parse()?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?;
    let bytes = runtime.block_on(bytes_per_partition(Path::new(folder), records))?;
    println!("{bytes}");
    // Without an end of ten thousand tasks.
    std::process::exit(0)
}

async fn bytes_per_partition(folder: &Path, records: u32) -> anyhow::Result<i64> {
    let partitions = broker(folder)?;
    let batch = one_record()?;
    open(&partitions, 0..WARM, &batch, records).await?;
    let before = resident()?;
    open(&partitions, WARM..WARM + PARTITIONS, &batch, records).await?;
    Ok((resident()? - before) / i64::from(PARTITIONS))
}

fn broker(folder: &Path) -> anyhow::Result<Partitions> {
    let options = EmbeddedOptions {
        cache_bytes: METADATA_CACHE_BYTES,
        ..EmbeddedOptions::default()
    };
    let store = EmbeddedStore::open(folder.join("metadata"), options)?;
    let store: Arc<dyn MetadataStore> = Arc::new(store);
    let calls: Arc<dyn BookieCalls> = Arc::new(Sink);
    let client = LedgerClient::new(
        CellId(Uuid::from_u128(1)),
        ClientConfig::new(Quorums {
            ensemble: 1,
            write: 1,
            ack: 1,
        }),
        store.clone(),
        Arc::new(Bookies(vec![(member(0), calls)])),
        Arc::new(SystemClock),
        [1; 32],
    );
    let config = BrokerConfig::new(NodeName::new("broker-0")?, "nowhere:1");
    let parts = PartitionsConfig {
        metadata: store,
        client,
        clock: Arc::new(SystemClock),
        boot: Uuid::from_u128(2),
        lease: Lease::none(),
    };
    Ok(Partitions::new(&config, parts))
}

/// Opens partitions, each with so many records of one idempotent producer, and waits until that is over.
async fn open(
    partitions: &Partitions,
    indexes: std::ops::Range<u32>,
    batch: &Bytes,
    records: u32,
) -> anyhow::Result<()> {
    let opened = stream::iter(indexes).map(|index| async move {
        let topic = TopicId(Uuid::from_u128(3));
        let handle = partitions.open(PartitionId { topic, index }).await?;
        if records > 0 {
            handle.produce(batch.clone()).await?;
        }
        anyhow::Ok(())
    });
    opened
        .buffer_unordered(AT_ONCE)
        .try_collect::<Vec<()>>()
        .await?;
    tokio::time::sleep(SETTLED).await;
    Ok(())
}

fn one_record() -> anyhow::Result<Bytes> {
    let mut builder = BatchBuilder::new(Compression::None)?;
    builder.push(&RecordRef {
        timestamp: 1_700_000_000_000,
        key: None,
        value: Some(b"hello"),
        headers: &[],
    })?;
    Ok(builder.build(Some(ProducerStamp {
        id: ProducerId(7),
        epoch: 0,
        base_sequence: 0,
    })))
}

/// Resident bytes of this process.
fn resident() -> anyhow::Result<i64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let line = line.context("no VmRSS")?;
    let kilobytes: i64 = line.trim().trim_end_matches(" kB").parse()?;
    Ok(kilobytes * 1024)
}
