//! The first batches that the producers of a connection still owe.
//!
//! Clients send ahead. When a batch is turned away before its partition hears of it (the partition is being opened, or too much waits
//! there), or its partition ends with it, what was sent right behind it must not be stored before it: a partition that knows nothing of a producer takes any first
//! sequence (serving.md C2.5), and the batch that comes again would then count as stored long ago. So a batch that is ahead of what is
//! owed is refused as one behind a gap, which clients send again, in order.
//!
//! Known to the connection only: on another one clients send from their first unanswered batch on.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use hulse_proto::batch::BatchHeader;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::ProducerId;
use uuid::Uuid;

/// Producers and partitions of one connection of which this is kept; of more it is not known.
const OWED_MAX: usize = 1_000;

/// A partition as a request calls it. Of topics a hash is kept, as names are as long as clients like.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place {
    topic: u64,
    index: i32,
}

impl Place {
    /// Partition `index` of the topic of this name or identity.
    pub(super) fn new(name: &str, id: Uuid, index: i32) -> Self {
        let mut hasher = DefaultHasher::new();
        (name, id).hash(&mut hasher);
        Self {
            topic: hasher.finish(),
            index,
        }
    }

    /// Partition `index` of the same topic, whose name is not hashed again.
    pub(super) fn at(self, index: i32) -> Self {
        Self { index, ..self }
    }
}

/// Epoch and first sequence of what was turned away, by partition and producer.
#[derive(Debug, Default)]
pub(crate) struct Owed(BTreeMap<(Place, ProducerId), (i16, i32)>);

impl Owed {
    /// A batch was turned away. Of several the first of the newest epoch counts.
    pub(super) fn refused(&mut self, place: Place, header: &BatchHeader) {
        let (epoch, first) = (header.producer_epoch, header.base_sequence);
        if header.producer_id.0 < 0 || first < 0 {
            return;
        }
        let full = self.0.len() >= OWED_MAX;
        match self.0.get_mut(&(place, header.producer_id)) {
            Some(owed) if epoch > owed.0 || (epoch == owed.0 && is_ahead(first, owed.1)) => {
                *owed = (epoch, first);
            }
            None if !full => {
                self.0.insert((place, header.producer_id), (epoch, first));
            }
            Some(_) | None => {}
        }
    }

    /// Why a batch may not go to its partition: one before it is owed.
    pub(super) fn judge(&self, place: Place, header: &BatchHeader) -> Option<Fault> {
        let (epoch, first) = *self.0.get(&(place, header.producer_id))?;
        let ahead = header.producer_epoch == epoch && is_ahead(first, header.base_sequence);
        ahead.then(|| {
            let why = format!(
                "batch of producer {} begins at sequence {}, and the one at {first} was refused before; send that again first",
                header.producer_id, header.base_sequence
            );
            Fault::new(Reason::OutOfOrderSequence, why).with("expected_sequence", first)
        })
    }

    /// A batch went to its partition: what it holds, or what came before a newer epoch, is owed no more.
    pub(super) fn taken(&mut self, place: Place, header: &BatchHeader) {
        let key = (place, header.producer_id);
        let Some((epoch, first)) = self.0.get(&key) else {
            return;
        };
        let holds =
            !is_ahead(*first, header.base_sequence) && !is_ahead(header.last_sequence(), *first);
        if header.producer_epoch > *epoch || (header.producer_epoch == *epoch && holds) {
            self.0.remove(&key);
        }
    }
}

/// Whether `sequence` comes after `from` on the circle on which 0 follows `i32::MAX`.
fn is_ahead(from: i32, sequence: i32) -> bool {
    (1..1 << 30).contains(&(sequence.wrapping_sub(from) & i32::MAX))
}

#[cfg(test)]
mod tests {
    use hulse_proto::batch::{BatchBuilder, Compression, ProducerStamp, RecordRef};

    use super::*;

    fn header(epoch: i16, base_sequence: i32, records: usize) -> BatchHeader {
        let mut builder = BatchBuilder::new(Compression::None).unwrap();
        for _ in 0..records {
            let record = RecordRef {
                timestamp: 1,
                key: None,
                value: None,
                headers: &[],
            };
            builder.push(&record).unwrap();
        }
        let stamp = ProducerStamp {
            id: ProducerId(7),
            epoch,
            base_sequence,
        };
        BatchHeader::view(&builder.build(Some(stamp))).unwrap()
    }

    fn place(index: i32) -> Place {
        Place::new("t", Uuid::nil(), index)
    }

    #[test]
    fn batch_ahead_of_a_refused_one_waits_until_that_is_taken() {
        const LAST: i32 = i32::MAX;
        let mut owed = Owed::default();
        owed.refused(place(0), &header(0, LAST - 1, 1));
        owed.refused(place(0), &header(0, LAST, 1));
        assert!(owed.judge(place(0), &header(0, 0, 1)).is_some());
        assert!(owed.judge(place(1), &header(0, 0, 1)).is_none());
        assert!(owed.judge(place(0), &header(1, 0, 1)).is_none());
        // What was before it is no answer to it.
        owed.taken(place(0), &header(0, LAST - 5, 4));
        let fault = owed.judge(place(0), &header(0, LAST, 1)).unwrap();
        assert_eq!(fault.reason, Reason::OutOfOrderSequence);
        assert!(owed.judge(place(0), &header(0, LAST - 1, 1)).is_none());
        owed.taken(place(0), &header(0, LAST - 2, 3));
        assert!(owed.judge(place(0), &header(0, LAST, 1)).is_none());
    }

    #[test]
    fn newer_epoch_owes_nothing_of_the_older_one_and_others_owe_nothing() {
        let mut owed = Owed::default();
        owed.refused(place(0), &header(0, 3, 1));
        owed.taken(place(0), &header(1, 0, 1));
        assert!(owed.judge(place(0), &header(0, 9, 1)).is_none());
        let plain = BatchHeader {
            producer_id: ProducerId::NONE,
            base_sequence: -1,
            ..header(0, 0, 1)
        };
        owed.refused(place(0), &plain);
        (0..5_000).for_each(|index| owed.refused(place(index), &header(0, 0, 1)));
        assert_eq!(owed.0.len(), OWED_MAX);
    }
}
