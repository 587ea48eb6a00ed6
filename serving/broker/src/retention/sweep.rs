//! Goes over every partition from time to time and has what fell due trimmed.
//!
//! A partition that is open is asked; of one that is not, metadata tell whether anything can be due, and only then is it opened
//! (ARCHITECTURE D9: time alone brings work). What was seen of a closed one is remembered, so that it is not read again before
//! something can have changed.

use std::collections::BTreeMap;
use std::time::Duration;

use futures::stream::{self, StreamExt};
use hulse_proto::error::Fault;
use hulse_proto::id::{LedgerId, PartitionId};
use hulse_proto::ledger::LedgerKind;
use hulse_proto::time::TimestampMs;
use tokio::time::sleep;

use super::policy::Limits;
use crate::log::Chain;
use crate::owner::Partitions;
use crate::partition::Claim;
use crate::storage_fault;
use crate::topics::{Topic, TopicState, Topics};

/// Topics read at a time.
const PAGE: u32 = 1000;
/// Partitions of a topic that are looked at together.
const PARTITIONS_AT_ONCE: usize = 4;
/// Between two partitions that had to be looked at in metadata or opened: background work leaves room for clients.
const PACE: Duration = Duration::from_millis(5);

/// The sweep of one broker.
pub(crate) struct Sweep {
    partitions: Partitions,
    topics: Topics,
    cluster: Limits,
    every: Duration,
    /// Closed partitions, the limits that they were looked at with, and the date before which nothing can fall due. Bounded by the
    /// partitions of the cell.
    quiet: BTreeMap<PartitionId, (Limits, TimestampMs)>,
}

impl Sweep {
    pub(crate) fn new(
        partitions: Partitions,
        topics: Topics,
        cluster: Limits,
        every: Duration,
    ) -> Self {
        Self {
            partitions,
            topics,
            cluster,
            every,
            quiet: BTreeMap::new(),
        }
    }

    /// Goes on for ever. A failure concerns one partition, which is tried again the next time.
    pub(crate) async fn run(mut self) {
        loop {
            sleep(self.every).await;
            self.sweep().await;
        }
    }

    /// Once over all partitions.
    pub(crate) async fn sweep(&mut self) {
        let mut seen = BTreeMap::new();
        let mut token = String::new();
        loop {
            let page = match self.topics.list("", &token, PAGE).await {
                Ok(page) => page,
                Err(fault) => {
                    tracing::debug!(%fault, "topics cannot be listed; retention waits");
                    return;
                }
            };
            for topic in &page.topics {
                self.topic(topic, &mut seen).await;
            }
            match page.next {
                Some(next) => token = next,
                None => break,
            }
        }
        self.quiet = seen;
    }

    async fn topic(&self, topic: &Topic, seen: &mut BTreeMap<PartitionId, (Limits, TimestampMs)>) {
        if topic.state != TopicState::Active {
            return;
        }
        let limits = topic.retention.limits(self.cluster);
        // Several, since one whose storage does not answer takes its time.
        let mut looks =
            stream::iter(topic.partition_ids())
                .map(|partition| async move {
                    (partition, self.partition(topic, partition, limits).await)
                })
                .buffer_unordered(PARTITIONS_AT_ONCE);
        while let Some((partition, looked)) = looks.next().await {
            match looked {
                Ok(Some(quiet_until)) => {
                    seen.insert(partition, (limits, quiet_until));
                }
                Ok(None) => {}
                Err(fault) => {
                    tracing::debug!(%partition, %fault, "retention of a partition waits");
                }
            }
        }
    }

    /// Has one partition trimmed; answers until when a closed one needs no look.
    async fn partition(
        &self,
        topic: &Topic,
        partition: PartitionId,
        limits: Limits,
    ) -> Result<Option<TimestampMs>, Fault> {
        if let Some(open) = self.partitions.opened(partition) {
            open.replicate(topic.policy().replication);
            open.retain(limits).await?;
            return Ok(None);
        }
        if limits.is_unlimited() || self.partitions.is_elsewhere(partition) {
            return Ok(None);
        }
        let now = self.partitions.with.clock.now_ms();
        let known = self.quiet.get(&partition);
        if let Some((_, until)) = known.filter(|(then, until)| *then == limits && *until > now) {
            return Ok(Some(*until));
        }
        sleep(PACE).await;
        let quiet_until = self.due_at(partition, limits).await?;
        if quiet_until > now {
            return Ok(Some(quiet_until));
        }
        let claim = Claim::Owner;
        let opened = self
            .partitions
            .open_of(&self.topics, topic, partition, claim);
        opened.await?.retain(limits).await?;
        Ok(None)
    }

    /// The earliest date at which anything of a closed partition can fall due, by what metadata say.
    async fn due_at(&self, partition: PartitionId, limits: Limits) -> Result<TimestampMs, Fault> {
        let with = &self.partitions.with;
        let chain = Chain::load(&*with.metadata, partition, LedgerKind::Log).await;
        let chain = chain.map_err(|error| storage_fault::chain(&error))?;
        let mut bytes = 0;
        let mut oldest = None;
        for link in chain.links() {
            let found = with.client.describe(LedgerId(link.ledger)).await;
            let found = found.map_err(|error| storage_fault::metadata(&error))?;
            let Some((metadata, _)) = found else { continue };
            oldest.get_or_insert(metadata.created_at);
            let closed = metadata.closed.map_or(0, |closed| closed.bytes);
            bytes += closed;
            if limits.bytes.is_none() {
                break;
            }
        }
        let Some(oldest) = oldest else {
            return Ok(TimestampMs::MAX);
        };
        // The smallest piece that may go is not known here; an owner that looks once too often does no harm.
        if limits.bytes.is_some_and(|limit| bytes > limit) && chain.links().count() > 1 {
            return Ok(TimestampMs::MIN);
        }
        let time = limits.time.map_or(TimestampMs::MAX, |time| {
            TimestampMs::try_from(time.as_millis()).unwrap_or(TimestampMs::MAX)
        });
        Ok(oldest.saturating_add(time))
    }
}
