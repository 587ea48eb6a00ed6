//! Networks that pass bytes in one direction only, between each two kinds of processes, and processes that slept while their partitions
//! went to others.

use std::time::{Duration, Instant};

use hulse_sdk::Client;

use super::super::report::rounds;
use super::load::{Load, runtime};
use super::ports::Ports;
use super::processes::{Cluster, Node};
use super::truth::{Fate, read_all};

const TOPIC: &str = "one-way";
const PARTITIONS: u32 = 6;
/// Who is not heard, and by whom. The first three are those of a short run.
const CUTS: [(Node, Node); 6] = [
    (Node::Broker(0), Node::Bookie(0)),
    (Node::Etcd, Node::Broker(1)),
    (Node::Broker(1), Node::Broker(0)),
    (Node::Bookie(1), Node::Broker(1)),
    (Node::Broker(0), Node::Etcd),
    (Node::Broker(0), Node::Broker(1)),
];
/// Longer than a lease, and than the silence after which a bookie is replaced.
const CUT: Duration = Duration::from_millis(4_500);
/// Above a lease and a fetch that gets no answer.
const OWNED_WITHIN: Duration = Duration::from_secs(30);

#[test]
fn networks_of_one_direction_and_sleepers_that_wake_lose_nothing() {
    let ports = Ports::take();
    let Some(mut cluster) = Cluster::start_linked(ports.first, 3) else {
        return;
    };
    cluster.link_brokers();
    cluster.add_broker();
    cluster.add_broker();
    let runtime = runtime();
    let client = Client::builder(cluster.broker_address(0)).build().unwrap();
    let load = runtime.block_on(Load::begin(&client, TOPIC, PARTITIONS));
    runtime.block_on(load.goes_on("the beginning"));
    for (from, to) in CUTS.into_iter().take(rounds(3, CUTS.len())) {
        cluster.cut_one_way(from, to);
        std::thread::sleep(CUT);
        // Partitions whose owner hears of nothing else go on, or have another one by now.
        runtime.block_on(load.goes_on(&format!("{to:?} does not hear {from:?}")));
        cluster.heal();
        runtime.block_on(load.goes_on(&format!("{to:?} hears {from:?} again")));
    }
    for sleeper in [Node::Broker(1), Node::Bookie(2), Node::Broker(0)]
        .into_iter()
        .take(rounds(1, 3))
    {
        cluster.process(sleeper).signal("-STOP");
        std::thread::sleep(CUT + Duration::from_millis(rounds(500, 8_000) as u64));
        runtime.block_on(load.goes_on(&format!("{sleeper:?} sleeps")));
        if let Node::Broker(index) = sleeper {
            let other = Client::builder(cluster.broker_address(1 - index));
            runtime.block_on(have_other_owners(&other.build().unwrap()));
        }
        cluster.process(sleeper).signal("-CONT");
        runtime.block_on(load.goes_on(&format!("{sleeper:?} is awake")));
        // One that finds its name given away ends, and says so; this one comes back.
        cluster.process(sleeper).wait_ready();
    }
    let (truth, followed) = runtime.block_on(load.end());
    let found = runtime.block_on(read_all(&client, TOPIC));
    truth.check(&found, "one-way");
    truth.check(&followed, "what was followed");
    assert_eq!(truth.count(|fate| fate == Fate::Failed), 0);
    cluster.stop();
}

/// Waits until the partitions of a broker that sleeps are served by others: whoever wants them takes them there, and the follower wants
/// them all.
async fn have_other_owners(client: &Client) {
    let began = Instant::now();
    loop {
        let described = client.admin().describe_topic(TOPIC).await.unwrap();
        if described.partition.iter().any(|of| of.leader_epoch > 1) {
            return;
        }
        assert!(began.elapsed() < OWNED_WITHIN, "{described:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
