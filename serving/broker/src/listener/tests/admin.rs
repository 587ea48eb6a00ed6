//! Lookup, Admin, Txn, health, reflection, and the HTTP listener.

use std::collections::BTreeSet;

use hulse_proto::error::Reason;
use hulse_proto::wire::v1;
use tonic_health::pb::health_client::HealthClient;
use tonic_health::pb::{HealthCheckRequest, health_check_response::ServingStatus};

use super::session::Session;
use super::world::{World, fault, plain, reason};

#[tokio::test]
async fn topics_are_made_grown_listed_and_deleted() {
    let world = World::new().await;
    let mut admin = world.admin();
    let uuid = world.topic("acme/prod/a", 2).await;
    let again = v1::CreateTopicRequest {
        name: "acme/prod/a".to_owned(),
        partitions: 2,
        ..Default::default()
    };
    assert_eq!(reason(admin.create_topic(again).await), Reason::TopicExists);
    let grow = |partitions| v1::AddPartitionsRequest {
        name: "acme/prod/a".to_owned(),
        partitions,
    };
    let fewer = fault(admin.add_partitions(grow(1)).await);
    assert_eq!(
        (fewer.reason, &*fewer.details["partitions"]),
        (Reason::PartitionsDecrease, "2")
    );
    let grown = admin
        .add_partitions(grow(4))
        .await
        .unwrap()
        .into_inner()
        .topic
        .unwrap();
    assert_eq!(
        (grown.partitions, grown.partition.len(), &grown.topic_uuid),
        (4, 4, &uuid)
    );
    assert_eq!(grown.state, "active");
    let list = v1::ListTopicsRequest {
        namespace: "acme/prod".to_owned(),
        ..Default::default()
    };
    let listed = admin.list_topics(list).await.unwrap().into_inner();
    assert_eq!(
        (listed.topics.len(), &*listed.topics[0].name),
        (1, "acme/prod/a")
    );
    let delete = v1::DeleteTopicRequest {
        name: "acme/prod/a".to_owned(),
        topic_uuid: bytes::Bytes::new(),
    };
    admin.delete_topic(delete.clone()).await.unwrap();
    assert_eq!(
        reason(admin.delete_topic(delete).await),
        Reason::TopicNotFound
    );
    let describe = v1::DescribeTopicRequest {
        name: "acme/prod/a".to_owned(),
    };
    assert_eq!(
        reason(admin.describe_topic(describe).await),
        Reason::TopicNotFound
    );
}

#[tokio::test]
async fn bad_names_are_refused_everywhere_with_the_rule() {
    let world = World::new().await;
    for name in ["", "a\0b", "a/b", "a b", "..", &"x".repeat(300)] {
        let create = v1::CreateTopicRequest {
            name: name.to_owned(),
            partitions: 1,
            ..Default::default()
        };
        let refused = fault(world.admin().create_topic(create).await);
        assert_eq!(refused.reason, Reason::InvalidName, "{name:?}: {refused}");
    }
    let topics = vec![
        "good".to_owned(),
        "a\0b".to_owned(),
        "missing/x/y".to_owned(),
    ];
    let resolve = v1::ResolveRequest {
        topics,
        auto_create: true,
    };
    let resolved = world
        .lookup()
        .resolve(resolve)
        .await
        .unwrap()
        .into_inner()
        .topics;
    assert_eq!(
        (&*resolved[0].name, resolved[0].partitions.len()),
        ("public/default/good", 1)
    );
    assert!(resolved[0].partitions[0].endpoint.starts_with("127.0.0.1:"));
    assert_eq!(resolved[1].fault.as_ref().unwrap().reason, "INVALID_NAME");
    assert!(resolved[2].fault.is_none());
    let many = v1::ResolveRequest {
        topics: vec!["a".to_owned(); 1001],
        auto_create: false,
    };
    assert_eq!(
        reason(world.lookup().resolve(many).await),
        Reason::InvalidRequest
    );
}

#[tokio::test]
async fn auto_creation_can_be_switched_off() {
    let world = World::with(|config| config.auto_create_topics = false).await;
    let resolve = v1::ResolveRequest {
        topics: vec!["a".to_owned()],
        auto_create: true,
    };
    let resolved = world
        .lookup()
        .resolve(resolve)
        .await
        .unwrap()
        .into_inner()
        .topics;
    assert_eq!(
        resolved[0].fault.as_ref().unwrap().reason,
        "TOPIC_NOT_FOUND"
    );
}

#[tokio::test]
async fn producer_ids_are_all_different() {
    let world = World::new().await;
    let mut txn = v1::txn_client::TxnClient::new(world.channel.clone());
    let mut ids = BTreeSet::new();
    for _ in 0..50 {
        let request = v1::InitProducerRequest {
            client_id: "test".to_owned(),
        };
        let answer = txn.init_producer(request).await.unwrap().into_inner();
        assert!(answer.producer_epoch == 0 && ids.insert(answer.producer_id));
    }
    let request = v1::InitProducerRequest {
        client_id: "x".repeat(10_000),
    };
    assert_eq!(
        reason(txn.init_producer(request).await),
        Reason::InvalidRequest
    );
}

#[tokio::test]
async fn ledgers_and_offsets_are_shown_to_operators() {
    let world = World::new().await;
    let topic = world.topic("a", 1).await;
    let mut session = Session::on(&world, &topic).await;
    session.batch(0, 0, plain(3, 10)).await;
    assert_eq!(session.word().await, "ack 0.0 [0]");
    let describe = v1::DescribeTopicRequest {
        name: "a".to_owned(),
    };
    let described = world
        .admin()
        .describe_topic(describe)
        .await
        .unwrap()
        .into_inner();
    let part = &described.topic.unwrap().partition[0];
    assert_eq!((part.log_start, part.high_watermark), (Some(0), Some(3)));
    assert_eq!(part.owner.as_ref().unwrap().leader_epoch, 1);
    for topic in ["", "a"] {
        let list = v1::ListLedgersRequest {
            topic: topic.to_owned(),
        };
        let ledgers = world
            .admin()
            .list_ledgers(list)
            .await
            .unwrap()
            .into_inner()
            .ledgers;
        let log = ledgers.iter().find(|ledger| ledger.kind == "log").unwrap();
        assert_eq!(
            (&*log.topic, &*log.state, &*log.loss),
            ("public/default/a", "open", "")
        );
        assert_eq!(log.bookies, ["bookie-1"]);
    }
    let accept = v1::AcceptLossRequest {
        ledger: 77,
        up_to_entry: None,
    };
    assert_eq!(
        reason(world.admin().accept_loss(accept).await),
        Reason::LedgerNotFound
    );
}

#[tokio::test]
async fn probes_health_and_metrics_tell_the_state() {
    let mut world = World::new().await;
    world.topic("a", 1).await;
    let mut health = HealthClient::new(world.channel.clone());
    for service in ["", "hulse.v1.Produce", "hulse.v1.Admin"] {
        let request = HealthCheckRequest {
            service: service.to_owned(),
        };
        let answer = health.check(request).await.unwrap().into_inner();
        assert_eq!(answer.status(), ServingStatus::Serving, "{service:?}");
    }
    for (path, part) in [
        ("/livez", "200 OK"),
        ("/startupz", "200 OK"),
        ("/readyz", "200 OK"),
        (
            "/metrics",
            "hulse_requests_total{api=\"Admin.CreateTopic\",code=\"OK\"} 1",
        ),
        ("/metrics", "application/openmetrics-text"),
        ("/nowhere", "404 Not Found"),
    ] {
        let answer = world.get(path).await;
        assert!(answer.contains(part), "{path}: {answer}");
    }
    world.stop();
    world.stopped().await;
}
