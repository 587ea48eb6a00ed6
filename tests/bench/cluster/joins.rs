//! A bookie that is added under load: which share of what is stored from the next ledgers on it gets.

use std::path::Path;
use std::time::Duration;

use tokio::runtime::Runtime;

use super::super::table::Table;
use super::cell::Cell;
use super::pulse::Pulse;

const TOPIC: &str = "joined";
const PARTITIONS: u32 = 24;
const RATE: usize = 10_000_000;
/// A ledger of this length goes on in the next one.
const ROLL: (&str, &str) = ("HULSE_BROKER__LEDGER_ROLL_SIZE", "1MiB");
/// The time in which each partition fills a ledger of that length, twice: what was open when the bookie came is closed by then.
const ROLLED: Duration = Duration::from_secs(6);
/// What is looked at: several ledgers of each partition.
const LOOKED_AT: Duration = Duration::from_secs(15);
/// Small files, as four bookies are on one disk.
const FILES: (&str, &str) = ("HULSE_BOOKIE__LOG_FILE_SIZE", "64MiB");
const WRITTEN: &str = "hulse_bookie_log_written_total";

pub(crate) fn measure(folder: &Path, table: &mut Table, runtime: &Runtime) -> anyhow::Result<()> {
    let mut cell = Cell::start(folder, runtime, (3, 1), &[ROLL, FILES])?;
    let client = cell.client()?;
    let pulse = runtime.block_on(async {
        client.admin().create_topic(TOPIC, PARTITIONS).await?;
        Pulse::begin(&client, TOPIC, RATE).await
    })?;
    std::thread::sleep(ROLLED);
    cell.add_bookie()?;
    std::thread::sleep(ROLLED);
    let before = written(&cell)?;
    std::thread::sleep(LOOKED_AT);
    let after = written(&cell)?;
    let beats = runtime.block_on(pulse.end())?;
    let stored: Vec<f64> = after.iter().zip(before).map(|(a, b)| a - b).collect();
    let mean = stored.iter().sum::<f64>() / stored.len() as f64;
    let megabytes: Vec<String> = stored.iter().map(|of| format!("{:.0}", of / 1e6)).collect();
    table.row(
        "a fourth bookie under 10 MB/s: its share once ledgers have rolled",
        &format!("{:.2} of the mean", stored[stored.len() - 1] / mean),
        &format!(
            "stored by each in {LOOKED_AT:.0?}: {} MB; {} records failed",
            megabytes.join(", "),
            beats.failed
        ),
        "-",
        "0.80 to 1.20",
    );
    Ok(())
}

/// Bytes that each bookie has written to its log.
fn written(cell: &Cell) -> anyhow::Result<Vec<f64>> {
    cell.bookies.iter().map(|of| of.metric(WRITTEN)).collect()
}
