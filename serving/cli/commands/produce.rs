//! `hulse produce`: reads records by a format and sends them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use hulse_proto::error::ErrorKind;
use hulse_sdk::numbers::NumberStamper;
use hulse_sdk::{Acks, Compression, Producer, Record};
use serde::Serialize;
use tokio::io::AsyncRead;
use tokio::time::Instant;

use super::input::Records;
use super::link::Link;
use super::session::Session;
use super::tickets::Tickets;
use crate::arguments;
use crate::failure::{Code, Failure, Stop};
use crate::format::{Scanned, Scanner, split_header};
use crate::output::{Field, Table, View, grouped};

impl From<arguments::Acks> for Acks {
    fn from(acks: arguments::Acks) -> Self {
        match acks {
            arguments::Acks::None => Self::None,
            arguments::Acks::Quorum => Self::Quorum,
        }
    }
}

impl From<arguments::Compression> for Compression {
    fn from(compression: arguments::Compression) -> Self {
        match compression {
            arguments::Compression::None => Self::None,
            arguments::Compression::Lz4 => Self::Lz4,
            arguments::Compression::Zstd => Self::Zstd,
        }
    }
}

/// What every record of a command gets where its text says nothing.
struct Additions {
    key: Option<Bytes>,
    headers: Vec<(String, Bytes)>,
    partition: Option<u32>,
}

impl Additions {
    fn new(produce: &arguments::Produce) -> Result<Self, Failure> {
        let mut headers = Vec::new();
        for header in &produce.headers {
            let (name, value) = split_header(header.as_bytes()).map_err(|why| {
                Failure::new(Code::Usage, "a header cannot be understood")
                    .why(why)
                    .object(format!("-H {header}"))
                    .next("write -H name=value")
            })?;
            headers.push((name, Bytes::copy_from_slice(value)));
        }
        Ok(Self {
            key: produce
                .key
                .as_ref()
                .map(|key| Bytes::copy_from_slice(key.as_bytes())),
            headers,
            partition: produce.partition,
        })
    }

    fn record(&self, scanned: Scanned) -> Record {
        let key = scanned.key.or_else(|| self.key.clone());
        let mut record = match (scanned.value, key) {
            (Some(value), Some(key)) => Record::new(value).key(key),
            (Some(value), None) => Record::new(value),
            (None, Some(key)) => Record::tombstone(key),
            (None, None) => Record::default(),
        };
        for (name, value) in self.headers.iter().cloned().chain(scanned.headers) {
            record = record.header(name, value);
        }
        if let Some(timestamp) = scanned.timestamp {
            record = record.timestamp(timestamp);
        }
        match scanned.partition.or(self.partition) {
            Some(partition) => record.partition(partition),
            None => record,
        }
    }
}

/// Keeps a rate: waits until the next record is due.
pub(crate) struct Pace {
    began: Instant,
    rate: u32,
    sent: u64,
}

impl Pace {
    /// So many records per second from now on.
    pub(crate) fn new(rate: u32) -> Self {
        Self {
            began: Instant::now(),
            rate,
            sent: 0,
        }
    }

    /// Returns when the next record is due.
    pub(crate) async fn next(&mut self) {
        let due = self.began + due_after(self.sent, self.rate);
        self.sent += 1;
        // The timer's grain is a millisecond; records due within it go together.
        if due > Instant::now() + Duration::from_millis(1) {
            tokio::time::sleep_until(due).await;
        }
    }
}

/// When record `number` (from 0) is due after the beginning.
pub(crate) fn due_after(number: u64, rate: u32) -> Duration {
    Duration::from_nanos((u128::from(number) * 1_000_000_000 / u128::from(rate.max(1))) as u64)
}

/// Runs it.
///
/// # Errors
/// The input is wrong, or records were not stored.
pub(crate) async fn run(session: Session<'_>, produce: &arguments::Produce) -> Result<(), Stop> {
    let scanner = Scanner::new(&produce.format).map_err(|error| {
        Failure::from(error).next("hulse produce --help lists the letters that input knows")
    })?;
    let additions = Additions::new(produce)?;
    let link = Link::default();
    let mut builder = session
        .client_over(&link)?
        .producer(&produce.topic)
        .acks(produce.acks().into())
        .compression(produce.compression.into())
        .delivery_timeout(session.globals.timeout.0);
    if produce.number {
        builder = builder.interceptor(NumberStamper::new());
    }
    let producer = builder
        .build()
        .await
        .map_err(|error| Failure::from_sdk("cannot produce", &produce.topic, &error))?;
    let mut sending = Sending {
        queued: count_waiting(&link, &producer),
        producer: &producer,
        scanner: &scanner,
        additions: &additions,
        pace: produce.rate.map(Pace::new),
        tickets: Tickets::default(),
        sent: 0,
        read: 0,
    };
    let ended = match &produce.file {
        Some(path) => {
            let name = path.display().to_string();
            let file = tokio::fs::File::open(path).await.map_err(|error| {
                Failure::new(Code::File, "cannot read the input")
                    .why(error)
                    .object(&name)
                    .next("look at --file")
            })?;
            sending.all(Records::new(file, name, scanner.end())).await
        }
        None => {
            let records = Records::new(tokio::io::stdin(), "standard input", scanner.end());
            sending.all(records).await
        }
    };
    // What was queued before a failure is still sent: it was read from the input and will not be read again.
    let closed = producer.close().await;
    let (sent, read) = (sending.sent, sending.read);
    // The first record's own words tell more than those of the producer as a whole.
    let stored = sending.tickets.finish().and(closed);
    ended
        .and_then(|()| stored.map_err(|error| not_stored(&producer, &error)))
        .map_err(|failure| failure.also(counts(&producer, read)))?;
    let (records, word) = (
        if sent == 1 { "record" } else { "records" },
        match produce.acks() {
            arguments::Acks::Quorum => "stored in",
            arguments::Acks::None => "sent to",
        },
    );
    let words = format!("{} {records} {word} {}", grouped(sent), producer.topic());
    let view = ProducedView {
        topic: producer.topic().to_owned(),
        records: sent,
        batches: producer.stats().batches_sent,
    };
    session.output.done(&view, &words)
}

/// Tells the link how many records wait: of those that are counted here, the ones without a fate.
fn count_waiting(link: &Link, producer: &Producer) -> Arc<AtomicU64> {
    let queued = Arc::new(AtomicU64::new(0));
    let (counted, producer) = (Arc::clone(&queued), producer.clone());
    link.counts(move || {
        let stats = producer.stats();
        let settled = stats.records_stored + stats.records_failed;
        counted.load(Ordering::Relaxed).saturating_sub(settled)
    });
    queued
}

/// What was sent.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct ProducedView {
    topic: String,
    records: u64,
    batches: u64,
}

impl View for ProducedView {
    const FIELDS: &'static [Field] = &[
        Field::text("topic", "tenant/namespace/topic"),
        Field::integer("records", "stored, or sent with --acks none"),
        Field::integer("batches", "that they went in"),
    ];

    fn name(&self) -> String {
        self.topic.clone()
    }

    fn text(rows: &[Self], _wide: bool) -> String {
        let mut table = Table::new(&["TOPIC", "RECORDS", "BATCHES"]);
        for row in rows {
            table.row(vec![
                row.topic.clone(),
                grouped(row.records),
                grouped(row.batches),
            ]);
        }
        table.render()
    }
}

fn not_stored(producer: &Producer, error: &hulse_sdk::Error) -> Failure {
    let what = match error.possibly_written() {
        true => "records were not confirmed",
        false => "records were not stored",
    };
    let failure = Failure::from_sdk(what, producer.topic(), error);
    match error.kind() {
        // Somebody did answer when the producer was made.
        ErrorKind::Unavailable | ErrorKind::OutcomeUnknown if failure.is_ours() => {
            failure.next("look at the server's log and /readyz; --timeout gives it more time")
        }
        _ => failure,
    }
}

/// How many records of the input have which fate.
fn counts(producer: &Producer, read: u64) -> String {
    let stored = producer.stats().records_stored.min(read);
    format!(
        "records read: {}, stored: {}, not stored: {}",
        grouped(read),
        grouped(stored),
        grouped(read - stored)
    )
}

/// Records on their way from the input to the topic.
struct Sending<'a> {
    producer: &'a Producer,
    scanner: &'a Scanner,
    additions: &'a Additions,
    pace: Option<Pace>,
    tickets: Tickets,
    /// Records that the producer was given, for those who count what waits.
    queued: Arc<AtomicU64>,
    /// Records that the producer took.
    sent: u64,
    /// Records of the input so far, also the one that was refused.
    read: u64,
}

impl Sending<'_> {
    /// Sends what is read until the input ends. A record that fails ends it too: what stands behind it is not read any more.
    async fn all<R: AsyncRead + Unpin>(&mut self, mut records: Records<R>) -> Result<(), Failure> {
        let ended = self.each(&mut records).await;
        self.read = records.count();
        ended
    }

    async fn each<R: AsyncRead + Unpin>(
        &mut self,
        records: &mut Records<R>,
    ) -> Result<(), Failure> {
        loop {
            let many = self.tickets.are_many();
            let text = tokio::select! {
                biased;
                fate = self.tickets.next() => {
                    fate.map_err(|error| not_stored(self.producer, &error))?;
                    continue;
                }
                text = records.next(), if !many => text?,
            };
            let Some(text) = text else {
                return Ok(());
            };
            let scanned = self
                .scanner
                .record(&text)
                .map_err(|why| records.wrong(&why, "look at the input, or change -f"))?;
            if let Some(pace) = &mut self.pace {
                pace.next().await;
            }
            self.queued.fetch_add(1, Ordering::Relaxed);
            let queued = self.producer.send(self.additions.record(scanned)).await;
            let ticket = queued.map_err(|error| {
                let topic = self.producer.topic();
                let object = format!("{}, for {topic}", records.place());
                let failure = Failure::from_sdk("cannot send a record", object, &error);
                // A record of its own can only be wrong in where it goes.
                match failure.is_code(Code::Usage) {
                    true => failure.next(format!(
                        "hulse topics describe {topic} shows its partitions"
                    )),
                    false => failure,
                }
            })?;
            self.tickets.push(ticket);
            self.sent += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_due_at_the_rate() {
        assert_eq!(due_after(0, 1000), Duration::ZERO);
        assert_eq!(due_after(1500, 1000), Duration::from_millis(1500));
        assert_eq!(
            due_after(u64::from(u32::MAX), 1),
            Duration::from_secs(u64::from(u32::MAX))
        );
    }

    #[tokio::test(start_paused = true)]
    async fn pace_keeps_its_rate_and_catches_up_after_a_stall() {
        let mut pace = Pace::new(100);
        let began = Instant::now();
        for _ in 0..=50 {
            pace.next().await;
        }
        assert_eq!(began.elapsed().as_millis(), 500);
        tokio::time::sleep(Duration::from_millis(500)).await;
        for _ in 0..50 {
            pace.next().await;
        }
        assert_eq!(began.elapsed().as_millis(), 1000);
    }
}
