//! The header, and the interceptor that writes it.

use std::collections::BTreeMap;
use std::ops::Range;
use std::str::FromStr;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use hulse_proto::batch::Header;
use uuid::Uuid;

use super::super::hooks::{Interceptor, Placed, Produced};

/// Name of the header. Its value is `producer/partition/number` in text: a UUID and two decimal numbers.
pub const NUMBER_HEADER: &str = "hulse-number";
/// Ranges of failed numbers that a stamper remembers; later ones are only counted.
const FAILED_RANGES_MAX: usize = 10_000;

/// What the header says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StampedNumber {
    /// Drawn anew for each producer.
    pub producer: Uuid,
    /// The partition that the record was sent to.
    pub partition: u32,
    /// From 0, dense per producer and partition.
    pub number: u64,
}

impl StampedNumber {
    /// The header.
    pub fn header(&self) -> Header {
        let value = format!("{}/{}/{}", self.producer, self.partition, self.number);
        Header {
            key: Bytes::from_static(NUMBER_HEADER.as_bytes()),
            value: Some(value.into()),
        }
    }

    /// Reads it from a record's headers: the last one, should a record that was stamped have been sent on and stamped again.
    /// `None`: there is none. `Some(None)`: it says no number.
    pub fn read(headers: &[Header]) -> Option<Option<Self>> {
        let mut stamps = headers.iter().rev();
        let stamp = stamps.find(|header| header.key == NUMBER_HEADER.as_bytes())?;
        let value = stamp.value.as_deref().unwrap_or_default();
        Some(std::str::from_utf8(value).ok().and_then(parse))
    }
}

fn parse(text: &str) -> Option<StampedNumber> {
    let mut parts = text.split('/');
    let producer = Uuid::from_str(parts.next()?).ok()?;
    let partition = parts.next()?.parse().ok()?;
    let number = parts.next()?.parse().ok()?;
    parts.next().is_none().then_some(StampedNumber {
        producer,
        partition,
        number,
    })
}

/// Stamps each record with its number. One may serve any number of producers. Cheap to clone; clones are one.
#[derive(Debug, Clone, Default)]
pub struct NumberStamper {
    failed: Arc<Mutex<Failed>>,
}

#[derive(Debug, Default)]
struct Failed {
    ranges: BTreeMap<(Uuid, u32), Vec<Range<u64>>>,
    count: usize,
    records: u64,
}

impl NumberStamper {
    /// A stamper.
    pub fn new() -> Self {
        Self::default()
    }

    /// Numbers whose records failed, by producer and partition, in the order in which they failed: these may be missing with right. The
    /// first 10,000 ranges are kept.
    pub fn failed(&self) -> BTreeMap<(Uuid, u32), Vec<Range<u64>>> {
        self.lock().ranges.clone()
    }

    /// How many records failed.
    pub fn failed_records(&self) -> u64 {
        self.lock().records
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Failed> {
        self.failed.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Interceptor for NumberStamper {
    fn on_place(&self, placed: &Placed<'_>) -> Option<Header> {
        let stamp = StampedNumber {
            producer: placed.producer,
            partition: placed.partition,
            number: placed.number,
        };
        Some(stamp.header())
    }

    fn on_ack(&self, produced: &Produced<'_>) {
        if produced.outcome.is_ok() {
            return;
        }
        let mut failed = self.lock();
        failed.records += u64::from(produced.records);
        if failed.count < FAILED_RANGES_MAX {
            failed.count += 1;
            let end = produced.number + u64::from(produced.records);
            let key = (produced.producer, produced.partition);
            let ranges = failed.ranges.entry(key).or_default();
            ranges.push(produced.number..end);
        }
    }
}
