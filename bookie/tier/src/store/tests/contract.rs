//! What is needed of a store, and that ours is right over it.

use std::sync::Arc;

use bytes::Bytes;
use futures::TryStreamExt as _;
use hulse_proto::entry::Entry;
use hulse_proto::id::{CellId, LedgerId, Offset, SegmentId};
use hulse_proto::tier::{Attempt, Segment};
use object_store::path::Path;
use object_store::{Error, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions, PutPayload};
use uuid::Uuid;

use crate::cache::CacheConfig;
use crate::name::ObjectName;
use crate::protocol::{Deletion, ObjectError, UploadError, UploadOrder, Uploaded};
use crate::reader::TierReads;
use crate::segment::SegmentError;
use crate::store::{Bucket, Buckets, Fetcher, ReadBack, UploadLimits, read_back, upload, verify};
use crate::testing::{ClosedLedger, MemorySource, closed_ledger};

/// Small parts, so that little bytes make many; S3 takes none below 5 MiB.
pub(super) const LIMITS: UploadLimits = UploadLimits {
    block_bytes: 1 << 20,
    part_bytes: 5 << 20,
    parts_flying: 2,
    single_bytes: 1 << 20,
    read_bytes: 2 << 20,
};

pub(super) struct Scene {
    pub(super) buckets: Arc<Buckets>,
    pub(super) fetcher: Fetcher,
    source: MemorySource,
    segments: u128,
}

impl Scene {
    pub(super) fn new(store: Arc<dyn ObjectStore>, ledgers: Vec<ClosedLedger>) -> Self {
        let bucket = Bucket::new("main", "hulse/test", store).unwrap();
        let buckets = Arc::new(Buckets::new([bucket]));
        let fetcher = Fetcher::new(Arc::clone(&buckets), 8 << 20);
        let source = MemorySource {
            ledgers,
            ..MemorySource::default()
        };
        Self {
            buckets,
            fetcher,
            source,
            segments: 0,
        }
    }

    pub(super) fn order(&mut self) -> UploadOrder {
        let ledgers = self.source.ledgers.iter();
        let ledgers = ledgers.map(|found| (found.ledger, found.metadata.clone()));
        let ledgers: Vec<_> = ledgers.collect();
        self.segments += 1;
        let name = ObjectName {
            cell: CellId(Uuid::from_u128(5)),
            partition: ledgers[0].1.partition,
            ledgers: ledgers.iter().map(|(ledger, _)| *ledger).collect(),
            segment: SegmentId(Uuid::from_u128(self.segments)),
        };
        let attempt = Attempt {
            id: name.segment,
            bucket: "main".to_owned(),
            object: name.to_name("hulse/test"),
        };
        UploadOrder { attempt, ledgers }
    }

    pub(super) async fn upload(&self, order: &UploadOrder) -> Result<Box<Uploaded>, UploadError> {
        upload(&self.buckets, order, &self.source, LIMITS).await
    }

    async fn names(&self) -> Vec<String> {
        let listed = self.buckets.get("main").unwrap().list(None).await.unwrap();
        listed.into_iter().map(|(name, _)| name).collect()
    }
}

pub(super) fn segment_of(order: &UploadOrder, uploaded: &Uploaded, ledger: LedgerId) -> Segment {
    let row = uploaded.written.directory.row(ledger).unwrap();
    Segment {
        attempt: order.attempt.clone(),
        object_bytes: uploaded.written.object_bytes,
        etag: uploaded.etag.clone(),
        first_byte: row.first_byte,
        index_at: row.index_at,
        index_bytes: row.index_bytes,
        index_crc: row.index_crc,
    }
}

fn small() -> Vec<ClosedLedger> {
    vec![
        closed_ledger(LedgerId(3), Offset(0), &[100; 30]),
        closed_ledger(LedgerId(4), Offset(90), &[2000; 5]),
    ]
}

fn large() -> Vec<ClosedLedger> {
    vec![closed_ledger(LedgerId(3), Offset(0), &[300_000; 40])]
}

/// Every promise, over one store.
pub(super) async fn all(store: Arc<dyn ObjectStore>) {
    conditional_puts_have_one_winner(&store).await;
    what_was_uploaded_is_read_back(&store, small()).await;
    what_was_uploaded_is_read_back(&store, large()).await;
    missing_entry_leaves_no_object(&store, small()).await;
    missing_entry_leaves_no_object(&store, large()).await;
    damage_is_found(&store).await;
    let bucket = Bucket::new("main", "hulse/test", store).unwrap();
    listing_goes_on_where_it_stopped(&bucket).await;
}

async fn conditional_puts_have_one_winner(store: &Arc<dyn ObjectStore>) {
    let path = Path::from("conditional");
    let put = |number: u8| {
        let (store, path) = (Arc::clone(store), path.clone());
        async move {
            let payload = PutPayload::from_bytes(Bytes::from(vec![number; 10]));
            let options = PutOptions::from(PutMode::Create);
            store.put_opts(&path, payload, options).await
        }
    };
    let puts = futures::future::join_all((0..8).map(put)).await;
    assert_eq!(puts.iter().filter(|put| put.is_ok()).count(), 1);
    let lost = |put: &object_store::Result<_>| matches!(put, Err(Error::AlreadyExists { .. }));
    assert_eq!(puts.iter().filter(|put| lost(put)).count(), 7);
    store.delete(&path).await.unwrap();
}

async fn what_was_uploaded_is_read_back(store: &Arc<dyn ObjectStore>, ledgers: Vec<ClosedLedger>) {
    let mut scene = Scene::new(Arc::clone(store), ledgers);
    let order = scene.order();
    let uploaded = scene.upload(&order).await.unwrap();
    verify(&scene.fetcher, &order.attempt, &uploaded)
        .await
        .unwrap();
    let config = CacheConfig::default();
    let reads = TierReads::open(&config, scene.fetcher.clone(), 2)
        .await
        .unwrap();
    for ledger in &scene.source.ledgers {
        let segment = segment_of(&order, &uploaded, ledger.ledger);
        for how in [ReadBack::Whole, ReadBack::Sample(2)] {
            let read = read_back(&scene.fetcher, ledger.ledger, &segment, how).await;
            assert_eq!(read, Ok(()));
        }
        let reader = reads.reader(ledger.ledger, segment);
        let end = ledger.metadata.closed.unwrap().end;
        let mut found: Vec<Entry> = Vec::new();
        while let Some(next) = (found.len() as u64..end.0).next() {
            let read = reader
                .read(hulse_proto::id::EntryId(next), end, 700_000)
                .await;
            found.extend(read.unwrap());
        }
        let key = |entry: &Entry| (*entry.header(), entry.envelope(), entry.body());
        assert!(found.iter().map(key).eq(ledger.entries.iter().map(key)));
    }
    let attempts = vec![order.attempt.clone()];
    for _ in 0..2 {
        // The second time there is nothing, and that is the same.
        let deletion = Deletion {
            attempts: attempts.clone(),
        };
        scene.buckets.delete(&deletion).await.unwrap();
    }
    let gone = verify(&scene.fetcher, &order.attempt, &uploaded).await;
    let object = order.attempt.object;
    assert_eq!(gone, Err(ObjectError::Absent { object }));
}

async fn missing_entry_leaves_no_object(store: &Arc<dyn ObjectStore>, ledgers: Vec<ClosedLedger>) {
    let mut scene = Scene::new(Arc::clone(store), ledgers);
    let order = scene.order();
    let ledger = scene.source.ledgers[0].clone();
    // The last one: most of a large segment was sent by then.
    let last = ledger.entries.last().unwrap().header().entry;
    scene.source.lacking = Some((ledger.ledger, last));
    let error = scene.upload(&order).await.unwrap_err();
    assert!(matches!(error, UploadError::Source { .. }), "{error}");
    assert_eq!(scene.names().await, Vec::<String>::new());
    // The ledger that metadata describe is another one.
    scene.source.lacking = None;
    let mut other = scene.order();
    other.ledgers[0].1.closed.as_mut().unwrap().digest ^= 1;
    let error = scene.upload(&other).await.unwrap_err();
    let totals = SegmentError::Totals {
        ledger: ledger.ledger,
    };
    assert_eq!(error, UploadError::Content(totals));
    assert_eq!(scene.names().await, Vec::<String>::new());
}

async fn damage_is_found(store: &Arc<dyn ObjectStore>) {
    let mut scene = Scene::new(Arc::clone(store), small());
    let order = scene.order();
    let uploaded = scene.upload(&order).await.unwrap();
    let path = Path::parse(&order.attempt.object).unwrap();
    let whole = store.get(&path).await.unwrap().bytes().await.unwrap();
    let ledger = LedgerId(4);
    let segment = segment_of(&order, &uploaded, ledger);
    let put = async |bytes: Vec<u8>| store.put(&path, bytes.into()).await.unwrap();
    // Cut off, and as long as before with another byte in a block, in an index, in the trailer.
    put(whole[..whole.len() - 1].to_vec()).await;
    let found = verify(&scene.fetcher, &order.attempt, &uploaded).await;
    assert!(
        matches!(found, Err(ObjectError::Length { .. })),
        "{found:?}"
    );
    let uploaded = Uploaded {
        etag: String::new(),
        ..*uploaded
    };
    let flipped = |at: usize| {
        let mut bytes = whole.to_vec();
        bytes[at] ^= 1;
        bytes
    };
    for (at, verified) in [
        (segment.first_byte as usize + 500, true),
        (segment.index_at as usize + 30, false),
        (whole.len() - 20, false),
    ] {
        put(flipped(at)).await;
        let found = verify(&scene.fetcher, &order.attempt, &uploaded).await;
        assert_eq!(found.is_ok(), verified, "byte {at}: {found:?}");
        assert!(found.err().is_none_or(|error| error.is_proof()));
    }
    put(flipped(segment.first_byte as usize + 500)).await;
    let read = read_back(&scene.fetcher, ledger, &segment, ReadBack::Whole).await;
    assert!(matches!(read, Err(ObjectError::Damaged { .. })), "{read:?}");
    put(whole[..segment.first_byte as usize + 10].to_vec()).await;
    let read = read_back(&scene.fetcher, ledger, &segment, ReadBack::Whole).await;
    assert!(matches!(read, Err(ObjectError::Length { .. })), "{read:?}");
    store.delete(&path).await.unwrap();
}

/// `bucket` has the prefix `hulse/test`.
pub(super) async fn listing_goes_on_where_it_stopped(bucket: &Bucket) {
    let store = bucket.store();
    let names = (0..1203_u32).map(|number| format!("hulse/test/many/{number:05}"));
    let names: Vec<String> = names.collect();
    let paths = names.iter().map(|name| Path::parse(name).unwrap());
    for path in paths.clone() {
        store
            .put(&path, PutPayload::from_static(b"x"))
            .await
            .unwrap();
    }
    let elsewhere = Path::from("hulse/testament");
    store
        .put(&elsewhere, PutPayload::from_static(b"x"))
        .await
        .unwrap();
    let (mut found, mut after) = (Vec::new(), None::<String>);
    loop {
        let page = bucket.list(after.as_deref()).await.unwrap();
        let Some((last, _)) = page.last() else { break };
        after = Some(last.clone());
        found.extend(page.into_iter().map(|(name, _)| name));
    }
    assert_eq!(found, names);
    let all = futures::stream::iter(paths.map(Ok).collect::<Vec<_>>());
    let deleted = store.delete_stream(Box::pin(all));
    assert_eq!(
        deleted.try_collect::<Vec<_>>().await.unwrap().len(),
        names.len()
    );
    store.delete(&elsewhere).await.unwrap();
}
