//! What is to be copied where: both topics as they are when a run begins.

use hulse_sdk::{Admin, ErrorKind, ReadRecord, Topic, partition_of_key};

use crate::failure::{Code, Failure};

/// Offsets of records without a key that go to one partition of the target, before the next one's turn.
const STICKY_OFFSETS: u64 = 1024;

/// Both topics.
#[derive(Debug, Clone)]
pub(super) struct Goal {
    pub(super) source: Topic,
    pub(super) target: Topic,
    /// Of the source, by partition.
    pub(super) starts: Vec<u64>,
    /// Of the source, by partition: what comes later is for the next run.
    pub(super) ends: Vec<u64>,
    /// Partition by partition; else by key. Decided when the copy begins, since the source may grow.
    pub(super) alike: bool,
    /// The target was not there: what an earlier copy said of it is void.
    pub(super) target_is_new: bool,
}

impl Goal {
    /// Looks at both; the target is made with `partitions` (0: as many as the source) if it is not there and may be made.
    ///
    /// # Errors
    /// The server's, or the target is there with other partitions.
    pub(super) async fn find(
        admin: &Admin,
        names: (&str, &str),
        partitions: u32,
        dry: bool,
    ) -> Result<Self, Failure> {
        let (from, to) = names;
        let failed =
            |error: hulse_sdk::Error| Failure::from_sdk("cannot copy from the topic", from, &error);
        let source = admin.describe_topic(from).await.map_err(failed)?;
        let mut target_is_new = false;
        let target = match admin.describe_topic(to).await {
            Err(error) if error.kind() == ErrorKind::NotFound && dry => {
                target_is_new = true;
                let mut target = source.clone();
                to.clone_into(&mut target.name);
                if partitions > 0 {
                    target.partitions = partitions;
                }
                target
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                target_is_new = true;
                let partitions = match partitions {
                    0 => source.partitions,
                    partitions => partitions,
                };
                let made = admin.create_topic(to, partitions).await;
                made.map_err(|error| Failure::from_sdk("cannot make the target", to, &error))?
            }
            other => {
                other.map_err(|error| Failure::from_sdk("cannot copy to the topic", to, &error))?
            }
        };
        if target.name == source.name {
            return Err(
                Failure::new(Code::Usage, "source and target are the same topic")
                    .why("a copy would never end")
                    .object(&source.name)
                    .next("name another target"),
            );
        }
        if partitions > 0 && target.partitions != partitions {
            return Err(Failure::new(
                Code::Conflict,
                "the target has another number of partitions",
            )
            .why(format!(
                "it has {}, {partitions} were asked for",
                target.partitions
            ))
            .object(&target.name)
            .next("leave --partitions out, or name another target"));
        }
        let alike = source.partitions == target.partitions;
        let (starts, ends) = bounds(admin, &source).await?.into_iter().unzip();
        Ok(Self {
            source,
            target,
            starts,
            ends,
            alike,
            target_is_new,
        })
    }

    /// The partition that all records of a partition of the source go to, where it is one for all.
    pub(super) fn lane_of(&self, partition: u32) -> Option<u32> {
        let targets = self.target.partitions;
        match self.alike && partition < targets {
            true => Some(partition),
            false => (targets == 1).then_some(0),
        }
    }

    /// Where a record goes: decided by the record and by what was so when the copy began, so that every run decides alike.
    pub(super) fn partition_of(&self, record: &ReadRecord) -> u32 {
        let targets = self.target.partitions;
        match &record.key {
            // A partition that the source got later has none of its own.
            _ if self.alike && record.partition < targets => record.partition,
            Some(key) => partition_of_key(key, targets),
            None => {
                let turn = record.offset.0 / STICKY_OFFSETS + u64::from(record.partition);
                (turn % u64::from(targets.max(1))) as u32
            }
        }
    }
}

/// Start and end of each partition.
///
/// # Errors
/// The server's.
pub(super) async fn bounds(admin: &Admin, topic: &Topic) -> Result<Vec<(u64, u64)>, Failure> {
    let mut bounds = Vec::with_capacity(topic.partitions as usize);
    for partition in 0..topic.partitions {
        let found = admin.offsets(&topic.name, partition, None).await;
        let found = found.map_err(|error| {
            let object = format!("{}, partition {partition}", topic.name);
            Failure::from_sdk("cannot see where the partition ends", object, &error)
        })?;
        bounds.push((found.start.0, found.end.0));
    }
    Ok(bounds)
}
