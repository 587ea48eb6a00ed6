//! What a reader is made from.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hulse_proto::id::Offset;

use super::handle::Reader;
use crate::client::{Core, Topic};
use crate::error::Error;
use crate::interceptor::Interceptor;

const BYTES_IN_FLIGHT: u32 = 16 << 20;
const BYTES_IN_FLIGHT_MIN: u32 = 64 << 10;
const BYTES_IN_FLIGHT_MAX: u32 = 1 << 30;
const RETRY_TIMEOUT: Duration = Duration::from_secs(120);

/// Where reading a partition begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Start {
    /// The oldest record there is.
    Earliest,
    /// Only what comes after the reader has begun.
    #[default]
    Latest,
    /// This offset. Below the log's start or above its end the partition's reading fails with OFFSET_OUT_OF_RANGE.
    Offset(Offset),
    /// The first record with a timestamp at or after this, ms since 1970; the end when there is none.
    Time(i64),
}

/// Makes a [`Reader`].
#[must_use = "a builder does nothing until build()"]
pub struct ReaderBuilder {
    core: Arc<Core>,
    topic: String,
    start: Start,
    starts: BTreeMap<u32, Start>,
    partitions: Option<Vec<u32>>,
    interceptors: Vec<Arc<dyn Interceptor>>,
    pub(super) config: ReaderConfig,
}

#[derive(Debug, Clone, Copy)]
pub(crate) struct ReaderConfig {
    pub(crate) follow: bool,
    pub(crate) bytes_in_flight_max: u32,
    pub(crate) retry_timeout: Duration,
}

impl ReaderBuilder {
    pub(crate) fn new(core: Arc<Core>, topic: String) -> Self {
        Self {
            core,
            topic,
            start: Start::default(),
            starts: BTreeMap::new(),
            partitions: None,
            interceptors: Vec::new(),
            config: ReaderConfig {
                follow: true,
                bytes_in_flight_max: BYTES_IN_FLIGHT,
                retry_timeout: RETRY_TIMEOUT,
            },
        }
    }

    /// Where reading begins. Default [`Start::Latest`].
    pub fn start(mut self, start: Start) -> Self {
        self.start = start;
        self
    }

    /// Where reading one partition begins.
    pub fn start_at(mut self, partition: u32, start: Start) -> Self {
        self.starts.insert(partition, start);
        self
    }

    /// Which partitions are read. Default: all that the topic has now.
    pub fn partitions(mut self, partitions: impl IntoIterator<Item = u32>) -> Self {
        self.partitions = Some(partitions.into_iter().collect());
        self
    }

    /// Whether to wait for more at the end (default) or to stop there.
    pub fn follow(mut self, follow: bool) -> Self {
        self.config.follow = follow;
        self
    }

    /// Most bytes that are fetched ahead, over all partitions. Default 16 MiB; 64 KiB to 1 GiB.
    pub fn max_bytes_in_flight(mut self, max_bytes: u32) -> Self {
        self.config.bytes_in_flight_max = max_bytes;
        self
    }

    /// How long a partition may be out of reach before the reader says so by an error; it goes on trying afterwards. Default 2 min.
    pub fn retry_timeout(mut self, retry_timeout: Duration) -> Self {
        self.config.retry_timeout = retry_timeout;
        self
    }

    /// Adds an interceptor: it sees this reader's records, in the reverse order of these calls and before the client's interceptors.
    pub fn interceptor(mut self, interceptor: impl Interceptor) -> Self {
        self.interceptors.push(Arc::new(interceptor));
        self
    }

    /// Resolves the topic, which is never created; begins to fetch.
    ///
    /// # Errors
    /// Invalid: an option out of its bounds, or a partition that the topic does not have. Otherwise why the topic could not be
    /// resolved within the client's request time-out. Cancel-safe.
    pub async fn build(self) -> Result<Reader, Error> {
        let bytes = self.config.bytes_in_flight_max;
        if !(BYTES_IN_FLIGHT_MIN..=BYTES_IN_FLIGHT_MAX).contains(&bytes) {
            return Err(Error::invalid(format!(
                "max_bytes_in_flight is {bytes}; {BYTES_IN_FLIGHT_MIN} to {BYTES_IN_FLIGHT_MAX} are allowed"
            )));
        }
        let topic = Topic::open(Arc::clone(&self.core), &self.topic, false).await?;
        let count = topic.partitions();
        let mut partitions = self.partitions.unwrap_or_else(|| (0..count).collect());
        partitions.sort_unstable();
        partitions.dedup();
        let named = partitions.iter().chain(self.starts.keys());
        if let Some(wrong) = named.copied().find(|partition| *partition >= count) {
            return Err(Error::invalid(format!(
                "partition {wrong} does not exist; topic {} has {count} (0 to {})",
                topic.name,
                count - 1
            )));
        }
        let start_of = |partition| *self.starts.get(&partition).unwrap_or(&self.start);
        let starts = partitions
            .into_iter()
            .map(|partition| (partition, start_of(partition)));
        let chain = self.core.interceptors.and(&self.interceptors);
        let starts = starts.collect();
        let reader = Reader::begin(self.core, topic, starts, self.config);
        Ok(reader.with_interceptors(chain))
    }
}
