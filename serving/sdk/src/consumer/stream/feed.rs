//! One task per partition: reads it from where the group is, by the reader's own fetching, and hands on what comes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hulse_proto::error::Reason;
use hulse_proto::id::{Offset, PartitionId};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

use super::book::Reading;
use super::shared::Shared;
use crate::client::{Core, Topic};
use crate::consumer::SkipReason;
use crate::error::Error;
use crate::reader::{Channels, Chunk, Fetch, Fetched, ReaderConfig, Source, Start};

/// Messages between a fetch and the queue of the member.
const AHEAD: usize = 1;
/// Before a partition that cannot be read is tried again.
const AGAIN: Duration = Duration::from_millis(500);
/// A partition that is out of reach for so long is told of.
const RETRY_TIMEOUT: Duration = Duration::from_secs(120);

/// What is handed on.
pub(super) struct Fed {
    pub(super) at: PartitionId,
    /// Which time the partition is the member's.
    pub(super) number: u64,
    pub(super) what: What,
}

pub(super) enum What {
    /// Records, and the room they take.
    Chunk(Chunk, OwnedSemaphorePermit),
    /// These offsets are not there any more.
    Skipped(u64, u64, SkipReason),
    Failed(Error),
}

/// Where the records of each topic come from; topics are resolved once.
pub(super) struct Sources {
    core: Arc<Core>,
    config: ReaderConfig,
    room: Arc<Semaphore>,
    channels: Channels,
    topics: Mutex<BTreeMap<Arc<str>, Arc<Source>>>,
}

impl Sources {
    pub(super) fn new(core: Arc<Core>, bytes_in_flight_max: u32, room: Arc<Semaphore>) -> Self {
        Self {
            core,
            config: ReaderConfig {
                follow: true,
                bytes_in_flight_max,
                retry_timeout: RETRY_TIMEOUT,
            },
            room,
            channels: Channels::default(),
            topics: Mutex::default(),
        }
    }

    /// The source of a partition's topic.
    async fn of(&self, name: &Arc<str>, at: PartitionId) -> Result<Arc<Source>, Error> {
        let known = {
            let topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
            topics.get(name).cloned()
        };
        // One of the name that was made again is another one.
        let is_it = |source: &Source| {
            let owner = source.topic.owner(0);
            owner.is_ok_and(|(id, _)| id == at.topic)
        };
        if let Some(source) = known.filter(|source| is_it(source)) {
            return Ok(source);
        }
        let topic = Topic::open(Arc::clone(&self.core), name, false).await?;
        let source = Arc::new(Source {
            core: Arc::clone(&self.core),
            topic,
            config: self.config,
            room: Arc::clone(&self.room),
            channels: Arc::clone(&self.channels),
        });
        if !is_it(&source) {
            let words = format!("topic {name} was deleted and made anew");
            let fault = hulse_proto::error::Fault::new(Reason::TopicRecreated, words);
            return Err(fault.into());
        }
        let mut topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        topics.insert(Arc::clone(name), Arc::clone(&source));
        Ok(source)
    }
}

/// Until it is aborted, or the partition cannot be read and never will be.
pub(super) async fn run(shared: Arc<Shared>, at: PartitionId, reading: Reading) {
    let mut position = reading.position;
    loop {
        let error = match shared.sources.of(&reading.topic, at).await {
            Ok(source) => {
                match stream(&shared, at, &reading, &mut position, source).await {
                    Some(error) => error,
                    // The member is gone.
                    None => return,
                }
            }
            Err(error) => error,
        };
        if let Some(start) = trimmed(&error, position) {
            let what = What::Skipped(position, start, SkipReason::Trimmed);
            hand_on(&shared, at, reading.number, what).await;
            position = start;
            continue;
        }
        let passes_by = error.is_retryable() || is_elsewhere(&error);
        if !passes_by {
            hand_on(&shared, at, reading.number, What::Failed(error)).await;
            return;
        }
        tracing::debug!(partition = %at, %error, "a partition is read again later");
        tokio::time::sleep(AGAIN).await;
    }
}

/// Reads until it fails; `None`: the member is gone.
async fn stream(
    shared: &Arc<Shared>,
    at: PartitionId,
    reading: &Reading,
    position: &mut u64,
    source: Arc<Source>,
) -> Option<Error> {
    let (sender, mut fetched) = mpsc::channel(AHEAD);
    let start = Start::Offset(Offset(*position));
    let fetch = Fetch::new(source, at.index, start, sender);
    let fetching = tokio::spawn(fetch.run());
    // The fetch ends with this task, whatever ends it.
    let _ends = AbortOnDrop(fetching.abort_handle());
    let number = reading.number;
    while let Some(fetched) = fetched.recv().await {
        let what = match fetched {
            Fetched::Started { .. } => continue,
            Fetched::Chunk(chunk, room) => {
                *position = (*position).max(chunk.end);
                let reach = (chunk.end, chunk.high_watermark);
                shared.book().fed(at, number, reach);
                What::Chunk(chunk, room)
            }
            Fetched::EndOfLog { offset, .. } => {
                shared.book().fed(at, number, (0, offset));
                shared.news.notify_waiters();
                continue;
            }
            Fetched::Failed(error) if error.is_retryable() => What::Failed(error),
            Fetched::Failed(error) => return Some(error),
            Fetched::Finished => break,
        };
        if !hand_on(shared, at, number, what).await {
            return None;
        }
    }
    let words = "reading a partition ended without a word; it is begun again";
    Some(Error::local(
        hulse_proto::error::ErrorKind::Unavailable,
        words,
    ))
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// `false`: the member is gone.
async fn hand_on(shared: &Shared, at: PartitionId, number: u64, what: What) -> bool {
    shared.fed.send(Fed { at, number, what }).await.is_ok()
}

/// Where the log begins now, when what is to be read is below it.
fn trimmed(error: &Error, position: u64) -> Option<u64> {
    let fault = error.fault()?;
    if fault.reason != Reason::OffsetOutOfRange {
        return None;
    }
    let start = fault.details.get("log_start")?.parse().ok()?;
    (start > position).then_some(start)
}

/// The coordinator, or the look-up, knows better soon.
fn is_elsewhere(error: &Error) -> bool {
    matches!(
        error.reason(),
        Some(Reason::TopicNotFound | Reason::PartitionNotFound | Reason::TopicRecreated)
    )
}
