//! What an ensemble change asks of metadata and of the directory, on behalf of the writer's task.

use std::sync::Arc;
use std::time::Duration;

use bookie_metadata::MetadataError;
use hulse_proto::ledger::ledger_key;
use rand::seq::SliceRandom;
use tokio::time::timeout;

use super::event::{Survey, WriterEvent};
use super::handle::Shared;
use crate::metadata::ProposalStep;

/// A request to the store that is not answered this long counts as not answered.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// Reads the ledger's key and lists the candidates; both must be fresh for a proposal to be sent (storage.md, amended W8a).
pub(super) async fn survey(shared: Arc<Shared>) -> WriterEvent {
    let inner = &shared.inner;
    let look = async {
        let found = inner.metadata.get(&ledger_key(shared.ledger)).await?;
        let mut candidates = inner.bookies.candidates().await?;
        // The order of arrival must not matter, only the seed.
        candidates.sort_by(|a, b| a.member.bookie.cmp(&b.member.bookie));
        inner.with_rng(|rng| candidates.shuffle(rng));
        let nonce = inner.nonce();
        Ok(Survey {
            found,
            candidates,
            nonce,
        })
    };
    let answer = timeout(inner.config.metadata_fresh, look).await;
    WriterEvent::Surveyed(answer.unwrap_or_else(|_| {
        Err(MetadataError::Unavailable {
            why: "no answer within the time that an ensemble change needs".to_owned(),
        })
    }))
}

/// Sends a proposal, or reads the key to learn what became of it.
pub(super) async fn ask_metadata(shared: Arc<Shared>, step: ProposalStep) -> WriterEvent {
    let store = &shared.inner.metadata;
    match step {
        ProposalStep::Send(txn) => {
            let answer = timeout(ANSWER_TIMEOUT, store.txn(txn)).await;
            WriterEvent::MetadataAnswer(answer.unwrap_or_else(|_| {
                Err(MetadataError::OutcomeUnknown {
                    why: "no answer in time".to_owned(),
                })
            }))
        }
        ProposalStep::Read(key) => {
            let answer = timeout(ANSWER_TIMEOUT, store.get(&key)).await;
            WriterEvent::MetadataRead(answer.unwrap_or_else(|_| Err(silent())))
        }
        // The core asks for nothing once it is done.
        ProposalStep::Done(_) => WriterEvent::MetadataRead(Err(silent())),
    }
}

fn silent() -> MetadataError {
    MetadataError::Unavailable {
        why: "no answer in time".to_owned(),
    }
}
