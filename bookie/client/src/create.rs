//! Creating a ledger, alone or in the place of the one before (storage.md M5, W13–W15).

use std::sync::Arc;
use std::time::Duration;

use bookie_metadata::{Compare, MetadataError, Op, Revision, Txn};
use hulse_proto::id::{EntryId, FenceToken, LedgerId, Offset};
use hulse_proto::ledger::{
    ClosedTotals, Degraded, Fragment, LedgerKind, LedgerMetadata, LedgerState, Quorums, ledger_key,
};
use tokio::time::{Instant, sleep, timeout};

use crate::error::{CreateError, GuardFailed, RollError};
use crate::ledger_client::{Inner, NewLedger};
use crate::metadata::{Committed, NonceField, NotCommitted, Proposal, commit, read_ledger};
use crate::placement::{Room, choose};
use crate::writer::{CloseGuard, LedgerWriter, Opened, Sealing, commit_close, end_of};

/// Between two looks for the metadata of a ledger that was created by a transaction with a lost answer.
const READ_AGAIN: Duration = Duration::from_millis(50);

/// What a new ledger is for, and how many copies it has.
type New = (NewLedger, Quorums);

pub(crate) async fn create(
    inner: &Arc<Inner>,
    new: New,
    room: Room,
    part: impl FnOnce(LedgerId) -> Txn + Send,
) -> Result<LedgerWriter, CreateError> {
    let deadline = Instant::now() + inner.config.metadata_deadline;
    let (ledger, metadata) = prepare(inner, new, room).await?;
    let proposal = Proposal::new(
        ledger_key(ledger),
        None,
        &metadata,
        NonceField::Writer,
        part(ledger),
    )
    .mutated(inner.config.mutation);
    match commit(&*inner.metadata, proposal, Some(deadline)).await {
        // Somebody recovered it before its creation was known here: it is not ours to write.
        Ok(Committed { metadata, .. }) if metadata.state != LedgerState::Open => {
            Err(CreateError::Conflict(GuardFailed {
                current: Vec::new(),
            }))
        }
        Ok(Committed { metadata, version }) => Ok(LedgerWriter::start(
            inner.clone(),
            Opened {
                ledger,
                metadata,
                version,
            },
        )),
        Err(NotCommitted::Failed { guard, .. }) => Err(CreateError::Conflict(guard)),
        Err(NotCommitted::Store(error)) => Err(error.into()),
        Err(NotCommitted::Unknown(why)) => Err(CreateError::OutcomeUnknown { ledger, why }),
    }
}

/// Takes a number and chooses an ensemble; nothing is written yet but the counter.
async fn prepare(
    inner: &Inner,
    (new, quorums): New,
    room: Room,
) -> Result<(LedgerId, LedgerMetadata), CreateError> {
    let ledger = inner.ids.next(&*inner.metadata).await?;
    let candidates = inner.bookies.candidates().await?;
    let placement = inner.with_rng(|rng| choose(quorums, room, candidates, rng))?;
    let degraded = placement.absent.into_iter().map(|member| Degraded {
        first: EntryId(0),
        end: EntryId(u64::MAX),
        bookies: vec![member.bookie],
    });
    let metadata = LedgerMetadata {
        kind: new.kind,
        partition: new.partition,
        owner_epoch: new.owner_epoch,
        quorums,
        state: LedgerState::Open,
        recovery_token: FenceToken(0),
        fragments: vec![Fragment {
            first: EntryId(0),
            ensemble: placement.ensemble,
        }],
        base_offset: new.base_offset,
        writer_nonce: inner.nonce(),
        recovery_nonce: [0; 16],
        repair_nonce: [0; 16],
        tier: None,
        intents: Vec::new(),
        closed: None,
        degraded: degraded.collect(),
        loss: None,
        created_at: inner.clock.now_ms(),
    };
    Ok((ledger, metadata))
}

pub(crate) async fn roll(
    inner: &Arc<Inner>,
    writer: &LedgerWriter,
    new: New,
    part: impl FnOnce(LedgerId, &ClosedTotals) -> Txn + Send,
) -> Result<LedgerWriter, RollError> {
    let (ledger, mut metadata) = match ready_to_roll(inner, writer, new).await {
        Ok(prepared) => prepared,
        Err(error) => return Err(RollError::NotStarted(error)),
    };
    let (guard, sealing) = CloseGuard::seal(writer).await.map_err(RollError::Ended)?;
    metadata.base_offset = match new.0.kind {
        LedgerKind::Log => Offset(writer.metadata().base_offset.0 + sealing.totals.offset_span),
        LedgerKind::State => Offset(0),
    };
    let both = Both {
        ledger,
        metadata,
        part: part(ledger, &sealing.totals),
    };
    match commit_roll(inner, writer, &sealing, both).await {
        Ok(opened) => {
            guard.committed();
            Ok(LedgerWriter::start(inner.clone(), opened))
        }
        Err(error) => {
            let ledger = writer.ledger();
            guard.failed(end_of(ledger, &error));
            Err(match error {
                NotCommitted::Failed { guard, .. } => RollError::Conflict(guard),
                NotCommitted::Store(error) => RollError::OutcomeUnknown {
                    ledger,
                    why: error.to_string(),
                },
                NotCommitted::Unknown(why) => RollError::OutcomeUnknown { ledger, why },
            })
        }
    }
}

/// Everything that may fail without harm, before the writer is stopped: metadata must be answering (amended W15).
async fn ready_to_roll(
    inner: &Inner,
    writer: &LedgerWriter,
    new: New,
) -> Result<(LedgerId, LedgerMetadata), CreateError> {
    let silent = || {
        CreateError::Metadata(MetadataError::Unavailable {
            why: "no answer within the time that a roll needs".to_owned(),
        })
    };
    let prepared = timeout(
        inner.config.metadata_fresh,
        prepare(inner, new, new.0.kind.into()),
    )
    .await
    .map_err(|_| silent())??;
    let key = ledger_key(writer.ledger());
    timeout(inner.config.metadata_fresh, inner.metadata.get(&key))
        .await
        .map_err(|_| silent())??;
    Ok(prepared)
}

/// The next ledger, and what the caller joins.
struct Both {
    ledger: LedgerId,
    metadata: LedgerMetadata,
    part: Txn,
}

async fn commit_roll(
    inner: &Inner,
    writer: &LedgerWriter,
    sealing: &Sealing,
    next: Both,
) -> Result<Opened, NotCommitted> {
    let next_key = ledger_key(next.ledger);
    let mut joined = Txn {
        compares: vec![Compare::Absent(next_key.clone())],
        ops: vec![Op::put(next_key, next.metadata.encode())],
    };
    joined.extend(next.part);
    let closed = commit_close(writer, sealing, joined).await?;
    // One transaction wrote both keys, so they have one version, unless the old one was marked for deletion since.
    let version = if closed.metadata.state == LedgerState::Closed {
        closed.version
    } else {
        version_of(inner, next.ledger)
            .await
            .map_err(NotCommitted::Unknown)?
    };
    Ok(Opened {
        ledger: next.ledger,
        metadata: next.metadata,
        version,
    })
}

/// Version of an open ledger's key; waits while metadata does not answer, as a roll does.
async fn version_of(inner: &Inner, ledger: LedgerId) -> Result<Revision, String> {
    loop {
        match read_ledger(&*inner.metadata, ledger).await {
            Ok(Some((metadata, version))) if metadata.state == LedgerState::Open => {
                return Ok(version);
            }
            Ok(_) => return Err("the next ledger is already another's".to_owned()),
            Err(MetadataError::Unavailable { .. }) => sleep(READ_AGAIN).await,
            Err(error) => return Err(error.to_string()),
        }
    }
}
