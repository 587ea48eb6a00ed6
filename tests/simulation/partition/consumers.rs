//! The consumers of a run: of an EXCLUSIVE subscription and of a FAILOVER one, or of a QUEUE subscription and of a KEYED one.

use std::sync::{Arc, Mutex};

use hulse_proto::error::Fault;
use hulse_proto::id::SubscriptionId;
use rand::Rng;
use rand::seq::IndexedRandom;
use rand_chacha::ChaCha12Rng;
use serving_broker::{PartitionHandle, Partitions, SubscriptionKind};
use serving_dispatch::{Backoff, KeyOrder, Kind, Policy};
use tests_harness::consumer::judge_cursor;
use tests_harness::sharer::judge_sharing;
use tests_harness::{
    Cluster, Consumer, CursorTruth, Habit, SharedSubscription, Sharer, SharingTruth, Temper,
};
use tokio::task::JoinHandle;

use super::successions::Successions;

/// Runs with a subscription that is deleted and made again.
const SUCCESSIONS_SHARE: f64 = 0.3;

/// Both subscriptions, who consumes them, and what they were told.
pub struct Consumers {
    subscriptions: Vec<(SubscriptionId, Arc<Mutex<CursorTruth>>)>,
    shared: Vec<SharedSubscription>,
    successions: Option<Arc<Successions>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Consumers {
    /// They begin.
    pub fn start(cluster: &Arc<Cluster>) -> Self {
        let mut rng = cluster.world.seeds.stream("consumers");
        let mut consumers = Self {
            subscriptions: Vec::new(),
            shared: Vec::new(),
            successions: None,
            tasks: Vec::new(),
        };
        let kinds = [
            (
                "exclusive",
                SubscriptionKind::Exclusive,
                rng.random_range(1..3),
            ),
            (
                "failover",
                SubscriptionKind::Failover,
                rng.random_range(1..4),
            ),
        ];
        let mut number = 0;
        for (name, kind, count) in kinds {
            let subscription = SubscriptionId(cluster.world.seeds.id(name));
            let truth = Arc::new(Mutex::default());
            for _ in 0..count {
                number += 1;
                let habit = Habit {
                    number,
                    kind,
                    seeks: rng.random_bool(0.3),
                    strays: rng.random_bool(0.5),
                    pause_ms: rng.random_range(5..200),
                };
                let consumer = Consumer::new(cluster, subscription, &truth, habit);
                consumers.tasks.push(tokio::spawn(consumer.run()));
            }
            consumers.subscriptions.push((subscription, truth));
        }
        consumers.succeed(cluster);
        consumers
    }

    /// Those that share begin: of a QUEUE subscription and a KEYED one, or of one of them.
    pub fn share(cluster: &Arc<Cluster>) -> Self {
        let mut rng = cluster.world.seeds.stream("sharers");
        let mut consumers = Self {
            subscriptions: Vec::new(),
            shared: Vec::new(),
            successions: None,
            tasks: Vec::new(),
        };
        let order = [
            KeyOrder::Sticky,
            KeyOrder::Sticky,
            KeyOrder::BlockOnNack,
            KeyOrder::OneInFlight,
        ];
        let keyed = Kind::Keyed(*order.choose(&mut rng).expect("four orders"));
        let kinds: &[Kind] = match rng.random_range(0..4) {
            0 => &[Kind::Queue],
            1 => &[Kind::Queue, keyed],
            _ => &[keyed],
        };
        for kind in kinds {
            let policy = policy(*kind, &mut rng);
            let keyed = matches!(kind, Kind::Keyed(_));
            let truth = SharingTruth::new(keyed, policy.lock_ms);
            let subscription = SharedSubscription {
                id: SubscriptionId(cluster.world.seeds.id(&format!("shared {keyed}"))),
                policy,
                truth: Arc::new(Mutex::new(truth)),
            };
            for number in 0..rng.random_range(1..5) {
                let temper = Temper {
                    number,
                    stalls: rng.random_bool(0.5),
                    strays: rng.random_bool(0.5),
                    pause_ms: *[5, 40, 200].choose(&mut rng).expect("three paces"),
                };
                let sharer = Sharer::new(cluster, &subscription, temper);
                consumers.tasks.push(tokio::spawn(sharer.run()));
            }
            consumers.shared.push(subscription);
        }
        consumers
    }

    /// In some runs there is one more, which is deleted and made again. From a stream of its own, so that kept seeds have all else as
    /// they ever had it.
    fn succeed(&mut self, cluster: &Arc<Cluster>) {
        let seeds = cluster.world.seeds;
        if !seeds.stream("successions").random_bool(SUCCESSIONS_SHARE) {
            return;
        }
        let successions = Successions::new(cluster);
        let live = successions.clone().live(seeds.stream("made again"));
        self.tasks.push(tokio::spawn(live));
        let late = successions.clone().come_late(seeds.stream("late"));
        self.tasks.push(tokio::spawn(late));
        self.successions = Some(successions);
    }

    /// They go.
    pub fn stop(&self) {
        for task in &self.tasks {
            task.abort();
        }
    }

    /// What the last owner shows.
    ///
    /// # Errors
    /// The fault with which it ended meanwhile.
    pub async fn judge(
        &self,
        cluster: &Arc<Cluster>,
        partitions: &Partitions,
        handle: &PartitionHandle,
    ) -> Result<(), Fault> {
        for (subscription, truth) in &self.subscriptions {
            judge_cursor(cluster, handle, *subscription, truth).await?;
        }
        for subscription in &self.shared {
            judge_sharing(cluster, handle, subscription).await?;
        }
        if let Some(successions) = &self.successions {
            // Last: it removes the cursors of the others, which have no records in these runs. An owner that ends now has shown enough.
            drop(successions.judge(partitions, handle).await);
        }
        Ok(())
    }
}

/// How records are shared: small windows, short locks. Without a limit of attempts, so that every record is acked in the end.
fn policy(kind: Kind, rng: &mut ChaCha12Rng) -> Policy {
    fn one<T: Copy>(rng: &mut ChaCha12Rng, of: &[T]) -> T {
        *of.choose(rng).expect("there are some")
    }
    Policy {
        lock_ms: one(rng, &[0, 300, 1_000, 30_000]),
        attempts_max: 0,
        unacked_max: one(rng, &[3, 10, 1_000]),
        window_max: one(rng, &[12, 60, 1_000]),
        ack_ranges_max: one(rng, &[6, 1_000]),
        look_ahead_records: one(rng, &[5, 2_000]),
        // What is read at once is decoded at once, so that a seed decides everything.
        look_ahead_bytes: 32 << 10,
        unit_records_max: one(rng, &[2, 1_000]),
        reattach_grace_ms: one(rng, &[0, 50, 1_000]),
        name_grace_ms: one(rng, &[0, 0, 100]),
        gather_ms: one(rng, &[0, 4]),
        backoff: Backoff::Steps(vec![20, 100, 400]),
        ..Policy::new(kind)
    }
}
