//! The bookie's log: how long a start takes on much data after a kill, and what the index of very many entries takes.
//!
//! The start is cold: what the page cache has of the log is dropped before. Its reference is reading the whole log once, which is
//! what a start without footers would have to do. `HULSE_BENCH_LOG_GIB` sets how much is written (default 2; the goal names 10).

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bookie_metadata::{MemoryStore, MetadataStore};
use bookie_node::core::NodeState;
use bookie_node::disk::Disk;
use bookie_node::log::footer::{
    Footer, FooterLedger, FooterRun, TRAILER_BYTES, Trailer, encode_tail,
};
use bookie_node::log::format::FileHeader;
use bookie_node::log::{DiskIdentity, FileKind, SealedFile};
use bookie_node::{BookieNode, NodeConfig, NodeMetrics, NodeSeams, OsDisk, StartError};
use bytes::Bytes;
use futures::stream::{FuturesUnordered, StreamExt as _};
use hulse_proto::bookie::{AddRequest, Address, BookieCalls, BookieError, Origin};
use hulse_proto::entry::{EntryClass, EntryKind, Envelope, NewEntry, Totals};
use hulse_proto::id::{CellId, EntryId, FenceToken, Incarnation, LedgerId, NodeName, Offset};
use prometheus_client::registry::Registry;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::SeedableRng as _;
use tokio::runtime::Runtime;
use uuid::Uuid;

use super::disk::incompressible;
use super::sink::SystemClock;
use super::table::Table;

const CELL: CellId = CellId(Uuid::from_u128(1));
/// Written unless the environment says otherwise, GiB.
const GIB: u64 = 2;
/// Lengths of entries, by turns, bytes.
const SIZES: [usize; 5] = [4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20];
/// Adds in flight, bytes.
const FLIGHT_BYTES: usize = 32 << 20;

/// Partitions that write at once, in the simulated footers.
const LEDGERS: u64 = 1000;
/// Entries of each per file: 65,000 entries of 4 KiB fill 256 MiB.
const ENTRIES: u32 = 65;
const FILES: u64 = 100_000_000 / (LEDGERS * ENTRIES as u64) + 1;

pub(crate) fn measure(folder: &Path, table: &mut Table, runtime: &Runtime) -> anyhow::Result<()> {
    index_of_many_entries(table);
    let gib = std::env::var("HULSE_BENCH_LOG_GIB").ok();
    let gib = gib.and_then(|gib| gib.parse().ok()).unwrap_or(GIB);
    let home = tempfile::tempdir_in(folder)?;
    runtime.block_on(start_after_a_kill(home.path(), table, gib))
}

/// Footers as a start reads them, through their encoding.
fn index_of_many_entries(table: &mut Table) {
    let mut state = NodeState::default();
    for ledger in 0..LEDGERS {
        state.ledgers.entry(LedgerId(ledger)).or_default();
    }
    let mut spent = Duration::ZERO;
    for file in 0..FILES {
        let bytes = encode_tail(&footer(file), 0);
        let began = Instant::now();
        let trailer = &bytes[bytes.len() - TRAILER_BYTES..];
        // The pages would stand before it.
        let length = u64::MAX / 2;
        let trailer = Trailer::decode(trailer, length).expect("it was just encoded");
        let directory = &bytes[..trailer.directory_bytes as usize];
        let found = Footer::decode_directory(directory, &trailer).expect("it was just encoded");
        state.file_sealed(SealedFile::of(&found, 256 << 20));
        spent += began.elapsed();
    }
    let runs = FILES * LEDGERS;
    let bytes = state.index_bytes();
    table.row(
        "index of 10^8 entries of 4 KiB in 1,000 ledgers",
        &format!(
            "{:.1} MB resident, footers taken in {spent:.0?}",
            bytes as f64 / 1e6
        ),
        &format!(
            "{runs} runs of 40 bytes: {:.1} MB",
            runs as f64 * 40.0 / 1e6
        ),
        &format!("{:.2}", bytes as f64 / (runs as f64 * 40.0)),
        "at most 1.1; pages of slots besides are bounded by `index_cache_bytes`",
    );
}

fn footer(file: u64) -> Footer {
    let ledgers = (0..LEDGERS).map(|ledger| FooterLedger {
        ledger: LedgerId(ledger),
        bytes: u64::from(ENTRIES) * 4200,
        confirmed_end: EntryId(0),
        normal: true,
        runs: vec![FooterRun {
            first: EntryId(file * u64::from(ENTRIES)),
            entries: ENTRIES,
        }],
    });
    Footer {
        header: FileHeader {
            kind: FileKind::Log,
            identity: DiskIdentity {
                cell: CELL,
                incarnation: Incarnation::default(),
                disk: Uuid::nil(),
            },
            file,
            salt: file,
            created_at: 0,
            file_bytes: 256 << 20,
            replaces: Vec::new(),
        },
        first_sequence: 0,
        next_sequence: 1,
        end: 0,
        snapshot_end: 0,
        ledgers: ledgers.collect(),
        damage: Vec::new(),
        state: Vec::new(),
    }
}

async fn start_after_a_kill(place: &Path, table: &mut Table, gib: u64) -> anyhow::Result<()> {
    let store: Arc<dyn MetadataStore> = Arc::new(MemoryStore::new());
    let node = start(place, &store).await?;
    let entries = fill(&node, gib << 30).await?;
    // As good as a kill: nothing is said or written on the way out.
    drop(node);
    let whole = loop {
        match start(place, &store).await {
            // Its threads still end.
            Err(error) if matches!(error.downcast_ref(), Some(StartError::Locked { .. })) => {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            other => break other?,
        }
    };
    drop(whole);
    tokio::time::sleep(Duration::from_millis(500)).await;
    forget(place)?;
    let began = Instant::now();
    let node = start(place, &store).await?;
    let took = began.elapsed();
    let scanned = node.status().scanned_bytes;
    node.shutdown().await?;
    forget(place)?;
    let reading = read_all(place)?;
    table.row(
        &format!("ready after a kill, {gib} GiB of 4 KiB to 1 MiB entries"),
        &format!(
            "{took:.2?}, {:.0} MB of bodies read, {entries} entries",
            scanned as f64 / 1e6
        ),
        &format!("reading the log once {reading:.2?}"),
        &format!("{:.2}", took.as_secs_f64() / reading.as_secs_f64()),
        "at most 2 s with 10 GiB",
    );
    Ok(())
}

async fn start(place: &Path, store: &Arc<dyn MetadataStore>) -> anyhow::Result<Arc<BookieNode>> {
    let config = NodeConfig {
        format_if_empty: true,
        ..NodeConfig::new(CELL, NodeName::new("bookie-1")?)
    };
    let seams = NodeSeams {
        disk: Arc::new(OsDisk::open(place)?),
        metadata: store.clone(),
        clock: Arc::new(SystemClock),
        rng: ChaCha12Rng::seed_from_u64(1),
        metrics: NodeMetrics::new(&mut Registry::default()),
    };
    Ok(Box::pin(BookieNode::start(config, seams)).await?)
}

/// Sixteen ledgers, entry by entry; how many entries.
async fn fill(node: &Arc<BookieNode>, bytes: u64) -> anyhow::Result<u64> {
    let bodies: Vec<Bytes> = SIZES.map(|size| Bytes::from(incompressible(size))).into();
    let (mut answers, mut written, mut number) = (FuturesUnordered::new(), 0, 0_u64);
    let mut flying = 0;
    while written < bytes {
        let body = &bodies[number as usize % SIZES.len()];
        let request = add(node, LedgerId(number % 16), number / 16, body);
        let (node, length) = (Arc::clone(node), body.len());
        answers.push(async move { stored(&node, request).await.map(|()| length) });
        (written, flying, number) = (written + length as u64, flying + length, number + 1);
        while flying > FLIGHT_BYTES
            && let Some(answer) = answers.next().await
        {
            flying -= answer?;
        }
    }
    while let Some(answer) = answers.next().await {
        answer?;
    }
    Ok(number)
}

/// A busy bookie is asked again.
async fn stored(node: &BookieNode, request: AddRequest) -> Result<(), BookieError> {
    loop {
        match node.add(request.clone()).await {
            Err(BookieError::Busy { .. }) => tokio::time::sleep(Duration::from_millis(5)).await,
            other => return other,
        }
    }
}

/// As recovery adds: these need no ledger in metadata.
fn add(node: &BookieNode, ledger: LedgerId, number: u64, body: &Bytes) -> AddRequest {
    let envelope = Envelope {
        kind: EntryKind::Data,
        append_time: 0,
        running_max_timestamp: 0,
        batches: Vec::new(),
    };
    let entry = NewEntry {
        class: EntryClass::Data,
        first_offset: Offset(number),
        offset_span: 1,
        record_count: 1,
        envelope: envelope.encode(),
        body: vec![body.clone()],
    };
    AddRequest {
        to: Address {
            cell: CELL,
            incarnation: node.member().incarnation,
            ledger,
        },
        origin: Origin::Recovery {
            token: FenceToken(1),
        },
        confirmed_end: EntryId(0),
        entry: entry.seal(ledger, EntryId(number), Totals::default()),
        timeout: Duration::from_secs(60),
    }
}

/// Drops what the page cache has of the log.
fn forget(place: &Path) -> anyhow::Result<()> {
    let disk = OsDisk::open(place)?;
    for name in disk.list()? {
        disk.open(&name)?.settle()?;
    }
    Ok(())
}

fn read_all(place: &Path) -> anyhow::Result<Duration> {
    let disk = OsDisk::open(place)?;
    let began = Instant::now();
    for name in disk.list()? {
        let file = disk.open(&name)?;
        let (mut at, end) = (0, file.bytes()?);
        while at < end {
            at += file.read_at(at, 4 << 20)?.len() as u64;
        }
    }
    Ok(began.elapsed())
}
