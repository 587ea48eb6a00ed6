//! Many readers over the threads of a whole node. Those in flight while their files are compacted away get their entries (storage.md G11,
//! §12 test 17, as far as one node reaches); slow ones by the thousand, over ten thousand ledgers, neither grow the node's memory past
//! what it states nor hold up a producer, and what is too much is told BUSY (§12 test 23).

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hulse_proto::bookie::{Address, BookieCalls, BookieError};
use hulse_proto::id::LedgerId;
use hulse_proto::ledger::LedgerState;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha12Rng;

use super::support::*;
use crate::disk::Disk;
use crate::disk::memory::MemoryDisk;
use crate::{BookieNode, NodeConfig};

const BODY: usize = 4_000;
const PATIENCE: Duration = Duration::from_secs(60);

fn small() -> NodeConfig {
    NodeConfig {
        file_bytes: 256 << 10,
        queue_bytes_max: 128 << 10,
        index_cache_bytes: 256 << 10,
        background_rate: 1 << 30,
        ..config()
    }
}

struct Ground {
    disk: MemoryDisk,
    store: Arc<MapStore>,
    node: Arc<BookieNode>,
}

impl Ground {
    async fn new() -> Self {
        let (disk, store) = (MemoryDisk::default(), Arc::new(MapStore::default()));
        let seams = seams(Arc::new(disk.clone()), store.clone(), 1);
        let node = BookieNode::start(small(), seams).await.unwrap();
        Self { disk, store, node }
    }

    fn to(&self, ledger: u64) -> Address {
        address(&self.node, ledger)
    }

    fn make(&self, ledger: u64) {
        self.store
            .ledger(ledger, LedgerState::Open, self.node.member());
    }

    /// Stores an entry, however often the node is busy.
    async fn store(&self, ledger: u64, number: u64) {
        loop {
            let request = add(self.to(ledger), entry(ledger, number, BODY));
            match self.node.add(request).await {
                Ok(()) => return,
                Err(BookieError::Busy { .. }) => tokio::time::sleep(Duration::from_millis(5)).await,
                Err(error) => panic!("{error}"),
            }
        }
    }

    fn compacted(&self) -> usize {
        let names = self.disk.list().unwrap();
        names.iter().filter(|name| name.ends_with(".cmp")).count()
    }
}

fn address(node: &BookieNode, ledger: u64) -> Address {
    Address {
        cell: CELL,
        incarnation: node.member().incarnation,
        ledger: LedgerId(ledger),
    }
}

/// Reads random runs until told to stop; how many.
async fn read_on(node: Arc<BookieNode>, stop: Arc<AtomicBool>, seed: u64) -> u64 {
    let mut rng = ChaCha12Rng::seed_from_u64(seed);
    let mut reads = 0;
    while !stop.load(Ordering::Relaxed) {
        let ledger = [1, 4][rng.random_range(0..2)];
        let first = rng.random_range(0..120);
        match node
            .read(read(address(&node, ledger), first, first + 3))
            .await
        {
            Ok(found) => {
                for (stored, number) in found.iter().zip(first..) {
                    let right = entry(ledger, number, BODY);
                    assert_eq!(stored.entry.header(), right.header());
                    assert_eq!(stored.entry.body(), right.body());
                }
                reads += 1;
            }
            Err(BookieError::Busy { .. }) => {}
            Err(error) => panic!("entry {first} of ledger {ledger}: {error}"),
        }
        tokio::task::yield_now().await;
    }
    reads
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_in_flight_while_their_files_are_compacted_get_their_entries() {
    let ground = Ground::new().await;
    (1..=5).for_each(|ledger| ground.make(ledger));
    for number in 0..125 {
        for ledger in 1..=4 {
            ground.store(ledger, number).await;
        }
    }
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = (0..4)
        .map(|seed| tokio::spawn(read_on(ground.node.clone(), stop.clone(), seed)))
        .collect();
    let before = ground.disk.used();
    for ledger in [2, 3] {
        ground.node.delete(ground.to(ledger)).await.unwrap();
    }
    // What was written last is compacted once it is old.
    for number in 0..60 {
        ground.store(5, number).await;
    }
    let freed = async {
        while ground.compacted() == 0 || ground.disk.used() > before / 4 * 3 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let freed = tokio::time::timeout(PATIENCE, freed).await;
    stop.store(true, Ordering::Relaxed);
    let mut reads = 0;
    for reader in readers {
        reads += reader.await.unwrap();
    }
    assert!(
        freed.is_ok(),
        "{} of {before} bytes are in use",
        ground.disk.used()
    );
    report(&format!("reads during compaction: {reads} reads"));
    assert!(reads > 20, "{reads}");
    ground.node.shutdown().await.unwrap();
}

/// Readers that ask and do not take their answers.
const SLOW: u64 = 3_000;
const LEDGERS: u64 = 10_000;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thousands_of_slow_readers_over_ten_thousand_ledgers_stay_within_the_budget() {
    let ground = Arc::new(Ground::new().await);
    for ledger in 1..=LEDGERS {
        ground.make(ledger);
    }
    let waves: Vec<u64> = (1..=LEDGERS).collect();
    for wave in waves.chunks(200) {
        let stored = wave.iter().map(|ledger| {
            let request = add(ground.to(*ledger), entry(*ledger, 0, 100));
            ground.node.add(request)
        });
        for answer in futures::future::join_all(stored).await {
            answer.unwrap();
        }
    }
    ground.make(LEDGERS + 1);
    let mut answers = Vec::new();
    for reader in 0..SLOW {
        let ledger = 1 + reader * 7_919 % LEDGERS;
        answers.push((ledger, ground.node.read(read(ground.to(ledger), 0, 1))));
    }
    // A producer is not held up by them.
    let mut slowest = 0;
    for number in 0..50 {
        let begun = tokio::time::Instant::now();
        ground.store(LEDGERS + 1, number).await;
        slowest = slowest.max(begun.elapsed().as_millis());
        assert!(
            ground.node.index_cache_used() <= small().index_cache_bytes,
            "{}",
            ground.node.index_cache_used()
        );
    }
    let (mut served, mut busy, mut bytes) = (0, 0, 0);
    for (ledger, answer) in answers {
        match answer.await {
            Ok(found) => {
                assert_eq!(found.len(), 1);
                assert_eq!(found[0].entry.header(), entry(ledger, 0, 100).header());
                bytes += found[0].entry.header().entry_len() as u64;
                served += 1;
            }
            Err(BookieError::Busy { .. }) => busy += 1,
            Err(error) => panic!("ledger {ledger}: {error}"),
        }
    }
    assert_eq!(served + busy, SLOW, "nothing is dropped");
    assert!(served >= 1_000, "{served} of {SLOW}");
    assert!(ground.node.index_cache_used() <= small().index_cache_bytes);
    report(&format!("slow readers: {SLOW} readers"));
    println!("{served} served with {bytes} bytes, {busy} busy; an add took {slowest} ms at most");
    assert!(slowest < 5_000, "an add took {slowest} ms");
}
