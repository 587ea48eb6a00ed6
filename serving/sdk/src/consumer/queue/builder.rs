//! What a consumer of a shared subscription is made from.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use hulse_proto::wire::v1;
use rand::Rng;
use tokio::sync::mpsc;
use tokio::time::timeout;

use super::book::Book;
use super::handle::{Handle, QueueConsumer};
use super::lane::Lane;
use super::shared::{Parts, Shared};
use crate::admin::Sharing;
use crate::backoff::Backoff;
use crate::client::{Core, Topic};
use crate::consumer::core::Amount;
use crate::consumer::handle::not_attached;
use crate::consumer::kind::{SubscriptionType, start_at};
use crate::error::Error;
use crate::interceptor::Interceptor;
use crate::producer::DeliveryMode;
use crate::reader::Start;

const QUEUE_RECORDS: u32 = 1_000;
const QUEUE_BYTES: u32 = 16 << 20;
const QUEUE_RECORDS_MAX: u32 = 10_000_000;
const QUEUE_BYTES_MAX: u32 = 1 << 30;

/// Makes a [`QueueConsumer`].
#[must_use = "a builder does nothing until build()"]
pub struct QueueConsumerBuilder {
    core: Arc<Core>,
    topic: String,
    subscription: String,
    keyed: bool,
    name: Option<String>,
    priority: i32,
    start: Option<Start>,
    hold: Option<bool>,
    sharing: Option<Sharing>,
    ttl: Option<Duration>,
    slots: Vec<Range<u16>>,
    queue_records: u32,
    queue_bytes: u32,
    mode: DeliveryMode,
    interceptors: Vec<Arc<dyn Interceptor>>,
}

impl QueueConsumerBuilder {
    pub(crate) fn new(core: Arc<Core>, topic: String) -> Self {
        Self {
            core,
            topic,
            subscription: String::new(),
            keyed: false,
            name: None,
            priority: 0,
            start: None,
            hold: None,
            sharing: None,
            ttl: None,
            slots: Vec::new(),
            queue_records: QUEUE_RECORDS,
            queue_bytes: QUEUE_BYTES,
            mode: DeliveryMode::default(),
            interceptors: Vec::new(),
        }
    }

    /// Name of the subscription; must be given. A short name is of the topic's namespace. It is made when it does not exist.
    pub fn subscription(mut self, subscription: impl Into<String>) -> Self {
        self.subscription = subscription.into();
        self
    }

    /// Whether records of one key go to one consumer at a time, in order ([`SubscriptionType::Keyed`]). Default false:
    /// [`SubscriptionType::Queue`]. A subscription that exists with another type refuses the consumer.
    pub fn keyed(mut self, keyed: bool) -> Self {
        self.keyed = keyed;
        self
    }

    /// Name of this consumer, the same over restarts: keys go by it. Default: the client id and eight letters drawn by chance.
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = Some(name.into());
        self
    }

    /// Consumers of the highest priority that can take records get them. Default 0.
    pub fn priority(mut self, priority: i32) -> Self {
        self.priority = priority;
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

    /// Locks, attempts, dead letters, back-off and key order of a subscription that is made; one that exists has its own.
    pub fn sharing(mut self, sharing: Sharing) -> Self {
        self.sharing = Some(sharing);
        self
    }

    /// Of a subscription that is made: records that were appended longer ago count as processed. Default: none does.
    pub fn ttl(mut self, ttl: Duration) -> Self {
        self.ttl = Some(ttl);
        self
    }

    /// The slots of this consumer, half open, of 4,096; needed where the subscription has named slots ([`Sharing::named_slots`]) and refused
    /// elsewhere. May be called several times. The slot of a record is the upper 12 bits of murmur3 of its key.
    pub fn slots(mut self, slots: Range<u16>) -> Self {
        self.slots.push(slots);
        self
    }

    /// Most records that wait to be handed out, over all partitions; a stored batch may go over it. They are this consumer's: of long
    /// work a small number leaves more to the others. Default 1,000.
    pub fn receive_queue_records(mut self, records: u32) -> Self {
        self.queue_records = records;
        self
    }

    /// Most bytes of them likewise. Default 16 MiB, at most 1 GiB.
    pub fn receive_queue_bytes(mut self, bytes: u32) -> Self {
        self.queue_bytes = bytes;
        self
    }

    /// What becomes of a record when something breaks while it is processed. Default [`DeliveryMode::AtLeastOnce`]: nothing is acknowledged
    /// before the application does so. [`DeliveryMode::AtMostOnce`]: a record is handed over after its acknowledgement is durable, and
    /// never comes again, processed or not.
    pub fn delivery_mode(mut self, mode: DeliveryMode) -> Self {
        self.mode = mode;
        self
    }

    /// Adds an interceptor: it sees this consumer's records, in the reverse order of these calls and before the client's interceptors. A
    /// record that it refuses is returned as one that failed.
    pub fn interceptor(mut self, interceptor: impl Interceptor) -> Self {
        self.interceptors.push(Arc::new(interceptor));
        self
    }

    /// Resolves the topic, which is never created, and attaches every partition.
    ///
    /// # Errors
    /// Invalid: an option out of its bounds. SUBSCRIPTION_EXISTS: it has another type. Otherwise why a partition could not be attached
    /// within the client's request time-out. Cancel-safe: what was attached is detached.
    pub async fn build(self) -> Result<QueueConsumer, Error> {
        self.check()?;
        let topic = Topic::open(Arc::clone(&self.core), &self.topic, false).await?;
        let mut rng = self.core.child_rng();
        let name = self.name.clone().unwrap_or_else(|| {
            let chance: u32 = rng.random();
            format!("{}-{chance:08x}", self.core.client_id)
        });
        let partitions = topic.partitions();
        let share = |total: u32| (i64::from(total) / i64::from(partitions.max(1))).max(1);
        let room = Amount {
            records: share(self.queue_records),
            bytes: share(self.queue_bytes),
        };
        let (mut senders, mut receivers) = (BTreeMap::new(), Vec::new());
        for partition in 0..partitions {
            // Bounded by what the application has: each record is answered once.
            let (orders, receiver) = mpsc::unbounded_channel();
            receivers.push((partition, orders.downgrade(), receiver));
            senders.insert(partition, orders);
        }
        let shared = Arc::new(Shared::new(Parts {
            client: Arc::clone(&self.core),
            topic,
            attach: self.attach(&name),
            room,
            lanes: senders,
        })?);
        let consumer = QueueConsumer::new(Handle {
            shared: Arc::clone(&shared),
            name,
            subscription: self.subscription,
            mode: self.mode,
            interceptors: self.core.interceptors.and(&self.interceptors),
        });
        for (partition, back, orders) in receivers {
            let lane = Lane {
                partition,
                shared: Arc::clone(&shared),
                orders,
                back,
                rng: self.core.child_rng(),
                backoff: Backoff::new(),
                book: Book::default(),
                attachment: 0,
                handed_end: 0,
                closing: None,
            };
            shared.tasks.spawn(lane.run());
        }
        let waited = self.core.request_timeout;
        match timeout(waited, begun(&shared)).await {
            Ok(begun) => begun.map(|()| consumer),
            Err(_) => Err(not_attached(shared.last_trouble(), waited)),
        }
    }

    fn attach(&self, name: &str) -> v1::Attach {
        let kind = match self.keyed {
            true => SubscriptionType::Keyed,
            false => SubscriptionType::Queue,
        };
        let policies = v1::SubscriptionPolicies {
            hold: self.hold,
            sharing: self.sharing.as_ref().map(Sharing::to_wire),
            ttl_ms: self
                .ttl
                .map(|ttl| u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX)),
            paused_until_ms: None,
        };
        let slots = self.slots.iter().map(|slots| v1::SlotRange {
            first: slots.start.into(),
            end: slots.end.into(),
        });
        v1::Attach {
            subscription: self.subscription.clone(),
            r#type: kind.to_wire() as i32,
            consumer_name: name.to_owned(),
            priority: self.priority,
            start: self.start.map(start_at),
            policies: Some(policies),
            slots: slots.collect(),
            ..v1::Attach::default()
        }
    }

    fn check(&self) -> Result<(), Error> {
        let within = |name: &str, found: u32, max: u32| match found {
            _ if (1..=max).contains(&found) => Ok(()),
            _ => Err(Error::invalid(format!(
                "{name} is {found}; 1 to {max} are allowed"
            ))),
        };
        within(
            "receive_queue_records",
            self.queue_records,
            QUEUE_RECORDS_MAX,
        )?;
        within("receive_queue_bytes", self.queue_bytes, QUEUE_BYTES_MAX)?;
        if self.subscription.is_empty() {
            return Err(Error::invalid(
                "a consumer needs the name of its subscription()",
            ));
        }
        Ok(())
    }
}

/// Until every partition was attached, or one cannot be.
async fn begun(shared: &Shared) -> Result<(), Error> {
    loop {
        let news = shared.news.notified();
        let mut news = std::pin::pin!(news);
        news.as_mut().enable();
        if let Some(outcome) = shared.has_begun() {
            return outcome;
        }
        news.await;
    }
}
