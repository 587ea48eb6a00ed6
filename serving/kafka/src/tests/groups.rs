//! A group from its first join to a committed offset, over the wire, and over another life of the broker; and the topic that keeps it.

use kafka_protocol::messages::delete_topics_request::DeleteTopicState;
use kafka_protocol::messages::join_group_request::JoinGroupRequestProtocol;
use kafka_protocol::messages::metadata_request::MetadataRequestTopic;
use kafka_protocol::messages::offset_commit_request::{
    OffsetCommitRequestPartition, OffsetCommitRequestTopic,
};
use kafka_protocol::messages::sync_group_request::SyncGroupRequestAssignment;
use kafka_protocol::messages::*;
use serving_broker::{
    NewSubscription, Sharing, StartPoint, SubscriptionKind, SubscriptionName, Subscriptions,
};

use super::versions::offsets_of_a_group;
use super::world::*;
use crate::error_code;

fn group() -> GroupId {
    GroupId::from(str("g"))
}

fn join(member: &str) -> JoinGroupRequest {
    let protocol = JoinGroupRequestProtocol::default()
        .with_name(str("range"))
        .with_metadata(vec![0xff, 1].into());
    JoinGroupRequest::default()
        .with_group_id(group())
        .with_session_timeout_ms(10_000)
        .with_rebalance_timeout_ms(30_000)
        .with_member_id(str(member))
        .with_protocol_type(str("consumer"))
        .with_protocols(vec![protocol])
}

fn commit(member: &str, generation: i32, offset: i64) -> OffsetCommitRequest {
    let partition = OffsetCommitRequestPartition::default()
        .with_partition_index(1)
        .with_committed_offset(offset)
        .with_committed_metadata(Some(str("mine")));
    let topic = OffsetCommitRequestTopic::default()
        .with_name(topic_name("t"))
        .with_partitions(vec![partition]);
    OffsetCommitRequest::default()
        .with_group_id(group())
        .with_generation_id_or_member_epoch(generation)
        .with_member_id(str(member))
        .with_topics(vec![topic])
}

async fn committed(client: &mut Client) -> Vec<(i32, i64)> {
    let response = client.ask(5, &offsets_of_a_group(5)).await;
    let rows = response.topics.iter().flat_map(|topic| &topic.partitions);
    rows.map(|row| (row.partition_index, row.committed_offset))
        .collect()
}

/// Joins alone, and assigns.
async fn alone(client: &mut Client) -> String {
    let told = client.ask(7, &join("")).await;
    assert_eq!(told.error_code, error_code::MEMBER_ID_REQUIRED);
    let joined = client.ask(7, &join(told.member_id.as_str())).await;
    assert_eq!((joined.error_code, joined.generation_id), (0, 1));
    assert_eq!(joined.members[0].metadata[..], [0xff, 1], "KA-06");
    let assignment = SyncGroupRequestAssignment::default()
        .with_member_id(told.member_id.clone())
        .with_assignment(vec![7].into());
    let sync = SyncGroupRequest::default()
        .with_group_id(group())
        .with_generation_id(1)
        .with_member_id(told.member_id.clone())
        .with_assignments(vec![assignment]);
    let synced = client.ask(3, &sync).await;
    assert_eq!((synced.error_code, &synced.assignment[..]), (0, &[7][..]));
    told.member_id.as_str().to_owned()
}

#[tokio::test(start_paused = true)]
async fn group_joins_commits_and_goes_on_in_another_life_of_the_broker() {
    let world = World::new().await;
    let mut client = world.connect();
    client.create("t", 2, &[]).await;
    let member = alone(&mut client).await;
    let done = client.ask(7, &commit(&member, 1, 42)).await;
    assert_eq!(done.topics[0].partitions[0].error_code, error_code::NONE);
    let old = client.ask(7, &commit(&member, 0, 50)).await;
    let code = old.topics[0].partitions[0].error_code;
    assert_eq!(code, error_code::ILLEGAL_GENERATION);
    assert_eq!(committed(&mut client).await, [(0, -1), (1, 42)]);
    let world = world.restarted().await;
    let mut client = world.connect();
    assert_eq!(committed(&mut client).await, [(0, -1), (1, 42)]);
    let beat = HeartbeatRequest::default()
        .with_group_id(group())
        .with_generation_id(1)
        .with_member_id(str(&member));
    let beat = client.ask(3, &beat).await;
    assert_eq!(beat.error_code, error_code::NONE, "no rebalance");
}

#[tokio::test(start_paused = true)]
async fn join_of_a_client_that_is_gone_is_forgotten() {
    let world = World::new().await;
    let mut client = world.connect();
    client.create("t", 2, &[]).await;
    let mut other = world.connect();
    other.send(3, &join("")).await;
    tokio::time::sleep(std::time::Duration::from_millis(500)).await;
    drop(other);
    let member = alone(&mut client).await;
    let groups = DescribeGroupsRequest::default().with_groups(vec![group()]);
    let found = client.ask(3, &groups).await;
    let members: Vec<_> = found.groups[0].members.iter().collect();
    assert_eq!(members.len(), 1);
    assert_eq!(members[0].member_id.as_str(), member);
}

#[tokio::test(start_paused = true)]
async fn coordinator_of_a_share_group_is_refused_and_of_a_group_told_in_every_version() {
    let world = World::new().await;
    let mut client = world.connect();
    for version in 4..=6 {
        let asked = |kind| {
            FindCoordinatorRequest::default()
                .with_key_type(kind)
                .with_coordinator_keys(vec![str("g")])
        };
        let told = client.ask(version, &asked(0)).await.coordinators.remove(0);
        assert_eq!((told.error_code, told.key), (error_code::NONE, str("g")));
        let share = client.ask(version, &asked(2)).await.coordinators.remove(0);
        assert_eq!(share.error_code, error_code::INVALID_REQUEST);
    }
}

/// A queue named `g`, on topic `t`.
async fn queue(world: &World) {
    let topics = world.front.topics().clone();
    let topic = topics.resolve(&"t".parse().unwrap(), false).await.unwrap();
    let subscriptions = Subscriptions::new(world.memory.metadata.clone(), topics);
    let name = SubscriptionName::parse("g", "public/default").unwrap();
    let new = NewSubscription {
        kind: SubscriptionKind::Queue,
        hold: true,
        insists_on_hold: false,
        sharing: Sharing::default(),
        ttl_ms: 0,
        start: StartPoint::Earliest,
    };
    subscriptions.join(&name, &topic, new).await.unwrap();
}

/// serving.md B2.8: what Kafka answers where there is no group to commit to.
#[tokio::test(start_paused = true)]
async fn commit_to_the_name_of_a_queue_finds_no_group() {
    let world = World::new().await;
    let mut client = world.connect();
    client.create("t", 2, &[]).await;
    queue(&world).await;
    for (version, code) in [
        (8, error_code::ILLEGAL_GENERATION),
        (9, error_code::GROUP_ID_NOT_FOUND),
    ] {
        let refused = client.ask(version, &commit("", -1, 42)).await;
        assert_eq!(refused.topics[0].partitions[0].error_code, code);
    }
    let joined = client.ask(7, &join("")).await;
    assert_eq!(joined.error_code, error_code::INCONSISTENT_GROUP_PROTOCOL);
}

#[tokio::test(start_paused = true)]
async fn group_is_one_by_its_short_name_and_by_its_whole_one() {
    let world = World::new().await;
    let mut client = world.connect();
    client.create("t", 2, &[]).await;
    let member = alone(&mut client).await;
    let by = |name: &str, mut commit: OffsetCommitRequest| {
        commit.group_id = GroupId::from(str(name));
        commit
    };
    let whole = by("public/default/g", commit(&member, 1, 42));
    let done = client.ask(7, &whole).await;
    assert_eq!(done.topics[0].partitions[0].error_code, error_code::NONE);
    assert_eq!(committed(&mut client).await, [(0, -1), (1, 42)]);
    let elsewhere = by("acme/shop/g", commit(&member, 1, 50));
    let refused = client.ask(7, &elsewhere).await;
    let code = refused.topics[0].partitions[0].error_code;
    assert_eq!(code, error_code::ILLEGAL_GENERATION, "that is another one");
    let groups = client.ask(4, &ListGroupsRequest::default()).await.groups;
    let names: Vec<_> = groups.iter().map(|group| group.group_id.as_str()).collect();
    assert_eq!(names, ["g"]);
    // The answer has the name that was asked for.
    let asked = GroupId::from(str("public/default/g"));
    let asked = DescribeGroupsRequest::default().with_groups(vec![asked]);
    let found = client.ask(3, &asked).await.groups.remove(0);
    assert_eq!(found.group_id.as_str(), "public/default/g");
    assert_eq!(found.members.len(), 1);
}

/// The topic in which groups are kept is told to who names it; lists leave it out, and no client writes, reads or removes it.
#[tokio::test(start_paused = true)]
async fn topic_of_the_groups_is_hidden_and_not_for_clients() {
    const NAME: &str = "hulse/internal/groups";
    let denied = error_code::TOPIC_AUTHORIZATION_FAILED;
    let world = World::new().await;
    let mut client = world.connect();
    client.create("t", 2, &[]).await;
    alone(&mut client).await;

    let all = MetadataRequest::default().with_topics(None);
    let topics = client.ask(12, &all).await.topics;
    let names: Vec<_> = topics
        .iter()
        .filter_map(|topic| topic.name.clone())
        .collect();
    assert_eq!(names, [topic_name("t")]);
    let named = MetadataRequestTopic::default().with_name(Some(topic_name(NAME)));
    let named = MetadataRequest::default()
        .with_topics(Some(vec![named]))
        .with_allow_auto_topic_creation(false);
    let found = client.ask(12, &named).await.topics.remove(0);
    assert_eq!((found.error_code, found.partitions.len()), (0, 64));
    let id = found.topic_id;

    let mut by_name = produce(NAME, -1, vec![(0, one(10))]);
    let answer = client.ask(11, &by_name).await;
    assert_eq!(
        answer.responses[0].partition_responses[0].error_code,
        denied
    );
    by_name.topic_data[0].topic_id = id;
    by_name.topic_data[0].name = topic_name("");
    let answer = client.ask(13, &by_name).await;
    assert_eq!(
        answer.responses[0].partition_responses[0].error_code,
        denied
    );

    assert_eq!(client.fetch(NAME, 0).await.error_code, denied);
    let mut by_id = fetch("", &[(0, 0)]);
    by_id.topics[0].topic_id = id;
    let answer = client.ask(13, &by_id).await;
    assert_eq!(answer.responses[0].partitions[0].error_code, denied);

    let delete = DeleteTopicsRequest::default()
        .with_topics(vec![DeleteTopicState::default().with_topic_id(id)]);
    let answer = client.ask(6, &delete).await;
    assert_eq!(answer.responses[0].error_code, denied);
    // To make a topic is asked of the cluster.
    let made = client.create("hulse/internal/mine", 1, &[]).await;
    assert_eq!(made, error_code::CLUSTER_AUTHORIZATION_FAILED);
    // The group is there as before.
    let groups = DescribeGroupsRequest::default().with_groups(vec![group()]);
    let found = client.ask(3, &groups).await.groups.remove(0);
    assert_ne!(found.group_state.as_str(), "Dead");
}
