//! `hulse drain`: a broker gives everything away before it is stopped, and nobody notices.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::super::server::run;
use super::owners::{check, client_at, owners, producer, runtime, send, topic};
use super::ports::Ports;
use super::processes::Cluster;

const PARTITIONS: usize = 12;

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

#[test]
fn broker_that_is_drained_gives_everything_away_and_gets_nothing_until_it_is_told() {
    let ports = Ports::take();
    // Slow enough to be seen, and to be cut short.
    let settings = [("HULSE_BROKER__DRAIN_RATE", "4")];
    let Some(mut cluster) = Cluster::start_with(ports.first, 3, &settings) else {
        return;
    };
    cluster.add_broker();
    cluster.add_broker();
    let (first, second) = (cluster.broker_address(0), cluster.broker_address(1));
    let runtime = runtime();
    let client = client_at(&first);
    runtime.block_on(topic(&client, "drained"));
    let producer = runtime.block_on(producer(&client, "drained"));
    runtime.block_on(send(&producer, 240));
    for partition in 0..PARTITIONS as u32 {
        let admin = client.admin();
        let moved = admin.move_partition("drained", partition, "broker-2", false);
        runtime.block_on(moved).unwrap();
    }
    let over = Arc::new(AtomicBool::new(false));
    let sending = runtime.spawn({
        let (producer, over) = (producer.clone(), Arc::clone(&over));
        async move {
            let (mut count, mut longest) = (240, Duration::ZERO);
            while !over.load(Ordering::Relaxed) {
                longest = longest.max(send(&producer, 240).await);
                count += 240;
            }
            (count, longest)
        }
    });
    let plan = "12 partitions (12 to broker-1)";
    told(
        &first,
        &["drain", "broker-2", "--dry-run"],
        0,
        &[plan, "nothing was changed"],
    );
    let only = |at: &str| BTreeSet::from([at.to_owned()]);
    assert_eq!(runtime.block_on(owners(&client, "drained")), only(&second));
    told(
        &first,
        &["drain", "broker-3"],
        3,
        &["HULSE-9211", "broker-2"],
    );

    // The command is cut short, the drain goes on; asked again it tells the rest.
    told(
        &first,
        &["drain", "broker-2", "--within", "1s"],
        6,
        &["left", "it goes on"],
    );
    told(
        &first,
        &["drain", "broker-2"],
        0,
        &["broker-2 has no partitions", "draining"],
    );
    assert_eq!(runtime.block_on(owners(&client, "drained")), only(&first));
    told(
        &second,
        &["cluster", "health"],
        0,
        &["DOCTOR-34", "hulse brokers undrain broker-2"],
    );
    // What is new does not go there, whoever is asked; and the last one cannot be drained.
    runtime.block_on(topic(&client_at(&second), "new"));
    let other = runtime.block_on(self::producer(&client_at(&second), "new"));
    runtime.block_on(send(&other, 240));
    assert_eq!(runtime.block_on(owners(&client, "new")), only(&first));
    told(
        &second,
        &["drain", "broker-1"],
        5,
        &["no other broker takes partitions"],
    );

    told(&first, &["brokers", "undrain", "broker-2"], 0, &["serving"]);
    told(
        &first,
        &["drain", "--self"],
        0,
        &["broker-1 has no partitions"],
    );
    assert_eq!(runtime.block_on(owners(&client, "drained")), only(&second));
    // The order ends with the process.
    assert!(
        cluster.brokers[0].stop().success(),
        "{}",
        cluster.brokers[0].log()
    );
    cluster.brokers[0].start();
    told(
        &first,
        &["brokers", "describe", "broker-1"],
        0,
        &["serving"],
    );
    over.store(true, Ordering::Relaxed);
    let (count, longest) = runtime.block_on(sending).unwrap();
    assert!(longest < Duration::from_secs(3), "{longest:?}");
    runtime.block_on(async {
        producer.close().await.unwrap();
        other.close().await.unwrap();
        check(&client, "drained", count).await;
    });
    cluster.stop();
}
