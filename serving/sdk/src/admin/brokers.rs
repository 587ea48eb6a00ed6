//! The admin's words on which broker serves a partition.

use hulse_proto::wire::v1;

use super::handle::Admin;
use crate::error::Error;

impl Admin {
    /// Has a partition handed over to the broker of this name; answers the leader epoch when that one serves it. With `pin` it gets the
    /// partition again whenever it lives and nobody holds it. Said twice it means the same.
    ///
    /// # Errors
    /// TOPIC_NOT_FOUND, PARTITION_NOT_FOUND; PRECONDITION_FAILED: no such broker lives; or why it could not be done: then the partition
    /// is served where it was.
    pub async fn move_partition(
        &self,
        topic: &str,
        partition: u32,
        broker: &str,
        pin: bool,
    ) -> Result<u32, Error> {
        let request = v1::MovePartitionRequest {
            topic: topic.to_owned(),
            partition,
            broker: broker.to_owned(),
            pin,
        };
        let answer = self.change(request, |mut admin, request| async move {
            admin.move_partition(request).await
        });
        Ok(answer.await?.leader_epoch)
    }

    /// Forgets to which broker a partition was pinned; it stays where it is.
    ///
    /// # Errors
    /// TOPIC_NOT_FOUND, PARTITION_NOT_FOUND, or why it could not be done.
    pub async fn unpin_partition(&self, topic: &str, partition: u32) -> Result<(), Error> {
        self.move_partition(topic, partition, "", false)
            .await
            .map(drop)
    }
}
