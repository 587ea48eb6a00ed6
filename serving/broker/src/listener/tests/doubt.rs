//! A broker that may not own any more what it has open, as it hears nothing of metadata or was frozen: what does it tell of the ends
//! of logs?

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bookie_metadata::testing::{Call, Fate};
use bookie_metadata::{MetadataStore as _, Op, Txn};
use futures::StreamExt as _;
use hulse_proto::error::{Fault, Reason};
use hulse_proto::id::{NodeName, Offset, OwnerEpoch, PartitionId};
use hulse_proto::wire::v1;
use hulse_proto::wire::v1::log_server::Log as _;
use hulse_proto::wire::v1::read_response::Item;
use tokio::time::{sleep, timeout};
use tonic::Request;

use super::world::{plain, stamped};
use crate::listener::reading::LogService;
use crate::testing::MemoryBroker;
use crate::topics::NewTopic;
use crate::{Front, PartitionHandle};

const LEASE: Duration = Duration::from_secs(3);

/// Two brokers of a cell. The first has a lease, which the test renews, and no watches: it hears of others by listing, if at all.
struct Pair {
    /// As the second broker sees it.
    cell: MemoryBroker,
    /// As the first one does.
    cut: MemoryBroker,
    /// The first one is told nothing of partitions.
    deaf: Arc<AtomicBool>,
    first: Arc<Front>,
    second: Arc<Front>,
    /// Of the first one.
    id: PartitionId,
}

impl Pair {
    async fn new() -> Self {
        let cell = MemoryBroker::default();
        let cut = cell.leased(LEASE);
        let deaf = Arc::new(AtomicBool::new(false));
        let is_deaf = deaf.clone();
        cut.metadata.choose(move |call| match call {
            Call::Watch(_) => Fate::Unavailable,
            Call::List("part/") if is_deaf.load(Ordering::Relaxed) => Fate::Unavailable,
            _ => Fate::Pass,
        });
        let named = |of: &MemoryBroker, name: &str| {
            let name = NodeName::new(name).unwrap();
            of.front(|config| config.name = name)
        };
        let (first, second) = (named(&cut, "broker-1"), named(&cell, "broker-2"));
        cell.register("broker-1", 0, "one:7400", None).await;
        cell.register("broker-2", 1, "two:7400", None).await;
        cut.lease.asks();
        cut.lease.began();
        MemoryBroker::follow(&first).await;
        MemoryBroker::follow(&second).await;
        let new = NewTopic {
            partitions: 16,
            ..NewTopic::default()
        };
        let name = "t".parse().unwrap();
        let topic = first.topics.create_with(&name, new).await.unwrap();
        let mut id = None;
        for candidate in topic.partition_ids() {
            if id.is_none() && first.open(candidate).await.is_ok() {
                id = Some(candidate);
            }
        }
        Self {
            cell,
            cut,
            deaf,
            first,
            second,
            id: id.expect("one of sixteen is the first broker's"),
        }
    }

    async fn opened(&self) -> PartitionHandle {
        self.first.open(self.id).await.unwrap()
    }

    /// The first broker's partition with so many records.
    async fn holding(&self, records: u32) -> PartitionHandle {
        let open = self.opened().await;
        open.produce(plain(records, 10)).await.unwrap();
        open
    }

    /// The first broker's lease ends in metadata, and the second one takes its partition over and appends a record.
    async fn overtaken(&self) -> PartitionHandle {
        let key = "node/broker/broker-1".to_owned();
        let txn = Txn {
            compares: Vec::new(),
            ops: vec![Op::Delete { key }],
        };
        self.cell.metadata.txn(txn).await.unwrap();
        let open = loop {
            match self.second.open(self.id).await {
                Ok(open) => break open,
                Err(_) => sleep(Duration::from_millis(10)).await,
            }
        };
        assert_eq!(open.leader_epoch(), OwnerEpoch(2));
        open.produce(plain(1, 10)).await.unwrap();
        open
    }

    fn partition(&self) -> Option<v1::Partition> {
        Some(v1::Partition {
            topic_uuid: self.id.topic.to_bytes(),
            index: self.id.index,
        })
    }

    /// Where the first broker says that the log ends.
    async fn end(&self) -> Result<u64, Fault> {
        let request = v1::OffsetsRequest {
            partition: self.partition(),
            at_time: None,
        };
        let log = LogService(self.first.clone());
        match log.offsets(Request::new(request)).await {
            Ok(answer) => Ok(answer.into_inner().high_watermark),
            Err(status) => Err(Fault::from_status(&status).unwrap()),
        }
    }

    async fn read(&self, start: u64, follow: bool) -> Result<Answers, Fault> {
        let request = v1::ReadRequest {
            partition: self.partition(),
            start,
            max_bytes_in_flight: 0,
            follow,
        };
        let log = LogService(self.first.clone());
        match log.read(Request::new(request)).await {
            Ok(answer) => Ok(answer.into_inner()),
            Err(status) => Err(Fault::from_status(&status).unwrap()),
        }
    }
}

type Answers = <LogService as v1::log_server::Log>::ReadStream;

/// The end that a read was told, or its fault; records are passed over.
async fn told(answers: &mut Answers) -> Result<u64, Fault> {
    loop {
        match answers.next().await.expect("a read ends with a word") {
            Ok(answer) => {
                if let Some(Item::EndOfLog(end)) = answer.item {
                    return Ok(end.offset);
                }
            }
            Err(status) => return Err(Fault::from_status(&status).unwrap()),
        }
    }
}

fn reason<T: std::fmt::Debug>(result: Result<T, Fault>) -> Reason {
    result.unwrap_err().reason
}

#[tokio::test(start_paused = true)]
async fn end_of_a_log_that_another_broker_continues_is_not_told() {
    let pair = Pair::new().await;
    pair.holding(3).await;
    assert_eq!(pair.end().await.unwrap(), 3);
    pair.cut.metadata.silence();
    sleep(LEASE).await;
    // Nobody has taken it over: the bookie knows.
    assert_eq!(pair.end().await.unwrap(), 3);
    assert_eq!(told(&mut pair.read(0, false).await.unwrap()).await, Ok(3));
    pair.overtaken().await;
    let mut to_the_end = pair.read(0, false).await.unwrap();
    assert_eq!(reason(told(&mut to_the_end).await), Reason::PartitionMoved);
    // From now on nothing is told at all.
    assert_eq!(pair.first.partitions.open_count(), 0);
}

#[tokio::test(start_paused = true)]
async fn offset_above_an_old_end_is_not_called_out_of_range() {
    let pair = Pair::new().await;
    let open = pair.holding(3).await;
    assert_eq!(
        reason(pair.read(4, false).await.map(drop)),
        Reason::OffsetOutOfRange
    );
    assert_eq!(
        reason(open.read(Offset(9), 1).await),
        Reason::OffsetOutOfRange
    );
    pair.cut.metadata.silence();
    sleep(LEASE).await;
    pair.overtaken().await;
    // A client that was told so would begin anew.
    assert_eq!(
        reason(pair.read(4, false).await.map(drop)),
        Reason::PartitionMoved
    );
    assert_eq!(
        reason(open.read(Offset(9), 1).await),
        Reason::PartitionMoved
    );
}

#[tokio::test(start_paused = true)]
async fn end_is_not_told_when_nobody_says_whose_the_log_is() {
    let pair = Pair::new().await;
    // It has no open ledger that a bookie could tell of.
    pair.opened().await;
    pair.cut.metadata.silence();
    assert_eq!(pair.end().await.unwrap(), 0, "the lease stands");
    sleep(LEASE).await;
    let fault = pair.end().await.unwrap_err();
    assert_eq!(fault.reason, Reason::MetadataUnavailable);
    assert!(fault.retry_after.is_some());
    let mut answers = pair.read(0, true).await.unwrap();
    assert_eq!(
        reason(told(&mut answers).await),
        Reason::MetadataUnavailable
    );
    // It is its own still, and that is known as soon as metadata speak.
    pair.cut.metadata.speak();
    assert_eq!(pair.end().await.unwrap(), 0);
}

#[tokio::test(start_paused = true)]
async fn who_follows_a_log_is_led_away_when_another_broker_continues_it() {
    let pair = Pair::new().await;
    pair.holding(3).await;
    let mut answers = pair.read(0, true).await.unwrap();
    assert_eq!(told(&mut answers).await, Ok(3));
    pair.cut.metadata.silence();
    sleep(LEASE * 3).await;
    // Its own for longer than a lease, and it goes on.
    pair.opened().await.produce(plain(1, 10)).await.unwrap();
    assert_eq!(told(&mut answers).await, Ok(4));
    pair.overtaken().await;
    let ended = timeout(Duration::from_secs(3), told(&mut answers)).await;
    assert_eq!(
        reason(ended.expect("it is looked at")),
        Reason::PartitionMoved
    );
}

#[tokio::test(start_paused = true)]
async fn frozen_broker_that_wakes_tells_no_old_end_and_names_the_owner() {
    let pair = Pair::new().await;
    pair.holding(3).await;
    pair.deaf.store(true, Ordering::Relaxed);
    pair.overtaken().await;
    // It is as if nothing had happened here, but the clock went on.
    sleep(LEASE).await;
    let fault = pair.end().await.unwrap_err();
    assert_eq!(fault.reason, Reason::PartitionMoved);
    assert_eq!(fault.details["broker"], "broker-2");
    assert_eq!(fault.details["endpoint"], "two:7400");
    assert_eq!(fault.details["leader_epoch"], "2");
}

#[tokio::test(start_paused = true)]
async fn lease_that_was_lost_and_taken_again_vouches_for_nothing_of_before() {
    for overtaken in [false, true] {
        let pair = Pair::new().await;
        let open = pair.holding(3).await;
        pair.deaf.store(true, Ordering::Relaxed);
        if overtaken {
            pair.overtaken().await;
        }
        pair.cut.lease.asks();
        pair.cut.lease.began();
        assert!(!open.is_certain());
        match overtaken {
            true => assert_eq!(reason(pair.end().await), Reason::PartitionMoved),
            false => {
                assert_eq!(pair.end().await.unwrap(), 3);
                assert!(open.is_certain(), "one look is enough for a term");
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn refusal_by_what_a_former_owner_knew_of_a_producer_is_not_told() {
    let pair = Pair::new().await;
    let open = pair.opened().await;
    open.produce(stamped(7, 0)).await.unwrap();
    pair.cut.metadata.silence();
    sleep(LEASE).await;
    // Its own, it may refuse.
    let refused = open.produce(stamped(7, 5)).await;
    assert_eq!(reason(refused), Reason::OutOfOrderSequence);
    let next = pair.overtaken().await;
    for sequence in 1..5 {
        next.produce(stamped(7, sequence)).await.unwrap();
    }
    let refused = open.produce(stamped(7, 5)).await;
    assert_eq!(reason(refused), Reason::PartitionMoved);
    next.produce(stamped(7, 5)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn partition_of_a_living_broker_is_not_won_by_one_that_thinks_it_dead() {
    let cell = MemoryBroker::default();
    let blind = cell.leased(LEASE);
    let named = |of: &MemoryBroker, name: &str| {
        let name = NodeName::new(name).unwrap();
        of.front(|config| config.name = name)
    };
    let (first, second) = (named(&cell, "broker-1"), named(&blind, "broker-2"));
    cell.register("broker-2", 1, "two:7400", None).await;
    let hears = Arc::new(AtomicBool::new(true));
    let still_hears = hears.clone();
    blind.metadata.choose(move |call| match call {
        Call::Watch(_) => Fate::Unavailable,
        Call::List("node/broker/") if !still_hears.load(Ordering::Relaxed) => Fate::Unavailable,
        _ => Fate::Pass,
    });
    MemoryBroker::follow(&second).await;
    hears.store(false, Ordering::Relaxed);
    let new = NewTopic {
        partitions: 4,
        ..NewTopic::default()
    };
    let name = "t".parse().unwrap();
    let topic = first.topics.create_with(&name, new).await.unwrap();
    let id = topic.partition_ids().next().unwrap();
    let open = first.open(id).await.unwrap();
    open.produce(plain(3, 10)).await.unwrap();
    cell.register("broker-1", 0, "one:7400", None).await;
    let won = second.partitions.open(id).await;
    assert_eq!(reason(won.map(|_| ())), Reason::PartitionLoading);
    assert_eq!(
        open.produce(plain(1, 10)).await.unwrap().base_offset,
        Offset(3)
    );
    // Once it is dead for certain, the partition goes to who lives.
    let txn = Txn {
        compares: Vec::new(),
        ops: vec![Op::Delete {
            key: "node/broker/broker-1".to_owned(),
        }],
    };
    cell.metadata.txn(txn).await.unwrap();
    second.partitions.forget_failure(id);
    let won = second.partitions.open(id).await.unwrap();
    assert_eq!(
        (won.leader_epoch(), won.offsets().high_watermark),
        (OwnerEpoch(2), Offset(4))
    );
}
