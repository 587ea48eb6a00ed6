//! What surprised people: commands that took more than they showed, and words that were not heeded.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use serde_json::Value;

use super::super::server::{SLOW_DISK, Server, log_files, run, run_within};
use super::{PORT, done, json, text};

/// The standard error of a command that must end with this code.
fn refused(server: &Server, words: &[&str], code: i32) -> String {
    let output = server.hulse(words, "");
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {told}");
    told
}

/// Standard error of a command that must succeed.
fn told(server: &Server, words: &[&str]) -> String {
    refused(server, words, 0)
}

fn lines(count: u32) -> String {
    (0..count).map(|number| format!("{number}\n")).collect()
}

fn backlog(server: &Server, topic: &str, subscription: &str) -> Value {
    json(server, &["subs", "describe", topic, subscription])["backlog_records"].clone()
}

#[test]
fn at_most_once_takes_what_it_prints_and_not_a_record_more() {
    let server = Server::start(PORT + 52);
    done(&server, &["topics", "create", "t"], "");
    done(
        &server,
        &["subs", "create", "t", "s", "--from", "start"],
        "",
    );
    done(&server, &["produce", "t"], &lines(1_000));
    let mode = ["--delivery", "at_most_once"];
    let no_ack = ["consume", "t", "-s", "s", "-n", "1", "--no-ack"];
    let why = refused(&server, &[&no_ack[..], &mode].concat(), 2);
    for words in ["--no-ack", "at_most_once", "HULSE-9001", "next:"] {
        assert!(why.contains(words), "{why}");
    }
    assert_eq!(backlog(&server, "t", "s"), 1_000);
    let consume = |count: &str| {
        let words = ["consume", "t", "-s", "s", "-n", count];
        done(&server, &[&words[..], &mode].concat(), "")
    };
    assert_eq!(consume("1"), "0\n");
    assert_eq!(backlog(&server, "t", "s"), 999);
    assert_eq!(consume("700").lines().count(), 700);
    assert_eq!(backlog(&server, "t", "s"), 299);
    let rest = done(
        &server,
        &[&["consume", "t", "-s", "s", "-e"][..], &mode].concat(),
        "",
    );
    assert_eq!(rest, lines(1_000).split_at(lines(701).len()).1);
    assert_eq!(backlog(&server, "t", "s"), 0);
}

#[test]
fn subscription_that_consume_makes_is_told_and_a_position_that_is_not_heeded_too() {
    let server = Server::start(PORT + 54);
    done(&server, &["produce", "t"], &lines(3));
    let made = told(&server, &["consume", "t", "-s", "typo", "-n", "1"]);
    for words in [
        "subscription typo of t is created",
        "at the start",
        "hulse subs delete t typo",
    ] {
        assert!(made.contains(words), "{made}");
    }
    let again = told(&server, &["consume", "t", "-s", "typo", "-n", "1"]);
    assert!(!again.contains("created"), "{again}");
    let ignored = told(
        &server,
        &["consume", "t", "-s", "typo", "-n", "1", "-o", "start"],
    );
    assert!(
        ignored.contains("-o is not heeded") && ignored.contains("hulse subs seek t typo"),
        "{ignored}"
    );
}

#[test]
fn subscription_that_has_outlived_its_topic_is_shown_and_deleted() {
    let server = Server::start(PORT + 56);
    let outlive = || {
        done(&server, &["topics", "create", "a/b/t"], "");
        done(&server, &["subs", "create", "a/b/t", "s"], "");
        done(&server, &["topics", "delete", "a/b/t", "--yes"], "");
    };
    // Whether there is no such topic now, or another one of its name.
    for anew in [false, true] {
        outlive();
        if anew {
            done(&server, &["topics", "create", "a/b/t"], "");
        }
        let listed = json(&server, &["subs", "list"]);
        assert_eq!(listed[0]["state"], "outlived its topics", "{listed}");
        let shown = json(&server, &["subs", "describe", "a/b/t", "s"]);
        assert_eq!(shown["topics"], serde_json::json!([]), "{shown}");
        let dry = told(&server, &["subs", "delete", "a/b/t", "s", "--dry-run"]);
        assert!(dry.contains("outlived"), "{dry}");
        done(&server, &["subs", "delete", "a/b/t", "s", "--yes"], "");
        assert_eq!(json(&server, &["subs", "list"]), serde_json::json!([]));
    }
    let none = refused(&server, &["subs", "delete", "a/b/t", "s", "--yes"], 3);
    assert!(none.contains("HULSE-1204"), "{none}");
}

#[test]
fn seek_that_fails_shows_no_numbers_and_is_a_usage_error() {
    let server = Server::start(PORT + 68);
    done(&server, &["produce", "t"], &lines(3));
    done(
        &server,
        &["subs", "create", "t", "s", "--from", "start"],
        "",
    );
    let words = ["subs", "seek", "t", "s", "--to", "99", "--dry-run"];
    let output = server.hulse(&words, "");
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
    let table = text(&output.stdout);
    let row: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(row[..6], ["0", "-", "-", "-", "-", "offset"], "{table}");
    assert!(!text(&output.stderr).contains("nothing changed"));
    let output = server.hulse(&[&words[..], &["-j"]].concat(), "");
    let rows: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(rows[0]["old_base"], Value::Null, "{rows}");
}

#[test]
fn copy_into_a_target_that_was_deleted_begins_anew() {
    let server = Server::start(PORT + 74);
    done(&server, &["produce", "source"], &lines(20));
    let copy = || json(&server, &["topics", "copy", "source", "target"]);
    assert_eq!(copy()["records"], 20);
    for anew in [false, true] {
        done(&server, &["topics", "delete", "target", "--yes"], "");
        if anew {
            done(&server, &["topics", "create", "target"], "");
        }
        let dry = told(
            &server,
            &["topics", "copy", "source", "target", "--dry-run"],
        );
        assert!(dry.contains("was deleted since"), "{dry}");
        let copied = copy();
        assert_eq!(
            (copied["records"].as_u64(), copied["resumed"].as_bool()),
            (Some(20), Some(false))
        );
        let found = done(&server, &["consume", "target", "-o", "start", "-e"], "");
        assert_eq!(found, lines(20));
        assert_eq!(copy()["records"], 0);
    }
}

#[test]
fn address_that_does_not_speak_grpc_is_told_at_once() {
    let kafka = format!("127.0.0.1:{}", PORT + 78);
    let server = Server::start_with(PORT + 76, &[("HULSE_LISTEN__KAFKA", &kafka)]);
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = listener.local_addr().unwrap().to_string();
    for (words, why) in [
        (&["doctor", "--server", &kafka][..], "Kafka's protocol"),
        (&["topics", "list", "--server", &kafka], "Kafka's protocol"),
        (&["doctor", "--server", &silent], "says nothing"),
    ] {
        let began = Instant::now();
        let output = run_within(Duration::from_secs(60), words);
        let told = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(6), "{words:?}: {told}");
        assert!(told.contains(why), "{words:?}: {told}");
        // Of half a minute that a server has by default.
        assert!(began.elapsed() < Duration::from_secs(25), "{words:?}");
    }
    // An address of metrics that was named and does not answer is no small thing; one that was guessed is a note.
    for wrong in [format!("127.0.0.1:{}", PORT + 79), server.address()] {
        let output = server.hulse(&["doctor", "--http", &wrong, "-j"], "");
        assert_eq!(output.status.code(), Some(6), "{wrong}");
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(found[0]["code"], "DOCTOR-16", "{found}");
    }
    let guessed = run(&["doctor", "--server", &server.address()], "");
    assert_eq!(guessed.status.code(), Some(0));
}

#[test]
fn backlog_policy_without_a_limit_is_refused() {
    let server = Server::start(PORT + 82);
    let why = refused(
        &server,
        &["topics", "create", "t", "--backlog-policy", "evict"],
        2,
    );
    assert!(why.contains("--backlog-size"), "{why}");
    refused(&server, &["topics", "describe", "t"], 3);
    done(&server, &["topics", "create", "t"], "");
    let policy = ["topics", "update", "t", "--backlog-policy", "reject"];
    refused(&server, &policy, 2);
    let limited = [&policy[..], &["--backlog-size", "1MiB"]].concat();
    done(&server, &limited, "");
    done(&server, &policy, "");
    done(
        &server,
        &["topics", "update", "t", "--backlog-size", "off"],
        "",
    );
    // The cluster's limit is one as well.
    let limited = [("HULSE_BACKLOG_QUOTA__SIZE", "1GiB")];
    let server = Server::start_with(PORT + 84, &limited);
    done(
        &server,
        &["topics", "create", "t", "--backlog-policy", "evict"],
        "",
    );
}

#[test]
fn trim_delete_and_update_say_whose_records_go() {
    let server = Server::start(PORT + 86);
    done(&server, &["produce", "t"], &lines(100));
    for (name, count) in [("ahead", "90"), ("behind", "10")] {
        done(&server, &["consume", "t", "-s", name, "-n", count], "");
    }
    let trim = told(
        &server,
        &["topics", "trim", "t", "--before", "50", "--dry-run"],
    );
    assert!(
        trim.contains("not acknowledged of these yet: public/default/behind 40 "),
        "{trim}"
    );
    let trim = told(
        &server,
        &["topics", "trim", "t", "--before", "5", "--dry-run"],
    );
    assert!(trim.contains("have acknowledged these"), "{trim}");
    let delete = told(&server, &["topics", "delete", "t", "--dry-run"]);
    assert!(
        delete.contains("public/default/ahead 10, public/default/behind 90 "),
        "{delete}"
    );
    // Retention lets nothing go that a subscription holds, and what another does not.
    let short = ["topics", "update", "t", "--retention-size", "0B"];
    let dry = told(&server, &[&short[..], &["--dry-run"]].concat());
    assert!(
        dry.contains("up to 10 records of t") && dry.contains("have acknowledged"),
        "{dry}"
    );
    let loose = ["subs", "update", "t", "behind", "--no-hold", "--yes"];
    done(&server, &loose, "");
    let dry = told(&server, &[&short[..], &["--dry-run"]].concat());
    assert!(
        dry.contains("up to 90 records of t") && dry.contains("public/default/behind 80"),
        "{dry}"
    );
    let asked = refused(&server, &short, 2);
    assert!(asked.contains("HULSE-9005"), "{asked}");
    done(&server, &["subs", "update", "t", "behind", "--hold"], "");
    let evict = ["topics", "update", "t", "--backlog-size", "0B"];
    let evict = [&evict[..], &["--backlog-policy", "evict"]].concat();
    let dry = told(&server, &[&evict[..], &["--dry-run"]].concat());
    assert!(
        dry.contains("public/default/ahead 10, public/default/behind 90 "),
        "{dry}"
    );
    refused(&server, &evict, 2);
    let before = json(&server, &["topics", "describe", "t"]);
    assert_eq!(before["backlog_size"], "off", "{before}");
    // What lets nothing go needs nobody's word.
    done(
        &server,
        &["topics", "update", "t", "--retention", "30d"],
        "",
    );
    done(&server, &[&evict[..], &["--yes"]].concat(), "");
}

/// Whether the doctor ends with this code; its findings, but for a slow disk.
fn doctor(server: &Server, code: i32) -> (Value, String) {
    let words = ["doctor", "--http", &server.http(), "-j"];
    let output = server.hulse(&words, "");
    let told = text(&output.stdout);
    let mut found: Vec<Value> = serde_json::from_str(&told).unwrap();
    let all = found.len();
    // On a busy machine, and it decides the code where nothing worse is found.
    found.retain(|finding| finding["code"] != SLOW_DISK);
    let slow = all > found.len() && code == 0;
    assert!(slow || output.status.code() == Some(code), "{told}");
    (Value::Array(found), text(&output.stderr))
}

fn finding<'a>(found: &'a Value, code: &str) -> Option<&'a Value> {
    let mut found = found.as_array().unwrap().iter();
    found.find(|finding| finding["code"] == code)
}

#[test]
fn damage_in_a_sealed_file_is_named_once_somebody_has_looked_and_until_then_that_nobody_has() {
    let settings = [
        ("HULSE_BOOKIE__LOG_FILE_SIZE", "16MiB"),
        ("HULSE_BOOKIE__DISK_RESERVE", "1MiB"),
        ("HULSE_BROKER__LEDGER_ROLL_SIZE", "4MiB"),
    ];
    let mut server = Server::start_with(PORT + 88, &settings);
    let records: String = (0..24_000)
        .map(|number| format!("{number:0>1000}\n"))
        .collect();
    done(&server, &["produce", "t"], &records);
    done(&server, &["produce", "sound"], "a\n");
    assert!(server.stop().success());
    flip(&server, b"00000000000000000777");
    server.restart();
    let (found, words) = doctor(&server, 0);
    assert!(finding(&found, "DOCTOR-17").is_some(), "{found}");
    assert!(words.contains("as far as anybody has looked"), "{words}");
    let read = ["consume", "t", "-o", "start", "-e"];
    assert_eq!(server.hulse(&read, "").status.code(), Some(7));
    check_damage(&server);
    // What was found is not forgotten by a stop; what nobody reads is found by scrub, sooner or later.
    assert!(server.stop().success());
    flip(&server, b"00000000000000007777");
    server.set(("HULSE_BOOKIE__SCRUB_INTERVAL", "1m"));
    server.restart();
    check_damage(&server);
    let began = Instant::now();
    let second = loop {
        let described = json(&server, &["topics", "describe", "t"]);
        if let Some(second) = described["partition"][0]["damage"].get(1) {
            break second.clone();
        }
        assert!(began.elapsed() < Duration::from_secs(120), "{described}");
        std::thread::sleep(Duration::from_millis(500));
    };
    let bound = |name: &str| second[name].as_u64().unwrap();
    let found = bound("first_offset")..bound("end_offset");
    assert!(found.contains(&7_777), "{second}");
}

/// Flips a bit of this record in the first log file of a server that was stopped.
fn flip(server: &Server, record: &[u8]) {
    let file = log_files(&server.data()).remove(0);
    let mut bytes = std::fs::read(&file).unwrap();
    let at = bytes
        .windows(record.len())
        .position(|window| window == record);
    bytes[at.unwrap()] ^= 1;
    std::fs::write(&file, bytes).unwrap();
}

/// The doctor and the topic's description name what was damaged.
fn check_damage(server: &Server) {
    let (found, _) = doctor(server, 7);
    let named = finding(&found, "DOCTOR-10").unwrap_or_else(|| panic!("{found}"));
    let words = named.to_string();
    for part in [
        "public/default/t, partition 0, offsets",
        "log file",
        "ledger",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
    let described = json(server, &["topics", "describe", "t"]);
    let damage = &described["partition"][0]["damage"][0];
    let bound = |name: &str| {
        damage[name]
            .as_u64()
            .unwrap_or_else(|| panic!("{described}"))
    };
    let (first, end) = (bound("first_offset"), bound("end_offset"));
    assert!((first..end).contains(&777), "{described}");
    assert!(end - first < 20_000, "{described}");
    let shown = done(server, &["topics", "describe", "t"], "");
    assert!(shown.contains("damaged (ledger"), "{shown}");
    // Behind it all is well, and other topics never knew.
    let next = named["next"].as_str().unwrap();
    assert!(next.contains(&format!("-o {end}")), "{next}");
    let behind = format!("{end}:{}", end + 1);
    let read = done(server, &["consume", "t", "-o", &behind, "-e"], "");
    assert_eq!(read.trim_start_matches('0').trim_end(), end.to_string());
    let sound = json(server, &["topics", "describe", "sound"]);
    assert_eq!(sound["partition"][0]["damage"], serde_json::json!([]));
}

#[test]
fn evictions_are_told_by_the_doctor_also_after_a_restart() {
    let mut server = Server::start(PORT + 12);
    done(&server, &["topics", "create", "t"], "");
    done(&server, &["subs", "create", "t", "slow"], "");
    done(&server, &["produce", "t"], &lines(1_000));
    let evict = ["topics", "update", "t", "--backlog-size", "1KiB", "--yes"];
    done(
        &server,
        &[&evict[..], &["--backlog-policy", "evict"]].concat(),
        "",
    );
    let began = Instant::now();
    let told = |server: &Server| {
        let said = server.doctor();
        // Until the next look at backlogs it stands there as it was before.
        said.contains("DOCTOR-18") && !said.contains("DOCTOR-15")
    };
    while !told(&server) {
        assert!(
            began.elapsed() < Duration::from_secs(120),
            "{}",
            server.doctor()
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    let (found, _) = doctor(&server, 0);
    let first = finding(&found, "DOCTOR-18").unwrap().clone();
    let words = first.to_string();
    for part in [
        "public/default/slow of public/default/t",
        "since it was made",
    ] {
        assert!(words.contains(part), "{part}: {words}");
    }
    server.kill();
    server.restart();
    let (found, _) = doctor(&server, 0);
    assert_eq!(finding(&found, "DOCTOR-18"), Some(&first));
    done(&server, &["topics", "delete", "t", "--yes"], "");
    let (found, _) = doctor(&server, 0);
    assert!(finding(&found, "DOCTOR-19").is_some(), "{found}");
}

#[test]
fn topic_as_pulsars_tools_name_it_is_told_what_it_is_called_here() {
    let server = Server::start(18_652);
    done(&server, &["produce", "t"], "a\n");
    for words in [
        &["consume", "persistent://public/default/t", "-n", "1"][..],
        &["topics", "describe", "persistent://public/default/t"],
        &["subs", "list", "persistent://public/default/t"],
    ] {
        let why = refused(&server, words, 2);
        assert!(why.contains("write public/default/t"), "{words:?}: {why}");
    }
    let why = refused(&server, &["produce", "non-persistent://a/b/c"], 2);
    assert!(why.contains("every topic is stored here"), "{why}");
}
