//! `hulse drain`: a broker gives everything away before it is stopped, and nobody notices.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hulse_sdk::{Client, Producer};
use tokio::runtime::Runtime;
use tokio::task::JoinHandle;

use super::super::server::run;
use super::owners::{check, client_at, owners, producer, runtime, send, topic};
use super::ports::Ports;
use super::processes::Cluster;

const PARTITIONS: u32 = 12;

/// Runs a command; its exit code and its words.
fn hulse(at: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let output = run(&[&["--server", at], arguments].concat(), "");
    let told = String::from_utf8_lossy(&output.stdout).into_owned()
        + &String::from_utf8_lossy(&output.stderr);
    (output.status.code(), told)
}

fn told(at: &str, arguments: &[&str], code: i32, words: &[&str]) {
    let (ended, told) = hulse(at, arguments);
    assert_eq!(ended, Some(code), "{arguments:?}: {told}");
    for words in words {
        assert!(told.contains(words), "{arguments:?}: {words} in {told}");
    }
}

const TOPIC: &str = "drained";
const NEW: &str = "new";

/// Two brokers; the second one has all partitions of the topic.
struct Two {
    cluster: Cluster,
    at: [String; 2],
    runtime: Runtime,
    client: Client,
    producer: Producer,
}

impl Two {
    fn start(port: u16) -> Option<Self> {
        // Slow enough to be seen, and to be cut short.
        let settings = [("HULSE_BROKER__DRAIN_RATE", "4")];
        let mut cluster = Cluster::start_with(port, 3, &settings)?;
        cluster.add_broker();
        cluster.add_broker();
        let at = [0, 1].map(|broker| cluster.broker_address(broker));
        let (runtime, client) = (runtime(), client_at(&at[0]));
        runtime.block_on(topic(&client, TOPIC));
        let producer = runtime.block_on(producer(&client, TOPIC));
        runtime.block_on(send(&producer, 240));
        for partition in 0..PARTITIONS {
            let admin = client.admin();
            let moved = admin.move_partition(TOPIC, partition, "broker-2", false);
            runtime.block_on(moved).unwrap();
        }
        Some(Self {
            cluster,
            at,
            runtime,
            client,
            producer,
        })
    }

    /// All partitions of the topic are this broker's.
    fn only(&self, topic: &str, broker: usize) {
        let found = self.runtime.block_on(owners(&self.client, topic));
        assert_eq!(found, BTreeSet::from([self.at[broker].clone()]), "{topic}");
    }

    /// Sends until it is over: how many, and the longest wait.
    fn send_on(&self, over: &Arc<AtomicBool>) -> JoinHandle<(u64, Duration)> {
        let (producer, over) = (self.producer.clone(), Arc::clone(over));
        self.runtime.spawn(async move {
            let (mut count, mut longest) = (240, Duration::ZERO);
            while !over.load(Ordering::Relaxed) {
                longest = longest.max(send(&producer, 240).await);
                count += 240;
            }
            (count, longest)
        })
    }
}

#[test]
fn broker_that_is_drained_gives_everything_away_and_gets_nothing_until_it_is_told() {
    let ports = Ports::take();
    let Some(mut two) = Two::start(ports.first) else {
        return;
    };
    let over = Arc::new(AtomicBool::new(false));
    let sending = two.send_on(&over);
    given_away(&two);
    let [first, second] = &two.at;
    told(
        second,
        &["drain", "broker-1"],
        5,
        &["no other broker takes partitions"],
    );
    told(first, &["brokers", "undrain", "broker-2"], 0, &["serving"]);
    told(
        first,
        &["drain", "--self"],
        0,
        &["broker-1 has no partitions"],
    );
    two.only(TOPIC, 1);
    // The order ends with the process.
    let stopped = two.cluster.brokers[0].stop();
    assert!(stopped.success(), "{}", two.cluster.brokers[0].log());
    two.cluster.brokers[0].start();
    told(first, &["brokers", "describe", "broker-1"], 0, &["serving"]);
    over.store(true, Ordering::Relaxed);
    let (count, longest) = two.runtime.block_on(sending).unwrap();
    assert!(longest < Duration::from_secs(3), "{longest:?}");
    two.runtime.block_on(async {
        two.producer.close().await.unwrap();
        check(&two.client, TOPIC, count).await;
    });
    two.cluster.stop();
}

/// The second broker is drained: planned, begun, looked at, and done.
fn given_away(two: &Two) {
    let [first, second] = &two.at;
    let plan = "12 partitions (12 to broker-1)";
    let dry = ["drain", "broker-2", "--dry-run"];
    told(first, &dry, 0, &[plan, "nothing was changed"]);
    two.only(TOPIC, 1);
    told(
        first,
        &["drain", "broker-3"],
        3,
        &["HULSE-9211", "broker-2"],
    );
    // The command is cut short, the drain goes on; asked again it tells the rest.
    let short = ["drain", "broker-2", "--within", "1s"];
    told(first, &short, 6, &["left", "it goes on"]);
    let done = ["broker-2 has no partitions", "draining"];
    told(first, &["drain", "broker-2"], 0, &done);
    two.only(TOPIC, 0);
    let health = ["DOCTOR-34", "hulse brokers undrain broker-2"];
    told(second, &["cluster", "health"], 0, &health);
    // What is new does not go there, whoever is asked.
    two.runtime.block_on(async {
        let client = client_at(second);
        topic(&client, NEW).await;
        let producer = producer(&client, NEW).await;
        send(&producer, 240).await;
        producer.close().await.unwrap();
    });
    two.only(NEW, 0);
}
