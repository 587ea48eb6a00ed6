//! Members whose listener waits beside them (gRPC, serving.md B8): they are told when their group changes, so that nobody waits for a
//! heartbeat.

use std::collections::BTreeMap;
use std::sync::Arc;

use serving_groups::Progress;
use tokio::sync::mpsc;

use super::shard::{Asked, Asks};

/// Words that wait for a listener; more say nothing new.
const TOLD_MAX: usize = 8;

/// What a listener is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Told {
    /// There may be something new for its member: beat now.
    Changed,
    /// The member's application stands still with records waiting.
    Idle {
        /// It has lost its partitions.
        fenced: bool,
    },
}

/// A member that is watched, until this is dropped.
pub(crate) struct Watch {
    asks: Asks,
    group: Arc<str>,
    member: Arc<str>,
    told: mpsc::Receiver<Told>,
    number: u64,
}

impl Watch {
    pub(super) fn begin(asks: Asks, group: Arc<str>, member: Arc<str>, number: u64) -> Self {
        let (sender, told) = mpsc::channel(TOLD_MAX);
        let watcher = Watcher { number, sender };
        // A coordinator that has ended drops it: the watch is over at once.
        let _ = asks.send(Asked::Watch(group.clone(), member.clone(), watcher));
        Self {
            asks,
            group,
            member,
            told,
            number,
        }
    }

    /// The next word; `None`: the coordinator ended here, or somebody else watches the member. Cancel-safe.
    pub(crate) async fn next(&mut self) -> Option<Told> {
        self.told.recv().await
    }

    /// What its application did since the last word.
    pub(crate) fn progress(&self, took: bool, waiting: bool) {
        let progress = Progress {
            group: self.group.clone(),
            member: self.member.clone(),
            took,
            waiting,
        };
        // One that has ended judges nobody.
        let _ = self.asks.send(Asked::Progress(progress));
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        let (group, member) = (self.group.clone(), self.member.clone());
        // A coordinator that has ended has forgotten it already.
        let _ = self.asks.send(Asked::Unwatch(group, member, self.number));
    }
}

/// The coordinator's end of a watch.
pub(super) struct Watcher {
    number: u64,
    sender: mpsc::Sender<Told>,
}

/// Who watches; bounded by the sessions of a broker.
#[derive(Default)]
pub(super) struct Watchers(BTreeMap<Arc<str>, BTreeMap<Arc<str>, Watcher>>);

impl Watchers {
    /// A former watcher of the same member is told no more.
    pub(super) fn add(&mut self, group: Arc<str>, member: Arc<str>, watcher: Watcher) {
        let members = self.0.entry(group).or_default();
        members.insert(member, watcher);
    }

    pub(super) fn remove(&mut self, group: &str, member: &str, number: u64) {
        let Some(members) = self.0.get_mut(group) else {
            return;
        };
        if members
            .get(member)
            .is_some_and(|found| found.number == number)
        {
            members.remove(member);
        }
        if members.is_empty() {
            self.0.remove(group);
        }
    }

    /// Everybody of a group is told.
    pub(super) fn changed(&self, group: &str) {
        for watcher in self.0.get(group).into_iter().flat_map(BTreeMap::values) {
            // One whose queue is full has a word to look at that says the same.
            let _ = watcher.sender.try_send(Told::Changed);
        }
    }

    pub(super) fn idle(&self, group: &str, member: &str, fenced: bool) {
        if let Some(watcher) = self.0.get(group).and_then(|members| members.get(member)) {
            // One that does not listen finds out by its next heartbeat.
            let _ = watcher.sender.try_send(Told::Idle { fenced });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watch(watchers: &mut Watchers, number: u64) -> mpsc::Receiver<Told> {
        let (sender, told) = mpsc::channel(TOLD_MAX);
        watchers.add("g".into(), "m".into(), Watcher { number, sender });
        told
    }

    #[test]
    fn later_watcher_takes_the_place_and_the_former_ones_end_does_not_end_it() {
        let mut watchers = Watchers::default();
        let mut first = watch(&mut watchers, 1);
        let mut second = watch(&mut watchers, 2);
        watchers.remove("g", "m", 1);
        watchers.changed("g");
        watchers.idle("g", "m", true);
        assert!(first.try_recv().is_err());
        assert_eq!(second.try_recv(), Ok(Told::Changed));
        assert_eq!(second.try_recv(), Ok(Told::Idle { fenced: true }));
        watchers.remove("g", "m", 2);
        assert!(watchers.0.is_empty());
    }
}
