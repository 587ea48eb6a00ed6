//! The last changes of a store, in memory: what pinned listings and watches are answered from.
//!
//! # Invariants
//! 1. Changes are kept in revision order, and a revision whole or not at all.
//! 2. `floor` is the oldest revision whose state can be shown: every change above it is kept.
//! 3. Bounded by [`CHANGES_MAX`] changes and [`BYTES_MAX`] bytes, whatever comes first.

use std::collections::{BTreeMap, VecDeque};

use crate::store::{MetadataError, Revision, Versioned, WatchEvent};

/// Most changes kept.
pub(crate) const CHANGES_MAX: usize = 10_000;
/// Most bytes of keys and values kept.
pub(crate) const BYTES_MAX: usize = 8 << 20;
/// A watch takes at least this many changes at once, then up to the end of the revision.
const WATCH_BATCH: usize = 256;

/// One changed key.
#[derive(Debug, Clone)]
pub(crate) struct Change {
    /// The row before.
    pub(crate) before: Option<Versioned>,
    /// What watchers see.
    pub(crate) event: WatchEvent,
}

impl Change {
    /// The changed key.
    pub(crate) fn key(&self) -> &str {
        match &self.event {
            WatchEvent::Put(row) => &row.key,
            WatchEvent::Deleted { key, .. } => key,
        }
    }

    /// When.
    pub(crate) fn revision(&self) -> Revision {
        match &self.event {
            WatchEvent::Put(row) => row.version,
            WatchEvent::Deleted { revision, .. } => *revision,
        }
    }

    fn bytes(&self) -> usize {
        let after = match &self.event {
            WatchEvent::Put(row) => row.value.len(),
            WatchEvent::Deleted { .. } => 0,
        };
        let before = self.before.as_ref().map_or(0, |row| row.value.len());
        self.key().len() + after + before
    }
}

/// The last changes.
#[derive(Debug)]
pub(crate) struct History {
    changes: VecDeque<Change>,
    bytes: usize,
    floor: Revision,
}

impl History {
    /// An empty one that can show the state at `floor` and later.
    pub(crate) fn new(floor: Revision) -> Self {
        Self {
            changes: VecDeque::new(),
            bytes: 0,
            floor,
        }
    }

    /// Adds the changes of whole revisions, above all that are kept.
    pub(crate) fn extend(&mut self, changes: Vec<Change>) {
        for change in changes {
            self.bytes += change.bytes();
            self.changes.push_back(change);
        }
        while self.changes.len() > CHANGES_MAX || self.bytes > BYTES_MAX {
            let Some(oldest) = self.changes.front().map(Change::revision) else {
                break;
            };
            self.drop_revision(oldest);
        }
    }

    fn drop_revision(&mut self, revision: Revision) {
        while let Some(change) = self.changes.pop_front_if(|c| c.revision() == revision) {
            self.bytes -= change.bytes();
        }
        self.floor = revision;
    }

    fn above(&self, after: Revision) -> Result<impl Iterator<Item = &Change>, MetadataError> {
        if after < self.floor {
            return Err(MetadataError::Compacted {
                asked: after.0,
                oldest: self.floor.0,
            });
        }
        let first = self.changes.partition_point(|c| c.revision() <= after);
        Ok(self.changes.range(first..))
    }

    /// What must be put back into the newest state under `prefix` to see it as of `at`.
    pub(crate) fn undo(
        &self,
        prefix: &str,
        at: Revision,
    ) -> Result<BTreeMap<String, Option<Versioned>>, MetadataError> {
        let mut undo = BTreeMap::new();
        for change in self.above(at)?.filter(|c| c.key().starts_with(prefix)) {
            // The first change above `at` knows how the row was at `at`.
            if !undo.contains_key(change.key()) {
                undo.insert(change.key().to_owned(), change.before.clone());
            }
        }
        Ok(undo)
    }

    /// Events of whole revisions above `after`, and the revision they reach to.
    pub(crate) fn events(
        &self,
        prefix: &str,
        after: Revision,
    ) -> Result<(Vec<WatchEvent>, Revision), MetadataError> {
        let mut events = Vec::new();
        let mut reached = after;
        for change in self.above(after)? {
            if events.len() >= WATCH_BATCH && change.revision() > reached {
                break;
            }
            reached = change.revision();
            if change.key().starts_with(prefix) {
                events.push(change.event.clone());
            }
        }
        Ok((events, reached))
    }
}
