//! Which partition a record goes to: explicit, by a function of the user's, by Java's murmur2 of the key, or sticky.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use rand::Rng;
use rand_chacha::ChaCha8Rng;
use tokio::time::Instant;

use super::record::Record;
use crate::error::Error;

/// Records without a key go to one partition until they fill a batch: under load batches are as large as with one partition. A producer
/// that fills none within this time …
const STICKY_TIME: Duration = Duration::from_millis(10);
/// … goes on to another partition after so many bytes: enough for good batches, little enough to spread evenly.
const STICKY_BYTES: usize = 64 << 10;

type Function = dyn Fn(&Record, u32) -> u32 + Send + Sync;

/// How records without an explicit partition are spread.
#[derive(Clone, Default)]
#[non_exhaustive]
pub enum Partitioner {
    /// Keyed records by [`murmur2`] as the Java client does, so that both agree; others stick to one partition for as many bytes as a
    /// batch takes, or for 64 KiB when those took longer than 10 ms, then move to another.
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
    /// What a batch takes.
    batch_bytes: usize,
    sticky: Mutex<Sticky>,
}

struct Sticky {
    partition: u32,
    bytes: usize,
    /// At so many bytes another one may be due.
    look_at: usize,
    /// When it was drawn.
    since: Instant,
    rng: ChaCha8Rng,
}

impl Spreader {
    pub(super) fn new(
        partitioner: Partitioner,
        partitions: u32,
        batch_bytes: usize,
        mut rng: ChaCha8Rng,
    ) -> Self {
        let partition = rng.random_range(0..partitions);
        Self {
            partitioner,
            partitions,
            batch_bytes,
            sticky: Mutex::new(Sticky {
                partition,
                bytes: 0,
                look_at: STICKY_BYTES.min(batch_bytes),
                since: Instant::now(),
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
        if sticky.bytes >= sticky.look_at && self.partitions > 1 {
            self.look(&mut sticky);
        }
        sticky.bytes += cost;
        sticky.partition
    }

    /// Goes on to another partition if it is time.
    fn look(&self, sticky: &mut Sticky) {
        let now = Instant::now();
        if sticky.bytes < self.batch_bytes && now - sticky.since < STICKY_TIME {
            sticky.look_at = (sticky.bytes + STICKY_BYTES).min(self.batch_bytes);
            return;
        }
        // Any other one, all equally likely.
        let step = sticky.rng.random_range(1..self.partitions);
        sticky.partition = (sticky.partition + step) % self.partitions;
        sticky.bytes = 0;
        sticky.look_at = STICKY_BYTES.min(self.batch_bytes);
        sticky.since = now;
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

    /// Sends records of 1 KiB: how many went to each of four partitions, and how often the partition changed.
    async fn spread(batch_bytes: usize, records: u32, pause: Duration) -> ([u32; 4], u32) {
        let rng = ChaCha8Rng::seed_from_u64(1);
        let spreader = Spreader::new(Partitioner::Keyed, 4, batch_bytes, rng);
        let record = Record::new("x");
        let mut counts = [0_u32; 4];
        let mut changes = 0;
        let mut last = None;
        for _ in 0..records {
            let partition = spreader.pick(&record, 1024).unwrap();
            counts[partition as usize] += 1;
            changes += u32::from(last.is_some_and(|last| last != partition));
            last = Some(partition);
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
        }
        (counts, changes)
    }

    #[tokio::test(start_paused = true)]
    async fn records_without_a_key_stick_for_a_batch_under_load() {
        let (counts, changes) = spread(256 << 10, 256 * 100, Duration::ZERO).await;
        assert_eq!(changes, 99);
        assert!(counts.iter().all(|count| *count > 3_200), "{counts:?}");
        let (_, changes) = spread(16 << 10, 16 * 100, Duration::ZERO).await;
        assert_eq!(changes, 99, "batches are smaller");
    }

    #[tokio::test(start_paused = true)]
    async fn records_without_a_key_move_on_early_when_they_come_slowly() {
        let (counts, changes) = spread(1 << 20, 64 * 100, Duration::from_millis(1)).await;
        assert_eq!(changes, 99);
        assert!(counts.iter().all(|count| *count > 800), "{counts:?}");
    }

    #[test]
    fn partition_outside_the_topic_is_refused() {
        let rng = || ChaCha8Rng::seed_from_u64(1);
        let spreader = Spreader::new(Partitioner::Keyed, 4, 1 << 20, rng());
        assert_eq!(spreader.pick(&Record::new("x").partition(3), 1).unwrap(), 3);
        assert!(spreader.pick(&Record::new("x").partition(4), 1).is_err());
        let spreader = Spreader::new(Partitioner::function(|_, count| count), 4, 1 << 20, rng());
        assert!(spreader.pick(&Record::new("x"), 1).is_err());
    }
}
