//! A ledger that is in a store already.

use std::sync::Arc;

use hulse_proto::id::{CellId, LedgerId, SegmentId};
use hulse_proto::tier::{Attempt, Segment};
use object_store::ObjectStore;
use uuid::Uuid;

use super::ledger::ClosedLedger;
use super::source::MemorySource;
use crate::name::ObjectName;
use crate::protocol::UploadOrder;
use crate::store::{Bucket, Buckets, UploadLimits, upload};

/// Ledgers in one segment of the bucket `main`, below `hulse`.
#[derive(Debug, Clone)]
pub struct StoredLedgers {
    /// The bucket.
    pub buckets: Arc<Buckets>,
    /// Each with its segment.
    pub ledgers: Vec<(ClosedLedger, Segment)>,
}

/// Uploads ledgers into one segment, with blocks of this length.
///
/// # Panics
/// If the store does not take it.
pub async fn stored(
    store: Arc<dyn ObjectStore>,
    ledgers: Vec<ClosedLedger>,
    block_bytes: usize,
) -> StoredLedgers {
    let bucket = Bucket::new("main", "hulse", store).expect("plain names");
    let buckets = Arc::new(Buckets::new([bucket]));
    let name = ObjectName {
        cell: CellId(Uuid::from_u128(5)),
        partition: ledgers[0].metadata.partition,
        ledgers: ledgers.iter().map(|found| found.ledger).collect(),
        segment: SegmentId(Uuid::from_u128(u128::from(ledgers[0].ledger.0) + 1000)),
    };
    let order = UploadOrder {
        attempt: Attempt {
            id: name.segment,
            bucket: "main".to_owned(),
            object: name.to_name("hulse"),
        },
        ledgers: ledgers
            .iter()
            .map(|found| (found.ledger, found.metadata.clone()))
            .collect(),
    };
    let source = MemorySource {
        ledgers: ledgers.clone(),
        ..MemorySource::default()
    };
    let limits = UploadLimits {
        block_bytes,
        ..UploadLimits::default()
    };
    let uploaded = upload(&buckets, &order, &source, limits).await;
    let uploaded = uploaded.expect("the store takes it");
    let segment = |ledger: LedgerId| {
        let row = uploaded.written.directory.row(ledger);
        let row = row.expect("it was uploaded");
        Segment {
            attempt: order.attempt.clone(),
            object_bytes: uploaded.written.object_bytes,
            etag: uploaded.etag.clone(),
            first_byte: row.first_byte,
            index_at: row.index_at,
            index_bytes: row.index_bytes,
            index_crc: row.index_crc,
        }
    };
    let ledgers = ledgers.into_iter().map(|found| {
        let segment = segment(found.ledger);
        (found, segment)
    });
    StoredLedgers {
        buckets,
        ledgers: ledgers.collect(),
    }
}
