//! SIGKILL under 10 MB/s: of brokers, whose partitions another one takes over, and of bookies, which are missed by nobody.

use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context as _;
use tokio::runtime::Runtime;

use super::super::table::Table;
use super::cell::Cell;
use super::control::Control;
use super::pulse::Pulse;

const TOPIC: &str = "killed";
const PARTITIONS: u32 = 4;
const RATE: usize = 10_000_000;
/// Each kind of process is killed so often.
const ROUNDS: usize = 3;
/// Before a kill: all is as usual.
const QUIET: Duration = Duration::from_secs(3);
/// After the kill of a broker: longer than it may take.
const TAKEN_OVER: Duration = Duration::from_secs(10);
/// After the kill of a bookie: longer than it is waited for before it is replaced.
const MISSED: Duration = Duration::from_secs(5);
/// What a stall may take beside the disk.
const STALL: Duration = Duration::from_millis(300);

/// From the first moment to the last.
type Within = (Instant, Instant);

pub(crate) fn measure(folder: &Path, table: &mut Table, runtime: &Runtime) -> anyhow::Result<()> {
    let mut cell = Cell::start(folder, runtime, (3, 2), &[])?;
    owners(&mut cell, table, runtime)?;
    bookies(&mut cell, table, runtime)
}

fn begin(cell: &Cell, runtime: &Runtime) -> anyhow::Result<Pulse> {
    let client = cell.client()?;
    runtime.block_on(async {
        // It is there from the second time on.
        drop(client.admin().create_topic(TOPIC, PARTITIONS).await);
        Pulse::begin(&client, TOPIC, RATE).await
    })
}

fn owners(cell: &mut Cell, table: &mut Table, runtime: &Runtime) -> anyhow::Result<()> {
    let client = cell.client()?;
    let control = Control::begin(cell.folder())?;
    let pulse = begin(cell, runtime)?;
    let mut kills = Vec::new();
    for _ in 0..ROUNDS {
        std::thread::sleep(QUIET);
        let victim = runtime.block_on(cell.owner(&client, TOPIC, 0))?;
        kills.push(cell.brokers[victim].kill()?);
        std::thread::sleep(TAKEN_OVER);
        cell.brokers[victim].start()?;
    }
    let beats = runtime.block_on(pulse.end())?;
    let syncs = control.end()?;
    let resumed: Option<Vec<Duration>> = kills.iter().map(|of| beats.resumed(*of)).collect();
    let resumed = resumed.context("a partition is not served any more")?;
    table.row(
        "SIGKILL of an owner under 10 MB/s: produce goes on after",
        &format!("{}; {} failed", in_words(&resumed), beats.failed),
        &format!("lease 3 s; the disk's worst sync {:.0?}", syncs.worst()),
        "-",
        "at most 5 s, none failed",
    );
    Ok(())
}

fn bookies(cell: &mut Cell, table: &mut Table, runtime: &Runtime) -> anyhow::Result<()> {
    let control = Control::begin(cell.folder())?;
    let pulse = begin(cell, runtime)?;
    let (mut quiet, mut killed): (Vec<Within>, Vec<Within>) = (Vec::new(), Vec::new());
    for victim in 0..ROUNDS {
        std::thread::sleep(QUIET);
        let began = Instant::now();
        std::thread::sleep(MISSED);
        quiet.push((began, Instant::now()));
        std::thread::sleep(QUIET);
        let event = cell.bookies[victim].kill()?;
        std::thread::sleep(MISSED);
        killed.push((event, Instant::now()));
        cell.bookies[victim].start()?;
    }
    let beats = runtime.block_on(pulse.end())?;
    let syncs = control.end()?;
    let stalls = |windows: &[Within]| -> Vec<Duration> {
        windows.iter().map(|of| beats.longest_gap(*of)).collect()
    };
    table.row(
        "SIGKILL of a bookie under 10 MB/s: longest stall",
        &format!("{}; {} failed", in_words(&stalls(&killed)), beats.failed),
        &format!(
            "before it {}; the disk's worst sync {:.0?}",
            in_words(&stalls(&quiet)),
            syncs.worst()
        ),
        "-",
        &format!("at most {:.0?}", STALL + syncs.worst()),
    );
    Ok(())
}

fn in_words(times: &[Duration]) -> String {
    let words: Vec<String> = times.iter().map(|time| format!("{time:.2?}")).collect();
    words.join(", ")
}
