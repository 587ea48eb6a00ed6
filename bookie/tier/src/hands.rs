//! Carries out what the machines of tiering want of object storage. What they want of metadata and of bookies is the caller's.

use std::sync::Arc;

use crate::protocol::{ObjectError, TierEffect, TierEvent};
use crate::store::{
    Buckets, EntrySource, Fetcher, ReadBack, UploadLimits, read_back, upload, verify,
};

/// What tiering works with.
#[derive(Debug, Clone)]
pub struct ObjectHands {
    /// Where segments go and are.
    pub buckets: Arc<Buckets>,
    /// Reads past every cache.
    pub fetcher: Fetcher,
    /// Bounds of each upload.
    pub limits: UploadLimits,
    /// How much is read before copies are dropped.
    pub read_back: ReadBack,
    /// The bucket that is swept.
    pub swept: String,
}

impl ObjectHands {
    /// Does what an effect asks of object storage; gives it back when it asks for something else.
    ///
    /// # Errors
    /// The effect, untouched.
    pub async fn carry_out(
        &self,
        effect: TierEffect,
        source: &dyn EntrySource,
    ) -> Result<TierEvent, TierEffect> {
        match effect {
            TierEffect::Upload(order) => {
                let sent = upload(&self.buckets, &order, source, self.limits).await;
                Ok(TierEvent::Uploaded(sent))
            }
            TierEffect::Verify(attempt, uploaded) => Ok(TierEvent::Object(
                verify(&self.fetcher, &attempt, &uploaded).await,
            )),
            TierEffect::ReadBack(ledger, segment) => Ok(TierEvent::Object(
                read_back(&self.fetcher, ledger, &segment, self.read_back).await,
            )),
            TierEffect::Delete(deletion) => {
                Ok(TierEvent::Object(self.buckets.delete(&deletion).await))
            }
            TierEffect::List(after) => Ok(TierEvent::Listed(self.list(after.as_deref()).await)),
            other => Err(other),
        }
    }

    async fn list(&self, after: Option<&str>) -> Result<Vec<(String, u64)>, ObjectError> {
        self.buckets.get(&self.swept)?.list(after).await
    }
}
