//! What is known of damage.

use std::ops::Range;
use std::time::Duration;

use hulse_proto::id::LedgerId;
use hulse_proto::wire::v1;

use super::handle::Admin;
use crate::error::Error;

/// Entries in a row of which no byte can be trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DamagedRecords {
    /// Of this ledger.
    pub ledger: LedgerId,
    /// Full name; empty: nobody knows the topic any more.
    pub topic: String,
    /// Index.
    pub partition: u32,
    /// `log` or `state`.
    pub kind: String,
    /// Numbers of the entries.
    pub entries: Range<u64>,
    /// Of a log: the damaged records lie within these offsets. `None` as an end: not known.
    pub first_offset: Option<u64>,
    /// Exclusive.
    pub end_offset: Option<u64>,
    /// Number of the storage node's log file.
    pub file: u64,
    /// Set where a loss of the ledger was accepted from this entry on, which is not behind these: readers pass over them, if no other
    /// bookie has them, whether they were lost then or were found damaged since.
    pub loss_from: Option<u64>,
    /// When it was accepted, ms since 1970.
    pub loss_at_ms: i64,
}

/// What the storage node in a broker's process knows.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// Records, in the order of ledgers.
    pub records: Vec<DamagedRecords>,
    /// Further ones that are not listed.
    pub more: u64,
    /// Bytes of log files that a start could not read: number of the file, and the bytes.
    pub bytes: Vec<(u64, Range<u64>)>,
    /// Log files that are full.
    pub sealed_files: u64,
    /// How many of them were not checked since the node's start.
    pub unchecked_files: u64,
    /// Each is checked once in this time.
    pub scrub_interval: Duration,
}

impl DamagedRecords {
    pub(super) fn from_wire(wire: v1::DamageDescription) -> Self {
        Self {
            ledger: LedgerId(wire.ledger),
            topic: wire.topic,
            partition: wire.partition,
            kind: wire.kind,
            entries: wire.first_entry..wire.end_entry,
            first_offset: wire.first_offset,
            end_offset: wire.end_offset,
            file: wire.file,
            loss_from: wire.loss_from_entry,
            loss_at_ms: wire.loss_at_ms,
        }
    }
}

impl Admin {
    /// What is known to be damaged of a topic, or of all when it is empty.
    ///
    /// # Errors
    /// TOPIC_NOT_FOUND, or why it could not be asked.
    pub async fn damage(&self, topic: &str) -> Result<Damage, Error> {
        let topic = topic.to_owned();
        let request = v1::ListDamageRequest { topic };
        let answer = self.ask(request, |mut admin, request| async move {
            admin.list_damage(request).await
        });
        let answer = answer.await?;
        Ok(Damage {
            records: answer
                .damage
                .into_iter()
                .map(DamagedRecords::from_wire)
                .collect(),
            more: answer.more,
            bytes: answer
                .bytes
                .into_iter()
                .map(|bytes| (bytes.file, bytes.first..bytes.end))
                .collect(),
            sealed_files: answer.sealed_files,
            unchecked_files: answer.unchecked_files,
            scrub_interval: Duration::from_millis(answer.scrub_interval_ms),
        })
    }
}
