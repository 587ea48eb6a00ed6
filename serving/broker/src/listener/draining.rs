//! A broker gives away all that it has, because an operator said so: `hulse drain`, a restart that shall not be felt.
//!
//! Whoever is asked passes the order to the broker that it names. That one is "draining" for all others from then on, which take what
//! it hands over and send it nothing; it goes on until the order is taken back or the process ends. An order that is given twice is
//! the same order. Partitions go at a pace, so that those who look them up anew do not come all at once (operations.md, fault list 6).

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use futures::{Stream, StreamExt as _};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{NodeName, PartitionId};
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::drain_broker_request::Order;
use hulse_proto::wire::v1::peers_client::PeersClient;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};
use tonic::transport::Channel;

use super::front::Front;
use super::wire::invalid;
use crate::balance::MoveReason;

/// Partitions that are given away at the same time.
const AT_ONCE: usize = 16;
/// While the order stands, what the broker has is looked for this often: some of it may have been refused.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// A partition that cannot be given away is tried again at least this often.
const TRY_EVERY_MAX: Duration = Duration::from_secs(30);
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
            let mut refused = Refused::default();
            while self.order.stands() {
                // Whether the others have heard by now that this one drains does not matter: each is asked first whether it takes what it
                // gets, and what comes back meanwhile is given away at the next look.
                let due = refused.due(self.held(), Instant::now());
                let count = due.len();
                if count > 0 {
                    let given = self.give_away(due, || self.order.stands()).await;
                    tracing::info!(
                        given = given.count,
                        count,
                        "partitions were handed over by order"
                    );
                    for (id, fault) in given.refused {
                        refused.note(id, fault, Instant::now());
                    }
                }
                self.order.note(refused.last());
                sleep(LOOK_EVERY).await;
            }
        }
    }

    /// Hands these over to whoever gets them next, at the pace of the configuration, while it `goes_on`.
    pub(super) async fn give_away(
        &self,
        ids: Vec<PartitionId>,
        goes_on: impl Fn() -> bool,
    ) -> Given {
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
            Some((id, given.map(drop)))
        });
        let mut ended = pin!(given.buffer_unordered(AT_ONCE));
        let mut given = Given::default();
        while let Some(ended) = ended.next().await {
            match ended {
                // It did not begin any more, or nobody can have it.
                None => {}
                Some((_, Ok(()))) => given.count += 1,
                Some((id, Err(fault))) => {
                    tracing::debug!(partition = %id, %fault, "a partition could not be handed over");
                    // What went by another way is where it was wanted.
                    if fault.reason != Reason::PartitionMoved {
                        self.order.note(Some(fault.clone()));
                        given.refused.push((id, fault));
                    }
                }
            }
        }
        given
    }
}

/// What became of partitions that were to go.
#[derive(Default)]
pub(super) struct Given {
    /// How many went.
    pub(super) count: usize,
    /// Those that could not go.
    refused: Vec<(PartitionId, Fault)>,
}

/// Partitions that could not go, such as one that does not open: tried again less and less often, as each try asks its heir and metadata.
#[derive(Default)]
struct Refused(BTreeMap<PartitionId, Wait>);

struct Wait {
    until: Instant,
    wait: Duration,
    fault: Fault,
}

impl Refused {
    /// Which of those that are still held are to be tried now. Others are forgotten.
    fn due(&mut self, held: Vec<PartitionId>, now: Instant) -> Vec<PartitionId> {
        // In order.
        self.0.retain(|id, _| held.binary_search(id).is_ok());
        let due = held.into_iter();
        let due = due.filter(|id| self.0.get(id).is_none_or(|waits| waits.until <= now));
        due.collect()
    }

    fn note(&mut self, id: PartitionId, fault: Fault, now: Instant) {
        let before = self.0.get(&id).map(|waits| waits.wait);
        let wait = before.map_or(LOOK_EVERY, |wait| (wait * 2).min(TRY_EVERY_MAX));
        let until = now + wait;
        self.0.insert(id, Wait { until, wait, fault });
    }

    /// Why one of them could not go.
    fn last(&self) -> Option<Fault> {
        let newest = self.0.values().max_by_key(|waits| waits.until);
        newest.map(|waits| waits.fault.clone())
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

#[cfg(test)]
mod tests {
    use hulse_proto::id::TopicId;
    use uuid::Uuid;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn what_cannot_go_is_tried_less_and_less_often_and_forgotten_once_it_went() {
        let id = |index| PartitionId {
            topic: TopicId(Uuid::from_u128(7)),
            index,
        };
        let damaged = || Fault::new(Reason::DataDamaged, "for a test");
        let held = || vec![id(0), id(1)];
        let mut refused = Refused::default();
        let began = Instant::now();
        let mut tries = Vec::new();
        // Two minutes, a look each second; partition 1 went at once, and comes back.
        for second in 0..120_u64 {
            let now = began + Duration::from_secs(second);
            let due = refused.due(held(), now);
            assert!(due.contains(&id(1)), "{second}");
            if due.contains(&id(0)) {
                tries.push(second);
                refused.note(id(0), damaged(), now);
            }
        }
        assert_eq!(tries, [0, 1, 3, 7, 15, 31, 61, 91]);
        assert_eq!(
            refused.last().map(|fault| fault.reason),
            Some(Reason::DataDamaged)
        );
        assert_eq!(refused.due(vec![id(1)], began), [id(1)]);
        assert!(refused.last().is_none());
        assert_eq!(refused.due(held(), began), held());
    }
}
