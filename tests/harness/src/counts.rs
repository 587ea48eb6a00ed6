//! What a run brought about, by name, so that a suite can tell whether its seeds reach what they are for.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

/// Counters of one run. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Counts(Arc<Mutex<BTreeMap<&'static str, u64>>>);

impl Counts {
    /// One more of these.
    pub fn add(&self, what: &'static str) {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *counts.entry(what).or_default() += 1;
    }

    /// All of them.
    pub fn all(&self) -> BTreeMap<&'static str, u64> {
        self.0
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }
}
