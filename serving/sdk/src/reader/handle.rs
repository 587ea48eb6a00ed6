//! The reader's handle: merges the partitions.

use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::sync::Arc;

use futures::Stream;
use hulse_proto::batch::verify_crc;
use hulse_proto::id::Offset;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use tokio::task::JoinSet;
use tracing::warn;

use super::builder::{ReaderConfig, Start};
use super::cursor::Chunk;
use super::fetch::{Channels, Fetch, Fetched, Source};
use super::record::{ReadRecord, RecordBatch};
use crate::client::{Core, Topic};
use crate::error::Error;
use crate::interceptor::Chain;

/// Messages that wait to be taken; their bytes are bounded by `max_bytes_in_flight`.
const QUEUE_MAX: usize = 1024;

/// Reads records of one topic. A reader is one place in the stream, so it is `Send` and `Sync` but not `Clone`; dropping it ends its
/// fetching.
pub struct Reader {
    topic: String,
    queue: mpsc::Receiver<Fetched>,
    places: BTreeMap<u32, Place>,
    /// Partitions from which more may come.
    unfinished: usize,
    batches: VecDeque<RecordBatch>,
    /// What remains of the batch that is being handed out.
    records: std::vec::IntoIter<ReadRecord>,
    /// Room that the batches take, given back when they are handed out.
    room: Option<OwnedSemaphorePermit>,
    /// Where the message that is being handed out ends.
    chunk_end: Option<(u32, u64)>,
    stats: ReaderStats,
    interceptors: Chain,
    /// Ended by the drop.
    _tasks: JoinSet<()>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Place {
    /// `None`: not known yet.
    position: Option<u64>,
    high_watermark: Option<u64>,
}

/// What a reader has done so far.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReaderStats {
    /// Records handed out by `next`.
    pub records: u64,
    /// Batches begun.
    pub batches: u64,
    /// Their bytes.
    pub bytes: u64,
    /// Offsets that were lost and given up by an operator.
    pub offsets_lost: u64,
}

impl Reader {
    pub(super) fn begin(
        core: Arc<Core>,
        topic: Topic,
        starts: Vec<(u32, Start)>,
        config: ReaderConfig,
    ) -> Self {
        let (to_reader, queue) = mpsc::channel(QUEUE_MAX);
        let name = topic.name.to_string();
        let source = Arc::new(Source {
            core,
            topic,
            config,
            room: Arc::new(Semaphore::new(config.bytes_in_flight_max as usize)),
            channels: Channels::default(),
        });
        let mut tasks = JoinSet::new();
        let mut places = BTreeMap::new();
        for (partition, start) in starts {
            let fetch = Fetch::new(Arc::clone(&source), partition, start, to_reader.clone());
            tasks.spawn(fetch.run());
            places.insert(partition, Place::default());
        }
        Self {
            topic: name,
            queue,
            unfinished: places.len(),
            places,
            batches: VecDeque::new(),
            records: Vec::new().into_iter(),
            room: None,
            chunk_end: None,
            stats: ReaderStats::default(),
            interceptors: Chain::default(),
            _tasks: tasks,
        }
    }

    pub(super) fn with_interceptors(mut self, interceptors: Chain) -> Self {
        self.interceptors = interceptors;
        self
    }

    /// The next record of any partition; `None` when every partition was read to its end, which never is while following.
    ///
    /// # Errors
    /// A partition is out of reach (it is tried further), a batch is damaged (the next call goes on behind it), offsets are missing
    /// ([`Error::gap`]) or out of range: that partition's reading has ended, the others go on; or an interceptor refused the record (the
    /// next call goes on behind it). Cancel-safe.
    pub async fn next(&mut self) -> Result<Option<ReadRecord>, Error> {
        loop {
            if let Some(record) = self.records.next() {
                self.advance(record.partition, record.offset.0 + 1);
                self.stats.records += 1;
                return self
                    .interceptors
                    .before_deliver(&self.topic, record)
                    .map(Some);
            }
            match self.pull().await? {
                None => return Ok(None),
                Some(batch) => self.open(batch)?,
            }
        }
    }

    /// The next batch as it is stored; its first records may lie below the start. Records that `next` has left of an earlier batch
    /// are passed over.
    ///
    /// # Errors
    /// Those of [`Reader::next`]. Cancel-safe.
    pub async fn next_batch(&mut self) -> Result<Option<RecordBatch>, Error> {
        self.records = Vec::new().into_iter();
        let Some(batch) = self.pull().await? else {
            return Ok(None);
        };
        self.advance(batch.partition, batch.header.end_offset().0);
        verify_crc(&batch.bytes)?;
        Ok(Some(batch))
    }

    /// The records as a stream. It ends where `next` answers `None`; after an error it goes on.
    pub fn into_stream(self) -> impl Stream<Item = Result<ReadRecord, Error>> + Send {
        futures::stream::unfold(self, |mut reader| async move {
            let item = reader.next().await.transpose()?;
            Some((item, reader))
        })
    }

    /// Offset of the record of `partition` that `next` would answer at the earliest; `None` while the start is not known, or for
    /// a partition that is not read.
    pub fn position(&self, partition: u32) -> Option<Offset> {
        self.places.get(&partition)?.position.map(Offset)
    }

    /// End of the partition as last heard; `None` before the first word.
    pub fn high_watermark(&self, partition: u32) -> Option<Offset> {
        self.places.get(&partition)?.high_watermark.map(Offset)
    }

    /// True when everything that was there when the brokers last spoke has been handed out.
    pub fn at_end(&self) -> bool {
        let mut places = self.places.values();
        places.all(|place| match (place.position, place.high_watermark) {
            (Some(position), Some(end)) => position >= end,
            _ => false,
        })
    }

    /// Indexes of the partitions that are read.
    pub fn partitions(&self) -> impl Iterator<Item = u32> + '_ {
        self.places.keys().copied()
    }

    /// Full name of the topic.
    pub fn topic(&self) -> &str {
        &self.topic
    }

    /// What was done so far.
    pub fn stats(&self) -> ReaderStats {
        self.stats
    }

    async fn pull(&mut self) -> Result<Option<RecordBatch>, Error> {
        loop {
            if let Some(batch) = self.batches.pop_front() {
                self.stats.batches += 1;
                self.stats.bytes += batch.bytes.len() as u64;
                return Ok(Some(batch));
            }
            self.room = None;
            if let Some((partition, end)) = self.chunk_end.take() {
                self.advance(partition, end);
            }
            if self.unfinished == 0 {
                return Ok(None);
            }
            // The tasks hold senders as long as something is unfinished.
            let Some(fetched) = self.queue.recv().await else {
                return Ok(None);
            };
            self.take(fetched)?;
        }
    }

    fn take(&mut self, fetched: Fetched) -> Result<(), Error> {
        match fetched {
            Fetched::Started { partition, offset } => self.advance(partition, offset),
            Fetched::Chunk(chunk, room) => self.take_chunk(chunk, room),
            Fetched::EndOfLog { partition, offset } => self.heard(partition, offset),
            Fetched::Failed(error) => return Err(error),
            Fetched::Finished => self.unfinished -= 1,
        }
        Ok(())
    }

    fn take_chunk(&mut self, chunk: Chunk, room: OwnedSemaphorePermit) {
        if chunk.lost > 0 {
            warn!(
                partition = chunk.partition,
                offsets = chunk.lost,
                "offsets were lost here"
            );
            self.stats.offsets_lost += chunk.lost;
        }
        self.heard(chunk.partition, chunk.high_watermark);
        self.chunk_end = Some((chunk.partition, chunk.end));
        self.batches = chunk.batches.into();
        self.room = Some(room);
    }

    fn open(&mut self, batch: RecordBatch) -> Result<(), Error> {
        let position = self.position(batch.partition).map_or(0, |offset| offset.0);
        let end = batch.header.end_offset().0;
        if batch.header.is_control() {
            self.advance(batch.partition, end);
            return Ok(());
        }
        let records = match batch.records() {
            Ok(records) => records,
            Err(error) => {
                self.advance(batch.partition, end);
                return Err(error);
            }
        };
        self.records = records.into_iter();
        // The first batch may begin before the start.
        while self
            .records
            .as_slice()
            .first()
            .is_some_and(|record| record.offset.0 < position)
        {
            self.records.next();
        }
        Ok(())
    }

    fn advance(&mut self, partition: u32, to: u64) {
        if let Some(place) = self.places.get_mut(&partition) {
            place.position = Some(place.position.unwrap_or(0).max(to));
        }
    }

    fn heard(&mut self, partition: u32, end: u64) {
        if let Some(place) = self.places.get_mut(&partition) {
            place.high_watermark = Some(place.high_watermark.unwrap_or(0).max(end));
        }
    }
}

impl fmt::Debug for Reader {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Reader")
            .field("topic", &self.topic)
            .field("places", &self.places)
            .finish_non_exhaustive()
    }
}
