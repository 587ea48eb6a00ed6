//! Producer ids: reserved in blocks by compare-and-set of `id/pid`, never given twice (serving.md C1).
//!
//! One task owns the current block. A block is used only when its compare-and-set was answered with success; one of unknown
//! outcome is left unused, since numbers are plentiful and certainty is not.

use std::ops::Range;
use std::sync::Arc;

use bookie_metadata::{MetadataStore, Op};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::ProducerId;
use hulse_proto::wire::metadata::Counter;
use prost::Message;
use tokio::sync::{mpsc, oneshot};

use crate::topics::{Changed, Expected, change, read};

/// The next id that was never given.
const KEY: &str = "id/pid";
/// Ids per compare-and-set.
const BLOCK: u64 = 1000;
/// Requests that wait for the task.
const WAITING_MAX: usize = 1024;
/// Lost races with other brokers before a request is refused.
const RACES_MAX: usize = 16;

type Answer = oneshot::Sender<Result<ProducerId, Fault>>;

/// The source of producer ids. Its task ends with the last clone.
#[derive(Clone)]
pub(super) struct ProducerIds {
    requests: mpsc::Sender<Answer>,
}

impl ProducerIds {
    /// Starts the task that owns the blocks.
    pub(super) fn start(store: Arc<dyn MetadataStore>) -> Self {
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
    pub(super) async fn next(&self) -> Result<ProducerId, Fault> {
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
        *block = reserve(store).await?;
    }
    let id = block.next().expect("a reserved block has numbers");
    Ok(ProducerId(
        i64::try_from(id).expect("reserve stays below i64::MAX"),
    ))
}

async fn reserve(store: &dyn MetadataStore) -> Result<Range<u64>, Fault> {
    for _ in 0..RACES_MAX {
        let stored = read(store.get(KEY)).await?;
        let first = match &stored {
            None => 0,
            Some(stored) => {
                let counter = Counter::decode(stored.value.clone());
                counter.map_err(|_| damaged("is not a counter"))?.next
            }
        };
        let end = first
            .checked_add(BLOCK)
            .filter(|end| i64::try_from(*end).is_ok());
        let end = end.ok_or_else(|| damaged("has no numbers left"))?;
        let expected = Expected {
            key: KEY,
            version: stored.map(|stored| stored.version),
        };
        let op = Op::put(KEY, Counter { next: end }.encode_to_vec());
        match change(store, expected, op).await? {
            Changed::Committed(_) => return Ok(first..end),
            Changed::Differs { .. } => {}
        }
    }
    let words = "other brokers reserve producer ids at the same time; retry";
    Err(Fault::new(Reason::Overloaded, words))
}

fn damaged(why: &str) -> Fault {
    Fault::new(Reason::DataDamaged, format!("metadata key {KEY} {why}"))
}
