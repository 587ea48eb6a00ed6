//! The admin's methods for brokers.

use hulse_proto::wire::v1;

use super::handle::Admin;
use crate::error::Error;

/// A broker that lives.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct BrokerInfo {
    /// Its name.
    pub name: String,
    /// `host:port` for clients.
    pub endpoint: String,
    /// It gives its partitions away, and gets none.
    pub draining: bool,
    /// It is the one that answered.
    pub answering: bool,
    /// Partitions that it holds; `None` where the answering broker does not know.
    pub partitions: Option<u64>,
}

impl Admin {
    /// The brokers that live, by name.
    ///
    /// # Errors
    /// Why it could not be asked.
    pub async fn list_brokers(&self) -> Result<Vec<BrokerInfo>, Error> {
        let request = v1::ListBrokersRequest {};
        let answer = self.ask(request, |mut admin, request| async move {
            admin.list_brokers(request).await
        });
        let brokers = answer.await?.broker.into_iter();
        Ok(brokers
            .map(|broker| BrokerInfo {
                name: broker.name,
                endpoint: broker.endpoint,
                draining: broker.draining,
                answering: broker.answering,
                partitions: broker.partitions,
            })
            .collect())
    }

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
