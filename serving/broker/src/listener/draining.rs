//! A broker gives away all that it has, because an operator said so: `hulse drain`, a restart that shall not be felt.
//!
//! Whoever is asked passes the order to the broker that it names. That one is "draining" for all others from then on, which take what
//! it hands over and send it nothing; it goes on until the order is taken back or the process ends. An order that is given twice is
//! the same order. Partitions go at a pace, so that those who look them up anew do not come all at once (operations.md, fault list 6).

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{NodeName, PartitionId};
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::drain_broker_request::Order;
use hulse_proto::wire::v1::peers_client::PeersClient;
use tokio::time::{MissedTickBehavior, interval, sleep};
use tonic::transport::Channel;

use super::front::Front;
use super::wire::invalid;
use crate::balance::MoveReason;

/// Partitions that are given away at the same time.
const AT_ONCE: usize = 16;
/// While the order stands, what the broker has is looked for this often: some of it may have been refused.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long the named broker may take to answer.
const ORDER_MAX: Duration = Duration::from_secs(5);

impl Front {
    /// The operator's order, at whichever broker.
    ///
    /// # Errors
    /// `PRECONDITION_FAILED`: no such broker lives, or there is no other that could take what it has; or it cannot be asked.
    pub(super) async fn drain_broker(
        &self,
        request: v1::DrainBrokerRequest,
    ) -> Result<v1::DrainBrokerResponse, Fault> {
        let name = NodeName::new(&request.broker).map_err(|error| invalid(error.to_string()))?;
        if name == self.config.name {
            return self.order_here(&request);
        }
        let brokers = self.partitions.with.owners.brokers();
        let named = brokers.into_iter().find(|broker| broker.name == name);
        let named = named.ok_or_else(|| {
            let words =
                format!("broker {name} does not live; `hulse brokers list` shows those that live");
            Fault::new(Reason::PreconditionFailed, words)
        })?;
        let call = async |mut peer: PeersClient<Channel>| peer.drain(request).await;
        self.peers.ask(&named.endpoint, ORDER_MAX, call).await
    }

    /// The order to this broker.
    pub(super) fn order_here(
        &self,
        request: &v1::DrainBrokerRequest,
    ) -> Result<v1::DrainBrokerResponse, Fault> {
        if request.broker != self.config.name.as_str() {
            let words = format!(
                "this is {}, not {}; retry",
                self.config.name, request.broker
            );
            return Err(Fault::new(Reason::PreconditionFailed, words));
        }
        let owners = &self.partitions.with.owners;
        match request.order() {
            Order::Look => {}
            Order::Serve => {
                if self.order.set(false) {
                    tracing::info!("an operator ended the drain: partitions are taken again");
                }
            }
            Order::Drain => {
                if !owners
                    .brokers()
                    .iter()
                    .any(|other| other.name != self.config.name && !other.draining)
                {
                    let words = "no other broker takes partitions: start one first, or end its drain with `hulse brokers undrain`";
                    return Err(Fault::new(Reason::PreconditionFailed, words));
                }
                if self.order.set(true) {
                    tracing::info!("an operator wants this broker drained");
                }
            }
        }
        let mut heirs = BTreeMap::<String, u64>::new();
        for id in self.held() {
            let heir = owners.heir(id);
            let heir = heir.map_or_else(String::new, |heir| heir.to_string());
            *heirs.entry(heir).or_default() += 1;
        }
        let heirs = heirs.into_iter();
        Ok(v1::DrainBrokerResponse {
            draining: self.order.stands(),
            heirs: heirs
                .map(|(broker, partitions)| v1::Heir { broker, partitions })
                .collect(),
            fault: self
                .order
                .fault()
                .map_or_else(String::new, |fault| fault.to_string()),
        })
    }

    /// Partitions that are this broker's by their keys, and those that it has open.
    fn held(&self) -> Vec<PartitionId> {
        let mut held = self.partitions.with.owners.held_here();
        held.extend(self.partitions.open_ids());
        held.sort_unstable();
        held.dedup();
        held
    }

    /// Gives away what there is while the order stands. Never ends.
    pub(crate) async fn follow_order(self: Arc<Self>) {
        let mut order = self.order.subscribe();
        while order.wait_for(|stands| *stands).await.is_ok() {
            // Whether the others have heard by now that this one drains does not matter: each is asked first whether it takes what it gets,
            // and what comes back meanwhile is given away at the next look.
            let held = self.held();
            let count = held.len();
            if count > 0 {
                let given = self.give_away(held, || self.order.stands()).await;
                tracing::info!(given, count, "partitions were handed over by order");
            }
            sleep(LOOK_EVERY).await;
        }
    }

    /// Hands these over to whoever gets them next, at the pace of the configuration, while it `goes_on`. How many went.
    pub(super) async fn give_away(
        &self,
        ids: Vec<PartitionId>,
        goes_on: impl Fn() -> bool,
    ) -> usize {
        let goes_on = &goes_on;
        let owners = &self.partitions.with.owners;
        let given = paced(ids, self.config.drain_rate).map(|id| async move {
            if !goes_on() {
                return None;
            }
            let heir = owners.heir(id)?;
            let given = self.hand_over(id, &heir).await;
            self.metrics
                .balance()
                .moved(MoveReason::Leaving, given.is_ok());
            given
                .inspect_err(|fault| {
                    tracing::debug!(partition = %id, %fault, "a partition could not be handed over");
                    // It went by another way, which is what was wanted.
                    if fault.reason != Reason::PartitionMoved {
                        self.order.note(Some(fault.clone()));
                    }
                })
                .ok()
        });
        let given = given.buffer_unordered(AT_ONCE);
        given.filter_map(std::future::ready).count().await
    }
}

/// So many a second.
fn paced(ids: Vec<PartitionId>, rate: u32) -> impl Stream<Item = PartitionId> {
    let mut pace = interval(Duration::from_secs(1) / rate.max(1));
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let begin = (ids.into_iter(), pace);
    futures::stream::unfold(begin, |(mut ids, mut pace)| async move {
        let id = ids.next()?;
        pace.tick().await;
        Some((id, (ids, pace)))
    })
}
