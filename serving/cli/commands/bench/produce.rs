//! Sends as much as answers allow, or at a rate.

use std::time::Duration;

use hulse_proto::limits::RECORD_BYTES_MAX;
use hulse_sdk::{Compression, Producer, Record};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::figures::{Figures, Latencies, Throughput};
use super::payload::Payloads;
use super::run::{added, ensure_topic, tell_made};
use crate::arguments::Load;
use crate::commands::produce::Pace;
use crate::commands::session::Session;
use crate::failure::{Code, Failure, Stop};
use crate::output::Progress;

/// One record in so many is timed: waiting for every answer would cost more than sending.
const TIMED_EVERY: u64 = 64;
/// Timed records that wait for their answer.
const TIMED_MAX: usize = 4096;

/// A producer as the load says, and whether its topic was made for it.
///
/// # Errors
/// The topic cannot be made, or the size is too large.
pub(super) async fn producer(
    session: Session<'_>,
    load: &Load,
    compression: Compression,
    rate: Option<u32>,
) -> Result<(Producer, bool), Failure> {
    if load.size.0 > RECORD_BYTES_MAX as u64 {
        return Err(Failure::new(Code::Usage, "the record is too large")
            .why(format!("a record holds at most {RECORD_BYTES_MAX} bytes"))
            .object(format!("--size {}", load.size))
            .next("--size 1KiB"));
    }
    let client = session.client()?;
    let made = ensure_topic(session, &client, load, &added(load, rate)).await?;
    let producer = client
        .producer(&load.topic)
        .acks(load.acks.into())
        .compression(compression)
        .delivery_timeout(session.globals.timeout.0)
        .build()
        .await
        .map_err(|error| Failure::from_sdk("cannot produce", &load.topic, &error))?;
    Ok((producer, made))
}

/// Runs it.
///
/// # Errors
/// The server's, or the output's.
pub(super) async fn run(
    session: Session<'_>,
    load: &Load,
    compression: Compression,
    rate: Option<u32>,
) -> Result<(), Stop> {
    let (producer, made) = producer(session, load, compression, rate).await?;
    let (timed, mut waiting) = mpsc::channel::<(Instant, hulse_sdk::Ticket)>(TIMED_MAX);
    let collector = tokio::spawn(async move {
        let mut latencies = Latencies::new();
        while let Some((sent, ticket)) = waiting.recv().await {
            if ticket.await.is_ok() {
                latencies.record(sent.elapsed());
            }
        }
        latencies
    });
    let began = Instant::now();
    let doing = format!("sending for {}", load.duration);
    let progress = Progress::new(session.output, doing, None);
    let sent = send(&producer, load, rate, &timed, progress).await;
    drop(timed);
    // Failures are told by the figures; why, by this error.
    let closed = producer.close().await;
    let took = began.elapsed();
    let latencies = collector.await.unwrap_or_else(|_| Latencies::new());
    let stats = producer.stats();
    let bytes = stats.records_stored * load.size.0;
    let figures = Figures {
        topic: producer.topic().to_owned(),
        throughput: Throughput::new(stats.records_stored, bytes, stats.records_failed, took),
        latency: vec![latencies.percentiles("send to answer, queue included")],
    };
    session.output.one(&figures)?;
    tell_made(session, &load.topic, made);
    sent?;
    closed.map_err(|error| Failure::from_sdk("records were not stored", &load.topic, &error))?;
    Ok(())
}

async fn send(
    producer: &Producer,
    load: &Load,
    rate: Option<u32>,
    timed: &mpsc::Sender<(Instant, hulse_sdk::Ticket)>,
    mut progress: Progress,
) -> Result<(), Failure> {
    let mut payloads = Payloads::new(load.size.0 as usize);
    let mut pace = rate.map(Pace::new);
    let end = Instant::now() + load.duration.0.max(Duration::from_millis(1));
    let mut count: u64 = 0;
    while Instant::now() < end {
        if let Some(pace) = &mut pace {
            pace.next().await;
        }
        let at = Instant::now();
        let ticket = producer.send(Record::new(payloads.next())).await;
        let ticket =
            ticket.map_err(|error| Failure::from_sdk("cannot send", &load.topic, &error))?;
        if count.is_multiple_of(TIMED_EVERY) {
            // Full: this one is not timed, and its failure is counted by close().
            drop(timed.try_send((at, ticket)));
            progress.at(count);
        }
        count += 1;
    }
    Ok(())
}
