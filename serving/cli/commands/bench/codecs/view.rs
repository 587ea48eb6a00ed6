//! The answer: a line per codec, then the judgement.

use serde::Serialize;

use super::verdict::{Limit, Verdict};
use crate::output::{Field, Table, View, grouped};

/// The whole measurement.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct CodecsView {
    pub(super) topic: String,
    pub(super) file: String,
    pub(super) sample_records: u64,
    pub(super) sample_bytes: u64,
    pub(super) codec: Vec<CodecView>,
    pub(super) limit: &'static str,
    pub(super) take: &'static str,
    pub(super) why: String,
}

/// One codec.
#[derive(Debug, Clone, Serialize)]
pub(super) struct CodecView {
    pub(super) codec: &'static str,
    pub(super) ours: bool,
    pub(super) ratio: f64,
    pub(super) client_megabytes_per_second: f64,
    pub(super) records_per_second: f64,
    pub(super) scatter: f64,
    pub(super) megabytes_per_second: f64,
    pub(super) wire_megabytes_per_second: f64,
    pub(super) client_busy: f64,
}

/// The limit in a word for programs, and in a sentence.
pub(super) fn words(limit: Limit, local: bool) -> (&'static str, String) {
    match limit {
        Limit::Client => (
            "client",
            "the client's processor: it builds batches nearly all of the time".to_owned(),
        ),
        Limit::Bytes => (
            "bytes",
            match local {
                true => "bytes: the disk, or the server's work per byte (the server is on this machine, so no network)",
                false => "bytes: the network, the server's disk, or its work per byte",
            }
            .to_owned(),
        ),
        Limit::Batches => (
            "batches",
            "not bytes: the server's work per batch, or the wait for its answers".to_owned(),
        ),
        Limit::Unknown => (
            "unknown",
            "it cannot be told: the rounds differ too much, or compressing takes all the client has".to_owned(),
        ),
    }
}

impl CodecsView {
    /// Adds the judgement.
    pub(super) fn judged(mut self, verdict: Option<Verdict>, local: bool) -> (Self, String) {
        let Some(verdict) = verdict else {
            return (self, String::new());
        };
        let (limit, sentence) = words(verdict.limit, local);
        let mut told = format!(
            "limit: {sentence}\ntake:  {}, because {}",
            verdict.take, verdict.why
        );
        if verdict.take != "none" {
            told.push_str(&format!(
                "\nuse:   hulse produce TOPIC --compression {}",
                verdict.take
            ));
        }
        self.limit = limit;
        self.take = verdict.take;
        self.why = verdict.why;
        (self, told)
    }
}

impl View for CodecsView {
    const FIELDS: &'static [Field] = &[
        Field::text("topic", "that was sent to"),
        Field::text("file", "that the records come from"),
        Field::integer("sample_records", "that were read of it"),
        Field::integer("sample_bytes", "their keys and values"),
        Field::text("codec[].codec", "none, lz4, zstd, gzip or snappy"),
        Field::boolean(
            "codec[].ours",
            "hulse produce --compression and the SDK take it; Kafka's clients take all, and every client reads all",
        ),
        Field::number("codec[].ratio", "keys and values per byte sent"),
        Field::number(
            "codec[].client_megabytes_per_second",
            "that one processor builds and compresses",
        ),
        Field::number(
            "codec[].records_per_second",
            "that went in the middle round of three, as all that follows",
        ),
        Field::number(
            "codec[].scatter",
            "half of the way from the slowest round to the fastest, as a share of it",
        ),
        Field::number(
            "codec[].megabytes_per_second",
            "keys and values, of 10^6 bytes",
        ),
        Field::number("codec[].wire_megabytes_per_second", "of batches"),
        Field::number(
            "codec[].client_busy",
            "share of time in which the client built batches",
        ),
        Field::text(
            "limit",
            "of the run without compression: client, bytes, batches or unknown",
        ),
        Field::text("take", "the codec to take, or none"),
        Field::text("why", "so"),
    ];

    fn name(&self) -> String {
        self.take.to_owned()
    }

    fn text(rows: &[Self], _wide: bool) -> String {
        let headings = [
            "CODEC",
            "RATIO",
            "CLIENT MB/S",
            "RECORDS/S",
            "+-",
            "MB/S",
            "WIRE MB/S",
            "CLIENT BUSY",
            "SENT BY",
        ];
        let mut table = Table::new(&headings);
        for codec in rows.iter().flat_map(|row| &row.codec) {
            table.row(vec![
                codec.codec.to_owned(),
                format!("{:.2}", codec.ratio),
                format!("{:.0}", codec.client_megabytes_per_second),
                grouped(codec.records_per_second as u64),
                format!("{:.0}%", codec.scatter * 100.0),
                format!("{:.1}", codec.megabytes_per_second),
                format!("{:.1}", codec.wire_megabytes_per_second),
                format!("{:.0}%", codec.client_busy * 100.0),
                match codec.ours {
                    true => "hulse, Kafka's clients",
                    false => "Kafka's clients",
                }
                .to_owned(),
            ]);
        }
        table.render()
    }
}
