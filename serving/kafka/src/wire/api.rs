//! The requests that are served, and what is said of them to clients: the one table.

use kafka_protocol::messages::ApiKey;

use super::requests;
use super::schema::Schema;

/// A served request.
#[derive(Debug)]
pub(crate) struct Api {
    /// Which.
    pub(crate) key: ApiKey,
    /// Its name in metrics.
    pub(crate) metric: &'static str,
    /// The lowest version that clients are told. Below `served_from` only where they need to be told more than is done.
    pub(crate) told_from: i16,
    /// The lowest version that is served.
    pub(crate) served_from: i16,
    /// The highest.
    pub(crate) to: i16,
    /// From this version on lengths are compact and structs end with tagged fields.
    pub(crate) flexible_from: i16,
    /// Its fields.
    pub(crate) schema: &'static Schema,
}

const fn api(
    key: ApiKey,
    metric: &'static str,
    (served_from, to): (i16, i16),
    flexible_from: i16,
    schema: &'static Schema,
) -> Api {
    Api {
        key,
        metric,
        told_from: served_from,
        served_from,
        to,
        flexible_from,
        schema,
    }
}

/// No version is flexible.
const NEVER: i16 = i16::MAX;

/// Every served request (serving.md D1). Transactions are not among them before they work.
pub(crate) static APIS: &[Api] = &[
    Api {
        // Librdkafka takes a lowest version of 3 for a broker without compression; nothing sends 0 to 2 any more (KAFKA-18659).
        told_from: 0,
        ..api(
            ApiKey::Produce,
            "Kafka.Produce",
            (3, 13),
            9,
            &requests::PRODUCE,
        )
    },
    api(ApiKey::Fetch, "Kafka.Fetch", (4, 17), 12, &requests::FETCH),
    api(
        ApiKey::ListOffsets,
        "Kafka.ListOffsets",
        (1, 10),
        6,
        &requests::LIST_OFFSETS,
    ),
    api(
        ApiKey::Metadata,
        "Kafka.Metadata",
        (0, 13),
        9,
        &requests::METADATA,
    ),
    api(
        ApiKey::ApiVersions,
        "Kafka.ApiVersions",
        (0, 4),
        3,
        &requests::API_VERSIONS,
    ),
    api(
        ApiKey::CreateTopics,
        "Kafka.CreateTopics",
        (2, 7),
        5,
        &requests::CREATE_TOPICS,
    ),
    api(
        ApiKey::DeleteTopics,
        "Kafka.DeleteTopics",
        (1, 6),
        4,
        &requests::DELETE_TOPICS,
    ),
    api(
        ApiKey::DeleteRecords,
        "Kafka.DeleteRecords",
        (0, 2),
        2,
        &requests::DELETE_RECORDS,
    ),
    api(
        ApiKey::FindCoordinator,
        "Kafka.FindCoordinator",
        (0, 6),
        3,
        &requests::FIND_COORDINATOR,
    ),
    api(
        ApiKey::JoinGroup,
        "Kafka.JoinGroup",
        (0, 9),
        6,
        &requests::JOIN_GROUP,
    ),
    api(
        ApiKey::SyncGroup,
        "Kafka.SyncGroup",
        (0, 5),
        4,
        &requests::SYNC_GROUP,
    ),
    api(
        ApiKey::Heartbeat,
        "Kafka.Heartbeat",
        (0, 4),
        4,
        &requests::HEARTBEAT,
    ),
    api(
        ApiKey::LeaveGroup,
        "Kafka.LeaveGroup",
        (0, 5),
        4,
        &requests::LEAVE_GROUP,
    ),
    api(
        ApiKey::OffsetCommit,
        "Kafka.OffsetCommit",
        (2, 9),
        8,
        &requests::OFFSET_COMMIT,
    ),
    api(
        ApiKey::OffsetFetch,
        "Kafka.OffsetFetch",
        (1, 9),
        6,
        &requests::OFFSET_FETCH,
    ),
    api(
        ApiKey::OffsetDelete,
        "Kafka.OffsetDelete",
        (0, 0),
        NEVER,
        &requests::OFFSET_DELETE,
    ),
    api(
        ApiKey::ListGroups,
        "Kafka.ListGroups",
        (0, 5),
        3,
        &requests::LIST_GROUPS,
    ),
    api(
        ApiKey::DescribeGroups,
        "Kafka.DescribeGroups",
        (0, 6),
        5,
        &requests::DESCRIBE_GROUPS,
    ),
    api(
        ApiKey::DeleteGroups,
        "Kafka.DeleteGroups",
        (0, 2),
        2,
        &requests::DELETE_GROUPS,
    ),
    api(
        ApiKey::ConsumerGroupHeartbeat,
        "Kafka.ConsumerGroupHeartbeat",
        (0, 1),
        0,
        &requests::MEMBER_HEARTBEAT,
    ),
    api(
        ApiKey::ConsumerGroupDescribe,
        "Kafka.ConsumerGroupDescribe",
        (0, 1),
        0,
        &requests::DESCRIBE_NEWER_GROUPS,
    ),
    api(
        ApiKey::InitProducerId,
        "Kafka.InitProducerId",
        (0, 5),
        2,
        &requests::INIT_PRODUCER_ID,
    ),
    api(
        ApiKey::OffsetForLeaderEpoch,
        "Kafka.OffsetForLeaderEpoch",
        (2, 4),
        4,
        &requests::LEADER_EPOCH,
    ),
    api(
        ApiKey::DescribeConfigs,
        "Kafka.DescribeConfigs",
        (1, 4),
        4,
        &requests::DESCRIBE_CONFIGS,
    ),
    api(
        ApiKey::AlterConfigs,
        "Kafka.AlterConfigs",
        (0, 2),
        2,
        &requests::ALTER_CONFIGS,
    ),
    api(
        ApiKey::IncrementalAlterConfigs,
        "Kafka.IncrementalAlterConfigs",
        (0, 1),
        1,
        &requests::INCREMENTAL_ALTER_CONFIGS,
    ),
    api(
        ApiKey::CreatePartitions,
        "Kafka.CreatePartitions",
        (0, 3),
        2,
        &requests::CREATE_PARTITIONS,
    ),
    api(
        ApiKey::DescribeCluster,
        "Kafka.DescribeCluster",
        (0, 2),
        0,
        &requests::DESCRIBE_CLUSTER,
    ),
    api(
        ApiKey::DescribeTopicPartitions,
        "Kafka.DescribeTopicPartitions",
        (0, 0),
        0,
        &requests::DESCRIBE_TOPIC_PARTITIONS,
    ),
];

impl Api {
    /// The row of a key.
    pub(crate) fn find(key: i16) -> Option<&'static Self> {
        APIS.iter().find(|api| api.key as i16 == key)
    }

    /// Whether requests of this version are flexible.
    pub(crate) fn is_flexible(&self, version: i16) -> bool {
        version >= self.flexible_from
    }

    /// Whether this version is served.
    pub(crate) fn serves(&self, version: i16) -> bool {
        (self.served_from..=self.to).contains(&version)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table_agrees_with_the_decoders_on_versions_and_headers() {
        for api in APIS {
            let valid = api.key.valid_versions();
            assert!(
                api.served_from >= valid.min && api.to <= valid.max,
                "{:?} has {valid}",
                api.key
            );
            for version in api.served_from..=api.to {
                let header = api.key.request_header_version(version);
                assert_eq!(
                    header == 2,
                    api.is_flexible(version),
                    "{:?} {version}",
                    api.key
                );
            }
            assert_eq!(
                Api::find(api.key as i16).map(|api| api.metric),
                Some(api.metric)
            );
        }
    }
}
