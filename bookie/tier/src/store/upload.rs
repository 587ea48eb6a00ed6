//! Makes an object out of ledgers: reads them in order, checks them, and sends parts as they fill (storage.md O3).
//!
//! # Invariants
//! 1. Nothing but a whole segment becomes visible: a small one is sent at once, of a large one the last request makes it an object.
//! 2. At most `parts_flying` parts and what is read at once are held.

use bytes::Bytes;
use futures::future::BoxFuture;
use hulse_proto::entry::Entry;
use hulse_proto::id::{EntryId, LedgerId};
use hulse_proto::tier::AbortedRange;
use object_store::path::Path;
use object_store::{MultipartUpload, ObjectStoreExt as _, PutPayload};
use tokio::task::JoinSet;

use super::bucket::{Bucket, Buckets, unavailable};
use crate::protocol::{ObjectError, UploadError, UploadOrder, Uploaded};
use crate::segment::{BLOCK_BYTES_DEFAULT, LedgerPlan, SegmentError, SegmentWriter};

/// Most parts that S3 takes is 10,000; so a part is at least this fraction of a segment.
const PARTS_MAX: u64 = 9000;

/// Where an upload has its entries from.
pub trait EntrySource: Send + Sync {
    /// A run of entries that begins at `first`: at least one, below `end`, about `bytes_max` bytes.
    fn read(
        &self,
        ledger: LedgerId,
        first: EntryId,
        end: EntryId,
        bytes_max: u32,
    ) -> BoxFuture<'_, Result<Vec<Entry>, UploadError>>;

    /// The aborted ranges that stand in a ledger of their own (ARCHITECTURE D7).
    fn aborted(&self, holder: LedgerId) -> BoxFuture<'_, Result<Vec<AbortedRange>, UploadError>>;
}

/// Bounds of one upload, bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UploadLimits {
    /// Where blocks are closed.
    pub block_bytes: usize,
    /// Length of a part; S3 takes none below 5 MiB.
    pub part_bytes: usize,
    /// Parts that are sent at once.
    pub parts_flying: usize,
    /// A segment up to this length is sent by one request, which leaves nothing half done behind (storage.md O14).
    pub single_bytes: usize,
    /// Of one read of a ledger.
    pub read_bytes: u32,
}

impl Default for UploadLimits {
    fn default() -> Self {
        Self {
            block_bytes: BLOCK_BYTES_DEFAULT,
            part_bytes: 8 << 20,
            parts_flying: 4,
            single_bytes: 16 << 20,
            read_bytes: 4 << 20,
        }
    }
}

/// Makes the object of an order. Dropped half way, it leaves at most parts that nobody sees.
///
/// # Errors
/// [`UploadError`]: the object may be there all the same when the store did not answer.
pub async fn upload(
    buckets: &Buckets,
    order: &UploadOrder,
    source: &dyn EntrySource,
    limits: UploadLimits,
) -> Result<Box<Uploaded>, UploadError> {
    let (bucket, path) = buckets.place(&order.attempt)?;
    let closed = order.ledgers.iter().filter_map(|(_, found)| found.closed);
    let bytes: u64 = closed.map(|totals| totals.bytes).sum();
    let part = limits.part_bytes.max((bytes / PARTS_MAX) as usize);
    let mut sender = Sender {
        bucket,
        path,
        limits: UploadLimits {
            part_bytes: part,
            ..limits
        },
        waiting: Vec::new(),
        waiting_bytes: 0,
        multipart: None,
        flying: JoinSet::new(),
    };
    match write(order, source, limits, &mut sender).await {
        Ok(uploaded) => Ok(uploaded),
        Err(error) => {
            sender.abort().await;
            Err(error)
        }
    }
}

async fn write(
    order: &UploadOrder,
    source: &dyn EntrySource,
    limits: UploadLimits,
    sender: &mut Sender<'_>,
) -> Result<Box<Uploaded>, UploadError> {
    let mut writer = SegmentWriter::new(order.attempt.id, limits.block_bytes);
    let mut out = Vec::new();
    for (ledger, metadata) in &order.ledgers {
        let settled = metadata
            .tier
            .as_ref()
            .and_then(|tier| tier.settled.as_ref());
        let aborted = match settled.and_then(|settled| settled.aborted_ledger) {
            Some(holder) => Some(source.aborted(holder).await?),
            None => None,
        };
        let plan = LedgerPlan::new(*ledger, metadata, aborted)?;
        let end = plan.head.totals.end;
        writer.begin(plan)?;
        let mut next = EntryId(0);
        while next < end {
            let entries = source.read(*ledger, next, end, limits.read_bytes).await?;
            if entries.is_empty() {
                let (ledger, expected) = (*ledger, next);
                return Err(SegmentError::NotNext { ledger, expected }.into());
            }
            for entry in &entries {
                writer.push(entry, &mut out)?;
                next = entry.header().entry.next();
            }
            sender.send(&mut out).await?;
        }
        writer.end(&mut out)?;
        sender.send(&mut out).await?;
    }
    let written = writer.finish(&mut out)?;
    sender.send(&mut out).await?;
    let etag = sender.finish().await?.unwrap_or_default();
    Ok(Box::new(Uploaded { written, etag }))
}

/// Sends what it is given in parts of one length.
struct Sender<'a> {
    bucket: &'a Bucket,
    path: Path,
    limits: UploadLimits,
    waiting: Vec<Bytes>,
    waiting_bytes: usize,
    multipart: Option<Box<dyn MultipartUpload>>,
    flying: JoinSet<object_store::Result<()>>,
}

impl Sender<'_> {
    async fn send(&mut self, pieces: &mut Vec<Bytes>) -> Result<(), ObjectError> {
        for piece in pieces.drain(..) {
            self.waiting_bytes += piece.len();
            self.waiting.push(piece);
        }
        if self.multipart.is_none() && self.waiting_bytes <= self.limits.single_bytes {
            return Ok(());
        }
        while self.waiting_bytes >= self.limits.part_bytes {
            let part = self.take(self.limits.part_bytes);
            self.send_part(part).await?;
        }
        Ok(())
    }

    /// The first `bytes` of what waits.
    fn take(&mut self, bytes: usize) -> PutPayload {
        let (mut left, mut whole) = (bytes, 0);
        while whole < self.waiting.len() && self.waiting[whole].len() <= left {
            left -= self.waiting[whole].len();
            whole += 1;
        }
        let mut part: Vec<Bytes> = self.waiting.drain(..whole).collect();
        if left > 0
            && let Some(first) = self.waiting.first_mut()
        {
            part.push(first.split_to(left));
        }
        self.waiting_bytes -= bytes;
        part.into_iter().collect()
    }

    async fn send_part(&mut self, part: PutPayload) -> Result<(), ObjectError> {
        while self.flying.len() >= self.limits.parts_flying.max(1) {
            self.land().await?;
        }
        let multipart = match &mut self.multipart {
            Some(multipart) => multipart,
            None => {
                let made = self.bucket.store().put_multipart(&self.path).await;
                self.multipart
                    .insert(made.map_err(|error| unavailable(&error))?)
            }
        };
        // On a task of its own: it goes on while the next entries are read.
        self.flying.spawn(multipart.put_part(part));
        Ok(())
    }

    async fn land(&mut self) -> Result<(), ObjectError> {
        match self.flying.join_next().await {
            None | Some(Ok(Ok(()))) => Ok(()),
            Some(Ok(Err(error))) => Err(unavailable(&error)),
            Some(Err(error)) => Err(ObjectError::Unavailable {
                why: error.to_string(),
            }),
        }
    }

    /// Sends the rest and makes it an object; what the store calls it.
    async fn finish(&mut self) -> Result<Option<String>, ObjectError> {
        let rest = self.take(self.waiting_bytes);
        let made = if self.multipart.is_none() {
            self.bucket.store().put(&self.path, rest).await
        } else {
            if rest.content_length() > 0 {
                self.send_part(rest).await?;
            }
            while !self.flying.is_empty() {
                self.land().await?;
            }
            match &mut self.multipart {
                Some(multipart) => multipart.complete().await,
                None => return Ok(None),
            }
        };
        Ok(made.map_err(|error| unavailable(&error))?.e_tag)
    }

    /// Has the store forget parts, if it answers; a rule of the bucket's life cycle does the rest (storage.md O14).
    async fn abort(&mut self) {
        self.flying.shutdown().await;
        if let Some(multipart) = &mut self.multipart
            && let Err(error) = multipart.abort().await
        {
            tracing::debug!(path = %self.path, %error, "parts of an upload that was given up are left behind");
        }
    }
}
