//! Retention and trims as the gRPC wire has them.

use futures::stream::{self, StreamExt};
use hulse_proto::error::Fault;
use hulse_proto::id::{Offset, PartitionId, TopicId};
use hulse_proto::limits::TOPIC_PARTITIONS_MAX;
use hulse_proto::wire::v1::partition_work::Work;
use hulse_proto::wire::v1::{self, trim_point};

use super::front::Front;
use super::peers::work_on;
use super::wire::invalid;
use crate::retention::{RetentionPolicy, Setting};

/// Of an update: what the cluster says holds again.
const INHERITED: i64 = -2;
/// Partitions of one request that are trimmed together.
const TRIMS_AT_ONCE: usize = 16;

/// What a new topic is told.
///
/// # Errors
/// `INVALID_REQUEST`: a number below -1.
pub(super) fn of_new(wire: Option<&v1::Retention>) -> Result<RetentionPolicy, Fault> {
    let wire = wire.copied().unwrap_or_default();
    Ok(RetentionPolicy {
        time: time(wire.time_ms)?,
        bytes: bytes(wire.bytes)?,
    })
}

/// What an update makes of a topic's retention.
///
/// # Errors
/// `INVALID_REQUEST`: a number below -2.
pub(super) fn change(
    wire: &v1::UpdateTopicRequest,
) -> Result<impl Fn(RetentionPolicy) -> RetentionPolicy + use<>, Fault> {
    let known = |value: i64| (value != INHERITED).then_some(value);
    let new_time = wire.retention_ms.map(|ms| time(known(ms))).transpose()?;
    let new_bytes = wire
        .retention_bytes
        .map(|size| bytes(known(size)))
        .transpose()?;
    Ok(move |now: RetentionPolicy| RetentionPolicy {
        time: new_time.unwrap_or(now.time),
        bytes: new_bytes.unwrap_or(now.bytes),
    })
}

/// As the wire has it.
pub(super) fn to_wire(policy: RetentionPolicy) -> v1::Retention {
    v1::Retention {
        time_ms: policy.time.to_wire_ms(),
        bytes: policy.bytes.to_wire(),
    }
}

fn time(wire: Option<i64>) -> Result<Setting<std::time::Duration>, Fault> {
    Setting::from_wire_ms(wire)
        .ok_or_else(|| invalid("retention by time is a number of milliseconds, or -1 for no limit"))
}

fn bytes(wire: Option<i64>) -> Result<Setting<u64>, Fault> {
    Setting::<u64>::from_wire(wire)
        .ok_or_else(|| invalid("retention by size is a number of bytes, or -1 for no limit"))
}

impl Front {
    /// Trims what is asked for; each partition has an answer of its own.
    pub(super) async fn trim_all(
        &self,
        topic: TopicId,
        points: &[v1::TrimPoint],
    ) -> Result<Vec<v1::TrimmedPartition>, Fault> {
        if points.is_empty() || points.len() > TOPIC_PARTITIONS_MAX as usize {
            let words = format!("name 1 to {TOPIC_PARTITIONS_MAX} partitions to be trimmed");
            return Err(invalid(words));
        }
        let trims = stream::iter(points.to_vec()).map(|point| async move {
            let partition = PartitionId {
                topic,
                index: point.index,
            };
            let (log_start, fault) = match self.trim_one(partition, point.to).await {
                Ok(log_start) => (Some(log_start.0), None),
                Err(fault) => {
                    self.metrics.fault(fault.reason);
                    (None, Some(fault.to_wire()))
                }
            };
            v1::TrimmedPartition {
                index: point.index,
                log_start,
                fault,
            }
        });
        Ok(trims.buffered(TRIMS_AT_ONCE).collect().await)
    }

    async fn trim_one(
        &self,
        partition: PartitionId,
        to: Option<trim_point::To>,
    ) -> Result<Offset, Fault> {
        if self.elsewhere(partition).is_none() {
            return self.trim_here(partition, to).await;
        }
        let index = partition.index;
        let work = work_on(partition, Work::Trim(v1::TrimPoint { index, to }));
        Ok(Offset(self.anywhere(work).await?.log_start))
    }

    pub(super) async fn trim_here(
        &self,
        partition: PartitionId,
        to: Option<trim_point::To>,
    ) -> Result<Offset, Fault> {
        let to = match to {
            None => None,
            Some(trim_point::To::Offset(offset)) => Some(Offset(offset)),
            Some(trim_point::To::TimeMs(time)) => {
                let open = self.open(partition).await?;
                // Where the log ends before the look: what comes after it is not older.
                let end = open.told_offsets().await?.high_watermark;
                let found = open.offset_at_time(time).await?;
                Some(found.map_or(end, |(offset, _)| offset))
            }
        };
        self.trim(partition, to).await
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn update_changes_what_it_names_and_nothing_else() {
        let now = RetentionPolicy {
            time: Setting::Limit(Duration::from_secs(5)),
            bytes: Setting::Limit(7),
        };
        let updated = |retention_ms, retention_bytes| {
            let wire = v1::UpdateTopicRequest {
                name: String::new(),
                retention_ms,
                retention_bytes,
                ..Default::default()
            };
            change(&wire).map(|change| change(now)).ok()
        };
        assert_eq!(updated(None, None), Some(now));
        let inherited = RetentionPolicy {
            time: Setting::Inherited,
            ..now
        };
        assert_eq!(updated(Some(-2), None), Some(inherited));
        let unlimited = RetentionPolicy {
            bytes: Setting::Unlimited,
            ..now
        };
        assert_eq!(updated(None, Some(-1)), Some(unlimited));
        assert_eq!(updated(None, Some(-3)), None);
    }
}
