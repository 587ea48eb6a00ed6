//! Winning a partition's epoch (storage.md P1), and by what right.

use std::time::Duration;

use bookie_metadata::{Compare, MetadataError, Op, Revision, Txn, TxnOutcome};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{OwnerEpoch, PartitionId};
use hulse_proto::wire::metadata::Partition;
use prost::Message;

use super::takeover::Collaborators;
use crate::keys::partition_key;
use crate::storage_fault;

/// How often the key is read anew after a conflict or an unknown outcome; each time a little later, about a second in all.
const EPOCH_TRIES: u32 = 20;

/// By what right an epoch is won.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Claim {
    /// This broker is the owner (ARCHITECTURE D9), by what its key says when it is read.
    Owner,
    /// The owner of this epoch hands the partition over.
    HandedOver(OwnerEpoch),
    /// The partition is being deleted: whoever owns it loses it.
    Deletion,
}

impl Claim {
    /// The partition may be won only when the life that had it is over.
    fn is_from_the_dead(self, before: &Partition) -> bool {
        match self {
            Self::Owner => true,
            Self::HandedOver(epoch) => before.owner_epoch != epoch.0,
            Self::Deletion => false,
        }
    }

    /// # Errors
    /// `PARTITION_MOVED`: another one owns it.
    fn stands(
        self,
        with: &Collaborators,
        partition: PartitionId,
        key: Option<(&Partition, Revision)>,
    ) -> Result<(), Fault> {
        match (self, key) {
            (Self::Deletion, Some(_)) => Ok(()),
            // Another broker has removed it, for whoever handed it over had it: what is won now would be left for ever.
            (Self::Deletion | Self::HandedOver(_), None) => Err(nothing_left()),
            (Self::HandedOver(epoch), Some((record, _))) if record.owner_epoch == epoch.0 => Ok(()),
            (Self::Owner | Self::HandedOver(_), key) => with.owners.judge(partition, key),
        }
    }
}

fn nothing_left() -> Fault {
    let why = "the partition was removed; nothing of it is left";
    Fault::new(Reason::PartitionNotFound, why)
}

/// P1: the owner's key with an epoch one higher and this broker's boot in it, and its version.
///
/// # Errors
/// `PARTITION_MOVED` where the claim does not stand; `PARTITION_NOT_FOUND`: it is to be deleted or handed over, and was deleted; `PARTITION_LOADING`; those of
/// metadata.
pub(crate) async fn win_epoch(
    with: &Collaborators,
    partition: PartitionId,
    claim: Claim,
) -> Result<(Partition, Revision), Fault> {
    let key = partition_key(partition);
    let mut tries = 0;
    loop {
        let found = with
            .metadata
            .get(&key)
            .await
            .map_err(|error| storage_fault::metadata(&error))?;
        let (compare, before) = match &found {
            None => (Compare::Absent(key.clone()), Partition::default()),
            Some(found) => {
                let before = Partition::decode(&found.value[..]).map_err(|error| {
                    Fault::new(
                        Reason::DataDamaged,
                        format!("metadata key {key} cannot be decoded: {error}"),
                    )
                })?;
                (Compare::Version(key.clone(), found.version), before)
            }
        };
        let known = found.as_ref().map(|found| (&before, found.version));
        claim.stands(with, partition, known)?;
        let next = before.owner_epoch.checked_add(1).ok_or_else(|| {
            let words = format!("metadata key {key} says the last of all owner epochs, which no owner ever had: restore metadata from a copy");
            Fault::new(Reason::DataDamaged, words)
        })?;
        let record = Partition {
            owner_epoch: next,
            owner: with.broker.to_string(),
            owner_boot: bytes::Bytes::copy_from_slice(with.boot.as_bytes()),
        };
        // Those that are handed over or deleted are taken from the living.
        let dead = known
            .filter(|(before, _)| claim.is_from_the_dead(before))
            .and_then(|(before, _)| with.owners.of_the_dead(before));
        let txn = Txn {
            compares: std::iter::once(compare).chain(dead).collect(),
            ops: vec![Op::put(key.clone(), record.encode_to_vec())],
        };
        match with.metadata.txn(txn).await {
            Ok(TxnOutcome::Committed { revision }) => return Ok((record, revision)),
            // Another one was faster, or an earlier try of ours landed late: an epoch more costs nothing.
            Ok(TxnOutcome::Conflict { .. }) | Err(MetadataError::OutcomeUnknown { .. })
                if tries < EPOCH_TRIES =>
            {
                tries += 1;
                tokio::time::sleep(Duration::from_millis(u64::from(tries) * 5)).await;
            }
            Ok(TxnOutcome::Conflict { .. }) => {
                return Err(Fault::new(
                    Reason::PartitionLoading,
                    "another broker takes the partition over; retry",
                ));
            }
            Err(error) => return Err(storage_fault::metadata(&error)),
        }
    }
}
