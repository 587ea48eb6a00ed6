//! One partition's task: find the start, keep a stream open, hand on what comes.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use hulse_proto::error::{ErrorKind, Fault, Reason};
use hulse_proto::id::TopicId;
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::log_client::LogClient;
use hulse_proto::wire::v1::read_response::Item;
use rand_chacha::ChaCha8Rng;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::time::Instant;
use tonic::transport::Channel;
use tracing::{debug, warn};

use super::builder::{ReaderConfig, Start};
use super::cursor::{Chunk, Cursor};
use crate::backoff::Backoff;
use crate::client::{Core, Topic};
use crate::connect::{Broker, MESSAGE_BYTES_MAX};
use crate::error::Error;

/// Most that one stream asks its broker to read ahead: a broker's default. Brokers give more, but what this reader may hold is
/// shared by all its partitions, and each broker has it in memory besides.
const STREAM_BYTES_MAX: u32 = 4 << 20;

/// What a partition's task tells the reader.
pub(crate) enum Fetched {
    /// Reading begins at this offset.
    Started {
        partition: u32,
        offset: u64,
    },
    /// Batches, and the room they take until they are consumed.
    Chunk(Chunk, OwnedSemaphorePermit),
    EndOfLog {
        partition: u32,
        offset: u64,
    },
    Failed(Error),
    /// Nothing more comes of this partition.
    Finished,
}

/// What the tasks of one reader share.
pub(crate) struct Source {
    pub(crate) core: Arc<Core>,
    pub(crate) topic: Topic,
    pub(crate) config: ReaderConfig,
    pub(crate) room: Arc<Semaphore>,
    /// The reader's own connections.
    pub(crate) channels: Channels,
}

/// One per broker. Cheap to clone.
pub(crate) type Channels = Arc<Mutex<BTreeMap<Broker, Channel>>>;

impl Source {
    fn channel(&self, broker: &Broker) -> Result<Channel, Error> {
        let mut channels = self.channels.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(channel) = channels.get(broker) {
            return Ok(channel.clone());
        }
        let channel = self.core.pool.dedicated(broker)?;
        channels.insert(broker.clone(), channel.clone());
        Ok(channel)
    }
}

/// The task.
pub(crate) struct Fetch {
    source: Arc<Source>,
    partition: u32,
    start: Start,
    /// The topic as first resolved: another one of the same name is not read on.
    topic: Option<TopicId>,
    cursor: Option<Cursor>,
    to_reader: mpsc::Sender<Fetched>,
    rng: ChaCha8Rng,
    backoff: Backoff,
    /// When the partition got out of reach.
    failing_since: Option<Instant>,
}

/// Why a stream came to its end.
enum End {
    /// Everything up to the end was handed on.
    EndOfLog,
    /// The reader is gone.
    Dropped,
}

impl Fetch {
    pub(crate) fn new(
        source: Arc<Source>,
        partition: u32,
        start: Start,
        to_reader: mpsc::Sender<Fetched>,
    ) -> Self {
        let rng = source.core.child_rng();
        Self {
            source,
            partition,
            start,
            topic: None,
            cursor: None,
            to_reader,
            rng,
            backoff: Backoff::new(),
            failing_since: None,
        }
    }

    /// Until the end is reached (when not following), the reader is gone, or an error that no retry cures.
    pub(crate) async fn run(mut self) {
        loop {
            let error = match self.stream().await {
                Ok(End::Dropped) => return,
                Ok(End::EndOfLog) => break,
                Err(error) => error,
            };
            let moved = error.reason().is_some_and(may_be_elsewhere);
            if !error.is_retryable() && !moved {
                let _ = self.to_reader.send(Fetched::Failed(error)).await;
                break;
            }
            if self.retry(error).await.is_err() {
                return;
            }
        }
        let _ = self.to_reader.send(Fetched::Finished).await;
    }

    /// Waits, and asks where the partition is now. `Err`: the reader is gone.
    async fn retry(&mut self, error: Error) -> Result<(), ()> {
        let since = *self.failing_since.get_or_insert_with(Instant::now);
        debug!(partition = self.partition, %error, "reading is interrupted");
        let wait = self.backoff.next(&mut self.rng, error.retry_after());
        if since.elapsed() >= self.source.config.retry_timeout {
            self.failing_since = None;
            warn!(partition = self.partition, %error, "partition is out of reach");
            self.to_reader
                .send(Fetched::Failed(error))
                .await
                .map_err(drop)?;
        }
        tokio::time::sleep(wait).await;
        if let Err(error) = self.source.topic.refresh().await
            && !error.is_retryable()
        {
            let _ = self.to_reader.send(Fetched::Failed(error)).await;
            let _ = self.to_reader.send(Fetched::Finished).await;
            return Err(());
        }
        Ok(())
    }

    /// One stream.
    async fn stream(&mut self) -> Result<End, Error> {
        let (topic, owner) = self.source.topic.owner(self.partition)?;
        if *self.topic.get_or_insert(topic) != topic {
            let name = &self.source.topic.name;
            let words = format!("topic {name} was deleted and made anew; begin a new reader");
            return Err(Fault::new(Reason::TopicRecreated, words).into());
        }
        let wire = v1::Partition {
            topic_uuid: topic.to_bytes(),
            index: self.partition,
        };
        if self.cursor.is_none() {
            let offset = self.find_start(&owner, wire.clone()).await?;
            self.cursor = Some(Cursor::new(self.partition, offset));
            let partition = self.partition;
            if self
                .to_reader
                .send(Fetched::Started { partition, offset })
                .await
                .is_err()
            {
                return Ok(End::Dropped);
            }
        }
        let cursor = self.cursor.as_mut().expect("it was made above");
        cursor.begin_stream();
        let request = v1::ReadRequest {
            partition: Some(wire),
            start: cursor.position(),
            max_bytes_in_flight: STREAM_BYTES_MAX.min(self.source.config.bytes_in_flight_max),
            follow: self.source.config.follow,
        };
        let mut client = LogClient::new(self.source.channel(&owner)?)
            .max_decoding_message_size(MESSAGE_BYTES_MAX);
        let answer = client.read(request).await;
        let mut items = answer
            .map_err(|status| Error::from_status(&status))?
            .into_inner();
        loop {
            let item = items
                .message()
                .await
                .map_err(|status| Error::from_status(&status))?;
            let Some(item) = item else {
                return Err(cut_short());
            };
            self.failing_since = None;
            self.backoff.reset();
            if let Some(end) = self.hand_on(item).await? {
                return Ok(end);
            }
        }
    }

    /// Checks an item and gives it to the reader; the end that it means, if it means one.
    async fn hand_on(&mut self, item: v1::ReadResponse) -> Result<Option<End>, Error> {
        let cursor = self.cursor.as_mut().expect("a stream begins with a cursor");
        let fetched = match item.item {
            Some(Item::Batches(message)) => {
                let chunk = cursor.accept(message)?;
                let max = self.source.config.bytes_in_flight_max;
                let room = chunk.bytes.clamp(1, max as usize) as u32;
                let room = Arc::clone(&self.source.room).acquire_many_owned(room).await;
                let Ok(room) = room else {
                    return Ok(Some(End::Dropped));
                };
                Fetched::Chunk(chunk, room)
            }
            Some(Item::EndOfLog(end)) => {
                cursor.accept_end(end.offset)?;
                Fetched::EndOfLog {
                    partition: self.partition,
                    offset: end.offset,
                }
            }
            None => return Ok(None),
        };
        let at_end = matches!(fetched, Fetched::EndOfLog { .. });
        if self.to_reader.send(fetched).await.is_err() {
            return Ok(Some(End::Dropped));
        }
        let finished = at_end && !self.source.config.follow;
        Ok(finished.then_some(End::EndOfLog))
    }

    async fn find_start(&self, owner: &Broker, partition: v1::Partition) -> Result<u64, Error> {
        let at_time = match self.start {
            Start::Offset(offset) => return Ok(offset.0),
            Start::Time(time) => Some(time),
            Start::Earliest | Start::Latest => None,
        };
        let request = v1::OffsetsRequest {
            partition: Some(partition),
            at_time,
            start_only: self.start == Start::Earliest,
        };
        let asked = self.source.core.call_at(owner, |channel| async move {
            LogClient::new(channel).offsets(request).await
        });
        let offsets = asked.await?;
        Ok(match self.start {
            Start::Earliest => offsets.log_start,
            Start::Time(_) => offsets.offset_at_time.unwrap_or(offsets.high_watermark),
            Start::Latest | Start::Offset(_) => offsets.high_watermark,
        })
    }
}

/// The look-up may know better.
fn may_be_elsewhere(reason: Reason) -> bool {
    matches!(reason, Reason::TopicNotFound | Reason::PartitionNotFound)
}

fn cut_short() -> Error {
    Error::local(
        ErrorKind::Unavailable,
        "the broker ended the stream before the end of the log; it is opened again",
    )
}
