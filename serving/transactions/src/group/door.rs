//! The live side: who may stage, and what a marker needs.
//!
//! A shard's coordinator applies what it proposes, and answers when that is durable: so the stages that it sees are those of its own
//! proposals, and nothing is "on its way" beside them.

use hulse_proto::mutant::{Mutant, Mutation};

use super::stages::OffsetStages;
use crate::error::TxnError;
use crate::guard::{Guarded, Guards, Ticket};
use crate::limits::STAGED_MAX;
use crate::marker::Marker;
use crate::producer::{Producer, Version};

/// Who waits to be verified.
#[derive(Debug, Default)]
pub struct StageDoor {
    guards: Guards,
    mutation: Mutation,
}

impl StageDoor {
    /// One with a rule switched off.
    #[must_use]
    pub fn mutated(mutation: Mutation) -> Self {
        Self {
            guards: Guards::mutated(mutation),
            mutation,
        }
    }

    /// Judges offsets that a transaction would stage; `None`: they may be staged now, else the coordinator is asked under this ticket,
    /// unless that was done. The group has judged the member before.
    ///
    /// # Errors
    /// `Fenced`, `TooMany`; nothing is staged.
    pub fn judge(
        &mut self,
        stages: &OffsetStages,
        producer: Producer,
        offsets: usize,
    ) -> Result<Option<Ticket>, TxnError> {
        let known = stages.get(producer.id);
        if let Some(known) = known
            && producer.epoch < known.epoch
        {
            return Err(TxnError::Fenced {
                found: producer,
                known: Producer {
                    epoch: known.epoch,
                    ..producer
                },
            });
        }
        if known.map_or(0, |known| known.staged()) + offsets > STAGED_MAX {
            return Err(TxnError::TooMany {
                what: "offsets of a transaction",
                limit: STAGED_MAX,
            });
        }
        if known.is_some_and(|known| known.open && known.epoch == producer.epoch) {
            return Ok(None);
        }
        Ok(match self.guards.guard(producer, 0)? {
            Guarded::Verified => None,
            Guarded::Ask(ticket) => Some(ticket),
        })
    }

    /// The coordinator answered. True: what waits is judged again now, and staged before anything else happens.
    pub fn verified(&mut self, producer: Producer, ticket: Ticket, takes_part: bool) -> bool {
        self.guards.answered(producer, ticket, takes_part)
    }

    /// Offsets were staged.
    pub fn staged(&mut self, producer: Producer) {
        self.guards.opened(producer.id);
    }

    /// Judges a marker. True: it is to be proposed; else it was settled before, and is answered when all that was proposed is durable.
    ///
    /// # Errors
    /// `CoordinatorFenced`, `Fenced`; nothing changes.
    pub fn judge_marker(
        &mut self,
        stages: &OffsetStages,
        marker: &Marker,
    ) -> Result<bool, TxnError> {
        let id = marker.producer.id;
        let Some(known) = stages.get(id) else {
            self.guards.drop_guard(id);
            return Ok(true);
        };
        if self.mutation.is(Mutant::OldMarkerTaken) {
            return Ok(true);
        }
        if marker.coordinator_epoch < known.coordinator_epoch {
            return Err(TxnError::CoordinatorFenced {
                found: marker.coordinator_epoch,
                known: known.coordinator_epoch,
            });
        }
        if marker.serial != 0 && marker.serial <= known.serial {
            return Ok(false);
        }
        let (found, epoch) = (marker.producer, known.epoch);
        let fenced = TxnError::Fenced {
            found,
            known: Producer { epoch, ..found },
        };
        let write = match marker.version {
            Version::Tv2 if found.epoch == epoch && !known.open => Ok(false),
            Version::Tv2 if found.epoch > epoch => Ok(true),
            Version::Tv1 if found.epoch >= epoch => Ok(true),
            _ => Err(fenced),
        }?;
        self.guards.drop_guard(id);
        Ok(write)
    }
}
