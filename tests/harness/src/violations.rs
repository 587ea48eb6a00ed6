//! What an oracle found wrong. A run goes on; the end of the run fails with all of them.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::trace::Trace;

/// More are not kept: the first ones tell the story.
const KEPT_MAX: usize = 20;

/// The violations of one run. Clones share them.
#[derive(Debug, Clone)]
pub struct Violations {
    found: Arc<Mutex<Vec<String>>>,
    trace: Trace,
}

impl Violations {
    /// None yet.
    pub fn new(trace: Trace) -> Self {
        Self {
            found: Arc::default(),
            trace,
        }
    }

    fn found(&self) -> MutexGuard<'_, Vec<String>> {
        self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Adds one, also to the trace.
    pub fn add(&self, words: impl Into<String>) {
        let words = words.into();
        self.trace.line(format_args!("VIOLATION {words}"));
        let mut found = self.found();
        if found.len() < KEPT_MAX {
            found.push(words);
        }
    }

    /// Adds one unless the condition holds.
    pub fn check(&self, holds: bool, words: impl FnOnce() -> String) {
        if !holds {
            self.add(words());
        }
    }

    /// All of them.
    pub fn all(&self) -> Vec<String> {
        self.found().clone()
    }
}
