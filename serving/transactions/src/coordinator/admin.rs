//! What operators and their tools ask (serving.md C10).

use std::sync::Arc;

use super::answer::Listing;
use super::core::Coordinator;
use super::transaction::{Transaction, TxnState};
use crate::error::TxnError;

impl Coordinator {
    pub(super) fn list(&self) -> Vec<Listing> {
        let listing = |(id, txn): (&Arc<str>, &Transaction)| Listing {
            id: id.clone(),
            producer: txn.producer,
            state: txn.state,
            open_ms: match txn.started_at {
                0 => 0,
                at => u64::try_from(self.now - at).unwrap_or(0),
            },
        };
        self.state.iter().map(listing).collect()
    }

    pub(super) fn describe(&self, id: &Arc<str>) -> Result<Box<Transaction>, TxnError> {
        let txn = self.state.get(id).ok_or(TxnError::NotFound)?;
        Ok(Box::new(txn.clone()))
    }

    /// Ends what is open, as its time-out would.
    pub(super) fn abort(&mut self, id: &Arc<str>) -> Result<(), TxnError> {
        let txn = self.state.get(id).ok_or(TxnError::NotFound)?;
        match txn.state {
            _ if self.is_pending(id) => Err(TxnError::Concurrent),
            state if state.is_preparing() => Err(TxnError::Concurrent),
            TxnState::Ongoing => {
                self.fence_all(id);
                Ok(())
            }
            _ => Err(TxnError::InvalidState("nothing is open to abort")),
        }
    }
}
