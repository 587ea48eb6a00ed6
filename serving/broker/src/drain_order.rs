//! An operator's order to a broker: give every partition away, and take none.
//!
//! The order lives in the process and ends with it: a broker that starts again serves. So no order of long ago blocks a later one
//! (operations.md, fault list 7).

use std::sync::{Arc, Mutex};

use hulse_proto::error::Fault;
use tokio::sync::watch;

/// Whether the order stands. Cheap to clone: whoever registers the broker tells the others of it, the broker follows it.
#[derive(Debug, Clone, Default)]
pub struct DrainOrder(Arc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    stands: watch::Sender<bool>,
    /// Why a partition could not be given away, the last time that one could not.
    fault: Mutex<Option<Fault>>,
}

impl DrainOrder {
    /// The order stands.
    pub fn stands(&self) -> bool {
        *self.0.stands.borrow()
    }

    /// Sees each change, the present one included.
    pub fn subscribe(&self) -> watch::Receiver<bool> {
        self.0.stands.subscribe()
    }

    /// Gives the order, or takes it back. True if it was otherwise before.
    pub(crate) fn set(&self, stands: bool) -> bool {
        self.note(None);
        self.0
            .stands
            .send_if_modified(|before| std::mem::replace(before, stands) != stands)
    }

    /// Keeps why a partition could not be given away.
    pub(crate) fn note(&self, fault: Option<Fault>) {
        *self
            .0
            .fault
            .lock()
            .expect("no code panics while it holds this lock") = fault;
    }

    /// What was kept last.
    pub(crate) fn fault(&self) -> Option<Fault> {
        let fault = self.0.fault.lock();
        fault
            .expect("no code panics while it holds this lock")
            .clone()
    }
}
