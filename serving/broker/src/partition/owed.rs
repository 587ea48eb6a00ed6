//! The first batch that a producer without a history still owes.
//!
//! A producer of which nothing is stored may begin at any sequence (serving.md C2.5: its history may have expired). But when its
//! first batch was turned away because storage took no records, what it sent right behind it must not be stored before it: the
//! resent first batch would then lie below what is stored, and count as stored long ago.
//!
//! Known to the owner only: behind a take-over clients send from their first unanswered batch on.

use std::collections::BTreeMap;

use hulse_proto::batch::BatchHeader;
use hulse_proto::entry::BatchSummary;
use hulse_proto::error::Fault;
use hulse_proto::id::ProducerId;

use crate::state::{distance, missing_before};

/// Producers of which this is kept; of more it is not known.
const OWED_MAX: usize = 10_000;

/// Epoch and first sequence of what was turned away, by producer.
#[derive(Debug, Default)]
pub(super) struct Owed(BTreeMap<ProducerId, (i16, i32)>);

impl Owed {
    /// A batch was turned away and is nowhere. Of several the first of the newest epoch counts.
    pub(super) fn refused(&mut self, batch: &BatchSummary) {
        let (producer, epoch) = (batch.producer_id, batch.producer_epoch);
        let first = batch.base_sequence;
        if producer.0 < 0 {
            return;
        }
        let full = self.0.len() >= OWED_MAX;
        match self.0.get_mut(&producer) {
            Some(owed) if epoch > owed.0 || (epoch == owed.0 && distance(owed.1, first) < 0) => {
                *owed = (epoch, first);
            }
            None if !full => {
                self.0.insert(producer, (epoch, first));
            }
            Some(_) | None => {}
        }
    }

    /// Why a batch of a producer without a history is refused: one before it is owed.
    pub(super) fn judge(&self, header: &BatchHeader) -> Option<Fault> {
        let (epoch, first) = *self.0.get(&header.producer_id)?;
        let ahead = header.producer_epoch == epoch && distance(first, header.base_sequence) > 0;
        ahead.then(|| missing_before(header, first))
    }

    /// A batch of the producer was accepted: from now on its history tells what comes next.
    pub(super) fn accepted(&mut self, producer: ProducerId) {
        self.0.remove(&producer);
    }
}
