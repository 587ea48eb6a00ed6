//! Which topics there are, as members of groups call them.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{TopicId, TopicName};
use serving_groups::{TopicFacts, TopicsView};
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

use super::place::INTERNAL_TENANT;
use crate::topics::Topics;

/// How often topics are looked at while a shard is open.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Topics that groups may know of, over all.
const TOPICS_MAX: usize = 200_000;
/// Deleted topics that are kept for shards to forget; of the older ones offsets go when they are too old.
const DELETED_MAX: usize = 10_000;
/// Topics of a page.
const PAGE: u32 = 1000;

/// What was seen last.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Seen {
    pub(super) view: Arc<TopicsView>,
    /// Known before, and deleted since this broker looks: the newest [`DELETED_MAX`]. A shard that begins later, or that missed a look,
    /// hears of all of them; to hear it twice changes nothing.
    pub(super) deleted: Arc<VecDeque<TopicId>>,
    /// How many were deleted in all: what a shard missed are the last ones.
    pub(super) deletions: u64,
    /// False: nobody looked yet.
    pub(super) looked: bool,
    known: BTreeSet<TopicId>,
}

/// A topic as members call it: without tenant and namespace where these are the default ones.
pub(crate) fn called(name: &TopicName) -> Arc<str> {
    match (name.tenant(), name.namespace()) {
        ("public", "default") => name.topic().into(),
        _ => name.as_str().into(),
    }
}

impl Seen {
    fn forget(&mut self, deleted: Vec<TopicId>) {
        self.deletions += deleted.len() as u64;
        let kept = Arc::make_mut(&mut self.deleted);
        kept.extend(deleted);
        let older = kept.len().saturating_sub(DELETED_MAX);
        kept.drain(..older);
    }

    /// Those that were deleted after the first `heard` ones, as far as they are kept.
    pub(super) fn deleted_after(&self, heard: u64) -> BTreeSet<TopicId> {
        let missed = self.deletions.saturating_sub(heard);
        let missed = usize::try_from(missed).unwrap_or(usize::MAX);
        let skip = self.deleted.len().saturating_sub(missed);
        self.deleted.iter().skip(skip).copied().collect()
    }
}

/// What this broker knows of topics for its groups, and who looks.
pub(super) struct Names {
    seen: watch::Sender<Seen>,
    /// When the last look that succeeded began. One at a time, or an older listing would replace a newer one.
    looking: Mutex<Option<Instant>>,
}

impl Names {
    pub(super) fn new() -> Self {
        Self {
            seen: watch::Sender::new(Seen::default()),
            looking: Mutex::default(),
        }
    }

    pub(super) fn seen(&self) -> watch::Ref<'_, Seen> {
        self.seen.borrow()
    }

    pub(super) fn watch(&self) -> watch::Receiver<Seen> {
        self.seen.subscribe()
    }

    /// Looks at all topics, and says so where they changed; a look that began after the call is as good.
    ///
    /// # Errors
    /// `METADATA_UNAVAILABLE`: what was seen before stands.
    pub(super) async fn look(&self, topics: &Topics) -> Result<(), Fault> {
        let asked = Instant::now();
        let mut last = self.looking.lock().await;
        if last.is_some_and(|began| began >= asked) {
            return Ok(());
        }
        let began = Instant::now();
        let mut known = BTreeSet::new();
        let mut facts = Vec::new();
        let mut token = String::new();
        loop {
            let page = topics.list("", &token, PAGE).await?;
            for topic in page.topics {
                if topic.name.tenant() == INTERNAL_TENANT || known.len() >= TOPICS_MAX {
                    continue;
                }
                let name = called(&topic.name);
                known.insert(topic.id);
                let (id, partitions) = (topic.id, topic.partitions);
                facts.push((name, TopicFacts { id, partitions }));
            }
            match page.next {
                Some(next) => token = next,
                None => break,
            }
        }
        let view = TopicsView::new(facts);
        let former = self.seen.borrow().known.clone();
        let mut deleted = Vec::new();
        for id in former.into_iter().filter(|id| view.name(*id).is_none()) {
            // A page may lack what came or went while it was read.
            match topics.find(id).await {
                Err(fault) if fault.reason == Reason::TopicNotFound => deleted.push(id),
                // Looked at again.
                _ => drop(known.insert(id)),
            }
        }
        self.seen.send_if_modified(|seen| {
            let changed = *seen.view != view || !deleted.is_empty() || !seen.looked;
            seen.known = known;
            if changed {
                seen.view = Arc::new(view);
                seen.looked = true;
                seen.forget(deleted);
            }
            changed
        });
        *last = Some(began);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use hulse_proto::id::TopicId;

    use super::*;

    fn topic(number: u128) -> TopicId {
        TopicId::from_slice(&number.to_be_bytes()).expect("sixteen bytes")
    }

    #[test]
    fn shard_that_missed_a_look_hears_of_what_was_deleted_then_and_a_new_one_of_all() {
        let mut seen = Seen::default();
        seen.forget(vec![topic(1), topic(2)]);
        let heard = seen.deletions;
        seen.forget(vec![topic(3)]);
        seen.forget(vec![topic(4)]);
        assert_eq!(
            seen.deleted_after(heard),
            BTreeSet::from([topic(3), topic(4)])
        );
        assert_eq!(seen.deleted_after(0).len(), 4);
        assert!(seen.deleted_after(seen.deletions).is_empty());
    }

    #[test]
    fn deleted_topics_that_are_kept_have_a_bound() {
        let mut seen = Seen::default();
        let many = DELETED_MAX as u128 + 5;
        seen.forget((0..many).map(topic).collect());
        let kept = seen.deleted_after(0);
        assert_eq!(kept.len(), DELETED_MAX);
        assert!(!kept.contains(&topic(4)) && kept.contains(&topic(5)));
    }
}
