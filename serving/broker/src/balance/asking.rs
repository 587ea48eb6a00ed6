//! Brokers tell each other what they have to do.

use std::collections::BTreeMap;
use std::time::Duration;

use bookie_metadata::list_all;
use futures::future::join_all;
use hulse_proto::error::Fault;
use hulse_proto::id::{NodeName, PartitionId, TopicId};
use hulse_proto::wire::v1;
use uuid::Uuid;

use super::model::{
    BrokerLoad, PARTITION_COST, PartitionLoad, Scene, TOLD_BYTES_MAX, TOLD_OPEN_MAX,
};
use crate::keys::{PINS, partition_of};
use crate::listener::Front;
use crate::storage_fault;

impl Front {
    /// What this broker has to do, now.
    pub(crate) fn load_told(&self, each: bool) -> v1::DescribeLoadResponse {
        self.sample_load();
        v1::DescribeLoadResponse {
            ready: !self.drain.is_cancelled(),
            ..self.balance.told(each)
        }
    }

    /// What every broker that lives has to do, by name, and whether it is to leave; `None` of those that did not answer.
    async fn loads(&self, each: bool) -> Vec<(NodeName, bool, Option<v1::DescribeLoadResponse>)> {
        let brokers = self.partitions.with.owners.brokers();
        let asked = brokers.into_iter().map(|broker| async move {
            let told = match broker.name == self.config.name {
                true => Some(self.load_told(each)),
                false => {
                    let told = self.ask_load(&broker.endpoint, each).await;
                    told.inspect_err(|fault| tracing::debug!(broker = %broker.name, %fault, "a broker did not tell its load")).ok()
                }
            };
            (broker.name, broker.draining, told)
        });
        join_all(asked).await
    }

    /// The load of every broker that told it, and what the balancer saw last. Nothing where this broker is alone.
    pub(crate) async fn loads_shown(
        &self,
    ) -> (
        BTreeMap<String, v1::DescribeLoadResponse>,
        Option<v1::BalanceReport>,
    ) {
        if self.partitions.with.owners.alone() {
            return Default::default();
        }
        let told = self.loads(false).await.into_iter();
        let told: BTreeMap<String, _> = told
            .filter_map(|(name, _, told)| Some((name.as_str().to_owned(), told?)))
            .collect();
        let reports = told.values().filter_map(|told| told.balance.clone());
        let last = reports.max_by_key(|report| (report.elected, report.looked_ms));
        (told, last)
    }

    /// The brokers and their partitions, as the balancer sees them.
    ///
    /// # Errors
    /// Those of metadata, where pins stand.
    pub(super) async fn scene(&self) -> Result<Scene, Fault> {
        let pins = list_all(&*self.metadata, PINS).await;
        let pins = pins.map_err(|error| storage_fault::metadata(&error))?;
        let pinned = pins.into_iter();
        let pinned = pinned.filter_map(|row| partition_of(row.key.strip_prefix(PINS)?));
        let pinned: std::collections::BTreeSet<PartitionId> = pinned.collect();
        let brokers = self.loads(true).await.into_iter();
        let brokers = brokers.map(|(name, draining, told)| {
            let mut broker = told.map(of_wire).unwrap_or_default();
            broker.ready &= !draining;
            for (id, load) in &mut broker.partitions {
                load.pinned = pinned.contains(id);
            }
            (name, broker)
        });
        Ok(brokers.collect())
    }
}

fn of_wire(told: v1::DescribeLoadResponse) -> BrokerLoad {
    let each = told.partitions.iter().filter_map(|load| {
        let partition = load.partition.as_ref()?;
        let id = PartitionId {
            topic: TopicId(Uuid::from_slice(&partition.topic_uuid).ok()?),
            index: partition.index,
        };
        let load = PartitionLoad {
            bytes: load.bytes.min(TOLD_BYTES_MAX.0),
            pinned: false,
            moved: load.moved_ms_ago.map(Duration::from_millis),
        };
        Some((id, load))
    });
    let partitions: BTreeMap<_, _> = each.collect();
    let named: u64 = told
        .partitions
        .iter()
        .fold(0, |sum, load| sum.saturating_add(load.bytes));
    let open = told.open.min(TOLD_OPEN_MAX);
    let untold = open.saturating_sub(partitions.len() as u64);
    let cost = untold.saturating_mul(PARTITION_COST);
    BrokerLoad {
        ready: told.ready,
        others: told
            .load
            .min(TOLD_BYTES_MAX.1)
            .saturating_sub(named)
            .saturating_add(cost),
        partitions,
    }
}
