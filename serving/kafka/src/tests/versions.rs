//! The tables of the walk against the encoders of another hand, in every version.

use bytes::BytesMut;
use kafka_protocol::messages::*;
use kafka_protocol::protocol::Request;

use super::world::*;
use crate::wire::{APIS, Refusal, walk};

fn body<R: Request>(version: i16, request: &R) -> BytesMut {
    let mut body = BytesMut::new();
    request.encode(&mut body, version).unwrap();
    body
}

/// The walk of a request ends where its bytes end, and no shorter piece of it passes.
fn check<R: Request>(request: impl Fn(i16) -> R) {
    let api = APIS.iter().find(|api| api.key as i16 == R::KEY).unwrap();
    for version in api.served_from..=api.to {
        let body = body(version, &request(version));
        let flexible = api.is_flexible(version);
        let walked = walk(api.schema, &body, version, flexible).unwrap();
        assert_eq!(walked.bytes, body.len(), "{:?} {version}", api.key);
        for end in 0..body.len() {
            let short = walk(api.schema, &body[..end], version, flexible);
            assert!(short.is_err(), "{:?} {version} cut at {end}", api.key);
        }
        // Each byte at its highest: whatever it is, the walk says no or ends within the bytes.
        for at in 0..body.len() {
            let mut damaged = body.clone();
            damaged[at] = 0xff;
            if let Ok(walked) = walk(api.schema, &damaged, version, flexible) {
                assert!(walked.bytes <= body.len());
            }
        }
    }
}

#[test]
fn walk_of_produce_goes_the_decoders_way() {
    check(|version| {
        let mut request = produce("topic", -1, vec![(0, one(3)), (1, one(2))]);
        if version >= 13 {
            request.topic_data[0].topic_id = uuid::Uuid::from_u128(7);
            request.topic_data[0].name = topic_name("");
        }
        request
    });
}

#[test]
fn walk_of_fetch_goes_the_decoders_way() {
    check(|version| {
        let mut request = fetch("topic", &[(0, 0), (1, 5)]);
        request.rack_id = match version {
            11.. => str("rack"),
            _ => str(""),
        };
        if version >= 13 {
            request.topics[0].topic_id = uuid::Uuid::from_u128(7);
            request.topics[0].topic = topic_name("");
        }
        if version >= 7 {
            let mut forgotten =
                fetch_request::ForgottenTopic::default().with_partitions(vec![1, 2]);
            match version {
                13.. => forgotten.topic_id = uuid::Uuid::from_u128(8),
                _ => forgotten.topic = topic_name("gone"),
            }
            request.forgotten_topics_data = vec![forgotten];
        }
        if version >= 12 {
            request.cluster_id = Some(str("cluster"));
        }
        if version >= 15 {
            request.replica_id = (-1).into();
            request.replica_state = fetch_request::ReplicaState::default()
                .with_replica_id(4.into())
                .with_replica_epoch(5);
        }
        if version >= 17 {
            request.topics[0].partitions[0].replica_directory_id = uuid::Uuid::from_u128(9);
        }
        request
    });
}

#[test]
fn walks_of_the_others_go_the_decoders_way() {
    check(|version| match version {
        3.. => ApiVersionsRequest::default().with_client_software_name(str("a")),
        _ => ApiVersionsRequest::default(),
    });
    check(|_| {
        let topic =
            metadata_request::MetadataRequestTopic::default().with_name(Some(topic_name("a")));
        MetadataRequest::default().with_topics(Some(vec![topic]))
    });
    check(|version| {
        let request = InitProducerIdRequest::default().with_transactional_id(Some(str("x").into()));
        match version {
            3.. => request.with_producer_id(5.into()).with_producer_epoch(1),
            _ => request,
        }
    });
    check(|_| {
        let partition = list_offsets_request::ListOffsetsPartition::default();
        let topic = list_offsets_request::ListOffsetsTopic::default()
            .with_name(topic_name("a"))
            .with_partitions(vec![partition.clone(), partition]);
        ListOffsetsRequest::default().with_topics(vec![topic])
    });
    check(|_| {
        let partition = offset_for_leader_epoch_request::OffsetForLeaderPartition::default();
        let topic = offset_for_leader_epoch_request::OffsetForLeaderTopic::default()
            .with_topic(topic_name("a"))
            .with_partitions(vec![partition]);
        OffsetForLeaderEpochRequest::default().with_topics(vec![topic])
    });
    check(|_| DescribeClusterRequest::default());
    check(|version| match version {
        4.. => FindCoordinatorRequest::default().with_coordinator_keys(vec![str("g"), str("h")]),
        _ => FindCoordinatorRequest::default().with_key(str("g")),
    });
    check(offsets_of_a_group);
}

/// Of two partitions, in the form of a version.
pub(super) fn offsets_of_a_group(version: i16) -> OffsetFetchRequest {
    let name = TopicName::from(str("t"));
    match version {
        8.. => {
            let topic = offset_fetch_request::OffsetFetchRequestTopics::default()
                .with_name(name)
                .with_partition_indexes(vec![0, 1]);
            let group = offset_fetch_request::OffsetFetchRequestGroup::default()
                .with_group_id(GroupId::from(str("g")))
                .with_topics(Some(vec![topic]));
            OffsetFetchRequest::default().with_groups(vec![group])
        }
        _ => {
            let topic = offset_fetch_request::OffsetFetchRequestTopic::default()
                .with_name(name)
                .with_partition_indexes(vec![0, 1]);
            OffsetFetchRequest::default()
                .with_group_id(GroupId::from(str("g")))
                .with_topics(Some(vec![topic]))
        }
    }
}

#[test]
fn walks_of_changes_go_the_decoders_way() {
    check(|_| {
        let assigned = create_topics_request::CreatableReplicaAssignment::default()
            .with_broker_ids(vec![1.into(), 2.into()]);
        let config = create_topics_request::CreatableTopicConfig::default()
            .with_name(str("k"))
            .with_value(Some(str("v")));
        let topic = create_topics_request::CreatableTopic::default()
            .with_name(topic_name("a"))
            .with_assignments(vec![assigned])
            .with_configs(vec![config]);
        CreateTopicsRequest::default().with_topics(vec![topic])
    });
    check(|version| {
        let state =
            delete_topics_request::DeleteTopicState::default().with_name(Some(topic_name("a")));
        match version {
            6.. => DeleteTopicsRequest::default().with_topics(vec![state]),
            _ => DeleteTopicsRequest::default()
                .with_topic_names(vec![topic_name("a"), topic_name("b")]),
        }
    });
    check(|_| {
        let assigned = create_partitions_request::CreatePartitionsAssignment::default()
            .with_broker_ids(vec![1.into()]);
        let topic = create_partitions_request::CreatePartitionsTopic::default()
            .with_name(topic_name("a"))
            .with_assignments(Some(vec![assigned]));
        CreatePartitionsRequest::default().with_topics(vec![topic])
    });
    check(|_| {
        let resource = describe_configs_request::DescribeConfigsResource::default()
            .with_resource_name(str("a"))
            .with_configuration_keys(Some(vec![str("k"), str("l")]));
        DescribeConfigsRequest::default().with_resources(vec![resource])
    });
    check(|_| {
        let config = alter_configs_request::AlterableConfig::default()
            .with_name(str("k"))
            .with_value(Some(str("v")));
        let resource = alter_configs_request::AlterConfigsResource::default()
            .with_resource_name(str("a"))
            .with_configs(vec![config.clone(), config]);
        AlterConfigsRequest::default().with_resources(vec![resource])
    });
    check(|_| {
        let config = incremental_alter_configs_request::AlterableConfig::default()
            .with_name(str("k"))
            .with_value(None);
        let resource = incremental_alter_configs_request::AlterConfigsResource::default()
            .with_resource_name(str("a"))
            .with_configs(vec![config.clone(), config]);
        IncrementalAlterConfigsRequest::default().with_resources(vec![resource])
    });
    check(|_| {
        let partition = delete_records_request::DeleteRecordsPartition::default();
        let topic = delete_records_request::DeleteRecordsTopic::default()
            .with_name(topic_name("a"))
            .with_partitions(vec![partition.clone(), partition]);
        DeleteRecordsRequest::default().with_topics(vec![topic])
    });
    check(|_| {
        let topic =
            describe_topic_partitions_request::TopicRequest::default().with_name(topic_name("a"));
        let cursor =
            describe_topic_partitions_request::Cursor::default().with_topic_name(topic_name("b"));
        DescribeTopicPartitionsRequest::default()
            .with_topics(vec![topic])
            .with_cursor(Some(cursor))
    });
}

#[test]
fn walks_of_memberships_go_the_decoders_way() {
    let group = || GroupId::from(str("g"));
    check(|version| {
        let protocol = join_group_request::JoinGroupRequestProtocol::default()
            .with_name(str("range"))
            .with_metadata(vec![1, 2, 3].into());
        let request = JoinGroupRequest::default()
            .with_group_id(group())
            .with_member_id(str("m"))
            .with_protocols(vec![protocol.clone(), protocol]);
        match version {
            5.. => request.with_group_instance_id(Some(str("i"))),
            _ => request,
        }
    });
    check(|_| {
        let assignment = sync_group_request::SyncGroupRequestAssignment::default()
            .with_member_id(str("m"))
            .with_assignment(vec![1, 2].into());
        SyncGroupRequest::default()
            .with_group_id(group())
            .with_assignments(vec![assignment])
    });
    check(|_| HeartbeatRequest::default().with_group_id(group()));
    check(|version| {
        let member = leave_group_request::MemberIdentity::default().with_member_id(str("m"));
        let request = LeaveGroupRequest::default().with_group_id(group());
        match version {
            3.. => request.with_members(vec![member.clone(), member]),
            _ => request.with_member_id(str("m")),
        }
    });
    check(|_| {
        let owned = consumer_group_heartbeat_request::TopicPartitions::default()
            .with_partitions(vec![1, 2]);
        ConsumerGroupHeartbeatRequest::default()
            .with_group_id(group())
            .with_subscribed_topic_names(Some(vec![topic_name("a")]))
            .with_topic_partitions(Some(vec![owned]))
    });
}

#[test]
fn walks_of_what_groups_keep_go_the_decoders_way() {
    let group = || GroupId::from(str("g"));
    check(|_| {
        let partition = offset_commit_request::OffsetCommitRequestPartition::default()
            .with_committed_metadata(Some(str("mine")));
        let topic = offset_commit_request::OffsetCommitRequestTopic::default()
            .with_name(topic_name("a"))
            .with_partitions(vec![partition.clone(), partition]);
        OffsetCommitRequest::default()
            .with_group_id(group())
            .with_topics(vec![topic])
    });
    check(|_| {
        let partition = offset_delete_request::OffsetDeleteRequestPartition::default();
        let topic = offset_delete_request::OffsetDeleteRequestTopic::default()
            .with_name(topic_name("a"))
            .with_partitions(vec![partition]);
        OffsetDeleteRequest::default()
            .with_group_id(group())
            .with_topics(vec![topic])
    });
    check(|version| match version {
        5.. => ListGroupsRequest::default()
            .with_states_filter(vec![str("Stable")])
            .with_types_filter(vec![str("classic")]),
        4 => ListGroupsRequest::default().with_states_filter(vec![str("Stable")]),
        _ => ListGroupsRequest::default(),
    });
    check(|_| DescribeGroupsRequest::default().with_groups(vec![group(), group()]));
    check(|_| DeleteGroupsRequest::default().with_groups_names(vec![group()]));
    check(|_| ConsumerGroupDescribeRequest::default().with_group_ids(vec![group()]));
}

#[test]
fn known_tag_of_another_size_than_its_content_is_refused() {
    let request = fetch("t", &[(0, 0)]).with_cluster_id(Some(str("cluster")));
    let mut body = body(12, &request);
    let api = APIS.iter().find(|api| api.key == ApiKey::Fetch).unwrap();
    // One tag, number 0, eight bytes: seven letters and their length.
    let at = body
        .windows(4)
        .position(|four| four == [1, 0, 8, 8])
        .unwrap();
    for size in [0, 7, 9] {
        body[at + 2] = size;
        let refused = walk(api.schema, &body, 12, true);
        assert!(
            matches!(refused, Err(Refusal::Tag | Refusal::CutOff)),
            "{size}: {refused:?}"
        );
    }
}
