//! Ranged reads, with so many bytes on their way at once and no more.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use hulse_proto::tier::Attempt;
use object_store::ObjectStoreExt as _;
use tokio::sync::{Semaphore, SemaphorePermit};

use super::bucket::{Buckets, read_error};
use crate::protocol::ObjectError;

/// What one permit stands for.
const PERMIT_BYTES: u64 = 4096;

/// Reads ranges of objects. Cheap to clone.
#[derive(Debug, Clone)]
pub struct Fetcher {
    buckets: Arc<Buckets>,
    permits: Arc<Semaphore>,
    permits_max: u32,
    requests: Arc<AtomicU64>,
}

impl Fetcher {
    /// One that has at most `flying_bytes` on their way; a range that is longer than that is read alone.
    pub fn new(buckets: Arc<Buckets>, flying_bytes: u64) -> Self {
        let permits = (flying_bytes / PERMIT_BYTES).clamp(1, u64::from(u32::MAX >> 4));
        Self {
            buckets,
            permits: Arc::new(Semaphore::new(permits as usize)),
            permits_max: permits as u32,
            requests: Arc::new(AtomicU64::new(0)),
        }
    }

    /// Ranges that were asked of stores until now.
    pub fn requests(&self) -> u64 {
        self.requests.load(Ordering::Relaxed)
    }

    /// The buckets that it reads from.
    pub fn buckets(&self) -> &Buckets {
        &self.buckets
    }

    /// True when a range of this length would have to wait: read-ahead then leaves it to whoever needs it.
    pub fn is_busy(&self, bytes: u64) -> bool {
        self.permits.available_permits() < self.permits_for(bytes) as usize
    }

    fn permits_for(&self, bytes: u64) -> u32 {
        let permits = bytes
            .div_ceil(PERMIT_BYTES)
            .min(u64::from(self.permits_max));
        permits as u32
    }

    async fn permit(&self, bytes: u64) -> Result<SemaphorePermit<'_>, ObjectError> {
        let permits = self.permits.acquire_many(self.permits_for(bytes)).await;
        permits.map_err(|_| ObjectError::Unavailable {
            why: "this process ends".to_owned(),
        })
    }

    /// Reads exactly a range. Waits while too much is on its way. Cancel-safe.
    ///
    /// # Errors
    /// [`ObjectError`]: absent, or shorter than the range, or the store does not answer.
    pub async fn range(&self, attempt: &Attempt, range: Range<u64>) -> Result<Bytes, ObjectError> {
        let expected = range.end.saturating_sub(range.start);
        let _permit = self.permit(expected).await?;
        let (bucket, path) = self.buckets.place(attempt)?;
        self.requests.fetch_add(1, Ordering::Relaxed);
        let read = bucket.store().get_range(&path, range.clone()).await;
        let bytes = match read {
            Ok(bytes) => bytes,
            Err(error) => return Err(self.why(attempt, &range, error).await),
        };
        match bytes.len() as u64 == expected {
            true => Ok(bytes),
            false => Err(ObjectError::Length {
                object: attempt.object.clone(),
                found: range.start + bytes.len() as u64,
                expected: range.end,
            }),
        }
    }

    /// A range beyond the end is told in many ways; the length tells it for certain.
    async fn why(
        &self,
        attempt: &Attempt,
        range: &Range<u64>,
        error: object_store::Error,
    ) -> ObjectError {
        let object = &attempt.object;
        let error = read_error(object, &error);
        if error.is_proof() {
            return error;
        }
        match self.length(attempt).await {
            Ok((found, _)) if found < range.end => ObjectError::Length {
                object: object.clone(),
                found,
                expected: range.end,
            },
            Ok(_) => error,
            Err(error) => error,
        }
    }

    /// Length of an object, and what the store calls it.
    ///
    /// # Errors
    /// As [`Fetcher::range`].
    pub async fn length(&self, attempt: &Attempt) -> Result<(u64, Option<String>), ObjectError> {
        let (bucket, path) = self.buckets.place(attempt)?;
        let head = bucket.store().head(&path).await;
        let head = head.map_err(|error| read_error(&attempt.object, &error))?;
        Ok((head.size, head.e_tag))
    }
}
