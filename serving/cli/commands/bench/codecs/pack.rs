//! What a codec makes of the records, and what that costs the client: one thread, no server.

use std::time::Duration;

use hulse_proto::batch::Compression;
use tokio::time::Instant;

use super::sample::{Sample, build};
use crate::failure::Failure;

/// Measured at least this long, unless the sample is gone through so often …
const MEASURE_FOR: Duration = Duration::from_millis(300);
/// … times.
const PASSES_MAX: u32 = 50;

/// One codec.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Packed {
    /// Keys and values per byte of a batch.
    pub(super) ratio: f64,
    /// Of keys and values, per second of one processor: building, compressing, checksum.
    pub(super) bytes_per_second: f64,
}

/// Measures a codec on the whole sample.
///
/// # Errors
/// A record is too large.
pub(super) fn measure(sample: &Sample, codec: Compression) -> Result<Packed, Failure> {
    let began = Instant::now();
    let (mut raw, mut packed, mut passes) = (0_u64, 0_u64, 0);
    while passes == 0 || (began.elapsed() < MEASURE_FOR && passes < PASSES_MAX) {
        for records in &sample.batches {
            let (batch, bytes) = build(records, codec, 0)?;
            raw += bytes as u64;
            packed += batch.len() as u64;
        }
        passes += 1;
    }
    let seconds = began.elapsed().as_secs_f64().max(1e-9);
    Ok(Packed {
        ratio: raw as f64 / packed.max(1) as f64,
        bytes_per_second: raw as f64 / seconds,
    })
}
