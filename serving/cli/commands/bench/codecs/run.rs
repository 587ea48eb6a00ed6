//! The order of the measurement.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hulse_proto::batch::Compression;
use hulse_sdk::Client;

use super::pack;
use super::sample::Sample;
use super::send::{Sent, round};
use super::verdict::{Figures, judge};
use super::view::{CodecView, CodecsView};
use crate::arguments::Load;
use crate::commands::bench::run::ensure_topic;
use crate::commands::session::Session;
use crate::failure::{Failure, Stop};
use crate::output::Progress;

/// All codecs of Kafka's batches, and whether clients of ours send them; none first.
const CODECS: [(Compression, &str, bool); 5] = [
    (Compression::None, "none", true),
    (Compression::Lz4, "lz4", true),
    (Compression::Zstd, "zstd", true),
    (Compression::Gzip, "gzip", false),
    (Compression::Snappy, "snappy", false),
];
/// Each codec is measured so often, all in turn.
const ROUNDS: u32 = 3;

/// Runs it.
///
/// # Errors
/// The file's, the server's, or the output's.
pub(crate) async fn run(
    session: Session<'_>,
    load: &Load,
    file: &Path,
    format: &str,
) -> Result<(), Stop> {
    let sample = Arc::new(Sample::read(file, format).await?);
    let client = session.client()?;
    let added = format!(
        "the records of {}, as often as they go in {} times {},",
        file.display(),
        CODECS.len(),
        load.duration
    );
    let made = ensure_topic(session, &client, load, &added).await?;
    session.output.say(&format!(
        "measuring none and {} codecs for {} each, on topic {}",
        CODECS.len() - 1,
        load.duration,
        load.topic
    ));
    let measured = measure(session, &client, load, &sample).await;
    if made {
        // What was made for the measurement goes with it, also where that failed.
        let deleted = client.admin().delete_topic(&load.topic).await;
        deleted
            .map_err(|error| Failure::from_sdk("cannot delete the topic", &load.topic, &error))?;
    }
    let (packed, rounds) = measured?;
    let figures: Vec<Figures> = CODECS
        .iter()
        .zip(packed.iter().zip(&rounds))
        .map(|((_, codec, ours), (packed, rounds))| Figures {
            codec,
            ours: *ours,
            ratio: packed.ratio,
            rates: rounds.iter().map(Sent::rate).collect(),
            busy: rounds.iter().map(|sent| sent.busy).sum::<f64>() / rounds.len().max(1) as f64,
        })
        .collect();
    let view = CodecsView {
        topic: load.topic.clone(),
        file: file.display().to_string(),
        sample_records: sample.records,
        sample_bytes: sample.bytes,
        codec: figures
            .iter()
            .zip(packed.iter().zip(&rounds))
            .map(|(figures, (packed, rounds))| line(figures, packed, rounds))
            .collect(),
        limit: "unknown",
        take: "none",
        why: String::new(),
    };
    let (view, told) = view.judged(judge(&figures), is_local(&session.globals.server));
    session.output.one(&view)?;
    if session.output.shape.for_people() {
        session.output.text(&format!("\n{told}\n"))?;
    }
    Ok(())
}

/// What each codec makes of the sample, and its rounds.
async fn measure(
    session: Session<'_>,
    client: &Client,
    load: &Load,
    sample: &Arc<Sample>,
) -> Result<(Vec<pack::Packed>, Vec<Vec<Sent>>), Failure> {
    let mut packed = Vec::new();
    for (codec, ..) in CODECS {
        packed.push(pack::measure(sample, codec)?);
    }
    let each = load.duration.0 / ROUNDS;
    // A first round without a word: it opens partitions and files.
    let first = each.min(Duration::from_millis(300));
    round(client, &load.topic, sample, Compression::None, first).await?;
    let mut rounds: Vec<Vec<Sent>> = vec![Vec::new(); CODECS.len()];
    let mut progress = Progress::new(session.output, "measuring", Some(u64::from(ROUNDS) * 5));
    for number in 0..ROUNDS {
        for (slot, (codec, ..)) in CODECS.iter().enumerate() {
            progress.at(u64::from(number) * 5 + slot as u64);
            rounds[slot].push(round(client, &load.topic, sample, *codec, each).await?);
        }
    }
    Ok((packed, rounds))
}

/// One line is of one round, the middle one, so that its figures agree with each other and with the judgement.
fn line(figures: &Figures, packed: &pack::Packed, rounds: &[Sent]) -> CodecView {
    let mut rounds: Vec<&Sent> = rounds.iter().collect();
    rounds.sort_by(|a, b| a.rate().total_cmp(&b.rate()));
    let middle = rounds.get(rounds.len() / 2).copied().copied();
    let middle = middle.unwrap_or_default();
    let seconds = middle.seconds.max(1e-9);
    CodecView {
        codec: figures.codec,
        ours: figures.ours,
        ratio: packed.ratio,
        client_megabytes_per_second: packed.bytes_per_second / 1e6,
        records_per_second: middle.rate(),
        scatter: figures.scatter(),
        megabytes_per_second: middle.bytes as f64 / seconds / 1e6,
        wire_megabytes_per_second: middle.wire_bytes as f64 / seconds / 1e6,
        client_busy: middle.busy,
    }
}

/// The server is on this machine, so no network is on the way.
fn is_local(server: &str) -> bool {
    let hosts = server.split(',').map(|one| {
        let one = one.trim();
        let one = one.split_once("://").map_or(one, |(_, rest)| rest);
        one.rsplit_once(':').map_or(one, |(host, _)| host)
    });
    let mut hosts = hosts.map(|host| host.trim_matches(['[', ']']).to_owned());
    hosts.all(|host| {
        let loopback = host
            .parse::<std::net::IpAddr>()
            .is_ok_and(|ip| ip.is_loopback());
        host == "localhost" || loopback
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn server_on_this_machine_is_known_by_its_address() {
        for (server, local) in [
            ("127.0.0.1:7400", true),
            ("grpc://localhost:7400", true),
            ("[::1]:7400", true),
            ("10.0.0.1:7400", false),
            ("localhost:1,broker:2", false),
        ] {
            assert_eq!(is_local(server), local, "{server}");
        }
    }
}
