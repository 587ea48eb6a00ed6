//! Taking a partition over (ARCHITECTURE D3, storage.md P1–P7): epoch, chains, fence and recover, newest snapshot, replay.
//!
//! It creates nothing: ledgers come with the first append. It can be cut short anywhere and begun again.

use std::sync::Arc;
use std::time::Duration;

use bookie_client::{LedgerClient, ReadError};
use bookie_metadata::{Compare, MetadataStore, Revision, Txn};
use futures::stream::{self, StreamExt};
use hulse_proto::bookie::ReadClass;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{EntryId, LedgerId, NodeName, Offset, OwnerEpoch, PartitionId, TopicName};
use hulse_proto::ledger::{ClosedTotals, LedgerKind, LedgerMetadata, LedgerState};
use hulse_proto::mutant::{Mutant, Mutation};
use hulse_proto::time::WallClock;
use hulse_proto::wire::metadata::{ChainLink, Partition};
use tokio::sync::Semaphore;
use uuid::Uuid;

use super::ahead::{Closed, ReadAhead};
use super::certain::{self, CertainParts};
use super::claim::{Claim, win_epoch};
use super::core::CoreConfig;
use super::ownership;
use super::replicating::Replication;
use super::resting::RestingPartitions;
use super::sharing::Letterbox;
use super::snapshots::StateWriter;
use super::spans::spans;
use crate::complaints::Complaints;
use crate::keys::partition_key;
use crate::log::{Chain, LedgerSpan, LogReader, LogView, TailBudget, TimeTurns};
use crate::owners::{Lease, Owners, Term};
use crate::state::{Cursors, PartitionState, StateFold};
use crate::storage_fault;

/// Bytes asked of a state ledger at once.
const STATE_READ_BYTES: u32 = 8 << 20;
/// Ledgers whose metadata are read at once.
pub(super) const LOOKS_MAX: usize = 32;

/// What every partition of a broker works with.
pub(crate) struct Collaborators {
    pub(crate) metadata: Arc<dyn MetadataStore>,
    pub(crate) client: LedgerClient,
    pub(crate) clock: Arc<dyn WallClock>,
    pub(crate) tail: TailBudget,
    pub(crate) time_turns: TimeTurns,
    pub(crate) broker: NodeName,
    /// Who owns which partition.
    pub(crate) owners: Owners,
    /// How far others can have taken over.
    pub(crate) lease: Lease,
    /// Looks at keys of partitions that are in doubt: metadata that come back are not asked for all at once.
    pub(crate) doubts: Semaphore,
    /// This start of the broker: tells its own writes from those of an earlier life.
    pub(crate) boot: Uuid,
    pub(crate) producer_expiry: Duration,
    pub(crate) roll_bytes: u64,
    pub(crate) roll_age: Duration,
    pub(crate) snapshot_entries_min: u64,
    pub(crate) max_batch_bytes: usize,
    /// Ledgers whose data are removed at the same time.
    pub(crate) burials: Semaphore,
    /// Partitions whose snapshots are late.
    pub(crate) late: Complaints,
    /// Partitions that have nothing to do.
    pub(crate) resting: RestingPartitions,
    /// What can be read of partitions that do not open.
    pub(crate) certain: CertainParts,
    /// What was read of partitions that are to come from other brokers.
    pub(crate) ahead: ReadAhead,
    /// Where dead letters go out.
    pub(crate) letters: Letterbox,
    /// For tests: a rule that is switched off.
    pub(crate) mutation: Mutation,
}

/// What a topic says of its partitions.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct PartitionPolicy {
    /// Its name, for people who read the log.
    pub topic: Option<TopicName>,
    /// The owner's clock at the append is every record's timestamp.
    pub log_append_time: bool,
    /// How many copies its records have.
    pub replication: Replication,
}

/// A partition that is ready to serve.
pub(crate) struct Taken {
    /// What its topic says of copies.
    pub(crate) replication: Replication,
    pub(crate) config: CoreConfig,
    /// What the log calls it.
    pub(crate) name: Arc<str>,
    pub(crate) guard: Compare,
    /// The version of the key that won the epoch.
    pub(crate) won: Revision,
    /// The epoch was won, or seen to stand, in this term of the broker's lease.
    pub(crate) term: Term,
    pub(crate) state: PartitionState<Cursors>,
    pub(crate) log: LogReader,
    pub(crate) log_chain: Chain,
    pub(crate) state_writer: StateWriter,
    pub(crate) next_offset: Offset,
    /// Up to where the newest snapshot goes.
    pub(crate) covered: Offset,
    /// Where the last ledger ends, when that is below `next_offset`: the next link records the gap.
    pub(crate) gap_start: Option<Offset>,
    pub(crate) replayed: u64,
}

/// Takes `partition` over. `won` hears of the epoch as soon as it is this broker's, long before the partition serves.
///
/// # Errors
/// A fault that says whether a retry helps.
pub(crate) async fn take_over(
    with: &Collaborators,
    partition: PartitionId,
    policy: PartitionPolicy,
    claim: Claim,
    won: impl FnOnce(OwnerEpoch),
) -> Result<Taken, Fault> {
    // Before the epoch: should the lease end in between, the partition is in doubt from the beginning.
    let term = with.lease.term();
    let epoch = win_epoch(with, partition, claim).await?;
    won(OwnerEpoch(epoch.0.owner_epoch));
    let taken = go_on(with, partition, policy, epoch).await?;
    Ok(Taken { term, ..taken })
}

/// All that follows a won epoch. When another broker wins a newer one meanwhile, what is missing here was not lost: the new owner
/// drops what it needs no more (storage.md P5).
pub(super) async fn go_on(
    with: &Collaborators,
    partition: PartitionId,
    policy: PartitionPolicy,
    (record, version): (Partition, Revision),
) -> Result<Taken, Fault> {
    let guard = Compare::Version(partition_key(partition), version);
    match load(with, partition, policy, (&record, version)).await {
        Err(fault) => Err(ownership::lost(with, &guard).await.unwrap_or(fault)),
        taken => taken,
    }
}

/// P2 to P4: both chains closed, the newest snapshot, and the log after it. Where that fails by damage, the ledgers of the log that are
/// closed are kept for readers.
async fn load(
    with: &Collaborators,
    partition: PartitionId,
    policy: PartitionPolicy,
    (record, won): (&Partition, Revision),
) -> Result<Taken, Fault> {
    let guard = Compare::Version(partition_key(partition), won);
    let epoch = OwnerEpoch(record.owner_epoch);
    let log_chain = load_chain(with, partition, LedgerKind::Log).await?;
    let state_chain = load_chain(with, partition, LedgerKind::State).await?;
    let known = with.ahead.known(partition);
    let is_damage = |fault: &Fault| fault.reason == Reason::DataDamaged;
    let (mut state_ledgers, mut log_ledgers) = (Vec::new(), Vec::new());
    let mut recovered = recover_all(with, &state_chain, (&guard, &known), &mut state_ledgers).await;
    if recovered.as_ref().err().is_none_or(is_damage) {
        // What is certain of the log does not depend on its state.
        let log = recover_all(with, &log_chain, (&guard, &known), &mut log_ledgers).await;
        recovered = recovered.and(log);
    }
    let closed = log_ledgers.clone();
    let taken = match recovered {
        Ok(()) => {
            let chains = [
                (log_chain.clone(), log_ledgers),
                (state_chain, state_ledgers),
            ];
            join(with, policy, (partition, epoch, won), chains).await
        }
        Err(fault) => Err(fault),
    };
    if let Some(fault) = taken.as_ref().err().filter(|fault| is_damage(fault)) {
        let spans = spans(with, &log_chain, closed).unwrap_or_default();
        let log = (log_chain.log_start(), spans);
        certain::keep(with, (partition, epoch, won), log, fault);
    }
    taken
}

type Ledgers = Vec<(LedgerId, LedgerMetadata)>;

/// The partition of these chains, of which all ledgers are closed.
async fn join(
    with: &Collaborators,
    policy: PartitionPolicy,
    (partition, epoch, won): (PartitionId, OwnerEpoch, Revision),
    [(log_chain, log_ledgers), (state_chain, state_ledgers)]: [(Chain, Ledgers); 2],
) -> Result<Taken, Fault> {
    let guard = Compare::Version(partition_key(partition), won);
    let state_quorums = state_ledgers.last().map(|(_, newest)| newest.quorums);
    let mut state = fold_state(with, partition, &state_ledgers).await?;
    let lossy = log_ledgers
        .iter()
        .any(|(_, metadata)| metadata.loss.is_some());
    let log_start = log_chain.log_start();
    let spans = spans(with, &log_chain, log_ledgers)?;
    let (log_end, next_offset) = ends(with, (log_start, &spans[..]), lossy, &state)?;
    // Producers of what was trimmed stay known, whatever storage has lost of it.
    state.log.drop_from(log_end.max(log_start));
    let covered = state.log.end;
    let view = LogView::new(spans, log_start, next_offset, with.tail.clone());
    let log = LogReader::new(view);
    // Also what lies below the log start: its producers are not forgotten before a snapshot has them.
    let replayed = log
        .replay(covered, |header, envelope| {
            state.apply_log(
                header.first_offset,
                header.end_offset(),
                envelope,
                with.producer_expiry,
            );
        })
        .await?;
    state.log.end = next_offset;
    let name = policy.topic.map_or_else(
        || partition.to_string(),
        |topic| format!("{topic}/{}", partition.index),
    );
    Ok(Taken {
        replication: policy.replication,
        name: name.into(),
        config: CoreConfig {
            partition,
            epoch,
            producer_expiry: with.producer_expiry,
            roll_bytes: with.roll_bytes,
            roll_age: with.roll_age,
            snapshot_entries_min: with.snapshot_entries_min,
            log_append_time: policy.log_append_time,
            in_flight_bytes_max: with.client.config().inflight_bytes_max,
        },
        state_writer: StateWriter {
            partition,
            epoch,
            guard: guard.clone(),
            client: with.client_for(policy.replication),
            quorums: state_quorums,
            chain: state_chain,
            writer: None,
            snapshot_bytes: 0,
        },
        guard,
        won,
        term: 0,
        state,
        log,
        log_chain,
        next_offset,
        covered,
        gap_start: (next_offset > log_end).then_some(log_end),
        replayed,
    })
}

/// Where the log ends, and where it goes on: there, or where offsets were in use that storage does not have any more, as the state
/// names them, or they were trimmed, or acknowledged. A record that was given one of those again would never be delivered.
fn ends(
    with: &Collaborators,
    (log_start, spans): (Offset, &[LedgerSpan]),
    lossy: bool,
    state: &PartitionState<Cursors>,
) -> Result<(Offset, Offset), Fault> {
    let log_end = spans.last().map_or(log_start, |span| span.end);
    if state.log.end > log_end.max(log_start) && !lossy {
        let why = format!(
            "the state names offset {}, the log ends at {log_end}",
            state.log.end
        );
        let last = spans.last().map_or(LedgerId(0), |span| span.ledger);
        return Err(storage_fault::damaged(last, &why));
    }
    let kept = log_end.max(state.log.end);
    if with.mutation.is(Mutant::EndBelowStart) {
        return Ok((log_end, kept));
    }
    let next_offset = kept.max(log_start).max(state.meta.end());
    if next_offset > log_end && !lossy {
        tracing::warn!(
            ledgers = spans.len(), %log_end, %next_offset,
            "storage has lost the end of a log, of which nothing was left to deliver; the log goes on behind it"
        );
    }
    Ok((log_end, next_offset))
}

pub(super) async fn load_chain(
    with: &Collaborators,
    partition: PartitionId,
    kind: LedgerKind,
) -> Result<Chain, Fault> {
    Chain::load(&*with.metadata, partition, kind)
        .await
        .map_err(|error| storage_fault::chain(&error))
}

/// P2: every ledger of a chain closed, in order; `ledgers` gets them up to the first that cannot be. Nearly all are closed already, and
/// looking at them is what takes time, so they are looked at together; those that are not are recovered one after the other.
async fn recover_all(
    with: &Collaborators,
    chain: &Chain,
    (guard, known): (&Compare, &Closed),
    ledgers: &mut Ledgers,
) -> Result<(), Fault> {
    let all: Vec<LedgerId> = chain.links().map(|link| LedgerId(link.ledger)).collect();
    let mut looks = stream::iter(all)
        .map(|ledger| async move {
            let found = match known.get(&ledger) {
                // Closed for ever.
                Some(metadata) => Ok(Some(metadata.clone())),
                None => {
                    let found = with.client.describe(ledger).await;
                    found.map(|found| found.map(|(metadata, _)| metadata))
                }
            };
            (ledger, found)
        })
        .buffered(LOOKS_MAX);
    while let Some((ledger, found)) = looks.next().await {
        let found = found.map_err(|error| storage_fault::metadata(&error))?;
        let closed = found.filter(|metadata| metadata.state == LedgerState::Closed);
        let metadata = match closed {
            Some(metadata) => metadata,
            None => recover(with, ledger, guard).await?,
        };
        ledgers.push((ledger, metadata));
    }
    Ok(())
}

async fn recover(
    with: &Collaborators,
    ledger: LedgerId,
    guard: &Compare,
) -> Result<LedgerMetadata, Fault> {
    let guard = Txn {
        compares: vec![guard.clone()],
        ops: vec![],
    };
    let recovered = with.client.recover(ledger, guard).await;
    recovered.map_err(|error| storage_fault::recover(ledger, &error))
}

pub(super) fn totals(ledger: LedgerId, metadata: &LedgerMetadata) -> Result<ClosedTotals, Fault> {
    metadata.closed.ok_or_else(|| {
        Fault::new(
            Reason::Internal,
            format!("ledger {ledger} was recovered and has no end"),
        )
    })
}

/// The newest complete snapshot of the state chain and the deltas after it.
async fn fold_state(
    with: &Collaborators,
    partition: PartitionId,
    ledgers: &[(LedgerId, LedgerMetadata)],
) -> Result<PartitionState<Cursors>, Fault> {
    let mut fold = StateFold::<Cursors>::new(partition).mutated(with.mutation);
    for (ledger, metadata) in ledgers {
        let end = totals(*ledger, metadata)?.end;
        let reader = with.client.reader(*ledger, metadata.clone());
        let mut next = EntryId(0);
        while next < end {
            let read = reader
                .read(next, end, STATE_READ_BYTES, ReadClass::Recovery)
                .await;
            let entries = match read {
                Err(ReadError::Damaged { .. }) if reader.may_lack(next) => {
                    fold.lost();
                    next = next.next();
                    continue;
                }
                read => read.map_err(|error| storage_fault::read(*ledger, &error))?,
            };
            for entry in &entries {
                fold.fold(&entry.body())
                    .map_err(|error| storage_fault::damaged(*ledger, &error))?;
                next = entry.header().entry.next();
            }
            if entries.is_empty() {
                return Err(storage_fault::damaged(
                    *ledger,
                    &format!("entry {next} is missing"),
                ));
            }
        }
    }
    let lost = fold.deltas_lost();
    if lost > 0 {
        tracing::warn!(%partition, deltas = lost, "what subscriptions acknowledged is lost in part, as an operator accepted; those records come again");
    }
    Ok(fold.finish())
}

/// The link of a new log ledger.
pub(crate) fn log_link(
    ledger: LedgerId,
    base: Offset,
    epoch: OwnerEpoch,
    gap_start: Option<Offset>,
) -> ChainLink {
    ChainLink {
        ledger: ledger.0,
        base_offset: base.0,
        owner_epoch: epoch.0,
        gap_start: gap_start.map(|offset| offset.0),
    }
}
