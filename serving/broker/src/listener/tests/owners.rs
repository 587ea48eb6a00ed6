//! Two brokers over the same metadata and storage: whose is a partition, and what does the other one say.

use std::time::Duration;

use bookie_metadata::{MetadataStore as _, Op, Txn};
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{NodeName, PartitionId, TopicId};
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::drain_broker_request::Order;
use hulse_proto::wire::v1::produce_down::Item;
use hulse_proto::wire::{Message as _, metadata};

use super::session::Session;
use super::world::{World, plain};
use crate::BrokerConfig;
use crate::keys::partition_key;
use crate::testing::MemoryBroker;

pub(super) const PARTITIONS: u32 = 8;

/// Brokers that are registered, as the command line does it.
pub(super) struct Two {
    pub(super) brokers: [World; 2],
    topic: bytes::Bytes,
}

impl Two {
    pub(super) async fn new() -> Self {
        let memory = MemoryBroker::default();
        memory.make_cell().await;
        let broker = async |number: u8| {
            let name = NodeName::new(&format!("broker-{number}")).unwrap();
            let change = |config: &mut BrokerConfig| {
                config.name = name;
                config.balance.cooldown = Duration::from_millis(200);
            };
            World::over(memory.clone(), change).await
        };
        let brokers = [broker(1).await, broker(2).await];
        for number in 0..2 {
            register(&brokers, number).await;
        }
        let topic = brokers[0].topic("t", PARTITIONS).await;
        let two = Self { brokers, topic };
        two.until_owned_by_both().await;
        two
    }

    /// Both say the same, and it is not one broker that owns all.
    async fn until_owned_by_both(&self) {
        loop {
            let (first, second) = (self.owners(0).await, self.owners(1).await);
            if first == second && first.iter().any(|owner| *owner != first[0]) {
                return;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// The owner of each partition, as a broker has it.
    pub(super) async fn owners(&self, broker: usize) -> Vec<String> {
        let request = v1::ResolveRequest {
            topics: vec!["t".to_owned()],
            auto_create: false,
        };
        let answer = self.brokers[broker].lookup().resolve(request).await;
        let topic = answer.unwrap().into_inner().topics.pop().unwrap();
        topic.partitions.into_iter().map(|of| of.broker).collect()
    }

    /// The leader epoch under which a broker serves a partition, or what it says instead.
    pub(super) async fn epoch(&self, broker: usize, index: u32) -> Result<u32, Fault> {
        let request = v1::OffsetsRequest {
            partition: Some(v1::Partition {
                topic_uuid: self.topic.clone(),
                index,
            }),
            at_time: None,
            start_only: false,
        };
        match self.brokers[broker].log().offsets(request).await {
            Ok(answer) => Ok(answer.into_inner().leader_epoch),
            Err(status) => Err(Fault::from_status(&status).unwrap()),
        }
    }

    /// As [`Two::epoch`], once it serves.
    pub(super) async fn served(&self, broker: usize, index: u32) -> u32 {
        loop {
            match self.epoch(broker, index).await {
                Ok(epoch) => return epoch,
                Err(fault) => assert_eq!(fault.reason, Reason::PartitionMoved),
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }

    /// Stores a record in partition 0, which this broker has.
    pub(super) async fn store(&self, broker: usize) {
        let mut session = Session::on(&self.brokers[broker], &self.topic).await;
        session.batch(0, 0, plain(1, 10)).await;
        let item = session.next().await;
        assert!(matches!(item, Item::Ack(_)), "{item:?}");
    }

    /// The epoch that metadata have of a partition; nobody opens it for this question.
    pub(super) async fn won(&self, index: u32) -> u32 {
        let topic = TopicId::from_slice(&self.topic).unwrap();
        let key = partition_key(PartitionId { topic, index });
        let row = self.brokers[0].metadata.get(&key).await.unwrap().unwrap();
        metadata::Partition::decode(row.value).unwrap().owner_epoch
    }

    /// As [`Two::epoch`], once it does not serve.
    pub(super) async fn moved(&self, broker: usize, index: u32) -> Fault {
        loop {
            if let Err(fault) = self.epoch(broker, index).await {
                assert_eq!(fault.reason, Reason::PartitionMoved, "{fault}");
                return fault;
            }
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
}

async fn register(brokers: &[World; 2], number: usize) {
    let endpoint = brokers[number].address();
    let memory = &brokers[number].memory;
    memory
        .register(&name(number), number as u8, &endpoint, None)
        .await;
}

fn node_key(number: usize) -> String {
    format!("node/broker/broker-{}", number + 1)
}

async fn change(world: &World, op: Op) {
    let txn = Txn {
        compares: Vec::new(),
        ops: vec![op],
    };
    world.metadata.txn(txn).await.unwrap();
}

pub(super) fn name(number: usize) -> String {
    format!("broker-{}", number + 1)
}

#[tokio::test]
async fn only_the_owner_serves_a_partition_and_the_other_names_it() {
    let two = Two::new().await;
    for (index, owner) in (0..).zip(two.owners(0).await) {
        let (here, there) = if owner == name(0) { (0, 1) } else { (1, 0) };
        let fault = two.moved(there, index).await;
        assert_eq!(fault.details["broker"], owner);
        assert_eq!(fault.details["endpoint"], two.brokers[here].address());
        assert_eq!(two.epoch(here, index).await.unwrap(), 1);
    }
    // Who joins moves nothing; who holds, holds.
    let held = two.owners(1).await;
    assert_eq!(held, two.owners(0).await);
}

#[tokio::test]
async fn lease_that_ended_gives_the_partitions_to_the_other_and_closes_them_here() {
    let two = Two::new().await;
    let owners = two.owners(0).await;
    let index = owners.iter().position(|owner| *owner == name(1)).unwrap() as u32;
    assert_eq!(two.epoch(1, index).await.unwrap(), 1);
    let key = node_key(1);
    change(&two.brokers[0], Op::Delete { key }).await;
    // The other opens it when it is asked for, under the next epoch.
    assert_eq!(two.served(0, index).await, 2);
    let fault = two.moved(1, index).await;
    assert_eq!(fault.details["broker"], name(0));
    // Registered again, it has only what the other one does not hold.
    register(&two.brokers, 1).await;
    two.until_owned_by_both().await;
    assert_eq!(two.epoch(0, index).await.unwrap(), 2);
    assert_eq!(two.moved(1, index).await.details["leader_epoch"], "2");
}

#[tokio::test]
async fn partition_is_handed_over_by_the_word_of_either_broker() {
    let two = Two::new().await;
    let mut epoch = 1;
    for (said_to, to) in [(0, 0), (0, 1), (1, 0), (1, 0), (0, 1)] {
        let request = v1::MovePartitionRequest {
            topic: "t".to_owned(),
            partition: 3,
            broker: name(to),
            pin: false,
        };
        let moved = two.brokers[said_to].admin().move_partition(request).await;
        let now = moved.unwrap().into_inner().leader_epoch;
        assert!(now == epoch || now == epoch + 1, "{now} after {epoch}");
        epoch = now;
        assert_eq!(two.served(to, 3).await, epoch);
        assert_eq!(two.moved(1 - to, 3).await.details["broker"], name(to));
    }
    assert!(epoch >= 3);
}

impl Two {
    /// The order, said to one broker, about the first.
    async fn order(&self, said_to: usize, order: Order) -> v1::DrainBrokerResponse {
        let request = v1::DrainBrokerRequest {
            broker: name(0),
            order: order.into(),
        };
        let told = self.brokers[said_to].admin().drain_broker(request).await;
        told.unwrap().into_inner()
    }
}

#[tokio::test]
async fn broker_that_is_drained_gives_everything_away_until_the_order_is_taken_back() {
    let two = Two::new().await;
    let owners = two.owners(0).await;
    let index = owners.iter().position(|owner| *owner == name(0)).unwrap() as u32;
    assert_eq!(two.epoch(0, index).await.unwrap(), 1);
    let before = two.order(1, Order::Look).await;
    let of = |found: &v1::DrainBrokerResponse| -> u64 {
        found.heirs.iter().map(|heir| heir.partitions).sum()
    };
    assert!(!before.draining && of(&before) == 1, "{before:?}");
    assert_eq!(before.heirs[0].broker, name(1));
    // Said twice, and at whichever broker, it is the same.
    for said_to in [1, 0] {
        assert!(two.order(said_to, Order::Drain).await.draining);
    }
    while of(&two.order(0, Order::Look).await) > 0 {
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(two.served(1, index).await, 2);
    assert_eq!(two.moved(0, index).await.details["broker"], name(1));
    assert!(!two.order(1, Order::Serve).await.draining);
    // Nothing comes back by itself, and there is no order for somebody else.
    assert_eq!(two.epoch(1, index).await.unwrap(), 2);
    let request = v1::DrainBrokerRequest {
        broker: "nobody".to_owned(),
        order: Order::Drain.into(),
    };
    let refused = two.brokers[0].admin().drain_broker(request).await;
    let refused = Fault::from_status(&refused.unwrap_err()).unwrap();
    assert_eq!(refused.reason, Reason::PreconditionFailed, "{refused}");
}
