//! AddPartitionsToTxn and AddOffsetsToTxn: who takes part (serving.md C5, C2.7, C7).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::answer::Added;
use super::change::Change;
use super::core::Coordinator;
use super::transaction::{Participant, Parts, Transaction, TxnState};
use crate::error::TxnError;
use crate::limits::PARTICIPANTS_MAX;
use crate::producer::{Producer, Version};

impl Coordinator {
    pub(super) fn add(
        &mut self,
        id: &Arc<str>,
        producer: Producer,
        version: Version,
        participants: BTreeMap<Participant, Parts>,
    ) -> Result<Added, TxnError> {
        // What adds may wait together: deltas are durable in order.
        if self.is_pending_beside_adds(id) {
            return Err(TxnError::Concurrent);
        }
        if participants.is_empty() {
            return Err(TxnError::InvalidRequest("no partition is named"));
        }
        let txn = self.speaker(id, producer)?;
        let ongoing = txn.state == TxnState::Ongoing;
        if ongoing && txn.covers(&participants) {
            return Ok(Added { serial: txn.serial });
        }
        let known = |participant| ongoing && txn.participants.contains_key(participant);
        let new = participants
            .keys()
            .filter(|participant| !known(participant));
        let before = if ongoing { txn.participants.len() } else { 0 };
        if before + new.count() > PARTICIPANTS_MAX {
            return Err(TxnError::TooMany {
                what: "partitions of a transaction",
                limit: PARTICIPANTS_MAX,
            });
        }
        let added = Change::Added {
            at: self.now,
            version,
            participants,
        };
        self.propose(id, added);
        let txn = self.state.get(id).ok_or(TxnError::NotFound)?;
        Ok(Added { serial: txn.serial })
    }

    /// Do they take part? Says so only of a transaction that is open.
    pub(super) fn verify(
        &self,
        id: &Arc<str>,
        producer: Producer,
        version: Version,
        participants: &BTreeMap<Participant, Parts>,
    ) -> Result<Added, TxnError> {
        if self.is_pending_beside_adds(id) {
            return Err(TxnError::Concurrent);
        }
        let txn = self.speaker(id, producer)?;
        let same = txn.version == version && txn.state == TxnState::Ongoing;
        match same && txn.covers(participants) {
            true => Ok(Added { serial: txn.serial }),
            false => Err(TxnError::Abortable),
        }
    }

    /// The transactional id of somebody who may speak, and that is not being ended.
    fn speaker(&self, id: &Arc<str>, producer: Producer) -> Result<&Transaction, TxnError> {
        let txn = self.state.get(id).ok_or(TxnError::WrongProducer)?;
        if txn.state.is_preparing() && producer == txn.after_completion() {
            return Err(TxnError::Concurrent);
        }
        if producer.id != txn.producer.id {
            return Err(TxnError::WrongProducer);
        }
        if producer.epoch != txn.producer.epoch {
            return Err(TxnError::Fenced {
                found: producer,
                known: txn.producer,
            });
        }
        match txn.state.is_preparing() {
            true => Err(TxnError::Concurrent),
            false => Ok(txn),
        }
    }
}
