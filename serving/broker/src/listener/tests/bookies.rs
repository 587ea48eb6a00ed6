//! Bookies over the wire: who there is, what upkeep reported, and the operator's word.

use bookie_metadata::{MetadataStore as _, Op, Txn};
use hulse_proto::error::Reason;
use hulse_proto::wire::{Message as _, metadata as wire, v1};

use super::world::{World, reason};

async fn put(world: &World, key: &str, value: Vec<u8>) {
    let txn = Txn {
        compares: Vec::new(),
        ops: vec![Op::put(key, value)],
    };
    world.metadata.txn(txn).await.unwrap();
}

async fn change(world: &World, name: &str, state: &str) -> Result<String, tonic::Status> {
    let request = v1::ChangeBookieRequest {
        name: name.to_owned(),
        state: state.to_owned(),
    };
    let answer = world.admin().change_bookie(request).await?;
    Ok(answer.into_inner().bookie.unwrap().state)
}

/// Three bookies, one of which does not run, and what upkeep found.
async fn registered() -> World {
    let world = World::new().await;
    for (name, live) in [("x1", true), ("x2", false), ("x3", true)] {
        let bookie = wire::Bookie {
            incarnation: vec![7; 16].into(),
            state: wire::bookie::State::Active as i32,
            zone: "rack-1".to_owned(),
            ..wire::Bookie::default()
        };
        put(&world, &format!("bookie/{name}"), bookie.encode_to_vec()).await;
        let node = wire::Node {
            mode: "normal".to_owned(),
            endpoint: format!("{name}:7410"),
            ..wire::Node::default()
        };
        if live {
            put(&world, &format!("node/bookie/{name}"), node.encode_to_vec()).await;
        }
    }
    let report = wire::UpkeepReport {
        planner: "x3".to_owned(),
        lacking_ledgers: 2,
        bytes_per_second: 1_000,
        bookies: vec![wire::BookieUpkeep {
            bookie: "x1".to_owned(),
            incarnation: vec![7; 16].into(),
            ledgers: 5,
            bytes: 60_000,
        }],
        blocked: vec![wire::BlockedRepair {
            ledger: 9,
            kind: wire::blocked_repair::Kind::NoTarget as i32,
            why: "no bookie can take its copies".to_owned(),
            ..wire::BlockedRepair::default()
        }],
        ..wire::UpkeepReport::default()
    };
    put(&world, "upkeep/report", report.encode_to_vec()).await;
    world
}

#[tokio::test]
async fn bookies_are_told_with_their_upkeep_and_take_the_operators_word() {
    let world = registered().await;
    assert_eq!(change(&world, "x1", "draining").await.unwrap(), "draining");
    assert_eq!(change(&world, "x2", "lost").await.unwrap(), "lost");
    let refused = [
        ("x3", "lost", Reason::PreconditionFailed),
        ("x2", "active", Reason::PreconditionFailed),
        ("x3", "retired", Reason::InvalidRequest),
        ("nobody", "draining", Reason::BookieNotFound),
        ("no/body", "draining", Reason::InvalidName),
    ];
    for (name, state, why) in refused {
        assert_eq!(
            reason(change(&world, name, state).await),
            why,
            "{name} {state}"
        );
    }

    let request = v1::ListBookiesRequest {};
    let answer = world
        .admin()
        .list_bookies(request)
        .await
        .unwrap()
        .into_inner();
    let find = |name: &str| {
        answer
            .bookies
            .iter()
            .find(|found| found.name == name)
            .unwrap()
    };
    let x1 = find("x1");
    assert_eq!(
        (&*x1.state, &*x1.mode, &*x1.endpoint),
        ("draining", "normal", "x1:7410")
    );
    assert_eq!(
        (x1.ledgers, x1.bytes, x1.seconds_left),
        (Some(5), Some(60_000), Some(60))
    );
    let x2 = find("x2");
    assert_eq!((&*x2.state, x2.live, x2.ledgers), ("lost", false, Some(0)));
    let upkeep = answer.upkeep.as_ref().unwrap();
    assert_eq!((&*upkeep.planner, upkeep.lacking_ledgers), ("x3", 2));
    assert_eq!(upkeep.blocked[0].kind, "no-target");
}

#[tokio::test]
async fn cluster_is_told_with_its_brokers_and_what_they_own() {
    let world = registered().await;
    let node = wire::Node {
        boot_uuid: vec![1; 16].into(),
        endpoint: "y1:7400".to_owned(),
        http: "y1:7480".to_owned(),
        ..wire::Node::default()
    };
    put(&world, "node/broker/y1", node.encode_to_vec()).await;
    for (index, boot) in [(0, 1), (1, 1), (2, 2)] {
        let partition = wire::Partition {
            owner: "y1".to_owned(),
            owner_boot: vec![boot; 16].into(),
            ..wire::Partition::default()
        };
        let key = format!("part/{}/{index:05}", uuid::Uuid::from_u128(7));
        put(&world, &key, partition.encode_to_vec()).await;
    }
    let ask = async |partitions| {
        let request = v1::DescribeClusterRequest { partitions };
        let answer = world.admin().describe_cluster(request).await;
        answer.map(tonic::Response::into_inner)
    };
    // The cell's record is made by the first node, and there is none here.
    assert_eq!(reason(ask(true).await), Reason::DataDamaged);
    let cell = wire::Cell {
        cell_uuid: vec![3; 16].into(),
        ensemble: 3,
        write_quorum: 3,
        ack_quorum: 2,
        group_shards: 64,
        transaction_shards: 64,
        format_version: 1,
        created_at_ms: 0,
    };
    put(&world, "cell", cell.encode_to_vec()).await;
    let told = ask(true).await.unwrap();
    assert_eq!((told.ensemble, told.ack_quorum), (3, 2));
    let broker = told.brokers.iter().find(|one| one.name == "y1").unwrap();
    assert_eq!((&*broker.http, broker.partitions), ("y1:7480", Some(2)));
    assert_eq!(told.bookies.len(), 3);
    assert_eq!(told.upkeep.unwrap().planner, "x3");
    let told = ask(false).await.unwrap();
    assert!(told.brokers.iter().all(|one| one.partitions.is_none()));
}
