//! Finds what an ordinary read wants (storage.md B13).

use hulse_proto::bookie::{BookieError, ReadRequest};
use hulse_proto::id::EntryId;

use super::node_core::NodeCore;
use crate::index::Slot;
use crate::log::LimboKind;

/// Most bytes one read answers, whatever it asks for.
pub const READ_BYTES_MAX: u32 = 16 << 20;
/// Most entries one read answers.
pub const READ_ENTRIES_MAX: usize = 16 << 10;

/// An entry of a ledger and where it lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Located {
    /// Its number.
    pub entry: EntryId,
    /// Where, and what it must be.
    pub slot: Slot,
}

impl NodeCore {
    /// Where the run of durable entries from `first` lies, cut to the asked bytes; at least one entry. `head_bytes`: what each
    /// entry counts when only its head is read.
    ///
    /// # Errors
    /// When there is no first entry, or the request is for another node.
    pub fn locate(
        &self,
        request: &ReadRequest,
        head_bytes: Option<u32>,
    ) -> Result<Vec<Located>, BookieError> {
        self.check(&request.to)?;
        let (ledger, first) = (request.to.ledger, request.first);
        let missing = BookieError::NotHere {
            ledger,
            entry: first,
        };
        let Some(state) = self.state.ledgers.get(&ledger) else {
            return Err(missing);
        };
        if state.deleted {
            return Err(BookieError::Deleted { ledger });
        }
        let mut left = u64::from(request.max_bytes.min(READ_BYTES_MAX));
        let wanted = usize::try_from(request.end.0.saturating_sub(first.0)).unwrap_or(usize::MAX);
        let mut found = Vec::new();
        let slots = state
            .entries
            .from(first)
            .iter()
            .take(wanted.min(READ_ENTRIES_MAX));
        for (entry, slot) in (first.0..).map(EntryId).zip(slots) {
            let bytes = u64::from(
                head_bytes
                    .unwrap_or(slot.location.bytes)
                    .min(slot.location.bytes),
            );
            if state.damaged.contains(&entry) || (bytes > left && !found.is_empty()) {
                break;
            }
            left = left.saturating_sub(bytes);
            found.push(Located { entry, slot: *slot });
        }
        if found.is_empty() && wanted > 0 {
            let lost = state.damaged.contains(&first) || state.limbo() == Some(LimboKind::Damage);
            return Err(match lost {
                true => BookieError::Damaged {
                    ledger,
                    entry: first,
                },
                false => missing,
            });
        }
        Ok(found)
    }
}
