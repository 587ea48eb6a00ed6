//! Redrive, pause, and moves.

use std::collections::BTreeSet;
use std::time::Duration;

use hulse_sdk::{BlockedReason, Record};
use tokio::time::timeout;

use super::super::cli::{done, json, text};
use super::super::server::{Server, restarted};
use super::super::subscriptions::{PATIENCE, client, send_batch};
use super::{PORT, consumed, described, next, share, until, value};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn parked_records_are_seen_and_go_back_to_work_after_a_restart() {
    let server = Server::start(PORT);
    let client = client(&server.address());
    done(&server, &["topics", "create", "jobs", "-p", "2"], "");
    let create = ["subs", "create", "jobs", "s", "--type", "queue"];
    done(
        &server,
        &[&create[..], &["--from", "start", "--max-attempts", "2"]].concat(),
        "",
    );
    send_batch(&client, "jobs", 9).await;
    let consumer = share(&client, "jobs", "one", false).await;
    // Each third fails twice.
    for _ in 0..9 + 3 {
        let message = next(&consumer).await;
        match value(&message) % 3 {
            0 => consumer.nack(&message).await.unwrap(),
            _ => consumer.ack(&message).await.unwrap(),
        }
    }
    until(&server, "jobs", "parked", |seen| seen["dead_records"] == 3).await;
    consumer.close().await.unwrap();
    let mut server = restarted(server).await;
    // Nobody has consumed since.
    let seen = described(&server, "jobs");
    for (field, records) in [
        ("backlog_records", 3),
        ("dead_records", 3),
        ("ready_records", 0),
    ] {
        assert_eq!(seen[field], records, "{field} of {seen:#}");
    }
    assert_eq!(consumed(&server, "jobs", "queue"), Vec::<u64>::new());
    let redrive = ["subs", "redrive", "jobs", "s"];
    let count = |words: &[&str]| -> u64 {
        let told = json(&server, &[&redrive[..], words].concat());
        let rows = told.as_array().unwrap().iter();
        rows.map(|row| row["records"].as_u64().unwrap()).sum()
    };
    assert_eq!(count(&["--dry-run"]), 3);
    assert_eq!(
        described(&server, "jobs")["dead_records"],
        3,
        "it was a dry run"
    );
    let unasked = server.hulse(&redrive, "");
    assert_eq!(unasked.status.code(), Some(2), "{}", text(&unasked.stderr));
    assert_eq!(count(&["--yes"]), 3);
    assert_eq!(count(&["--yes"]), 0, "they are no dead letters any more");
    assert_eq!(consumed(&server, "jobs", "queue"), [0, 3, 6]);
    let seen = described(&server, "jobs");
    assert_eq!(
        (&seen["backlog_records"], &seen["dead_records"]),
        (&0.into(), &0.into())
    );
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn dead_letters_of_a_topic_go_back_and_not_for_ever() {
    let server = Server::start(PORT + 2);
    let client = client(&server.address());
    done(&server, &["topics", "create", "jobs", "-p", "3"], "");
    let create = [
        "subs", "create", "jobs", "s", "--type", "queue", "--from", "start",
    ];
    done(
        &server,
        &[&create[..], &["--dead-letter-topic", "graves"]].concat(),
        "",
    );
    let redrive = |words: &[&str]| {
        let told = json(
            &server,
            &[&["subs", "redrive", "jobs", "s"], words].concat(),
        );
        let row = &told.as_array().unwrap()[0];
        assert_eq!(
            (&row["partition"], &row["from"]),
            (&serde_json::Value::Null, &"public/default/graves".into())
        );
        (
            row["records"].as_u64().unwrap(),
            row["left"].as_u64().unwrap(),
        )
    };
    assert_eq!(redrive(&["--dry-run"]), (0, 0), "there is no letter yet");
    let producer = client.producer("jobs").build().await.unwrap();
    let record = Record::new("7")
        .key("k")
        .header("colour", "red")
        .partition(1);
    producer.send(record).await.unwrap().await.unwrap();
    let consumer = share(&client, "jobs", "one", false).await;
    for round in 1..=3 {
        let message = next(&consumer).await;
        assert_eq!((value(&message), message.partition), (7, 1));
        consumer.reject(&message).await.unwrap();
        until(&server, "jobs", "empty", |seen| {
            seen["backlog_records"] == 0
        })
        .await;
        assert_eq!(
            redrive(&["--dry-run", "--times", "2"]).0,
            u64::from(round < 3)
        );
        match round {
            3 => assert_eq!(redrive(&["--yes", "--times", "2"]), (0, 1), "it stays"),
            _ => assert_eq!(redrive(&["--yes", "--times", "2"]), (1, 0)),
        }
    }
    assert_eq!(redrive(&["--yes"]), (1, 0), "thrice is allowed");
    let back = next(&consumer).await;
    let headers: Vec<(String, String)> = back
        .headers
        .iter()
        .map(|it| (text(&it.key), text(it.value.as_ref().unwrap())))
        .collect();
    let wanted = [("colour", "red"), ("hulse.redrive", "3")];
    assert_eq!(
        headers,
        wanted.map(|(name, value)| (name.to_owned(), value.to_owned()))
    );
    assert_eq!(back.key.as_deref(), Some(&b"k"[..]));
    consumer.ack(&back).await.unwrap();
    consumer.close().await.unwrap();
    assert_eq!(described(&server, "jobs")["dead_letters"], 3);
    let parted = server.hulse(&["subs", "redrive", "jobs", "s", "-p", "1"], "");
    assert_eq!(parted.status.code(), Some(2), "{}", text(&parted.stderr));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pause_brings_back_what_is_held_and_lasts_over_a_restart() {
    let server = Server::start(PORT + 4);
    let client = client(&server.address());
    done(&server, &["topics", "create", "jobs"], "");
    let create = [
        "subs", "create", "jobs", "s", "--type", "queue", "--from", "start",
    ];
    done(&server, &create, "");
    send_batch(&client, "jobs", 10).await;
    let consumer = share(&client, "jobs", "one", false).await;
    let (first, second) = (next(&consumer).await, next(&consumer).await);
    let dry = server.hulse(&["subs", "pause", "jobs", "s", "--dry-run"], "");
    assert!(dry.status.success() && described(&server, "jobs")["paused_until_ms"].is_null());
    done(&server, &["subs", "pause", "jobs", "s"], "");
    let held_up = timeout(PATIENCE, consumer.held_up_anew(&[])).await.unwrap();
    assert_eq!(held_up[0].reason, BlockedReason::Paused);
    assert_eq!(held_up, consumer.held_up());
    let seen = described(&server, "jobs");
    assert_eq!(
        (&seen["state"], &seen["unacked_records"]),
        (&"paused".into(), &0.into())
    );
    // What an application works on already may be acknowledged.
    consumer.ack(&first).await.unwrap();
    drop(second);
    assert_eq!(
        consumer
            .receive(10, Duration::from_millis(300))
            .await
            .unwrap()
            .len(),
        0
    );
    let mut server = restarted(server).await;
    send_batch(&client, "jobs", 2).await;
    timeout(PATIENCE, async {
        while consumer.held_up().is_empty() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    })
    .await
    .unwrap();
    assert_eq!(
        consumer
            .receive(10, Duration::from_millis(300))
            .await
            .unwrap()
            .len(),
        0
    );
    done(&server, &["subs", "resume", "jobs", "s"], "");
    let mut offsets = BTreeSet::new();
    for _ in 0..11 {
        let message = next(&consumer).await;
        offsets.insert(message.offset.0);
        consumer.ack(&message).await.unwrap();
    }
    assert_eq!(offsets, (1..12).collect());
    assert!(consumer.held_up().is_empty());
    until(&server, "jobs", "empty", |seen| {
        seen["backlog_records"] == 0
    })
    .await;
    consumer.close().await.unwrap();
    server.stop();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn pause_for_a_time_ends_by_itself_and_is_of_shared_work_only() {
    let server = Server::start(PORT + 8);
    let client = client(&server.address());
    done(&server, &["topics", "create", "jobs", "other"], "");
    let create = ["subs", "create", "jobs", "s", "--type", "queue"];
    done(&server, &create, "");
    let consumer = share(&client, "jobs", "one", false).await;
    done(&server, &["subs", "pause", "jobs", "s", "--for", "2s"], "");
    send_batch(&client, "jobs", 1).await;
    assert_eq!(next(&consumer).await.offset.0, 0);
    consumer.close().await.unwrap();
    done(&server, &["subs", "create", "other", "e"], "");
    let refused = server.hulse(&["subs", "pause", "other", "e"], "");
    let told = text(&refused.stderr);
    assert!(
        !refused.status.success() && told.contains("only queue and keyed"),
        "{told}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn shared_cursors_go_where_they_are_sent_and_a_dry_run_moves_none() {
    for kind in ["queue", "keyed"] {
        // A name is that of one subscription, which has one type.
        let server = Server::start(PORT + 6);
        let client = client(&server.address());
        done(&server, &["topics", "create", kind], "");
        send_batch(&client, kind, 10).await;
        let create = [
            "subs", "create", kind, "s", "--type", kind, "--from", "start",
        ];
        done(&server, &create, "");
        let keyed = kind == "keyed";
        let seek = |to: &str, words: &[&str]| {
            let told = json(
                &server,
                &[&["subs", "seek", kind, "s", "--to", to], words].concat(),
            );
            told.as_array().unwrap()[0]["new_backlog_records"]
                .as_u64()
                .unwrap()
        };
        assert_eq!(consumed(&server, kind, kind), (0..10).collect::<Vec<_>>());
        assert_eq!(described(&server, kind)["backlog_records"], 0);
        assert_eq!(seek("start", &["--dry-run"]), 10);
        assert_eq!(
            described(&server, kind)["backlog_records"],
            0,
            "{kind}: a dry run"
        );
        for (to, first) in [("start", 0), ("4", 4), ("@-10m", 0), ("-3", 7), ("end", 10)] {
            assert_eq!(seek(to, &["--yes"]), 10 - first, "{kind} to {to}");
            let left: Vec<u64> = (first..10).collect();
            assert_eq!(consumed(&server, kind, kind), left, "{kind} from {to}");
        }
        // With a consumer attached: what it has is void, and it begins anew.
        seek("2", &["--yes"]);
        let consumer = share(&client, kind, "one", keyed).await;
        let before = next(&consumer).await;
        assert_eq!(before.offset.0, 2);
        seek("5", &["--yes"]);
        assert!(
            consumer.ack(&before).await.is_err(),
            "{kind}: it was made before the seek"
        );
        let mut offsets = Vec::new();
        while offsets.len() < 5 {
            // What was under way at the seek may come first, and its ack counts for nothing.
            let message = next(&consumer).await;
            if consumer.ack(&message).await.is_ok() {
                offsets.push(message.offset.0);
            }
        }
        offsets.sort_unstable();
        assert_eq!(offsets, [5, 6, 7, 8, 9]);
        seek("0", &["--yes"]);
        let skip = ["subs", "skip", kind, "s", "-n", "8"];
        json(&server, &[&skip[..], &["--dry-run"]].concat());
        json(&server, &[&skip[..], &["--yes"]].concat());
        let seen = described(&server, kind);
        assert_eq!(seen["backlog_records"], 2, "{seen:#}");
        consumer.close().await.unwrap();
        assert_eq!(consumed(&server, kind, kind), [8, 9]);
    }
}
