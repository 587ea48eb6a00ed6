//! The order of the measurement.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use hulse_proto::batch::Compression;

use super::pack;
use super::sample::Sample;
use super::send::{Sent, round};
use super::verdict::{Figures, judge};
use super::view::{CodecView, CodecsView};
use crate::arguments::Load;
use crate::commands::bench::run::ensure_topic;
use crate::commands::session::Session;
use crate::failure::Stop;
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
    ensure_topic(&client, load).await?;
    let mut packed = Vec::new();
    for (codec, ..) in CODECS {
        packed.push(pack::measure(&sample, codec)?);
    }
    // A first round without a word: it opens partitions and files.
    let each = load.duration.0 / ROUNDS;
    round(
        &client,
        &load.topic,
        &sample,
        Compression::None,
        each.min(Duration::from_millis(300)),
    )
    .await?;
    let mut rounds: Vec<Vec<Sent>> = vec![Vec::new(); CODECS.len()];
    let mut progress = Progress::new(session.output, "measuring", Some(u64::from(ROUNDS) * 5));
    for number in 0..ROUNDS {
        for (slot, (codec, ..)) in CODECS.iter().enumerate() {
            progress.at(u64::from(number) * 5 + slot as u64);
            rounds[slot].push(round(&client, &load.topic, &sample, *codec, each).await?);
        }
    }
    drop(progress);
    let figures: Vec<Figures> = CODECS
        .iter()
        .zip(packed.iter().zip(&rounds))
        .map(|((_, codec, ours), (packed, rounds))| Figures {
            codec,
            ours: *ours,
            ratio: packed.ratio,
            rates: rounds
                .iter()
                .map(|sent| sent.records as f64 / sent.seconds)
                .collect(),
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

fn line(figures: &Figures, packed: &pack::Packed, rounds: &[Sent]) -> CodecView {
    let sum = |of: fn(&Sent) -> f64| rounds.iter().map(of).sum::<f64>();
    let seconds = sum(|sent| sent.seconds).max(1e-9);
    CodecView {
        codec: figures.codec,
        ratio: packed.ratio,
        client_megabytes_per_second: packed.bytes_per_second / 1e6,
        records_per_second: figures.rate(),
        megabytes_per_second: sum(|sent| sent.bytes as f64) / seconds / 1e6,
        wire_megabytes_per_second: sum(|sent| sent.wire_bytes as f64) / seconds / 1e6,
        client_busy: figures.busy,
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
