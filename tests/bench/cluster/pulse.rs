//! A load of a steady rate, and when each of its records was sent and answered.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bytes::Bytes;
use futures::future::join_all;
use hulse_sdk::{Client, Producer, Record, Ticket};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::task::JoinHandle;
use tokio::time::{MissedTickBehavior, interval};

use super::super::disk::{incompressible, percentile};

/// A record's value.
const RECORD_BYTES: usize = 1024;
/// Between two bursts.
const TICK: Duration = Duration::from_millis(10);
/// What waits while a partition is not served: more than a minute of the largest rate here.
const UNACKED_BYTES: usize = 1 << 30;

/// A record that was answered.
#[derive(Debug, Clone, Copy)]
struct Beat {
    sent: Instant,
    answered: Instant,
}

type Sent = (Instant, Ticket);

/// A load that goes on until it is ended.
pub(crate) struct Pulse {
    over: Arc<AtomicBool>,
    sending: JoinHandle<anyhow::Result<Producer>>,
    answers: Vec<JoinHandle<(Vec<Beat>, u64)>>,
}

/// What became of a load, by partition.
pub(crate) struct Beats {
    partitions: Vec<Vec<Beat>>,
    /// Records that were not stored.
    pub(crate) failed: u64,
}

impl Pulse {
    /// Sends records of 1 KiB in turn to all partitions of a topic that exists, as many as make `rate` bytes a second.
    pub(crate) async fn begin(client: &Client, topic: &str, rate: usize) -> anyhow::Result<Self> {
        let producer = client.producer(topic).max_unacked_bytes(UNACKED_BYTES);
        let producer = producer.build().await?;
        let (senders, answers) = (0..producer.partitions())
            .map(|_| {
                let (sender, tickets) = unbounded_channel();
                (sender, tokio::spawn(collect(tickets)))
            })
            .unzip();
        let over = Arc::new(AtomicBool::new(false));
        let sending = tokio::spawn(send(producer, senders, rate, Arc::clone(&over)));
        Ok(Self {
            over,
            sending,
            answers,
        })
    }

    /// Waits until every record is answered.
    pub(crate) async fn end(self) -> anyhow::Result<Beats> {
        self.over.store(true, Ordering::Relaxed);
        let producer = self.sending.await??;
        let mut beats = Beats {
            partitions: Vec::new(),
            failed: 0,
        };
        for answers in join_all(self.answers).await {
            let (partition, failed) = answers?;
            beats.partitions.push(partition);
            beats.failed += failed;
        }
        // What failed was counted.
        drop(producer.close().await);
        Ok(beats)
    }
}

async fn send(
    producer: Producer,
    partitions: Vec<UnboundedSender<Sent>>,
    rate: usize,
    over: Arc<AtomicBool>,
) -> anyhow::Result<Producer> {
    let value = Bytes::from(incompressible(RECORD_BYTES));
    let mut ticks = interval(TICK);
    // A late tick is made up for: the rate stays what it is.
    ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
    let (began, mut count) = (Instant::now(), 0);
    while !over.load(Ordering::Relaxed) {
        ticks.tick().await;
        let due = (began.elapsed().as_secs_f64() * rate as f64) as usize / RECORD_BYTES;
        while count < due {
            let partition = count % partitions.len();
            let record = Record::new(value.clone()).partition(partition as u32);
            let sent = Instant::now();
            let ticket = producer.send(record).await?;
            let taken = partitions[partition].send((sent, ticket));
            taken.ok().context("the answers are not collected")?;
            count += 1;
        }
    }
    Ok(producer)
}

/// Records of a partition are answered in order.
async fn collect(mut tickets: UnboundedReceiver<Sent>) -> (Vec<Beat>, u64) {
    let (mut beats, mut failed) = (Vec::new(), 0);
    while let Some((sent, ticket)) = tickets.recv().await {
        match ticket.await {
            Ok(_) => beats.push(Beat {
                sent,
                answered: Instant::now(),
            }),
            Err(_) => failed += 1,
        }
    }
    (beats, failed)
}

impl Beats {
    /// The longest time without an answer in one partition that touches this time.
    pub(crate) fn gap(&self, partition: usize, (from, to): (Instant, Instant)) -> Duration {
        let pairs = self.partitions[partition].windows(2);
        let touching = pairs.filter(|pair| pair[1].answered > from && pair[0].answered < to);
        let gaps = touching.map(|pair| pair[1].answered - pair[0].answered);
        gaps.max().unwrap_or(to - from)
    }

    /// The longest of all partitions.
    pub(crate) fn longest_gap(&self, within: (Instant, Instant)) -> Duration {
        let all = (0..self.partitions.len()).map(|partition| self.gap(partition, within));
        all.max().unwrap_or_default()
    }

    /// From `event` until something that was sent after it was answered in every partition; `None`: nothing was in some.
    pub(crate) fn resumed(&self, event: Instant) -> Option<Duration> {
        let first = |beats: &Vec<Beat>| {
            let later = beats.iter().filter(|beat| beat.sent > event);
            later.map(|beat| beat.answered - event).min()
        };
        let all: Option<Vec<Duration>> = self.partitions.iter().map(first).collect();
        all?.into_iter().max()
    }

    /// From `send` to the answer, in hundredths of all records that were sent within this time.
    pub(crate) fn wait(&self, hundredths: f64, (from, to): (Instant, Instant)) -> Duration {
        let all = self.partitions.iter().flatten();
        let within = all.filter(|beat| beat.sent >= from && beat.sent <= to);
        let mut waits: Vec<Duration> = within.map(|beat| beat.answered - beat.sent).collect();
        waits.sort_unstable();
        match waits.is_empty() {
            true => Duration::ZERO,
            false => percentile(&waits, hundredths),
        }
    }

    /// Records that were stored.
    pub(crate) fn stored(&self) -> usize {
        self.partitions.iter().map(Vec::len).sum()
    }
}
