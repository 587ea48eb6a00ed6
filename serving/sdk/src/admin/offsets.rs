//! Where a partition begins and ends, and which offset a time means.

use hulse_proto::id::Offset;
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::log_client::LogClient;
use tokio::time::Instant;

use super::handle::Admin;
use crate::backoff::Backoff;
use crate::client::Topic;
use crate::error::Error;

/// A partition's bounds at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Offsets {
    /// The oldest record's, or `end` when there is none.
    pub start: Offset,
    /// The high watermark: one behind the last confirmed record.
    pub end: Offset,
    /// The first record with a timestamp at or after the asked one; `None` when there is none, or none was asked.
    pub at_time: Option<Offset>,
}

impl Admin {
    /// Asks the owner of a partition, and again while that may help, at most for the request time-out. `time` is in ms since 1970.
    ///
    /// # Errors
    /// TOPIC_NOT_FOUND, PARTITION_NOT_FOUND, or why it could not be asked. Cancel-safe.
    pub async fn offsets(
        &self,
        topic: &str,
        partition: u32,
        time: Option<i64>,
    ) -> Result<Offsets, Error> {
        let core = self.core();
        let deadline = Instant::now() + core.request_timeout;
        let mut rng = core.child_rng();
        let mut backoff = Backoff::new();
        let topic = Topic::open(core.clone(), topic, false).await?;
        loop {
            let (id, owner) = topic.owner(partition)?;
            let request = v1::OffsetsRequest {
                partition: Some(v1::Partition {
                    topic_uuid: id.to_bytes(),
                    index: partition,
                }),
                at_time: time,
                start_only: false,
            };
            let asked = core.call_at(&owner, |channel| async move {
                LogClient::new(channel).offsets(request).await
            });
            let error = match asked.await {
                Ok(found) => {
                    return Ok(Offsets {
                        start: Offset(found.log_start),
                        end: Offset(found.high_watermark),
                        at_time: found.offset_at_time.map(Offset),
                    });
                }
                Err(error) => error,
            };
            let wait = backoff.next(&mut rng, error.retry_after());
            if !error.is_retryable() || Instant::now() + wait >= deadline {
                return Err(error);
            }
            tokio::time::sleep(wait).await;
            topic.refresh().await?;
        }
    }
}
