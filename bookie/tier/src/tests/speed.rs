//! Uploads and reads beside the plain requests that they are made of, on the same directory, interleaved: floors far below the aim of
//! 80 %, so that only a real mistake falls through. In a release build the printed shares are the figures themselves.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures::stream::{self, StreamExt as _};
use hulse_proto::id::{CellId, EntryId, LedgerId, Offset, SegmentId};
use hulse_proto::tier::{Attempt, Segment};
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{ObjectStore, ObjectStoreExt as _, PutPayload};
use uuid::Uuid;

use crate::cache::CacheConfig;
use crate::name::ObjectName;
use crate::protocol::UploadOrder;
use crate::store::{Bucket, Buckets, Fetcher, UploadLimits, upload};
use crate::testing::{ClosedLedger, MemorySource, closed_ledger};
use crate::{READ_AHEAD_DEFAULT, TierReads};

const ROUNDS: u128 = 3;
/// 96 MiB.
const BODIES: [usize; 384] = [256 << 10; 384];
const RANGE: u64 = 1 << 20;

/// The shares of the plain requests' speed, at least.
const FLOOR: f64 = 0.2;

struct Scene {
    store: Arc<LocalFileSystem>,
    buckets: Arc<Buckets>,
    ledger: ClosedLedger,
}

impl Scene {
    fn order(&self, number: u128) -> UploadOrder {
        let name = ObjectName {
            cell: CellId(Uuid::from_u128(5)),
            partition: self.ledger.metadata.partition,
            ledgers: vec![self.ledger.ledger],
            segment: SegmentId(Uuid::from_u128(number)),
        };
        UploadOrder {
            attempt: Attempt {
                id: name.segment,
                bucket: "main".to_owned(),
                object: name.to_name(""),
            },
            ledgers: vec![(self.ledger.ledger, self.ledger.metadata.clone())],
        }
    }

    async fn upload(&self, number: u128) -> (Segment, Duration) {
        let order = self.order(number);
        let source = MemorySource {
            ledgers: vec![self.ledger.clone()],
            ..MemorySource::default()
        };
        let began = Instant::now();
        let sent = upload(&self.buckets, &order, &source, UploadLimits::default()).await;
        let took = began.elapsed();
        let sent = sent.unwrap();
        let row = sent.written.directory.rows[0];
        let segment = Segment {
            attempt: order.attempt,
            object_bytes: sent.written.object_bytes,
            etag: sent.etag,
            first_byte: row.first_byte,
            index_at: row.index_at,
            index_bytes: row.index_bytes,
            index_crc: row.index_crc,
        };
        (segment, took)
    }

    /// The same bytes in the same parts, as many at once.
    async fn plain_put(&self, bytes: &Bytes, number: u128) -> Duration {
        let limits = UploadLimits::default();
        let path = Path::from(format!("plain-{number}"));
        let began = Instant::now();
        let mut multipart = self.store.put_multipart(&path).await.unwrap();
        let starts = (0..bytes.len()).step_by(limits.part_bytes);
        let parts: Vec<_> = starts
            .map(|at| {
                let end = bytes.len().min(at + limits.part_bytes);
                multipart.put_part(PutPayload::from_bytes(bytes.slice(at..end)))
            })
            .collect();
        let mut sent =
            stream::iter(parts.into_iter().map(tokio::spawn)).buffer_unordered(limits.parts_flying);
        while let Some(part) = sent.next().await {
            part.unwrap().unwrap();
        }
        multipart.complete().await.unwrap();
        began.elapsed()
    }

    async fn read(&self, segment: &Segment) -> Duration {
        let fetcher = Fetcher::new(Arc::clone(&self.buckets), 16 << 20);
        let config = CacheConfig {
            memory_bytes: 32 << 20,
            ..CacheConfig::default()
        };
        let reads = TierReads::open(&config, fetcher, READ_AHEAD_DEFAULT).await;
        let reader = reads.unwrap().reader(self.ledger.ledger, segment.clone());
        let (end, mut next) = (BODIES.len() as u64, 0);
        let began = Instant::now();
        while next < end {
            let read = reader.read(EntryId(next), EntryId(end), RANGE as usize);
            next += read.await.unwrap().len() as u64;
        }
        began.elapsed()
    }

    /// The same ranges, as many at once as are read ahead.
    async fn plain_get(&self, segment: &Segment) -> Duration {
        let path = Path::parse(&segment.attempt.object).unwrap();
        let began = Instant::now();
        let starts = (0..segment.index_at).step_by(RANGE as usize);
        let ranges = starts.map(|at| {
            let (store, path) = (Arc::clone(&self.store), path.clone());
            let range = at..segment.index_at.min(at + RANGE);
            tokio::spawn(async move { store.get_range(&path, range).await })
        });
        let mut read = stream::iter(ranges).buffered(READ_AHEAD_DEFAULT + 1);
        while let Some(bytes) = read.next().await {
            bytes.unwrap().unwrap();
        }
        began.elapsed()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn uploads_and_reads_keep_a_share_of_what_plain_requests_reach() {
    let directory = tempfile::tempdir().unwrap();
    let store = Arc::new(LocalFileSystem::new_with_prefix(directory.path()).unwrap());
    let clone: Arc<dyn ObjectStore> = Arc::clone(&store) as _;
    let scene = Scene {
        buckets: Arc::new(Buckets::new([Bucket::new("main", "", clone).unwrap()])),
        store,
        ledger: closed_ledger(LedgerId(3), Offset(0), &BODIES),
    };
    let mut best = [Duration::MAX; 4];
    for number in 0..ROUNDS {
        let (segment, uploaded) = scene.upload(number).await;
        let path = Path::parse(&segment.attempt.object).unwrap();
        let bytes = scene.store.get(&path).await.unwrap().bytes().await.unwrap();
        let took = [
            uploaded,
            scene.plain_put(&bytes, number).await,
            scene.read(&segment).await,
            scene.plain_get(&segment).await,
        ];
        for (best, took) in best.iter_mut().zip(took) {
            *best = (*best).min(took);
        }
    }
    let share = |ours: usize, plain: usize| best[plain].as_secs_f64() / best[ours].as_secs_f64();
    let (up, down) = (share(0, 1), share(2, 3));
    println!("upload {up:.2} of plain parallel PUT, read {down:.2} of plain ranged GET: {best:?}");
    assert!(up > FLOOR && down > FLOOR, "upload {up:.2}, read {down:.2}");
}
