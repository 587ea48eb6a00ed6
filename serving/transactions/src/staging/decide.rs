//! Items come and are decided (serving.md C9.1, C9.2, C9.6).

use hulse_proto::id::PartitionId;
use hulse_proto::mutant::Mutant;
use hulse_proto::time::TimestampMs;

use super::change::Change;
use super::core::Staging;
use super::item::{Decision, Item, ItemId, Kind, Status};
use crate::error::TxnError;
use crate::limits::{ID_BYTES_MAX, ITEMS_MAX};

impl Staging {
    pub(super) fn keep(
        &mut self,
        id: ItemId,
        target: PartitionId,
        kind: Kind,
        due: TimestampMs,
    ) -> Result<ItemId, TxnError> {
        match &kind {
            Kind::Half { group, checks_max } => {
                if group.is_empty() || group.len() > ID_BYTES_MAX {
                    let why = "the name of the group of producers is empty or too long";
                    return Err(TxnError::InvalidRequest(why));
                }
                if *checks_max == 0 {
                    let why = "a half message is checked at least once";
                    return Err(TxnError::InvalidRequest(why));
                }
            }
            Kind::Scheduled => {
                let latest = self.now.saturating_add(self.config.schedule_max_ms);
                if due > latest {
                    let why = "the message is scheduled further ahead than may be";
                    return Err(TxnError::InvalidRequest(why));
                }
            }
        }
        // Whoever asks again lost the answer.
        if self.state.get(id).is_some() {
            return Ok(id);
        }
        if self.state.len() >= ITEMS_MAX {
            return Err(TxnError::TooMany {
                what: "half and scheduled messages of a store",
                limit: ITEMS_MAX,
            });
        }
        let item = Item {
            kind,
            target,
            place: id.first,
            made_at: self.now,
            due,
            checks: 0,
            status: Status::Waiting,
        };
        self.propose(Some(id), Change::Added(id, item));
        Ok(id)
    }

    pub(super) fn resolve(&mut self, id: ItemId, commit: bool) -> Result<(), TxnError> {
        let item = self.state.get(id).ok_or(TxnError::NoItem)?;
        if commit && item.kind == Kind::Scheduled {
            let why = "a scheduled message is published at its time; it can be recalled";
            return Err(TxnError::InvalidRequest(why));
        }
        let wanted = match commit {
            true => Decision::Commit,
            false => Decision::Rollback,
        };
        match item.status.decision() {
            None if commit => self.commit(id),
            None => self.decide(id, Decision::Rollback),
            Some(known) if known == wanted => {}
            Some(_) if self.mutation.is(Mutant::LastDecisionWins) => {}
            Some(known) => return Err(TxnError::Decided(known)),
        }
        Ok(())
    }

    /// To be published.
    pub(super) fn commit(&mut self, id: ItemId) {
        self.decide(id, Decision::Commit);
        if let Some(target) = self.state.get(id).map(|item| item.target) {
            self.enqueue(target, id);
        }
    }

    pub(super) fn decide(&mut self, id: ItemId, decision: Decision) {
        let forget_at = self.forget_at();
        let decided = Change::Decided {
            id,
            decision,
            forget_at,
        };
        self.propose(Some(id), decided);
    }

    pub(super) fn forget_at(&self) -> TimestampMs {
        self.now.saturating_add(self.config.keep_ms.into())
    }

    /// An operator wants a discarded half message checked anew.
    pub(super) fn resume(&mut self, id: ItemId) -> Result<(), TxnError> {
        let item = self.state.get(id).ok_or(TxnError::NoItem)?;
        match (item.status, item.status.decision()) {
            (Status::Discarded(false), _) => {
                let due = self.now;
                self.propose(Some(id), Change::Resumed { id, due });
                Ok(())
            }
            (Status::Discarding(false), _) => Err(TxnError::Busy),
            (_, Some(known)) => Err(TxnError::Decided(known)),
            (_, None) => Ok(()),
        }
    }
}
