//! Which measurement is run, and on which topic.

use super::{consume, latency, produce};
use crate::arguments::{Bench, Load};
use crate::commands::session::{Session, run_wide};
use crate::failure::{Failure, Stop};

/// Runs one of them.
///
/// # Errors
/// The server's, or the output's.
pub(crate) fn run(session: Session<'_>, command: &Bench) -> Result<(), Stop> {
    match command {
        Bench::Produce { load, rate } => run_wide(produce::run(session, load, *rate)),
        Bench::Consume { topic } => run_wide(consume::run(session, topic)),
        Bench::Latency { load, rate } => run_wide(latency::run(session, load, *rate)),
    }
}

/// Makes the topic of a measurement if it is not there.
pub(super) async fn ensure_topic(client: &hulse_sdk::Client, load: &Load) -> Result<(), Failure> {
    match client
        .admin()
        .create_topic(&load.topic, load.partitions)
        .await
    {
        Ok(_) => Ok(()),
        Err(error) if error.kind() == hulse_sdk::ErrorKind::Exists => Ok(()),
        Err(error) => Err(Failure::from_sdk(
            "cannot make the topic",
            &load.topic,
            &error,
        )),
    }
}
