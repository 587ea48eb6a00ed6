//! What a check finds.

use std::fmt;
use std::ops::Range;

use uuid::Uuid;

/// Where a record stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Place {
    /// Index of the partition in which it arrived.
    pub partition: u32,
    /// Its offset there.
    pub offset: u64,
}

/// A number that arrived.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenNumber {
    /// The number.
    pub number: u64,
    /// Where; `None` when so much had to be remembered that the place was forgotten.
    pub place: Option<Place>,
}

/// Numbers of a stream in front of the first that arrived, in a partition whose oldest records are gone: they went with those, and
/// whether each of them had ever been stored cannot be told any more.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TrimmedNumbers {
    /// Who sent them.
    pub producer: Uuid,
    /// Where to.
    pub partition: u32,
    /// Which: from 0 to the first that arrived.
    pub numbers: Range<u64>,
}

/// One thing that is not as it was sent.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum NumberFinding {
    /// These numbers did not arrive.
    Missing {
        /// Who sent them.
        producer: Uuid,
        /// Where to.
        partition: u32,
        /// Which.
        numbers: Range<u64>,
        /// The nearest number below that arrived.
        before: Option<SeenNumber>,
        /// The nearest number above that arrived.
        after: Option<SeenNumber>,
    },
    /// A number stands at two places.
    Duplicate {
        /// Who sent it.
        producer: Uuid,
        /// Where to.
        partition: u32,
        /// Where it stood first.
        first: SeenNumber,
        /// Where it stands again.
        again: Place,
    },
    /// A number stands behind a higher one.
    OutOfOrder {
        /// Who sent it.
        producer: Uuid,
        /// Where to.
        partition: u32,
        /// The number.
        number: u64,
        /// Where it stands.
        at: Place,
        /// The highest number in front of it.
        behind: SeenNumber,
    },
    /// A record has a header `hulse-number` that says no number.
    Malformed {
        /// Where it stands.
        at: Place,
    },
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "partition {} offset {}", self.partition, self.offset)
    }
}

impl fmt::Display for SeenNumber {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.place {
            Some(place) => write!(f, "{} at {place}", self.number),
            None => write!(f, "{}", self.number),
        }
    }
}

impl fmt::Display for NumberFinding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Missing {
                producer,
                partition,
                numbers,
                before,
                after,
            } => {
                let nothing = |seen: &Option<SeenNumber>| {
                    seen.map_or_else(|| "nothing".to_owned(), |seen| seen.to_string())
                };
                write!(f, "missing: producer {producer}, partition {partition}, ")?;
                match numbers.end - numbers.start {
                    1 => write!(f, "number {}", numbers.start)?,
                    count => write!(
                        f,
                        "numbers {} to {} ({count})",
                        numbers.start,
                        numbers.end - 1
                    )?,
                }
                write!(f, "; between {} and {}", nothing(before), nothing(after))
            }
            Self::Duplicate {
                producer,
                partition,
                first,
                again,
            } => write!(
                f,
                "duplicate: producer {producer}, partition {partition}, number {first} stands again at {again}"
            ),
            Self::OutOfOrder {
                producer,
                partition,
                number,
                at,
                behind,
            } => write!(
                f,
                "out of order: producer {producer}, partition {partition}, number {number} at {at} stands behind {behind}"
            ),
            Self::Malformed { at } => write!(
                f,
                "malformed: the number of the record at {at} cannot be read"
            ),
        }
    }
}

/// What a check amounts to.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct NumberReport {
    /// Records that were looked at.
    pub records: u64,
    /// Of these, records without a number: nothing can be said of them.
    pub unnumbered: u64,
    /// Of these, records that came again from the same place: deliveries that were repeated, nothing stored twice.
    pub redelivered: u64,
    /// Pairs of producer and partition.
    pub streams: usize,
    /// Numbers that did not arrive.
    pub missing: u64,
    /// Numbers that stand at two places.
    pub duplicates: u64,
    /// Numbers that stand behind a higher one.
    pub out_of_order: u64,
    /// Records whose number cannot be read.
    pub malformed: u64,
    /// The findings, one per range of missing numbers and one per record otherwise; at most 1,000, the counts above are exact.
    pub findings: Vec<NumberFinding>,
    /// Streams whose first numbers a trimmed log does not have any more; at most 1,000.
    pub trimmed: Vec<TrimmedNumbers>,
    /// False: there were so many streams or holes that some were not looked at any more.
    pub complete: bool,
}

impl NumberReport {
    /// Nothing is missing, doubled, displaced or unreadable, and everything was looked at.
    pub fn is_clean(&self) -> bool {
        let wrong = self.missing + self.duplicates + self.out_of_order + self.malformed;
        wrong == 0 && self.complete
    }
}
