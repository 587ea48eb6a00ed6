//! Readers of a partition: one that follows during a run, and one that reads everything at its end.

use std::sync::Arc;
use std::time::Duration;

use hulse_proto::batch::{BatchHeader, decode};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::Offset;
use serving_broker::{PartitionHandle, ReadChunk};
use tokio::time::{sleep, timeout};

use crate::broker::Cluster;
use crate::truth::RecordId;

/// Follows the log and notes what it shows, until it is dropped.
pub async fn follow(cluster: Arc<Cluster>, pause: Duration) {
    let mut next = Offset(0);
    loop {
        sleep(pause).await;
        let Some((broker, handle)) = cluster.route(false).await else {
            continue;
        };
        let floor = cluster.trims().floor(handle.leader_epoch());
        let read = broker.process.heard(handle.read(next, 4_000));
        let chunk = match timeout(Duration::from_secs(3), read).await {
            Ok(Some(Ok(chunk))) => chunk,
            Ok(Some(Err(fault))) if fault.reason == Reason::OffsetOutOfRange => {
                let start = handle.offsets().log_start;
                // An owner that was overtaken may not have what a later one has shown.
                next = next.max(start);
                continue;
            }
            _ => continue,
        };
        cluster.see(&handle);
        cluster.world.violations.check(next >= floor, || {
            format!("a read from {next} was served, the log had been trimmed to {floor}")
        });
        let records = records(&cluster, &chunk, next);
        next = chunk.end;
        let mut truth = cluster.truth();
        for (offset, id) in records {
            truth.see(offset, id);
        }
    }
}

/// Everything from the first offset to the high watermark.
///
/// # Errors
/// The fault that stops the reading.
pub async fn read_all(
    cluster: &Cluster,
    handle: &PartitionHandle,
) -> Result<Vec<(u64, RecordId)>, Fault> {
    let end = handle.offsets().high_watermark;
    let mut next = handle.offsets().log_start;
    let mut log = Vec::new();
    while next < end {
        let chunk = handle.read(next, 64 << 10).await?;
        if chunk.end <= next {
            cluster
                .world
                .violations
                .add(format!("reading stands still at {next} below {end}"));
            break;
        }
        log.extend(records(cluster, &chunk, next));
        next = chunk.end;
    }
    Ok(log)
}

/// The records of a chunk; its offsets are dense, and nothing is passed over.
fn records(cluster: &Cluster, chunk: &ReadChunk, start: Offset) -> Vec<(u64, RecordId)> {
    let violations = &cluster.world.violations;
    let mut next = chunk.prev_end.0;
    let mut found = Vec::new();
    for batch in &chunk.batches {
        let header = BatchHeader::view(&batch.bytes);
        let (Ok(header), Ok(records)) = (header, decode(&batch.bytes)) else {
            violations.add(format!("a batch behind {next} cannot be decoded"));
            continue;
        };
        violations.check(header.base_offset == Offset(next), || {
            format!("a batch says offset {}, {next} is next", header.base_offset)
        });
        for record in records {
            let offset = next + u64::from(record.offset_delta);
            let id = record.value.as_deref().and_then(RecordId::parse);
            match id {
                Some(id) => found.push((offset, id)),
                None => violations.add(format!("GHOST offset {offset} is no record of ours")),
            }
        }
        next += u64::from(header.span());
    }
    let whole = chunk.prev_end <= start && next == chunk.end.0 && chunk.skipped.is_empty();
    violations.check(whole, || {
        format!(
            "a read from {start} shows {} to {next}, and says {}",
            chunk.prev_end, chunk.end
        )
    });
    found
}
