//! Which measurement is run, and on which topic.

use hulse_sdk::Compression;

use super::{codecs, consume, latency, produce};
use crate::arguments::{Bench, Load, Measured};
use crate::commands::session::{Session, run_wide};
use crate::failure::{Code, Failure, Stop};

/// Runs one of them.
///
/// # Errors
/// The server's, or the output's.
pub(crate) fn run(session: Session<'_>, command: &Bench) -> Result<(), Stop> {
    match command {
        Bench::Produce {
            load,
            file,
            format,
            compression,
            rate,
        } => match (codec_of(*compression), file) {
            (None, Some(file)) => run_wide(codecs::run(session, load, file, format)),
            (Some(codec), None) => run_wide(produce::run(session, load, codec, *rate)),
            (None, None) => Err(fits(
                "--compression all measures on records of yours",
                "name a FILE",
            )),
            (Some(_), Some(_)) => Err(fits(
                "one codec is measured on records that are made up",
                "write --compression all, or leave FILE out",
            )),
        },
        Bench::Consume { topic } => run_wide(consume::run(session, topic)),
        Bench::Latency {
            load,
            compression,
            rate,
        } => run_wide(latency::run(session, load, (*compression).into(), *rate)),
    }
}

/// `None`: all.
fn codec_of(measured: Measured) -> Option<Compression> {
    match measured {
        Measured::None => Some(Compression::None),
        Measured::Lz4 => Some(Compression::Lz4),
        Measured::Zstd => Some(Compression::Zstd),
        Measured::All => None,
    }
}

fn fits(why: &str, next: &str) -> Stop {
    Failure::new(Code::Usage, "file and codec do not fit")
        .why(why)
        .object("hulse bench produce")
        .next(next)
        .into()
}

/// Makes the topic of a measurement if it is not there; whether it was made.
pub(super) async fn ensure_topic(client: &hulse_sdk::Client, load: &Load) -> Result<bool, Failure> {
    match client
        .admin()
        .create_topic(&load.topic, load.partitions)
        .await
    {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == hulse_sdk::ErrorKind::Exists => Ok(false),
        Err(error) => Err(Failure::from_sdk(
            "cannot make the topic",
            &load.topic,
            &error,
        )),
    }
}
