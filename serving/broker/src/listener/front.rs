//! What all services share: the collaborators, and how a request is let in, counted and answered.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bookie_metadata::MetadataStore;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::PartitionId;
use hulse_proto::wire::v1;
use tokio::sync::Semaphore;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tonic::{Response, Status};

use super::arrivals::Arrivals;
use super::identity::ProducerIds;
use super::ingress::Ingress;
use super::letters;
use super::peers::Peers;
use crate::authorise::{Action, Principal, Resource, authorise};
use crate::backlogs::Board;
use crate::balance::Balance;
use crate::drain_order::DrainOrder;
use crate::groups::Groups;
use crate::metrics::Metrics;
use crate::subscriptions::Subscriptions;
use crate::topics::Topics;
use crate::{BrokerConfig, Partitions, StorageDamage};

/// What a front is made of.
pub(crate) struct FrontParts {
    pub(crate) config: BrokerConfig,
    pub(crate) partitions: Partitions,
    pub(crate) topics: Topics,
    pub(crate) metadata: Arc<dyn MetadataStore>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) storage_damage: Option<StorageDamage>,
    pub(crate) order: DrainOrder,
}

/// The broker as its listeners see it. Shared by all of them; what those of other crates may use is in `seam`.
pub struct Front {
    pub(crate) config: BrokerConfig,
    pub(crate) partitions: Partitions,
    pub(crate) topics: Topics,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) subscriptions: Subscriptions,
    /// Coordinators of consumer groups.
    pub(crate) groups: Groups,
    /// What was seen of backlogs last.
    pub(crate) backlogs: Board,
    /// What this broker has to do, and did as balancer.
    pub(crate) balance: Balance,
    /// Partitions that come from other brokers.
    pub(super) arrivals: Arrivals,
    pub(crate) metadata: Arc<dyn MetadataStore>,
    /// What the bookie in this process knows of damage, if there is one.
    pub(super) storage_damage: Option<StorageDamage>,
    /// Numbers the sessions of consumers.
    credit_epochs: AtomicU64,
    pub(super) producer_ids: ProducerIds,
    pub(super) ingress: Ingress,
    /// The other brokers.
    pub(super) peers: Peers,
    /// What the operator wants of it.
    pub(super) order: DrainOrder,
    /// What reads may hold ahead of their connections, bytes.
    pub(super) read_ahead: Arc<Semaphore>,
    /// Sessions and reads; shutdown waits for them.
    pub(crate) tasks: TaskTracker,
    /// No new work; sessions answer what they hold and end.
    pub(crate) drain: CancellationToken,
    /// Draining took too long: end at once.
    pub(crate) kill: CancellationToken,
}

impl Front {
    /// Must be called in a tokio runtime: it starts the tasks that hand out producer ids and carry dead letters.
    pub(crate) fn new(parts: FrontParts) -> Arc<Self> {
        let gauge = parts.metrics.ingress_bytes().clone();
        let posted = parts.partitions.with.letters.open();
        let front = Arc::new(Self {
            ingress: Ingress::new(parts.config.ingress_bytes, gauge),
            read_ahead: Arc::new(Semaphore::new(
                parts.config.read_ahead_bytes.min(Semaphore::MAX_PERMITS),
            )),
            producer_ids: ProducerIds::start(parts.metadata.clone()),
            subscriptions: Subscriptions::new(parts.metadata.clone(), parts.topics.clone()),
            groups: Groups::default(),
            backlogs: Board::default(),
            balance: Balance::new(parts.config.balance),
            arrivals: Arrivals::default(),
            storage_damage: parts.storage_damage,
            peers: Peers::default(),
            order: parts.order,
            credit_epochs: AtomicU64::new(1),
            metadata: parts.metadata,
            config: parts.config,
            partitions: parts.partitions,
            topics: parts.topics,
            metrics: parts.metrics,
            tasks: TaskTracker::new(),
            drain: CancellationToken::new(),
            kill: CancellationToken::new(),
        });
        if let Some(posted) = posted {
            tokio::spawn(letters::carry(Arc::downgrade(&front), posted));
        }
        front
    }

    /// A number that no other session of this life of the broker has.
    pub(super) fn next_credit_epoch(&self) -> u64 {
        self.credit_epochs.fetch_add(1, Ordering::Relaxed)
    }

    /// Asks the one door.
    ///
    /// # Errors
    /// `PERMISSION_DENIED` or `UNAUTHENTICATED`, once there are rules.
    pub fn allow(&self, action: Action, resource: Resource<'_>) -> Result<(), Fault> {
        if let Resource::TopicId(id) = resource
            && matches!(action, Action::Produce | Action::Consume | Action::Delete)
            && self.topics.is_internal(id)
        {
            // What the name refuses the identity refuses too. Brokers move its partitions by identity, which is an operator's work.
            let why = format!("topic {} is the cell's own", id.0);
            return Err(Fault::new(Reason::PermissionDenied, why));
        }
        authorise(&Principal::Anonymous, action, resource)
    }

    /// Runs one unary request of `api`, counts it and gives its answer the form of the wire.
    pub(super) async fn answer<T>(
        &self,
        api: &'static str,
        work: impl Future<Output = Result<T, Fault>>,
    ) -> Result<Response<T>, Status> {
        let began = Instant::now();
        let result = if self.drain.is_cancelled() {
            Err(shutting_down())
        } else {
            work.await
        };
        self.metrics.request(api, result.as_ref().map(|_| ()));
        self.metrics.request_took(api, began.elapsed());
        result.map(Response::new).map_err(|fault| fault.to_status())
    }

    /// Where clients find a partition, as far as is known without reading.
    pub(super) fn owner_of(&self, partition: PartitionId) -> v1::PartitionOwner {
        let owners = &self.partitions.with.owners;
        let open = self.partitions.opened(partition);
        let there = match open {
            Some(_) => None,
            None => owners.to_wire(partition, &owners.place(partition)),
        };
        there.unwrap_or_else(|| v1::PartitionOwner {
            index: partition.index,
            endpoint: self.config.advertised.clone(),
            leader_epoch: open.map_or(0, |open| open.leader_epoch().0),
            broker: self.config.name.as_str().to_owned(),
            revision: owners.revision().0,
        })
    }

    /// "host:port" of every broker that lives.
    pub(super) fn endpoints(&self) -> Vec<String> {
        let live = self.partitions.with.owners.brokers();
        match live.is_empty() {
            true => vec![self.config.advertised.clone()],
            false => live.iter().map(|live| live.endpoint.to_string()).collect(),
        }
    }
}

/// "Look elsewhere, or wait."
pub(crate) fn shutting_down() -> Fault {
    let words = "broker is shutting down; look the partition up again and retry";
    Fault::new(Reason::ShuttingDown, words).retry_after(std::time::Duration::from_millis(100))
}
