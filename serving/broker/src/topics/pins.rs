//! To whom a partition goes when nobody holds it, as an operator said. A pin lives no longer than its topic: it is written only while the
//! topic's record is as it was read, and a deletion, which changes that first, removes the pins there are.

use bookie_metadata::{Compare, Op, Txn, TxnOutcome};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{NodeName, PartitionId, TopicName};
use hulse_proto::wire::Message as _;
use hulse_proto::wire::metadata::Pin;

use super::registry::Topics;
use super::topic::{Topic, id_not_found};
use crate::keys::pin_key;
use crate::storage_fault;

/// How often a pin is tried while the topic's record changes under it.
const TRIES_MAX: usize = 8;

impl Topics {
    /// Pins a partition of the topic of this name to a broker.
    ///
    /// # Errors
    /// `TOPIC_NOT_FOUND` also where another topic has the name by now; `TOPIC_DELETING`; `METADATA_UNAVAILABLE`; `METADATA_UNKNOWN`:
    /// it may be pinned. Safe to repeat.
    pub(crate) async fn pin(
        &self,
        name: &TopicName,
        partition: PartitionId,
        to: &NodeName,
    ) -> Result<(), Fault> {
        for _ in 0..TRIES_MAX {
            let topic = self.get(name).await?.serving()?;
            if topic.id != partition.topic {
                return Err(id_not_found(partition.topic));
            }
            if self.pin_of(&topic, partition, to).await? {
                return Ok(());
            }
        }
        let why = format!("topic {name} changes again and again; retry");
        Err(Fault::new(Reason::MetadataUnavailable, why))
    }

    /// Takes the pin of a partition away, if there is one.
    ///
    /// # Errors
    /// `METADATA_UNAVAILABLE`, `METADATA_UNKNOWN`. Safe to repeat.
    pub(crate) async fn unpin(&self, partition: PartitionId) -> Result<(), Fault> {
        let key = pin_key(partition);
        let txn = Txn {
            compares: Vec::new(),
            ops: vec![Op::Delete { key }],
        };
        let done = self.0.store.txn(txn).await;
        done.map(drop)
            .map_err(|error| storage_fault::metadata(&error))
    }

    /// False: the topic is not as it was read any more, and nothing is done.
    pub(super) async fn pin_of(
        &self,
        topic: &Topic,
        partition: PartitionId,
        to: &NodeName,
    ) -> Result<bool, Fault> {
        let broker = to.as_str().to_owned();
        let pin = Pin { broker }.encode_to_vec();
        let txn = Txn {
            compares: vec![Compare::Version(Topic::key(&topic.name), topic.version)],
            ops: vec![Op::put(pin_key(partition), pin)],
        };
        let outcome = self.0.store.txn(txn).await;
        let outcome = outcome.map_err(|error| storage_fault::metadata(&error))?;
        Ok(matches!(outcome, TxnOutcome::Committed { .. }))
    }
}
