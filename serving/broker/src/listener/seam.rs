//! What a listener of another wire stands on: the same collaborators, budgets, counters and end as the gRPC services, and nothing
//! that only one wire needs.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use bookie_metadata::BoxFuture;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{CellId, NodeName, Offset, PartitionId, ProducerId, TopicName};
use hulse_proto::wire::Message as _;
use hulse_proto::wire::metadata::Cell;
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::front::Front;
use super::identity::node_id;
use super::ingress::IngressPermit;
use crate::metrics::Metrics;
use crate::topics::read;
use crate::{BrokerConfig, BrokerView, Partitions, Topics};

/// A listener beside gRPC. [`crate::serve_with`] runs it and waits for it at the end.
pub trait WireListener: Send + 'static {
    /// Accepts and serves until [`Front::drain`] is cancelled and its connections have answered what they took. Ends at once on
    /// [`Front::kill`]. Failures of single connections are its own affair.
    fn serve(self: Box<Self>, front: Arc<Front>) -> BoxFuture<'static, ()>;
}

impl Front {
    /// What the broker was told at start.
    pub fn config(&self) -> &BrokerConfig {
        &self.config
    }

    /// The topics of the cell.
    pub fn topics(&self) -> &Topics {
        &self.topics
    }

    /// The partitions. [`Front::open`] is the way to one that a request names.
    pub fn partitions(&self) -> &Partitions {
        &self.partitions
    }

    /// What is counted.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// Connections run here, so that the shutdown waits for them.
    pub fn tasks(&self) -> &TaskTracker {
        &self.tasks
    }

    /// Cancelled when no new work is taken; what was taken is answered.
    pub fn drain(&self) -> &CancellationToken {
        &self.drain
    }

    /// Cancelled when draining took too long: end at once.
    pub fn kill(&self) -> &CancellationToken {
        &self.kill
    }

    /// Room for bytes that will be read from a socket, from the budget of all listeners; first come, first served. Cancel-safe.
    pub fn room(&self, bytes: usize) -> impl Future<Output = IngressPermit> + Send + 'static {
        self.ingress.take(bytes)
    }

    /// As [`Front::room`], now or not at all.
    pub fn try_room(&self, bytes: usize) -> Option<IngressPermit> {
        self.ingress.try_take(bytes)
    }

    /// Bytes that answers to readers may hold ahead of their connections, over all listeners.
    pub fn read_ahead(&self) -> &Arc<Semaphore> {
        &self.read_ahead
    }

    /// "Look elsewhere, or wait."
    pub fn shutting_down(&self) -> Option<Fault> {
        self.drain.is_cancelled().then(super::front::shutting_down)
    }

    /// A producer id that nobody got before.
    ///
    /// # Errors
    /// `METADATA_UNAVAILABLE`, `METADATA_UNKNOWN`, `OVERLOADED`: none was given; ask again.
    pub async fn new_producer_id(&self) -> Result<ProducerId, Fault> {
        self.producer_ids.next().await
    }

    /// Deletes a topic; answers when its name is free, or after `patience` with the number of partitions whose data are left. The
    /// deletion goes on by itself.
    ///
    /// # Errors
    /// Those of [`Topics::delete`].
    pub async fn delete_topic(&self, name: &TopicName, patience: Duration) -> Result<u32, Fault> {
        let remover = Arc::new(self.partitions.clone());
        self.topics.delete_within(name, remover, patience).await
    }

    /// Moves where a partition's log begins to `to`, or to its end; opens the partition if need be. Answers where it begins now.
    ///
    /// # Errors
    /// Those of [`Front::open`] and [`crate::PartitionHandle::trim`].
    pub async fn trim(&self, partition: PartitionId, to: Option<Offset>) -> Result<Offset, Fault> {
        self.open(partition).await?.trim(to).await
    }

    /// The number of this broker on the Kafka wire, made at first use.
    ///
    /// # Errors
    /// `METADATA_UNAVAILABLE`, `METADATA_UNKNOWN`: ask again; `DATA_DAMAGED`.
    pub async fn node_id(&self) -> Result<i32, Fault> {
        node_id(&*self.metadata, &self.config.name).await
    }

    /// The number of another broker, as [`Front::node_id`].
    ///
    /// # Errors
    /// Those of [`Front::node_id`].
    pub async fn node_id_of(&self, broker: &NodeName) -> Result<i32, Fault> {
        node_id(&*self.metadata, broker).await
    }

    /// The brokers that live, this one among them, by name. Empty where none is registered.
    pub fn brokers(&self) -> Vec<BrokerView> {
        self.partitions.with.owners.brokers()
    }

    /// The identity of the cell; `None` where nobody has made its record.
    ///
    /// # Errors
    /// `METADATA_UNAVAILABLE`, `DATA_DAMAGED`.
    pub async fn cell_id(&self) -> Result<Option<CellId>, Fault> {
        let key = bookie_metadata::cell::CELL_KEY;
        let Some(found) = read(self.metadata.get(key)).await? else {
            return Ok(None);
        };
        let cell = Cell::decode(&found.value[..]).ok();
        let cell = cell.and_then(|cell| CellId::from_slice(&cell.cell_uuid));
        let damaged = || {
            Fault::new(
                Reason::DataDamaged,
                format!("metadata key {key} is no cell"),
            )
        };
        cell.map(Some).ok_or_else(damaged)
    }
}
