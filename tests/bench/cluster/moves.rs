//! Planned hand-overs under 10 MB/s: how long the producer of the partition that moves hears nothing.

use std::path::Path;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use super::super::disk::percentile;
use super::super::table::Table;
use super::cell::Cell;
use super::control::Control;
use super::pulse::Pulse;

const TOPIC: &str = "moved";
const PARTITIONS: u32 = 4;
const RATE: usize = 10_000_000;
const MOVES: u32 = 20;
/// Between two of them.
const PAUSE: Duration = Duration::from_millis(500);
/// What a hand-over may take beside the disk.
const GAP: Duration = Duration::from_millis(300);

pub(crate) fn measure(folder: &Path, table: &mut Table, runtime: &Runtime) -> anyhow::Result<()> {
    let cell = Cell::start(folder, runtime, (3, 2), &[])?;
    let client = cell.client()?;
    let control = Control::begin(cell.folder())?;
    let (began, moves, beats) = runtime.block_on(async {
        client.admin().create_topic(TOPIC, PARTITIONS).await?;
        let pulse = Pulse::begin(&client, TOPIC, RATE).await?;
        tokio::time::sleep(4 * PAUSE).await;
        let (began, mut moves) = (Instant::now(), Vec::new());
        tokio::time::sleep(4 * PAUSE).await;
        for number in 0..MOVES {
            let partition = number % PARTITIONS;
            let owner = cell.owner(&client, TOPIC, partition).await?;
            let to = format!("broker-{}", 2 - owner);
            let asked = Instant::now();
            let admin = client.admin();
            admin.move_partition(TOPIC, partition, &to, false).await?;
            let done = Instant::now();
            tokio::time::sleep(PAUSE).await;
            moves.push((partition as usize, asked, done, Instant::now()));
        }
        anyhow::Ok((began, moves, pulse.end().await?))
    })?;
    let syncs = control.end()?;
    let gaps = moves.iter().map(|of| beats.gap(of.0, (of.1, of.3)));
    let answers = moves.iter().map(|of| of.2 - of.1);
    let (mut gaps, mut answers): (Vec<_>, Vec<_>) = (gaps.collect(), answers.collect());
    gaps.sort_unstable();
    answers.sort_unstable();
    let quiet = beats.longest_gap((began, moves[0].1));
    table.row(
        &format!("planned hand-over under 10 MB/s, {MOVES} times: gap of the producer"),
        &format!(
            "p50 {:.0?}, p99 {:.0?}; {} of {} records failed",
            percentile(&gaps, 50.0),
            percentile(&gaps, 99.0),
            beats.failed,
            beats.stored() as u64 + beats.failed,
        ),
        &format!(
            "no hand-over {quiet:.0?}; the disk's worst sync {:.0?}",
            syncs.worst()
        ),
        "-",
        &format!("p99 at most {:.0?}, none failed", GAP + 2 * syncs.worst()),
    );
    table.note(&format!(
        "a hand-over was answered after {:.0?} (p50), {:.0?} (worst)",
        percentile(&answers, 50.0),
        percentile(&answers, 100.0)
    ));
    Ok(())
}
