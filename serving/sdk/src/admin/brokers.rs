//! The admin's words on which broker serves a partition.

use hulse_proto::wire::v1;
use hulse_proto::wire::v1::drain_broker_request::Order;

use super::handle::Admin;
use crate::error::Error;

/// What a broker is to do with its partitions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BrokerOrder {
    /// Give all of them away, and take none.
    Drain,
    /// Take partitions again.
    Serve,
}

/// How far a broker is that gives its partitions away.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Draining {
    /// The order stands: until it is taken back, or the broker ends.
    pub ordered: bool,
    /// How many partitions it has, by the name of the broker that would get them next; an empty name: nobody would.
    pub heirs: Vec<(String, u64)>,
    /// Why one could not be given away, the last time that one could not.
    pub fault: Option<String>,
}

impl Draining {
    /// Partitions that it still has.
    pub fn left(&self) -> u64 {
        self.heirs.iter().map(|(_, partitions)| partitions).sum()
    }
}

impl Admin {
    /// Tells a broker to give its partitions away, or to take some again; answers at once. Said twice it means the same.
    ///
    /// # Errors
    /// PRECONDITION_FAILED: no such broker lives, or there is no other that takes partitions; or it could not be told.
    pub async fn order_broker(&self, name: &str, order: BrokerOrder) -> Result<Draining, Error> {
        self.drain(
            name,
            match order {
                BrokerOrder::Drain => Order::Drain,
                BrokerOrder::Serve => Order::Serve,
            },
        )
        .await
    }

    /// What a broker has, and who would get it; whether it is giving it away.
    ///
    /// # Errors
    /// PRECONDITION_FAILED: no such broker lives; or it could not be asked.
    pub async fn draining(&self, name: &str) -> Result<Draining, Error> {
        self.drain(name, Order::Look).await
    }

    async fn drain(&self, name: &str, order: Order) -> Result<Draining, Error> {
        let request = v1::DrainBrokerRequest {
            broker: name.to_owned(),
            order: order.into(),
        };
        // Each order may be given twice.
        let answer = self.ask(request, |mut admin, request| async move {
            admin.drain_broker(request).await
        });
        let answer = answer.await?;
        let heirs = answer.heirs.into_iter();
        Ok(Draining {
            ordered: answer.draining,
            heirs: heirs.map(|heir| (heir.broker, heir.partitions)).collect(),
            fault: Some(answer.fault).filter(|fault| !fault.is_empty()),
        })
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
