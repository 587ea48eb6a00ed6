//! Asks the server over the wire of clients: topics, partitions, ledgers.

use hulse_sdk::{Admin, Partition};

use super::finding::{Ailment, Finding};
use crate::failure::Failure;
use crate::output::bytes;

/// Topics that are looked at: the others are as well or ill as these, and a look takes time.
const TOPICS_MAX: usize = 1_000;

/// What topics and ledgers say. A partition that was not opened yet is opened by asking where it ends.
///
/// # Errors
/// The server's.
pub(super) async fn examine(admin: &Admin) -> Result<Vec<Finding>, Failure> {
    let failed =
        |what: &str, error: &hulse_sdk::Error| Failure::from_sdk(what, "all topics", error);
    let mut found = Vec::new();
    let topics = admin.list_topics("").await;
    let topics = topics.map_err(|error| failed("cannot list topics", &error))?;
    for topic in topics.iter().take(TOPICS_MAX) {
        found.extend(partitions(admin, &topic.name).await);
    }
    let ledgers = admin.list_ledgers("").await;
    for ledger in ledgers.map_err(|error| failed("cannot list ledgers", &error))? {
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

/// A subscription that keeps more of the partition than the topic allows.
fn backlog(topic: &str, partition: &Partition) -> Option<Finding> {
    let kept = partition.backlog.as_ref()?;
    if kept.used_percent <= 100 {
        return None;
    }
    let follows = match kept.refusing {
        true => "producers are refused until it has processed enough",
        false => "what happens then is the topic's backlog policy",
    };
    let subscription = &kept.subscription;
    Some(
        Ailment::BacklogQuota
            .found(
                "a subscription is over the backlog quota of its topic",
                format!("{topic}, partition {}", partition.index),
            )
            .why(format!(
                "{subscription} keeps {} % of what it may, {}; {follows}",
                kept.used_percent,
                bytes(kept.bytes)
            ))
            .next(format!(
                "hulse subscriptions describe {topic} {}; hulse topics describe {topic}",
                subscription.rsplit('/').next().unwrap_or(subscription)
            )),
    )
}

async fn partitions(admin: &Admin, topic: &str) -> Vec<Finding> {
    // A topic may be gone by now; its successor is looked at the next time.
    let Ok(described) = admin.describe_topic(topic).await else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for partition in described.partition {
        found.extend(backlog(topic, &partition));
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
