//! What a copy writes down before each step, and where.

use hulse_sdk::{
    Admin, Client, ErrorKind, Offset, Producer, ProducerId, ProducerIdentity, Record, Start,
};
use serde::{Deserialize, Serialize};

use crate::failure::{Code, Failure};

/// Behind the target's name.
const SUFFIX: &str = ".copied";

/// A step that is about to be made, and all that is needed to make the rest of it another time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Plan {
    /// Names and identities: a topic that was made anew is another one.
    pub(super) source: String,
    pub(super) source_id: String,
    pub(super) target: String,
    pub(super) target_id: String,
    /// The producer of all runs.
    pub(super) producer_id: i64,
    pub(super) producer_epoch: i16,
    /// Partition of the source that the step reads.
    pub(super) partition: u32,
    /// Exclusive end of the step.
    pub(super) end: u64,
    /// By partition of the source: the first offset that was not copied before the step.
    pub(super) next: Vec<u64>,
    /// By partition of the target: where it ended before the step.
    pub(super) target_ends: Vec<u64>,
    /// Partition by partition, since both topics had as many when the copy began; else by key.
    pub(super) alike: bool,
}

/// The topic that plans are kept in.
pub(super) struct Plans {
    topic: String,
    producer: Producer,
}

impl Plan {
    /// First offset of the step.
    pub(super) fn first(&self) -> u64 {
        self.next.get(self.partition as usize).copied().unwrap_or(0)
    }

    /// The producer of all runs.
    pub(super) fn identity(&self) -> ProducerIdentity {
        ProducerIdentity {
            id: ProducerId(self.producer_id),
            epoch: self.producer_epoch,
        }
    }
}

/// Name of the topic that a target's plans are kept in.
pub(super) fn topic_of(target: &str) -> String {
    format!("{target}{SUFFIX}")
}

/// The last plan; `None` when nothing was copied yet.
///
/// # Errors
/// The server's, or what is there is no plan.
pub(super) async fn last(
    client: &Client,
    admin: &Admin,
    topic: &str,
) -> Result<Option<Plan>, Failure> {
    let failed =
        |error: hulse_sdk::Error| Failure::from_sdk("cannot read the copy's state", topic, &error);
    let bounds = match admin.offsets(topic, 0, None).await {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        other => other.map_err(failed)?,
    };
    if bounds.end == bounds.start {
        return Ok(None);
    }
    let from = Start::Offset(Offset(bounds.end.0 - 1));
    let reader = client.reader(topic).start(from).follow(false).build();
    let record = reader.await.map_err(failed)?.next().await.map_err(failed)?;
    let value = record.and_then(|record| record.value).unwrap_or_default();
    let plan = serde_json::from_slice(&value).map_err(|error| {
        Failure::new(Code::Conflict, "the copy's state cannot be understood")
            .why(error)
            .object(topic)
            .next("delete this topic and the target, and copy anew")
    })?;
    Ok(Some(plan))
}

impl Plans {
    /// Opens the topic, which is made if it is not there.
    ///
    /// # Errors
    /// The server's.
    pub(super) async fn open(client: &Client, topic: String) -> Result<Self, Failure> {
        let failed = |error: hulse_sdk::Error| {
            Failure::from_sdk("cannot keep the copy's state", &topic, &error)
        };
        match client.admin().create_topic(&topic, 1).await {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::Exists => {}
            Err(error) => return Err(failed(error)),
        }
        let producer = client.producer(&topic).auto_create(false).build();
        let producer = producer.await.map_err(failed)?;
        Ok(Self { topic, producer })
    }

    /// Makes a plan durable.
    ///
    /// # Errors
    /// The server's: the step must not be begun.
    pub(super) async fn keep(&self, plan: &Plan) -> Result<(), Failure> {
        let failed = |error: hulse_sdk::Error| {
            Failure::from_sdk("cannot keep the copy's state", &self.topic, &error)
        };
        let value = serde_json::to_vec(plan).expect("a plan has text keys and whole numbers");
        let record = Record::new(value).key(plan.source.clone());
        let ticket = self.producer.send(record).await.map_err(failed)?;
        ticket.await.map(drop).map_err(failed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plan_is_read_back_as_it_was_kept() {
        let plan = Plan {
            source: "public/default/a".to_owned(),
            source_id: "1".to_owned(),
            target: "public/default/b".to_owned(),
            target_id: "2".to_owned(),
            producer_id: 7,
            producer_epoch: 0,
            partition: 1,
            end: 90,
            next: vec![100, 40],
            target_ends: vec![140],
            alike: false,
        };
        let text = serde_json::to_string(&plan).unwrap();
        assert_eq!(serde_json::from_str::<Plan>(&text).unwrap(), plan);
        assert_eq!(plan.first(), 40);
        assert_eq!(topic_of("a/b/c"), "a/b/c.copied");
    }
}
