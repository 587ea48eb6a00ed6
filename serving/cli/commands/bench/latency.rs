//! Open loop: records are due at fixed times, whatever the server does, and each answer is counted from the time its record was due.
//!
//! A thread of its own tells when a record is due, because a runtime's timer has a grain of a millisecond. What is left of the thread's
//! own lateness shows as the difference between the two lines printed.

use std::time::Duration;

use futures::StreamExt as _;
use futures::stream::FuturesUnordered;
use hulse_sdk::{Compression, Error, Producer, Record};
use tokio::sync::mpsc;
use tokio::time::Instant;

use super::figures::{Figures, Latencies, Throughput};
use super::payload::Payloads;
use super::produce::producer;
use super::run::tell_made;
use crate::arguments::Load;
use crate::commands::produce::due_after;
use crate::commands::session::Session;
use crate::failure::{Failure, Stop};
use crate::output::Progress;

/// Records that are due and not sent yet, at most: a server that stalls longer than this ends the measurement's honesty, so
/// the thread waits and the times go on counting from when they were due.
const DUE_MAX: usize = 1 << 16;

/// Runs it.
///
/// # Errors
/// The server's, or the output's.
pub(super) async fn run(
    session: Session<'_>,
    load: &Load,
    compression: Compression,
    rate: u32,
) -> Result<(), Stop> {
    let (producer, made) = producer(session, load, compression, Some(rate)).await?;
    let opened = open(&producer).await;
    opened.map_err(|error| Failure::from_sdk("cannot send", &load.topic, &error))?;

    let mut payloads = Payloads::new(load.size.0 as usize);
    let mut due = clockwork(rate, load.duration.0);
    let mut answers = FuturesUnordered::new();
    let (mut from_due, mut from_send) = (Latencies::new(), Latencies::new());
    let (mut failed, mut all_sent, mut last_error) = (0, false, None);
    let doing = format!("measuring for {}", load.duration);
    let mut progress = Progress::new(session.output, doing, None);
    let began = Instant::now();
    while !all_sent || !answers.is_empty() {
        tokio::select! {
            biased;
            Some((due_at, sent_at, answer)) = answers.next(), if !answers.is_empty() => {
                let now = Instant::now();
                progress.at(from_due.count());
                match answer {
                    Ok(_) => {
                        from_due.record(now.saturating_duration_since(due_at));
                        from_send.record(now.saturating_duration_since(sent_at));
                    }
                    Err(error) => {
                        failed += 1;
                        last_error = Some(error);
                    }
                }
            }
            next = due.recv(), if !all_sent => match next {
                None => all_sent = true,
                Some(due_at) => {
                    let sent_at = Instant::now();
                    match producer.send(Record::new(payloads.next())).await {
                        Ok(ticket) => answers.push(async move { (due_at, sent_at, ticket.await) }),
                        Err(error) => {
                            failed += 1;
                            last_error = Some(error);
                            all_sent = true;
                        }
                    }
                }
            }
        }
    }
    let took = began.elapsed();
    drop(progress);
    drop(producer.close().await);
    let stored = from_due.count();
    let figures = Figures {
        topic: producer.topic().to_owned(),
        throughput: Throughput::new(stored, stored * load.size.0, failed, took),
        latency: vec![
            from_due.percentiles("from when it was due"),
            from_send.percentiles("from when it was sent"),
        ],
    };
    session.output.one(&figures)?;
    tell_made(session, &load.topic, made);
    match last_error {
        None => Ok(()),
        Some(error) => {
            Err(Failure::from_sdk("records were not stored", &load.topic, &error).into())
        }
    }
}

/// The first record opens the session and the partition; it is not measured.
async fn open(producer: &Producer) -> Result<(), Error> {
    let first = producer.send(Record::new("first")).await?;
    first.await.map(drop)
}

/// A thread that says when each record is due.
fn clockwork(rate: u32, duration: Duration) -> mpsc::Receiver<Instant> {
    let (tell, due) = mpsc::channel(DUE_MAX);
    std::thread::spawn(move || {
        let began = Instant::now();
        for number in 0.. {
            let after = due_after(number, rate);
            if after >= duration {
                break;
            }
            let at = began + after;
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            if tell.blocking_send(at).is_err() {
                break;
            }
        }
    });
    due
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn clockwork_tells_every_record_of_the_duration_in_order() {
        let mut due = clockwork(10_000, Duration::from_millis(20));
        let mut times = Vec::new();
        while let Some(at) = due.recv().await {
            times.push(at);
        }
        assert_eq!(times.len(), 200);
        assert!(times.is_sorted());
        assert_eq!(times[199] - times[0], Duration::from_micros(19_900));
    }
}
