//! What a member of a group is made from.

use std::sync::Arc;
use std::time::Duration;

use hulse_proto::id::TopicName;
use rand::RngCore;
use tokio::sync::mpsc;
use tokio::time::timeout;
use uuid::Uuid;

use super::handle::StreamConsumer;
use super::member::Member;
use super::shared::{Settings, Shared};
use crate::client::Core;
use crate::consumer::start_at;
use crate::error::Error;
use crate::interceptor::Interceptor;
use crate::producer::DeliveryMode;
use crate::reader::Start;

/// Messages that wait to be taken; their bytes are bounded by `max_bytes_in_flight`.
const QUEUE_MAX: usize = 1_024;
const BYTES_IN_FLIGHT: u32 = 16 << 20;
const BYTES_IN_FLIGHT_MIN: u32 = 64 << 10;
const BYTES_IN_FLIGHT_MAX: u32 = 1 << 30;
const HAND_OVER: Duration = Duration::from_secs(30);
const HAND_OVER_MAX: Duration = Duration::from_secs(3_600);

/// Makes a [`StreamConsumer`].
#[must_use = "a builder does nothing until build()"]
pub struct StreamConsumerBuilder {
    core: Arc<Core>,
    settings: Settings,
    start: Option<Start>,
    interceptors: Vec<Arc<dyn Interceptor>>,
}

impl StreamConsumerBuilder {
    pub(crate) fn new(core: Arc<Core>, topics: Vec<String>) -> Self {
        Self {
            core,
            settings: Settings {
                group: String::new(),
                topics,
                pattern: String::new(),
                instance: String::new(),
                start: None,
                hand_over: HAND_OVER,
                delivery: DeliveryMode::default(),
                bytes_in_flight_max: BYTES_IN_FLIGHT,
            },
            start: None,
            interceptors: Vec::new(),
        }
    }

    /// Name of the group, which is a subscription of type `stream`; must be given. A short name is of the first topic's namespace. It is
    /// made when it does not exist. A client of the Kafka wire calls it by its short name, if it is of `public/default`.
    pub fn group(mut self, group: impl Into<String>) -> Self {
        self.settings.group = group.into();
        self
    }

    /// Also topics whose whole name matches this regular expression, now and later. Names in `public/default` are matched without it.
    pub fn pattern(mut self, pattern: impl Into<String>) -> Self {
        self.settings.pattern = pattern.into();
        self
    }

    /// Names this member over its restarts: while its session lasts its partitions wait for it, and no others change. Default: none.
    pub fn instance(mut self, instance: impl Into<String>) -> Self {
        self.settings.instance = instance.into();
        self
    }

    /// Where the group begins on a topic that it does not have yet. It is resolved once for all partitions and members, and kept.
    /// Partitions that are added later begin at their start. Default: [`Start::Latest`], and [`Start::Earliest`] on a topic that was made
    /// after the group.
    pub fn start(mut self, start: Start) -> Self {
        self.start = Some(start);
        self
    }

    /// What becomes of records when something breaks. Default [`DeliveryMode::AtLeastOnce`]: nothing is committed but by the application.
    /// [`DeliveryMode::AtMostOnce`]: a batch is committed before its first record is handed out.
    pub fn delivery_mode(mut self, delivery: DeliveryMode) -> Self {
        self.settings.delivery = delivery;
        self
    }

    /// How long the application may be at work on what it has of partitions that go to others; then they go all the same, and what it did
    /// not commit is processed again there. Default 30 s, at most 1 h.
    pub fn hand_over(mut self, hand_over: Duration) -> Self {
        self.settings.hand_over = hand_over;
        self
    }

    /// Most bytes that are fetched ahead, over all partitions. Default 16 MiB; 64 KiB to 1 GiB.
    pub fn max_bytes_in_flight(mut self, max_bytes: u32) -> Self {
        self.settings.bytes_in_flight_max = max_bytes;
        self
    }

    /// Adds an interceptor: it sees this consumer's records, in the reverse order of these calls and before the client's interceptors.
    pub fn interceptor(mut self, interceptor: impl Interceptor) -> Self {
        self.interceptors.push(Arc::new(interceptor));
        self
    }

    /// Joins the group; answers when it has its first assignment, which may be without a partition.
    ///
    /// # Errors
    /// Invalid: an option out of its bounds, a name that is none. SUBSCRIPTION_EXISTS: the name is one of another type. Otherwise why
    /// the group could not be joined within the client's request time-out. Cancel-safe: a member that began to join is out when its
    /// session ends.
    pub async fn build(mut self) -> Result<StreamConsumer, Error> {
        self.check()?;
        self.settings.start = self.start.map(start_at);
        let waited = self.core.request_timeout;
        let (shared, consumer) = self.parts();
        let task = Member::new(Arc::clone(&shared)).run();
        shared.tasks.spawn(task);
        match timeout(waited, begun(&shared)).await {
            Ok(begun) => begun.map(|()| consumer),
            Err(_) => Err(shared.state().trouble.unwrap_or_else(|| {
                let words = format!("the group could not be joined within {waited:?}");
                Error::local(hulse_proto::error::ErrorKind::Unavailable, words)
            })),
        }
    }

    /// A member that nobody drives yet, and its handle.
    pub(super) fn parts(self) -> (Arc<Shared>, StreamConsumer) {
        let mut random = [0; 16];
        self.core.child_rng().fill_bytes(&mut random);
        let member: Uuid = uuid::Builder::from_random_bytes(random).into_uuid();
        let (fed, queue) = mpsc::channel(QUEUE_MAX);
        let chain = self.core.interceptors.and(&self.interceptors);
        let shared = Arc::new(Shared::new(
            Arc::clone(&self.core),
            self.settings,
            member.to_string(),
            fed,
        ));
        let consumer = StreamConsumer::new(Arc::clone(&shared), queue, chain);
        (shared, consumer)
    }

    fn check(&self) -> Result<(), Error> {
        let settings = &self.settings;
        if settings.group.is_empty() {
            return Err(Error::invalid("a member needs the name of its group()"));
        }
        if settings.topics.is_empty() && settings.pattern.is_empty() {
            return Err(Error::invalid("a member needs topics, or a pattern()"));
        }
        for topic in &settings.topics {
            topic.parse::<TopicName>()?;
        }
        let bytes = settings.bytes_in_flight_max;
        if !(BYTES_IN_FLIGHT_MIN..=BYTES_IN_FLIGHT_MAX).contains(&bytes) {
            return Err(Error::invalid(format!(
                "max_bytes_in_flight is {bytes}; {BYTES_IN_FLIGHT_MIN} to {BYTES_IN_FLIGHT_MAX} are allowed"
            )));
        }
        if settings.hand_over > HAND_OVER_MAX {
            let found = settings.hand_over;
            return Err(Error::invalid(format!(
                "hand_over is {found:?}; at most {HAND_OVER_MAX:?} are allowed"
            )));
        }
        Ok(())
    }
}

/// Until the first assignment came, or none will.
async fn begun(shared: &Shared) -> Result<(), Error> {
    loop {
        let news = shared.news.notified();
        let mut news = std::pin::pin!(news);
        // Before looking, so that nothing which comes in between is missed.
        news.as_mut().enable();
        if let Some(error) = shared.state().failed {
            return Err(error);
        }
        if shared.book().begun {
            return Ok(());
        }
        news.await;
    }
}
