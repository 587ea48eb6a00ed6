//! A partition goes to another broker as planned: the new owner is asked whether it can take it, this one closes it, the other opens it.
//!
//! Nothing of it is in metadata but the key that the new owner wins: cut short anywhere, the partition is still whose key it is. While
//! it is on its way, this broker names the new owner to whoever asks, and opens it not.

use std::sync::Arc;
use std::time::Duration;

use futures::StreamExt as _;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{NodeName, OwnerEpoch, PartitionId};
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::partition_work::Work;
use tokio::time::{Instant, timeout};

use super::front::Front;
use super::peers::work_on;
use super::wire::invalid;
use crate::partition::Claim;

/// Partitions that are given away at the same time when a broker leaves.
const LEAVING_AT_ONCE: usize = 16;
/// Longest time for giving partitions away at the end; the rest is taken over when the broker is gone.
const LEAVING_MAX: Duration = Duration::from_secs(20);

impl Front {
    /// Gives a partition that is open here to another broker. Answers the epoch under which that one serves it.
    ///
    /// # Errors
    /// `PRECONDITION_FAILED`: no such broker lives, or it leaves; `PARTITION_MOVED`; what the new owner says: then it is served here on.
    pub(in crate::listener) async fn hand_over(
        &self,
        id: PartitionId,
        to: &NodeName,
    ) -> Result<OwnerEpoch, Fault> {
        let open = self.open(id).await?;
        let epoch = open.leader_epoch();
        if *to == self.config.name {
            return Ok(epoch);
        }
        let brokers = self.partitions.with.owners.brokers();
        let target = brokers.into_iter().find(|broker| broker.name == *to);
        let target = target.filter(|broker| !broker.draining).ok_or_else(|| {
            let words = format!("broker {to} does not live, or is leaving; `hulse brokers list` shows those that live");
            Fault::new(Reason::PreconditionFailed, words)
        })?;
        // It knows the topic, can be reached and takes partitions: else nothing is closed here.
        let prepare = work_on(id, Work::Prepare(true));
        self.ask_peer(&target.endpoint, prepare).await?;
        let owner = v1::PartitionOwner {
            index: id.index,
            endpoint: target.endpoint.to_string(),
            leader_epoch: epoch.0 + 1,
            broker: to.as_str().to_owned(),
            revision: self.partitions.with.owners.revision().0,
        };
        let took = Instant::now();
        let take = self.ask_peer(&target.endpoint, work_on(id, Work::Take(epoch.0)));
        let done = self.partitions.give(id, epoch, &owner, take).await?;
        tracing::info!(partition = %id, %to, epoch = done.leader_epoch, took = ?took.elapsed(), "partition was handed over");
        Ok(OwnerEpoch(done.leader_epoch))
    }

    /// Another broker hands a partition over, of which it had this epoch.
    pub(in crate::listener) async fn take(
        &self,
        id: PartitionId,
        epoch: OwnerEpoch,
    ) -> Result<OwnerEpoch, Fault> {
        let topic = self.check_exists(id).await?;
        let claim = Claim::HandedOver(epoch);
        let open = self
            .partitions
            .open_claimed(id, topic.policy(), claim)
            .await?;
        Ok(open.leader_epoch())
    }

    /// Whether a partition could be taken now.
    pub(in crate::listener) async fn prepare(&self, id: PartitionId) -> Result<(), Fault> {
        if let Some(fault) = self.shutting_down() {
            return Err(fault);
        }
        self.check_exists(id).await.map(drop)
    }

    /// The operator's word: this broker shall have it, and, with `pin`, get it again whenever nobody holds it.
    pub(in crate::listener) async fn move_to(
        &self,
        id: PartitionId,
        to: &str,
    ) -> Result<OwnerEpoch, Fault> {
        let to = NodeName::new(to).map_err(|error| invalid(error.to_string()))?;
        self.hand_over(id, &to).await
    }

    /// This broker leaves: every open partition goes to the broker that would get it next.
    pub(crate) async fn leave(self: &Arc<Self>) {
        let owners = &self.partitions.with.owners;
        if owners.alone() {
            return;
        }
        let open = self.partitions.open_ids();
        let count = open.len();
        let given = futures::stream::iter(open).map(|id| async move {
            let heir = owners.heir(id)?;
            let given = self.hand_over(id, &heir).await;
            given.inspect_err(|fault| tracing::debug!(partition = %id, %fault, "a partition could not be handed over")).ok()
        });
        let given = given.buffer_unordered(LEAVING_AT_ONCE);
        let given = given.filter_map(std::future::ready).count();
        match timeout(LEAVING_MAX, given).await {
            Ok(given) => tracing::info!(given, count, "partitions were handed over"),
            Err(_) => tracing::warn!(
                count,
                "not all partitions were handed over in time; others take them over"
            ),
        }
    }
}
