//! Copies before an answer: one, two or three of three, side by side.

use std::path::Path;
use std::time::{Duration, Instant};

use tokio::runtime::Runtime;

use super::super::table::Table;
use super::cell::Cell;
use super::control::Control;
use super::pulse::Pulse;

const TOPIC: &str = "acknowledged";
const PARTITIONS: u32 = 4;
const RATE: usize = 2_000_000;
const LASTS: Duration = Duration::from_secs(10);

/// What the loss of disks takes from what was acknowledged.
const LOSSES: [(&str, &str); 3] = [
    (
        "1",
        "one disk that is lost may take what the two others did not have yet",
    ),
    ("2", "any one disk may be lost, and nothing is"),
    ("3", "any two disks may be lost, and nothing is"),
];

pub(crate) fn measure(folder: &Path, table: &mut Table, runtime: &Runtime) -> anyhow::Result<()> {
    for (ack, loss) in LOSSES {
        let settings = [
            ("HULSE_BROKER__REPLICATION__ENSEMBLE", "3"),
            ("HULSE_BROKER__REPLICATION__WRITE_QUORUM", "3"),
            ("HULSE_BROKER__REPLICATION__ACK_QUORUM", ack),
        ];
        let cell = Cell::start(folder, runtime, (3, 1), &settings)?;
        let client = cell.client()?;
        let control = Control::begin(cell.folder())?;
        let (within, beats) = runtime.block_on(async {
            client.admin().create_topic(TOPIC, PARTITIONS).await?;
            let pulse = Pulse::begin(&client, TOPIC, RATE).await?;
            tokio::time::sleep(LASTS / 5).await;
            let began = Instant::now();
            tokio::time::sleep(LASTS).await;
            anyhow::Ok(((began, Instant::now()), pulse.end().await?))
        })?;
        let syncs = control.end()?;
        table.row(
            &format!("Qw 3, Qa {ack}, three bookies, 2 MB/s: from send to answer"),
            &format!(
                "p50 {:.1?}, p99 {:.1?}; {} failed",
                beats.wait(50.0, within),
                beats.wait(99.0, within),
                beats.failed
            ),
            &format!(
                "the disk's sync p50 {:.1?}, p99 {:.1?}",
                syncs.median(),
                syncs.p99()
            ),
            "-",
            loss,
        );
    }
    Ok(())
}
