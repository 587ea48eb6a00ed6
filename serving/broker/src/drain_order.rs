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
        let changed = self
            .0
            .stands
            .send_if_modified(|before| std::mem::replace(before, stands) != stands);
        self.note(None);
        changed
    }

    /// Keeps why a partition could not be given away, while the order stands; or that none is left of which that is so.
    pub(crate) fn note(&self, fault: Option<Fault>) {
        let kept = self.0.fault.lock();
        let mut kept = kept.expect("no code panics while it holds this lock");
        *kept = fault.filter(|_| self.stands());
    }

    /// What was kept last.
    pub(crate) fn fault(&self) -> Option<Fault> {
        let fault = self.0.fault.lock();
        fault
            .expect("no code panics while it holds this lock")
            .clone()
    }
}

#[cfg(test)]
mod tests {
    use hulse_proto::error::Reason;

    use super::*;

    #[test]
    fn fault_is_kept_while_the_order_stands_and_somebody_has_it() {
        let order = DrainOrder::default();
        let fault = || Some(Fault::new(Reason::DataDamaged, "for a test"));
        order.note(fault());
        assert!(order.fault().is_none(), "nobody ordered anything");
        assert!(order.set(true));
        order.note(fault());
        assert!(order.fault().is_some());
        assert!(!order.set(true), "the same order");
        order.note(fault());
        order.note(None);
        assert!(order.fault().is_none(), "all went");
        order.note(fault());
        assert!(order.set(false));
        order.note(fault());
        assert!(
            order.fault().is_none(),
            "what ended late is not of the next order"
        );
    }
}
