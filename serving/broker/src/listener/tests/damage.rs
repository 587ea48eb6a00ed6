//! What one answer about damage costs, however much there is.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use bookie_metadata::testing::{Call, Fate};
use hulse_proto::id::{EntryId, LedgerId, NodeName};
use tokio::time::Instant;

use crate::listener::{Front, FrontParts};
use crate::testing::MemoryBroker;
use crate::{BrokerConfig, DamageReport, DamagedEntries};

/// A front whose bookie knows of `runs` damaged runs in each of these ledgers, and of so many ranges of bytes.
fn front(
    memory: &MemoryBroker,
    ledgers: std::ops::Range<u64>,
    runs: u64,
    bytes: u64,
) -> Arc<Front> {
    let name = NodeName::new("broker-1").unwrap();
    let broker = memory.broker(BrokerConfig::new(name, "127.0.0.1:7400"));
    let run = |ledger: u64, at: u64| DamagedEntries {
        ledger: LedgerId(ledger),
        first: EntryId(2 * at),
        end: EntryId(2 * at + 1),
        file: 1,
    };
    let entries = ledgers.flat_map(|ledger| (0..runs).map(move |at| run(ledger, at)));
    let report = DamageReport {
        entries: entries.collect(),
        bytes: (0..bytes).map(|at| (1, 2 * at, 2 * at + 1)).collect(),
        more: bytes,
        ..DamageReport::default()
    };
    Front::new(FrontParts {
        config: broker.config,
        partitions: broker.partitions,
        topics: broker.topics,
        metadata: broker.metadata,
        metrics: broker.metrics,
        storage_damage: Some(Arc::new(move || report.clone())),
        order: broker.order,
    })
}

/// Counts what is asked of metadata about ledgers, and gives it this fate.
fn asked(memory: &MemoryBroker, fate: Fate) -> Arc<AtomicUsize> {
    let asked = Arc::new(AtomicUsize::new(0));
    let counted = asked.clone();
    memory.metadata.choose(move |call| match call {
        Call::Get(key) if key.starts_with("ledger") => {
            counted.fetch_add(1, Ordering::Relaxed);
            fate
        }
        _ => Fate::Pass,
    });
    asked
}

#[tokio::test(start_paused = true)]
async fn answer_about_damage_asks_for_each_ledger_once_and_for_no_more_than_it_may() {
    let memory = MemoryBroker::default();
    let few = front(&memory, 1..11, 1_000, 0);
    let name = "t".parse().unwrap();
    let topic = few.topics().resolve(&name, true).await.unwrap();
    let count = asked(&memory, Fate::Pass);
    let answer = few.damage(Some(&topic)).await;
    assert_eq!((answer.damage.len(), answer.more), (0, 0));
    assert_eq!(count.swap(0, Ordering::Relaxed), 10);

    let many = front(&memory, 1..5_001, 3, 1_007);
    let answer = many.damage(Some(&topic)).await;
    assert_eq!(count.load(Ordering::Relaxed), 1_000);
    assert_eq!(
        (answer.damage.len(), answer.more),
        (0, 3 * 4_000 + 7 + 1_007)
    );
    assert_eq!(answer.bytes.len(), 1_000);
}

#[tokio::test(start_paused = true)]
async fn answer_about_damage_does_not_wait_for_silent_metadata() {
    let memory = MemoryBroker::default();
    let front = front(&memory, 1..101, 1, 0);
    let name = "t".parse().unwrap();
    let topic = front.topics().resolve(&name, true).await.unwrap();
    asked(&memory, Fate::Silent(Duration::from_secs(10)));
    let began = Instant::now();
    let all = front.damage(None).await;
    let own = front.damage(Some(&topic)).await;
    assert!(began.elapsed() <= Duration::from_secs(11), "{began:?}");
    assert_eq!((all.damage.len(), all.more), (100, 0));
    assert_eq!(all.damage[99].ledger, 100);
    assert_eq!((own.damage.len(), own.more), (0, 100));
}
