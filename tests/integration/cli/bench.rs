//! `bench`: a judgement on the user's own records, and what a measurement does to topics.

use std::time::Duration;

use super::super::server::{Server, run_within};
use super::{PORT, done, text};

const GIVES_UP_PORT: u16 = 18_700;

#[test]
fn codecs_are_compared_on_the_users_records() {
    let server = Server::start(PORT + 80);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("orders.jsonl");
    let orders = done(
        &server,
        &["generate", "demo-data", "-n", "4000", "--dry-run"],
        "",
    );
    std::fs::write(&file, orders).unwrap();
    let file = file.display().to_string();
    let words = [
        "bench",
        "produce",
        "--compression",
        "all",
        &file,
        "--duration",
        "600ms",
        "-j",
    ];
    let told = done(&server, &words, "");
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let codecs = told["codec"].as_array().unwrap();
    let names: Vec<&str> = codecs
        .iter()
        .map(|codec| codec["codec"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["none", "lz4", "zstd", "gzip", "snappy"]);
    for codec in codecs {
        let ratio = codec["ratio"].as_f64().unwrap();
        match codec["codec"].as_str() {
            Some("none") => assert!(ratio < 1.0, "{codec}"),
            _ => assert!(ratio > 2.0, "{codec}"),
        }
        assert!(codec["records_per_second"].as_f64() > Some(0.0), "{codec}");
        // What hulse produce would refuse is told as such.
        let name = codec["codec"].as_str().unwrap();
        let words = ["produce", "taken", "--compression", name];
        let taken = server.hulse(&words, "a\n").status.success();
        assert_eq!(codec["ours"], taken, "{codec}");
    }
    // The middle round of each, and the topic that was made for it is gone.
    for codec in codecs {
        assert!(codec["scatter"].as_f64() >= Some(0.0), "{codec}");
    }
    assert_eq!(
        done(&server, &["topics", "list", "--output", "name"], ""),
        "public/default/taken\n"
    );
    assert_eq!(told["sample_records"], 4000);
    let take = told["take"].as_str().unwrap();
    assert!(["none", "lz4", "zstd"].contains(&take), "{take}");
    let limit = told["limit"].as_str().unwrap();
    assert!(
        ["client", "bytes", "batches", "unknown"].contains(&limit),
        "{limit}"
    );
    let without = server.hulse(&["bench", "produce", "--compression", "all"], "");
    assert_eq!(without.status.code(), Some(2), "{}", text(&without.stderr));
}

#[test]
fn measurement_asks_before_it_adds_to_a_topic_with_records_and_says_what_it_leaves() {
    let server = Server::start(PORT + 236);
    done(&server, &["produce", "mine"], "a\nb\n");
    done(&server, &["topics", "create", "empty"], "");
    let load = ["--duration", "200ms", "--rate", "50"];
    for kind in ["produce", "latency"] {
        let words = [&["bench", kind, "--topic", "mine"][..], &load].concat();
        let refused = server.hulse(&words, "");
        let told = text(&refused.stderr);
        assert_eq!(refused.status.code(), Some(2), "{told}");
        for words in ["about 10 records", "mine, which holds 2 records", "--yes"] {
            assert!(told.contains(words), "{told}");
        }
        assert!(!told.contains("--dry-run"), "{told}");
    }
    let end = || {
        super::json(&server, &["topics", "describe", "mine"])["partition"][0]["high_watermark"]
            .clone()
    };
    assert_eq!(end(), 2);
    for (topic, made) in [("mine", false), ("empty", false), ("fresh", true)] {
        let words = [&["bench", "produce", "--topic", topic, "--yes"][..], &load].concat();
        let ran = server.hulse(&words, "");
        let told = text(&ran.stderr);
        assert!(ran.status.success(), "{topic}: {told}");
        let said = told.contains(&format!("hulse topics delete {topic}"));
        assert_eq!(said, made, "{topic}: {told}");
    }
    assert!(end().as_u64() > Some(2));
}

/// Of a server that takes no records any more, be it for want of room.
#[test]
fn measurement_gives_up_what_is_not_stored_within_its_timeout() {
    let mut server = Server::start(GIVES_UP_PORT);
    done(&server, &["topics", "create", "lost"], "");
    let address = server.address();
    let measuring = std::thread::spawn(move || {
        let words = ["bench", "produce", "--topic", "lost", "--duration", "3s"];
        let server = ["--server", &address, "--timeout", "2s"];
        run_within(Duration::from_secs(40), &[&words[..], &server].concat())
    });
    std::thread::sleep(Duration::from_secs(1));
    server.kill();
    let told = measuring.join().unwrap();
    let code = told.status.code();
    assert!(code.is_some_and(|code| code > 0), "{}", text(&told.stderr));
}
