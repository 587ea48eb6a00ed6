//! Which topics there are, as members of groups call them.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{TopicId, TopicName};
use serving_groups::{TopicFacts, TopicsView};
use tokio::sync::watch;

use super::place::INTERNAL_TENANT;
use crate::topics::Topics;

/// How often topics are looked at while a shard is open.
pub(super) const LOOK_EVERY: Duration = Duration::from_secs(5);
/// Topics that groups may know of, over all.
const TOPICS_MAX: usize = 200_000;
/// Topics of a page.
const PAGE: u32 = 1000;

/// What was seen last.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Seen {
    pub(super) view: Arc<TopicsView>,
    /// Known before, and deleted since.
    pub(super) deleted: BTreeSet<TopicId>,
    known: BTreeMap<Arc<str>, TopicId>,
}

/// A topic as members call it: without tenant and namespace where these are the default ones.
pub(crate) fn called(name: &TopicName) -> Arc<str> {
    match (name.tenant(), name.namespace()) {
        ("public", "default") => name.topic().into(),
        _ => name.as_str().into(),
    }
}

/// Looks at all topics, and says so where they changed.
///
/// # Errors
/// `METADATA_UNAVAILABLE`: what was seen before stands.
pub(super) async fn look(topics: &Topics, seen: &watch::Sender<Seen>) -> Result<(), Fault> {
    let mut known = BTreeMap::new();
    let mut facts = Vec::new();
    let mut token = String::new();
    loop {
        let page = topics.list("", &token, PAGE).await?;
        for topic in page.topics {
            if topic.name.tenant() == INTERNAL_TENANT || known.len() >= TOPICS_MAX {
                continue;
            }
            let name = called(&topic.name);
            known.insert(name.clone(), topic.id);
            let (id, partitions) = (topic.id, topic.partitions);
            facts.push((name, TopicFacts { id, partitions }));
        }
        match page.next {
            Some(next) => token = next,
            None => break,
        }
    }
    let view = TopicsView::new(facts);
    let former = seen.borrow().known.clone();
    let mut deleted = BTreeSet::new();
    for id in former.into_values().filter(|id| view.name(*id).is_none()) {
        // A page may lack what came or went while it was read.
        if let Err(fault) = topics.find(id).await
            && fault.reason == Reason::TopicNotFound
        {
            deleted.insert(id);
        }
    }
    seen.send_if_modified(|last| {
        let changed = *last.view != view || !deleted.is_empty();
        if changed {
            *last = Seen {
                view: Arc::new(view),
                deleted,
                known,
            };
        }
        changed
    });
    Ok(())
}
