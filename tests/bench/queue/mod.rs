//! Shared work over a real broker: records acked one by one by many consumers, with keys and without; how long an ack takes to be durable
//! and a record to be there; slow handlers; what acks cost the disk; many subscriptions of one topic.
//!
//! The reference of a rate is a reader of the same records in the same run: it decodes as much and says nothing back.

mod acks;
mod many;
mod paced;
mod support;
mod throughput;

use std::path::Path;

use tokio::runtime::Runtime;

use super::table::Table;

/// The parts that are asked for.
pub(crate) fn measure(
    wants: impl Fn(&str) -> bool,
    folder: &Path,
    table: &mut Table,
    runtime: &Runtime,
) -> anyhow::Result<()> {
    if wants("queue-acks") {
        throughput::queue(folder, table, runtime)?;
    }
    if wants("queue-keyed") {
        throughput::keyed(folder, table, runtime)?;
    }
    if wants("queue-paced") {
        paced::measure(folder, table, runtime)?;
    }
    if wants("queue-handlers") {
        paced::handlers(folder, table, runtime)?;
    }
    if wants("queue-ranges") {
        acks::bytes_per_range(folder, table, runtime)?;
    }
    if wants("queue-many") {
        many::measure(folder, table, runtime)?;
    }
    Ok(())
}
