//! What every request must be before it is judged (storage.md B0, B14).

use hulse_proto::bookie::{AddRequest, Address, BookieError};
use hulse_proto::limits::ENTRY_BYTES_MAX;

use super::node_core::NodeCore;

impl NodeCore {
    /// Is the request for this life of this disk? Judged before anything else, without effect (storage.md B0).
    pub(super) fn check(&self, to: &Address) -> Result<(), BookieError> {
        if to.cell != self.identity.cell {
            return Err(BookieError::WrongCell {
                found: self.identity.cell,
                asked: to.cell,
            });
        }
        if to.incarnation != self.identity.incarnation {
            return Err(BookieError::WrongIncarnation {
                found: self.identity.incarnation,
                asked: to.incarnation,
            });
        }
        Ok(())
    }

    /// Nothing is accepted once the log failed (B14).
    pub(super) fn check_log(&self) -> Result<(), BookieError> {
        match &self.failed {
            Some(why) => Err(BookieError::Failed { why: why.clone() }),
            None => Ok(()),
        }
    }

    pub(super) fn check_add(&self, request: &AddRequest) -> Result<(), BookieError> {
        self.check(&request.to)?;
        self.check_log()?;
        let header = request.entry.header();
        if header.ledger != request.to.ledger {
            return Err(BookieError::Invalid {
                why: format!(
                    "the entry belongs to ledger {}, the request names {}",
                    header.ledger, request.to.ledger
                ),
            });
        }
        let payload: usize = request
            .entry
            .payload_parts()
            .iter()
            .map(bytes::Bytes::len)
            .sum();
        if header.entry_len() > ENTRY_BYTES_MAX || payload != header.payload_len as usize {
            return Err(BookieError::Invalid {
                why: format!(
                    "the entry has {payload} payload bytes and says {}; at most {ENTRY_BYTES_MAX} with its header",
                    header.payload_len
                ),
            });
        }
        Ok(())
    }
}
