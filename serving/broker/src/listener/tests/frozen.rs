//! A broker that freezes when it is to take a partition over.

use std::time::{Duration, Instant};

use bookie_metadata::testing::{Call, Fate};
use bookie_metadata::{MetadataStore as _, Op, Txn};
use hulse_proto::error::Fault;
use hulse_proto::id::NodeName;
use hulse_proto::wire::v1;

use super::world::{World, partition};
use crate::Lease;
use crate::testing::MemoryBroker;

/// Under which epoch a broker serves a partition, if it does.
async fn epoch(world: &World, topic: &bytes::Bytes, index: u32) -> Result<u32, Fault> {
    let request = v1::OffsetsRequest {
        partition: partition(topic, index),
        at_time: None,
    };
    match world.log().offsets(request).await {
        Ok(answer) => Ok(answer.into_inner().leader_epoch),
        Err(status) => Err(Fault::from_status(&status).unwrap()),
    }
}

#[tokio::test]
async fn partition_goes_on_where_it_was_when_its_new_owner_freezes_before_it_takes_it() {
    let cell = MemoryBroker::default();
    let mut frozen = cell.leased(Duration::from_secs(3));
    frozen.lease = Lease::none();
    let broker = async |memory: &MemoryBroker, name: &str| {
        let name = NodeName::new(name).unwrap();
        World::over(memory.clone(), |config| config.name = name).await
    };
    let (first, second) = (
        broker(&cell, "broker-1").await,
        broker(&frozen, "broker-2").await,
    );
    for (life, (world, name)) in [(&first, "broker-1"), (&second, "broker-2")]
        .iter()
        .enumerate()
    {
        cell.register(name, life as u8, &world.address(), None)
            .await;
    }
    let topic = first.topic("t", 8).await;
    for world in [&first, &second] {
        let known = async || {
            let request = v1::ResolveRequest::default();
            let answer = world.lookup().resolve(request).await.unwrap();
            answer.into_inner().brokers.len()
        };
        while known().await < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    let mut own = Vec::new();
    for index in 0..8 {
        if epoch(&first, &topic, index).await.is_ok() {
            own.push(index);
        }
    }
    // It says that it could take it, and is heard of no more.
    frozen.metadata.choose(|call| match call {
        Call::Get(key) if key.starts_with("part/") => Fate::Silent(Duration::from_secs(60)),
        _ => Fate::Pass,
    });
    let dying = cell.clone();
    tokio::spawn(async move {
        tokio::time::sleep(Duration::from_millis(500)).await;
        let key = "node/broker/broker-2".to_owned();
        let txn = Txn {
            compares: Vec::new(),
            ops: vec![Op::Delete { key }],
        };
        dying.metadata.txn(txn).await.unwrap();
    });
    let before = epoch(&first, &topic, own[0]).await.unwrap();
    let began = Instant::now();
    let request = v1::MovePartitionRequest {
        topic: "t".to_owned(),
        partition: own[0],
        broker: "broker-2".to_owned(),
        pin: false,
    };
    let moved = first.admin().move_partition(request).await;
    assert!(moved.is_err(), "{moved:?}");
    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    assert_eq!(epoch(&first, &topic, own[0]).await.unwrap(), before + 1);
}
