//! Age, quota, and slots.

use std::collections::BTreeSet;
use std::time::Duration;

use hulse_sdk::{BlockedReason, Client, Reason, Record, Sharing, Start};
use tokio::time::timeout;

use super::super::cli::{done, json, text};
use super::super::server::{Server, http_get};
use super::super::subscriptions::{PATIENCE, client, send_batch};
use super::{PORT, consumed, described, until, value};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_are_too_old_are_passed_over_and_counted_without_a_consumer() {
    let server = Server::start(PORT + 10);
    let client = client(&server.address());
    done(&server, &["topics", "create", "jobs", "-p", "2"], "");
    for (name, kind) in [("s", "queue"), ("single", "exclusive")] {
        let create = ["subs", "create", "jobs", name, "--type", kind];
        done(
            &server,
            &[&create[..], &["--from", "start", "--ttl", "3s"]].concat(),
            "",
        );
    }
    done(
        &server,
        &["subs", "create", "jobs", "keeps", "--from", "start"],
        "",
    );
    assert_eq!(described(&server, "jobs")["ttl_ms"], 3_000);
    send_batch(&client, "jobs", 6).await;
    let seen = until(&server, "jobs", "too old", |seen| {
        seen["backlog_records"] == 0
    })
    .await;
    assert_eq!(seen["expired_records"], 6);
    let of = |name: &str| json(&server, &["subs", "describe", "jobs", name]);
    for _ in 0..100 {
        if of("single")["backlog_records"] == 0 {
            break;
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
    assert_eq!(of("single")["expired_records"], 6);
    assert_eq!(of("keeps")["backlog_records"], 6, "it has no limit");
    let metrics = http_get(&server.http(), "/metrics").unwrap();
    let line = "hulse_subscription_records_expired_total{subscription=\"public/default/s\"} 6";
    assert!(metrics.contains(line), "{metrics}");
    // What is young is delivered.
    send_batch(&client, "jobs", 4).await;
    assert_eq!(consumed(&server, "jobs", "queue"), [0, 1, 2, 3]);
    done(
        &server,
        &["subs", "update", "jobs", "s", "--ttl", "off"],
        "",
    );
    assert!(described(&server, "jobs")["ttl_ms"].is_null());
}

/// What became too old while nobody had the partition open goes when it is opened next. It is no dead letter, whatever the policy.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_that_became_too_old_while_their_partition_was_closed_go_when_it_is_opened() {
    let mut server = Server::start(20_090);
    done(&server, &["topics", "create", "jobs", "graves"], "");
    let create = [
        "subs", "create", "jobs", "s", "--type", "queue", "--from", "start",
    ];
    let rules = ["--ttl", "5s", "--dead-letter-topic", "graves"];
    done(&server, &[&create[..], &rules].concat(), "");
    done(&server, &["produce", "jobs"], "1\n2\n3\n");
    server.kill();
    tokio::time::sleep(Duration::from_secs(6)).await;
    server.restart();
    let seen = until(&server, "jobs", "too old", |seen| {
        seen["backlog_records"] == 0
    })
    .await;
    for (field, records) in [
        ("expired_records", 3),
        ("dead_records", 0),
        ("dead_letters", 0),
    ] {
        assert_eq!(seen[field], records, "{field} of {seen:#}");
    }
    let graves = ["consume", "graves", "-o", "start", "-e"];
    assert_eq!(done(&server, &graves, ""), "");
}

/// A topic whose subscriptions may keep a kilobyte, with one that keeps up and one that does not.
async fn overfull(server: &Server, client: &Client, policy: &str) {
    let create = ["topics", "create", policy, "--backlog-size", "1KiB"];
    done(
        server,
        &[&create[..], &["--backlog-policy", policy]].concat(),
        "",
    );
    for name in ["s", "quick"] {
        let create = [
            "subs", "create", policy, name, "--type", "queue", "--from", "start",
        ];
        done(server, &create, "");
    }
    let producer = client.producer(policy);
    let producer = producer.delivery_timeout(Duration::from_secs(3));
    let producer = producer.build().await.unwrap();
    for number in 0..40_u64 {
        let record = Record::new(number.to_string()).header("pad", "x".repeat(200));
        match producer.send(record).await.unwrap().await {
            Ok(_) => {}
            Err(error) if error.to_string().contains("BACKLOG_EXCEEDED") => break,
            Err(error) => panic!("{error}"),
        }
    }
    let quick = ["consume", policy, "-s", "quick", "--type", "queue", "-e"];
    done(server, &quick, "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn queue_over_the_backlog_quota_is_named_and_only_that_one() {
    let server = Server::start(PORT + 12);
    let client = client(&server.address());
    for policy in ["hold", "reject", "evict"] {
        overfull(&server, &client, policy).await;
    }
    // It is refused, and says who is behind.
    let producer = client.producer("reject");
    let producer = producer.delivery_timeout(Duration::from_secs(3));
    let producer = producer.build().await.unwrap();
    let refused = timeout(PATIENCE, async {
        loop {
            match producer.send(Record::new("1")).await.unwrap().await {
                Ok(_) => tokio::time::sleep(Duration::from_millis(50)).await,
                Err(error) => break error,
            }
        }
    });
    let refused = refused.await.unwrap();
    // Until its time is over it tries again; then it says what it heard.
    let told = refused.to_string();
    assert!(
        told.contains("subscription public/default/s keeps"),
        "{told}"
    );
    let reject = described(&server, "reject");
    let quota = reject["cursor"][0]["backlog_percent"].as_u64().unwrap();
    assert!(quota > 100, "{reject:#}");
    done(&server, &["subs", "clear", "reject", "s", "--yes"], "");
    timeout(PATIENCE, async {
        while producer
            .send(Record::new("2"))
            .await
            .unwrap()
            .await
            .is_err()
        {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    })
    .await
    .unwrap();
    // It loses its oldest, and the one that keeps up loses none.
    let evicted = |seen: &serde_json::Value| seen["cursor"][0]["evicted_records"].as_u64().unwrap();
    until(&server, "evict", "evicted", |seen| evicted(seen) > 0).await;
    let left = consumed(&server, "evict", "queue");
    let lost = evicted(&described(&server, "evict"));
    assert_eq!(left, (lost..40).collect::<Vec<_>>());
    let quick = json(&server, &["subs", "describe", "evict", "quick"]);
    assert_eq!(evicted(&quick), 0);
    // And this one keeps all, and the doctor says who it is.
    assert_eq!(described(&server, "hold")["backlog_records"], 40);
    let told = server.doctor();
    assert!(
        told.contains("DOCTOR-15") && told.contains("public/default/s keeps"),
        "{told}"
    );
    assert!(!told.contains("public/default/quick"), "{told}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumers_that_name_their_slots_get_those_keys_and_no_others() {
    let server = Server::start(PORT + 14);
    let client = client(&server.address());
    done(&server, &["topics", "create", "jobs"], "");
    let create = [
        "subs", "create", "jobs", "s", "--type", "keyed", "--from", "start",
    ];
    done(&server, &[&create[..], &["--named-slots"]].concat(), "");
    let producer = client.producer("jobs").build().await.unwrap();
    for number in 0..200 {
        let record = Record::new(number.to_string()).key(format!("k{}", number % 50));
        drop(producer.send(record).await.unwrap());
    }
    producer.close().await.unwrap();
    let begin = |slots: std::ops::Range<u16>| {
        let builder = client.queue_consumer("jobs").subscription("s").keyed(true);
        builder.start(Start::Earliest).slots(slots).build()
    };
    let low = begin(0..2_048).await.unwrap();
    let taken = begin(1_000..3_000).await.unwrap_err();
    assert_eq!(taken.reason(), Some(Reason::PreconditionFailed));
    let beyond = begin(3_000..5_000).await.unwrap_err();
    assert_eq!(beyond.reason(), Some(Reason::InvalidRequest));
    let nameless = client.queue_consumer("jobs").subscription("s").keyed(true);
    let nameless = nameless.build().await.unwrap_err();
    assert_eq!(nameless.reason(), Some(Reason::InvalidRequest));
    let mut keys = [BTreeSet::new(), BTreeSet::new()];
    let mut values = BTreeSet::new();
    let mut drain = async |consumer: &hulse_sdk::QueueConsumer, mine: &mut BTreeSet<Vec<u8>>| {
        loop {
            let messages = consumer.receive(500, Duration::from_secs(1)).await.unwrap();
            if messages.is_empty() {
                return;
            }
            for message in messages {
                mine.insert(message.key.as_ref().unwrap().to_vec());
                values.insert(value(&message));
                consumer.ack(&message).await.unwrap();
            }
        }
    };
    drain(&low, &mut keys[0]).await;
    let waiting = described(&server, "jobs")["backlog_records"]
        .as_u64()
        .unwrap();
    assert!(
        (1..200).contains(&waiting),
        "the other slots wait: {waiting}"
    );
    // From the command line the rest.
    let words = [
        "consume", "jobs", "-s", "s", "--type", "keyed", "-e", "-f", "%k\\n",
    ];
    let rest = done(
        &server,
        &[&words[..], &["--slots", "2048-4096"]].concat(),
        "",
    );
    keys[1].extend(rest.lines().map(|line| line.as_bytes().to_vec()));
    assert_eq!(rest.lines().count() as u64, waiting);
    assert!(keys[0].is_disjoint(&keys[1]) && keys[0].len() + keys[1].len() == 50);
    low.close().await.unwrap();
    let queue = [
        "consume", "jobs", "-s", "q", "--type", "queue", "--slots", "0-9",
    ];
    let refused = server.hulse(&queue, "");
    assert_eq!(refused.status.code(), Some(2), "{}", text(&refused.stderr));
    let plain = client.queue_consumer("jobs").subscription("q").slots(0..9);
    let plain = plain.sharing(Sharing::default()).build().await.unwrap_err();
    assert_eq!(plain.reason(), Some(Reason::InvalidRequest));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn consumer_that_holds_as_many_as_it_may_is_told_so_and_so_are_others() {
    // What a consumer may hold of a partition.
    const MAX: u64 = 5_000;
    let server = Server::start(PORT + 16);
    let client = client(&server.address());
    done(&server, &["topics", "create", "jobs"], "");
    send_batch(&client, "jobs", MAX + 2_000).await;
    let consumer = super::share(&client, "jobs", "slow", false).await;
    let mut messages = Vec::new();
    // One unit may go beyond what it may hold; what comes then waits. Credit comes back with what is taken.
    loop {
        let more = consumer.receive(500, Duration::from_secs(3)).await.unwrap();
        if more.is_empty() && messages.len() >= MAX as usize {
            break;
        }
        messages.extend(more);
    }
    send_batch(&client, "jobs", 10).await;
    let held_up = timeout(PATIENCE, consumer.held_up_anew(&[])).await.unwrap();
    assert_eq!(held_up[0].reason, BlockedReason::UnackedOfConsumer);
    let seen = described(&server, "jobs");
    let held = &seen["cursor"][0]["consumer"][0];
    assert_eq!(held["name"], "slow");
    let unacked = held["unacked_records"].as_u64().unwrap();
    assert!(unacked >= MAX, "{seen:#}");
    assert_eq!(held["blocked"], "BLOCKED_REASON_UNACKED_OF_CONSUMER");
    let told = done(&server, &["subs", "describe", "jobs", "s"], "");
    assert!(
        told.contains("a consumer holds as many records as it may"),
        "{told}"
    );
    let acked: Vec<_> = messages
        .iter()
        .map(|message| consumer.ack(message))
        .collect();
    for receipt in acked {
        receipt.await.unwrap();
    }
    let free = timeout(PATIENCE, consumer.held_up_anew(&held_up))
        .await
        .unwrap();
    assert_eq!(free, []);
    consumer.close().await.unwrap();
}
