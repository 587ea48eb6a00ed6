//! `hulse topics`: list, create, describe, delete, add partitions.

use std::time::Duration;

use futures::future::join_all;
use hulse_sdk::{Admin, Topic};
use serde::Serialize;

use super::confirm::confirm;
use super::session::Session;
use crate::arguments::Topics;
use crate::failure::{Failure, Stop};
use crate::format::date;
use crate::output::{Shape, Table, bytes, grouped};

/// Partitions that `describe` opens at most to tell their offsets.
const OPENED_MAX: usize = 64;
/// Longest wait for them.
const OPEN_WAIT_MAX: Duration = Duration::from_secs(5);

/// A topic as it is shown.
#[derive(Debug, Clone, Serialize)]
struct TopicView {
    topic: String,
    id: String,
    partitions: u32,
    state: String,
    created_at_ms: i64,
    /// Records kept in partitions that are open; `None` where none is.
    records: Option<u64>,
    stored_bytes: Option<u64>,
    partition: Vec<PartitionView>,
}

/// A partition as it is shown.
#[derive(Debug, Clone, Serialize)]
struct PartitionView {
    partition: u32,
    owner: String,
    leader_epoch: u32,
    log_start: Option<u64>,
    high_watermark: Option<u64>,
    stored_bytes: Option<u64>,
    /// Why it does not serve.
    fault: Option<String>,
}

impl From<Topic> for TopicView {
    fn from(topic: Topic) -> Self {
        let partition: Vec<PartitionView> = topic
            .partition
            .into_iter()
            .map(|partition| PartitionView {
                partition: partition.index,
                owner: partition.owner.unwrap_or_default(),
                leader_epoch: partition.leader_epoch,
                log_start: partition.log_start.map(|offset| offset.0),
                high_watermark: partition.high_watermark.map(|offset| offset.0),
                stored_bytes: partition.stored_bytes,
                fault: partition.fault.map(|fault| fault.to_string()),
            })
            .collect();
        let records = |partition: &PartitionView| {
            Some(
                partition
                    .high_watermark?
                    .saturating_sub(partition.log_start?),
            )
        };
        Self {
            topic: topic.name,
            id: topic.id.to_string(),
            partitions: topic.partitions,
            state: topic.state,
            created_at_ms: topic.created_at_ms,
            records: sum(partition.iter().map(records)),
            stored_bytes: sum(partition.iter().map(|partition| partition.stored_bytes)),
            partition,
        }
    }
}

/// Of what is known; `None` when nothing is.
fn sum(values: impl Iterator<Item = Option<u64>>) -> Option<u64> {
    values
        .flatten()
        .fold(None, |sum, value| Some(sum.unwrap_or(0) + value))
}

fn or_dash<T>(value: Option<T>, shown: impl FnOnce(T) -> String) -> String {
    value.map_or_else(|| "-".to_owned(), shown)
}

fn list_table(topics: &Vec<TopicView>) -> Table {
    let mut table = Table::new(&["TOPIC", "PARTS", "CREATED", "STATE"]);
    for topic in topics {
        table.row(vec![
            topic.topic.clone(),
            grouped(u64::from(topic.partitions)),
            date(topic.created_at_ms),
            topic.state.clone(),
        ]);
    }
    table
}

/// Says what was done: the topic as data for a program, a sentence for a person.
fn done(session: Session<'_>, topic: Topic, words: &str) -> Result<(), Stop> {
    let view = TopicView::from(topic);
    match session.output.shape {
        Shape::Json => session.output.json(&view),
        Shape::Table => {
            let count = partitions_of(view.partitions);
            session
                .output
                .say(&format!("{} {words} {count}", view.topic));
            Ok(())
        }
    }
}

fn partition_table(topic: &TopicView) -> Table {
    let mut table = Table::new(&[
        "PARTITION",
        "OWNER",
        "EPOCH",
        "START",
        "END",
        "STORED",
        "STATE",
    ]);
    for partition in &topic.partition {
        let state = match &partition.fault {
            Some(fault) => fault.clone(),
            None if partition.high_watermark.is_none() => "not opened yet".to_owned(),
            None => "ok".to_owned(),
        };
        table.row(vec![
            partition.partition.to_string(),
            partition.owner.clone(),
            or_dash(
                Some(partition.leader_epoch).filter(|epoch| *epoch > 0),
                |epoch| epoch.to_string(),
            ),
            or_dash(
                // Both are known once it is open; before, 0 would say more than anybody knows.
                partition
                    .log_start
                    .filter(|_| partition.high_watermark.is_some()),
                grouped,
            ),
            or_dash(partition.high_watermark, grouped),
            or_dash(partition.stored_bytes, bytes),
            state,
        ]);
    }
    table
}

/// Runs it.
///
/// # Errors
/// The server's; a deletion that was not confirmed.
pub(crate) async fn run(session: Session<'_>, command: &Topics) -> Result<(), Stop> {
    let admin = session.client()?.admin();
    match command {
        Topics::List { namespace } => {
            let listed = admin.list_topics(namespace.as_deref().unwrap_or("")).await;
            let listed = listed.map_err(|error| {
                let object = namespace.as_deref().unwrap_or("all namespaces");
                Failure::from_sdk("cannot list topics", object, &error)
            })?;
            let views: Vec<TopicView> = listed.into_iter().map(Into::into).collect();
            session.output.data(&views, list_table)
        }
        Topics::Create { topics, partitions } => {
            for topic in topics {
                let created = admin.create_topic(topic, partitions.unwrap_or(0)).await;
                let created = created
                    .map_err(|error| Failure::from_sdk("cannot create the topic", topic, &error))?;
                done(session, created, "is created with")?;
            }
            Ok(())
        }
        Topics::Describe { topic } => describe(session, &admin, topic).await,
        Topics::Delete { topics } => {
            let what = format!("delete {} with everything in it", topics.join(", "));
            confirm(session, &what)?;
            for topic in topics {
                let deleted = admin.delete_topic(topic).await;
                deleted
                    .map_err(|error| Failure::from_sdk("cannot delete the topic", topic, &error))?;
                session.output.say(&format!("deleted {topic}"));
            }
            Ok(())
        }
        Topics::Partitions { topic, total } => {
            let grown = admin.add_partitions(topic, *total).await;
            let grown = grown.map_err(|error| {
                Failure::from_sdk("cannot change the partitions", topic, &error)
            })?;
            done(session, grown, "now has")
        }
    }
}

fn partitions_of(count: u32) -> String {
    match count {
        1 => "1 partition".to_owned(),
        count => format!("{count} partitions"),
    }
}

/// Asks the owners of partitions that are not open where these end, which opens them. True when any was asked; what an owner does not
/// tell is shown as unknown, so no answer is looked at.
async fn open(admin: &Admin, topic: &Topic) -> bool {
    let closed = topic
        .partition
        .iter()
        .filter(|partition| partition.high_watermark.is_none() && partition.fault.is_none());
    let asked: Vec<_> = closed
        .take(OPENED_MAX)
        .map(|partition| admin.offsets(&topic.name, partition.index, None))
        .collect();
    let any = !asked.is_empty();
    let _ = tokio::time::timeout(OPEN_WAIT_MAX, join_all(asked)).await;
    any
}

async fn describe(session: Session<'_>, admin: &Admin, topic: &str) -> Result<(), Stop> {
    let failed = |error| Failure::from_sdk("cannot describe the topic", topic, &error);
    let mut described = admin.describe_topic(topic).await.map_err(failed)?;
    if open(admin, &described).await {
        described = admin.describe_topic(topic).await.map_err(failed)?;
    }
    let view = TopicView::from(described);
    session.output.say(&format!(
        "{}  {}  {}  id {}",
        view.topic,
        view.state,
        partitions_of(view.partitions),
        view.id
    ));
    session.output.data(&view, partition_table)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn partition_that_is_not_open_shows_what_is_unknown_as_dashes() {
        let view = TopicView {
            topic: "t".to_owned(),
            id: String::new(),
            partitions: 1,
            state: "active".to_owned(),
            created_at_ms: 0,
            records: None,
            stored_bytes: None,
            partition: vec![PartitionView {
                partition: 7,
                owner: "b:1".to_owned(),
                leader_epoch: 0,
                log_start: Some(0),
                high_watermark: None,
                stored_bytes: None,
                fault: None,
            }],
        };
        let table = partition_table(&view).render();
        let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
        assert_eq!(
            row,
            ["7", "b:1", "-", "-", "-", "-", "not", "opened", "yet"]
        );
    }

    #[test]
    fn sums_are_of_what_is_known() {
        assert_eq!(sum([Some(1), None, Some(2)].into_iter()), Some(3));
        assert_eq!(sum([None, None].into_iter()), None);
    }
}
