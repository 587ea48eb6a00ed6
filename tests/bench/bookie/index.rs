//! What the index of 10^8 entries takes: memory, the time and memory of a start, and looking entries up.
//!
//! The real server starts on simulated files (`footers`); a child process of this program then opens them as the server does and
//! looks up places, without the bodies that these files lack. A look-up that is not in the cache reads one page of slots, so its
//! reference is a read of 4 KiB at a random place of the same files.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bookie_metadata::{EmbeddedOptions, EmbeddedStore, counter};
use bookie_node::core::{NodeState, Rebuild};
use bookie_node::log::file_name;
use bookie_node::log::recovery::recover;
use bookie_node::{Disk, Locator, NodeConfig, OsDisk};
use hulse_proto::id::{CellId, EntryId, LedgerId, NodeName};
use hulse_proto::ledger::LEDGER_IDS_KEY;
use hulse_proto::mutant::Mutation;
use rand_chacha::ChaCha12Rng;
use rand_chacha::rand_core::{RngCore as _, SeedableRng as _};
use tokio::runtime::Runtime;
use uuid::Uuid;

use super::super::disk::{forget_pages, percentile};
use super::super::server::{Server, memory};
use super::super::table::Table;
use super::footers::{self, ENTRIES, FIRST_LEDGER, Shape};

/// The child's first argument.
pub(crate) const CHILD: &str = "bookie-index-child";
/// Random look-ups of one run.
const LOOKUPS: usize = 20_000;
/// Entries of one sequential look-up: 1 MiB of 4 KiB ones.
const STRIDE: u64 = 256;
const LEDGERS: [u64; 2] = [100, 1_000];

pub(crate) fn measure(folder: &Path, table: &mut Table, runtime: &Runtime) -> anyhow::Result<()> {
    for ledgers in LEDGERS {
        let home = tempfile::tempdir_in(folder)?;
        measure_shape(home.path(), table, runtime, Shape { ledgers })?;
    }
    Ok(())
}

/// Metadata that never gave the numbers of these ledgers would be taken for those of an older time.
async fn give_numbers(home: &Path, shape: Shape) -> anyhow::Result<()> {
    let file = home.join("data").join("metadata").join("store.redb");
    let store = EmbeddedStore::open(file, EmbeddedOptions::default())?;
    counter::reserve(&store, LEDGER_IDS_KEY, FIRST_LEDGER + shape.ledgers).await?;
    store.close().await;
    Ok(())
}

fn measure_shape(
    home: &Path,
    table: &mut Table,
    runtime: &Runtime,
    shape: Shape,
) -> anyhow::Result<()> {
    let log = home.join("data").join("bookie");
    let server = Server::start(home, "always")?;
    let (empty, empty_ready) = (server.resident()?, server.ready_after);
    server.kill_and_keep();
    runtime.block_on(give_numbers(home, shape))?;
    let identity = footers::identity_of(&log)?;
    let footers = footers::write(&log, identity, shape)?;
    let how = forget_pages(&log)?;
    let server = Server::start(home, "always")?;
    let what = format!(
        "10^8 entries of 4 KiB in {} ledgers, {} files",
        shape.ledgers,
        shape.files()
    );
    let (peak, read) = (
        server.peak_resident()?,
        server.device_read_bytes()? as f64 / 1e6,
    );
    table.row(
        &format!("start on {what}"),
        &format!(
            "{:.2?}, {read:.0} MB read, at most {peak:.0} MB resident",
            server.ready_after
        ),
        &format!("on an empty directory {empty_ready:.2?}, {empty:.0} MB"),
        &format!("{:.0} MB more", peak - empty),
        "at most 2 s with 10 GiB; this is 430 GB",
    );
    table.note(&format!(
        "footers take {:.0} MB; before the start {how}",
        footers as f64 / 1e6
    ));
    server.kill_and_keep();
    forget_pages(&log)?;
    rows_of_look_ups(table, &what, shape, &look_up(&log, shape)?)
}

fn rows_of_look_ups(
    table: &mut Table,
    what: &str,
    shape: Shape,
    found: &BTreeMap<String, f64>,
) -> anyhow::Result<()> {
    let budget = config().index_cache_bytes as f64 / 1e6;
    let of = |name: &str| {
        found
            .get(name)
            .copied()
            .with_context(|| format!("no {name}"))
    };
    table.row(
        &format!("index of {what}"),
        &format!(
            "{:.1} MB by its own count, {:.1} MB resident; with the cache full {:.1} MB",
            of("index")? / 1e6,
            of("resident")?,
            of("resident-full")?
        ),
        &format!(
            "{} runs of 40 bytes: {:.1} MB",
            shape.runs(),
            shape.runs() as f64 * 40.0 / 1e6
        ),
        &format!("{:.2} of index_cache_bytes", of("index")? / 1e6 / budget),
        &format!("{budget:.1} MB (index_cache_bytes)"),
    );
    table.row(
        &format!("look-up among {what}"),
        &format!(
            "random p50 {:.1} µs, p99 {:.1} µs; again p50 {:.1} µs; in sequence {:.3} µs each",
            of("cold-50")?,
            of("cold-99")?,
            of("warm-50")?,
            of("sequence")?
        ),
        &format!(
            "random read of 4 KiB p50 {:.1} µs, p99 {:.1} µs; again p50 {:.1} µs",
            of("read-cold-50")?,
            of("read-cold-99")?,
            of("read-warm-50")?
        ),
        &format!("{:.2}", of("cold-50")? / of("read-cold-50")?),
        "one read of a page at most",
    );
    Ok(())
}

fn config() -> NodeConfig {
    let name = NodeName::new("bookie-1").expect("a short name is a name");
    NodeConfig::new(CellId(Uuid::nil()), name)
}

/// What the child prints: names and numbers.
fn look_up(log: &Path, shape: Shape) -> anyhow::Result<BTreeMap<String, f64>> {
    let output = Command::new(std::env::current_exe()?)
        .arg(CHILD)
        .arg(log)
        .arg(shape.ledgers.to_string())
        .output()?;
    let error = String::from_utf8_lossy(&output.stderr);
    anyhow::ensure!(output.status.success(), "the child failed: {error}");
    let words = String::from_utf8(output.stdout)?;
    let lines = words.lines().map(|line| {
        let (name, number) = line.split_once(' ').context("a name and a number")?;
        Ok((name.to_owned(), number.parse()?))
    });
    lines.collect()
}

/// The child process.
pub(crate) fn child(arguments: &[String]) -> anyhow::Result<()> {
    let [log, ledgers] = arguments else {
        anyhow::bail!("a folder and a number of ledgers");
    };
    let (log, shape) = (
        PathBuf::from(log),
        Shape {
            ledgers: ledgers.parse()?,
        },
    );
    let before = memory("self", "VmRSS:")?;
    let disk: Arc<dyn Disk> = Arc::new(OsDisk::open(&log)?);
    let (state, locator) = open(&disk, &log)?;
    println!("index {}", state.index_bytes());
    println!("resident {}", memory("self", "VmRSS:")? - before);
    let mut rng = ChaCha12Rng::seed_from_u64(1);
    let places: Vec<u64> = (0..LOOKUPS).map(|_| rng.next_u64()).collect();
    for state_of_cache in ["cold", "warm"] {
        let times = timed(&places, |place| {
            let ledger = LedgerId(FIRST_LEDGER + place % shape.ledgers);
            let entry = EntryId(place / shape.ledgers % shape.length());
            locate(&state, &locator, (ledger, entry), 1)
        })?;
        print_times(state_of_cache, &times);
    }
    println!("resident-full {}", memory("self", "VmRSS:")? - before);
    let began = Instant::now();
    let mut located = 0;
    for number in 0..shape.length() / STRIDE {
        let at = (LedgerId(FIRST_LEDGER), EntryId(number * STRIDE));
        locate(&state, &locator, at, STRIDE)?;
        located += STRIDE;
    }
    println!(
        "sequence {}",
        began.elapsed().as_secs_f64() * 1e6 / located as f64
    );
    references(&disk, &log, shape, &places)
}

fn open(disk: &Arc<dyn Disk>, log: &Path) -> anyhow::Result<(NodeState, Locator)> {
    let identity = footers::identity_of(log)?;
    let mut rebuild = Rebuild::default();
    let mutation = Mutation::default();
    let mut recovered = recover(disk.as_ref(), &identity, true, mutation, &mut rebuild)?;
    let state = rebuild.finish(&mut recovered)?;
    let files = recovered.files.clone();
    let locator = Locator::new(Arc::clone(disk), files, config().index_cache_bytes);
    anyhow::ensure!(
        state.files.len() as u64 * 62_000 >= ENTRIES,
        "files are missing"
    );
    Ok((state, locator))
}

fn locate(
    state: &NodeState,
    locator: &Locator,
    (ledger, entry): (LedgerId, EntryId),
    count: u64,
) -> anyhow::Result<()> {
    let held = state
        .ledgers
        .get(&ledger)
        .context("the ledger is missing")?;
    let wanted = held.entries.want_run(entry, entry.0 + count);
    let (found, fault) = locator.locate(&wanted);
    anyhow::ensure!(fault.is_none(), "{fault:?}");
    anyhow::ensure!(
        found.len() as u64 == count,
        "{} of {count} were found",
        found.len()
    );
    Ok(())
}

/// Reads of 4 KiB at random places of the pages, of other files' than the look-ups read lately.
fn references(
    disk: &Arc<dyn Disk>,
    log: &Path,
    shape: Shape,
    places: &[u64],
) -> anyhow::Result<()> {
    forget_pages(log)?;
    let files = (0..shape.files()).map(|number| disk.open(&file_name(number)));
    let files: Result<Vec<_>, _> = files.collect();
    let files = files?;
    for state_of_cache in ["read-cold", "read-warm"] {
        let times = timed(places, |place| {
            let file = &files[(place % shape.files()) as usize];
            let pages = (shape.run() * shape.ledgers).div_ceil(255);
            let page = place / shape.files() % pages;
            // The directory and the trailer behind the pages take less than this.
            let end = file.bytes()?.saturating_sub(64 << 10);
            let at = end.saturating_sub((page + 1) * 4096);
            let read = file.read_at(at, 4096)?;
            anyhow::ensure!(read.len() == 4096, "a short read");
            Ok(())
        })?;
        print_times(state_of_cache, &times);
    }
    Ok(())
}

fn timed(
    places: &[u64],
    mut work: impl FnMut(u64) -> anyhow::Result<()>,
) -> anyhow::Result<Vec<Duration>> {
    let mut times = Vec::with_capacity(places.len());
    for place in places {
        let began = Instant::now();
        work(*place)?;
        times.push(began.elapsed());
    }
    times.sort_unstable();
    Ok(times)
}

fn print_times(name: &str, times: &[Duration]) {
    for hundredths in [50, 99] {
        let time = percentile(times, f64::from(hundredths));
        println!("{name}-{hundredths} {}", time.as_secs_f64() * 1e6);
    }
}
