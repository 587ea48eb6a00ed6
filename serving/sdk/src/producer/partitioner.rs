//! Which partition a record goes to: explicit, by a function of the user's, by Java's murmur2 of the key, or sticky.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};

use rand::Rng;
use rand_chacha::ChaCha8Rng;

use super::record::Record;
use crate::error::Error;

/// Bytes of records without a key that go to one partition before another is drawn: enough for good batches, little enough to
/// spread evenly.
const STICKY_BYTES: usize = 64 << 10;

type Function = dyn Fn(&Record, u32) -> u32 + Send + Sync;

/// How records without an explicit partition are spread.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Partitioner {
    /// Keyed records by [`murmur2`] as the Java client does, so that both agree; others stick to one partition for 64 KiB, then move
    /// to another.
    #[default]
    Keyed,
    /// A function of record and number of partitions. An answer outside the topic refuses the record.
    Function(Arc<Function>),
}

impl Partitioner {
    /// Wraps a function.
    pub fn function(function: impl Fn(&Record, u32) -> u32 + Send + Sync + 'static) -> Self {
        Self::Function(Arc::new(function))
    }
}

impl fmt::Debug for Partitioner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Keyed => "Keyed",
            Self::Function(_) => "Function",
        })
    }
}

/// The partition of a key among `partitions`: what Kafka's Java client computes.
pub fn partition_of_key(key: &[u8], partitions: u32) -> u32 {
    (murmur2(key) & 0x7fff_ffff) % partitions.max(1)
}

/// Murmur2 with Kafka's seed, 32 bits.
pub fn murmur2(bytes: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const M: u32 = 0x5bd1_e995;
    let mut hash = SEED ^ bytes.len() as u32;
    let mut words = bytes.chunks_exact(4);
    for word in &mut words {
        let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        let mixed = word.wrapping_mul(M);
        let mixed = (mixed ^ (mixed >> 24)).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ mixed;
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        for (at, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * at);
        }
        hash = hash.wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}

/// A partitioner at work for one producer.
pub(super) struct Spreader {
    partitioner: Partitioner,
    partitions: u32,
    sticky: Mutex<Sticky>,
}

struct Sticky {
    partition: u32,
    bytes: usize,
    rng: ChaCha8Rng,
}

impl Spreader {
    pub(super) fn new(partitioner: Partitioner, partitions: u32, mut rng: ChaCha8Rng) -> Self {
        let partition = rng.random_range(0..partitions);
        Self {
            partitioner,
            partitions,
            sticky: Mutex::new(Sticky {
                partition,
                bytes: 0,
                rng,
            }),
        }
    }

    /// The partition of `record`, which takes `cost` bytes.
    pub(super) fn pick(&self, record: &Record, cost: usize) -> Result<u32, Error> {
        let picked = match (record.partition, &self.partitioner, &record.key) {
            (Some(partition), ..) => partition,
            (None, Partitioner::Function(function), _) => function(record, self.partitions),
            (None, Partitioner::Keyed, Some(key)) => {
                return Ok(partition_of_key(key, self.partitions));
            }
            (None, Partitioner::Keyed, None) => return Ok(self.stick(cost)),
        };
        if picked >= self.partitions {
            return Err(Error::invalid(format!(
                "partition {picked} does not exist; the topic has {} (0 to {})",
                self.partitions,
                self.partitions - 1
            )));
        }
        Ok(picked)
    }

    fn stick(&self, cost: usize) -> u32 {
        let mut sticky = self.sticky.lock().unwrap_or_else(PoisonError::into_inner);
        if sticky.bytes >= STICKY_BYTES && self.partitions > 1 {
            // Any other one, all equally likely.
            let step = sticky.rng.random_range(1..self.partitions);
            sticky.partition = (sticky.partition + step) % self.partitions;
            sticky.bytes = 0;
        }
        sticky.bytes += cost;
        sticky.partition
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    #[test]
    fn murmur2_equals_java() {
        // The vectors of the Java client's own test.
        let vectors: [(&[u8], i32); 7] = [
            (b"21", -973_932_308),
            (b"foobar", -790_332_482),
            (b"a-little-bit-long-string", -985_981_536),
            (b"a-little-bit-longer-string", -1_486_304_829),
            (
                b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8",
                -58_897_971,
            ),
            (b"abc", 479_470_107),
            (b"", 275_646_681),
        ];
        for (bytes, hash) in vectors {
            assert_eq!(murmur2(bytes) as i32, hash, "{bytes:?}");
        }
        assert_eq!(
            partition_of_key(b"21", 8),
            (-973_932_308_i32 as u32 & 0x7fff_ffff) % 8
        );
    }

    #[test]
    fn records_without_a_key_stick_and_spread() {
        let spreader = Spreader::new(Partitioner::Keyed, 4, ChaCha8Rng::seed_from_u64(1));
        let record = Record::new("x");
        let mut counts = [0_u32; 4];
        let mut changes = 0;
        let mut last = None;
        for _ in 0..64 * 100 {
            let partition = spreader.pick(&record, 1024).unwrap();
            counts[partition as usize] += 1;
            changes += u32::from(last.is_some_and(|last| last != partition));
            last = Some(partition);
        }
        assert_eq!(changes, 99);
        assert!(counts.iter().all(|count| *count > 800), "{counts:?}");
    }

    #[test]
    fn partition_outside_the_topic_is_refused() {
        let rng = || ChaCha8Rng::seed_from_u64(1);
        let spreader = Spreader::new(Partitioner::Keyed, 4, rng());
        assert_eq!(spreader.pick(&Record::new("x").partition(3), 1).unwrap(), 3);
        assert!(spreader.pick(&Record::new("x").partition(4), 1).is_err());
        let spreader = Spreader::new(Partitioner::function(|_, count| count), 4, rng());
        assert!(spreader.pick(&Record::new("x"), 1).is_err());
    }
}
