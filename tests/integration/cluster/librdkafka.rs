//! LD-06 with librdkafka, as the case tells it: an idempotent producer with five requests on their way, whose partition's owner is
//! killed and whose link breaks, stores every record once and in order, and never hears of a fatal error.

use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use hulse_sdk::Client;
use serde_json::Value;

use super::super::proxy::Proxy;
use super::super::report::{report, rounds};
use super::load::runtime;
use super::ports::Ports;
use super::processes::Cluster;
use super::truth::{Fate, Truth, read_all};

const TOPIC: &str = "plain";
const PARTITIONS: u32 = 6;
const BROKERS: usize = 2;

/// The producer, in a process of its own; `None` where there is no Python with the client.
fn producer(addresses: &str, seconds: usize) -> Option<Child> {
    let Some(python) = std::env::var_os("HULSE_TEST_PYTHON") else {
        report("NOT RUN: LD-06 with librdkafka: HULSE_TEST_PYTHON is not set, tests/run sets it");
        return None;
    };
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/integration/kafka_idempotent.py"
    );
    let child = Command::new(python)
        .args([script, addresses, TOPIC])
        .args([PARTITIONS.to_string(), seconds.to_string()])
        .stdout(Stdio::piped())
        .spawn();
    Some(child.expect("Python can be started"))
}

/// What the producer was told, as the truth of the checker.
fn truth(told: &Value) -> Truth {
    let number = |value: &Value| value.as_u64().expect("a number");
    let truth = Truth::default();
    for id in 0..number(&told["sent"]) {
        truth.note((0, id), Fate::Unknown);
    }
    for place in told["places"].as_array().expect("a list") {
        let partition = u32::try_from(number(&place[0])).expect("few partitions");
        let fate = Fate::Acked((partition, number(&place[1])));
        truth.note((0, number(&place[2])), fate);
    }
    truth
}

/// A cluster whose Kafka listeners are reached through proxies; their addresses are those of the proxies.
fn cluster(port: u16) -> Option<(Cluster, Vec<(u16, u16)>)> {
    let mut cluster = Cluster::start(port, 3)?;
    let mut listeners = Vec::new();
    for index in 0..BROKERS {
        // Behind the brokers' ports.
        let there = port + 36 + 2 * u16::try_from(index).expect("few brokers");
        let mut broker = cluster.broker(index);
        let config = cluster.folder().join(format!("broker-{index}.toml"));
        let words = format!(
            "[[listen.kafka]]\nbind = \"127.0.0.1:{there}\"\nadvertise = \"127.0.0.1:{}\"\n",
            there + 1
        );
        std::fs::write(&config, words).expect("a file can be written");
        broker.say("--kafka", &["--config", &config.display().to_string()]);
        broker.start();
        cluster.brokers.push(broker);
        listeners.push((there, there + 1));
    }
    Some((cluster, listeners))
}

#[test]
fn idempotent_producer_of_librdkafka_stores_each_record_once_over_kills_and_cuts() {
    let ports = Ports::take();
    if std::env::var_os("HULSE_TEST_PYTHON").is_none() {
        assert!(producer("", 0).is_none());
        return;
    }
    let Some((mut cluster, listeners)) = cluster(ports.first) else {
        return;
    };
    let runtime = runtime();
    let client = Client::builder(cluster.broker_address(0)).build().unwrap();
    runtime
        .block_on(client.admin().create_topic(TOPIC, PARTITIONS))
        .unwrap();
    let proxies: Vec<Proxy> = listeners
        .iter()
        .map(|(there, told)| {
            let listen = format!("127.0.0.1:{told}");
            runtime.block_on(Proxy::start(&listen, format!("127.0.0.1:{there}")))
        })
        .collect();
    let told: Vec<_> = proxies.iter().map(|proxy| proxy.address.clone()).collect();
    let (all, between) = (rounds(2, 6), rounds(2, 10));
    let seconds = all * (between + 2) + 2;
    let producing = producer(&told.join(","), seconds).expect("it was looked for");
    let between = Duration::from_secs(between as u64);
    for round in 0..all {
        std::thread::sleep(between);
        // Requests are open, and never get their answers.
        let proxy = &proxies[round % BROKERS];
        proxy.stall(true);
        std::thread::sleep(Duration::from_millis(300));
        proxy.cut(true);
        std::thread::sleep(Duration::from_millis(rounds(700, 2_700) as u64));
        proxy.stall(false);
        proxy.cut(false);
        std::thread::sleep(Duration::from_secs(1));
        let described = runtime
            .block_on(client.admin().describe_topic(TOPIC))
            .unwrap();
        let owner = described.partition[round % PARTITIONS as usize]
            .owner
            .clone();
        let at = |index: &usize| Some(cluster.broker_address(*index)) == owner;
        let owner = (0..BROKERS).find(at).expect("a broker owns it");
        cluster.brokers[owner].kill();
        cluster.brokers[owner].start();
    }
    let output = producing.wait_with_output().unwrap();
    assert!(output.status.success(), "{output:?}");
    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    for list in ["failed", "fatal"] {
        assert_eq!(told[list], Value::Array(Vec::new()), "{list}");
    }
    assert_eq!(told["left"], 0);
    let truth = Arc::new(truth(&told));
    let found = runtime.block_on(read_all(&client, TOPIC));
    truth.check(&found, "LD-06 with librdkafka");
    assert_eq!(found.len() as u64, told["sent"].as_u64().unwrap());
    report(&format!(
        "records of librdkafka over kills and cuts: {}",
        found.len()
    ));
    cluster.stop();
}
