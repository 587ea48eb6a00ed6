//! What the handles and tasks of one consumer share.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures::FutureExt;
use futures::future::{BoxFuture, Shared as SharedFuture};
use hulse_proto::id::TopicId;
use hulse_proto::wire::v1;
use rand_chacha::ChaCha8Rng;
use tokio::sync::{Notify, mpsc};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::session::{Up, open};
use crate::client::{Core, Topic};
use crate::connect::Broker;
use crate::consumer::core::{ConsumerCore, SessionId, Wanted};
use crate::error::Error;

type Opening = SharedFuture<BoxFuture<'static, Result<SessionId, Error>>>;

/// Everything that a consumer is.
pub(in crate::consumer) struct Shared {
    pub(in crate::consumer) client: Arc<Core>,
    pub(in crate::consumer) topic: Topic,
    /// The topic as first resolved: another one of the same name is not consumed.
    pub(super) topic_id: TopicId,
    inside: Mutex<Inside>,
    /// By broker; as many as the cluster has.
    openings: Mutex<BTreeMap<Broker, Opening>>,
    /// There is something new to be handed out.
    pub(in crate::consumer) news: Notify,
    /// The control task has something to look at.
    pub(super) wake: Notify,
    /// Ends every task.
    pub(in crate::consumer) stop: CancellationToken,
    /// Ends the task that attaches.
    pub(in crate::consumer) stop_control: CancellationToken,
    pub(in crate::consumer) tasks: TaskTracker,
}

struct Inside {
    core: ConsumerCore,
    links: BTreeMap<SessionId, mpsc::UnboundedSender<Up>>,
    /// Nothing more is said; the brokers end their streams.
    hung_up: bool,
}

/// What a consumer is made from.
pub(in crate::consumer) struct Parts {
    pub(in crate::consumer) client: Arc<Core>,
    pub(in crate::consumer) topic: Topic,
    pub(in crate::consumer) partitions: Vec<u32>,
    pub(in crate::consumer) wanted: Wanted,
    pub(in crate::consumer) rng: ChaCha8Rng,
}

impl Shared {
    pub(in crate::consumer) fn new(parts: Parts) -> Result<Self, Error> {
        let (topic_id, _) = parts.topic.owner(0)?;
        let stop = CancellationToken::new();
        let core = ConsumerCore::new(parts.wanted, parts.partitions, parts.rng, Instant::now());
        Ok(Self {
            client: parts.client,
            topic: parts.topic,
            topic_id,
            inside: Mutex::new(Inside {
                core,
                links: BTreeMap::new(),
                hung_up: false,
            }),
            openings: Mutex::default(),
            news: Notify::new(),
            wake: Notify::new(),
            stop_control: stop.child_token(),
            stop,
            tasks: TaskTracker::new(),
        })
    }

    /// Lets the caller into the core, and does what it leaves to be done.
    pub(in crate::consumer) fn with<T>(&self, work: impl FnOnce(&mut ConsumerCore) -> T) -> T {
        let mut inside = self.lock();
        let done = work(&mut inside.core);
        let mut sought = Vec::new();
        let (mut wake, mut news) = (false, false);
        loop {
            let out = inside.core.take_out();
            for (session, item) in out.sends {
                if let Some(link) = inside.links.get(&session) {
                    let _ = link.send(Up { item: Some(item) });
                }
            }
            sought.extend(out.sought);
            wake |= out.wake;
            news |= out.news;
            if out.broken.is_empty() {
                break;
            }
            for (session, error) in out.broken {
                tracing::warn!(%error, "broker breaks the protocol; the session is opened anew");
                inside.links.remove(&session);
                inside.core.session_lost(session, &error, Instant::now());
            }
        }
        drop(inside);
        for (answer, result) in sought {
            let _ = answer.send(result);
        }
        if news {
            self.news.notify_waiters();
        }
        if wake {
            self.wake.notify_one();
        }
        done
    }

    /// A broker greeted: the session's name, and the way to it.
    pub(super) fn session_opened(
        &self,
        welcome: &v1::ConsumeWelcome,
        link: mpsc::UnboundedSender<Up>,
    ) -> SessionId {
        let mut inside = self.lock();
        let id = inside.core.session_opened(welcome);
        inside.links.insert(id, link);
        drop(inside);
        // Sends the first credit.
        self.with(|_| ());
        id
    }

    /// A session ended.
    pub(super) fn session_lost(&self, id: SessionId, error: &Error) {
        self.lock().links.remove(&id);
        self.with(|core| core.session_lost(id, error, Instant::now()));
    }

    /// True until it ended.
    fn is_live(&self, id: SessionId) -> bool {
        self.lock().links.contains_key(&id)
    }

    /// True when a session ended for what its broker said.
    pub(super) fn was_left(&self, id: SessionId) -> bool {
        let inside = self.lock();
        !inside.hung_up && !inside.links.contains_key(&id)
    }

    /// Says nothing more to any broker: each answers by ending its stream.
    pub(in crate::consumer) fn hang_up(&self) {
        let mut inside = self.lock();
        inside.hung_up = true;
        inside.links.clear();
    }

    pub(super) fn next_deadline(&self) -> Option<Instant> {
        self.lock().core.next_deadline()
    }

    /// The session with a broker: the live one, the one that is being opened, or a new one. One attempt.
    ///
    /// # Errors
    /// Why it could not be opened. Cancel-safe: an attempt goes on for those who still wait.
    pub(super) async fn session(self: &Arc<Self>, broker: &Broker) -> Result<SessionId, Error> {
        let opening = self.opening(broker)?;
        opening.await
    }

    fn opening(self: &Arc<Self>, broker: &Broker) -> Result<Opening, Error> {
        let mut openings = self.openings.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(opening) = openings.get(broker) {
            let usable = match opening.peek() {
                None => true,
                Some(Ok(id)) => self.is_live(*id),
                Some(Err(_)) => false,
            };
            if usable {
                return Ok(opening.clone());
            }
        }
        // A connection of its own: a consumer that does not take its records fills the connection's window (serving.md E1.3).
        let channel = self.client.pool.dedicated(broker)?;
        let opening = open(Arc::clone(self), channel).boxed().shared();
        openings.insert(broker.clone(), opening.clone());
        Ok(opening)
    }

    fn lock(&self) -> MutexGuard<'_, Inside> {
        self.inside.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
