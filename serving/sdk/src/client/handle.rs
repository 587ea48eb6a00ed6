//! The client's handle and what its children share.

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use hulse_proto::time::WallClock;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::ClientBuilder;
use crate::admin::Admin;
use crate::connect::{Broker, Connect, Pool};
use crate::consumer::{QueueConsumerBuilder, StreamConsumerBuilder, SubscriptionConsumerBuilder};
use crate::error::Error;
use crate::interceptor::{Chain, Interceptor};
use crate::producer::ProducerBuilder;
use crate::reader::ReaderBuilder;
use crate::session::Sessions;

/// A client of one Hulse cluster. Cheap to clone; all clones share connections. Dials lazily and redials by itself after 10 to 200 ms,
/// jittered. Must be used within a tokio runtime.
#[derive(Clone)]
pub struct Client {
    core: Arc<Core>,
}

/// What the handles of one client share.
pub(crate) struct Core {
    /// As given; each knows the way to every partition.
    pub(super) brokers: Vec<Broker>,
    /// Others, as look-ups named them: for the time when those that were given do not answer.
    pub(super) learned: Mutex<Vec<Broker>>,
    /// The one that answered last, of those that were given or learned.
    pub(super) preferred: Mutex<Broker>,
    pub(crate) request_timeout: Duration,
    pub(crate) client_id: String,
    pub(crate) pool: Pool,
    pub(crate) sessions: Sessions,
    pub(crate) clock: Arc<dyn WallClock>,
    pub(crate) interceptors: Chain,
    rng: Mutex<ChaCha8Rng>,
}

pub(super) struct Parts {
    pub(super) brokers: Vec<Broker>,
    pub(super) client_id: String,
    pub(super) request_timeout: Duration,
    pub(super) connect: Arc<dyn Connect>,
    pub(super) clock: Arc<dyn WallClock>,
    pub(super) seed: Option<[u8; 32]>,
    pub(super) interceptors: Vec<Arc<dyn Interceptor>>,
}

impl Client {
    /// Begins a client of `endpoints`: one or several brokers as `grpc://host:port` or `host:port`, separated by commas. Any of
    /// them finds the others.
    pub fn builder(endpoints: impl AsRef<str>) -> ClientBuilder {
        ClientBuilder::new(endpoints.as_ref())
    }

    pub(super) fn from_parts(parts: Parts) -> Self {
        let rng = match parts.seed {
            Some(seed) => ChaCha8Rng::from_seed(seed),
            None => ChaCha8Rng::from_os_rng(),
        };
        let core = Core {
            preferred: Mutex::new(parts.brokers[0].clone()),
            brokers: parts.brokers,
            learned: Mutex::default(),
            request_timeout: parts.request_timeout,
            client_id: parts.client_id,
            pool: Pool::new(parts.connect),
            sessions: Sessions::default(),
            clock: parts.clock,
            interceptors: Chain::default().and(&parts.interceptors),
            rng: Mutex::new(rng),
        };
        Self {
            core: Arc::new(core),
        }
    }

    /// Begins a producer to `topic`: a name or `tenant/namespace/name`.
    pub fn producer(&self, topic: impl Into<String>) -> ProducerBuilder {
        ProducerBuilder::new(Arc::clone(&self.core), topic.into())
    }

    /// Begins a reader of `topic`. It leaves no state on the server.
    pub fn reader(&self, topic: impl Into<String>) -> ReaderBuilder {
        ReaderBuilder::new(Arc::clone(&self.core), topic.into())
    }

    /// Begins a consumer of `topic` by a subscription: it gets each record until it acknowledges it, over any number of restarts.
    pub fn consumer(&self, topic: impl Into<String>) -> SubscriptionConsumerBuilder {
        SubscriptionConsumerBuilder::new(Arc::clone(&self.core), topic.into())
    }

    /// Begins a consumer of `topic` that shares the records of a subscription with others, record by record.
    pub fn queue_consumer(&self, topic: impl Into<String>) -> QueueConsumerBuilder {
        QueueConsumerBuilder::new(Arc::clone(&self.core), topic.into())
    }

    /// Begins a member of a group, which shares the partitions of these topics with its other members, those of the Kafka wire too.
    pub fn stream_consumer<T: Into<String>>(
        &self,
        topics: impl IntoIterator<Item = T>,
    ) -> StreamConsumerBuilder {
        let topics = topics.into_iter().map(Into::into).collect();
        StreamConsumerBuilder::new(Arc::clone(&self.core), topics)
    }

    /// Topics, subscriptions and ledgers.
    pub fn admin(&self) -> Admin {
        Admin::new(Arc::clone(&self.core))
    }

    /// Finds one broker that answers: for "is it up?".
    ///
    /// # Errors
    /// The last attempt's, after the request time-out. Cancel-safe.
    pub async fn ping(&self) -> Result<(), Error> {
        self.core.resolve(Vec::new(), false).await.map(drop)
    }
}

impl Core {
    /// A generator of its own for one task, so that tasks do not contend and one seed fixes all.
    pub(crate) fn child_rng(&self) -> ChaCha8Rng {
        let mut rng = self.rng.lock().unwrap_or_else(PoisonError::into_inner);
        ChaCha8Rng::from_seed(rng.random())
    }
}

impl fmt::Debug for Client {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Client")
            .field("brokers", &self.core.brokers)
            .finish_non_exhaustive()
    }
}
