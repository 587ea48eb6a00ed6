//! The group's topics, its epoch, and the target (serving.md B7).

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hulse_proto::id::TopicId;

use crate::assignors::{self, Demand};
use crate::coordinator::Coordinator;
use crate::error::GroupError;
use crate::limits::{ASSIGNED_PARTITIONS_MAX, SUBSCRIBED_BYTES_MAX};
use crate::request::Now;
use crate::state::{Change, ConsumerGroup, MemberFacts};
use crate::topics::{TopicFacts, TopicsView, compile};

/// Topics by name and pattern; each pattern is looked at once.
struct Resolver<'a> {
    topics: &'a TopicsView,
    patterns: BTreeMap<Arc<str>, Vec<TopicFacts>>,
}

impl<'a> Resolver<'a> {
    fn new(topics: &'a TopicsView) -> Self {
        Self {
            topics,
            patterns: BTreeMap::new(),
        }
    }

    fn of(&mut self, facts: &MemberFacts) -> Vec<TopicFacts> {
        let names = facts.topics.iter();
        let mut found: Vec<TopicFacts> = names.filter_map(|name| self.topics.get(name)).collect();
        if let Some(pattern) = &facts.pattern {
            let topics = self.topics;
            let matching = self.patterns.entry(pattern.clone()).or_insert_with(|| {
                // It was read when it came; a build that reads it no more gives it no topics.
                compile(pattern).map_or_else(
                    |_| Vec::new(),
                    |pattern| topics.matching(&pattern).collect(),
                )
            });
            found.extend_from_slice(matching);
        }
        found
    }
}

/// The topics of these members, as many as a group may have partitions; those beyond stay unassigned.
fn wanted<'a>(
    topics: &TopicsView,
    members: impl Iterator<Item = &'a MemberFacts>,
) -> (BTreeMap<TopicId, u32>, bool) {
    let mut resolver = Resolver::new(topics);
    let mut all = BTreeMap::new();
    for facts in members {
        let found = resolver.of(facts).into_iter();
        all.extend(found.map(|topic| (topic.id, topic.partitions)));
    }
    let mut partitions = 0;
    let known = all.len();
    all.retain(|_, count| {
        partitions += *count as usize;
        partitions <= ASSIGNED_PARTITIONS_MAX
    });
    let fits = all.len() == known;
    (all, fits)
}

impl Coordinator {
    /// Refuses a subscription that makes the group larger than it may be.
    pub(super) fn check_demand(
        &self,
        group: &str,
        member: &str,
        facts: &MemberFacts,
    ) -> Result<(), GroupError> {
        let Some(consumer) = self.consumer_group(group) else {
            return Ok(());
        };
        let others = consumer.members.iter();
        let others = others.filter(|(id, _)| ***id != *member);
        let members = others.map(|(_, known)| &known.facts).chain([facts]);
        let names = members.clone().flat_map(|facts| &facts.topics);
        if names.map(|name| name.len()).sum::<usize>() > SUBSCRIBED_BYTES_MAX {
            return Err(GroupError::GroupTooLarge);
        }
        match wanted(&self.topics, members).1 {
            true => Ok(()),
            false => Err(GroupError::GroupTooLarge),
        }
    }

    /// The group's epoch grows where what is wanted has changed, or where it is said so; then there is a new target.
    pub(super) fn aim(&mut self, now: Now, group: &Arc<str>, changed: bool) {
        let Some(consumer) = self.consumer_group(group) else {
            return;
        };
        let facts = consumer.members.values().map(|member| &member.facts);
        let (topics, _) = wanted(&self.topics, facts);
        let assignor = consumer.elect();
        if !changed && topics == consumer.topics && assignor == consumer.assignor {
            return;
        }
        let epoch = consumer.epoch.saturating_add(1);
        let at = now.wall_ms;
        let change = Change::Epoch {
            at,
            epoch,
            assignor,
            topics,
        };
        self.apply(group, change);
        self.retarget(group);
    }

    fn retarget(&mut self, group: &Arc<str>) {
        let Some(consumer) = self.consumer_group(group) else {
            return;
        };
        let demand = demand(consumer, &self.topics);
        let mut members = assignors::assign(&consumer.assignor, &demand);
        members.retain(|member, target| {
            demand
                .before
                .get(member)
                .map_or(!target.is_empty(), |before| before != target)
        });
        let epoch = consumer.epoch;
        self.apply(group, Change::Target { epoch, members });
        self.changed(group);
    }

    /// Topics came, went or grew (case GR-02).
    pub(crate) fn on_topics(&mut self, now: Now, topics: Arc<TopicsView>) {
        self.topics = topics;
        let all = self.state.groups().map(|(name, _)| name);
        let groups: Vec<Arc<str>> = all
            .filter(|name| self.has_consumer_members(name))
            .cloned()
            .collect();
        for group in groups {
            self.aim(now, &group, false);
        }
    }
}

fn demand(consumer: &ConsumerGroup, topics: &TopicsView) -> Demand {
    let mut resolver = Resolver::new(topics);
    let members = consumer.members.iter().map(|(id, member)| {
        let own = resolver.of(&member.facts).into_iter();
        let own: BTreeSet<TopicId> = own
            .map(|topic| topic.id)
            .filter(|topic| consumer.topics.contains_key(topic))
            .collect();
        (id.clone(), own)
    });
    Demand {
        members: members.collect(),
        topics: consumer.topics.clone(),
        before: consumer.target.clone(),
    }
}

impl ConsumerGroup {
    /// The assignor that most members ask for.
    fn elect(&self) -> Arc<str> {
        let mut votes: BTreeMap<&Arc<str>, usize> = BTreeMap::new();
        for assignor in self
            .members
            .values()
            .filter_map(|m| m.facts.assignor.as_ref())
        {
            *votes.entry(assignor).or_default() += 1;
        }
        let most = votes.values().max().copied();
        let elected = votes.into_iter().find(|(_, count)| Some(*count) == most);
        elected.map_or_else(|| assignors::DEFAULT.into(), |(name, _)| name.clone())
    }
}
