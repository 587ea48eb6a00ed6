//! LD-11 with disks that are lost: whatever died and came back, with its disk or without, what is read from the start has the same count
//! and the same end, and all copies are of one size.

use std::time::{Duration, Instant};

use hulse_sdk::{Admin, Client, Record};

use super::super::report::rounds;
use super::load::runtime;
use super::ports::Ports;
use super::processes::Cluster;
use super::troubles::{replace, whole};
use super::truth::read_all;

const TOPIC: &str = "counted";
const SETTINGS: [(&str, &str); 1] = [("HULSE_UPKEEP__AUDIT_INTERVAL", "1s")];
/// Far above what a pass of upkeep takes.
const EQUAL_WITHIN: Duration = Duration::from_secs(60);

async fn send(client: &Client, round: usize, records: usize) {
    let producer = client.producer(TOPIC).build().await.unwrap();
    for number in 0..records {
        let record = Record::new(format!("{round} {number} "));
        producer.send(record).await.unwrap().await.unwrap();
    }
    producer.close().await.unwrap();
}

/// Waits until each bookie holds as much as the others, by the planner's count.
async fn equal(admin: &Admin) {
    let began = Instant::now();
    loop {
        let found = admin.list_bookies().await.unwrap();
        let held: Vec<_> = found.bookies.iter().map(|bookie| bookie.holds).collect();
        if held.iter().all(|of| of.is_some() && *of == held[0]) {
            return;
        }
        assert!(began.elapsed() < EQUAL_WITHIN, "{held:?}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

#[test]
fn count_and_end_stay_when_the_dead_come_back_without_their_disks() {
    let ports = Ports::take();
    let Some(mut cluster) = Cluster::start_with(ports.first, 3, &SETTINGS) else {
        return;
    };
    cluster.add_broker();
    cluster.add_broker();
    let runtime = runtime();
    let clients = [0, 1].map(|broker| {
        let client = Client::builder(cluster.broker_address(broker));
        client.build().unwrap()
    });
    let admin = clients[0].admin();
    runtime.block_on(admin.create_topic(TOPIC, 1)).unwrap();
    let mut expected = 0;
    for round in 0..rounds(2, 6) {
        let records = [1, 100, 0][round % 3];
        runtime.block_on(send(&clients[round % 2], round, records));
        expected += records;
        let to = format!("broker-{}", round % 2 + 1);
        let moved = admin.move_partition(TOPIC, 0, &to, false);
        runtime.block_on(moved).unwrap();
        let (owner, other) = (round % 2, &clients[1 - round % 2]);
        cluster.brokers[owner].kill();
        let bookie = round % 3;
        cluster.bookies[bookie].kill();
        let found = runtime.block_on(read_all(other, TOPIC));
        assert_eq!(found.len(), expected, "round {round}, one copy less");
        std::fs::remove_dir_all(cluster.data(bookie)).unwrap();
        replace(&cluster, bookie);
        cluster.bookies[bookie].start();
        cluster.brokers[owner].start();
        runtime.block_on(async {
            whole(&other.admin()).await;
            equal(&other.admin()).await;
        });
        for client in &clients {
            let found = runtime.block_on(read_all(client, TOPIC));
            assert_eq!(found.len(), expected, "round {round}");
            let offsets = runtime.block_on(client.admin().offsets(TOPIC, 0, None));
            assert_eq!(offsets.unwrap().end.0, expected as u64);
        }
    }
    cluster.stop();
}
