//! What a coordinator knows of topics, and patterns of their names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hulse_proto::id::{PartitionId, TopicId};
use regex::{Regex, RegexBuilder};

use crate::error::GroupError;
use crate::limits::{PATTERN_BYTES_MAX, PATTERN_PROGRAM_BYTES_MAX};

/// Partitions, of any topics.
pub type Partitions = BTreeSet<PartitionId>;

/// A topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TopicFacts {
    /// Its identity.
    pub id: TopicId,
    /// How many.
    pub partitions: u32,
}

/// Topics by the names that members use. Not durable: a group keeps what it has last seen of its own topics.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct TopicsView {
    by_name: BTreeMap<Arc<str>, TopicFacts>,
    names: BTreeMap<TopicId, Arc<str>>,
}

impl TopicsView {
    /// Of these.
    pub fn new(topics: impl IntoIterator<Item = (Arc<str>, TopicFacts)>) -> Self {
        let by_name: BTreeMap<_, _> = topics.into_iter().collect();
        let names = by_name.iter().map(|(name, facts)| (facts.id, name.clone()));
        Self {
            names: names.collect(),
            by_name,
        }
    }

    /// The topic of a name.
    pub fn get(&self, name: &str) -> Option<TopicFacts> {
        self.by_name.get(name).copied()
    }

    /// The name of a topic.
    pub fn name(&self, id: TopicId) -> Option<&Arc<str>> {
        self.names.get(&id)
    }

    /// Those whose whole name is matched.
    pub(crate) fn matching<'a>(
        &'a self,
        pattern: &'a Regex,
    ) -> impl Iterator<Item = TopicFacts> + 'a {
        let all = self.by_name.iter();
        all.filter(|(name, _)| pattern.is_match(name))
            .map(|(_, facts)| *facts)
    }
}

/// Reads a pattern. It matches whole names, takes linear time in their length, and bounded room.
///
/// # Errors
/// `InvalidPattern`.
pub(crate) fn compile(pattern: &str) -> Result<Regex, GroupError> {
    if pattern.len() > PATTERN_BYTES_MAX {
        return Err(GroupError::InvalidPattern);
    }
    RegexBuilder::new(&format!("^(?:{pattern})$"))
        .size_limit(PATTERN_PROGRAM_BYTES_MAX)
        .dfa_size_limit(PATTERN_PROGRAM_BYTES_MAX)
        .build()
        .map_err(|_| GroupError::InvalidPattern)
}
