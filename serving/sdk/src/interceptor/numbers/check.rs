//! The check: which numbers arrived, and where.
//!
//! Per producer and partition it remembers runs of numbers that stand at consecutive offsets, so memory grows with the number of
//! batches that producers interleave, not with records. At [`RUNS_MAX`] runs that differ in their place only become one, which forgets
//! places but no number.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use uuid::Uuid;

use super::super::hooks::{Interceptor, Refusal};
use super::finding::{NumberFinding, NumberReport, Place, SeenNumber, TrimmedNumbers};
use super::stamp::StampedNumber;
use crate::reader::ReadRecord;

/// Runs that are remembered, over all streams; about 100 bytes each.
const RUNS_MAX: usize = 1 << 20;
/// Streams that are remembered.
const STREAMS_MAX: usize = 1 << 17;
/// Findings in a report.
const FINDINGS_MAX: usize = 1000;

/// Numbers `first..end`, of which `first` is the key.
#[derive(Debug, Clone, Copy)]
struct Run {
    end: u64,
    /// Of the first; the others follow. `None`: forgotten.
    place: Option<Place>,
}

impl Run {
    fn place_of(&self, first: u64, number: u64) -> Option<Place> {
        self.place.map(|place| Place {
            offset: place.offset + (number - first),
            ..place
        })
    }
}

/// One producer in one partition.
#[derive(Debug, Default)]
struct Stream {
    runs: BTreeMap<u64, Run>,
    /// By partition of arrival: the highest number in front, and its offset.
    highest: BTreeMap<u32, (u64, u64)>,
    /// Numbers below this were sent.
    expected: u64,
}

/// Checks numbers. Records of one partition must be shown in the order of their offsets, or again from an earlier one on.
#[derive(Debug)]
pub struct NumberCheck {
    streams: BTreeMap<(Uuid, u32), Stream>,
    runs: usize,
    runs_max: usize,
    /// Forgetting places gives no room any more.
    all_holes: bool,
    /// Partitions whose oldest records are gone.
    trimmed: BTreeSet<u32>,
    counts: NumberReport,
}

impl Default for NumberCheck {
    fn default() -> Self {
        Self::new()
    }
}

impl NumberCheck {
    /// A check that has seen nothing.
    pub fn new() -> Self {
        Self::with_runs_max(RUNS_MAX)
    }

    pub(super) fn with_runs_max(runs_max: usize) -> Self {
        Self {
            streams: BTreeMap::new(),
            runs: 0,
            runs_max,
            all_holes: false,
            trimmed: BTreeSet::new(),
            counts: NumberReport {
                complete: true,
                ..NumberReport::default()
            },
        }
    }

    /// The partition's log does not begin at offset 0, or was not read from there: numbers before a stream's first one are not missed.
    pub fn trimmed(&mut self, partition: u32) {
        self.trimmed.insert(partition);
    }

    /// The producer sent numbers below `end` to the partition: what did not arrive of them is missing.
    pub fn expect(&mut self, producer: Uuid, partition: u32, end: u64) {
        if let Some(stream) = self.stream((producer, partition)) {
            stream.expected = stream.expected.max(end);
        }
    }

    /// Looks at a record. What is wrong with it, if that shows at once: a missing number shows in the report only, since it may still
    /// come.
    pub fn check(&mut self, record: &ReadRecord) -> Option<NumberFinding> {
        self.counts.records += 1;
        let at = Place {
            partition: record.partition,
            offset: record.offset.0,
        };
        let finding = match StampedNumber::read(&record.headers) {
            None => {
                self.counts.unnumbered += 1;
                return None;
            }
            Some(None) => {
                self.counts.malformed += 1;
                NumberFinding::Malformed { at }
            }
            Some(Some(stamp)) => self.arrived(stamp, at)?,
        };
        if self.counts.findings.len() < FINDINGS_MAX {
            self.counts.findings.push(finding.clone());
        }
        Some(finding)
    }

    /// What there is to say of everything that arrived so far.
    pub fn report(&self) -> NumberReport {
        let mut report = NumberReport {
            streams: self.streams.len(),
            ..self.counts.clone()
        };
        for (key, stream) in &self.streams {
            let first = stream.runs.first_key_value().filter(|(_, run)| {
                let arrived_in = run.place.map_or(key.1, |place| place.partition);
                self.trimmed.contains(&arrived_in)
            });
            stream.missing(*key, first.is_some(), &mut report);
            if let Some((first, _)) = first.filter(|(first, _)| **first > 0)
                && report.trimmed.len() < FINDINGS_MAX
            {
                report.trimmed.push(TrimmedNumbers {
                    producer: key.0,
                    partition: key.1,
                    numbers: 0..*first,
                });
            }
        }
        report
    }

    fn stream(&mut self, key: (Uuid, u32)) -> Option<&mut Stream> {
        if self.streams.len() >= STREAMS_MAX && !self.streams.contains_key(&key) {
            self.counts.complete = false;
            return None;
        }
        Some(self.streams.entry(key).or_default())
    }

    fn arrived(&mut self, stamp: StampedNumber, at: Place) -> Option<NumberFinding> {
        if self.runs >= self.runs_max && !self.all_holes {
            self.forget_places();
        }
        let full = self.runs >= self.runs_max;
        let (producer, partition, number) = (stamp.producer, stamp.partition, stamp.number);
        let stream = self.stream((producer, partition))?;
        match stream.take(number, at, full) {
            Taken::Extended => {}
            Taken::Began => self.runs += 1,
            Taken::NoRoom => self.counts.complete = false,
            Taken::Known(place) if place.is_none_or(|place| place == at) => {
                // Where the place is forgotten, a repeated delivery cannot be told from a double record; the former is the usual.
                self.counts.redelivered += 1;
            }
            Taken::Known(place) => {
                self.counts.duplicates += 1;
                return Some(NumberFinding::Duplicate {
                    producer,
                    partition,
                    first: SeenNumber { number, place },
                    again: at,
                });
            }
        }
        let stream = self.stream((producer, partition))?;
        let behind = stream.order(number, at)?;
        self.counts.out_of_order += 1;
        Some(NumberFinding::OutOfOrder {
            producer,
            partition,
            number,
            at,
            behind,
        })
    }

    fn forget_places(&mut self) {
        self.streams.values_mut().for_each(Stream::forget_places);
        self.runs = self.streams.values().map(|stream| stream.runs.len()).sum();
        // Hardly any was saved: what remains are holes, and trying again for each record would only take time.
        self.all_holes = self.runs > self.runs_max - self.runs_max / 8;
    }
}

/// What became of a number.
enum Taken {
    Extended,
    Began,
    NoRoom,
    /// It had arrived, there.
    Known(Option<Place>),
}

impl Stream {
    fn take(&mut self, number: u64, at: Place, full: bool) -> Taken {
        if let Some((first, run)) = self.runs.range_mut(..=number).next_back() {
            if number < run.end {
                return Taken::Known(run.place_of(*first, number));
            }
            // The offset behind the run's last one.
            if number == run.end && run.place_of(*first, number) == Some(at) {
                run.end += 1;
                return Taken::Extended;
            }
        }
        if full {
            return Taken::NoRoom;
        }
        let Some(end) = number.checked_add(1) else {
            return Taken::NoRoom;
        };
        let place = Some(at);
        self.runs.insert(number, Run { end, place });
        Taken::Began
    }

    /// The higher number in front, if there is one.
    fn order(&mut self, number: u64, at: Place) -> Option<SeenNumber> {
        let highest = self
            .highest
            .entry(at.partition)
            .or_insert((number, at.offset));
        let (before, offset) = *highest;
        if at.offset <= offset {
            return None;
        }
        if number >= before {
            *highest = (number, at.offset);
            return None;
        }
        let place = Some(Place { offset, ..at });
        Some(SeenNumber {
            number: before,
            place,
        })
    }

    fn forget_places(&mut self) {
        let mut merged: BTreeMap<u64, Run> = BTreeMap::new();
        for (first, run) in std::mem::take(&mut self.runs) {
            match merged.last_entry() {
                Some(mut last) if last.get().end == first => {
                    *last.get_mut() = Run {
                        end: run.end,
                        place: None,
                    };
                }
                _ => {
                    merged.insert(first, run);
                }
            }
        }
        self.runs = merged;
    }

    /// Adds each hole to the report.
    fn missing(&self, key: (Uuid, u32), trimmed: bool, report: &mut NumberReport) {
        let mut before: Option<SeenNumber> = None;
        let mut next = 0;
        let mut note = |numbers: std::ops::Range<u64>, before, after| {
            report.missing += numbers.end - numbers.start;
            if report.findings.len() < FINDINGS_MAX {
                report.findings.push(NumberFinding::Missing {
                    producer: key.0,
                    partition: key.1,
                    numbers,
                    before,
                    after,
                });
            }
        };
        for (first, run) in &self.runs {
            if *first > next && !(trimmed && before.is_none()) {
                let place = run.place;
                let after = SeenNumber {
                    number: *first,
                    place,
                };
                note(next..*first, before, Some(after));
            }
            let number = run.end - 1;
            let place = run.place_of(*first, number);
            before = Some(SeenNumber { number, place });
            next = run.end;
        }
        if self.expected > next {
            note(next..self.expected, before, None);
        }
    }
}

/// A [`NumberCheck`] as an interceptor: give it to a reader, a consumer or a client. Cheap to clone; clones are one. What is wrong is
/// delivered all the same; ask [`NumberChecker::report`].
#[derive(Debug, Clone, Default)]
pub struct NumberChecker {
    check: Arc<Mutex<NumberCheck>>,
}

impl NumberChecker {
    /// A checker that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// As [`NumberCheck::trimmed`].
    pub fn trimmed(&self, partition: u32) {
        self.lock().trimmed(partition);
    }

    /// As [`NumberCheck::expect`].
    pub fn expect(&self, producer: Uuid, partition: u32, end: u64) {
        self.lock().expect(producer, partition, end);
    }

    /// What there is to say of everything that was delivered so far.
    pub fn report(&self) -> NumberReport {
        self.lock().report()
    }

    fn lock(&self) -> MutexGuard<'_, NumberCheck> {
        self.check.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Interceptor for NumberChecker {
    fn before_deliver(&self, _: &str, record: ReadRecord) -> Result<ReadRecord, Refusal> {
        self.lock().check(&record);
        Ok(record)
    }
}
