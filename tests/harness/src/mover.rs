//! Planned hand-overs of a partition between the brokers of a cluster, at random moments: as an operator's or a balancer's word makes
//! them. Some are given up half-way, some find a new owner that is frozen or dies, and some calls are late or lost.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::NodeName;
use rand::seq::IndexedRandom;
use rand::{Rng, SeedableRng as _};
use rand_chacha::ChaCha12Rng;
use serving_broker::testing::{HandedOver, hand_over, take};
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, timeout};

use crate::broker::{Cluster, SimBroker};
use crate::trace;

/// How long a peer may take, as brokers have it.
const CALL_MAX: Duration = Duration::from_secs(20);
/// A call that is late is so late at most, ms.
const LATE_MS: u64 = 3_000;
/// Moves that may be on their way at once.
const MOVES_MAX: usize = 3;

/// Who moves the partition.
pub struct Mover {
    cluster: Arc<Cluster>,
    rng: ChaCha12Rng,
    /// Longest pause between two moves, ms.
    pause_max_ms: u64,
}

/// What goes wrong with the broker that is to have it, and when.
#[derive(Debug, Clone, Copy)]
enum Mishap {
    Frozen { after: Duration, time: Duration },
    Killed { after: Duration },
}

impl Mover {
    /// One that has moved nothing.
    pub fn new(cluster: &Arc<Cluster>) -> Self {
        let mut rng = cluster.world.seeds.stream("moves");
        Self {
            cluster: cluster.clone(),
            pause_max_ms: *[150, 600, 3_000].choose(&mut rng).expect("three paces"),
            rng,
        }
    }

    /// Moves it now and then, for so long; several words may be on their way at once.
    pub async fn run(mut self, time: Duration) {
        let end = Instant::now() + time;
        let mut moves: VecDeque<JoinHandle<()>> = VecDeque::new();
        while Instant::now() < end {
            sleep(Duration::from_millis(
                self.rng.random_range(5..self.pause_max_ms),
            ))
            .await;
            moves.retain(|on_its_way| !on_its_way.is_finished());
            if moves.len() >= MOVES_MAX {
                continue;
            }
            let brokers = self.cluster.brokers();
            let holds = |broker: &&Arc<SimBroker>| {
                let open = broker.partitions.opened(self.cluster.partition);
                open.is_some() && broker.process.is_running()
            };
            // The word may come to one that was overtaken and does not know it yet.
            let holders: Vec<_> = brokers.iter().filter(holds).cloned().collect();
            let from = holders.choose(&mut self.rng).cloned();
            let to = brokers.choose(&mut self.rng).cloned();
            if let (Some(from), Some(to)) = (from, to)
                && from.name() != to.name()
            {
                let mishap = self.draw_mishap();
                let patience = match self.rng.random_bool(0.2) {
                    true => Duration::from_millis(self.rng.random_range(0..120)),
                    false => CALL_MAX * 3,
                };
                let chance = ChaCha12Rng::from_rng(&mut self.rng);
                let moving = one_move(self.cluster.clone(), (from, to, mishap), patience, chance);
                moves.push_back(tokio::spawn(moving));
            }
        }
    }

    fn draw_mishap(&mut self) -> Option<Mishap> {
        let after = Duration::from_millis(self.rng.random_range(0..40));
        match self.rng.random_range(0..100) {
            0..20 => Some(Mishap::Frozen {
                after,
                time: Duration::from_millis(self.rng.random_range(100..5_000)),
            }),
            20..30 => Some(Mishap::Killed { after }),
            _ => None,
        }
    }
}

/// Who gives it, who is to have it, and what befalls that one.
type Parties = (Arc<SimBroker>, Arc<SimBroker>, Option<Mishap>);

async fn one_move(
    cluster: Arc<Cluster>,
    (from, to, mishap): Parties,
    patience: Duration,
    chance: ChaCha12Rng,
) {
    let world = &cluster.world;
    let names = (from.process.name(), to.process.name());
    trace!(
        world.trace,
        "{names:?} are to move the partition, {mishap:?}"
    );
    if let Some(mishap) = mishap {
        tokio::spawn(befall(to.clone(), mishap));
    }
    let handing = async {
        let mut peer = Peer {
            broker: &to,
            chance,
        };
        // It can be reached and takes partitions: else nothing is closed.
        peer.ask(async { Ok(()) }).await?;
        let partition = cluster.partition;
        let goal = HandedOver {
            partition,
            to: NodeName::new(to.name()).expect("a short name is a name"),
            endpoint: Cluster::endpoint(to.name()),
        };
        let asked = async |epoch| peer.ask(take(&to.partitions, partition, epoch)).await;
        hand_over(&from.partitions, goal, asked).await
    };
    let handed = timeout(patience, from.process.heard(handing)).await;
    trace!(world.trace, "{names:?} have moved it: {handed:?}");
    if let Ok(Some(Ok(epoch))) = &handed {
        let holder = world.store.holder(cluster.partition);
        let has_it = holder.as_ref().is_some_and(|(owner, newest)| {
            newest > epoch || (newest == epoch && owner == to.name())
        });
        world.violations.check(has_it, || {
            format!("{names:?} say that the partition was handed over at {epoch}, and it is {holder:?}'s")
        });
    }
    world.counts.add(match handed {
        Ok(Some(Ok(_))) => "partitions handed over as planned",
        Ok(Some(Err(_))) => "hand-overs that were refused or not answered",
        Ok(None) => "hand-overs whose giver died",
        Err(_) => "hand-overs given up half-way",
    });
}

async fn befall(broker: Arc<SimBroker>, mishap: Mishap) {
    match mishap {
        Mishap::Frozen { after, time } => {
            sleep(after).await;
            broker.process.pause();
            sleep(time).await;
            broker.process.resume();
        }
        Mishap::Killed { after } => {
            sleep(after).await;
            broker.process.kill();
        }
    }
}

/// The broker that is to have it, as the giver reaches it: a call comes, is late or is lost, and so is its answer.
struct Peer<'a> {
    broker: &'a SimBroker,
    chance: ChaCha12Rng,
}

impl Peer<'_> {
    /// `None`: it is lost.
    fn delay(&mut self) -> Option<Duration> {
        match self.chance.random_range(0..100) {
            0..8 => None,
            8..20 => Some(Duration::from_millis(self.chance.random_range(0..LATE_MS))),
            _ => Some(Duration::from_millis(self.chance.random_range(0..4))),
        }
    }

    async fn ask<T>(&mut self, work: impl Future<Output = Result<T, Fault>>) -> Result<T, Fault> {
        let (there, back) = (self.delay(), self.delay());
        let call = async {
            let Some(there) = there else {
                return std::future::pending().await;
            };
            sleep(there).await;
            match (self.broker.process.heard(work).await, back) {
                (Some(done), Some(back)) => {
                    sleep(back).await;
                    done
                }
                _ => std::future::pending().await,
            }
        };
        timeout(CALL_MAX, call).await.unwrap_or_else(|_| {
            let why = "the other broker does not say whether it has the partition";
            Err(Fault::new(Reason::StorageTimeout, why))
        })
    }
}
