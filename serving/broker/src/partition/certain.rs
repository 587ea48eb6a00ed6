//! What can be read of a partition that does not open because storage has lost part of it: the ledgers below that part are closed for
//! ever, and what they hold is certain (storage.md, amendment "E = 1 and a damaged range": reads below go on).
//!
//! A handle of this kind has no task: it takes no batches and no commands. Reads end below the first ledger that could not be
//! recovered; from there on readers hear why, whether anything stands there or not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use bookie_metadata::Revision;
use hulse_proto::error::Fault;
use hulse_proto::id::{Offset, OwnerEpoch, PartitionId};
use tokio::time::Instant;

use super::handle::{Commands, PartitionHandle, Shared};
use super::replicating::Replication;
use super::shown::Shown;
use super::takeover::Collaborators;
use super::tenure::Tenure;
use super::traffic::Traffic;
use crate::backlogs::Refusal;
use crate::log::{LedgerSpan, LogReader, LogView};
use crate::owners::Term;

/// For so long readers are not held up by another try to open the partition.
const FRESH_FOR: Duration = Duration::from_secs(2);

/// Partitions that do not open. As many as there are at this broker.
#[derive(Default)]
pub(crate) struct CertainParts(Mutex<BTreeMap<PartitionId, CertainPart>>);

/// What is certain of one. Handles are made of it, one for each who asks: they know this map's owner.
struct CertainPart {
    /// When that was found out last.
    at: Instant,
    epoch: OwnerEpoch,
    /// The version of the key that won the epoch.
    won: Revision,
    log: LogReader,
}

impl CertainParts {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<PartitionId, CertainPart>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// It opens, or nobody shall read it here.
    pub(crate) fn forget(&self, partition: PartitionId) {
        self.lock().remove(&partition);
    }
}

/// What was certain when the partition did not open the last time; `fresh`: unless it is time for another try.
pub(crate) fn handle(
    with: &Arc<Collaborators>,
    id: PartitionId,
    fresh: bool,
) -> Option<PartitionHandle> {
    let parts = with.certain.lock();
    let part = parts.get(&id)?;
    if fresh && part.at.elapsed() >= FRESH_FOR {
        return None;
    }
    // Nobody is at the other end.
    let (commands, _) = Commands::channel();
    let offsets = part.log.with_view(|view| view.offsets());
    Some(PartitionHandle(Arc::new(Shared {
        id,
        epoch: part.epoch,
        commands,
        shown: Arc::new(Shown::new(offsets)),
        log: part.log.clone(),
        with: with.clone(),
        // In doubt from the beginning: metadata are asked before an end is told.
        tenure: Tenure::new(part.won, Term::default()),
        traffic: Traffic::default(),
        max_batch_bytes: with.max_batch_bytes,
        log_append_time: false,
        replication: Mutex::new(Replication::default()),
        refusal: Refusal::default(),
    })))
}

/// Keeps these ledgers, which are the first of the log, for readers: behind them nothing is certain, for this reason.
pub(super) fn keep(
    with: &Collaborators,
    (partition, epoch, won): (PartitionId, OwnerEpoch, Revision),
    (log_start, spans): (Offset, Vec<LedgerSpan>),
    why: &Fault,
) {
    let Some(end) = spans.last().map(|span| span.end) else {
        return with.certain.forget(partition);
    };
    let mut view = LogView::new(spans, log_start, end.max(log_start), with.tail.clone());
    view.set_beyond(why.clone());
    let part = CertainPart {
        at: Instant::now(),
        epoch,
        won,
        log: LogReader::new(view),
    };
    with.certain.lock().insert(partition, part);
}
