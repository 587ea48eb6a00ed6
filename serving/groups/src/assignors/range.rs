//! Assignor `range`: each topic is cut into runs of neighbouring partitions, one for each of its members in order of their ids; so
//! topics with equal members and partitions are cut alike, and what belongs together by key comes to one member.

use std::collections::BTreeMap;
use std::sync::Arc;

use hulse_proto::id::PartitionId;

use super::Demand;
use crate::topics::Partitions;

pub(super) fn assign(demand: &Demand) -> BTreeMap<Arc<str>, Partitions> {
    let members = demand.members.keys().cloned();
    let mut target: BTreeMap<Arc<str>, Partitions> =
        members.map(|member| (member, Partitions::new())).collect();
    for (topic, partitions) in &demand.topics {
        let subscribed = demand.members.iter();
        let subscribed: Vec<&Arc<str>> = subscribed
            .filter(|(_, topics)| topics.contains(topic))
            .map(|(member, _)| member)
            .collect();
        let count = subscribed.len() as u32;
        let mut first = 0;
        for (place, member) in subscribed.into_iter().enumerate() {
            let more = (place as u32) < partitions % count;
            let end = first + partitions / count + u32::from(more);
            let run = (first..end).map(|index| PartitionId {
                topic: *topic,
                index,
            });
            target.entry(member.clone()).or_default().extend(run);
            first = end;
        }
    }
    target
}
