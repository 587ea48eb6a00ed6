//! Which measurement is run, and on which topic.

use hulse_sdk::{Client, Compression, ErrorKind};

use super::{codecs, consume, latency, produce};
use crate::arguments::{Bench, Load, Measured};
use crate::commands::confirm::agreed;
use crate::commands::session::{Session, run_wide};
use crate::failure::{Code, Failure, Stop};
use crate::output::grouped;

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

/// Makes the topic of a measurement if it is not there; whether it was made. Records of somebody's are not mixed with records that mean
/// nothing unless they say so; `added` says how many. The topic that measurements are made on by default has no others.
pub(super) async fn ensure_topic(
    session: Session<'_>,
    client: &Client,
    load: &Load,
    added: &str,
) -> Result<bool, Failure> {
    match client
        .admin()
        .create_topic(&load.topic, load.partitions)
        .await
    {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == ErrorKind::Exists => {
            if load.topic != Load::TOPIC {
                ask_about_records(session, client, &load.topic, added).await?;
            }
            Ok(false)
        }
        Err(error) => Err(Failure::from_sdk(
            "cannot make the topic",
            &load.topic,
            &error,
        )),
    }
}

async fn ask_about_records(
    session: Session<'_>,
    client: &Client,
    topic: &str,
    added: &str,
) -> Result<(), Failure> {
    let described = client.admin().describe_topic(topic).await;
    let described =
        described.map_err(|error| Failure::from_sdk("cannot look at the topic", topic, &error))?;
    let mut held = 0;
    for partition in described.partition {
        // One that is not open yet is opened by the question.
        let offsets = client.admin().offsets(topic, partition.index, None).await;
        let offsets = offsets
            .map_err(|error| Failure::from_sdk("cannot look at the topic", topic, &error))?;
        held += offsets.end.0.saturating_sub(offsets.start.0);
    }
    match held {
        0 => Ok(()),
        held => agreed(
            session,
            &format!(
                "add {added} that mean nothing to topic {topic}, which holds {} records",
                grouped(held)
            ),
        ),
    }
}

/// How many records a measurement adds, in words.
pub(super) fn added(load: &Load, rate: Option<u32>) -> String {
    match rate {
        Some(rate) => {
            let records = load.duration.0.as_secs_f64() * f64::from(rate);
            format!("about {} records", grouped(records as u64))
        }
        None => format!(
            "as many records as go within {} (some 100,000 a second on a fast server)",
            load.duration
        ),
    }
}

/// Says what is left of a measurement.
pub(super) fn tell_made(session: Session<'_>, topic: &str, made: bool) {
    if made {
        session.output.say(&format!(
            "topic {topic} was made for this and stays; hulse topics delete {topic} deletes it"
        ));
    }
}
