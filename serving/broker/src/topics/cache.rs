//! What was last heard of each topic: a hint that saves reads, never a decision.

use std::collections::{BTreeMap, HashMap, HashSet};

use bookie_metadata::Revision;
use hulse_proto::id::{TopicId, TopicName};

use super::topic::{Topic, TopicState};

/// Topics by name and by identity. Bounded by the number of topics in the cell.
#[derive(Debug, Default)]
pub(super) struct Cache {
    by_name: BTreeMap<TopicName, Topic>,
    by_id: HashMap<TopicId, TopicName>,
}

impl Cache {
    /// Takes in what a read or a watch said; an older word than the known one changes nothing.
    pub(super) fn learn(&mut self, topic: Topic) {
        if let Some(known) = self.by_name.get(&topic.name) {
            if known.version >= topic.version {
                return;
            }
            self.by_id.remove(&known.id);
        }
        self.by_id.insert(topic.id, topic.name.clone());
        self.by_name.insert(topic.name.clone(), topic);
    }

    /// The key was seen to be absent at `revision`.
    pub(super) fn forget(&mut self, name: &TopicName, revision: Revision) {
        if self
            .by_name
            .get(name)
            .is_some_and(|known| known.version <= revision)
        {
            self.remove(name);
        }
    }

    /// A listing of revision `at` or later showed only these: what was known then and is not among them is gone.
    pub(super) fn forget_unlisted(&mut self, listed: &[Topic], at: Revision) {
        let names: HashSet<&TopicName> = listed.iter().map(|topic| &topic.name).collect();
        let gone: Vec<TopicName> = self
            .by_name
            .values()
            .filter(|known| known.version <= at && !names.contains(&known.name))
            .map(|known| known.name.clone())
            .collect();
        for name in gone {
            self.remove(&name);
        }
    }

    /// This identity is gone for good.
    pub(super) fn forget_id(&mut self, id: TopicId) {
        if let Some(name) = self.by_id.get(&id).cloned() {
            self.remove(&name);
        }
    }

    fn remove(&mut self, name: &TopicName) {
        if let Some(known) = self.by_name.remove(name) {
            self.by_id.remove(&known.id);
        }
    }

    /// By name.
    pub(super) fn named(&self, name: &TopicName) -> Option<&Topic> {
        self.by_name.get(name)
    }

    /// By identity.
    pub(super) fn find(&self, id: TopicId) -> Option<&Topic> {
        self.by_name.get(self.by_id.get(&id)?)
    }

    /// The topic for which this is largest, with what it is.
    pub(super) fn largest(&self, of: impl Fn(&Topic) -> u32) -> Option<(TopicName, u32)> {
        let all = self.by_name.values().map(|topic| (topic, of(topic)));
        let (topic, most) = all.max_by_key(|(_, size)| *size)?;
        Some((topic.name.clone(), most))
    }

    /// Whether this identity was last heard of as serving.
    pub(super) fn serves(&self, id: TopicId) -> bool {
        self.find(id)
            .is_some_and(|topic| topic.state == TopicState::Active)
    }
}
