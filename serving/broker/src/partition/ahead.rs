//! What is read of a partition before another broker lets go of it, so that it is served again sooner: the ends of its closed ledgers,
//! of which there may be thousands. Ends never change; what may is looked at again once the partition serves ([`differs`]).

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use futures::stream::{self, StreamExt};
use hulse_proto::error::Fault;
use hulse_proto::id::{LedgerId, PartitionId};
use hulse_proto::ledger::{LedgerKind, LedgerMetadata, LedgerState};
use tokio::time::Instant;

use super::takeover::{Collaborators, LOOKS_MAX, load_chain};
use crate::storage_fault;

/// A partition that does not come for so long is read anew.
const KEPT_FOR: Duration = Duration::from_secs(10);
/// Partitions that are read ahead at once; of more, nothing is kept.
const PARTITIONS_MAX: usize = 1_000;
/// Ledgers of all of them together, a few hundred bytes each; of a partition with which it would be more, nothing is kept.
const LEDGERS_MAX: usize = 200_000;

/// Closed ledgers.
pub(crate) type Closed = Arc<BTreeMap<LedgerId, LedgerMetadata>>;

/// What was read ahead, of each partition that is expected.
#[derive(Default)]
pub(crate) struct ReadAhead(Mutex<BTreeMap<PartitionId, (Instant, Closed)>>);

impl ReadAhead {
    fn lock(&self) -> MutexGuard<'_, BTreeMap<PartitionId, (Instant, Closed)>> {
        self.0
            .lock()
            .expect("no code panics while it holds this lock")
    }

    fn keep(&self, partition: PartitionId, closed: Closed) {
        let mut all = self.lock();
        all.retain(|id, (at, _)| *id != partition && at.elapsed() < KEPT_FOR);
        let ledgers: usize = all.values().map(|(_, closed)| closed.len()).sum();
        if all.len() < PARTITIONS_MAX && ledgers.saturating_add(closed.len()) <= LEDGERS_MAX {
            all.insert(partition, (Instant::now(), closed));
        }
    }

    /// What is known of a partition now.
    pub(crate) fn known(&self, partition: PartitionId) -> Closed {
        let all = self.lock();
        let found = all.get(&partition);
        let fresh = found.filter(|(at, _)| at.elapsed() < KEPT_FOR);
        fresh
            .map(|(_, closed)| Arc::clone(closed))
            .unwrap_or_default()
    }

    /// It came, or does not.
    pub(crate) fn forget(&self, partition: PartitionId) {
        self.lock().remove(&partition);
    }
}

/// Reads what a take-over of this partition will need. Changes nothing; another broker owns it.
///
/// # Errors
/// Those of metadata.
pub(crate) async fn read_ahead(with: &Collaborators, partition: PartitionId) -> Result<(), Fault> {
    let mut closed = BTreeMap::new();
    for kind in [LedgerKind::Log, LedgerKind::State] {
        let chain = load_chain(with, partition, kind).await?;
        let all: Vec<LedgerId> = chain.links().map(|link| LedgerId(link.ledger)).collect();
        let mut looks = described(with, all);
        while let Some((ledger, found)) = looks.next().await {
            if let Some(metadata) = found?.filter(|found| found.state == LedgerState::Closed) {
                closed.insert(ledger, metadata);
            }
        }
    }
    with.ahead.keep(partition, Arc::new(closed));
    Ok(())
}

/// Whether something of what was read ahead has changed that a reader must know: a loss that was accepted meanwhile.
pub(crate) async fn differs(with: &Collaborators, known: &Closed) -> bool {
    let mut looks = described(with, known.keys().copied().collect());
    while let Some((ledger, found)) = looks.next().await {
        let before = known.get(&ledger).map(|metadata| metadata.loss);
        if let Ok(Some(now)) = found
            && before.is_some_and(|before| before != now.loss)
        {
            return true;
        }
    }
    false
}

fn described(
    with: &Collaborators,
    all: Vec<LedgerId>,
) -> impl stream::Stream<Item = (LedgerId, Result<Option<LedgerMetadata>, Fault>)> + Unpin + '_ {
    let looks = stream::iter(all).map(move |ledger| async move {
        let found = with.client.describe(ledger).await;
        let found = found.map_err(|error| storage_fault::metadata(&error));
        (
            ledger,
            found.map(|found| found.map(|(metadata, _)| metadata)),
        )
    });
    Box::pin(looks.buffered(LOOKS_MAX))
}

#[cfg(test)]
mod tests {
    use hulse_proto::id::{FenceToken, Offset, OwnerEpoch, TopicId};
    use hulse_proto::ledger::Quorums;
    use uuid::Uuid;

    use super::*;

    #[tokio::test]
    async fn ledgers_of_all_partitions_together_are_bounded() {
        let partition = |index| PartitionId {
            topic: TopicId(Uuid::from_u128(7)),
            index,
        };
        let quorums = Quorums {
            ensemble: 1,
            write: 1,
            ack: 1,
        };
        let metadata = LedgerMetadata {
            kind: LedgerKind::Log,
            partition: partition(0),
            owner_epoch: OwnerEpoch(1),
            quorums,
            state: LedgerState::Closed,
            recovery_token: FenceToken(0),
            fragments: Vec::new(),
            base_offset: Offset(0),
            writer_nonce: [0; 16],
            recovery_nonce: [0; 16],
            repair_nonce: [0; 16],
            intents: Vec::new(),
            closed: None,
            degraded: Vec::new(),
            loss: None,
            created_at: 0,
            tier: None,
        };
        let closed = |count: usize| -> Closed {
            let ledgers = (0..count).map(|number| (LedgerId(number as u64), metadata.clone()));
            Arc::new(ledgers.collect())
        };
        let ahead = ReadAhead::default();
        ahead.keep(partition(0), closed(LEDGERS_MAX - 10));
        ahead.keep(partition(1), closed(11));
        assert!(ahead.known(partition(1)).is_empty(), "beyond the bound");
        ahead.keep(partition(2), closed(10));
        assert_eq!(ahead.known(partition(2)).len(), 10);
        // Read anew, it takes its own place.
        ahead.keep(partition(0), closed(LEDGERS_MAX - 10));
        assert_eq!(ahead.known(partition(0)).len(), LEDGERS_MAX - 10);
    }
}
