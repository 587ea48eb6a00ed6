//! Damage as an operator sees it: which records of which topics it took.

use hulse_proto::id::PartitionId;
use hulse_proto::ledger::{LedgerKind, LedgerMetadata};
use hulse_proto::wire::v1;

use super::front::Front;
use super::ledgers::kind;
use crate::DamagedEntries;
use crate::topics::Topic;

/// Runs of damaged entries that one answer describes.
const DAMAGE_MAX: usize = 1_000;

impl Front {
    /// What is known of damage to `topic`, or to all topics.
    pub(super) async fn damage(&self, topic: Option<&Topic>) -> v1::ListDamageResponse {
        let Some(source) = &self.storage_damage else {
            return v1::ListDamageResponse::default();
        };
        let report = source();
        let mut answer = v1::ListDamageResponse {
            sealed_files: report.sealed_files,
            unchecked_files: report.unchecked_files,
            scrub_interval_ms: u64::try_from(report.scrub_interval.as_millis()).unwrap_or(u64::MAX),
            ..Default::default()
        };
        let bytes = report.bytes.into_iter();
        answer.bytes = bytes
            .map(|(file, first, end)| v1::DamagedBytes { file, first, end })
            .collect();
        for entries in report.entries {
            if answer.damage.len() == DAMAGE_MAX {
                answer.more += 1;
                continue;
            }
            answer
                .damage
                .extend(self.describe_damage(entries, topic).await);
        }
        answer
    }

    /// One run of entries; `None`: it is of another topic, or its ledger is gone.
    async fn describe_damage(
        &self,
        entries: DamagedEntries,
        wanted: Option<&Topic>,
    ) -> Option<v1::DamageDescription> {
        let mut answer = v1::DamageDescription {
            ledger: entries.ledger.0,
            first_entry: entries.first.0,
            end_entry: entries.end.0,
            file: entries.file,
            ..Default::default()
        };
        let metadata = match self.partitions.with.client.describe(entries.ledger).await {
            Ok(Some((metadata, _))) => metadata,
            Ok(None) => return None,
            // It is damaged all the same.
            Err(_) => return wanted.is_none().then_some(answer),
        };
        let partition = metadata.partition;
        if wanted.is_some_and(|topic| topic.id != partition.topic) {
            return None;
        }
        let topic = self.topics.find(partition.topic).await;
        answer.topic = topic.map_or_else(|_| String::new(), |topic| topic.name.as_str().to_owned());
        answer.partition = partition.index;
        kind(metadata.kind).clone_into(&mut answer.kind);
        if metadata.kind == LedgerKind::Log {
            let (first, end) = self.damaged_offsets(entries, partition, &metadata).await;
            (answer.first_offset, answer.end_offset) = (Some(first), end);
        }
        Some(answer)
    }

    /// The offsets, as near as they can be told; of a partition that does not open those of the whole ledger.
    async fn damaged_offsets(
        &self,
        entries: DamagedEntries,
        partition: PartitionId,
        metadata: &LedgerMetadata,
    ) -> (u64, Option<u64>) {
        if let Ok(open) = self.open(partition).await
            && let Some(offsets) = open
                .0
                .log
                .offsets_of(entries.ledger, entries.first..entries.end)
                .await
        {
            return (offsets.start.0, Some(offsets.end.0));
        }
        let base = metadata.base_offset.0;
        let closed = metadata.closed.as_ref();
        (base, closed.map(|closed| base + closed.record_count))
    }
}
