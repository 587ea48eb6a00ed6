//! The number by which the Kafka wire knows a broker: given once per name, kept in metadata for ever (serving.md, amendments).

use bookie_metadata::counter::reserve;
use bookie_metadata::{Compare, MetadataError, MetadataStore, Op, Txn, TxnOutcome};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::NodeName;
use hulse_proto::wire::metadata::Broker;
use prost::Message;

use crate::storage_fault;
use crate::topics::read;

/// The next number that was never given.
const COUNTER: &str = "id/broker";
/// Lost answers and races before the caller is told.
const TRIES_MAX: u32 = 8;

/// The number of this name, which is made when there is none.
///
/// # Errors
/// `METADATA_UNAVAILABLE`, `METADATA_UNKNOWN`: ask again; `DATA_DAMAGED`.
pub(crate) async fn node_id(store: &dyn MetadataStore, name: &NodeName) -> Result<i32, Fault> {
    let key = format!("broker/{name}");
    let mut last = None;
    for _ in 0..TRIES_MAX {
        if let Some(found) = read(store.get(&key)).await? {
            let record = Broker::decode(&found.value[..]);
            let record = record.ok().filter(|record| record.node_id > 0);
            let damaged = || {
                Fault::new(
                    Reason::DataDamaged,
                    format!("metadata key {key} is no broker"),
                )
            };
            return record.map(|record| record.node_id).ok_or_else(damaged);
        }
        let number = read(reserve(store, COUNTER, 1)).await?.start;
        // From 1: a record with 0 could not be told from an empty one.
        let node_id = i32::try_from(number + 1).map_err(|_| {
            let words = format!("metadata key {COUNTER} is too high");
            Fault::new(Reason::DataDamaged, words)
        })?;
        let txn = Txn {
            compares: vec![Compare::Absent(key.clone())],
            ops: vec![Op::put(key.clone(), Broker { node_id }.encode_to_vec())],
        };
        match store.txn(txn).await {
            Ok(TxnOutcome::Committed { .. }) => return Ok(node_id),
            // The next look tells whose it is.
            Ok(TxnOutcome::Conflict { .. }) => {}
            Err(error @ MetadataError::OutcomeUnknown { .. }) => last = Some(error),
            Err(error) => return Err(storage_fault::metadata(&error)),
        }
    }
    let contended = MetadataError::Unavailable {
        why: format!("key {key} comes and goes"),
    };
    Err(storage_fault::metadata(&last.unwrap_or(contended)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bookie_metadata::MemoryStore;
    use bookie_metadata::testing::{Fate, FaultyStore, Late};

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn number_of_a_name_stays_and_differs_from_others_through_lost_answers() {
        let store = FaultyStore::new(Arc::new(MemoryStore::new()));
        let unknown = [Fate::UnknownCommitted, Fate::UnknownLater(Late::OnDemand)];
        store.plan_txns(unknown.into_iter().cycle().take(4));
        let names = ["broker-1", "broker-2"].map(|name| NodeName::new(name).unwrap());
        let first = node_id(&store, &names[0]).await.unwrap();
        store.land_all().await;
        let second = node_id(&store, &names[1]).await.unwrap();
        assert!(
            first > 0 && second > 0 && first != second,
            "{first} {second}"
        );
        assert_eq!(node_id(&store, &names[0]).await.unwrap(), first);
        assert_eq!(node_id(&store, &names[1]).await.unwrap(), second);
    }
}
