//! InitProducerId: an instance of a producer begins (serving.md C5; KIP-360).

use std::sync::Arc;

use hulse_proto::id::ProducerId;

use super::change::Change;
use super::core::Coordinator;
use super::transaction::{Transaction, TxnState};
use crate::error::TxnError;
use crate::producer::{NO_EPOCH, Producer};

/// What a caller may be who names an identity.
enum Caller {
    /// The present one.
    Present,
    /// The one before: it lost the answer that made it the present one.
    Before,
    /// Neither.
    Fenced,
}

fn caller(txn: &Transaction, expected: Producer) -> Caller {
    let known = txn.producer;
    if expected == known {
        return Caller::Present;
    }
    let named = expected.epoch == txn.last_epoch && txn.last_epoch != NO_EPOCH;
    let same = expected.id == known.id;
    let rotated = expected.id == txn.previous && known.epoch == 0 && expected.is_exhausted();
    match named && (same || rotated) {
        true => Caller::Before,
        false => Caller::Fenced,
    }
}

impl Coordinator {
    pub(super) fn init(
        &mut self,
        id: &Arc<str>,
        timeout_ms: u32,
        expected: Option<Producer>,
    ) -> Result<Producer, TxnError> {
        let max_ms = self.config.timeout_max_ms;
        if timeout_ms == 0 || timeout_ms > max_ms {
            return Err(TxnError::InvalidTimeout { max_ms });
        }
        if self.is_pending(id) {
            return Err(TxnError::Concurrent);
        }
        let Some(txn) = self.state.get(id) else {
            // Whoever believes to be somebody was forgotten, and begins anew.
            let new = self.new_producer_id()?;
            let began = Producer::first(new);
            self.begin(id, began, (ProducerId::NONE, NO_EPOCH), timeout_ms);
            return Ok(began);
        };
        let known = txn.producer;
        let fenced = |found| Err(TxnError::Fenced { found, known });
        let who = expected.map(|expected| caller(txn, expected));
        match (txn.state, who, expected) {
            (_, Some(Caller::Fenced), Some(found)) => fenced(found),
            (state, ..) if state.is_preparing() => Err(TxnError::Concurrent),
            (TxnState::Ongoing, Some(Caller::Before), Some(found)) => fenced(found),
            (TxnState::Ongoing, ..) => {
                self.fence(id, expected.map_or(NO_EPOCH, |expected| expected.epoch));
                Err(TxnError::Concurrent)
            }
            (_, Some(Caller::Before), _) => Ok(known),
            _ => self.bump(id, timeout_ms, expected),
        }
    }

    fn bump(
        &mut self,
        id: &Arc<str>,
        timeout_ms: u32,
        expected: Option<Producer>,
    ) -> Result<Producer, TxnError> {
        let Some(txn) = self.state.get(id) else {
            return Err(TxnError::NotFound);
        };
        let (known, previous) = (txn.producer, txn.previous);
        let last_epoch = expected.map_or(NO_EPOCH, |expected| expected.epoch);
        let (next, previous) = match known.is_exhausted() {
            true => (Producer::first(self.new_producer_id()?), known.id),
            false => (known.bumped(), previous),
        };
        self.begin(id, next, (previous, last_epoch), timeout_ms);
        Ok(next)
    }

    fn begin(
        &mut self,
        id: &Arc<str>,
        producer: Producer,
        (previous, last_epoch): (ProducerId, i16),
        timeout_ms: u32,
    ) {
        let began = Change::Began {
            at: self.now,
            producer,
            previous,
            last_epoch,
            timeout_ms,
        };
        self.propose(id, began);
    }
}
