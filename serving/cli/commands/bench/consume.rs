//! Reads a topic from its start to its end, batch by batch.

use hulse_sdk::Start;
use tokio::time::Instant;

use super::figures::{Figures, Throughput};
use crate::commands::session::Session;
use crate::failure::{Failure, Stop};
use crate::output::Progress;

/// Fetched ahead.
const BYTES_IN_FLIGHT: u32 = 32 << 20;

/// Runs it.
///
/// # Errors
/// The server's, or the output's.
pub(super) async fn run(session: Session<'_>, topic: &str) -> Result<(), Stop> {
    let failed = |error: hulse_sdk::Error| Failure::from_sdk("cannot consume", topic, &error);
    let client = session.client()?;
    let began = Instant::now();
    let reader = client
        .reader(topic)
        .start(Start::Earliest)
        .follow(false)
        .max_bytes_in_flight(BYTES_IN_FLIGHT)
        .build();
    let mut reader = reader.await.map_err(failed)?;
    let (mut records, mut bytes) = (0, 0);
    let mut progress = Progress::new(session.output, "reading", None);
    while let Some(batch) = reader.next_batch().await.map_err(failed)? {
        records += u64::from(batch.header.count);
        bytes += batch.bytes.len() as u64;
        progress.at(records);
    }
    drop(progress);
    let figures = Figures {
        topic: reader.topic().to_owned(),
        throughput: Throughput::new(records, bytes, 0, began.elapsed()),
        latency: Vec::new(),
    };
    session.output.one(&figures)
}
