//! What an answer takes while it is made, counted in rows before there are any.
//!
//! A short request can ask for a long answer: one name, ten thousand partitions. So everything that is named counts once, an answer
//! of many rows is made while few others are, and there is a number of rows that no answer has.

use std::collections::BTreeSet;

use hulse_proto::error::{Fault, Reason};
use tokio::sync::SemaphorePermit;

use crate::link::Link;

/// An answer of more rows is one of a few that are made at the same time.
const LARGE_ROWS: usize = 256;
/// Most rows of an answer, of some 300 bytes each: partitions of Metadata, values of configurations.
pub(super) const ROWS_MAX: usize = 200_000;

/// The rows of an answer that is made.
pub(crate) struct Rows<'a> {
    link: &'a Link,
    count: usize,
    slot: Option<SemaphorePermit<'a>>,
}

impl<'a> Rows<'a> {
    /// None yet.
    pub(crate) fn new(link: &'a Link) -> Self {
        Self {
            link,
            count: 0,
            slot: None,
        }
    }

    /// Waits until the answer may be a large one.
    pub(super) async fn large(&mut self) {
        if self.slot.is_none() {
            let slot = self.link.served.large.acquire().await;
            self.slot = Some(slot.expect("this semaphore is never closed"));
        }
    }

    /// Counts so many more, before they are made.
    ///
    /// # Errors
    /// `INVALID_REQUEST`: the answer would have too many; these are not counted.
    pub(crate) async fn add(&mut self, rows: usize) -> Result<(), Fault> {
        let count = self.count.saturating_add(rows);
        if count > ROWS_MAX {
            let words = format!("an answer has at most {ROWS_MAX} rows; ask for less at once");
            return Err(Fault::new(Reason::InvalidRequest, words));
        }
        if count > LARGE_ROWS {
            self.large().await;
        }
        self.count = count;
        Ok(())
    }
}

/// What a request names, each once: the first of those with the same key.
pub(crate) fn once<T, K: Ord>(mut named: Vec<T>, key: impl Fn(&T) -> K) -> Vec<T> {
    let mut seen = BTreeSet::new();
    named.retain(|one| seen.insert(key(one)));
    named
}

/// The keys that a request names more than once.
pub(super) fn twice<T, K: Ord>(named: &[T], key: impl Fn(&T) -> K) -> BTreeSet<K> {
    let mut seen = BTreeSet::new();
    let mut twice = BTreeSet::new();
    for one in named {
        if !seen.insert(key(one)) {
            twice.insert(key(one));
        }
    }
    twice
}
