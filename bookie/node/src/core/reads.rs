//! Finds what a read or a duplicate is about (storage.md B7, B13).

use hulse_proto::bookie::{BookieError, ReadRequest};
use hulse_proto::entry::EntryHeader;
use hulse_proto::id::{EntryId, LedgerId};

use super::event::{Effect, Ticket};
use super::node_core::NodeCore;
use crate::index::Wanted;
use crate::log::LimboKind;

/// Most bytes one read answers, whatever it asks for.
pub const READ_BYTES_MAX: u32 = 16 << 20;
/// Most entries one read answers.
pub const READ_ENTRIES_MAX: usize = 16 << 10;

/// What is read of each entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Part {
    /// All of it. A damaged entry ends the run.
    Whole,
    /// Header and envelope, which have checksums of their own: they are read of entries too whose payload is damaged, so that a partition
    /// opens. Each counts as `guess` bytes.
    Head {
        /// What is read at first.
        guess: u32,
    },
    /// Its slot in the index, for digests of what is whole: a damaged entry ends the run.
    Slot,
}

impl NodeCore {
    /// The run of durable entries from `first`, to be located and cut to the asked bytes by whoever reads; at least one entry.
    ///
    /// # Errors
    /// When there is no first entry, or the request is for another node.
    pub fn want(&self, request: &ReadRequest, part: Part) -> Result<Wanted, BookieError> {
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
        let most = first.0.saturating_add(READ_ENTRIES_MAX as u64);
        let (head_bytes, damage) = match part {
            Part::Head { guess } => (Some(guess), None),
            Part::Slot => (Some(0), state.damaged.range(first..).next()),
            Part::Whole => (None, state.damaged.range(first..).next()),
        };
        let end = request.end.0.min(most);
        let end = damage.map_or(end, |damaged| end.min(damaged.0));
        let wanted = Wanted {
            bytes: u64::from(request.max_bytes.min(READ_BYTES_MAX)),
            head_bytes,
            ..state.entries.want_run(first, end)
        };
        if wanted.parts.is_empty() && request.end > first {
            let lost = state.damaged.contains(&first) || state.limbo() == Some(LimboKind::Damage);
            return Err(match lost {
                true => BookieError::Damaged {
                    ledger,
                    entry: first,
                },
                false => missing,
            });
        }
        Ok(wanted)
    }

    /// One entry, looked up anew: its file was removed since it was found (storage.md G11).
    pub fn want_again(&self, ledger: LedgerId, entry: EntryId) -> Option<Wanted> {
        self.state.ledgers.get(&ledger)?.entries.want(entry)
    }

    /// A duplicate of what a sealed file holds is compared by the shell: the digest is not in memory.
    pub(super) fn compare(&self, ticket: Ticket, header: &EntryHeader, effects: &mut Vec<Effect>) {
        let held = self.state.ledgers.get(&header.ledger);
        match held.and_then(|state| state.entries.want(header.entry)) {
            Some(wanted) => effects.push(Effect::CompareEntry {
                ticket,
                ledger: header.ledger,
                wanted,
                offered: header.digest(),
            }),
            None => effects.push(self.answer_add(ticket, Err(self.busy()))),
        }
    }
}
