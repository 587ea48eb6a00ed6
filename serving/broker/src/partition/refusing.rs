//! How batches are turned away: the partition ends, or storage takes no records for a while (storage.md W13, W14, amended D1).
//!
//! # Invariants
//! 1. A batch is refused as "not applied" only when it was never sent, or when its ledger is closed below it (W13).
//! 2. What was refused of a producer comes before what it sent behind it, also when nothing of it is stored ([`super::owed`]).
//! 3. While a ledger is being closed, a copy of a batch that is in flight waits for it: its fate is not known yet (C2.4).

use hulse_proto::error::{Fate, Fault, Reason};
use hulse_proto::id::Offset;

use super::accepted::batch_summary;
use super::core::{Effect, InFlight, Ledger, PartitionCore};
use crate::state::MetaState;

impl<M: MetaState, T> PartitionCore<M, T> {
    /// Appending is over: what was sent is of unknown fate, what waits was certainly not written.
    pub(crate) fn fail(&mut self, why: Fault) {
        let unknown = Fault {
            fate: Fate::Unknown,
            ..why.clone()
        };
        self.refuse_in_flight(&unknown);
        self.refuse_duplicates(Offset(0), &unknown);
        self.refuse_queue(&not_applied(&why));
        self.failed = Some(Box::new(why));
    }

    /// Storage takes no records: what was not sent is refused, and so is everything that comes, until
    /// [`PartitionCore::room_returned`]. The ledger is about to be closed; [`PartitionCore::log_closed`] decides what was sent.
    pub(crate) fn storage_full(&mut self, why: Fault) {
        self.refuse_duplicates(self.sent_end, &why);
        self.refuse_queue(&why);
        if self.ledger == Ledger::Open {
            self.ledger = Ledger::Coming;
        }
        self.full = Some(Box::new(why));
    }

    /// The log ledger is closed at what is confirmed: nothing else that was sent is in the log, or ever will be (W13). The next
    /// batch makes another ledger.
    pub(crate) fn log_closed(&mut self, why: &Fault) {
        self.sent_end = self.state.log.end;
        self.refuse_in_flight(why);
        self.refuse_duplicates(self.sent_end, why);
        self.refuse_queue(why);
        self.next_offset = self.sent_end;
        // As if what is not in the log had never been accepted; only that it must come before what is behind it is kept.
        self.accepted = self.state.log.producers.clone();
        self.running_max = self.state.log.running_max_timestamp;
        self.ledger = Ledger::None;
        self.ledger_bytes = 0;
        self.first_entry_pending = false;
    }

    /// There is room for records again.
    pub(crate) fn room_returned(&mut self) {
        self.full = None;
    }

    pub(super) fn refuse(&mut self, ticket: T, fault: Fault) {
        let result = Err(fault);
        self.effects.push(Effect::Answer { ticket, result });
    }

    pub(super) fn refuse_full(&mut self, ticket: T) {
        if let Some(fault) = self.full.as_deref().cloned() {
            self.refuse(ticket, fault);
        }
    }

    fn refuse_in_flight(&mut self, fault: &Fault) {
        for InFlight { entry, tickets } in std::mem::take(&mut self.in_flight) {
            for batch in &entry.envelope.batches {
                self.owed.refused(batch);
            }
            for (_, ticket) in tickets {
                self.refuse(ticket, fault.clone());
            }
        }
        self.in_flight_bytes = 0;
    }

    /// Those that wait for a batch at or above `from`.
    fn refuse_duplicates(&mut self, from: Offset, fault: &Fault) {
        for ticket in self.duplicates.split_off(&from).into_values().flatten() {
            self.refuse(ticket, fault.clone());
        }
    }

    fn refuse_queue(&mut self, fault: &Fault) {
        for accepted in std::mem::take(&mut self.queue) {
            self.owed.refused(&batch_summary(&accepted.header));
            self.refuse(accepted.ticket, fault.clone());
        }
        self.queue_bytes = 0;
    }
}

/// The same end for a batch that was certainly not written.
pub(super) fn not_applied(why: &Fault) -> Fault {
    match why.reason {
        Reason::StorageUnknown | Reason::StorageTimeout => {
            let message = format!(
                "partition is being opened again: {}; send the batch again",
                why.message
            );
            Fault::new(Reason::PartitionLoading, message)
        }
        _ => Fault {
            fate: Fate::NotApplied,
            ..why.clone()
        },
    }
}
