//! M's part: what follows from META deltas alone.
//!
//! A marker's ack half is one META entry that has [`StateChange::Settled`] and, beside it, what the cursors are to do: the owner takes
//! that from [`StateTransactions::staged_by`] when it writes the entry, so that cursors and stages change together.

use std::collections::{BTreeMap, BTreeSet};

use hulse_proto::id::{ProducerId, SubscriptionId};
use hulse_proto::time::TimestampMs;
use serving_dispatch::OffsetRange;

use super::staged::{Stage, StagedAcks};
use crate::limits::PRODUCERS_MAX;
use crate::marker::Marker;
use crate::producer::Producer;

/// A producer that settled acks here is remembered so long: as long as its partition remembers producers (serving.md C2). Ms.
const EXPIRY_MS: TimestampMs = 24 * 3600 * 1000;

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StateChange {
    /// A transaction stages acks: ACQUIRED becomes STAGED.
    Staged {
        /// Append time of the entry.
        at: TimestampMs,
        /// Whose transaction.
        producer: Producer,
        /// Which.
        stages: Vec<Stage>,
    },
    /// A transaction is decided: nothing of it is staged any more.
    Settled {
        /// Append time of the entry.
        at: TimestampMs,
        /// How.
        marker: Marker,
    },
    /// A cursor is gone, or stands elsewhere: what is staged of it is void.
    Voided(SubscriptionId),
}

/// A transactional producer, as the state shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StateProducer {
    /// The highest that was seen, of stages and of markers.
    pub epoch: i16,
    /// The highest of its markers; −1: none.
    pub coordinator_epoch: i32,
    /// The highest of its markers; 0: none said one.
    pub serial: u32,
    /// The last change.
    pub last_activity: TimestampMs,
    /// A transaction has staged something, though its cursors may be gone since.
    pub open: bool,
    /// What its open transaction has staged.
    pub acks: StagedAcks,
}

/// Acks that transactions have staged. Changes only by [`StateTransactions::apply`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StateTransactions {
    producers: BTreeMap<ProducerId, StateProducer>,
    // Follows from the producers.
    idle: BTreeSet<(TimestampMs, ProducerId)>,
}

impl StateTransactions {
    /// Folds a confirmed change in.
    pub fn apply(&mut self, change: &StateChange) {
        match change {
            StateChange::Staged {
                at,
                producer,
                stages,
            } => {
                let mut known = self.take(producer.id, *at);
                if producer.epoch >= known.epoch {
                    known.epoch = producer.epoch;
                    known.open = true;
                    for (subscription, ranges) in stages {
                        ranges
                            .iter()
                            .for_each(|range| known.acks.insert(*subscription, *range));
                    }
                }
                self.put(producer.id, known);
                self.expire(*at);
            }
            StateChange::Settled { at, marker } => {
                let mut known = self.take(marker.producer.id, *at);
                known.epoch = known.epoch.max(marker.producer.epoch);
                known.coordinator_epoch = known.coordinator_epoch.max(marker.coordinator_epoch);
                known.serial = known.serial.max(marker.serial);
                known.open = false;
                known.acks = StagedAcks::default();
                self.put(marker.producer.id, known);
                self.expire(*at);
            }
            StateChange::Voided(subscription) => {
                let producers = self.producers.values_mut();
                producers.for_each(|known| known.acks.forget(*subscription));
            }
        }
    }

    fn take(&mut self, id: ProducerId, at: TimestampMs) -> StateProducer {
        let known = self.producers.remove(&id);
        if let Some(known) = &known {
            self.idle.remove(&(known.last_activity, id));
        }
        let known = known.unwrap_or_else(|| StateProducer {
            epoch: -1,
            coordinator_epoch: -1,
            serial: 0,
            last_activity: at,
            open: false,
            acks: StagedAcks::default(),
        });
        StateProducer {
            last_activity: at.max(known.last_activity),
            ..known
        }
    }

    pub(super) fn put(&mut self, id: ProducerId, known: StateProducer) {
        if !known.open {
            self.idle.insert((known.last_activity, id));
        }
        self.producers.insert(id, known);
        if self.producers.len() > PRODUCERS_MAX
            && let Some((_, oldest)) = self.idle.pop_first()
        {
            self.producers.remove(&oldest);
        }
    }

    fn expire(&mut self, now: TimestampMs) {
        while let Some((at, id)) = self.idle.first().copied() {
            if at.saturating_add(EXPIRY_MS) >= now {
                break;
            }
            self.idle.remove(&(at, id));
            self.producers.remove(&id);
        }
    }

    /// One of the producers.
    pub fn get(&self, id: ProducerId) -> Option<&StateProducer> {
        self.producers.get(&id)
    }

    /// All of them, by id.
    pub fn producers(&self) -> impl ExactSizeIterator<Item = (&ProducerId, &StateProducer)> {
        self.producers.iter()
    }

    /// What a transaction of this producer has staged: to be acknowledged when it commits; else to be given back, once more delivered
    /// (C7).
    pub fn staged_by(&self, id: ProducerId) -> Vec<Stage> {
        let known = self.producers.get(&id);
        known.map_or_else(Vec::new, |known| known.acks.stages())
    }

    /// What is staged of a cursor: a dispatcher delivers none of it, and the base does not pass it.
    pub fn staged_of(&self, subscription: SubscriptionId) -> Vec<(ProducerId, OffsetRange)> {
        let mut all = Vec::new();
        for (id, known) in &self.producers {
            let ranges = known.acks.of(subscription).into_iter();
            all.extend(ranges.flat_map(|ranges| ranges.iter().map(|range| (*id, range))));
        }
        all
    }

    /// Nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.producers.is_empty()
    }
}
