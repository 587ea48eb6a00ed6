//! Producer ids: reserved in blocks by compare-and-set of `id/pid`, never given twice (serving.md C1).
//!
//! One task owns the current block. A block is used only when its compare-and-set was answered with success; one of unknown
//! outcome is left unused, since numbers are plentiful and certainty is not.

use std::ops::Range;
use std::sync::Arc;

use bookie_metadata::MetadataStore;
use bookie_metadata::counter::reserve;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::ProducerId;
use tokio::sync::{mpsc, oneshot};

use crate::topics::read;

/// The next id that was never given.
const KEY: &str = "id/pid";
/// Ids per compare-and-set.
const BLOCK: u64 = 1000;
/// Requests that wait for the task.
const WAITING_MAX: usize = 1024;

type Answer = oneshot::Sender<Result<ProducerId, Fault>>;

/// The source of producer ids. Its task ends with the last clone.
#[derive(Clone)]
pub(crate) struct ProducerIds {
    requests: mpsc::Sender<Answer>,
}

impl ProducerIds {
    /// Starts the task that owns the blocks.
    pub(crate) fn start(store: Arc<dyn MetadataStore>) -> Self {
        let (requests, mut waiting) = mpsc::channel::<Answer>(WAITING_MAX);
        tokio::spawn(async move {
            let mut block = 0..0;
            while let Some(answer) = waiting.recv().await {
                // A caller that went away does not use up an id.
                if answer.is_closed() {
                    continue;
                }
                let id = next(&mut block, &*store).await;
                drop(answer.send(id));
            }
        });
        Self { requests }
    }

    /// A number that nobody got before.
    ///
    /// # Errors
    /// `METADATA_UNAVAILABLE`, `METADATA_UNKNOWN`: no id was given. `OVERLOADED`: too many ask, or every race was lost.
    pub(crate) async fn next(&self) -> Result<ProducerId, Fault> {
        let (answer, waiting) = oneshot::channel();
        if self.requests.try_send(answer).is_err() {
            let words = "too many requests for producer ids wait; retry";
            return Err(Fault::new(Reason::Overloaded, words));
        }
        let gone = |_| {
            Fault::new(
                Reason::Internal,
                "the task that hands out producer ids is gone",
            )
        };
        waiting.await.map_err(gone)?
    }
}

async fn next(block: &mut Range<u64>, store: &dyn MetadataStore) -> Result<ProducerId, Fault> {
    if block.is_empty() {
        *block = read(reserve(store, KEY, BLOCK)).await?;
    }
    let id = block.next().expect("a reserved block has numbers");
    let id = i64::try_from(id);
    let none_left = |_| {
        Fault::new(
            Reason::DataDamaged,
            format!("metadata key {KEY} is too high"),
        )
    };
    Ok(ProducerId(id.map_err(none_left)?))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use bookie_metadata::MemoryStore;
    use bookie_metadata::testing::{Fate, FaultyStore, Late};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn ids_of_two_brokers_and_lost_answers_are_never_given_twice() {
        let store = Arc::new(FaultyStore::new(Arc::new(MemoryStore::new())));
        let unknown = [Fate::UnknownCommitted, Fate::UnknownLater(Late::OnDemand)];
        store.plan_txns(unknown.into_iter().cycle().take(4));
        let brokers = [
            ProducerIds::start(store.clone()),
            ProducerIds::start(store.clone()),
        ];
        let mut given = BTreeSet::new();
        for round in 0..2500 {
            let id = brokers[round % 2].next().await.unwrap();
            assert!(id.0 >= 0 && given.insert(id), "{id} was given before");
            if round % 700 == 0 {
                store.land_all().await;
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn silent_metadata_give_no_id() {
        let store = Arc::new(FaultyStore::new(Arc::new(MemoryStore::new())));
        store.silence();
        let fault = ProducerIds::start(store).next().await.unwrap_err();
        assert_eq!(fault.reason, Reason::MetadataUnavailable);
    }
}
