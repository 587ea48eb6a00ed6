//! `topics copy`: fewer and more partitions, cut short and taken up again.

use std::collections::BTreeMap;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use super::super::server::{HULSE, Server};
use super::{PORT, done, json, text};

/// A copy copies something by then.
const COPIES_WITHIN: Duration = Duration::from_secs(120);

/// Every record of a topic without its place, by key, in the order in which it stands there.
fn by_key(server: &Server, topic: &str) -> BTreeMap<String, Vec<Value>> {
    let told = done(
        server,
        &["consume", topic, "-o", "start", "-e", "--output", "jsonl"],
        "",
    );
    let mut found: BTreeMap<String, Vec<Value>> = BTreeMap::new();
    for line in told.lines() {
        let mut record: Value = serde_json::from_str(line).unwrap();
        for place in ["topic", "partition", "offset"] {
            record.as_object_mut().unwrap().remove(place);
        }
        found
            .entry(record["key"].to_string())
            .or_default()
            .push(record);
    }
    found
}

/// A topic of some thousand records with keys, times of their own, and headers.
fn filled(server: &Server, partitions: &str, records: u32) {
    done(
        server,
        &["topics", "create", "source", "-p", partitions],
        "",
    );
    let lines: Vec<String> = (0..records)
        .map(|number| {
            format!(
                "k{}\t{}\tn={number},m=x\tvalue {number}",
                number % 97,
                1_000 + number
            )
        })
        .collect();
    let input = lines.join("\n") + "\n";
    done(
        server,
        &["produce", "source", "-f", "%k\\t%T\\t%h\\t%v\\n"],
        &input,
    );
    // Records without a key, a value or text are copied as well.
    done(server, &["produce", "source"], "no key\n");
    done(
        server,
        &["produce", "source", "-f", "%k\\t%v{json}\\n"],
        "tombstone\tnull\n",
    );
}

#[test]
fn copy_into_other_partitions_keeps_keys_headers_times_and_order_per_key() {
    let server = Server::start(PORT + 60);
    filled(&server, "5", 4_000);
    let original = by_key(&server, "source");
    for (target, partitions) in [("narrow", 2), ("wide", 9), ("same", 5)] {
        let told = json(
            &server,
            &[
                "topics",
                "copy",
                "source",
                target,
                "-p",
                &partitions.to_string(),
            ],
        );
        assert_eq!(told["records"], 4_002);
        assert_eq!(told["target_partitions"], partitions);
        assert_eq!(by_key(&server, target), original, "{target}");
    }
    // Again: nothing is copied twice; what came since is.
    let again = json(&server, &["topics", "copy", "source", "narrow"]);
    assert_eq!(
        (again["records"].as_u64(), again["resumed"].as_bool()),
        (Some(0), Some(true))
    );
    done(
        &server,
        &["produce", "source", "-f", "%k\\t%v\\n"],
        "k1\tlater\n",
    );
    let more = json(&server, &["topics", "copy", "source", "narrow"]);
    assert_eq!(more["records"], 1);
    assert_eq!(by_key(&server, "narrow"), by_key(&server, "source"));
}

/// How keys are spread was decided when the copy began.
#[test]
fn copy_goes_on_when_the_source_has_grown_to_as_many_partitions_as_the_target() {
    let server = Server::start(PORT + 66);
    filled(&server, "2", 400);
    for (target, partitions) in [("four", "4"), ("two", "2")] {
        json(
            &server,
            &["topics", "copy", "source", target, "-p", partitions],
        );
    }
    done(&server, &["topics", "partitions", "source", "4"], "");
    let more: String = (0..200)
        .map(|number| format!("k{}\tlater {number}\n", number % 97))
        .collect();
    done(&server, &["produce", "source", "-f", "%k\\t%v\\n"], &more);
    for target in ["four", "two"] {
        let told = json(&server, &["topics", "copy", "source", target]);
        assert_eq!(told["records"], 200, "{told}");
        let again = json(&server, &["topics", "copy", "source", target]);
        assert_eq!(again["records"], 0, "{again}");
        let (copied, original) = (by_key(&server, target), by_key(&server, "source"));
        for (key, records) in &original {
            assert_eq!(copied[key].len(), records.len(), "{target}: {key}");
        }
    }
}

/// Records of the target, as far as there is one.
fn copied(server: &Server) -> u64 {
    let words = ["topics", "describe", "target", "-j"];
    let told = server.hulse(&words, "").stdout;
    let told = serde_json::from_slice::<serde_json::Value>(&told).unwrap_or_default();
    told["records"].as_u64().unwrap_or(0)
}

#[test]
fn copy_that_was_killed_goes_on_where_it_stopped() {
    let server = Server::start(PORT + 62);
    filled(&server, "3", 6_000);
    let mut before = 0;
    for round in 0..6 {
        let mut child = Command::new(HULSE)
            .args([
                "--server",
                &server.address(),
                "topics",
                "copy",
                "source",
                "target",
                "-p",
                "4",
            ])
            .args(["--rate", "4000"])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        // Something more is copied, so that there is something to go on behind.
        let began = Instant::now();
        while copied(&server) <= before && child.try_wait().unwrap().is_none() {
            assert!(began.elapsed() < COPIES_WITHIN, "nothing is copied");
        }
        before = copied(&server);
        std::thread::sleep(Duration::from_millis(40 * round));
        // It may be done by now.
        let _ = child.kill();
        child.wait().unwrap();
    }
    let told = json(&server, &["topics", "copy", "source", "target", "-p", "4"]);
    assert_eq!(told["resumed"], true, "{told}");
    assert!(told["records"].as_u64() < Some(6_002), "{told}");
    assert_eq!(by_key(&server, "target"), by_key(&server, "source"));
}

#[test]
fn copy_into_what_somebody_else_wrote_is_refused() {
    let server = Server::start(PORT + 64);
    filled(&server, "2", 100);
    done(&server, &["produce", "taken"], "mine\n");
    let refused = server.hulse(&["topics", "copy", "source", "taken"], "");
    assert_eq!(refused.status.code(), Some(5), "{}", text(&refused.stderr));
    done(&server, &["topics", "copy", "source", "target"], "");
    done(&server, &["produce", "target"], "mine\n");
    let refused = server.hulse(&["topics", "copy", "source", "target"], "");
    assert_eq!(refused.status.code(), Some(5), "{}", text(&refused.stderr));
    assert!(
        text(&refused.stderr).contains("somebody else"),
        "{}",
        text(&refused.stderr)
    );
    let other = server.hulse(&["topics", "copy", "source", "target", "-p", "7"], "");
    assert_eq!(other.status.code(), Some(5), "{}", text(&other.stderr));
    let dry = json(
        &server,
        &["topics", "copy", "source", "nowhere", "--dry-run"],
    );
    assert_eq!(
        (dry["dry_run"].as_bool(), dry["records"].as_u64()),
        (Some(true), Some(102))
    );
    let gone = server.hulse(&["topics", "describe", "nowhere"], "");
    assert_eq!(gone.status.code(), Some(3));
}
