//! The seams of a task over a [`Cluster`], with faults.

use std::collections::BTreeMap;
use std::future::Future;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context as Polling, Poll, Waker};

use bytes::Bytes;
use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::Cluster;
use crate::id::InputPartition;
use crate::record::{Fetched, OutputRecord};
use crate::seam::{Batch, SnapshotStore, Source, Transactions};
use crate::task::{Page, Producer, Trouble};

/// How often things go wrong, one in so many; 0: never.
#[derive(Debug, Clone, Copy, Default)]
pub struct Faults {
    /// A call has no answer; half of them were carried out.
    pub lost: u32,
    /// A commit has no answer and takes effect later.
    pub held: u32,
    /// A fetch leaves a partition out, or brings nothing of it although there is something.
    pub slow: u32,
}

/// One task's doors. All doors of a cluster share it; each task has its own producer.
#[derive(Debug, Clone)]
pub struct Doors {
    cluster: Arc<Mutex<Cluster>>,
    chance: Arc<Mutex<ChaCha8Rng>>,
    faults: Faults,
    producer: Option<Producer>,
    page_records: usize,
}

/// Polls a future that never waits.
///
/// # Panics
/// When it does wait.
pub fn ready<F: Future>(future: F) -> F::Output {
    match pin!(future).poll(&mut Polling::from_waker(Waker::noop())) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("a simulated call waits"),
    }
}

impl Doors {
    /// For one task.
    pub fn new(
        cluster: Arc<Mutex<Cluster>>,
        chance: Arc<Mutex<ChaCha8Rng>>,
        faults: Faults,
    ) -> Self {
        Self {
            cluster,
            chance,
            faults,
            producer: None,
            page_records: 7,
        }
    }

    fn happens(&self, one_in: u32) -> bool {
        let mut chance = self.chance.lock().unwrap_or_else(PoisonError::into_inner);
        one_in > 0 && chance.random_ratio(1, one_in)
    }

    /// Carries a call out, or not, and answers, or not.
    fn call<R>(&self, call: impl FnOnce(&mut Cluster) -> Result<R, Trouble>) -> Result<R, Trouble> {
        let lost = self.happens(self.faults.lost);
        if lost && self.happens(2) {
            return Err(Trouble::Unknown);
        }
        let mut cluster = self.cluster.lock().unwrap_or_else(PoisonError::into_inner);
        let answer = call(&mut cluster);
        match lost {
            true => Err(Trouble::Unknown),
            false => answer,
        }
    }

    fn as_producer<R>(
        &self,
        call: impl FnOnce(&mut Cluster, Producer) -> Result<R, Trouble>,
    ) -> Result<R, Trouble> {
        let producer = self.producer.ok_or(Trouble::Unknown)?;
        self.call(|cluster| call(cluster, producer))
    }
}

impl Source for Doors {
    async fn fetch(
        &mut self,
        from: &BTreeMap<InputPartition, u64>,
        rows_max: usize,
        bytes_max: usize,
    ) -> Result<Batch, Trouble> {
        let (mut rows, mut bytes) = (rows_max, bytes_max);
        let mut batch = Vec::new();
        for (at, start) in from {
            if self.happens(self.faults.slow) {
                continue;
            }
            let slow = self.happens(self.faults.slow);
            let most = self
                .chance
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
                .random_range(1..40);
            let fetched = self.call(|cluster| {
                let log = cluster.input(*at);
                let mut records = Vec::new();
                for record in log
                    .iter()
                    .skip(*start as usize)
                    .take(if slow { 0 } else { most })
                {
                    if rows == 0 || record.size() > bytes && !records.is_empty() {
                        break;
                    }
                    rows -= 1;
                    bytes = bytes.saturating_sub(record.size());
                    records.push(record.clone());
                }
                Ok(Fetched {
                    partition: *at,
                    next: start + records.len() as u64,
                    records,
                    end: log.len() as u64,
                })
            })?;
            batch.push(fetched);
        }
        let now = self.call(|cluster| Ok(cluster.now))?;
        Ok((batch, now))
    }
}

impl Transactions for Doors {
    async fn fence(&mut self) -> Result<Producer, Trouble> {
        let chance = self.chance.clone();
        let producer = self.call(|cluster| {
            Ok(cluster.fence(&mut chance.lock().unwrap_or_else(PoisonError::into_inner)))
        })?;
        self.producer = Some(producer);
        Ok(producer)
    }

    async fn offsets(
        &mut self,
        partitions: &[InputPartition],
    ) -> Result<BTreeMap<InputPartition, u64>, Trouble> {
        self.call(|cluster| {
            let group = cluster.group().iter();
            let wanted = group.filter(|(at, _)| partitions.contains(at));
            Ok(wanted.map(|(at, next)| (*at, *next)).collect())
        })
    }

    async fn changelog(&mut self, from: Option<u64>) -> Result<Page, Trouble> {
        let page_records = self.page_records;
        self.call(|cluster| {
            let start = from.unwrap_or_else(|| cluster.changelog_start());
            let mut records = cluster.changelog(start);
            let is_last = records.len() <= page_records;
            records.truncate(page_records);
            let next = records.last().map_or(start, |(offset, _)| offset + 1);
            Ok(Page {
                records,
                next,
                is_last,
            })
        })
    }

    async fn begin(&mut self) -> Result<(), Trouble> {
        self.as_producer(|cluster, producer| cluster.begin(producer))
    }

    async fn produce(&mut self, records: Vec<OutputRecord>) -> Result<(), Trouble> {
        self.as_producer(|cluster, producer| cluster.produce(producer, records))
    }

    async fn append(&mut self, records: Vec<Bytes>) -> Result<u64, Trouble> {
        self.as_producer(|cluster, producer| cluster.append(producer, records))
    }

    async fn commit_offsets(
        &mut self,
        offsets: BTreeMap<InputPartition, u64>,
    ) -> Result<(), Trouble> {
        self.as_producer(|cluster, producer| cluster.commit_offsets(producer, offsets))
    }

    async fn commit(&mut self) -> Result<(), Trouble> {
        let held = self.happens(self.faults.held);
        let answer = self.as_producer(|cluster, producer| cluster.end(producer, held));
        match held {
            true => Err(answer.err().unwrap_or(Trouble::Unknown)),
            false => answer,
        }
    }

    async fn truncate(&mut self, before: u64) -> Result<(), Trouble> {
        self.call(|cluster| {
            cluster.truncate(before);
            Ok(())
        })
    }
}

impl SnapshotStore for Doors {
    async fn put(&mut self, path: &str, object: Bytes) -> Result<(), Trouble> {
        self.call(|cluster| {
            cluster.put(path, object);
            Ok(())
        })
    }

    async fn get(&mut self, path: &str) -> Result<Option<Bytes>, Trouble> {
        self.call(|cluster| Ok(cluster.get(path)))
    }

    async fn delete(&mut self, path: &str) -> Result<(), Trouble> {
        self.call(|cluster| {
            cluster.delete(path);
            Ok(())
        })
    }

    async fn list(&mut self, prefix: &str) -> Result<Vec<String>, Trouble> {
        self.call(|cluster| Ok(cluster.list(prefix)))
    }
}
