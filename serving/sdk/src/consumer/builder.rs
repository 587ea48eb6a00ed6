//! What a consumer is made from.

use std::sync::Arc;

use hulse_proto::wire::v1;
use rand::Rng;
use tokio::time::timeout;

use super::core::Wanted;
use super::handle::{Handle, SubscriptionConsumer, not_attached};
use super::kind::{SubscriptionType, start_at};
use super::link::{Parts, Shared, control};
use crate::client::{Core, Topic};
use crate::error::Error;
use crate::interceptor::Interceptor;
use crate::producer::DeliveryMode;
use crate::reader::Start;

const QUEUE_RECORDS: u32 = 5_000;
const QUEUE_BYTES: u32 = 16 << 20;
/// So much of a queue makes no sense.
const QUEUE_BYTES_MAX: u32 = 1 << 30;
const QUEUE_RECORDS_MAX: u32 = 10_000_000;
/// Longest consumer name.
const NAME_BYTES_MAX: usize = 249;

/// Makes a [`SubscriptionConsumer`].
#[must_use = "a builder does nothing until build()"]
pub struct SubscriptionConsumerBuilder {
    core: Arc<Core>,
    topic: String,
    subscription: String,
    kind: SubscriptionType,
    name: Option<String>,
    priority: i32,
    takeover: bool,
    start: Option<Start>,
    hold: Option<bool>,
    partitions: Option<Vec<u32>>,
    mode: DeliveryMode,
    tell_end: bool,
    queue_records: u32,
    queue_bytes: u32,
    unacked_max: u64,
    interceptors: Vec<Arc<dyn Interceptor>>,
}

impl SubscriptionConsumerBuilder {
    pub(crate) fn new(core: Arc<Core>, topic: String) -> Self {
        Self {
            core,
            topic,
            subscription: String::new(),
            kind: SubscriptionType::default(),
            name: None,
            priority: 0,
            takeover: false,
            start: None,
            hold: None,
            partitions: None,
            mode: DeliveryMode::default(),
            tell_end: false,
            queue_records: QUEUE_RECORDS,
            queue_bytes: QUEUE_BYTES,
            unacked_max: u64::MAX,
            interceptors: Vec::new(),
        }
    }

    /// Name of the subscription; must be given. A short name is of the topic's namespace. It is made when it does not exist.
    pub fn subscription(mut self, subscription: impl Into<String>) -> Self {
        self.subscription = subscription.into();
        self
    }

    /// Its type. Default [`SubscriptionType::Exclusive`]. One that exists with another type refuses the consumer.
    pub fn subscription_type(mut self, kind: SubscriptionType) -> Self {
        self.kind = kind;
        self
    }

    /// Name of this consumer. It orders the consumers of a FAILOVER subscription, and tells people who they are. Default: the client id
    /// and eight letters drawn by chance. At most 249 bytes.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// FAILOVER: consumers of the highest priority come first. Default 0.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
        self
    }

    /// EXCLUSIVE: ends the consumer that is attached, instead of being refused. Default false.
    pub fn takeover(mut self, takeover: bool) -> Self {
        self.takeover = takeover;
        self
    }

    /// Where the subscription begins if it does not have this topic yet; one that has goes on where it is. Default [`Start::Latest`].
    pub fn start(mut self, start: Start) -> Self {
        self.start = Some(start);
        self
    }

    /// Whether a subscription that is made keeps records until they are acknowledged, whatever retention says. Default true.
    pub fn hold(mut self, hold: bool) -> Self {
        self.hold = Some(hold);
        self
    }

    /// Which partitions are consumed. Default: all that the topic has now.
    pub fn partitions(mut self, partitions: impl IntoIterator<Item = u32>) -> Self {
        self.partitions = Some(partitions.into_iter().collect());
        self
    }

    /// The delivery mode. Default [`DeliveryMode::AtLeastOnce`]. With [`DeliveryMode::AtMostOnce`] each stored batch is acknowledged, and
    /// its receipt awaited, before the first of its records is handed out: a crash loses at most the rest of that batch.
    pub fn delivery_mode(mut self, mode: DeliveryMode) -> Self {
        self.mode = mode;
        self
    }

    /// Whether [`crate::ConsumerNote::EndOfPartition`] is told each time that everything stored was delivered. Default false.
    pub fn tell_end(mut self, tell_end: bool) -> Self {
        self.tell_end = tell_end;
        self
    }

    /// Most records that wait to be handed out, over all partitions; a stored batch may go over it. Default 5,000.
    pub fn receive_queue_records(mut self, records: u32) -> Self {
        self.queue_records = records;
        self
    }

    /// Most bytes of them likewise. Default 16 MiB, at most 1 GiB.
    pub fn receive_queue_bytes(mut self, bytes: u32) -> Self {
        self.queue_bytes = bytes;
        self
    }

    /// Most records that are handed out and not acknowledged, over all partitions; then nothing is handed out until some are. Default:
    /// what brokers allow. At least 1.
    pub fn max_unacked(mut self, records: u64) -> Self {
        self.unacked_max = records;
        self
    }

    /// Adds an interceptor: it sees this consumer's records, in the reverse order of these calls and before the client's interceptors.
    pub fn interceptor(mut self, interceptor: impl Interceptor) -> Self {
        self.interceptors.push(Arc::new(interceptor));
        self
    }

    /// Resolves the topic, which is never created, and attaches every partition.
    ///
    /// # Errors
    /// Invalid: an option out of its bounds. CONSUMER_EXISTS: an EXCLUSIVE subscription has its consumer. SUBSCRIPTION_EXISTS: it has
    /// another type. Otherwise why a partition could not be attached within the client's request time-out. Cancel-safe: what was
    /// attached is detached.
    pub async fn build(self) -> Result<SubscriptionConsumer, Error> {
        self.check()?;
        let topic = Topic::open(Arc::clone(&self.core), &self.topic, false).await?;
        let mut partitions = match self.partitions.clone() {
            Some(partitions) => partitions,
            None => (0..topic.partitions()).collect(),
        };
        partitions.sort_unstable();
        partitions.dedup();
        if let Some(wrong) = partitions
            .iter()
            .find(|index| **index >= topic.partitions())
        {
            let count = topic.partitions();
            return Err(Error::invalid(format!(
                "partition {wrong} does not exist; topic {} has {count} (0 to {})",
                topic.name,
                count - 1
            )));
        }
        if partitions.is_empty() {
            return Err(Error::invalid("partitions() names none"));
        }
        let mut rng = self.core.child_rng();
        let name = self.name.clone().unwrap_or_else(|| {
            let chance: u32 = rng.random();
            format!("{}-{chance:08x}", self.core.client_id)
        });
        let shared = Arc::new(Shared::new(Parts {
            client: Arc::clone(&self.core),
            topic,
            partitions,
            wanted: self.wanted(&name),
            rng,
        })?);
        let consumer = SubscriptionConsumer::new(Handle {
            shared: Arc::clone(&shared),
            name,
            subscription: self.subscription,
            mode: self.mode,
            interceptors: self.core.interceptors.and(&self.interceptors),
        });
        shared.tasks.spawn(control(Arc::clone(&shared)));
        let waited = self.core.request_timeout;
        match timeout(waited, begun(&shared)).await {
            Ok(begun) => begun.map(|()| consumer),
            Err(_) => Err(not_attached(shared.with(|core| core.trouble()), waited)),
        }
    }

    fn wanted(&self, name: &str) -> Wanted {
        let policies = self.hold.map(|hold| v1::SubscriptionPolicies {
            hold: Some(hold),
            ..v1::SubscriptionPolicies::default()
        });
        Wanted {
            attach: v1::Attach {
                subscription: self.subscription.clone(),
                r#type: self.kind.to_wire() as i32,
                consumer_name: name.to_owned(),
                priority: self.priority,
                takeover: self.takeover,
                start: self.start.map(start_at),
                policies,
                tell_end: self.tell_end,
                ..v1::Attach::default()
            },
            queue_records: self.queue_records,
            queue_bytes: self.queue_bytes,
            unacked_max: self.unacked_max,
        }
    }

    fn check(&self) -> Result<(), Error> {
        let within = |name: &str, found: u64, max: u64| match found {
            _ if (1..=max).contains(&found) => Ok(()),
            _ => Err(Error::invalid(format!(
                "{name} is {found}; 1 to {max} are allowed"
            ))),
        };
        within(
            "receive_queue_records",
            self.queue_records.into(),
            QUEUE_RECORDS_MAX.into(),
        )?;
        within(
            "receive_queue_bytes",
            self.queue_bytes.into(),
            QUEUE_BYTES_MAX.into(),
        )?;
        within("max_unacked", self.unacked_max, u64::MAX)?;
        if self.subscription.is_empty() {
            return Err(Error::invalid(
                "a consumer needs the name of its subscription()",
            ));
        }
        if !matches!(
            self.kind,
            SubscriptionType::Exclusive | SubscriptionType::Failover
        ) {
            let words = format!(
                "consumers of a {} subscription share its records; begin one with queue_consumer()",
                self.kind
            );
            return Err(Error::invalid(words));
        }
        let name_bytes = self.name.as_ref().map_or(1, String::len);
        within(
            "the length of name()",
            name_bytes as u64,
            NAME_BYTES_MAX as u64,
        )
    }
}

/// Until every partition was attached, or one cannot be.
async fn begun(shared: &Shared) -> Result<(), Error> {
    loop {
        let news = shared.news.notified();
        let mut news = std::pin::pin!(news);
        news.as_mut().enable();
        if let Some(outcome) = shared.with(|core| core.has_begun()) {
            return outcome;
        }
        news.await;
    }
}
