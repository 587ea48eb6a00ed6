//! StreamGroups.Join: members over gRPC, as clients would hold them.

use std::time::Duration;

use bytes::Bytes;
use hulse_proto::error::Reason;
use hulse_proto::limits::PROTOCOL_VERSION;
use hulse_proto::wire::v1::group_down::Item;
use hulse_proto::wire::v1::{self, group_up};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Status, Streaming};

use super::consumer::{at, earliest, store};
use super::world::{World, fault, partition, reason};

const WAIT: Duration = Duration::from_secs(10);

struct Member {
    up: mpsc::Sender<v1::GroupUp>,
    down: Streaming<v1::GroupDown>,
    epoch: i32,
}

fn joins(id: &str) -> v1::JoinGroup {
    v1::JoinGroup {
        protocol_version: PROTOCOL_VERSION,
        client_id: "test".to_owned(),
        group: "g".to_owned(),
        member_id: id.to_owned(),
        rebalance_ms: 60_000,
        topics: vec!["t".to_owned()],
        start: Some(earliest()),
        ..Default::default()
    }
}

/// The first item, or why there is none.
async fn begin(world: &World, join: v1::JoinGroup) -> Result<(Member, Item), Status> {
    let (up, items) = mpsc::channel(64);
    let item = Some(group_up::Item::Join(join));
    up.send(v1::GroupUp { item }).await.unwrap();
    let mut client = v1::stream_groups_client::StreamGroupsClient::new(world.channel.clone());
    let mut down = client.join(ReceiverStream::new(items)).await?.into_inner();
    let first = tokio::time::timeout(WAIT, down.message()).await.unwrap()?;
    let member = Member { up, down, epoch: 0 };
    Ok((member, first.unwrap().item.unwrap()))
}

impl Member {
    async fn join(world: &World, join: v1::JoinGroup) -> Self {
        let (mut member, first) = begin(world, join).await.unwrap();
        let Item::Joined(joined) = first else {
            panic!("not joined: {first:?}");
        };
        assert_eq!((joined.session_ms, joined.heartbeat_ms), (45_000, 5_000));
        member.epoch = joined.epoch;
        member
    }

    async fn send(&self, item: group_up::Item) {
        let item = Some(item);
        self.up.send(v1::GroupUp { item }).await.unwrap();
    }

    async fn next(&mut self) -> Item {
        loop {
            let next = tokio::time::timeout(WAIT, self.down.message()).await;
            let item = next.unwrap().unwrap().unwrap().item.unwrap();
            if !matches!(item, Item::Heartbeat(_)) {
                return item;
            }
        }
    }

    /// The next assignment: indexes, each with where it begins.
    async fn assigned(&mut self) -> Vec<(u32, u64)> {
        let Item::Assignment(assignment) = self.next().await else {
            panic!("no assignment");
        };
        self.epoch = assignment.epoch;
        let partitions = assignment.partitions.into_iter();
        partitions
            .map(|given| {
                assert_eq!(given.topic, "public/default/t");
                (given.partition.unwrap().index, given.begin)
            })
            .collect()
    }

    /// Assignments until the member has so many partitions.
    async fn until(&mut self, count: usize) -> Vec<(u32, u64)> {
        loop {
            let assigned = self.assigned().await;
            if assigned.len() == count {
                return assigned;
            }
        }
    }

    async fn has(&self, topic: &Bytes, indexes: &[u32]) {
        let owned = v1::TopicPartitions {
            topic_uuid: topic.clone(),
            indexes: indexes.to_vec(),
        };
        self.send(group_up::Item::Heartbeat(v1::GroupHeartbeat {
            owned: vec![owned],
            ..Default::default()
        }))
        .await;
    }

    async fn commit(&mut self, topic: &Bytes, index: u32, offset: u64) -> v1::OffsetsCommitted {
        let to = v1::CommittedTo {
            partition: partition(topic, index),
            offset,
            ..Default::default()
        };
        self.send(group_up::Item::Commit(v1::CommitOffsets {
            commit_id: 7,
            epoch: self.epoch,
            offsets: vec![to],
        }))
        .await;
        loop {
            if let Item::Committed(committed) = self.next().await {
                assert_eq!(committed.commit_id, 7);
                return committed;
            }
        }
    }
}

fn indexes(assigned: &[(u32, u64)]) -> Vec<u32> {
    assigned.iter().map(|(index, _)| *index).collect()
}

#[tokio::test]
async fn partitions_move_only_when_they_are_shown_to_be_gone_and_are_pushed_at_once() {
    let world = World::new().await;
    let topic = world.topic("t", 4).await;
    let mut one = Member::join(&world, joins("one")).await;
    let all = one.until(4).await;
    one.has(&topic, &indexes(&all)).await;
    let mut two = Member::join(&world, joins("two")).await;
    assert_eq!(two.assigned().await, [], "somebody still has them");
    let kept = one.until(2).await;
    let committed = one.commit(&topic, 0, 3).await;
    assert!(committed.fault.is_none() && committed.offsets[0].fault.is_none());
    // Pushed: nobody waits for a heartbeat of five seconds.
    let began = tokio::time::Instant::now();
    one.has(&topic, &indexes(&kept)).await;
    let got = two.until(2).await;
    assert!(began.elapsed() < Duration::from_secs(4));
    let mut both = indexes(&kept);
    both.extend(indexes(&got));
    both.sort_unstable();
    assert_eq!(both, [0, 1, 2, 3]);
    let begins = kept.iter().chain(&got).find(|(index, _)| *index == 0);
    if got.iter().any(|(index, _)| *index == 0) {
        assert_eq!(begins, Some(&(0, 3)), "from what was committed");
    }
    // What it has not it does not commit.
    let strange = got[0].0;
    let refused = one.commit(&topic, strange, 9).await;
    let why = refused.offsets[0].fault.as_ref().unwrap();
    assert_eq!(why.reason, "NOT_OWNED");
    // Not even where it says that it has it, or of a topic that there is not.
    one.has(&topic, &[0, 1, 2, 3]).await;
    let refused = one.commit(&topic, strange, 9).await;
    let why = refused.offsets[0].fault.as_ref().unwrap();
    assert_eq!(why.reason, "NOT_OWNED");
    let nowhere = Bytes::from_static(&[7; 16]);
    one.has(&nowhere, &[5]).await;
    let refused = one.commit(&nowhere, 5, 9).await;
    let why = refused.offsets[0].fault.as_ref().unwrap();
    assert_eq!(why.reason, "NOT_OWNED");
    two.send(group_up::Item::Leave(v1::LeaveGroup::default()))
        .await;
    while !matches!(two.next().await, Item::Left(_)) {}
    one.until(4).await;
}

#[tokio::test]
async fn member_comes_back_after_a_broken_stream_and_a_coordinator_that_moved() {
    let world = World::new().await;
    let topic = world.topic("t", 2).await;
    let mut one = Member::join(&world, joins("one")).await;
    let all = one.until(2).await;
    one.has(&topic, &indexes(&all)).await;
    one.commit(&topic, 1, 5).await;
    let again = v1::JoinGroup {
        epoch: one.epoch,
        owned: vec![v1::TopicPartitions {
            topic_uuid: topic.clone(),
            indexes: vec![0, 1],
        }],
        ..joins("one")
    };
    drop(one);
    let mut one = Member::join(&world, again.clone()).await;
    assert_eq!(one.until(2).await, [(0, 0), (1, 5)]);
    let next = world.killed().await;
    let mut one = Member::join(&next, again.clone()).await;
    assert_eq!(one.until(2).await, [(0, 0), (1, 5)]);
    // An epoch that never was: it is told, and why.
    let fenced = v1::JoinGroup { epoch: 99, ..again };
    let (_, first) = begin(&next, fenced).await.unwrap();
    let Item::Fenced(fenced) = first else {
        panic!("not fenced: {first:?}");
    };
    let why = fenced.fault.unwrap();
    assert_eq!(why.reason, "MEMBER_FENCED");
    assert_eq!(why.details["cause"], "epoch");
}

/// The owner of what it is given opens it for longer than its session lasts.
#[tokio::test]
async fn member_whose_session_ends_before_it_is_told_what_it_has_is_fenced_like_any_other() {
    let world = World::with(|config| {
        config.groups.consumer_session_ms = 200;
        config.groups.consumer_heartbeat_ms = 100;
    })
    .await;
    world.topic("t", 1).await;
    // Its coordinator is there by now.
    let other = v1::JoinGroup {
        topics: vec!["none-yet".to_owned()],
        ..joins("other")
    };
    begin(&world, other).await.unwrap();
    world.memory.slow_openings(Duration::from_millis(600));
    let (mut one, first) = begin(&world, joins("one")).await.unwrap();
    assert!(matches!(first, Item::Joined(_)), "{first:?}");
    let Item::Fenced(fenced) = one.next().await else {
        panic!("not fenced");
    };
    let fault = hulse_proto::error::Fault::from_wire(fenced.fault.unwrap());
    assert_eq!(fault.reason, Reason::MemberFenced);
    assert_eq!(fault.details["cause"], "session");
}

#[tokio::test]
async fn latest_is_resolved_once_for_all_partitions_and_a_new_partition_begins_at_its_start() {
    let world = World::new().await;
    let topic = world.topic("t", 1).await;
    store(&world, &topic, 10).await;
    let latest = v1::JoinGroup {
        start: Some(at(v1::start_at::At::Latest(true))),
        ..joins("one")
    };
    let mut one = Member::join(&world, latest.clone()).await;
    assert_eq!(one.until(1).await, [(0, 10)]);
    store(&world, &topic, 5).await;
    one.send(group_up::Item::Leave(v1::LeaveGroup::default()))
        .await;
    while !matches!(one.next().await, Item::Left(_)) {}
    let grown = v1::AddPartitionsRequest {
        name: "t".to_owned(),
        partitions: 2,
    };
    world.admin().add_partitions(grown).await.unwrap();
    let other = v1::JoinGroup {
        member_id: "two".to_owned(),
        ..latest
    };
    let mut two = Member::join(&world, other).await;
    assert_eq!(two.until(2).await, [(0, 10), (1, 0)]);
}

#[tokio::test]
async fn name_of_a_group_is_no_other_subscriptions_and_the_other_way_round() {
    let world = World::new().await;
    world.topic("t", 1).await;
    let create = |name: &str| v1::CreateSubscriptionRequest {
        subscription: name.to_owned(),
        topic: "t".to_owned(),
        r#type: v1::SubscriptionType::Queue as i32,
        ..Default::default()
    };
    world.subscriptions().create(create("q")).await.unwrap();
    let refused = v1::JoinGroup {
        group: "q".to_owned(),
        ..joins("one")
    };
    let refused = begin(&world, refused).await.map(|_| ());
    let why = fault(refused);
    assert_eq!(why.reason, Reason::SubscriptionExists);
    assert_eq!(why.details["type"], "queue");
    let mut one = Member::join(&world, joins("one")).await;
    one.until(1).await;
    let refused = world.subscriptions().create(create("g")).await;
    assert_eq!(reason(refused), Reason::SubscriptionExists);
    one.send(group_up::Item::Leave(v1::LeaveGroup::default()))
        .await;
    while !matches!(one.next().await, Item::Left(_)) {}
    let described = v1::DescribeSubscriptionRequest {
        subscription: "g".to_owned(),
        ..Default::default()
    };
    let described = world.subscriptions().describe(described).await.unwrap();
    let described = described.into_inner();
    let subscription = described.subscription.unwrap();
    assert_eq!(subscription.r#type(), v1::SubscriptionType::Stream);
    assert_eq!(described.cursors.len(), 1);
    let delete = v1::DeleteSubscriptionRequest {
        subscription: "g".to_owned(),
        ..Default::default()
    };
    world.subscriptions().delete(delete).await.unwrap();
    world.subscriptions().create(create("g")).await.unwrap();
}

#[tokio::test]
async fn first_item_that_is_none_of_a_member_is_refused_with_words() {
    let world = World::new().await;
    world.topic("t", 1).await;
    let of = |change: fn(&mut v1::JoinGroup)| {
        let mut join = joins("one");
        change(&mut join);
        join
    };
    for wrong in [
        of(|join| join.member_id = String::new()),
        of(|join| join.epoch = -1),
        of(|join| join.topics.clear()),
        of(|join| join.protocol_version = 99),
        of(|join| join.pattern = "(".to_owned()),
        of(|join| join.assignor = "mine".to_owned()),
        of(|join| join.group = "a b".to_owned()),
        of(|join| join.rebalance_ms = 0),
    ] {
        let refused = begin(&world, wrong).await.map(|_| ());
        let why = fault(refused);
        assert_eq!(why.kind(), hulse_proto::error::ErrorKind::Invalid, "{why}");
    }
}
