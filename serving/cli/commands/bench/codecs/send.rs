//! What really goes: batches of a codec, built and sent as fast as answers allow, for a while.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hulse_proto::batch::Compression;
use hulse_proto::time::WallClock as _;
use hulse_sdk::{Client, Producer, Ticket, raw};
use tokio::time::Instant;

use super::sample::{Sample, build};
use crate::failure::{Code, Failure};
use crate::roles::SystemClock;

/// Batches of one partition under way: more than a broker takes at once, so that it never waits for the next.
const UNDER_WAY_MAX: usize = 8;

/// What went in one round of one codec.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub(super) struct Sent {
    pub(super) records: u64,
    /// Keys and values.
    pub(super) bytes: u64,
    /// Of batches, as they went over the wire and to the disk.
    pub(super) wire_bytes: u64,
    pub(super) seconds: f64,
    /// Share of the time, over all partitions, in which a batch was being built and compressed.
    pub(super) busy: f64,
}

impl Sent {
    /// Records per second.
    pub(super) fn rate(&self) -> f64 {
        self.records as f64 / self.seconds.max(1e-9)
    }
}

/// Sends for `duration`, to every partition at once.
///
/// # Errors
/// The server's.
pub(super) async fn round(
    client: &Client,
    topic: &str,
    sample: &Arc<Sample>,
    codec: Compression,
    duration: Duration,
) -> Result<Sent, Failure> {
    let failed = |error: hulse_sdk::Error| Failure::from_sdk("cannot send", topic, &error);
    // The batches are made here, so nobody else may number them.
    let producer = client.producer(topic).idempotent(false).build();
    let producer = producer.await.map_err(failed)?;
    let began = Instant::now();
    let lanes: Vec<_> = (0..producer.partitions())
        .map(|partition| {
            let (producer, sample) = (producer.clone(), Arc::clone(sample));
            let end = began + duration;
            tokio::spawn(async move { lane(&producer, &sample, partition, codec, end).await })
        })
        .collect();
    let partitions = lanes.len();
    let mut sent = Sent::default();
    let mut building = Duration::ZERO;
    for task in lanes {
        let (of_lane, took) = task.await.unwrap_or_else(|error| {
            Err(Failure::new(Code::Unwell, "the measurement ended early")
                .why(error)
                .object(topic)
                .next("this is a bug in hulse; please report it"))
        })?;
        sent.records += of_lane.records;
        sent.bytes += of_lane.bytes;
        sent.wire_bytes += of_lane.wire_bytes;
        building += took;
    }
    producer.close().await.map_err(failed)?;
    sent.seconds = began.elapsed().as_secs_f64().max(1e-9);
    sent.busy = building.as_secs_f64() / sent.seconds / partitions.max(1) as f64;
    Ok(sent)
}

/// One partition. Answers also how long it built batches.
async fn lane(
    producer: &Producer,
    sample: &Sample,
    partition: u32,
    codec: Compression,
    end: Instant,
) -> Result<(Sent, Duration), Failure> {
    let failed =
        |error: hulse_sdk::Error| Failure::from_sdk("cannot send", producer.topic(), &error);
    let mut waiting: VecDeque<Ticket> = VecDeque::new();
    let (mut sent, mut building) = (Sent::default(), Duration::ZERO);
    for records in sample.batches.iter().cycle() {
        if Instant::now() >= end {
            break;
        }
        let began = Instant::now();
        let (batch, bytes) = build(records, codec, SystemClock.now_ms())?;
        building += began.elapsed();
        while waiting.len() >= UNDER_WAY_MAX {
            if let Some(oldest) = waiting.pop_front() {
                oldest.await.map_err(failed)?;
            }
        }
        sent.records += records.len() as u64;
        sent.bytes += bytes as u64;
        sent.wire_bytes += batch.len() as u64;
        let ticket = raw::send(producer, partition, batch, records.len() as u32);
        waiting.push_back(ticket.map_err(failed)?);
    }
    for ticket in waiting {
        ticket.await.map_err(failed)?;
    }
    Ok((sent, building))
}
