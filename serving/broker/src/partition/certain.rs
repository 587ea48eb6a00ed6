//! What can be read of a partition that does not open because storage has lost part of it: the ledgers below that part are closed for
//! ever, and what they hold is certain (ARCHITECTURE, "E = 1 and a damaged range": reads below go on).
//!
//! A handle of this kind has no task: it takes no batches and no commands. Reads end below the first ledger that could not be
//! recovered; from there on readers hear why, whether anything stands there or not.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use hulse_proto::error::Fault;
use hulse_proto::id::{Offset, OwnerEpoch, PartitionId};
use tokio::time::Instant;

use super::handle::{Commands, PartitionHandle, Shared};
use super::replicating::Replication;
use super::shown::Shown;
use super::takeover::Collaborators;
use crate::backlogs::Refusal;
use crate::log::{LedgerSpan, LogReader, LogView};

/// For so long readers are not held up by another try to open the partition.
const FRESH_FOR: Duration = Duration::from_secs(2);

/// Partitions that do not open, and when that was found out last. As many as there are at this broker.
#[derive(Default)]
pub(crate) struct CertainParts(Mutex<BTreeMap<PartitionId, (Instant, PartitionHandle)>>);

impl CertainParts {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<PartitionId, (Instant, PartitionHandle)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was certain when the partition did not open the last time; `fresh`: unless it is time for another try.
    pub(crate) fn get(&self, partition: PartitionId, fresh: bool) -> Option<PartitionHandle> {
        let parts = self.lock();
        let (at, part) = parts.get(&partition)?;
        (!fresh || at.elapsed() < FRESH_FOR).then(|| part.clone())
    }

    /// It opens, or nobody shall read it here.
    pub(crate) fn forget(&self, partition: PartitionId) {
        self.lock().remove(&partition);
    }

    fn keep(&self, part: PartitionHandle) {
        self.lock().insert(part.id(), (Instant::now(), part));
    }
}

/// Keeps these ledgers, which are the first of the log, for readers: behind them nothing is certain, for this reason.
pub(super) fn keep(
    with: &Collaborators,
    (partition, epoch): (PartitionId, OwnerEpoch),
    (log_start, spans): (Offset, Vec<LedgerSpan>),
    why: &Fault,
) {
    let Some(end) = spans.last().map(|span| span.end) else {
        return with.certain.forget(partition);
    };
    let mut view = LogView::new(spans, log_start, end.max(log_start), with.tail.clone());
    view.set_beyond(why.clone());
    let shown = Arc::new(Shown::new(view.offsets()));
    // Nobody is at the other end.
    let (commands, _) = Commands::channel();
    with.certain.keep(PartitionHandle(Arc::new(Shared {
        id: partition,
        epoch,
        commands,
        shown,
        log: LogReader::new(view),
        time_turns: with.time_turns.clone(),
        max_batch_bytes: with.max_batch_bytes,
        log_append_time: false,
        replication: Mutex::new(Replication::default()),
        refusal: Refusal::default(),
    })));
}
