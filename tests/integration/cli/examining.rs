//! `doctor`: what it says of now, and how far it looked.

use serde_json::Value;

use super::super::server::Server;
use super::{done, json, text};

const PORT: u16 = 18_630;

#[test]
fn backlog_over_its_quota_is_told_with_the_number_of_now() {
    let server = Server::start(PORT);
    done(
        &server,
        &["topics", "create", "t", "--backlog-size", "1KiB"],
        "",
    );
    done(
        &server,
        &["subs", "create", "t", "slow", "--from", "start"],
        "",
    );
    let http = server.http();
    let over = || {
        let found: Value = {
            let output = server.hulse(&["doctor", "--http", &http, "-j"], "");
            serde_json::from_slice(&output.stdout).unwrap()
        };
        let mut all = found.as_array().unwrap().iter();
        all.find(|one| one["code"] == "DOCTOR-15").cloned()
    };
    assert_eq!(over(), None);
    let record = "x".repeat(1_000) + "\n";
    let mut before = 0;
    // At once, although the server itself counts only every now and then.
    for _ in 0..2 {
        done(&server, &["produce", "t"], &record.repeat(4));
        let told = over().expect("it keeps far more than it may")["why"].to_string();
        assert!(told.contains("public/default/slow keeps"), "{told}");
        let percent = told.split(' ').find_map(|word| word.parse::<u64>().ok());
        assert!(percent > Some(before + 300), "{told}");
        before = percent.unwrap();
    }
    done(&server, &["consume", "t", "-s", "slow", "-e"], "");
    assert_eq!(over(), None);
}

#[test]
fn doctor_says_what_it_looked_at_and_what_not() {
    let server = Server::start(PORT + 2);
    done(&server, &["topics", "create", "a", "-p", "3"], "");
    done(&server, &["topics", "create", "b"], "");
    done(&server, &["subs", "create", "a", "s"], "");
    server.wait_well();
    let well = server.hulse(&["doctor", "--http", &server.http()], "");
    let told = text(&well.stderr);
    assert!(well.status.success(), "{told}");
    for words in [
        "all good; looked at 2 topics, 4 partitions, 1 subscription, ",
        "disk, clock and sync mode",
        "records were not read (hulse verify TOPIC",
    ] {
        assert!(told.contains(words), "{told}");
    }
    assert_eq!(
        json(&server, &["doctor", "--http", &server.http()]),
        serde_json::json!([])
    );
}

/// Two log files, and no share of a volume that others fill.
#[test]
fn servers_of_tests_keep_little_free() {
    let server = Server::start(19_800);
    let kept = server.metric("hulse_bookie_disk_reserve_bytes");
    assert_eq!(kept, 512 << 20);
}
