//! `hulse produce`: reads records by a format and sends them.

use std::time::Duration;

use bytes::Bytes;
use hulse_sdk::{Acks, Compression, Producer, Record};
use tokio::io::AsyncRead;
use tokio::time::Instant;

use super::input::Records;
use super::session::Session;
use crate::arguments;
use crate::failure::{Code, Failure, Stop};
use crate::format::{Scanned, Scanner, split_header};
use crate::output::grouped;

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
    let producer = session
        .client()?
        .producer(&produce.topic)
        .acks(produce.acks.into())
        .compression(produce.compression.into())
        .build()
        .await
        .map_err(|error| Failure::from_sdk("cannot produce", &produce.topic, &error))?;
    let pace = produce.rate.map(Pace::new);
    let sent = match &produce.file {
        Some(path) => {
            let name = path.display().to_string();
            let file = tokio::fs::File::open(path).await.map_err(|error| {
                Failure::new(Code::File, "cannot read the input")
                    .why(error)
                    .object(&name)
                    .next("look at --file")
            })?;
            let records = Records::new(file, name, scanner.end());
            send_all(&producer, &scanner, &additions, records, pace).await
        }
        None => {
            let records = Records::new(tokio::io::stdin(), "standard input", scanner.end());
            send_all(&producer, &scanner, &additions, records, pace).await
        }
    };
    // What was queued before a failure is still sent: it was read from the input and will not be read again.
    let closed = producer.close().await;
    let sent = sent?;
    closed.map_err(|error| not_stored(&producer, &error))?;
    let (records, word) = (
        if sent == 1 { "record" } else { "records" },
        match produce.acks {
            arguments::Acks::Quorum => "stored in",
            arguments::Acks::None => "sent to",
        },
    );
    session.output.say(&format!(
        "{} {records} {word} {}",
        grouped(sent),
        producer.topic()
    ));
    Ok(())
}

fn not_stored(producer: &Producer, error: &hulse_sdk::Error) -> Failure {
    let stats = producer.stats();
    let what = format!(
        "{} of {} records were not confirmed",
        grouped(stats.records_failed.max(error.lost_tickets())),
        grouped(stats.records_stored + stats.records_failed)
    );
    Failure::from_sdk(what, producer.topic(), error)
}

async fn send_all<R: AsyncRead + Unpin>(
    producer: &Producer,
    scanner: &Scanner,
    additions: &Additions,
    mut records: Records<R>,
    mut pace: Option<Pace>,
) -> Result<u64, Failure> {
    let mut sent = 0;
    while let Some(text) = records.next().await? {
        let scanned = scanner
            .record(&text)
            .map_err(|why| records.wrong(&why, "look at the input, or change -f"))?;
        if let Some(pace) = &mut pace {
            pace.next().await;
        }
        match producer.send(additions.record(scanned)).await {
            // Failures of dropped tickets come with close(), which counts them.
            Ok(ticket) => drop(ticket),
            Err(error) => {
                return Err(Failure::from_sdk(
                    "cannot send a record",
                    producer.topic(),
                    &error,
                ));
            }
        }
        sent += 1;
    }
    Ok(sent)
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
