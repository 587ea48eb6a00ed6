//! Asks the server over the wire of clients: topics, partitions, ledgers.

use std::collections::BTreeSet;

use hulse_sdk::{Admin, Cursor, Subscription};

use super::finding::{Ailment, Finding};
use super::looked::Looked;
use super::{backlogs, damage};
use crate::failure::Failure;
use crate::output::bytes;
use crate::output::grouped;

/// Topics that are looked at: the others are as well or ill as these, and a look takes time.
const TOPICS_MAX: usize = 1_000;
/// Subscriptions likewise.
const SUBSCRIPTIONS_MAX: usize = 1_000;

/// Partitions that take no records because a subscription keeps too much.
type Refusing = BTreeSet<(String, u32)>;

/// What topics and ledgers say. A partition that was not opened yet is opened by asking where it ends.
///
/// # Errors
/// The server's.
pub(super) async fn examine(admin: &Admin, looked: &mut Looked) -> Result<Vec<Finding>, Failure> {
    let failed =
        |what: &str, error: &hulse_sdk::Error| Failure::from_sdk(what, "all topics", error);
    let mut found = Vec::new();
    let topics = admin.list_topics("").await;
    let topics = topics.map_err(|error| failed("cannot list topics", &error))?;
    looked.topics = topics.len().min(TOPICS_MAX);
    looked.of_topics = topics.len();
    let mut refusing = Refusing::new();
    for topic in topics.iter().take(TOPICS_MAX) {
        found.extend(partitions(admin, &topic.name, &mut refusing, looked).await);
    }
    found.extend(subscriptions(admin, &refusing, looked).await?);
    found.extend(damage::examine(admin).await?);
    let ledgers = admin.list_ledgers("").await;
    let ledgers = ledgers.map_err(|error| failed("cannot list ledgers", &error))?;
    looked.ledgers = ledgers.len();
    for ledger in ledgers {
        if let Some(loss) = &ledger.loss {
            let object = format!(
                "ledger {} of {}, partition {}",
                ledger.id.0, ledger.topic, ledger.partition
            );
            found.push(
                Ailment::LostLedger
                    .found("a ledger has lost something", object)
                    .why(format!("it is marked {loss}"))
                    .next(format!(
                        "hulse ledgers list {}; hulse verify {}",
                        ledger.topic, ledger.topic
                    )),
            );
        }
    }
    Ok(found)
}

/// Where a subscription keeps more of a partition than the topic allows. The cursor is asked, whose number is that of now; what the
/// partition says of it was counted up to ten seconds ago, and only tells whether producers are refused.
fn over_quota(
    subscription: &Subscription,
    cursors: &[Cursor],
    refusing: &Refusing,
) -> Vec<Finding> {
    let name = &subscription.name;
    let over = cursors.iter().filter_map(|cursor| {
        let state = cursor.state.as_ref().ok()?;
        let percent = state.backlog_used_percent.filter(|used| *used > 100)?;
        let topic = &cursor.topic;
        let follows = match refusing.contains(&(topic.clone(), cursor.partition)) {
            true => "producers are refused until it has processed enough",
            false => "what happens then is the topic's backlog policy",
        };
        let finding = Ailment::BacklogQuota
            .found(
                "a subscription is over the backlog quota of its topic",
                format!("{topic}, partition {}", cursor.partition),
            )
            .why(format!(
                "{name} keeps {percent} % of what it may: {} records are not acknowledged, {}; {follows}",
                grouped(state.backlog_records),
                bytes(state.backlog_bytes)
            ))
            .next(format!(
                "hulse subscriptions describe {topic} {}; hulse topics describe {topic}",
                name.rsplit('/').next().unwrap_or(name)
            ));
        Some(finding)
    });
    over.collect()
}

/// What subscriptions have lost, and those that nobody can consume by any more.
async fn subscriptions(
    admin: &Admin,
    refusing: &Refusing,
    looked: &mut Looked,
) -> Result<Vec<Finding>, Failure> {
    let listed = admin.list_subscriptions("", "").await;
    let listed = listed.map_err(|error| {
        Failure::from_sdk("cannot list subscriptions", "all subscriptions", &error)
    })?;
    let mut found = Vec::new();
    looked.subscriptions = listed.len().min(SUBSCRIPTIONS_MAX);
    looked.of_subscriptions = listed.len();
    for subscription in listed.into_iter().take(SUBSCRIPTIONS_MAX) {
        if subscription.topics.is_empty() {
            found.push(outlived(&subscription));
            continue;
        }
        // It may be gone by now.
        let described = admin.describe_subscription(&subscription.name, "", false);
        if let Ok((_, cursors)) = described.await {
            found.extend(over_quota(&subscription, &cursors, refusing));
            found.extend(evicted(&subscription, &cursors));
            found.extend(backlogs::of_cursors(&subscription, &cursors));
        }
    }
    Ok(found)
}

fn outlived(subscription: &Subscription) -> Finding {
    let name = &subscription.name;
    let (namespace, short) = name.rsplit_once('/').unwrap_or(("public/default", name));
    Ailment::Outlived
        .found("a subscription has outlived its topics", name)
        .why("they were deleted; consuming a topic by this name goes on with it")
        .next(format!(
            "hulse subscriptions delete {namespace}/TOPIC {short}, if nobody will: any name will do for TOPIC"
        ))
}

/// Records that the backlog quota took. Of each topic, since each has its quota.
fn evicted(subscription: &Subscription, cursors: &[Cursor]) -> Vec<Finding> {
    let mut by_topic = std::collections::BTreeMap::<&str, u64>::new();
    for cursor in cursors {
        let lost = cursor
            .state
            .as_ref()
            .map_or(0, |state| state.evicted_records);
        *by_topic.entry(&cursor.topic).or_default() += lost;
    }
    by_topic.retain(|_, lost| *lost > 0);
    let found = by_topic.into_iter().map(|(topic, lost)| {
        let name = &subscription.name;
        Ailment::Evicted
            .found(
                "a subscription has lost records to the backlog quota",
                format!("{name} of {topic}"),
            )
            .why(format!(
                "{} records were passed over unread since it was made; the server's log tells when, and whether that goes on the topic's backlog policy says",
                grouped(lost)
            ))
            .next(format!(
                "hulse subscriptions describe {topic} {name} --output wide; hulse topics update {topic} --backlog-size SIZE gives it more room"
            ))
    });
    found.collect()
}

async fn partitions(
    admin: &Admin,
    topic: &str,
    refusing: &mut Refusing,
    looked: &mut Looked,
) -> Vec<Finding> {
    // A topic may be gone by now; its successor is looked at the next time.
    let Ok(described) = admin.describe_topic(topic).await else {
        return Vec::new();
    };
    let mut found = Vec::new();
    looked.partitions += described.partition.len();
    for partition in described.partition {
        if partition.backlog.as_ref().is_some_and(|kept| kept.refusing) {
            refusing.insert((topic.to_owned(), partition.index));
        }
        let why = match (&partition.fault, partition.high_watermark) {
            (Some(fault), _) => fault.to_string(),
            (None, Some(_)) => continue,
            (None, None) => match admin.offsets(topic, partition.index, None).await {
                Ok(_) => continue,
                Err(error) => error.to_string(),
            },
        };
        found.push(
            Ailment::ClosedPartition
                .found(
                    "a partition does not open",
                    format!("{topic}, partition {}", partition.index),
                )
                .why(why)
                .next(format!(
                    "hulse ledgers list {topic}; look at the server's log"
                )),
        );
    }
    found
}
