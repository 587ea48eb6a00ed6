//! Why an open partition takes no batches, because of a backlog.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use hulse_proto::error::Fault;

/// Set by the watch, looked at for every batch. One that lives on when the watch has ended changes nothing any more.
#[derive(Debug, Default)]
pub(crate) struct Refusal {
    /// Whether there is one: what is looked at usually.
    stands: AtomicBool,
    fault: Mutex<Option<Box<Fault>>>,
}

impl Refusal {
    /// What a producer is to hear.
    pub(crate) fn get(&self) -> Option<Fault> {
        if !self.stands.load(Ordering::Relaxed) {
            return None;
        }
        let fault = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        fault.as_deref().cloned()
    }

    /// Producers hear this from now on, or are let in.
    pub(crate) fn set(&self, fault: Option<Fault>) {
        let mut held = self.fault.lock().unwrap_or_else(PoisonError::into_inner);
        self.stands.store(fault.is_some(), Ordering::Relaxed);
        *held = fault.map(Box::new);
    }
}
