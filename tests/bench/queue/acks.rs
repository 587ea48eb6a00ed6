//! What acks cost the disk: every other record is acked by itself, so that each ack is a range of its own.

use std::path::Path;

use futures::future::join_all;
use tokio::runtime::Runtime;

use super::support::{PATIENCE, fill, share};
use crate::server::Server;
use crate::table::Table;

/// As many as a cursor may have (serving.md B2.7), less a few.
const RANGES: usize = 9_000;
/// Receipts that are waited for together.
const TOGETHER: usize = 100;

pub(super) fn bytes_per_range(
    folder: &Path,
    table: &mut Table,
    runtime: &Runtime,
) -> anyhow::Result<()> {
    let server = Server::start(folder, "off")?;
    let written = runtime.block_on(async {
        fill("ranges", 1, 2 * RANGES, 0).await?;
        // As much as the window of a cursor has, and room for all of it.
        let consumer = share("ranges", "c", false, 100_000).await?;
        let before = server.device_written_bytes()?;
        let (mut acked, mut kept) = (0, Vec::new());
        while acked < RANGES {
            let taken = consumer.receive(2 * TOGETHER, PATIENCE).await?;
            anyhow::ensure!(!taken.is_empty(), "{acked} are acked, and nothing comes");
            let odd = taken.iter().filter(|message| message.offset.0 % 2 == 1);
            let receipts: Vec<_> = odd.map(|message| consumer.ack(message)).collect();
            acked += receipts.len();
            for receipt in join_all(receipts).await {
                receipt?;
            }
            kept.extend(taken);
        }
        let written = server.device_written_bytes()? - before;
        drop(kept);
        consumer.close().await?;
        anyhow::Ok(written)
    })?;
    let each = written as f64 / RANGES as f64;
    table.row(
        &format!("{RANGES} ack ranges of one cursor, {TOGETHER} at a time"),
        &format!("{each:.0} B written for each"),
        "two offsets are 16 B",
        &format!("{:.1}", each / 16.0),
        "at most 100 B",
    );
    Ok(())
}
