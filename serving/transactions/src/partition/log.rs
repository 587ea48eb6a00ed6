//! L's part: what follows from confirmed log entries alone.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use hulse_proto::entry::{BatchSummary, EntryKind, Envelope};
use hulse_proto::id::{Offset, ProducerId};
use hulse_proto::time::TimestampMs;

use super::aborted::{Aborted, AbortedIndex};
use crate::limits::PRODUCERS_MAX;
use crate::marker::{Marker, is_transactional};

/// A transactional producer, as the log shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LogProducer {
    /// The highest that was seen, of batches and of markers.
    pub epoch: i16,
    /// The highest of its markers; −1: none.
    pub coordinator_epoch: i32,
    /// The highest of its markers; 0: none said one.
    pub serial: u32,
    /// First offset of its open transaction.
    pub open: Option<Offset>,
    /// Append time of its last batch or marker.
    pub last_activity: TimestampMs,
}

/// The transactions of a log up to `end`. Changes only by [`LogTransactions::apply`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct LogTransactions {
    /// Everything below is folded in.
    pub end: Offset,
    pub(super) producers: BTreeMap<ProducerId, LogProducer>,
    pub(super) aborted: AbortedIndex,
    // Both follow from the producers.
    pub(super) open: BTreeSet<(Offset, ProducerId)>,
    pub(super) idle: BTreeSet<(TimestampMs, ProducerId)>,
}

impl LogTransactions {
    /// Folds one confirmed entry in. Entries come in offset order; one that is folded in already changes nothing.
    pub fn apply(&mut self, first: Offset, end: Offset, envelope: &Envelope, expiry: Duration) {
        if end <= self.end {
            return;
        }
        let mut at = first;
        for batch in &envelope.batches {
            match envelope.kind {
                EntryKind::Data => self.add_batch(batch, at, envelope.append_time),
                EntryKind::Control => {
                    // Behind its own offset: what is aborted later begins above it.
                    self.end = Offset(at.0 + 1);
                    if let Some(marker) = Marker::of_summary(batch) {
                        self.add_marker(&marker, at, envelope.append_time);
                    }
                }
                EntryKind::Meta => {}
            }
            at = Offset(at.0 + u64::from(batch.span));
        }
        self.end = end;
        self.expire(envelope.append_time, expiry);
    }

    fn add_batch(&mut self, batch: &BatchSummary, at: Offset, now: TimestampMs) {
        if !is_transactional(batch) {
            return;
        }
        let known = self.get(batch.producer_id).copied();
        let known = known.unwrap_or_else(|| LogProducer::new(now));
        self.set(
            batch.producer_id,
            LogProducer {
                epoch: known.epoch.max(batch.producer_epoch),
                open: known.open.or(Some(at)),
                last_activity: now,
                ..known
            },
        );
    }

    fn add_marker(&mut self, marker: &Marker, at: Offset, now: TimestampMs) {
        let id = marker.producer.id;
        let known = self.get(id).copied();
        let known = known.unwrap_or_else(|| LogProducer::new(now));
        self.set(
            id,
            LogProducer {
                epoch: known.epoch.max(marker.producer.epoch),
                coordinator_epoch: known.coordinator_epoch.max(marker.coordinator_epoch),
                serial: known.serial.max(marker.serial),
                open: None,
                last_activity: now,
            },
        );
        // C6.2: a marker that ends nothing leaves nothing in the index.
        if let Some(first) = known.open.filter(|_| !marker.commit) {
            let stable = self.stable();
            self.aborted.push(Aborted {
                first,
                last: at,
                producer: id,
                stable,
            });
        }
    }

    fn set(&mut self, id: ProducerId, producer: LogProducer) {
        if let Some(old) = self.producers.insert(id, producer) {
            self.forget_places(id, &old);
        }
        match producer.open {
            Some(first) => self.open.insert((first, id)),
            None => self.idle.insert((producer.last_activity, id)),
        };
        if self.producers.len() > PRODUCERS_MAX
            && let Some((_, oldest)) = self.idle.pop_first()
        {
            self.producers.remove(&oldest);
        }
    }

    fn forget_places(&mut self, id: ProducerId, old: &LogProducer) {
        match old.open {
            Some(first) => self.open.remove(&(first, id)),
            None => self.idle.remove(&(old.last_activity, id)),
        };
    }

    /// Forgets producers without an open transaction whose last batch or marker is older than `expiry`: part of the fold.
    fn expire(&mut self, now: TimestampMs, expiry: Duration) {
        let expiry = i64::try_from(expiry.as_millis()).unwrap_or(i64::MAX);
        while let Some((at, id)) = self.idle.first().copied() {
            if at.saturating_add(expiry) >= now {
                break;
            }
            self.idle.remove(&(at, id));
            self.producers.remove(&id);
        }
    }

    /// Forgets what lies at or above `end`: a recorded loss took those entries (storage.md, amendment to M1). A transaction whose first
    /// batch is lost is open no more; one whose marker is lost was ended, and stays so.
    pub fn drop_from(&mut self, end: Offset) {
        if self.end <= end {
            return;
        }
        let lost: Vec<ProducerId> = self
            .open
            .range((end, ProducerId(i64::MIN))..)
            .map(|(_, id)| *id)
            .collect();
        for id in lost {
            if let Some(known) = self.get(id).copied() {
                self.set(
                    id,
                    LogProducer {
                        open: None,
                        ..known
                    },
                );
            }
        }
        self.aborted.drop_from(end);
    }

    /// The last stable offset: the first of the oldest open transaction, else the end of what is confirmed (C6.3).
    pub fn stable(&self) -> Offset {
        let oldest = self.open.first().map(|(first, _)| *first);
        oldest.map_or(self.end, |first| first.min(self.end))
    }

    /// One of the producers.
    pub fn get(&self, id: ProducerId) -> Option<&LogProducer> {
        self.producers.get(&id)
    }

    /// All of them, by id.
    pub fn producers(&self) -> impl ExactSizeIterator<Item = (&ProducerId, &LogProducer)> {
        self.producers.iter()
    }

    /// Open transactions, oldest first: where each begins, and whose it is.
    pub fn open(&self) -> impl ExactSizeIterator<Item = &(Offset, ProducerId)> {
        self.open.iter()
    }

    /// What was aborted.
    pub fn aborted(&self) -> &AbortedIndex {
        &self.aborted
    }

    /// Forgets what was aborted below `to`, where nobody reads any more or the ledgers' metadata have it.
    pub fn forget_aborted_below(&mut self, to: Offset) {
        self.aborted.forget_below(to);
    }

    /// Puts one in as a snapshot had it.
    pub(super) fn restore_producer(&mut self, id: ProducerId, producer: LogProducer) {
        self.set(id, producer);
    }

    /// Puts one in as a snapshot had it.
    pub(super) fn restore_aborted(&mut self, aborted: Aborted) {
        self.aborted.push(aborted);
    }

    /// Nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.producers.is_empty() && self.aborted.is_empty()
    }
}

impl LogProducer {
    fn new(now: TimestampMs) -> Self {
        Self {
            epoch: -1,
            coordinator_epoch: -1,
            serial: 0,
            open: None,
            last_activity: now,
        }
    }
}
