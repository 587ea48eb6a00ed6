//! Verification guards (serving.md C2.7; KIP-890): the first part of a transaction at a place waits until the coordinator says that the
//! place takes part.
//!
//! A guard is dropped by any marker of its producer and by any newer epoch: the coordinator's word is then one about a transaction that is
//! over, and would open one that nobody ends.

use std::collections::BTreeMap;

use hulse_proto::id::ProducerId;
use hulse_proto::mutant::{Mutant, Mutation};

use crate::error::TxnError;
use crate::limits::GUARDS_MAX;
use crate::producer::Producer;

/// Names a question to a coordinator.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// A producer that waits, or that may begin.
#[derive(Debug, Clone, Copy)]
struct Guard {
    ticket: Ticket,
    epoch: i16,
    /// The lowest sequence that waits.
    lowest: i32,
    /// The coordinator said yes, and nothing was appended since.
    verified: bool,
}

/// What to do with the first part of a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guarded {
    /// It was verified: take it.
    Verified,
    /// Ask the coordinator, or wait for its answer if this ticket was asked for already.
    Ask(Ticket),
}

/// The guards of one place.
#[derive(Debug, Default)]
pub struct Guards {
    by_producer: BTreeMap<ProducerId, Guard>,
    next: u64,
    mutation: Mutation,
}

impl Guards {
    /// None, with a rule switched off.
    #[must_use]
    pub fn mutated(mutation: Mutation) -> Self {
        Self {
            mutation,
            ..Self::default()
        }
    }

    /// The first part of a transaction comes, with its first sequence; 0 where there are none.
    ///
    /// # Errors
    /// `Overtaken`: a lower sequence waits, and must not be overtaken. `TooMany`.
    pub fn guard(&mut self, producer: Producer, sequence: i32) -> Result<Guarded, TxnError> {
        let known = self.by_producer.get_mut(&producer.id);
        if let Some(guard) = known.filter(|guard| guard.epoch == producer.epoch) {
            return match guard.verified {
                true => Ok(Guarded::Verified),
                false if sequence > guard.lowest => Err(TxnError::Overtaken {
                    first: guard.lowest,
                }),
                false => {
                    guard.lowest = sequence;
                    Ok(Guarded::Ask(guard.ticket))
                }
            };
        }
        if self.by_producer.len() >= GUARDS_MAX {
            return Err(TxnError::TooMany {
                what: "producers that wait to be verified",
                limit: GUARDS_MAX,
            });
        }
        self.next += 1;
        let guard = Guard {
            ticket: Ticket(self.next),
            epoch: producer.epoch,
            lowest: sequence,
            verified: false,
        };
        self.by_producer.insert(producer.id, guard);
        Ok(Guarded::Ask(guard.ticket))
    }

    /// The coordinator answered. True: what waits may be judged again, and is taken if nothing else forbids it.
    pub fn answered(&mut self, producer: Producer, ticket: Ticket, takes_part: bool) -> bool {
        let late = self.mutation.is(Mutant::LateVerificationTaken);
        if late && takes_part {
            let guard = Guard {
                ticket,
                epoch: producer.epoch,
                lowest: 0,
                verified: true,
            };
            self.by_producer.insert(producer.id, guard);
        }
        let known = self.by_producer.get_mut(&producer.id);
        let Some(guard) = known.filter(|guard| guard.ticket == ticket) else {
            return false;
        };
        match takes_part {
            true => guard.verified = true,
            false => {
                self.by_producer.remove(&producer.id);
            }
        }
        takes_part
    }

    /// Something of the transaction was appended: it is open, and guarded no more.
    pub fn opened(&mut self, producer: ProducerId) {
        self.by_producer.remove(&producer);
    }

    /// A marker, or a newer epoch: what waits is of the past.
    pub fn drop_guard(&mut self, producer: ProducerId) {
        self.by_producer.remove(&producer);
    }
}
