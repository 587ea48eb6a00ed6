//! The consumers of a run: of an EXCLUSIVE subscription and of a FAILOVER one.

use std::sync::{Arc, Mutex};

use hulse_proto::error::Fault;
use hulse_proto::id::SubscriptionId;
use rand::Rng;
use serving_broker::{PartitionHandle, SubscriptionKind};
use tests_harness::consumer::judge_cursor;
use tests_harness::{Cluster, Consumer, CursorTruth, Habit};
use tokio::task::JoinHandle;

/// Both subscriptions, who consumes them, and what they were told.
pub struct Consumers {
    subscriptions: Vec<(SubscriptionId, Arc<Mutex<CursorTruth>>)>,
    tasks: Vec<JoinHandle<()>>,
}

impl Consumers {
    /// They begin.
    pub fn start(cluster: &Arc<Cluster>) -> Self {
        let mut rng = cluster.world.seeds.stream("consumers");
        let mut consumers = Self {
            subscriptions: Vec::new(),
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
        consumers
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
    pub async fn judge(&self, cluster: &Cluster, handle: &PartitionHandle) -> Result<(), Fault> {
        for (subscription, truth) in &self.subscriptions {
            judge_cursor(cluster, handle, *subscription, truth).await?;
        }
        Ok(())
    }
}
