//! What a partition knows of each idempotent producer, and how it judges a batch (serving.md C2.3–C2.6).

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use hulse_proto::batch::BatchHeader;
use hulse_proto::entry::BatchSummary;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{Offset, ProducerId};
use hulse_proto::limits::BATCHES_IN_FLIGHT_MAX;
use hulse_proto::time::TimestampMs;

/// Producers kept per partition; beyond it the longest idle one is forgotten (serving.md C10).
const PRODUCERS_MAX: usize = 100_000;

/// A batch in the duplicate window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stored {
    /// Sequence of its first record.
    pub first: i32,
    /// Sequence of its last record.
    pub last: i32,
    /// Offset of its first record.
    pub base: Offset,
    /// When it was appended, by the owner's clock.
    pub append_time: TimestampMs,
}

/// One producer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Known {
    /// Its epoch.
    pub epoch: i16,
    /// Append time of its last batch.
    pub last_activity: TimestampMs,
    /// The last five batches of this epoch, oldest first; never empty.
    pub window: VecDeque<Stored>,
}

/// What to do with a batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// Append it.
    Append,
    /// It is one of the last five: answer with the first copy's place, once that is durable (C2.4).
    Duplicate(Stored),
    /// Refuse it; nothing is stored.
    Refuse(Fault),
}

/// All producers of a partition. Changes only by [`Producers::apply`].
#[derive(Debug, Clone, Default)]
pub struct Producers(Table);

/// Thousands of partitions are open, and most know one producer or none.
#[derive(Debug, Clone)]
enum Table {
    Few(Option<(ProducerId, Known)>),
    Many(Box<Many>),
}

#[derive(Debug, Clone, Default)]
struct Many {
    known: BTreeMap<ProducerId, Known>,
    by_activity: BTreeSet<(TimestampMs, ProducerId)>,
}

impl Default for Table {
    fn default() -> Self {
        Self::Few(None)
    }
}

/// By what is known, however it is held.
impl PartialEq for Producers {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}

impl Eq for Producers {}

impl Many {
    fn insert(&mut self, id: ProducerId, known: Known) {
        self.by_activity.insert((known.last_activity, id));
        self.known.insert(id, known);
    }

    fn forget_oldest(&mut self) {
        if let Some((_, id)) = self.by_activity.pop_first() {
            self.known.remove(&id);
        }
    }
}

impl Known {
    /// Folds one batch in, stored at that time.
    fn add(&mut self, epoch: i16, stored: Stored) {
        if self.epoch != epoch {
            self.epoch = epoch;
            self.window.clear();
        }
        self.last_activity = stored.append_time;
        self.window.push_back(stored);
        if self.window.len() > BATCHES_IN_FLIGHT_MAX {
            self.window.pop_front();
        }
    }
}

/// Sequences wrap from `i32::MAX` to 0.
fn next_sequence(last: i32) -> i32 {
    if last == i32::MAX { 0 } else { last + 1 }
}

/// How far `sequence` lies after `from` on the wrapping circle, in −2³⁰ … 2³⁰.
pub(crate) fn distance(from: i32, sequence: i32) -> i64 {
    const CIRCLE: i64 = 1 << 31;
    let ahead = (i64::from(sequence) - i64::from(from)).rem_euclid(CIRCLE);
    if ahead >= CIRCLE / 2 {
        ahead - CIRCLE
    } else {
        ahead
    }
}

impl Producers {
    /// Folds one stored batch in.
    pub fn apply(&mut self, batch: &BatchSummary, base: Offset, append_time: TimestampMs) {
        let id = batch.producer_id;
        if id.0 < 0 {
            return;
        }
        let last = ((i64::from(batch.base_sequence) + i64::from(batch.span.max(1)) - 1) % (1 << 31))
            as i32;
        let stored = Stored {
            first: batch.base_sequence,
            last,
            base,
            append_time,
        };
        let epoch = batch.producer_epoch;
        let new = || Known {
            epoch,
            last_activity: append_time,
            window: VecDeque::with_capacity(1),
        };
        match &mut self.0 {
            Table::Few(Some((one, known))) if *one == id => known.add(epoch, stored),
            Table::Few(none @ None) => none.insert((id, new())).1.add(epoch, stored),
            Table::Few(Some(_)) | Table::Many(_) => {
                let many = self.many();
                let known = many.known.entry(id).or_insert_with(new);
                many.by_activity.remove(&(known.last_activity, id));
                known.add(epoch, stored);
                many.by_activity.insert((append_time, id));
                if many.known.len() > PRODUCERS_MAX {
                    many.forget_oldest();
                }
            }
        }
    }

    /// Makes room for more than one.
    fn many(&mut self) -> &mut Many {
        if let Table::Few(few) = &mut self.0 {
            let mut many = Box::<Many>::default();
            if let Some((id, known)) = few.take() {
                many.insert(id, known);
            }
            self.0 = Table::Many(many);
        }
        match &mut self.0 {
            Table::Many(many) => many,
            Table::Few(_) => unreachable!("it was just made many"),
        }
    }

    /// Forgets producers whose last batch is older than `expiry` at `now`, an append time: part of the fold.
    pub fn expire(&mut self, now: TimestampMs, expiry: Duration) {
        let expiry = i64::try_from(expiry.as_millis()).unwrap_or(i64::MAX);
        let over = |at: TimestampMs| at.saturating_add(expiry) < now;
        match &mut self.0 {
            Table::Few(few) => {
                few.take_if(|(_, known)| over(known.last_activity));
            }
            Table::Many(many) => {
                while many.by_activity.first().is_some_and(|(at, _)| over(*at)) {
                    many.forget_oldest();
                }
            }
        }
    }

    /// Forgets batches at or above `end`; a producer of which nothing is left is forgotten whole.
    pub(super) fn drop_from(&mut self, end: Offset) {
        let kept = |known: &mut Known| {
            known.window.retain(|stored| stored.base < end);
            !known.window.is_empty()
        };
        match &mut self.0 {
            Table::Few(few) => {
                few.take_if(|(_, known)| !kept(known));
            }
            Table::Many(many) => {
                let by_activity = &mut many.by_activity;
                many.known.retain(|id, known| {
                    let keep = kept(known);
                    if !keep {
                        by_activity.remove(&(known.last_activity, *id));
                    }
                    keep
                });
            }
        }
    }

    /// What is known of one producer.
    pub fn get(&self, producer: ProducerId) -> Option<&Known> {
        match &self.0 {
            Table::Few(few) => few
                .as_ref()
                .filter(|(id, _)| *id == producer)
                .map(|(_, known)| known),
            Table::Many(many) => many.known.get(&producer),
        }
    }

    /// All, by id.
    pub fn iter(&self) -> impl Iterator<Item = (&ProducerId, &Known)> {
        let (few, many) = match &self.0 {
            Table::Few(few) => (few.as_ref(), None),
            Table::Many(many) => (None, Some(&many.known)),
        };
        let few = few.map(|(id, known)| (id, known));
        few.into_iter().chain(many.into_iter().flatten())
    }

    /// How many.
    pub fn len(&self) -> usize {
        match &self.0 {
            Table::Few(few) => usize::from(few.is_some()),
            Table::Many(many) => many.known.len(),
        }
    }

    /// True when none is known.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts one in as a snapshot had it.
    pub(super) fn restore(&mut self, id: ProducerId, known: Known) {
        match &mut self.0 {
            Table::Few(none @ None) => *none = Some((id, known)),
            _ => self.many().insert(id, known),
        }
    }

    /// Judges a batch against this table. "No state" accepts any first sequence: it means forgotten or new, never stale.
    pub fn judge(&self, batch: &BatchHeader) -> Verdict {
        let Some(known) = self.get(batch.producer_id) else {
            return Verdict::Append;
        };
        let (epoch, first, last) = (
            batch.producer_epoch,
            batch.base_sequence,
            batch.last_sequence(),
        );
        if epoch < known.epoch {
            let why = format!(
                "producer {} has epoch {}, this batch is of epoch {epoch}: a newer instance took over",
                batch.producer_id, known.epoch
            );
            return Verdict::Refuse(
                Fault::new(Reason::FencedEpoch, why).with("epoch", known.epoch),
            );
        }
        if epoch > known.epoch {
            return if first == 0 {
                Verdict::Append
            } else {
                Verdict::Refuse(missing_before(batch, 0))
            };
        }
        if let Some(stored) = known
            .window
            .iter()
            .find(|stored| (stored.first, stored.last) == (first, last))
        {
            return Verdict::Duplicate(*stored);
        }
        let expected = known
            .window
            .back()
            .map_or(0, |stored| next_sequence(stored.last));
        match distance(expected, first) {
            0 => Verdict::Append,
            ahead if ahead > 0 => Verdict::Refuse(missing_before(batch, expected)),
            _ => {
                let why = format!(
                    "batch of producer {} has sequences {first} to {last}, of which some are stored already (next is {expected}), \
                     but it is none of the last stored batches; nothing of it is stored, send from {expected} on",
                    batch.producer_id
                );
                Verdict::Refuse(
                    Fault::new(Reason::SequenceOverlap, why).with("expected_sequence", expected),
                )
            }
        }
    }
}

/// The fault of a batch that came before the one at `expected`.
pub(crate) fn missing_before(batch: &BatchHeader, expected: i32) -> Fault {
    let why = format!(
        "batch of producer {} begins at sequence {}, the next is {expected}: a batch before it is missing",
        batch.producer_id, batch.base_sequence
    );
    Fault::new(Reason::OutOfOrderSequence, why).with("expected_sequence", expected)
}
