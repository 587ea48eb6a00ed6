//! A ledger on three bookies of one process and one disk, beside a ledger on one.
//!
//! Three copies are three times the bytes: on one disk a third of the throughput is what arithmetic allows when the disk is the
//! limit, and a third of the processor's when the processor is. On three machines each disk has one copy.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bookie_client::{AppendError, Appended, ClientConfig, LedgerClient, LedgerWriter, NewLedger};
use bookie_metadata::{MemoryStore, MetadataStore, Txn};
use bookie_node::{BookieNode, NodeConfig, NodeMetrics, NodeSeams, OsDisk, SyncMode};
use bytes::Bytes;
use futures::stream::{FuturesOrdered, StreamExt as _};
use hulse_proto::bookie::BookieCalls;
use hulse_proto::entry::{EntryClass, EntryKind, Envelope, NewEntry};
use hulse_proto::id::{CellId, NodeName, Offset, OwnerEpoch, PartitionId, TopicId};
use hulse_proto::ledger::{LedgerKind, Member, Quorums};
use prometheus_client::registry::Registry;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::SeedableRng as _;
use tokio::runtime::Runtime;
use uuid::Uuid;

use super::disk::{self, incompressible};
use super::sink::{Bookies, SystemClock};
use super::table::{Table, median};

/// Payload of one timed run.
const RUN_BYTES: usize = 64 << 20;
/// Timed runs of each ledger, by turns.
const ROUNDS: usize = 3;

struct Rate {
    entries: f64,
    megabytes: f64,
}

pub(crate) fn measure(folder: &Path, table: &mut Table, runtime: &Runtime) -> anyhow::Result<()> {
    for (sync, words) in [(SyncMode::Always, "on"), (SyncMode::Off, "off")] {
        for size in [1 << 10, 64 << 10] {
            let name = format!("{} KiB entries, sync {words}", size >> 10);
            compare(folder, table, runtime, (sync, size, &name))?;
        }
    }
    table.note(
        "three bookies on one disk: three copies are three times the bytes to check, to copy, to write and to sync, so 0.33 is what is \
         left when one bookie uses the disk or the processors up, and more where it does not; with Qa = 2 the slowest of three \
         does not hold up an ack",
    );
    Ok(())
}

fn compare(
    folder: &Path,
    table: &mut Table,
    runtime: &Runtime,
    (sync, size, name): (SyncMode, usize, &str),
) -> anyhow::Result<()> {
    let mut disks = Vec::new();
    let (mut one, mut three) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        disks.push(disk::best_write_and_sync(folder, RUN_BYTES)?);
        one.push(runtime.block_on(run(folder, 1, sync, size))?);
        three.push(runtime.block_on(run(folder, 3, sync, size))?);
    }
    let entries = |rates: &[Rate]| {
        let mut all: Vec<f64> = rates.iter().map(|rate| rate.entries).collect();
        median(&mut all)
    };
    let bytes = |rates: &[Rate]| {
        let mut all: Vec<f64> = rates.iter().map(|rate| rate.megabytes).collect();
        median(&mut all)
    };
    table.row(
        &format!("ledger on 3 bookies, {name}"),
        &format!(
            "{:.0} entries/s, {:.0} MB/s ({:.0} MB/s written)",
            entries(&three),
            bytes(&three),
            3.0 * bytes(&three)
        ),
        &format!(
            "on 1: {:.0} entries/s, {:.0} MB/s; write + fdatasync {:.0} MB/s",
            entries(&one),
            bytes(&one),
            median(&mut disks)
        ),
        &format!("{:.2}", bytes(&three) / bytes(&one)),
        "0.33 on one disk",
    );
    Ok(())
}

/// Fresh bookies, one ledger, as fast as its permits allow.
async fn run(folder: &Path, bookies: u32, sync: SyncMode, size: usize) -> anyhow::Result<Rate> {
    let home = tempfile::tempdir_in(folder)?;
    let cell = CellId(Uuid::from_u128(1));
    let store: Arc<dyn MetadataStore> = Arc::new(MemoryStore::new());
    let mut nodes = Vec::new();
    for number in 0..bookies {
        let place = home.path().join(number.to_string());
        nodes.push(bookie(&place, &store, number, sync).await?);
    }
    let members: Vec<(Member, Arc<dyn BookieCalls>)> = nodes
        .iter()
        .map(|node| {
            let calls: Arc<dyn BookieCalls> = node.clone();
            (node.member().clone(), calls)
        })
        .collect();
    let quorums = Quorums {
        ensemble: bookies,
        write: bookies,
        ack: bookies / 2 + 1,
    };
    let client = LedgerClient::new(
        cell,
        ClientConfig::new(quorums),
        store,
        Arc::new(Bookies(members)),
        Arc::new(SystemClock),
        [1; 32],
    );
    let writer = client.create(new_ledger(), |_| Txn::default()).await?;
    let rate = append(&writer, size).await?;
    writer.close(Txn::default()).await?;
    for node in nodes {
        node.shutdown().await?;
    }
    Ok(rate)
}

async fn bookie(
    place: &Path,
    store: &Arc<dyn MetadataStore>,
    number: u32,
    sync: SyncMode,
) -> anyhow::Result<Arc<BookieNode>> {
    let cell = CellId(Uuid::from_u128(1));
    let config = NodeConfig {
        format_if_empty: true,
        sync,
        ..NodeConfig::new(cell, NodeName::new(&format!("bookie-{number}"))?)
    };
    let seams = NodeSeams {
        disk: Arc::new(OsDisk::open(place)?),
        metadata: store.clone(),
        clock: Arc::new(SystemClock),
        rng: ChaCha12Rng::seed_from_u64(u64::from(number)),
        metrics: NodeMetrics::new(&mut Registry::default()),
    };
    Ok(Box::pin(BookieNode::start(config, seams)).await?)
}

fn new_ledger() -> NewLedger {
    NewLedger {
        kind: LedgerKind::Log,
        partition: PartitionId {
            topic: TopicId(Uuid::from_u128(2)),
            index: 0,
        },
        owner_epoch: OwnerEpoch(1),
        base_offset: Offset(0),
    }
}

async fn append(writer: &LedgerWriter, size: usize) -> anyhow::Result<Rate> {
    let count = (RUN_BYTES / size) as u64;
    let body = Bytes::from(incompressible(size));
    let mut answers = FuturesOrdered::new();
    let began = Instant::now();
    for offset in 0..count {
        while !writer.has_room(EntryClass::Data) {
            confirmed(answers.next().await)?;
        }
        answers.push_back(writer.append(entry(offset, &body)));
    }
    while let Some(answer) = answers.next().await {
        confirmed(Some(answer))?;
    }
    let took = began.elapsed();
    Ok(Rate {
        entries: count as f64 / took.as_secs_f64(),
        megabytes: disk::megabytes(count as usize * size, took),
    })
}

fn confirmed(answer: Option<Result<Appended, AppendError>>) -> anyhow::Result<()> {
    match answer {
        Some(answer) => Ok(answer.map(drop)?),
        None => anyhow::bail!("the writer has no room and nothing is in flight"),
    }
}

fn entry(offset: u64, body: &Bytes) -> NewEntry {
    let envelope = Envelope {
        kind: EntryKind::Data,
        append_time: 0,
        running_max_timestamp: 0,
        batches: Vec::new(),
    };
    NewEntry {
        class: EntryClass::Data,
        first_offset: Offset(offset),
        offset_span: 1,
        record_count: 1,
        envelope: envelope.encode(),
        body: vec![body.clone()],
    }
}
