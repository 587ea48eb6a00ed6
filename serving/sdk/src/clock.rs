//! The date, for record timestamps only.

use std::time::{SystemTime, UNIX_EPOCH};

use hulse_proto::time::{TimestampMs, WallClock};

/// The operating system's date. Simulations replace it by [`crate::ClientBuilder::clock`].
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct SystemClock;

impl WallClock for SystemClock {
    fn now_ms(&self) -> TimestampMs {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => since.as_millis() as i64,
            Err(before) => -(before.duration().as_millis() as i64),
        }
    }
}
