//! Assignor `uniform`: as even as subscriptions allow, and a partition stays where it is unless that makes it uneven.
//!
//! Three passes: who has a partition keeps it; what nobody has goes to the least loaded member that may have it; then partitions go
//! one by one from members to less loaded ones, the most loaded first, as long as two differ by more than one. Each such move lowers
//! the sum of squares of the loads, so the last pass ends.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hulse_proto::id::{PartitionId, TopicId};

use super::Demand;
use crate::topics::Partitions;

/// Members by number, and who is least loaded among those of a topic.
struct Loads<'a> {
    names: Vec<&'a Arc<str>>,
    has: Vec<Partitions>,
    /// For each topic, its members by load.
    by_topic: BTreeMap<TopicId, BTreeSet<(usize, usize)>>,
    topics: Vec<&'a BTreeSet<TopicId>>,
}

impl<'a> Loads<'a> {
    fn new(demand: &'a Demand) -> Self {
        let mut by_topic: BTreeMap<TopicId, BTreeSet<(usize, usize)>> = BTreeMap::new();
        for (number, topics) in demand.members.values().enumerate() {
            for topic in topics {
                by_topic.entry(*topic).or_default().insert((0, number));
            }
        }
        Self {
            names: demand.members.keys().collect(),
            has: vec![Partitions::new(); demand.members.len()],
            by_topic,
            topics: demand.members.values().collect(),
        }
    }

    fn reload(&mut self, member: usize, before: usize) {
        let after = self.has[member].len();
        for topic in self.topics[member] {
            if let Some(members) = self.by_topic.get_mut(topic) {
                members.remove(&(before, member));
                members.insert((after, member));
            }
        }
    }

    fn give(&mut self, member: usize, partition: PartitionId) {
        let before = self.has[member].len();
        self.has[member].insert(partition);
        self.reload(member, before);
    }

    fn take(&mut self, member: usize, partition: PartitionId) {
        let before = self.has[member].len();
        self.has[member].remove(&partition);
        self.reload(member, before);
    }

    fn least(&self, topic: TopicId) -> Option<(usize, usize)> {
        self.by_topic.get(&topic)?.first().copied()
    }

    /// Moves one partition from a member to a less loaded one, if two differ by more than one.
    fn even_out(&mut self, member: usize) -> bool {
        let load = self.has[member].len();
        // By topic: a member may have very many partitions of few topics.
        let moved = self.topics[member].iter().rev().find_map(|topic| {
            let (_, to) = self.least(*topic).filter(|(least, _)| least + 1 < load)?;
            let [first, last] = [0, u32::MAX].map(|index| PartitionId {
                topic: *topic,
                index,
            });
            let partition = self.has[member].range(first..=last).next_back()?;
            Some((*partition, to))
        });
        if let Some((partition, to)) = moved {
            self.take(member, partition);
            self.give(to, partition);
        }
        moved.is_some()
    }
}

pub(super) fn assign(demand: &Demand) -> BTreeMap<Arc<str>, Partitions> {
    let mut loads = Loads::new(demand);
    let mut given = Partitions::new();
    let numbers: BTreeMap<&Arc<str>, usize> = loads.names.iter().copied().zip(0..).collect();
    for (member, partitions) in &demand.before {
        let Some(number) = numbers.get(member) else {
            continue;
        };
        for partition in partitions {
            let there = demand.topics.get(&partition.topic);
            let may = there.is_some_and(|count| partition.index < *count)
                && loads.topics[*number].contains(&partition.topic);
            if may && given.insert(*partition) {
                loads.give(*number, *partition);
            }
        }
    }
    for (topic, partitions) in &demand.topics {
        for index in 0..*partitions {
            let partition = PartitionId {
                topic: *topic,
                index,
            };
            if !given.contains(&partition)
                && let Some((_, member)) = loads.least(*topic)
            {
                loads.give(member, partition);
            }
        }
    }
    level(&mut loads);
    let names = loads.names.iter().map(|name| (*name).clone());
    names.zip(loads.has.iter().cloned()).collect()
}

/// Until no move makes it more even. In each round a member gives one at most, the most loaded first: a member that gave too much would
/// get something from others, and what could have stayed would move.
fn level(loads: &mut Loads<'_>) {
    let mut order: Vec<usize> = (0..loads.has.len()).collect();
    let mut again = true;
    while again {
        order.sort_by_key(|member| Reverse(loads.has[*member].len()));
        again = false;
        for member in &order {
            again |= loads.even_out(*member);
        }
    }
}
