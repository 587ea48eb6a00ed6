//! What a registry refuses, in words.

use std::time::Duration;

use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::TopicName;
use hulse_proto::limits::TOPIC_PARTITIONS_MAX;

use super::topic::{PREFIX, Topic, TopicState, deleting};

/// A change that lost every race is worth another try after this.
const RACE_RETRY: Duration = Duration::from_millis(50);

/// A number of partitions that a topic may have.
pub(super) fn check_partitions(partitions: u32) -> Result<(), Fault> {
    if (1..=TOPIC_PARTITIONS_MAX).contains(&partitions) {
        return Ok(());
    }
    let words =
        format!("a topic has 1 to {TOPIC_PARTITIONS_MAX} partitions, {partitions} were asked for");
    Err(Fault::new(Reason::InvalidRequest, words))
}

/// Where the keys of a namespace begin.
pub(super) fn list_prefix(namespace: &str) -> Result<String, Fault> {
    if namespace.is_empty() {
        return Ok(PREFIX.to_owned());
    }
    // A namespace is right when a topic in it would be.
    let probe = format!("{namespace}/x").parse::<TopicName>();
    match probe {
        Ok(probe) if namespace.contains('/') => {
            Ok(format!("{PREFIX}{}/{}/", probe.tenant(), probe.namespace()))
        }
        _ => {
            let shown: String = namespace.chars().take(64).collect();
            let words = format!("namespace {shown:?} is none; write `tenant/namespace`");
            Err(Fault::new(Reason::InvalidName, words))
        }
    }
}

/// The name is taken.
pub(super) fn exists(topic: &Topic) -> Fault {
    match topic.state {
        TopicState::Deleting => deleting(&topic.name),
        TopicState::Active => {
            let words = format!(
                "topic {} already exists, with {} partitions; use it, or delete it first",
                topic.name, topic.partitions
            );
            Fault::new(Reason::TopicExists, words)
                .with("topic", &topic.name)
                .with("partitions", topic.partitions)
        }
    }
}

/// Partitions are never taken away.
pub(super) fn decrease(topic: &Topic, total: u32) -> Fault {
    let words = format!(
        "topic {} has {} partitions and cannot go back to {total}: keys would change their \
         partition and lose their order; make a new topic and copy",
        topic.name, topic.partitions
    );
    Fault::new(Reason::PartitionsDecrease, words).with("partitions", topic.partitions)
}

/// Another topic has the name now.
pub(super) fn recreated(name: &TopicName) -> Fault {
    let words = format!("topic {name} was deleted and made again meanwhile; look, then decide");
    Fault::new(Reason::TopicRecreated, words)
}

/// Others changed it each time.
pub(super) fn lost_every_race(name: &TopicName) -> Fault {
    let words = format!("topic {name} is being changed by others at the same time; try again");
    Fault::new(Reason::Overloaded, words).retry_after(RACE_RETRY)
}
