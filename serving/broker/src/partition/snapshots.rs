//! The state chain's writer: puts snapshots where the next owner finds them (ARCHITECTURE D2, D3).
//!
//! # Invariants
//! 1. A state ledger begins with a complete snapshot; older ledgers are unlinked only after it is confirmed, by a transaction that
//!    compares the owner's key, and deleted with that same transaction, so that no ledger is ever left without a link.
//! 2. One snapshot at a time; its chunks are appended one right after the other.

use bookie_client::{
    AppendError, CloseError, CreateError, DeleteError, LedgerClient, LedgerWriter, NewLedger,
    RecoverError,
};
use bookie_metadata::{Compare, Txn};
use bytes::Bytes;
use futures::future::try_join_all;
use hulse_proto::entry::{EntryClass, EntryKind, Envelope, NewEntry};
use hulse_proto::error::{ErrorKind, Fault, Reason};
use hulse_proto::id::{LedgerId, Offset, OwnerEpoch, PartitionId};
use hulse_proto::ledger::{LedgerKind, Quorums};
use hulse_proto::mutant::Mutant;
use hulse_proto::time::TimestampMs;
use hulse_proto::wire::metadata::ChainLink;

use super::ownership;
use super::takeover::Collaborators;
use crate::log::Chain;
use crate::state::{CHUNKS_MAX, MetaRecord};
use crate::storage_fault;

/// A state ledger rolls at this size, or at four times its snapshot.
const ROLL_BYTES_MIN: u64 = 16 << 20;

/// Writes META entries of one partition under one owner.
pub(crate) struct StateWriter {
    pub(super) partition: PartitionId,
    pub(super) epoch: OwnerEpoch,
    /// The compare on the owner's key.
    pub(super) guard: Compare,
    /// Makes its ledgers, with the quorums of its topic.
    pub(super) client: LedgerClient,
    /// Of the newest ledger, whoever made it.
    pub(super) quorums: Option<Quorums>,
    pub(super) chain: Chain,
    pub(super) writer: Option<LedgerWriter>,
    /// Bytes of the newest snapshot in the open ledger.
    pub(super) snapshot_bytes: u64,
}

/// Why a snapshot is not in the chain.
pub(crate) enum SnapshotError {
    /// Not now; the log goes on and the snapshot is tried later (ARCHITECTURE D6).
    Later(Fault),
    /// Somebody else owns the partition.
    Lost(Fault),
}

/// One that no take-over would read is not written: the one before it stays, and the deltas behind that.
fn check_size(records: &[MetaRecord]) -> Result<(), SnapshotError> {
    if records.len() <= CHUNKS_MAX as usize {
        return Ok(());
    }
    let why = format!(
        "the partition remembers more than {CHUNKS_MAX} MiB of producers and acked ranges; let subscriptions ack what lies between, or delete some"
    );
    Err(SnapshotError::Later(Fault::new(Reason::Overloaded, why)))
}

impl StateWriter {
    /// Whether a ledger must be made, which begins with a snapshot, before so many bytes can be appended.
    pub(crate) fn is_due(&self, bytes: usize) -> bool {
        let limit = ROLL_BYTES_MIN.max(4 * self.snapshot_bytes);
        self.writer
            .as_ref()
            .is_none_or(|writer| writer.appended_bytes() + bytes as u64 > limit)
    }

    /// Appends one delta, behind the snapshot that a new ledger begins with. After a failure the delta may be in the ledger that is
    /// left: no later one follows it there, and the snapshot of the next ledger stands for what is before it.
    pub(crate) async fn write_delta(
        &mut self,
        with: &Collaborators,
        snapshot: Option<Vec<MetaRecord>>,
        delta: Bytes,
        now: TimestampMs,
    ) -> Result<(), SnapshotError> {
        if let Some(records) = snapshot {
            check_size(&records)?;
            self.next_ledger(with).await?;
            match self.write(with, records, now).await {
                // What it makes superfluous may stay for now.
                Err(SnapshotError::Later(fault)) if self.writer.is_some() => {
                    tracing::debug!(partition = %self.partition, %fault, "old state ledgers stay for now");
                }
                written => written?,
            }
        }
        let Some(writer) = self.writer.clone() else {
            let why = "the state chain has no open ledger";
            return Err(SnapshotError::Later(Fault::new(
                Reason::StorageUnavailable,
                why,
            )));
        };
        writer.room(EntryClass::Meta).await;
        match writer.append(meta_entry(delta, now)).await {
            Ok(_) => Ok(()),
            Err(error) => Err(self.in_doubt(with, &error).await),
        }
    }

    /// An append failed: the rest of this ledger is in doubt, and the next one begins with a snapshot. FENCED or DELETED from a member
    /// of either chain ends the partition (ARCHITECTURE D6).
    async fn in_doubt(&mut self, with: &Collaborators, error: &AppendError) -> SnapshotError {
        self.writer = None;
        let fault = storage_fault::append(error);
        match error.kind() {
            ErrorKind::Fenced => SnapshotError::Lost(fault),
            _ => self.later_unless_lost(with, fault).await,
        }
    }

    /// Appends one snapshot and drops what it makes superfluous.
    pub(crate) async fn write(
        &mut self,
        with: &Collaborators,
        records: Vec<MetaRecord>,
        now: TimestampMs,
    ) -> Result<(), SnapshotError> {
        check_size(&records)?;
        let bodies: Vec<_> = records.iter().map(MetaRecord::encode).collect();
        let size: u64 = bodies.iter().map(|body| body.len() as u64).sum();
        // What cannot be made is no reason to end the ledger that there is.
        let outdated = self.is_outdated() && self.can_make_one().await;
        if self.writer.as_ref().is_none_or(|writer| {
            let limit = ROLL_BYTES_MIN.max(4 * size);
            writer.appended_bytes() + size > limit || outdated
        }) {
            self.next_ledger(with).await?;
        }
        let Some(writer) = self.writer.clone() else {
            return Ok(());
        };
        let ledger = writer.ledger();
        if with.mutation.is(Mutant::StateLedgerUnlinkedEarly) {
            self.drop_older(with, ledger).await?;
        }
        #[cfg(any(test, feature = "testing"))]
        if with.mutation.is(Mutant::LogTrimmedPastSnapshot) {
            self.trim_log(with).await;
        }
        let mut appends = Vec::with_capacity(bodies.len());
        for body in bodies {
            // A snapshot may be larger than what the writer takes at once; answers need no poll to make room.
            writer.room(EntryClass::Meta).await;
            appends.push(writer.append(meta_entry(body, now)));
        }
        if let Err(error) = try_join_all(appends).await {
            return Err(self.in_doubt(with, &error).await);
        }
        self.snapshot_bytes = size;
        self.drop_older(with, ledger).await
    }

    /// New ledgers have other quorums.
    pub(super) fn is_outdated(&self) -> bool {
        let newest = self.quorums;
        newest.is_some_and(|quorums| quorums != self.client.quorums())
    }

    /// Whether there are bookies enough for a new ledger, as far as metadata know.
    async fn can_make_one(&self) -> bool {
        let quorums = self.client.quorums();
        let Ok(all) = self.client.candidates().await else {
            return false;
        };
        let live = all.iter().filter(|candidate| candidate.live).count();
        all.len() >= quorums.ensemble as usize && live >= quorums.ack as usize
    }

    async fn next_ledger(&mut self, with: &Collaborators) -> Result<(), SnapshotError> {
        if let Some(old) = self.writer.take() {
            // An old one that cannot be closed stays in the chain and is recovered by the next owner, or by `drop_older`.
            match old.close(self.only_guard()).await {
                Ok(_) => {}
                // P5: the owner's key has moved on, or a recoverer of a later owner was faster.
                Err(CloseError::Conflict(_)) => {
                    return Err(SnapshotError::Lost(ownership::moved()));
                }
                Err(error) => {
                    tracing::debug!(partition = %self.partition, %error, "state ledger was not closed by its writer");
                }
            }
        }
        let new = NewLedger {
            kind: LedgerKind::State,
            partition: self.partition,
            owner_epoch: self.epoch,
            base_offset: Offset(0),
        };
        let created = self.client.create(new, |ledger| {
            let link = ChainLink {
                ledger: ledger.0,
                owner_epoch: self.epoch.0,
                base_offset: 0,
                gap_start: None,
            };
            self.guarded(self.chain.append(link))
        });
        let writer = created.await.map_err(|error| match error {
            CreateError::Conflict(_) | CreateError::OutcomeUnknown { .. } => {
                SnapshotError::Lost(storage_fault::create(&error))
            }
            other => SnapshotError::Later(storage_fault::create(&other)),
        })?;
        let reloaded = self.chain.reload(&*with.metadata, writer.ledger()).await;
        reloaded.map_err(|error| SnapshotError::Lost(storage_fault::chain(&error)))?;
        self.quorums = Some(writer.quorums());
        self.writer = Some(writer);
        Ok(())
    }

    /// Unlinks and deletes every state ledger before `newest`, oldest first.
    async fn drop_older(
        &mut self,
        with: &Collaborators,
        newest: LedgerId,
    ) -> Result<(), SnapshotError> {
        loop {
            let pair = self.oldest_two().filter(|(oldest, _)| *oldest != newest);
            let Some((oldest, next)) = pair else {
                return Ok(());
            };
            if let Err(error) = with.client.recover(oldest, self.only_guard()).await {
                let fault = storage_fault::recover(oldest, &error);
                return Err(match error {
                    RecoverError::Conflict(_) => SnapshotError::Lost(fault),
                    _ => self.later_unless_lost(with, fault).await,
                });
            }
            let unlink = self.guarded(self.chain.unlink_before(next));
            if let Err(error) = with.client.delete(oldest, unlink).await {
                if let DeleteError::Conflict(_) = error {
                    return Err(SnapshotError::Lost(storage_fault::delete(&error)));
                }
                // Marked and unlinked, or not at all: reload decides what is left to do next time.
                tracing::debug!(partition = %self.partition, ledger = %oldest, %error, "old state ledger stays for now");
                if let Some(fault) = ownership::lost(with, &self.guard).await {
                    return Err(SnapshotError::Lost(fault));
                }
                let reloaded = self.chain.reload(&*with.metadata, newest).await;
                return reloaded.map_err(|error| SnapshotError::Lost(storage_fault::chain(&error)));
            }
            let reloaded = self.chain.reload(&*with.metadata, newest).await;
            reloaded.map_err(|error| SnapshotError::Lost(storage_fault::chain(&error)))?;
        }
    }

    /// P5: whatever went wrong, an owner that is none any more ends at once (what it looked at may just have been recovered,
    /// deleted or linked by the next one).
    async fn later_unless_lost(&self, with: &Collaborators, fault: Fault) -> SnapshotError {
        match ownership::lost(with, &self.guard).await {
            Some(lost) => SnapshotError::Lost(lost),
            None => SnapshotError::Later(fault),
        }
    }

    /// By mutation only: every closed log ledger goes, whatever is confirmed of the snapshot that covers it.
    #[cfg(any(test, feature = "testing"))]
    async fn trim_log(&self, with: &Collaborators) {
        let chain = Chain::load(&*with.metadata, self.partition, LedgerKind::Log).await;
        if let Ok(chain) = chain
            && let Some(newest) = chain.links().next_back()
        {
            let unlink = chain.unlink_before(LedgerId(newest.ledger));
            let _outcome = with.metadata.txn(self.guarded(unlink)).await;
        }
    }

    fn oldest_two(&self) -> Option<(LedgerId, LedgerId)> {
        let mut links = self.chain.links().map(|link| LedgerId(link.ledger));
        Some((links.next()?, links.next()?))
    }

    fn only_guard(&self) -> Txn {
        Txn {
            compares: vec![self.guard.clone()],
            ops: vec![],
        }
    }

    fn guarded(&self, mut txn: Txn) -> Txn {
        txn.compares.push(self.guard.clone());
        txn
    }
}

fn meta_entry(body: bytes::Bytes, now: TimestampMs) -> NewEntry {
    let envelope = Envelope {
        kind: EntryKind::Meta,
        append_time: now,
        running_max_timestamp: TimestampMs::MIN,
        batches: vec![],
    };
    NewEntry {
        class: EntryClass::Meta,
        first_offset: Offset(0),
        offset_span: 0,
        record_count: 0,
        envelope: envelope.encode(),
        body: vec![body],
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bookie_client::testing::{FixedClock, MemoryBookie, StaticDirectory};
    use bookie_client::{ClientConfig, LedgerClient};
    use bookie_metadata::testing::FaultyStore;
    use bookie_metadata::{MemoryStore, MetadataStore, Op};
    use hulse_proto::error::Reason;
    use hulse_proto::id::{CellId, Incarnation, NodeName, TopicId};
    use hulse_proto::ledger::ledger_key;
    use hulse_proto::mutant::Mutation;
    use uuid::Uuid;

    use super::*;
    use crate::keys::partition_key;
    use crate::log::{TailBudget, TimeTurns};
    use crate::owners::Lease;
    use crate::partition::claim::{Claim, win_epoch};
    use crate::partition::takeover::{PartitionPolicy, go_on};

    async fn owner() -> (Collaborators, StateWriter) {
        let cell = CellId(Uuid::from_u128(1));
        let store: Arc<dyn MetadataStore> =
            Arc::new(FaultyStore::new(Arc::new(MemoryStore::new())));
        let incarnation = Incarnation(Uuid::from_u128(2));
        let bookie = MemoryBookie::start(cell, "a", incarnation, Some(store.clone()));
        let quorums = Quorums {
            ensemble: 1,
            write: 1,
            ack: 1,
        };
        let mut config = ClientConfig::new(quorums);
        config.recovery_deadline = Duration::from_secs(2);
        let clock = Arc::new(FixedClock(1_000));
        let directory = Arc::new(StaticDirectory::of(&[bookie]));
        let with = Collaborators {
            metadata: store.clone(),
            client: LedgerClient::new(
                cell,
                config,
                store.clone(),
                directory,
                clock.clone(),
                [3; 32],
            ),
            clock,
            tail: TailBudget::new(0),
            time_turns: TimeTurns::new(),
            lease: Lease::none(),
            doubts: tokio::sync::Semaphore::new(1),
            broker: NodeName::new("b").unwrap(),
            owners: crate::owners::Owners::new(
                NodeName::new("b").unwrap(),
                bytes::Bytes::new(),
                store.clone(),
            ),
            boot: Uuid::from_u128(4),
            producer_expiry: Duration::from_secs(60),
            roll_bytes: 1 << 20,
            roll_age: Duration::from_secs(60),
            snapshot_entries_min: 0,
            max_batch_bytes: 1 << 20,
            burials: tokio::sync::Semaphore::new(1),
            late: crate::complaints::Complaints::default(),
            certain: crate::partition::CertainParts::default(),
            resting: Default::default(),
            ahead: Default::default(),
            letters: Default::default(),
            mutation: Mutation::default(),
        };
        let partition = PartitionId {
            topic: TopicId(Uuid::from_u128(5)),
            index: 0,
        };
        let (record, version) = win_epoch(&with, partition, Claim::Owner).await.unwrap();
        let chain = Chain::load(&*with.metadata, partition, LedgerKind::State).await;
        let writer = StateWriter {
            partition,
            epoch: OwnerEpoch(record.owner_epoch),
            guard: Compare::Version(partition_key(partition), version),
            client: with.client.clone(),
            quorums: None,
            chain: chain.unwrap(),
            writer: None,
            snapshot_bytes: 0,
        };
        (with, writer)
    }

    fn lost(result: Result<(), SnapshotError>) -> bool {
        matches!(result, Err(SnapshotError::Lost(fault)) if fault.reason == Reason::PartitionMoved)
    }

    /// storage.md P5: an owner that has lost its partition ends at the first step that fails, whatever that failure looks like.
    #[tokio::test(start_paused = true)]
    async fn step_that_fails_after_the_partition_was_lost_ends_the_owner() {
        let (with, mut writer) = owner().await;
        for _ in 0..2 {
            // Without a close, as after a snapshot whose append failed.
            writer.writer = None;
            assert!(writer.next_ledger(&with).await.is_ok());
        }
        let [oldest, newest]: [LedgerId; 2] = writer
            .chain
            .links()
            .map(|link| LedgerId(link.ledger))
            .collect::<Vec<_>>()
            .try_into()
            .unwrap();
        // Somebody deletes the oldest ledger: with our key as it was that is trouble for later, else it says who did it.
        let gone = Txn {
            compares: vec![],
            ops: vec![Op::Delete {
                key: ledger_key(oldest),
            }],
        };
        with.metadata.txn(gone).await.unwrap();
        let still_ours = writer.drop_older(&with, newest).await;
        assert!(matches!(still_ours, Err(SnapshotError::Later(_))));
        win_epoch(&with, writer.partition, Claim::Owner)
            .await
            .unwrap();
        assert!(lost(writer.drop_older(&with, newest).await));
        assert!(
            lost(writer.next_ledger(&with).await),
            "closing compares it too"
        );
    }

    /// storage.md P5: what a newer owner dropped is no damage, and no reason to ask an operator for anything.
    #[tokio::test(start_paused = true)]
    async fn take_over_that_finds_a_ledger_dropped_by_a_newer_owner_says_that_the_partition_moved()
    {
        let (with, mut writer) = owner().await;
        assert!(writer.next_ledger(&with).await.is_ok());
        let gone = writer
            .chain
            .links()
            .next()
            .map(|link| LedgerId(link.ledger));
        let gone = Txn {
            compares: vec![],
            ops: vec![Op::Delete {
                key: ledger_key(gone.unwrap()),
            }],
        };
        with.metadata.txn(gone).await.unwrap();
        let won = win_epoch(&with, writer.partition, Claim::Owner)
            .await
            .unwrap();
        let still_ours = go_on(
            &with,
            writer.partition,
            PartitionPolicy::default(),
            won.clone(),
        )
        .await;
        assert_ne!(still_ours.err().unwrap().reason, Reason::PartitionMoved);
        win_epoch(&with, writer.partition, Claim::Owner)
            .await
            .unwrap();
        let overtaken = go_on(&with, writer.partition, PartitionPolicy::default(), won).await;
        assert_eq!(overtaken.err().unwrap().reason, Reason::PartitionMoved);
    }
}
