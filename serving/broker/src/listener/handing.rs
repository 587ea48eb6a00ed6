//! A partition goes to another broker as planned: the new owner is asked whether it can take it, this one closes it, the other opens it.
//!
//! Before anything is closed, the new owner reads what it will need (`partition::ahead`), and this one writes down what would have to be
//! replayed (`partition::brief`), so that the pause is short. Clients that are sent to the new owner wait there (`arrivals`).
//!
//! Nothing of it is in metadata but the key that the new owner wins: cut short anywhere, the partition is still whose key it is. While
//! it is on its way, this broker names the new owner to whoever asks, and opens it not.

use std::sync::Arc;
use std::time::Duration;

use futures::future::join;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{NodeName, OwnerEpoch, PartitionId};
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::partition_work::Work;
use tokio::runtime::Handle;
use tokio::time::{Instant, sleep, timeout};

use super::front::Front;
use super::peers::work_on;
use super::wire::invalid;
use crate::Partitions;
use crate::owners::owner_of;
use crate::partition::{Claim, differs, read_ahead};
use crate::topics::Topics;

/// Time for giving partitions away at the end, beyond what their pace takes; the rest is taken over when the broker is gone.
const LEAVING: Duration = Duration::from_secs(20);
/// After a hand-over was given up half-way: until this broker opens the partition again, if nobody else did.
const GIVEN_UP: Duration = Duration::from_millis(200);
/// How often it tries: longer than a ledger takes to be closed.
const GIVEN_UP_TRIES: u32 = 50;

impl Front {
    /// Gives a partition that is open here to another broker. Answers the epoch under which that one serves it.
    ///
    /// # Errors
    /// `PRECONDITION_FAILED`: no such broker lives, or it leaves; `PARTITION_MOVED`; what the new owner says: then it is served here on.
    pub(in crate::listener) async fn hand_over(
        &self,
        id: PartitionId,
        to: &NodeName,
    ) -> Result<OwnerEpoch, Fault> {
        let open = self.open(id).await?;
        let epoch = open.leader_epoch();
        if *to == self.config.name {
            return Ok(epoch);
        }
        let brokers = self.partitions.with.owners.brokers();
        let target = brokers.into_iter().find(|broker| broker.name == *to);
        let target = target.filter(|broker| !broker.draining).ok_or_else(|| {
            let words = format!("broker {to} does not live, or is leaving; `hulse brokers list` shows those that live");
            Fault::new(Reason::PreconditionFailed, words)
        })?;
        // It knows the topic, can be reached and takes partitions: else nothing is closed here.
        let prepare = work_on(id, Work::Prepare(true));
        let (prepared, ()) = join(self.ask_peer(&target.endpoint, prepare), open.be_brief()).await;
        prepared?;
        let owner = v1::PartitionOwner {
            index: id.index,
            endpoint: target.endpoint.to_string(),
            leader_epoch: epoch.0 + 1,
            broker: to.as_str().to_owned(),
            revision: self.partitions.with.owners.revision().0,
        };
        let began = Instant::now();
        let closed = Closed::here(self, id);
        let take = self.ask_living(&target, work_on(id, Work::Take(epoch.0)));
        let done = match self.partitions.give(id, epoch, &owner, take).await {
            Ok(done) => done,
            Err(fault) => return self.not_taken(id, to, fault, closed).await,
        };
        closed.over();
        self.metrics.balance().paused(began.elapsed());
        tracing::info!(partition = %id, %to, epoch = done.leader_epoch, took = ?began.elapsed(), "partition was handed over");
        Ok(OwnerEpoch(done.leader_epoch))
    }

    /// Nobody says that the new owner took it. Whoever wins the next epoch serves it: that one, if it was only silent, or this broker.
    /// While neither does (no metadata store, a bookie that is silent), what was closed here is opened in the background.
    async fn not_taken(
        &self,
        id: PartitionId,
        to: &NodeName,
        fault: Fault,
        closed: Closed,
    ) -> Result<OwnerEpoch, Fault> {
        let moved = self.open(id).await.err();
        if moved.as_ref().is_none_or(ends_tries) {
            closed.over();
        }
        let owner = moved.as_ref().and_then(owner_of);
        match owner.filter(|owner| owner.broker == to.as_str() && owner.leader_epoch > 0) {
            Some(owner) => Ok(OwnerEpoch(owner.leader_epoch)),
            None => Err(fault),
        }
    }

    /// Another broker hands a partition over, of which it had this epoch.
    pub(in crate::listener) async fn take(
        &self,
        id: PartitionId,
        epoch: OwnerEpoch,
    ) -> Result<OwnerEpoch, Fault> {
        let _arrival = Arriving { front: self, id };
        let topic = self.check_exists(id).await?;
        let claim = Claim::HandedOver(epoch);
        let known = self.partitions.with.ahead.known(id);
        let leaves = self.leaves(id);
        let open = self
            .partitions
            .open_of(&self.topics, &topic, id, claim)
            .await?;
        if !leaves {
            self.balance.arrived(id);
        }
        if !known.is_empty() {
            let partitions = self.partitions.clone();
            tokio::spawn(async move {
                if differs(&partitions.with, &known).await {
                    let why = "a loss was accepted, the partition is opened again; retry";
                    let reopened = Fault::new(Reason::PartitionLoading, why);
                    partitions.close(id, reopened).await;
                }
            });
        }
        Ok(open.leader_epoch())
    }

    /// Whether the broker that has a partition leaves: what it gives away need not rest, it may be one of many that came here for want
    /// of others.
    fn leaves(&self, id: PartitionId) -> bool {
        let owners = &self.partitions.with.owners;
        let Some(holder) = owners.holder(id) else {
            return false;
        };
        let brokers = owners.brokers();
        brokers
            .iter()
            .any(|broker| broker.name == holder.broker && broker.draining)
    }

    /// Whether a partition could be taken now. Then it is expected, and what will be needed of it is read.
    pub(in crate::listener) async fn prepare(&self, id: PartitionId) -> Result<(), Fault> {
        if let Some(fault) = self.shutting_down() {
            return Err(fault);
        }
        self.check_exists(id).await?;
        read_ahead(&self.partitions.with, id).await?;
        self.arrivals.expect(id);
        Ok(())
    }

    /// Has the broker `from`, which has a partition open, hand it over to `to`. Nobody else is asked when it is not there any more.
    ///
    /// # Errors
    /// Those of [`Front::hand_over`]; `PARTITION_MOVED`.
    pub(crate) async fn have_handed_over(
        &self,
        id: PartitionId,
        from: &NodeName,
        to: &NodeName,
    ) -> Result<OwnerEpoch, Fault> {
        if *from == self.config.name {
            return self.hand_over(id, to).await;
        }
        let brokers = self.partitions.with.owners.brokers();
        let owner = brokers.into_iter().find(|broker| broker.name == *from);
        let owner = owner.ok_or_else(|| {
            let words = format!("broker {from} does not live any more");
            Fault::new(Reason::PartitionMoved, words)
        })?;
        let work = work_on(id, Work::MoveTo(to.as_str().to_owned()));
        let done = self.ask_living(&owner, work).await?;
        Ok(OwnerEpoch(done.leader_epoch))
    }

    /// Somebody's word, an operator's or the balancer's: that broker shall have it.
    pub(in crate::listener) async fn move_to(
        &self,
        id: PartitionId,
        to: &str,
    ) -> Result<OwnerEpoch, Fault> {
        let to = NodeName::new(to).map_err(|error| invalid(error.to_string()))?;
        self.hand_over(id, &to).await
    }

    /// This broker leaves: every open partition goes to the broker that would get it next.
    pub(crate) async fn leave(self: &Arc<Self>) {
        let owners = &self.partitions.with.owners;
        if owners.alone() {
            return;
        }
        let open = self.partitions.open_ids();
        let count = open.len();
        let paced = Duration::from_secs(count as u64 / u64::from(self.config.drain_rate.max(1)));
        match timeout(paced + LEAVING, self.give_away(open, || true)).await {
            Ok(given) => tracing::info!(given = given.count, count, "partitions were handed over"),
            Err(_) => tracing::warn!(
                count,
                "not all partitions were handed over in time; others take them over"
            ),
        }
    }
}

/// While a partition is closed here, and nobody has said who serves it. Whoever asked for the hand-over may go meanwhile, and this with
/// it. Clients were sent to the new owner under the epoch to come, and believe no older one: so the epoch has to come. Then this broker
/// opens the partition, unless its key names another one.
struct Closed {
    partitions: Partitions,
    topics: Topics,
    id: PartitionId,
    over: bool,
}

impl Closed {
    fn here(front: &Front, id: PartitionId) -> Self {
        Self {
            partitions: front.partitions.clone(),
            topics: front.topics.clone(),
            id,
            over: false,
        }
    }

    /// Somebody serves it, or said why not.
    fn over(mut self) {
        self.over = true;
    }
}

/// Whether opening it again here is in vain: another one serves it, or it cannot be served.
fn ends_tries(fault: &Fault) -> bool {
    !fault.reason.is_retryable() || fault.reason == Reason::PartitionMoved
}

impl Drop for Closed {
    fn drop(&mut self) {
        let Ok(runtime) = Handle::try_current() else {
            return;
        };
        if self.over {
            return;
        }
        let (partitions, topics, id) = (self.partitions.clone(), self.topics.clone(), self.id);
        runtime.spawn(async move {
            for _ in 0..GIVEN_UP_TRIES {
                // What was asked of the new owner may be on its way; and it may be closing here still.
                sleep(GIVEN_UP).await;
                let opened = async {
                    let topic = topics.find(id.topic).await?;
                    partitions.open_of(&topics, &topic, id, Claim::Owner).await
                };
                let Err(fault) = opened.await else {
                    return;
                };
                tracing::debug!(partition = %id, %fault, "a hand-over was given up, and the partition is not open here");
                if ends_tries(&fault) {
                    return;
                }
            }
        });
    }
}

/// While a partition is being taken.
struct Arriving<'a> {
    front: &'a Front,
    id: PartitionId,
}

impl Drop for Arriving<'_> {
    /// It is here, or does not come.
    fn drop(&mut self) {
        self.front.partitions.with.ahead.forget(self.id);
        self.front.arrivals.over(self.id);
    }
}
