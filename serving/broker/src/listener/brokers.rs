//! Whose partitions are to be, by an operator's word.

use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{NodeName, PartitionId};
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::partition_work::Work;

use super::front::Front;
use super::peers::work_on;
use super::wire::{invalid, topic_name};
use crate::authorise::{Action, Resource};
use crate::balance::MoveReason;

impl Front {
    /// Moves a partition to a broker, or only says to whom it goes when nobody holds it.
    pub(super) async fn move_partition(
        &self,
        request: &v1::MovePartitionRequest,
    ) -> Result<v1::MovePartitionResponse, Fault> {
        let name = topic_name(&request.topic)?;
        self.allow(Action::Operate, Resource::Topic(&name))?;
        let topic = self.topics.get(&name).await?.serving()?;
        if request.partition >= topic.partitions {
            let words = format!("topic {name} has {} partitions", topic.partitions);
            return Err(Fault::new(Reason::PartitionNotFound, words));
        }
        let id = PartitionId {
            topic: topic.id,
            index: request.partition,
        };
        if request.broker.is_empty() {
            if request.pin {
                return Err(invalid("a pin names a broker"));
            }
            // Nobody is meant any more.
            self.topics.unpin(id).await?;
            return Ok(v1::MovePartitionResponse { leader_epoch: 0 });
        }
        let to = NodeName::new(&request.broker).map_err(|error| invalid(error.to_string()))?;
        let work = work_on(id, Work::MoveTo(to.as_str().to_owned()));
        let done = self.anywhere(work).await;
        self.metrics
            .balance()
            .moved(MoveReason::Operator, done.is_ok());
        let done = done?;
        if request.pin {
            self.topics.pin(&name, id, &to).await?;
        }
        Ok(v1::MovePartitionResponse {
            leader_epoch: done.leader_epoch,
        })
    }
}
