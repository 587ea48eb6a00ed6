//! What the connections of a listener share, and what one of them tells its requests.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{NodeName, PartitionId, TopicId};
use serving_broker::{Action, Front, PartitionHandle, Resource, Topic};
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use uuid::Uuid;

use crate::fetch::{Sessions, Turn};
use crate::names;
use crate::requests::Owed;
use crate::wire::LargeFrames;

/// Refused connections are told of at most this often.
const COMPLAIN_EVERY: Duration = Duration::from_millis(100);

/// Longest time that a request waits for its topic to be found and its partition to be opened. An opening goes on, and is waited for
/// by the request that comes again.
pub(crate) const OPENING_MAX: Duration = Duration::from_secs(10);

/// What clients of a listener are told to dial.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Advertise {
    /// The address that they dialled.
    Auto,
    /// This host and port.
    Fixed(String, u16),
}

impl Advertise {
    /// What is told to a client that dialled `local`.
    pub(crate) fn to(&self, local: SocketAddr) -> (String, u16) {
        match self {
            Self::Auto => (local.ip().to_canonical().to_string(), local.port()),
            Self::Fixed(host, port) => (host.clone(), *port),
        }
    }
}

/// What the connections of one listener share.
pub(crate) struct Served {
    pub(crate) front: Arc<Front>,
    /// Number of this broker.
    pub(crate) node_id: i32,
    /// Identity of the cell, as clients print it.
    pub(crate) cluster_id: String,
    pub(crate) advertise: Advertise,
    /// Name of this listener.
    pub(crate) listener: String,
    /// Numbers of other brokers, as they were read.
    pub(crate) numbers: Mutex<BTreeMap<NodeName, i32>>,
    pub(crate) sessions: Sessions,
    /// Bytes that the decoded requests of waiting fetches may take.
    pub(crate) waiting: Arc<Semaphore>,
    /// Bytes that the decoded forms of large requests may take.
    pub(crate) decoded: Arc<Semaphore>,
    /// Answers of many rows that may be made at the same time.
    pub(crate) large: Arc<Semaphore>,
    /// Bytes of large frames that come.
    pub(crate) large_frames: LargeFrames,
    /// Turns of the longest answers, one at a time until it is written: metadata of more topics than other answers may have.
    pub(crate) longest: Arc<Semaphore>,
    /// When the last line about a refused connection was written.
    pub(crate) complained: Mutex<Option<Instant>>,
}

impl Served {
    /// Whether it is time for another line about a refused connection.
    pub(crate) fn complains(&self) -> bool {
        let mut last = self
            .complained
            .lock()
            .expect("no code panics while it holds this lock");
        let quiet = last.is_some_and(|at| at.elapsed() < COMPLAIN_EVERY);
        if !quiet {
            *last = Some(Instant::now());
        }
        !quiet
    }
}

/// One connection.
pub(crate) struct Link {
    pub(crate) served: Arc<Served>,
    /// Where this client is told to find us.
    pub(crate) host: String,
    pub(crate) port: u16,
    /// How many requests were read: a fetch that waits sees that others wait behind it.
    pub(crate) requests: watch::Sender<u64>,
    /// One answer to a fetch that is in memory though the broker has no room for it.
    pub(crate) lean: Arc<Semaphore>,
    /// With which partition the next fetch begins.
    pub(crate) turn: Mutex<Turn>,
    /// What its producers must send again before anything else.
    pub(crate) owed: Mutex<Owed>,
    /// Where the client is.
    pub(crate) peer: SocketAddr,
    /// The log has its line about what this client asks for and is not served.
    pub(crate) told: AtomicBool,
}

impl Link {
    /// The broker.
    pub(crate) fn front(&self) -> &Arc<Front> {
        &self.served.front
    }

    /// Says in the log that this client asks for what is not served: once for each connection, as clients ask again and again, and
    /// seldom enough for a flood of connections.
    pub(crate) fn not_served(&self, name: &str) {
        if !self.told.load(Ordering::Relaxed) && self.served.complains() {
            self.told.store(true, Ordering::Relaxed);
            tracing::info!(peer = %self.peer, name, "a Kafka client asks for a transactional id; transactions are not served yet");
        }
    }

    /// A topic by what a request calls it: its name, or from some version on its identity; looked for until `until`.
    ///
    /// # Errors
    /// `INVALID_NAME`, `TOPIC_NOT_FOUND`, `TOPIC_DELETING`, `METADATA_UNAVAILABLE`.
    pub(crate) async fn topic(&self, name: &str, id: Uuid, until: Instant) -> Result<Topic, Fault> {
        let found = tokio::time::timeout_at(until, self.find(name, id)).await;
        found.unwrap_or_else(|_| {
            let why = "metadata did not tell of the topic in time; ask again";
            Err(Fault::new(Reason::MetadataUnavailable, why))
        })
    }

    async fn find(&self, name: &str, id: Uuid) -> Result<Topic, Fault> {
        let topics = self.front().topics();
        if !id.is_nil() {
            let id = TopicId(id);
            return match topics.hint_of(id) {
                Some(topic) => Ok(topic),
                None => topics.find(id).await,
            };
        }
        let name = names::parse(name)?;
        match topics.hint(&name) {
            Some(topic) => Ok(topic),
            None => topics.resolve(&name, false).await,
        }
    }

    /// The open partition that a request names, once it is allowed; one that is closed is waited for until `until`, and its opening
    /// goes on. None is begun after that.
    ///
    /// # Errors
    /// `PERMISSION_DENIED`, `PARTITION_NOT_FOUND`, `PARTITION_LOADING`, and those of [`Front::open`].
    pub(crate) async fn open(
        &self,
        topic: &Topic,
        index: i32,
        action: Action,
        until: Instant,
    ) -> Result<PartitionHandle, Fault> {
        self.opened(topic, index, (action, until), false).await
    }

    /// The same for one who only reads: of a damaged partition what is certain.
    pub(crate) async fn open_to_read(
        &self,
        topic: &Topic,
        index: i32,
        until: Instant,
    ) -> Result<PartitionHandle, Fault> {
        let consume = Action::Consume;
        self.opened(topic, index, (consume, until), true).await
    }

    async fn opened(
        &self,
        topic: &Topic,
        index: i32,
        (action, until): (Action, Instant),
        to_read: bool,
    ) -> Result<PartitionHandle, Fault> {
        // By name, which says whose it is, however the request calls it.
        self.front().allow(action, Resource::Topic(&topic.name))?;
        let partition = partition(topic, index)?;
        let late = || {
            Fault::new(
                Reason::PartitionLoading,
                "the partition is being opened; ask again",
            )
        };
        let is_open = self.front().partitions().opened(partition).is_some();
        if !is_open && Instant::now() >= until {
            return Err(late());
        }
        let opening = async {
            match to_read {
                true => self.front().open_to_read(partition).await,
                false => self.front().open(partition).await,
            }
        };
        let opened = tokio::time::timeout_at(until, opening).await;
        opened.unwrap_or_else(|_| Err(late()))
    }
}

/// The partition of this index.
fn partition(topic: &Topic, index: i32) -> Result<PartitionId, Fault> {
    match u32::try_from(index) {
        // One more than what was last heard of may have come since; the broker looks.
        Ok(index) => Ok(PartitionId {
            topic: topic.id,
            index,
        }),
        Err(_) => {
            let words = format!("topic {} has no partition {index}", topic.name);
            Err(Fault::new(Reason::PartitionNotFound, words))
        }
    }
}
