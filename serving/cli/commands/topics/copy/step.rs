//! One step: reads offsets of one partition of the source and sends them on.

use std::collections::VecDeque;

use hulse_sdk::{
    Client, Offset, Producer, ReadRecord, Reader, Reason, Receipt, Record, Start, Ticket,
};

use super::goal::Goal;
use super::plan::Plan;
use crate::commands::produce::Pace;
use crate::failure::{Code, Failure};
use crate::output::Progress;

/// Fetched ahead.
const BYTES_IN_FLIGHT: u32 = 8 << 20;
/// Records under way at most.
const TICKETS_MAX: usize = 1 << 16;

/// Reads one partition of the source, and may be one record ahead.
pub(super) struct Source {
    reader: Reader,
    partition: u32,
    ahead: Option<ReadRecord>,
}

impl Source {
    /// Begins at an offset.
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn open(
        client: &Client,
        topic: &str,
        partition: u32,
        offset: u64,
    ) -> Result<Self, Failure> {
        let reader = client
            .reader(topic)
            .partitions([partition])
            .start_at(partition, Start::Offset(Offset(offset)))
            .follow(false)
            .max_bytes_in_flight(BYTES_IN_FLIGHT)
            .build()
            .await
            .map_err(|error| Failure::from_sdk("cannot read the source", topic, &error))?;
        Ok(Self {
            reader,
            partition,
            ahead: None,
        })
    }

    /// The next record below `end`.
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn next(&mut self, end: u64) -> Result<Option<ReadRecord>, Failure> {
        let record = match self.ahead.take() {
            Some(record) => Some(record),
            None => self.reader.next().await.map_err(|error| {
                let object = format!("{}, partition {}", self.reader.topic(), self.partition);
                Failure::from_sdk("cannot read the source", object, &error)
            })?,
        };
        match record {
            Some(record) if record.offset.0 >= end => {
                self.ahead = Some(record);
                Ok(None)
            }
            record => Ok(record),
        }
    }
}

/// What is sent on with.
pub(super) struct Sink<'a> {
    pub(super) goal: &'a Goal,
    pub(super) producer: &'a Producer,
    pub(super) work: &'a mut Work,
    /// By partition of the target: a record of this producer was stored, so nothing that an earlier run left under way can be any more.
    proven: Vec<bool>,
    waiting: VecDeque<(u32, u64, Ticket)>,
}

/// What a run does, over all its producers.
pub(super) struct Work {
    pub(super) pace: Option<Pace>,
    pub(super) progress: Progress,
    /// Records sent.
    pub(super) sent: u64,
}

/// How a step ended.
pub(super) enum Made {
    /// All of it is stored; where the target's partitions end now.
    Whole(Vec<u64>),
    /// Batches that an earlier run had left under way were stored meanwhile: what the target has is to be looked at again.
    Overtaken,
}

impl<'a> Sink<'a> {
    /// Sends with this producer.
    pub(super) fn new(goal: &'a Goal, producer: &'a Producer, work: &'a mut Work) -> Self {
        Self {
            goal,
            producer,
            work,
            proven: vec![false; goal.target.partitions as usize],
            waiting: VecDeque::new(),
        }
    }

    /// Makes a step but for what the target has of it already: so many records by partition (`had`).
    ///
    /// # Errors
    /// The server's, or somebody else writes to the target. What was sent then may be stored.
    pub(super) async fn make(
        &mut self,
        source: &mut Source,
        plan: &Plan,
        mut had: Vec<u64>,
    ) -> Result<Made, Failure> {
        let mut ends = plan.target_ends.clone();
        while let Some(record) = source.next(plan.end).await? {
            let partition = self.goal.partition_of(&record);
            let slot = partition as usize;
            let offset = ends[slot];
            ends[slot] += 1;
            if had[slot] > 0 {
                had[slot] -= 1;
                continue;
            }
            if let Some(pace) = &mut self.work.pace {
                pace.next().await;
            }
            while self.waiting.len() >= TICKETS_MAX {
                self.settle_one().await?;
            }
            let sent = self.producer.send(on(record, partition)).await;
            let ticket = sent.map_err(|error| self.not_copied(&error))?;
            if self.proven[slot] {
                self.waiting.push_back((partition, offset, ticket));
            } else if !self.prove(partition, offset, ticket).await? {
                return Ok(Made::Overtaken);
            }
            self.work.sent += 1;
            self.work.progress.at(self.work.sent);
        }
        while !self.waiting.is_empty() {
            self.settle_one().await?;
        }
        Ok(Made::Whole(ends))
    }

    /// Waits for the first record to a partition before anything is sent behind it. False: its sequence is taken, by a batch of an
    /// earlier run that came in late; then nothing of this producer is in the partition.
    async fn prove(
        &mut self,
        partition: u32,
        offset: u64,
        ticket: Ticket,
    ) -> Result<bool, Failure> {
        match ticket.await {
            Err(error) if error.reason() == Some(Reason::SequenceOverlap) => {
                while !self.waiting.is_empty() {
                    self.settle_one().await?;
                }
                Ok(false)
            }
            Err(error) => Err(self.not_copied(&error)),
            Ok(receipt) => {
                self.proven[partition as usize] = true;
                self.placed(partition, offset, &receipt)?;
                Ok(true)
            }
        }
    }

    fn placed(&self, partition: u32, offset: u64, receipt: &Receipt) -> Result<(), Failure> {
        match receipt.offset {
            Some(found) if found.0 != offset => {
                Err(foreign(&self.goal.target.name, partition, offset, found.0))
            }
            _ => Ok(()),
        }
    }

    async fn settle_one(&mut self) -> Result<(), Failure> {
        let Some((partition, offset, ticket)) = self.waiting.pop_front() else {
            return Ok(());
        };
        let receipt = ticket.await.map_err(|error| self.not_copied(&error))?;
        self.placed(partition, offset, &receipt)
    }

    fn not_copied(&self, error: &hulse_sdk::Error) -> Failure {
        Failure::from_sdk("records were not copied", &self.goal.target.name, error)
            .next("run the command again: it goes on where it stopped")
    }
}

/// Somebody else wrote to the target.
pub(super) fn foreign(target: &str, partition: u32, expected: u64, found: u64) -> Failure {
    Failure::new(Code::Conflict, "somebody else writes to the target")
        .why(format!(
            "the copy is at offset {expected} of partition {partition}, the partition at {found}"
        ))
        .object(target)
        .next("stop the other producers, delete the target and its .copied topic, and copy anew")
}

/// The record as it is, for a partition of the target.
fn on(record: ReadRecord, partition: u32) -> Record {
    let copy = match (record.value, record.key) {
        (Some(value), Some(key)) => Record::new(value).key(key),
        (Some(value), None) => Record::new(value),
        (None, Some(key)) => Record::tombstone(key),
        (None, None) => Record::default(),
    };
    copy.headers(record.headers)
        .timestamp(record.timestamp)
        .partition(partition)
}
