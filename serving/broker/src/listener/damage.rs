//! Damage as an operator sees it: which records of which topics it took.
//!
//! There may be a million damaged entries, and metadata may be silent. So one answer looks at a bounded number of ledgers, for a bounded
//! time; what it could not look at is damaged all the same, and counted.

use std::sync::Arc;
use std::time::Duration;

use hulse_proto::id::{LedgerId, PartitionId};
use hulse_proto::ledger::{LedgerKind, LedgerMetadata, Loss, LossKind};
use hulse_proto::wire::v1;
use tokio::time::{Instant, timeout_at};

use super::front::Front;
use super::ledgers::kind;
use crate::DamagedEntries;
use crate::topics::Topic;

/// Runs of damaged entries that one answer describes, and ranges of bytes.
const DAMAGE_MAX: usize = 1_000;
/// Ledgers that one answer asks metadata for.
const LEDGERS_MAX: usize = 1_000;
/// For so long one answer asks and reads.
const LOOK_MAX: Duration = Duration::from_secs(5);

/// What metadata say of a ledger.
#[derive(Clone)]
enum Looked {
    Known(Arc<LedgerMetadata>),
    /// There is no such ledger any more.
    Gone,
    /// They did not answer, or it was one too many.
    Unknown,
}

/// How far one answer may look.
struct Looks {
    until: Instant,
    ledgers: usize,
    /// Runs come in the order of ledgers.
    last: Option<(LedgerId, Looked)>,
}

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
        let unlisted = report.bytes.len().saturating_sub(DAMAGE_MAX) as u64;
        answer.more = unlisted.saturating_add(report.more);
        let bytes = report.bytes.into_iter().take(DAMAGE_MAX);
        answer.bytes = bytes
            .map(|(file, first, end)| v1::DamagedBytes { file, first, end })
            .collect();
        let mut looks = Looks {
            until: Instant::now() + LOOK_MAX,
            ledgers: 0,
            last: None,
        };
        for entries in report.entries {
            if answer.damage.len() == DAMAGE_MAX {
                answer.more += 1;
                continue;
            }
            match (self.ledger_of(entries.ledger, &mut looks).await, topic) {
                (Looked::Gone, _) => {}
                (Looked::Unknown, None) => answer.damage.push(in_short(&entries)),
                // It may be of this topic.
                (Looked::Unknown, Some(_)) => answer.more += 1,
                (Looked::Known(of), Some(topic)) if topic.id != of.partition.topic => {}
                (Looked::Known(of), _) => {
                    let described = self.describe_damage(entries, &of, looks.until).await;
                    answer.damage.push(described);
                }
            }
        }
        answer
    }

    /// Metadata of a ledger, as far as this answer may look.
    async fn ledger_of(&self, ledger: LedgerId, looks: &mut Looks) -> Looked {
        if let Some((_, looked)) = looks.last.as_ref().filter(|(last, _)| *last == ledger) {
            return looked.clone();
        }
        looks.ledgers += 1;
        let found = match looks.ledgers <= LEDGERS_MAX && Instant::now() < looks.until {
            false => Looked::Unknown,
            true => {
                let asked = self.partitions.with.client.describe(ledger);
                match timeout_at(looks.until, asked).await {
                    Ok(Ok(Some((metadata, _)))) => Looked::Known(Arc::new(metadata)),
                    Ok(Ok(None)) => Looked::Gone,
                    Ok(Err(_)) | Err(_) => Looked::Unknown,
                }
            }
        };
        looks.last = Some((ledger, found.clone()));
        found
    }

    /// One run of entries of this ledger.
    async fn describe_damage(
        &self,
        entries: DamagedEntries,
        metadata: &LedgerMetadata,
        until: Instant,
    ) -> v1::DamageDescription {
        let partition = metadata.partition;
        let mut answer = in_short(&entries);
        if let Ok(Ok(topic)) = timeout_at(until, self.topics.find(partition.topic)).await {
            topic.name.as_str().clone_into(&mut answer.topic);
        }
        answer.partition = partition.index;
        if let Some(loss) = passing_over(metadata, &entries) {
            answer.loss_from_entry = Some(loss.from.0);
            answer.loss_at_ms = loss.at;
        }
        kind(metadata.kind).clone_into(&mut answer.kind);
        if metadata.kind == LedgerKind::Log {
            let found = self.damaged_offsets(entries, partition);
            (answer.first_offset, answer.end_offset) = match timeout_at(until, found).await {
                Ok(Some((first, end))) => (Some(first), Some(end)),
                Ok(None) | Err(_) => whole(metadata),
            };
        }
        answer
    }

    /// The offsets, as near as they can be told; `None`: the partition does not open, or serves no such ledger.
    async fn damaged_offsets(
        &self,
        entries: DamagedEntries,
        partition: PartitionId,
    ) -> Option<(u64, u64)> {
        let open = self.open(partition).await.ok()?;
        let lost = entries.first..entries.end;
        let offsets = open.0.log.offsets_of(entries.ledger, lost).await?;
        Some((offsets.start.0, offsets.end.0))
    }
}

/// The accepted loss by which readers pass over some of these entries.
fn passing_over(metadata: &LedgerMetadata, entries: &DamagedEntries) -> Option<Loss> {
    let accepted = |loss: &Loss| loss.kind == LossKind::Accepted && loss.from < entries.end;
    metadata.loss.filter(accepted)
}

/// What the bookie alone knows.
fn in_short(entries: &DamagedEntries) -> v1::DamageDescription {
    v1::DamageDescription {
        ledger: entries.ledger.0,
        first_entry: entries.first.0,
        end_entry: entries.end.0,
        file: entries.file,
        ..Default::default()
    }
}

/// The offsets of a whole ledger.
fn whole(metadata: &LedgerMetadata) -> (Option<u64>, Option<u64>) {
    let base = metadata.base_offset.0;
    let closed = metadata.closed.as_ref();
    (Some(base), closed.map(|closed| base + closed.offset_span))
}
