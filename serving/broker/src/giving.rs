//! A partition goes to another broker: what whoever has it does with it (ARCHITECTURE D9). How the other one is asked to take it is the
//! caller's.

use hulse_proto::error::Fault;
use hulse_proto::id::{OwnerEpoch, PartitionId};
use hulse_proto::wire::v1;

use crate::Partitions;
use crate::owners::moved_to;

impl Partitions {
    /// Closes a partition that serves under this epoch, and has `owner` take it, which `take` asks for. Until that is answered this
    /// broker opens it not, and names the new owner to whoever asks. Safe to drop: its key says whose it is.
    ///
    /// # Errors
    /// Those of `take`: whether the other one has it, its key says.
    pub(crate) async fn give<T>(
        &self,
        id: PartitionId,
        epoch: OwnerEpoch,
        owner: &v1::PartitionOwner,
        take: impl Future<Output = Result<T, Fault>>,
    ) -> Result<T, Fault> {
        let _leaving = Leaving::begin(self, id, owner);
        self.close_below(id, OwnerEpoch(epoch.0 + 1), moved_to(owner))
            .await;
        take.await
    }
}

/// While a partition is on its way.
struct Leaving<'a> {
    partitions: &'a Partitions,
    id: PartitionId,
}

impl<'a> Leaving<'a> {
    fn begin(partitions: &'a Partitions, id: PartitionId, owner: &v1::PartitionOwner) -> Self {
        partitions.leaves(id, Some(moved_to(owner)));
        Self { partitions, id }
    }
}

impl Drop for Leaving<'_> {
    /// From now on its key says whose it is.
    fn drop(&mut self) {
        self.partitions.leaves(self.id, None);
    }
}
