//! Drives a proposal against the store.

use std::time::Duration;

use bookie_metadata::{MetadataError, MetadataStore, Revision};
use hulse_proto::id::LedgerId;
use hulse_proto::ledger::{LedgerMetadata, ledger_key};
use tokio::time::{Instant, sleep, timeout_at};

use super::proposal::{Proposal, ProposalOutcome, ProposalStep};
use crate::error::GuardFailed;

/// First wait before the store is asked again; doubles up to the longest.
const WAIT_INITIAL: Duration = Duration::from_millis(10);
const WAIT_MAX: Duration = Duration::from_secs(1);
/// A request to the store that is not answered this long counts as not answered.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A committed change.
pub struct Committed {
    /// The ledger's metadata as found or written.
    pub metadata: LedgerMetadata,
    /// Their version.
    pub version: Revision,
}

/// A change that is not known to be committed.
#[derive(Debug)]
pub enum NotCommitted {
    /// It did not and will not take effect.
    Failed {
        /// The ledger as it is.
        found: Option<Box<(LedgerMetadata, Revision)>>,
        /// The compares as they were.
        guard: GuardFailed,
    },
    /// Nothing was changed.
    Store(MetadataError),
    /// It may have been applied, or may yet be.
    Unknown(String),
}

/// Sends, resends and resolves until the outcome is known or `deadline` passes; `None` waits for ever. Dropping it leaves the outcome
/// unknown.
///
/// # Errors
/// [`NotCommitted`].
pub async fn commit(
    store: &dyn MetadataStore,
    mut proposal: Proposal,
    deadline: Option<Instant>,
) -> Result<Committed, NotCommitted> {
    let mut wait = WAIT_INITIAL;
    let mut step = proposal.start();
    let mut last_was_send: Option<bool> = None;
    loop {
        let send = match step {
            ProposalStep::Done(outcome) => return conclude(outcome),
            ProposalStep::Send(_) => true,
            ProposalStep::Read(_) => false,
        };
        // Only the first request, and a read right after a send, go out without a wait.
        if last_was_send.is_some_and(|last| send || !last) {
            sleep(wait).await;
            wait = (wait * 2).min(WAIT_MAX);
        }
        if deadline.is_some_and(|deadline| deadline <= Instant::now()) {
            return Err(out_of_time(&proposal));
        }
        step = ask(store, &mut proposal, step, deadline).await;
        last_was_send = Some(send);
    }
}

async fn ask(
    store: &dyn MetadataStore,
    proposal: &mut Proposal,
    step: ProposalStep,
    deadline: Option<Instant>,
) -> ProposalStep {
    let limit = Instant::now() + ANSWER_TIMEOUT;
    let limit = deadline.map_or(limit, |deadline| deadline.min(limit));
    match step {
        ProposalStep::Send(txn) => {
            let answer = timeout_at(limit, store.txn(txn)).await.unwrap_or_else(|_| {
                Err(MetadataError::OutcomeUnknown {
                    why: "no answer in time".to_owned(),
                })
            });
            proposal.on_answer(answer)
        }
        ProposalStep::Read(key) => {
            let answer = timeout_at(limit, store.get(&key))
                .await
                .unwrap_or_else(|_| {
                    Err(MetadataError::Unavailable {
                        why: "no answer in time".to_owned(),
                    })
                });
            proposal.on_read(answer)
        }
        done @ ProposalStep::Done(_) => done,
    }
}

fn out_of_time(proposal: &Proposal) -> NotCommitted {
    let why = proposal
        .last_error()
        .map_or_else(|| "no answer in time".to_owned(), ToString::to_string);
    if proposal.is_unknown() {
        NotCommitted::Unknown(why)
    } else {
        NotCommitted::Store(MetadataError::Unavailable { why })
    }
}

fn conclude(outcome: ProposalOutcome) -> Result<Committed, NotCommitted> {
    match outcome {
        ProposalOutcome::Committed { version, value } => match LedgerMetadata::decode(&value) {
            Ok(metadata) => Ok(Committed { metadata, version }),
            Err(error) => Err(NotCommitted::Store(MetadataError::Corrupt {
                why: error.to_string(),
            })),
        },
        ProposalOutcome::Failed { found, current } => {
            let found = found.and_then(|found| {
                let metadata = LedgerMetadata::decode(&found.value).ok()?;
                Some(Box::new((metadata, found.version)))
            });
            Err(NotCommitted::Failed {
                found,
                guard: GuardFailed { current },
            })
        }
        ProposalOutcome::Refused(error) => Err(NotCommitted::Store(error)),
        ProposalOutcome::Unknown => Err(NotCommitted::Unknown(
            "the transaction was not answered, and its other compares do not hold now".to_owned(),
        )),
    }
}

/// Reads a ledger's key, linearizably; `None`: there is no such key.
///
/// # Errors
/// Those of the store; a value that is not a ledger's is [`MetadataError::Corrupt`].
pub async fn read_ledger(
    store: &dyn MetadataStore,
    ledger: LedgerId,
) -> Result<Option<(LedgerMetadata, Revision)>, MetadataError> {
    let Some(found) = store.get(&ledger_key(ledger)).await? else {
        return Ok(None);
    };
    match LedgerMetadata::decode(&found.value) {
        Ok(metadata) => Ok(Some((metadata, found.version))),
        Err(error) => Err(MetadataError::Corrupt {
            why: format!("ledger {ledger}: {error}"),
        }),
    }
}
