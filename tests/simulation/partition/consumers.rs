//! The consumers of a run: of an EXCLUSIVE subscription and of a FAILOVER one.

use std::sync::{Arc, Mutex};

use hulse_proto::error::Fault;
use hulse_proto::id::SubscriptionId;
use rand::Rng;
use serving_broker::{PartitionHandle, Partitions, SubscriptionKind};
use tests_harness::consumer::judge_cursor;
use tests_harness::{Cluster, Consumer, CursorTruth, Habit};
use tokio::task::JoinHandle;

use super::successions::Successions;

/// Runs with a subscription that is deleted and made again.
const SUCCESSIONS_SHARE: f64 = 0.3;

/// Both subscriptions, who consumes them, and what they were told.
pub struct Consumers {
    subscriptions: Vec<(SubscriptionId, Arc<Mutex<CursorTruth>>)>,
    successions: Option<Arc<Successions>>,
    tasks: Vec<JoinHandle<()>>,
}

impl Consumers {
    /// They begin.
    pub fn start(cluster: &Arc<Cluster>) -> Self {
        let mut rng = cluster.world.seeds.stream("consumers");
        let mut consumers = Self {
            subscriptions: Vec::new(),
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
        cluster: &Cluster,
        partitions: &Partitions,
        handle: &PartitionHandle,
    ) -> Result<(), Fault> {
        for (subscription, truth) in &self.subscriptions {
            judge_cursor(cluster, handle, *subscription, truth).await?;
        }
        if let Some(successions) = &self.successions {
            // Last: it removes the cursors of the others, which have no records in these runs. An owner that ends now has shown enough.
            drop(successions.judge(partitions, handle).await);
        }
        Ok(())
    }
}
