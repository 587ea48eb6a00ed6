//! Ledgers of memory bookies, from the owner's word to the last object, and read all the way.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use bookie_client::testing::Fault;
use bookie_client::{LedgerClient, NewLedger, ReadError};
use bookie_metadata::{MetadataError, MetadataStore as _, Txn};
use bookie_tier::cache::CacheConfig;
use bookie_tier::protocol::{TierEnd, TierLimits};
use bookie_tier::store::{Bucket, Buckets, Fetcher, ReadBack, UploadLimits};
use bookie_tier::{ObjectHands, READ_AHEAD_DEFAULT, TierReads};
use bytes::Bytes;
use hulse_proto::bookie::ReadClass;
use hulse_proto::entry::{EntryClass, EntryKind, Envelope, NewEntry};
use hulse_proto::id::{EntryId, LedgerId, Offset, OwnerEpoch, PartitionId, TopicId};
use hulse_proto::ledger::{LedgerKind, ledger_key};
use hulse_proto::tier::{LocalCopies, Settled, Tier};
use rand::SeedableRng as _;
use rand_chacha::ChaCha12Rng;
use uuid::Uuid;

use super::{TierConfig, TierHands, TierRound, TierTotals, TierWork};
use crate::Pace;
use crate::tests::{CELL, Cell};

const ENTRIES: u64 = 20;

struct Scene {
    cell: Cell,
    directory: tempfile::TempDir,
    round: TierRound,
    fetcher: Fetcher,
}

impl Scene {
    /// Three bookies, a directory as the bucket, no waiting for company.
    async fn new(config: TierConfig) -> Self {
        let cell = Cell::new(3).await;
        let directory = tempfile::tempdir().unwrap();
        let config_of = bookie_tier::store::BucketConfig::Directory(directory.path().to_owned());
        let bucket = Bucket::open("main", "hulse", &config_of).unwrap();
        let buckets = Arc::new(Buckets::new([bucket]));
        let fetcher = Fetcher::new(Arc::clone(&buckets), 8 << 20);
        let hands = TierHands {
            cell: CELL,
            metadata: Arc::new(cell.store.clone()),
            bookies: cell.directory(),
            client: cell.client(),
            objects: ObjectHands {
                buckets,
                fetcher: fetcher.clone(),
                limits: UploadLimits {
                    block_bytes: 2000,
                    ..UploadLimits::default()
                },
                read_back: ReadBack::Whole,
                swept: "main".to_owned(),
            },
            pace: Arc::new(Pace::new(u64::MAX)),
            limits: TierLimits::default(),
            answer_timeout: Duration::from_secs(1),
            metadata_timeout: Duration::from_secs(5),
            rng: Mutex::new(ChaCha12Rng::seed_from_u64(9)),
        };
        let round = TierRound::new(config, hands);
        Self {
            cell,
            directory,
            round,
            fetcher,
        }
    }

    async fn run(&self, now: i64) -> Result<TierTotals, MetadataError> {
        self.round.run(now, Duration::from_secs(60)).await
    }

    /// A closed ledger whose owner says that it may be tiered from then on.
    async fn settled(&self, base: u64, tier_after: i64) -> LedgerId {
        let client = self.cell.client();
        let new = NewLedger {
            kind: LedgerKind::Log,
            partition: PartitionId {
                topic: TopicId(Uuid::from_u128(5)),
                index: 0,
            },
            owner_epoch: OwnerEpoch(1),
            base_offset: Offset(base),
        };
        let writer = client.create(new, |_| Txn::default()).await.unwrap();
        for entry in 0..ENTRIES {
            let envelope = Envelope {
                kind: EntryKind::Data,
                append_time: entry as i64,
                running_max_timestamp: entry as i64,
                batches: Vec::new(),
            };
            let appended = writer.append(NewEntry {
                class: EntryClass::Data,
                first_offset: Offset(base + entry),
                offset_span: 1,
                record_count: 1,
                envelope: envelope.encode(),
                body: vec![Bytes::from(vec![entry as u8; 300])],
            });
            appended.await.unwrap();
        }
        let ledger = writer.ledger();
        client.recover(ledger, Txn::default()).await.unwrap();
        let settled = Settled {
            tier_after,
            ..Settled::default()
        };
        for _ in 0..2 {
            let said = client.settle(ledger, settled.clone(), Txn::default());
            said.await.unwrap();
        }
        ledger
    }

    async fn tier(&self, ledger: LedgerId) -> Tier {
        *self.cell.metadata(ledger).await.tier.unwrap()
    }

    async fn tiered_client(&self) -> LedgerClient {
        let config = CacheConfig::default();
        let reads = TierReads::open(&config, self.fetcher.clone(), READ_AHEAD_DEFAULT);
        self.cell.client().with_tier(reads.await.unwrap())
    }

    /// Every entry, by a reader that knew the ledger as `metadata` say.
    async fn read_all(&self, client: &LedgerClient, ledger: LedgerId) -> Result<(), ReadError> {
        let (metadata, _) = client.describe(ledger).await.unwrap().unwrap();
        let reader = client.reader(ledger, metadata);
        read_all(&reader).await
    }

    fn objects(&self) -> usize {
        fn count(path: &std::path::Path) -> usize {
            let found = std::fs::read_dir(path).unwrap().map(Result::unwrap);
            let counts = found.map(|found| match found.file_type().unwrap().is_dir() {
                true => count(&found.path()),
                false => 1,
            });
            counts.sum()
        }
        count(self.directory.path())
    }

    fn held(&self, ledger: LedgerId) -> usize {
        let bookies = self.cell.bookies.iter();
        let held = bookies.filter(|bookie| bookie.ledgers().held(ledger, EntryId(0)).is_some());
        held.count()
    }
}

async fn read_all(reader: &bookie_client::LedgerReader) -> Result<(), ReadError> {
    let mut next = 0;
    while next < ENTRIES {
        let (first, end) = (EntryId(next), EntryId(ENTRIES));
        for entry in reader.read(first, end, 1500, ReadClass::CatchUp).await? {
            assert_eq!(entry.header().entry, EntryId(next));
            assert_eq!(entry.body(), vec![next as u8; 300]);
            next += 1;
        }
    }
    let heads = reader.read_heads(EntryId(3), EntryId(6), 1 << 20, ReadClass::CatchUp);
    assert_eq!(heads.await?[0].header.entry, EntryId(3));
    Ok(())
}

fn at_once() -> TierConfig {
    TierConfig {
        pack_bytes: 0,
        ..TierConfig::default()
    }
}

#[tokio::test]
async fn settled_ledger_goes_to_object_storage_and_readers_do_not_see_it() {
    let scene = Scene::new(at_once()).await;
    let ledger = scene.settled(0, 500).await;
    let client = scene.tiered_client().await;
    let (before, _) = client.describe(ledger).await.unwrap().unwrap();
    let old_reader = client.reader(ledger, before);
    read_all(&old_reader).await.unwrap();
    // Not before its time.
    let early = scene.run(499).await.unwrap();
    assert_eq!((early.segments, scene.objects()), (0, 0));
    let first = scene.run(500).await.unwrap();
    assert_eq!((first.segments, first.failed, scene.objects()), (1, 0, 1));
    scene.read_all(&client, ledger).await.unwrap();
    assert_eq!(scene.held(ledger), 3);
    let second = scene.run(500).await.unwrap();
    assert_eq!((second.dropped, second.failed), (1, 0));
    assert_eq!(scene.tier(ledger).await.local, LocalCopies::Dropped);
    assert_eq!(scene.held(ledger), 0);
    scene.read_all(&client, ledger).await.unwrap();
    // Who knew the ledger from before finds nothing at bookies, looks again and goes on.
    read_all(&old_reader).await.unwrap();
    // Without the bucket it is said where the ledger is.
    let blind = scene.read_all(&scene.cell.client(), ledger).await;
    assert!(
        matches!(&blind, Err(ReadError::Unavailable { .. })),
        "{blind:?}"
    );
    let third = scene.run(500).await.unwrap();
    assert_eq!(third, TierTotals::default());
}

#[tokio::test]
async fn deleted_ledger_takes_its_object_with_it_and_shared_ones_stay() {
    let scene = Scene::new(TierConfig::default()).await;
    let ledgers = [scene.settled(0, 1).await, scene.settled(20, 1).await];
    // They wait for company, and in the end share an object.
    assert_eq!(scene.run(1000).await.unwrap().segments, 0);
    let late = 3_600_001;
    assert_eq!(scene.run(late).await.unwrap().segments, 1);
    assert_eq!(scene.objects(), 1);
    assert_eq!(scene.run(late).await.unwrap().dropped, 2);
    let client = scene.tiered_client().await;
    for (ledger, left) in ledgers.into_iter().zip([1, 0]) {
        client.delete(ledger, Txn::default()).await.unwrap();
        // The key stays as the reminder until the object is gone.
        assert!(
            scene
                .cell
                .store
                .get(&ledger_key(ledger))
                .await
                .unwrap()
                .is_some()
        );
        let round = scene.run(late).await.unwrap();
        assert_eq!((round.removed, round.failed), (1, 0));
        assert_eq!(
            scene.cell.store.get(&ledger_key(ledger)).await.unwrap(),
            None
        );
        assert_eq!(scene.objects(), left);
        if left > 0 {
            scene.read_all(&client, ledgers[1]).await.unwrap();
        }
    }
}

#[tokio::test]
async fn deletion_meets_an_attempt_that_was_begun() {
    let scene = Scene::new(at_once()).await;
    let ledger = scene.settled(0, 1).await;
    // Its object is there, and whoever made it died before the commit.
    assert_eq!(scene.run(1).await.unwrap().segments, 1);
    let client = scene.cell.client();
    client.delete(ledger, Txn::default()).await.unwrap();
    let attempt = scene
        .round
        .hands()
        .work(&TierWork::Attempt(vec![ledger]))
        .await;
    assert_eq!(attempt, TierEnd::Needless);
    assert_eq!(scene.run(1).await.unwrap().removed, 1);
    assert_eq!((scene.objects(), scene.held(ledger)), (0, 0));
}

#[tokio::test]
async fn sweep_deletes_what_nobody_names_and_nothing_else() {
    let scene = Scene::new(at_once()).await;
    let ledger = scene.settled(0, 1).await;
    assert_eq!(scene.run(1).await.unwrap().segments, 1);
    let segment = scene.tier(ledger).await.segment.unwrap();
    let path = scene.directory.path().join(&segment.attempt.object);
    let zombie = path.with_file_name(Uuid::from_u128(4711).to_string());
    let foreign = scene.directory.path().join("hulse/notes.txt");
    std::fs::write(&zombie, b"late").unwrap();
    std::fs::write(&foreign, b"not ours").unwrap();
    assert_eq!(scene.round.sweep().await.unwrap().swept, 1);
    assert!(path.exists() && foreign.exists() && !zombie.exists());
}

#[tokio::test]
async fn segment_that_rotted_before_copies_were_dropped_is_withdrawn() {
    let scene = Scene::new(at_once()).await;
    let ledger = scene.settled(0, 1).await;
    assert_eq!(scene.run(1).await.unwrap().segments, 1);
    let segment = scene.tier(ledger).await.segment.unwrap();
    let path = scene.directory.path().join(&segment.attempt.object);
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[700] ^= 1;
    std::fs::write(&path, bytes).unwrap();
    let second = scene.run(1).await.unwrap();
    assert_eq!((second.withdrawn, second.dropped), (1, 0));
    assert_eq!(scene.held(ledger), 3);
    // And made anew; the bad object goes.
    for _ in 0..3 {
        scene.run(1).await.unwrap();
    }
    let tier = scene.tier(ledger).await;
    assert_eq!(
        (tier.local, tier.garbage.len(), scene.objects()),
        (LocalCopies::Dropped, 0, 1)
    );
    scene
        .read_all(&scene.tiered_client().await, ledger)
        .await
        .unwrap();
}

#[tokio::test]
async fn copies_stay_while_a_bookie_does_not_answer() {
    let scene = Scene::new(at_once()).await;
    let ledger = scene.settled(0, 1).await;
    assert_eq!(scene.run(1).await.unwrap().segments, 1);
    scene.cell.bookies[1].always(Some(Fault::RequestLost));
    assert_eq!(scene.run(1).await.unwrap().failed, 1);
    // The mark is set: readers go to the segment whether a copy is left or not.
    assert_eq!(scene.tier(ledger).await.local, LocalCopies::Dropping);
    scene
        .read_all(&scene.tiered_client().await, ledger)
        .await
        .unwrap();
}
