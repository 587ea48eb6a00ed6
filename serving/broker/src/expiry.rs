//! Records that lived for longer than their subscription lets them count as processed (serving.md B9.4), whoever is attached.
//!
//! The owner of a partition looks at its cursors every ten seconds, by the time at which records were appended: those never go back, so
//! what is too old lies in front of what is not. On the same occasion dispatchers are told of a pause that they have missed: one that
//! began at the moment of the change.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use hulse_proto::error::Fault;
use hulse_proto::id::{SubscriptionId, TopicId};
use hulse_proto::time::TimestampMs;
use tokio::time::{sleep, timeout};

use crate::metrics::Metrics;
use crate::subscriptions::{Subscription, Subscriptions};
use crate::topics::Topics;
use crate::{CursorView, PartitionHandle, Partitions};

/// Between two looks.
const EVERY: Duration = Duration::from_secs(10);
/// A partition that takes longer is looked at again in the next round; what it was told holds.
const LOOK_MAX: Duration = Duration::from_secs(5);
/// Subscriptions read at a time.
const PAGE: u32 = 1_000;

/// What is said of a cursor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Rule {
    cursor: SubscriptionId,
    /// 0: none.
    ttl_ms: u64,
    /// 0: it never was.
    paused_until: TimestampMs,
}

/// Of each topic, the cursors of which something is said.
type Rules = BTreeMap<TopicId, Vec<Rule>>;

/// The looks of one broker.
pub(crate) struct Expiry {
    partitions: Partitions,
    subscriptions: Subscriptions,
    topics: Topics,
    metrics: Arc<Metrics>,
}

impl Expiry {
    pub(crate) fn new(
        partitions: Partitions,
        subscriptions: Subscriptions,
        topics: Topics,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self {
            partitions,
            subscriptions,
            topics,
            metrics,
        }
    }

    /// Goes on for ever. What fails concerns one partition, which is looked at again.
    pub(crate) async fn run(self) {
        loop {
            sleep(EVERY).await;
            if let Err(fault) = self.round().await {
                tracing::debug!(%fault, "subscriptions cannot be listed; what became too old waits");
            }
        }
    }

    /// Once over the partitions that are open here.
    async fn round(&self) -> Result<(), Fault> {
        let open = self.partitions.consumed();
        if open.is_empty() {
            return Ok(());
        }
        let rules = self.rules().await?;
        for open in &open {
            let Some(rules) = rules.get(&open.id().topic) else {
                continue;
            };
            if let Ok(Err(fault)) = timeout(LOOK_MAX, self.look(open, rules)).await {
                tracing::debug!(partition = %open.id(), %fault, "what became too old waits");
            }
        }
        Ok(())
    }

    async fn rules(&self) -> Result<Rules, Fault> {
        let (mut rules, mut token) = (Rules::new(), String::new());
        loop {
            let page = self.subscriptions.list("", &token, PAGE).await?;
            for subscription in &page.subscriptions {
                add(&mut rules, subscription);
            }
            match page.next {
                Some(next) => token = next,
                None => return Ok(rules),
            }
        }
    }

    async fn look(&self, open: &PartitionHandle, rules: &[Rule]) -> Result<(), Fault> {
        let now = self.topics.now_ms();
        for view in open.cursors(None, 0).await? {
            let rule = rules.iter().find(|rule| rule.cursor == view.subscription);
            let Some(rule) = rule else {
                continue;
            };
            heal(open, &view, rule, now);
            if rule.ttl_ms > 0 && view.backlog > 0 {
                self.expire(open, &view, oldest(rule, now)).await?;
            }
        }
        Ok(())
    }

    /// Passes over what was appended before `oldest`.
    async fn expire(
        &self,
        open: &PartitionHandle,
        view: &CursorView,
        oldest: TimestampMs,
    ) -> Result<(), Fault> {
        let first = view.first_unacked;
        match open.appended_at(first).await? {
            Some(at) if at < oldest => {}
            _ => return Ok(()),
        }
        let end = open.offsets().high_watermark;
        let to = open.first_since(first, end, oldest).await?;
        let records = open.expire(view.subscription, to).await?;
        if records > 0 {
            self.metrics.subscriptions().expired(&view.name, records);
            tracing::info!(
                subscription = %view.name, partition = %open.id(), records, %to,
                "records became too old for a subscription"
            );
        }
        Ok(())
    }
}

fn add(rules: &mut Rules, subscription: &Subscription) {
    let (ttl_ms, paused_until) = (subscription.ttl_ms, subscription.paused_until);
    if subscription.deleting || (ttl_ms == 0 && paused_until == 0) {
        return;
    }
    for topic in subscription.topics.iter().filter(|topic| !topic.deleting) {
        rules.entry(topic.topic).or_default().push(Rule {
            cursor: topic.cursor,
            ttl_ms,
            paused_until,
        });
    }
}

fn oldest(rule: &Rule, now: TimestampMs) -> TimestampMs {
    let ttl = TimestampMs::try_from(rule.ttl_ms).unwrap_or(TimestampMs::MAX);
    now.saturating_sub(ttl)
}

/// A dispatcher that began while the pause was changed may not know of it.
fn heal(open: &PartitionHandle, view: &CursorView, rule: &Rule, now: TimestampMs) {
    let Some(sharing) = &view.sharing else {
        return;
    };
    let wanted = Some(rule.paused_until).filter(|until| *until > now);
    if sharing.paused_until != wanted {
        open.pause_sharing(view.subscription, rule.paused_until);
    }
}
