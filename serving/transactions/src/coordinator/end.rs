//! EndTxn: the decision (serving.md C5, the table; KIP-890).

use std::sync::Arc;

use hulse_proto::id::ProducerId;
use hulse_proto::mutant::Mutant;

use super::change::Change;
use super::core::Coordinator;
use super::transaction::{Transaction, TxnState};
use crate::error::TxnError;
use crate::producer::{NO_EPOCH, Producer, Version};

/// What an EndTxn comes to.
enum Verdict {
    /// Decide so.
    Decide,
    /// It was decided so: this is who speaks now.
    Known,
    /// Refuse.
    Refuse(TxnError),
}

/// A caller of TV2 that did not hear the answer which bumped its epoch, or gave it a new id. One whose epoch time or another instance
/// has bumped is none: nobody but the caller of the former epoch is named in `last_epoch`.
fn is_retry(txn: &Transaction, producer: Producer) -> bool {
    let known = txn.producer;
    if producer.epoch != txn.last_epoch {
        return false;
    }
    let bumped = producer.id == known.id && producer.bumped().epoch == known.epoch;
    let rotated = producer.id == txn.previous && known.epoch == 0 && producer.is_exhausted();
    (bumped || rotated) && producer.epoch != known.epoch
}

fn judge_tv1(state: TxnState, commit: bool) -> Verdict {
    use TxnState as S;
    match (state, commit) {
        (S::Ongoing, _) => Verdict::Decide,
        (S::CompleteCommit, true) | (S::CompleteAbort, false) => Verdict::Known,
        (S::PrepareCommit, true) | (S::PrepareAbort, false) => {
            Verdict::Refuse(TxnError::Concurrent)
        }
        _ => refused(state, commit),
    }
}

fn judge_tv2(state: TxnState, commit: bool, retry: bool) -> Verdict {
    use TxnState as S;
    match (state, commit, retry) {
        (S::Ongoing, _, false) => Verdict::Decide,
        // Nothing is open: an abort bumps the epoch all the same.
        (S::Empty | S::CompleteCommit | S::CompleteAbort, false, false) => Verdict::Decide,
        (S::CompleteCommit, true, true) | (S::CompleteAbort, false, true) => Verdict::Known,
        (S::PrepareCommit, true, true) | (S::PrepareAbort, false, true) => {
            Verdict::Refuse(TxnError::Concurrent)
        }
        // The answer named this epoch before the markers are through: nobody can have begun anything with it.
        (S::PrepareCommit | S::PrepareAbort, _, false) => Verdict::Refuse(TxnError::Concurrent),
        _ => refused(state, commit),
    }
}

fn refused(state: TxnState, commit: bool) -> Verdict {
    Verdict::Refuse(TxnError::InvalidState(match (state, commit) {
        (TxnState::Empty, _) => "nothing is open",
        (TxnState::Ongoing, _) => "another transaction is open by now",
        (TxnState::PrepareCommit | TxnState::CompleteCommit, false) => "it is committed",
        (TxnState::PrepareAbort | TxnState::CompleteAbort, true) => "it is aborted",
        (_, true) => "nothing is open to commit",
        (_, false) => "nothing is open to abort",
    }))
}

impl Coordinator {
    pub(super) fn end(
        &mut self,
        id: &Arc<str>,
        producer: Producer,
        version: Version,
        commit: bool,
    ) -> Result<Producer, TxnError> {
        if self.is_pending(id) {
            return Err(TxnError::Concurrent);
        }
        let txn = self.state.get(id).ok_or(TxnError::WrongProducer)?;
        let known = txn.producer;
        // It has the id that it gets when the transaction before is complete.
        if txn.next != ProducerId::NONE && producer == txn.after_completion() {
            return Err(TxnError::Concurrent);
        }
        let retry = version == Version::Tv2 && is_retry(txn, producer);
        if !retry {
            if producer.id != known.id {
                return Err(TxnError::WrongProducer);
            }
            if producer.epoch != known.epoch {
                return Err(TxnError::Fenced {
                    found: producer,
                    known,
                });
            }
        }
        let verdict = match version {
            Version::Tv1 => judge_tv1(txn.state, commit),
            Version::Tv2 => judge_tv2(txn.state, commit, retry),
        };
        match verdict {
            Verdict::Refuse(error) => Err(error),
            Verdict::Known => Ok(known),
            Verdict::Decide => self.decide(id, commit, version),
        }
    }

    fn decide(
        &mut self,
        id: &Arc<str>,
        commit: bool,
        version: Version,
    ) -> Result<Producer, TxnError> {
        let txn = self.state.get(id).ok_or(TxnError::NotFound)?;
        let (known, last_epoch) = (txn.producer, txn.last_epoch);
        let (producer, next, last_epoch) = match version {
            Version::Tv1 => (known, ProducerId::NONE, last_epoch),
            Version::Tv2 if known.is_exhausted() => {
                let next = self.new_producer_id()?;
                (known.bumped(), next, known.epoch)
            }
            Version::Tv2 => (known.bumped(), ProducerId::NONE, known.epoch),
        };
        let decided = Change::Decided {
            at: self.now,
            commit,
            version,
            producer,
            next,
            last_epoch,
        };
        self.propose(id, decided);
        Ok(match next {
            ProducerId::NONE => producer,
            next => Producer::first(next),
        })
    }

    /// Aborts what is open with an epoch that nobody has: whoever began it is fenced wherever the markers come. `last_epoch` names the
    /// caller on whose behalf it is; −1: nobody.
    pub(super) fn fence(&mut self, id: &Arc<str>, last_epoch: i16) {
        let Some(txn) = self.state.get(id) else {
            return;
        };
        let producer = match self.mutation.is(Mutant::FenceKeepsEpoch) {
            true => txn.producer,
            false => txn.producer.bumped(),
        };
        let decided = Change::Decided {
            at: self.now,
            commit: false,
            version: Version::Tv2,
            producer,
            next: ProducerId::NONE,
            last_epoch,
        };
        self.propose(id, decided);
    }

    /// As [`Self::fence`], because of time or an operator.
    pub(super) fn fence_all(&mut self, id: &Arc<str>) {
        self.fence(id, NO_EPOCH);
    }
}
