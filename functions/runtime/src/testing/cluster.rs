//! The cluster as tasks see it: partitions with read_committed, transactional ids with epochs, offsets of a group, objects.
//!
//! A transaction's records stand in their partitions from when they are written; whoever reads committed stops at the first of an
//! open one. Commit and abort take effect at once for all participants: that markers come one by one is the broker's own affair and
//! is simulated there. A commit can be *held*: it was requested, nobody was answered, and it takes effect later, unless a fence comes
//! first, which decides it.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use hulse_proto::time::TimestampMs;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use crate::id::InputPartition;
use crate::record::{Destination, Header, InputRecord, OutputRecord};
use crate::task::{Producer, Trouble};

/// A record in a partition.
#[derive(Debug, Clone)]
pub struct Stored {
    /// Its offset.
    pub offset: u64,
    /// The transaction that wrote it, if one did.
    pub transaction: Option<u64>,
    /// The record.
    pub record: InputRecord,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Open,
    Held,
    Committed,
    Aborted,
}

#[derive(Debug)]
struct Transaction {
    producer: Producer,
    fate: Fate,
    offsets: BTreeMap<InputPartition, u64>,
}

/// Everything that outlives a task.
#[derive(Debug, Default)]
pub struct Cluster {
    inputs: BTreeMap<InputPartition, Vec<InputRecord>>,
    outputs: BTreeMap<Destination, Vec<Stored>>,
    changelog: Vec<Stored>,
    changelog_start: u64,
    group: BTreeMap<InputPartition, u64>,
    transactions: Vec<Transaction>,
    producer: Option<Producer>,
    objects: BTreeMap<String, Bytes>,
    /// The clock.
    pub now: TimestampMs,
    /// The largest object that was ever deleted or replaced is counted here, to see that cleaning happens.
    pub objects_deleted: usize,
}

impl Cluster {
    /// Appends a record to an input partition, at the cluster's time.
    pub fn append_input(
        &mut self,
        at: InputPartition,
        timestamp: TimestampMs,
        key: Option<Bytes>,
        value: Bytes,
    ) -> u64 {
        let partition = self.inputs.entry(at).or_default();
        let offset = partition.len() as u64;
        let headers: Vec<Header> = Vec::new();
        partition.push(InputRecord {
            offset,
            timestamp,
            append_time: self.now,
            key,
            value: Some(value),
            headers,
        });
        offset
    }

    /// All records of an input partition.
    pub fn input(&self, at: InputPartition) -> &[InputRecord] {
        self.inputs.get(&at).map_or(&[], Vec::as_slice)
    }

    /// What a read_committed reader sees of an output.
    pub fn committed(&self, of: Destination) -> Vec<InputRecord> {
        self.outputs
            .get(&of)
            .map_or_else(Vec::new, |stored| self.visible(stored))
    }

    /// Offsets of the group.
    pub fn group(&self) -> &BTreeMap<InputPartition, u64> {
        &self.group
    }

    /// No transaction holds anything back.
    pub fn is_settled(&self) -> bool {
        self.transactions
            .iter()
            .all(|one| matches!(one.fate, Fate::Committed | Fate::Aborted))
    }

    /// Where the changelog begins.
    pub fn changelog_start(&self) -> u64 {
        self.changelog_start
    }

    /// Names of objects.
    pub fn objects(&self) -> impl Iterator<Item = &String> {
        self.objects.keys()
    }

    /// Lets held commits take effect, each with the chance of 1 in `one_in`.
    pub fn release_held(&mut self, chance: &mut ChaCha8Rng, one_in: u32) {
        for number in 0..self.transactions.len() {
            if self.transactions[number].fate == Fate::Held && chance.random_ratio(1, one_in) {
                self.decide(number, true);
            }
        }
    }

    fn decide(&mut self, number: usize, commit: bool) {
        let transaction = &mut self.transactions[number];
        transaction.fate = if commit {
            Fate::Committed
        } else {
            Fate::Aborted
        };
        if commit {
            let offsets = std::mem::take(&mut transaction.offsets);
            self.group.extend(offsets);
        }
    }

    fn visible(&self, stored: &[Stored]) -> Vec<InputRecord> {
        let fate = |one: &Stored| match one.transaction {
            None => Fate::Committed,
            Some(number) => self.transactions[number as usize].fate,
        };
        let stable = stored
            .iter()
            .take_while(|one| !matches!(fate(one), Fate::Open | Fate::Held));
        let committed = stable.filter(|one| fate(one) == Fate::Committed);
        committed.map(|one| one.record.clone()).collect()
    }

    pub(super) fn fence(&mut self, chance: &mut ChaCha8Rng) -> Producer {
        // A commit that was requested before is completed or was never heard of: either is allowed.
        for number in 0..self.transactions.len() {
            match self.transactions[number].fate {
                Fate::Open => self.decide(number, false),
                Fate::Held => {
                    let commit = chance.random();
                    self.decide(number, commit);
                }
                Fate::Committed | Fate::Aborted => {}
            }
        }
        let producer = self
            .producer
            .map_or(Producer { id: 7, epoch: 0 }, |before| Producer {
                epoch: before.epoch + 1,
                ..before
            });
        self.producer = Some(producer);
        producer
    }

    fn is_current(&self, producer: Producer) -> Result<(), Trouble> {
        match self.producer == Some(producer) {
            true => Ok(()),
            false => Err(Trouble::Fenced),
        }
    }

    /// The open transaction of a producer.
    fn open(&self, producer: Producer) -> Result<usize, Trouble> {
        self.is_current(producer)?;
        let of_producer = |one: &Transaction| one.producer == producer && one.fate == Fate::Open;
        self.transactions
            .iter()
            .position(of_producer)
            .ok_or(Trouble::Unknown)
    }

    pub(super) fn begin(&mut self, producer: Producer) -> Result<(), Trouble> {
        self.is_current(producer)?;
        if self.open(producer).is_err() {
            self.transactions.push(Transaction {
                producer,
                fate: Fate::Open,
                offsets: BTreeMap::new(),
            });
        }
        Ok(())
    }

    pub(super) fn produce(
        &mut self,
        producer: Producer,
        records: Vec<OutputRecord>,
    ) -> Result<(), Trouble> {
        let transaction = self.open(producer)? as u64;
        for record in records {
            let log = self.outputs.entry(record.destination).or_default();
            let offset = log.len() as u64;
            log.push(Stored {
                offset,
                transaction: Some(transaction),
                record: InputRecord {
                    offset,
                    timestamp: record.timestamp,
                    append_time: self.now,
                    key: record.key,
                    value: record.value,
                    headers: record.headers,
                },
            });
        }
        Ok(())
    }

    pub(super) fn append(
        &mut self,
        producer: Producer,
        records: Vec<Bytes>,
    ) -> Result<u64, Trouble> {
        let transaction = self.open(producer)? as u64;
        let end = self.changelog.last().map_or(0, |last| last.offset + 2); // markers take offsets too
        for (offset, value) in (end..).zip(records) {
            self.changelog.push(Stored {
                offset,
                transaction: Some(transaction),
                record: InputRecord {
                    offset,
                    timestamp: self.now,
                    append_time: self.now,
                    key: None,
                    value: Some(value),
                    headers: Vec::new(),
                },
            });
        }
        self.changelog
            .last()
            .map(|last| last.offset)
            .ok_or(Trouble::Unknown)
    }

    pub(super) fn commit_offsets(
        &mut self,
        producer: Producer,
        offsets: BTreeMap<InputPartition, u64>,
    ) -> Result<(), Trouble> {
        let transaction = self.open(producer)?;
        self.transactions[transaction].offsets.extend(offsets);
        Ok(())
    }

    pub(super) fn end(&mut self, producer: Producer, held: bool) -> Result<(), Trouble> {
        let transaction = self.open(producer)?;
        match held {
            true => self.transactions[transaction].fate = Fate::Held,
            false => self.decide(transaction, true),
        }
        Ok(())
    }

    /// Committed records of the changelog from an offset on, up to the first that is not decided.
    pub(super) fn changelog(&self, from: u64) -> Vec<(u64, Bytes)> {
        let kept: Vec<_> = self
            .changelog
            .iter()
            .filter(|one| one.offset >= self.changelog_start)
            .cloned()
            .collect();
        let visible = self
            .visible(&kept)
            .into_iter()
            .filter(|record| record.offset >= from);
        visible
            .map(|record| (record.offset, record.value.unwrap_or_default()))
            .collect()
    }

    pub(super) fn truncate(&mut self, before: u64) {
        self.changelog_start = self.changelog_start.max(before);
    }

    pub(super) fn put(&mut self, path: &str, object: Bytes) {
        self.objects.insert(path.to_owned(), object);
    }

    pub(super) fn get(&self, path: &str) -> Option<Bytes> {
        self.objects.get(path).cloned()
    }

    pub(super) fn delete(&mut self, path: &str) {
        self.objects_deleted += usize::from(self.objects.remove(path).is_some());
    }

    pub(super) fn list(&self, prefix: &str) -> Vec<String> {
        let names: BTreeSet<_> = self
            .objects
            .keys()
            .filter(|path| path.starts_with(prefix))
            .collect();
        names.into_iter().cloned().collect()
    }
}
