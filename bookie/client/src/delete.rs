//! Deleting a ledger: mark, tombstone everywhere, remove the key (storage.md M2, G1, G4).

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use bookie_metadata::{Compare, MetadataError, Op, Txn, TxnOutcome};
use futures::future::join_all;
use hulse_proto::bookie::{Address, BookieError};
use hulse_proto::id::LedgerId;
use hulse_proto::ledger::{LedgerMetadata, LedgerState, Member, ledger_key};
use hulse_proto::mutant::Mutant;
use tokio::time::{Instant, sleep, timeout};

use crate::error::{DeleteError, GuardFailed, MemberAnswer, MemberAnswers};
use crate::ledger_client::Inner;
use crate::metadata::read_ledger;

/// Between two tries.
const WAIT: Duration = Duration::from_millis(50);

/// Every step reads where the deletion stands and does the next thing, so it can stop and go on anywhere.
pub(crate) async fn delete(
    inner: &Arc<Inner>,
    ledger: LedgerId,
    part: Txn,
) -> Result<(), DeleteError> {
    let deadline = Instant::now() + inner.config.delete_deadline;
    loop {
        let step = step(inner, ledger, &part, deadline).await;
        let retry = match step {
            Ok(true) => return Ok(()),
            Ok(false) => None,
            Err(DeleteError::Metadata(
                error @ (MetadataError::Unavailable { .. } | MetadataError::OutcomeUnknown { .. }),
            )) => Some(error),
            Err(error) => return Err(error),
        };
        if let Some(error) = retry {
            if Instant::now() >= deadline {
                return Err(error.into());
            }
            sleep(WAIT).await;
        }
    }
}

/// Marks closed ledgers in one transaction with `part`. Nothing of them is gone when it answers: [`delete`] finishes each.
pub(crate) async fn retire(
    inner: &Arc<Inner>,
    ledgers: &[LedgerId],
    part: &Txn,
) -> Result<(), DeleteError> {
    let deadline = Instant::now() + inner.config.delete_deadline;
    loop {
        let error = match mark(inner, ledgers, part).await {
            Ok(true) => return Ok(()),
            Ok(false) => None,
            Err(DeleteError::Metadata(
                error @ (MetadataError::Unavailable { .. } | MetadataError::OutcomeUnknown { .. }),
            )) => Some(error),
            Err(error) => return Err(error),
        };
        if let Some(error) = error {
            if Instant::now() >= deadline {
                return Err(error.into());
            }
            sleep(WAIT).await;
        }
    }
}

/// One try; false: a ledger was changed meanwhile, so look again. After an unknown outcome the same versions give the same bytes
/// again (amended M3), and marks that stand are our own: nobody else deletes what the caller's guard protects.
async fn mark(inner: &Arc<Inner>, ledgers: &[LedgerId], part: &Txn) -> Result<bool, DeleteError> {
    let mut txn = Txn::default();
    for &ledger in ledgers {
        let Some((metadata, version)) = read_ledger(&*inner.metadata, ledger).await? else {
            continue;
        };
        let key = ledger_key(ledger);
        match metadata.state {
            LedgerState::Deleting => {}
            LedgerState::Closed => {
                let marked = LedgerMetadata {
                    state: LedgerState::Deleting,
                    ..metadata
                };
                txn.compares.push(Compare::Version(key.clone(), version));
                txn.ops.push(Op::put(key, marked.encode()));
            }
            state @ (LedgerState::Open | LedgerState::InRecovery) => {
                return Err(DeleteError::NotClosed { ledger, state });
            }
        }
    }
    let marked = txn.compares.clone();
    if marked.is_empty() {
        return Ok(true);
    }
    txn.extend(part.clone());
    let TxnOutcome::Conflict { current } = inner.metadata.txn(txn).await? else {
        return Ok(true);
    };
    let unchanged = marked.iter().zip(&current).all(|(compare, found)| {
        matches!((compare, found), (Compare::Version(_, version), Some(found)) if found.version == *version)
    });
    match unchanged {
        true => Err(DeleteError::Conflict(GuardFailed { current })),
        false => Ok(false),
    }
}

/// Does the next thing; true when nothing is left to do.
async fn step(
    inner: &Arc<Inner>,
    ledger: LedgerId,
    part: &Txn,
    deadline: Instant,
) -> Result<bool, DeleteError> {
    let Some((metadata, version)) = read_ledger(&*inner.metadata, ledger).await? else {
        return Ok(true);
    };
    let key = ledger_key(ledger);
    let mut txn = Txn {
        compares: vec![Compare::Version(key.clone(), version)],
        ops: Vec::new(),
    };
    match metadata.state {
        LedgerState::Closed => {
            // After an unknown outcome the same version gives the same bytes again (amended M3).
            let marked = LedgerMetadata {
                state: LedgerState::Deleting,
                ..metadata
            };
            txn.ops.push(Op::put(key.clone(), marked.encode()));
            txn.extend(part.clone());
            if let TxnOutcome::Conflict { current } = inner.metadata.txn(txn).await? {
                let unchanged = current
                    .first()
                    .and_then(Option::as_ref)
                    .is_some_and(|found| found.version == version);
                if unchanged {
                    return Err(DeleteError::Conflict(GuardFailed { current }));
                }
            }
            Ok(false)
        }
        LedgerState::Deleting => {
            let tier = metadata.tier.as_deref();
            if tier.is_some_and(|tier| tier.attempts().next().is_some()) {
                // Copies and objects go first, by upkeep, which removes the key then: without it nobody would know of the objects
                // (storage.md O10).
                return Ok(true);
            }
            bury(inner, ledger, &metadata, deadline).await?;
            txn.ops.push(Op::Delete { key });
            inner.metadata.txn(txn).await?;
            Ok(false)
        }
        state @ (LedgerState::Open | LedgerState::InRecovery) => {
            Err(DeleteError::NotClosed { ledger, state })
        }
    }
}

/// Has every member of every fragment, and whoever repair is copying to (storage.md X4), write its tombstone.
async fn bury(
    inner: &Arc<Inner>,
    ledger: LedgerId,
    metadata: &LedgerMetadata,
    deadline: Instant,
) -> Result<(), DeleteError> {
    let careless = inner.config.mutation.is(Mutant::DeletionForgetsTargets);
    let intents = metadata.intents.iter().filter(|_| !careless);
    let mut left: BTreeSet<_> = metadata
        .fragments
        .iter()
        .flat_map(|fragment| &fragment.ensemble)
        .chain(intents.map(|intent| &intent.new))
        .map(|member| (member.bookie.clone(), member.incarnation))
        .collect();
    loop {
        let asked = left.iter().map(|(bookie, incarnation)| {
            let member = Member {
                bookie: bookie.clone(),
                incarnation: *incarnation,
            };
            async move {
                let answer = bury_at(inner, ledger, &member).await;
                (member, answer)
            }
        });
        let mut answers = Vec::new();
        for (member, answer) in join_all(asked).await {
            match answer {
                // The data of another life of the disk are gone with that life.
                Ok(())
                | Err(BookieError::Deleted { .. } | BookieError::WrongIncarnation { .. }) => {
                    left.remove(&(member.bookie, member.incarnation));
                }
                Err(error) => answers.push(MemberAnswer {
                    bookie: member.bookie,
                    error: Some(error),
                }),
            }
        }
        if left.is_empty() {
            return Ok(());
        }
        if Instant::now() >= deadline {
            let members = MemberAnswers(answers);
            return Err(DeleteError::Unavailable { ledger, members });
        }
        sleep(WAIT).await;
    }
}

async fn bury_at(inner: &Inner, ledger: LedgerId, member: &Member) -> Result<(), BookieError> {
    let no_answer = |why: &str| BookieError::NoAnswer {
        why: why.to_owned(),
    };
    let bookie = inner
        .bookies
        .calls(member)
        .ok_or_else(|| no_answer("bookie is not connected"))?;
    let to = Address {
        cell: inner.cell,
        incarnation: member.incarnation,
        ledger,
    };
    timeout(inner.config.read_timeout, bookie.delete(to))
        .await
        .unwrap_or_else(|_| Err(no_answer("no answer in time")))
}
