//! What is staged, and the one way it changes.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use hulse_proto::id::{Offset, PartitionId, ProducerId, TopicId};
use hulse_proto::time::TimestampMs;
use uuid::Uuid;

use crate::limits::PRODUCERS_MAX;
use crate::marker::Marker;
use crate::producer::Producer;

/// A producer that settled offsets here is remembered so long. Ms.
const EXPIRY_MS: TimestampMs = 24 * 3600 * 1000;

/// An offset that a transaction would commit; the fields of a committed one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedOffset {
    /// The next one to be processed.
    pub offset: Offset,
    /// Of the last processed record; −1: not said.
    pub leader_epoch: i32,
    /// The client's own; empty and none are not the same.
    pub metadata: Option<Arc<str>>,
    /// When.
    pub at: TimestampMs,
}

/// An offset that a transaction has committed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Committed {
    /// Whose.
    pub group: Arc<str>,
    /// Of which partition.
    pub partition: PartitionId,
    /// What.
    pub offset: StagedOffset,
}

/// One change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StageChange {
    /// A transaction stages offsets of a group.
    Staged {
        /// The coordinator's clock.
        at: TimestampMs,
        /// Whose transaction.
        producer: Producer,
        /// Whose offsets.
        group: Arc<str>,
        /// Which.
        offsets: Vec<(PartitionId, StagedOffset)>,
    },
    /// A transaction is decided.
    Settled {
        /// The coordinator's clock.
        at: TimestampMs,
        /// How.
        marker: Marker,
    },
    /// An offset was committed without a transaction: it wins over whatever was staged before.
    Overtaken {
        /// Whose.
        group: Arc<str>,
        /// Of which partition.
        partition: PartitionId,
    },
    /// A group is gone, with what is staged for it.
    GroupGone(Arc<str>),
    /// A topic is gone, with what is staged of it.
    TopicGone(TopicId),
}

type Place = (Arc<str>, PartitionId);

/// A staged offset in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedPlace {
    /// Number of the record that staged it.
    pub(super) position: u64,
    /// Something was committed behind it.
    pub(super) overtaken: bool,
    pub(super) offset: StagedOffset,
}

/// A transactional producer, as the shard knows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedProducer {
    /// The highest that was seen, of stages and of markers.
    pub epoch: i16,
    /// The highest of its markers; −1: none.
    pub coordinator_epoch: i32,
    /// The highest of its markers; 0: none said one.
    pub serial: u32,
    /// The last change.
    pub last_activity: TimestampMs,
    /// A transaction has staged something, though it may be gone since.
    pub open: bool,
    pub(super) offsets: BTreeMap<Place, StagedPlace>,
}

/// Offsets that transactions have staged in a shard. Changes only by [`OffsetStages::apply`].
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct OffsetStages {
    pub(super) next: u64,
    pub(super) producers: BTreeMap<ProducerId, StagedProducer>,
    // Both follow from the producers.
    pub(super) places: BTreeMap<Place, BTreeSet<ProducerId>>,
    pub(super) idle: BTreeSet<(TimestampMs, ProducerId)>,
}

impl OffsetStages {
    /// Folds a change in; answers what it commits, in no order that matters: each place occurs once.
    pub fn apply(&mut self, change: &StageChange) -> Vec<Committed> {
        self.next += 1;
        match change {
            StageChange::Staged {
                at,
                producer,
                group,
                offsets,
            } => {
                self.stage(*at, *producer, group, offsets);
                Vec::new()
            }
            StageChange::Settled { at, marker } => self.settle(*at, marker),
            StageChange::Overtaken { group, partition } => {
                let place = (group.clone(), *partition);
                self.overtake(&place, self.next);
                Vec::new()
            }
            StageChange::GroupGone(group) => {
                self.forget(|(of, _)| of == group);
                Vec::new()
            }
            StageChange::TopicGone(topic) => {
                self.forget(|(_, partition)| partition.topic == *topic);
                Vec::new()
            }
        }
    }

    fn stage(
        &mut self,
        at: TimestampMs,
        producer: Producer,
        group: &Arc<str>,
        offsets: &[(PartitionId, StagedOffset)],
    ) {
        let mut known = self.take(producer.id, at);
        if producer.epoch >= known.epoch {
            known.epoch = producer.epoch;
            known.open = true;
            for (partition, offset) in offsets {
                let place = StagedPlace {
                    position: self.next,
                    overtaken: false,
                    offset: offset.clone(),
                };
                known.offsets.insert((group.clone(), *partition), place);
            }
        }
        self.put(producer.id, known);
        self.expire(at);
    }

    fn settle(&mut self, at: TimestampMs, marker: &Marker) -> Vec<Committed> {
        let id = marker.producer.id;
        let mut known = self.take(id, at);
        let staged = std::mem::take(&mut known.offsets);
        known.epoch = known.epoch.max(marker.producer.epoch);
        known.coordinator_epoch = known.coordinator_epoch.max(marker.coordinator_epoch);
        known.serial = known.serial.max(marker.serial);
        known.open = false;
        self.put(id, known);
        self.expire(at);
        let mut committed = Vec::new();
        if marker.commit {
            for (place, staged) in staged {
                self.overtake(&place, staged.position);
                if !staged.overtaken {
                    let (group, partition) = place;
                    committed.push(Committed {
                        group,
                        partition,
                        offset: staged.offset,
                    });
                }
            }
        }
        committed
    }

    /// What was staged for a place before this position does not count any more.
    fn overtake(&mut self, place: &Place, position: u64) {
        let ids = self.places.get(place).into_iter().flatten();
        for id in ids {
            if let Some(known) = self.producers.get_mut(id)
                && let Some(staged) = known.offsets.get_mut(place)
            {
                staged.overtaken |= staged.position < position;
            }
        }
    }

    fn forget(&mut self, gone: impl Fn(&Place) -> bool) {
        self.places.retain(|place, _| !gone(place));
        let producers = self.producers.values_mut();
        producers.for_each(|known| known.offsets.retain(|place, _| !gone(place)));
    }

    /// Takes a producer out of its places.
    fn take(&mut self, id: ProducerId, at: TimestampMs) -> StagedProducer {
        let known = self.producers.remove(&id);
        let known = known.unwrap_or_else(|| StagedProducer::new(at));
        self.idle.remove(&(known.last_activity, id));
        for place in known.offsets.keys() {
            if let Some(ids) = self.places.get_mut(place) {
                ids.remove(&id);
                if ids.is_empty() {
                    self.places.remove(place);
                }
            }
        }
        StagedProducer {
            last_activity: at.max(known.last_activity),
            ..known
        }
    }

    pub(super) fn put(&mut self, id: ProducerId, known: StagedProducer) {
        for place in known.offsets.keys() {
            self.places.entry(place.clone()).or_default().insert(id);
        }
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

    /// Something is staged for this partition of the group: whoever wants stable offsets asks again (UNSTABLE_OFFSET_COMMIT).
    pub fn is_unstable(&self, group: &Arc<str>, partition: PartitionId) -> bool {
        self.places.contains_key(&(group.clone(), partition))
    }

    /// Something is staged for this group: it is not empty, and its offsets do not expire.
    pub fn holds(&self, group: &Arc<str>) -> bool {
        self.staged_of(group).next().is_some()
    }

    /// Partitions of this group for which something is staged.
    pub fn staged_of(&self, group: &Arc<str>) -> impl Iterator<Item = PartitionId> {
        let first = PartitionId {
            topic: TopicId(Uuid::nil()),
            index: 0,
        };
        let places = self.places.range((group.clone(), first)..);
        let places = places.take_while(move |((of, _), _)| of == group);
        places.map(|((_, partition), _)| *partition)
    }

    /// Groups of which a producer has staged something.
    pub fn groups_of(&self, id: ProducerId) -> BTreeSet<Arc<str>> {
        let known = self.producers.get(&id).into_iter();
        let places = known.flat_map(|known| known.offsets.keys());
        places.map(|(group, _)| group.clone()).collect()
    }

    /// Something is staged of this topic.
    pub fn has_topic(&self, topic: TopicId) -> bool {
        let mut places = self.places.keys();
        places.any(|(_, partition)| partition.topic == topic)
    }

    /// One of the producers.
    pub fn get(&self, id: ProducerId) -> Option<&StagedProducer> {
        self.producers.get(&id)
    }

    /// All of them, by id.
    pub fn producers(&self) -> impl ExactSizeIterator<Item = (&ProducerId, &StagedProducer)> {
        self.producers.iter()
    }

    /// Nothing is remembered.
    pub fn is_empty(&self) -> bool {
        self.producers.is_empty()
    }
}

impl StagedProducer {
    fn new(at: TimestampMs) -> Self {
        Self {
            epoch: -1,
            coordinator_epoch: -1,
            serial: 0,
            last_activity: at,
            open: false,
            offsets: BTreeMap::new(),
        }
    }

    /// How many offsets are staged.
    pub fn staged(&self) -> usize {
        self.offsets.len()
    }
}
