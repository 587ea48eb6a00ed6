//! What a batch costs the broker, in instructions: with 10, 100 and 1,000 records of equal bytes it must cost the same, since a
//! batch is never opened (ARCHITECTURE D1).
//!
//! The path is the broker's own: checks at the door, the partition's task, its state machine, the entry, the ledger's writer, the
//! answer. A run of N and one of 2 N batches under callgrind differ by N batches and nothing else: both build 2 N.
//!
//! For the same reason a stored byte costs the same, whatever codec the producer took.

use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use anyhow::Context as _;
use bookie_client::{ClientConfig, LedgerClient};
use bookie_metadata::{MemoryStore, MetadataStore};
use bytes::Bytes;
use hulse_proto::batch::{self, BatchBuilder, Compression, ProducerStamp, RecordRef};
use hulse_proto::bookie::BookieCalls;
use hulse_proto::id::{CellId, NodeName, PartitionId, ProducerId, TopicId};
use hulse_proto::ledger::Quorums;
use serving_broker::{BrokerConfig, Lease, Partitions, PartitionsConfig};
use uuid::Uuid;

use super::compressed::log_like;
use super::sink::{Bookies, Sink, SystemClock, member};
use super::table::Table;

/// The child's first argument.
pub(crate) const CHILD: &str = "batch-path-child";
/// Bytes of every batch.
const BATCH_BYTES: usize = 32 << 10;
/// The difference of two runs.
const BATCHES: usize = 400;
const RECORDS: [usize; 3] = [10, 100, 1_000];
/// Stands for a number of records: as many log lines as fill a batch once they are compressed.
const COMPRESSED: usize = usize::MAX;
const CODECS: [Compression; 3] = [Compression::None, Compression::Lz4, Compression::Zstd];

pub(crate) fn measure(folder: &Path, table: &mut Table) -> anyhow::Result<()> {
    let what = "broker, instructions per batch";
    if Command::new("valgrind").arg("--version").output().is_err() {
        table.not_run(what, "valgrind is not installed");
        return Ok(());
    }
    let mut costs = Vec::new();
    for records in RECORDS {
        costs.push(cost(folder, Compression::None, records)?);
    }
    let (least, most) = costs
        .iter()
        .fold((f64::MAX, 0.0_f64), |(least, most), cost| {
            (least.min(*cost), most.max(*cost))
        });
    table.row(
        what,
        &format!("{:.0}, {:.0}, {:.0}", costs[0], costs[1], costs[2]),
        &format!(
            "10, 100, 1,000 records in {} KiB; CRC alone {:.0}",
            BATCH_BYTES >> 10,
            checksum_cost(folder)?
        ),
        &format!("spread {:.1} %", (most / least - 1.0) * 100.0),
        "flat within 5 %",
    );
    per_stored_byte(folder, table)
}

/// Batches of about the same stored size, of records that each codec shrinks as it can.
fn per_stored_byte(folder: &Path, table: &mut Table) -> anyhow::Result<()> {
    let mut costs = Vec::new();
    for codec in CODECS {
        let bytes = compressed(codec)?.0.len();
        costs.push(cost(folder, codec, COMPRESSED)? / bytes as f64);
    }
    let plain = costs[0];
    let worst = costs.iter().copied().fold(0.0_f64, f64::max);
    table.row(
        "broker, instructions per stored byte",
        &format!("lz4 {:.3}, zstd {:.3}", costs[1], costs[2]),
        &format!("uncompressed {plain:.3}"),
        &format!("{:.2}", worst / plain),
        "unchanged",
    );
    Ok(())
}

/// Instructions of one batch.
fn cost(folder: &Path, codec: Compression, records: usize) -> anyhow::Result<f64> {
    let once = instructions(folder, codec, records, BATCHES)?;
    let twice = instructions(folder, codec, records, 2 * BATCHES)?;
    Ok((twice - once) as f64 / BATCHES as f64)
}

/// The reference: one pass of the checksum over a batch, measured in the same way.
fn checksum_cost(folder: &Path) -> anyhow::Result<f64> {
    cost(folder, Compression::None, 0)
}

/// Runs the child under callgrind and reads the total.
fn instructions(
    folder: &Path,
    codec: Compression,
    records: usize,
    batches: usize,
) -> anyhow::Result<i64> {
    let out = folder.join("callgrind.out");
    let status = Command::new("valgrind")
        .args(["--tool=callgrind", "--quiet"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(std::env::current_exe()?)
        .args([CHILD, &records.to_string(), &batches.to_string()])
        .arg((codec as i16).to_string())
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .status()?;
    anyhow::ensure!(status.success(), "the child under callgrind failed");
    let text = std::fs::read_to_string(&out)?;
    std::fs::remove_file(&out)?;
    let total = text
        .lines()
        .find_map(|line| line.strip_prefix("totals: "))
        .context("callgrind wrote no total")?;
    Ok(total.trim().parse()?)
}

/// What the child does: `records` per batch (0: only the checksum of each batch; [`COMPRESSED`]: log lines), `count` batches of the
/// `2 * BATCHES` built, and the number of the codec.
pub(crate) fn child(arguments: &[String]) -> anyhow::Result<()> {
    let number = |index: usize| -> anyhow::Result<usize> {
        let argument = arguments.get(index).context("two numbers are needed")?;
        Ok(argument.parse()?)
    };
    let (records, count, codec) = (number(0)?, number(1)?, number(2)?);
    let codec = CODECS.into_iter().find(|known| *known as usize == codec);
    let (template, span) = match records {
        COMPRESSED => compressed(codec.context("an unknown codec")?)?,
        records => (template(records.max(1))?, records.max(1)),
    };
    let batches: Vec<Bytes> = (0..2 * BATCHES)
        .map(|index| stamped(&template, span, index))
        .collect();
    if records == 0 {
        let sum = batches
            .iter()
            .take(count)
            .map(|batch| u64::from(hulse_proto::entry::crc32c(batch)))
            .sum::<u64>();
        anyhow::ensure!(sum > 0, "checksums of nothing");
        return Ok(());
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    runtime.block_on(produce(batches.into_iter().take(count)))
}

async fn produce(batches: impl Iterator<Item = Bytes>) -> anyhow::Result<()> {
    let store: Arc<dyn MetadataStore> = Arc::new(MemoryStore::new());
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
    let mut config = BrokerConfig::new(NodeName::new("broker-0")?, "nowhere:1");
    config.tail_cache_bytes = 4 << 20;
    let parts = PartitionsConfig {
        metadata: store,
        client,
        clock: Arc::new(SystemClock),
        boot: Uuid::from_u128(2),
        lease: Lease::none(),
    };
    let partitions = Partitions::new(&config, parts);
    let partition = PartitionId {
        topic: TopicId(Uuid::from_u128(3)),
        index: 0,
    };
    let handle = partitions.open(partition).await?;
    for batch in batches {
        handle.produce(batch).await?;
    }
    Ok(())
}

/// A batch of log lines of about [`BATCH_BYTES`], and how many they are.
fn compressed(codec: Compression) -> anyhow::Result<(Bytes, usize)> {
    let lines = log_like();
    let of = |count: usize| -> anyhow::Result<Bytes> {
        let mut builder = BatchBuilder::new(codec)?;
        for line in &lines[..count] {
            builder.push(&RecordRef {
                timestamp: 1_700_000_000_000,
                key: None,
                value: Some(line),
                headers: &[],
            })?;
        }
        Ok(builder.build(None))
    };
    let some = 200;
    let count = some * BATCH_BYTES / of(some)?.len();
    Ok((of(count)?, count))
}

/// A batch of exactly [`BATCH_BYTES`]; the last record fills up.
fn template(records: usize) -> anyhow::Result<Bytes> {
    let value = vec![b'x'; BATCH_BYTES];
    let usual = (BATCH_BYTES - 61) / records - 12;
    let record = |len: usize| RecordRef {
        timestamp: 1_700_000_000_000,
        key: None,
        value: Some(&value[..len]),
        headers: &[],
    };
    let mut builder = BatchBuilder::new(Compression::None)?;
    for _ in 1..records {
        builder.push(&record(usual))?;
    }
    let left = BATCH_BYTES - builder.len_estimate();
    // How long the lengths before it are is the only thing to find out.
    let fits = (0..=left).rev().find_map(|len| {
        let mut filled = builder.clone();
        filled.push(&record(len)).ok()?;
        let batch = filled.build(None);
        (batch.len() == BATCH_BYTES).then_some(batch)
    });
    fits.context("no last record fills the batch")
}

/// The batch of this number of one producer.
fn stamped(template: &Bytes, records: usize, index: usize) -> Bytes {
    let stamp = ProducerStamp {
        id: ProducerId(7),
        epoch: 0,
        base_sequence: (index * records) as i32,
    };
    batch::stamp(template.clone(), stamp)
}
