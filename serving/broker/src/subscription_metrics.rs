//! What is counted of subscriptions.
//!
//! Names come from clients, so their number is bounded: the first [`NAMES_MAX`] have series of their own, all others share one.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

/// Subscriptions with series of their own.
const NAMES_MAX: usize = 1_000;
/// The name of all others.
const OTHERS: &str = "_others";

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SubscriptionLabel {
    subscription: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct TopicLabel {
    topic: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct GroupLabel {
    group: String,
}

/// What a subscription has not processed, over the partitions open here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Backlog {
    pub(crate) records: u64,
    /// That storage keeps for it.
    pub(crate) bytes: u64,
    /// Of the oldest record.
    pub(crate) age: Duration,
}

/// Metrics of subscriptions. Cloning shares the values.
#[derive(Clone, Default)]
pub(crate) struct SubscriptionMetrics {
    delivered: Family<SubscriptionLabel, Counter>,
    delivered_bytes: Family<SubscriptionLabel, Counter>,
    acked: Family<SubscriptionLabel, Counter>,
    consumers: Family<SubscriptionLabel, Gauge>,
    backlog: Family<SubscriptionLabel, Gauge>,
    backlog_bytes: Family<SubscriptionLabel, Gauge>,
    backlog_age: Family<SubscriptionLabel, Gauge<f64, AtomicU64>>,
    evicted: Family<SubscriptionLabel, Counter>,
    expired: Family<SubscriptionLabel, Counter>,
    quota_used: Family<TopicLabel, Gauge<f64, AtomicU64>>,
    idle_members: Family<GroupLabel, Gauge>,
    /// Subscriptions that have a backlog shown.
    shown: Arc<Mutex<BTreeSet<String>>>,
    /// Topics that have their use of the quota shown.
    topics: Arc<Mutex<BTreeSet<String>>>,
    names: Arc<Mutex<BTreeSet<String>>>,
}

impl SubscriptionMetrics {
    pub(crate) fn register(&self, registry: &mut Registry) {
        registry.register(
            "hulse_subscription_records_delivered",
            "Records sent to consumers, redeliveries included",
            self.delivered.clone(),
        );
        registry.register(
            "hulse_subscription_bytes_delivered",
            "Bytes of batches sent to consumers",
            self.delivered_bytes.clone(),
        );
        registry.register(
            "hulse_subscription_records_acked",
            "Records that consumers acknowledged",
            self.acked.clone(),
        );
        registry.register(
            "hulse_subscription_consumers",
            "Attached consumers, one per partition",
            self.consumers.clone(),
        );
        registry.register(
            "hulse_subscription_backlog_records",
            "Records that are not acknowledged, over the partitions open here",
            self.backlog.clone(),
        );
        registry.register(
            "hulse_subscription_backlog_bytes",
            "Bytes from the first record that is not acknowledged to the end, over the partitions open here",
            self.backlog_bytes.clone(),
        );
        registry.register(
            "hulse_subscription_backlog_age_seconds",
            "Since the oldest record that is not acknowledged was appended; 0 without a backlog",
            self.backlog_age.clone(),
        );
        registry.register(
            "hulse_backlog_quota_evicted",
            "Records that subscriptions lost to the backlog quotas of their topics",
            self.evicted.clone(),
        );
        registry.register(
            "hulse_subscription_records_expired",
            "Records that lived longer than their subscriptions let them, and were passed over",
            self.expired.clone(),
        );
        registry.register(
            "hulse_backlog_quota_used_ratio",
            "Of the backlog quota, what the subscription nearest to it keeps; above 1: over it",
            self.quota_used.clone(),
        );
        registry.register(
            "hulse_group_idle_members",
            "Members of consumer groups that are coordinated here which have no partition",
            self.idle_members.clone(),
        );
    }

    /// What was counted of the open partitions. Subscriptions that are not named have no backlog any more.
    pub(crate) fn set_backlogs(&self, backlogs: &BTreeMap<Arc<str>, Backlog>) {
        let mut sums: BTreeMap<String, Backlog> = BTreeMap::new();
        let mut shown = self.shown.lock().unwrap_or_else(PoisonError::into_inner);
        sums.extend(shown.iter().map(|name| (name.clone(), Backlog::default())));
        for (name, backlog) in backlogs {
            let sum = sums.entry(self.name(name)).or_default();
            sum.records += backlog.records;
            sum.bytes += backlog.bytes;
            sum.age = sum.age.max(backlog.age);
        }
        shown.clear();
        for (subscription, backlog) in sums {
            if backlog != Backlog::default() {
                shown.insert(subscription.clone());
            }
            let label = SubscriptionLabel { subscription };
            let whole = |value| i64::try_from(value).unwrap_or(i64::MAX);
            self.backlog
                .get_or_create(&label)
                .set(whole(backlog.records));
            self.backlog_bytes
                .get_or_create(&label)
                .set(whole(backlog.bytes));
            self.backlog_age
                .get_or_create(&label)
                .set(backlog.age.as_secs_f64());
        }
    }

    /// How much of its quota each topic uses that has one. Of more than there is room for, the first by name are shown.
    pub(crate) fn set_used(&self, used: &BTreeMap<String, f64>) {
        let mut topics = self.topics.lock().unwrap_or_else(PoisonError::into_inner);
        let now: BTreeSet<String> = used.keys().take(NAMES_MAX).cloned().collect();
        for gone in topics.difference(&now) {
            let topic = gone.clone();
            self.quota_used.remove(&TopicLabel { topic });
        }
        for topic in &now {
            let label = TopicLabel {
                topic: topic.clone(),
            };
            let ratio = used.get(topic).copied().unwrap_or_default();
            self.quota_used.get_or_create(&label).set(ratio);
        }
        *topics = now;
    }

    /// Groups with members that have no partition. Of more than there is room for, the first by name are shown.
    pub(crate) fn set_idle_members(&self, idle: &BTreeMap<Arc<str>, u64>) {
        self.idle_members.clear();
        for (group, members) in idle.iter().take(NAMES_MAX) {
            let label = GroupLabel {
                group: group.to_string(),
            };
            let members = i64::try_from(*members).unwrap_or(i64::MAX);
            self.idle_members.get_or_create(&label).set(members);
        }
    }

    /// A subscription lost records to the quota.
    pub(crate) fn evicted(&self, subscription: &str, records: u64) {
        let label = SubscriptionLabel {
            subscription: self.name(subscription),
        };
        self.evicted.get_or_create(&label).inc_by(records);
    }

    /// Records became too old for a subscription.
    pub(crate) fn expired(&self, subscription: &str, records: u64) {
        let label = SubscriptionLabel {
            subscription: self.name(subscription),
        };
        self.expired.get_or_create(&label).inc_by(records);
    }

    /// The counts of one consumer, which is attached as long as they live.
    pub(crate) fn consuming(&self, subscription: &str) -> ConsumeCounts {
        let label = SubscriptionLabel {
            subscription: self.name(subscription),
        };
        let consumers = self.consumers.get_or_create(&label).clone();
        consumers.inc();
        ConsumeCounts {
            delivered: self.delivered.get_or_create(&label).clone(),
            delivered_bytes: self.delivered_bytes.get_or_create(&label).clone(),
            acked: self.acked.get_or_create(&label).clone(),
            consumers,
        }
    }

    /// A subscription was deleted: its series go, and its place is free.
    pub(crate) fn forget(&self, subscription: &str) {
        let known = self
            .names
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(subscription);
        self.shown
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .remove(subscription);
        if known {
            let label = SubscriptionLabel {
                subscription: subscription.to_owned(),
            };
            self.delivered.remove(&label);
            self.delivered_bytes.remove(&label);
            self.acked.remove(&label);
            self.consumers.remove(&label);
            self.backlog.remove(&label);
            self.backlog_bytes.remove(&label);
            self.backlog_age.remove(&label);
            self.evicted.remove(&label);
            self.expired.remove(&label);
        }
    }

    fn name(&self, subscription: &str) -> String {
        let mut names = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if names.contains(subscription) {
            return subscription.to_owned();
        }
        if names.len() >= NAMES_MAX {
            return OTHERS.to_owned();
        }
        names.insert(subscription.to_owned());
        subscription.to_owned()
    }
}

/// What is counted of one consumer.
pub(crate) struct ConsumeCounts {
    delivered: Counter,
    delivered_bytes: Counter,
    acked: Counter,
    consumers: Gauge,
}

impl ConsumeCounts {
    /// A unit was sent.
    pub(crate) fn sent(&self, records: u64, bytes: u64) {
        self.delivered.inc_by(records);
        self.delivered_bytes.inc_by(bytes);
    }

    /// Records were acked that were not before.
    pub(crate) fn acked(&self, records: u64) {
        self.acked.inc_by(records);
    }
}

impl Drop for ConsumeCounts {
    fn drop(&mut self) {
        self.consumers.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_beyond_the_bound_share_one_series_until_a_place_is_free() {
        let metrics = SubscriptionMetrics::default();
        for number in 0..NAMES_MAX + 5 {
            metrics.consuming(&format!("s{number}")).sent(1, 10);
        }
        let label = |name: &str| SubscriptionLabel {
            subscription: name.to_owned(),
        };
        assert_eq!(metrics.delivered.get_or_create(&label(OTHERS)).get(), 5);
        metrics.forget("s0");
        metrics.consuming("late").sent(2, 20);
        assert_eq!(metrics.delivered.get_or_create(&label("late")).get(), 2);
        assert_eq!(metrics.consumers.get_or_create(&label("late")).get(), 0);
    }
}
