//! The two stages of a request: leads it to what serves it, and counts it.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use futures::future::BoxFuture;
use kafka_protocol::messages::ApiKey;
use kafka_protocol::protocol::Encodable;
use serving_broker::Front;
use tokio::sync::OwnedSemaphorePermit;
use tokio::time::Instant;

use super::{about, alter, configs, delete_records, grow, metadata, offsets, produce, topics};
use crate::error_code::{self, Code};
use crate::fetch;
use crate::groups;
use crate::link::Link;
use crate::wire::{Answer, Asked, Broken, Request};

/// An answer of more bytes takes room in what the broker's answers to readers may hold.
const LARGE_BYTES: usize = 64 << 10;
/// That room is waited for at most this long.
const ROOM_WAIT_MAX: Duration = Duration::from_secs(30);
/// What the decoded forms of large requests may take, bytes.
pub(crate) const DECODED_BYTES: usize = 64 << 20;
/// Of each request this is free.
const DECODED_BYTES_FREE: usize = 16 << 10;
/// What an element of a request takes: its decoded form, and the row of the answer that it becomes; half each.
const ELEMENT_BYTES: usize = 512;
/// A producer is told to wait at most this long at a time (KIP-219).
const THROTTLE_MAX: Duration = Duration::from_secs(1);

/// What comes of a request in the end.
pub(crate) enum Outcome {
    /// This is written.
    Answer(Answer),
    /// Nothing is: the client wants no answer.
    Silence,
    /// The connection ends, for this reason.
    Close(String),
}

/// What came of a request's first stage.
pub(crate) enum FirstStage {
    /// Everything.
    Answered(Outcome),
    /// The rest, which may go on beside later requests.
    Later(BoxFuture<'static, Outcome>),
}

/// First stage of a request, the `number`th of its connection.
///
/// # Errors
/// [`Broken`]: the connection ends.
pub(crate) async fn first_stage(
    link: Arc<Link>,
    mut request: Request,
    number: u64,
) -> Result<FirstStage, Broken> {
    let (api, began) = (request.api, request.began);
    request.decoded = decoded_room(&link, &request).await;
    match api.key {
        ApiKey::Produce => produce::first_stage(link, request).await,
        ApiKey::Fetch => fetch::first_stage(link, request, number).await,
        ApiKey::ListOffsets => offsets::list(link, request),
        ApiKey::OffsetForLeaderEpoch => offsets::leader_epochs(link, request),
        ApiKey::DeleteRecords => delete_records::first_stage(link, request).await,
        ApiKey::JoinGroup => groups::join(link, request),
        ApiKey::SyncGroup => groups::sync(link, request),
        _ => {
            let outcome = whole(&link, request).await?;
            let code = match &outcome {
                Outcome::Answer(answer) => answer.code,
                Outcome::Silence => error_code::NONE,
                Outcome::Close(_) => error_code::UNKNOWN,
            };
            count(link.front(), api.metric, began, code);
            Ok(FirstStage::Answered(with_room(link.front(), outcome).await))
        }
    }
}

/// A request that is answered in one stage.
async fn whole(link: &Arc<Link>, request: Request) -> Result<Outcome, Broken> {
    match request.api.key {
        ApiKey::ApiVersions => about::api_versions(request),
        ApiKey::Metadata => metadata::metadata(link, request).await,
        ApiKey::DescribeTopicPartitions => metadata::topic_partitions(link, request).await,
        ApiKey::DescribeCluster => about::cluster(link, request).await,
        ApiKey::FindCoordinator => groups::coordinator(link, request).await,
        ApiKey::Heartbeat => groups::beat(link, request).await,
        ApiKey::LeaveGroup => groups::leave(link, request).await,
        ApiKey::OffsetCommit => groups::commit(link, request).await,
        ApiKey::OffsetFetch => groups::fetch(link, request).await,
        ApiKey::OffsetDelete => groups::delete_offsets(link, request).await,
        ApiKey::ListGroups => groups::list(link, request).await,
        ApiKey::DescribeGroups => groups::describe(link, request).await,
        ApiKey::DeleteGroups => groups::delete_groups(link, request).await,
        ApiKey::ConsumerGroupHeartbeat => groups::member_beat(link, request).await,
        ApiKey::ConsumerGroupDescribe => groups::describe_newer(link, request).await,
        ApiKey::InitProducerId => about::init_producer_id(link, request).await,
        ApiKey::CreateTopics => topics::create(link, request).await,
        ApiKey::DeleteTopics => topics::delete(link, request).await,
        ApiKey::CreatePartitions => grow::create_partitions(link, request).await,
        ApiKey::DescribeConfigs => configs::describe(link, request).await,
        ApiKey::AlterConfigs => alter::whole(link, request).await,
        ApiKey::IncrementalAlterConfigs => alter::incremental(link, request).await,
        key => Err(Broken::Key(key as i16)),
    }
}

impl Outcome {
    /// A message as the answer.
    pub(crate) fn message<T: Encodable>(asked: Asked, message: &T) -> Self {
        match Answer::encode(asked, message) {
            Some(answer) => Self::Answer(answer),
            None => {
                let Asked { key, version, .. } = asked;
                tracing::error!(?key, version, "an answer cannot be said in this version");
                Self::Close(format!(
                    "an answer to {key:?} of version {version} cannot be said"
                ))
            }
        }
    }

    /// Bytes that are written.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Answer(answer) => answer.len(),
            Self::Silence | Self::Close(_) => 0,
        }
    }

    /// The same, where the answer has an error in it.
    pub(crate) fn with_code(self, code: Code) -> Self {
        match self {
            Self::Answer(answer) => Self::Answer(Answer { code, ..answer }),
            other => other,
        }
    }

    /// A message whose connection is not read for `mute` after it.
    pub(crate) fn muting<T: Encodable>(asked: Asked, message: &T, mute: Duration) -> Self {
        match Self::message(asked, message) {
            Self::Answer(answer) => Self::Answer(Answer { mute, ..answer }),
            other => other,
        }
    }
}

/// Room for the decoded form of a request, and for the rows that its elements become, where that is more than its frame.
async fn decoded_room(link: &Link, request: &Request) -> Option<OwnedSemaphorePermit> {
    let bytes = request.elements * ELEMENT_BYTES;
    if bytes <= request.frame_bytes.max(DECODED_BYTES_FREE) {
        return None;
    }
    Some(take_decoded(link, bytes).await)
}

/// Room for the rows of an answer of `bytes` beside its records. Nobody who has such room waits for room of any other kind.
pub(crate) async fn rows_room(link: &Link, bytes: usize) -> Option<OwnedSemaphorePermit> {
    match bytes > LARGE_BYTES {
        true => Some(take_decoded(link, bytes).await),
        false => None,
    }
}

async fn take_decoded(link: &Link, bytes: usize) -> OwnedSemaphorePermit {
    let count = u32::try_from(bytes.min(DECODED_BYTES)).unwrap_or(u32::MAX);
    let room = link.served.decoded.clone().acquire_many_owned(count).await;
    room.expect("this semaphore is never closed")
}

/// An answer that waits until there is room for it where it is large. Whoever takes that room gives it back in time, so that it comes
/// in the end; a client does not wait for ever, though.
async fn with_room(front: &Front, outcome: Outcome) -> Outcome {
    match outcome {
        // The longest have room of their own.
        Outcome::Answer(answer) if answer.len() > LARGE_BYTES && answer.rows.is_none() => {
            let room = tokio::time::timeout(ROOM_WAIT_MAX, read_room(front, answer.len()));
            match room.await {
                Ok(room) => Outcome::Answer(Answer {
                    room: Some(room),
                    ..answer
                }),
                Err(_) => Outcome::Close("there is no room for a large answer".to_owned()),
            }
        }
        other => other,
    }
}

/// Room for an answer of `bytes`; one larger than the whole takes all of it.
async fn read_room(front: &Front, bytes: usize) -> OwnedSemaphorePermit {
    let most = front.config().read_ahead_bytes.max(1);
    let count = u32::try_from(bytes.min(most)).unwrap_or(u32::MAX);
    let room = front.read_ahead().clone().acquire_many_owned(count).await;
    room.expect("this semaphore is never closed")
}

/// What a client is told to wait whose frame waited for room, in whole milliseconds: what cannot be told is not kept either. A timer
/// rounds the few hundred nanoseconds of finding room up to a millisecond, which every request would pay.
pub(crate) fn throttle(waited: Duration) -> Duration {
    Duration::from_millis(waited.min(THROTTLE_MAX).as_millis() as u64)
}

/// Whole milliseconds of the wire.
pub(crate) fn millis(duration: Duration) -> i32 {
    i32::try_from(duration.as_millis()).unwrap_or(i32::MAX)
}

/// Counts a request that ended, with its first error. Faults are counted where they are told.
pub(crate) fn count(front: &Front, api: &'static str, began: Instant, code: Code) {
    front.metrics().request_ended(api, error_code::name(code));
    front.metrics().request_took(api, began.elapsed());
}

impl FirstStage {
    /// A second stage.
    pub(crate) fn later(stage: impl Future<Output = Outcome> + Send + 'static) -> Self {
        Self::Later(stage.boxed())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn request_that_hardly_waited_mutes_nothing() {
        assert_eq!(throttle(Duration::from_nanos(999_999)), Duration::ZERO);
        let waited = Duration::from_micros(2_700);
        assert_eq!(throttle(waited), Duration::from_millis(2));
        assert_eq!(throttle(THROTTLE_MAX * 2), THROTTLE_MAX);
    }
}
