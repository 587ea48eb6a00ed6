//! What people stumbled over in their first hours, each as they met it.

use std::net::TcpListener;
use std::time::Duration;

use super::super::report::report;
use super::super::server::{HULSE, Server, run_within};
use super::{alone, done, json, text};

const PORT: u16 = 17_640;

#[test]
fn trim_beyond_the_end_is_a_usage_error_that_removes_nothing() {
    let server = Server::start(PORT);
    done(&server, &["topics", "create", "t", "-p", "2"], "");
    done(&server, &["produce", "t", "-p", "1"], "a\nb\n");
    let refused = server.hulse(&["topics", "trim", "t", "--before", "9", "--yes"], "");
    let told = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(2), "{told}");
    for words in [
        "partition 0 ends at 0, 9 was named",
        "partition 1 ends at 2, 9 was named",
        "--before end",
    ] {
        assert!(told.contains(words), "{told}");
    }
    assert!(refused.stdout.is_empty(), "{}", text(&refused.stdout));
    // The log says what went, of which topic, and why.
    done(
        &server,
        &["topics", "trim", "t", "-p", "1", "--before", "1", "--yes"],
        "",
    );
    let log = server.log();
    let line = log.lines().find(|line| line.contains("log is trimmed"));
    let line = line.unwrap_or_else(|| panic!("{log}"));
    for words in ["public/default/t/1", "log_start=1", "a request"] {
        assert!(line.contains(words), "{line}");
    }
}

#[test]
fn profile_with_a_wrong_server_is_named_and_can_be_left() {
    let folder = tempfile::tempdir().unwrap();
    let run = |words: &[&str]| alone(folder.path(), words, &[]);
    let made = run(&["profile", "create", "wrong", "--server", "127.0.0.1:17659"]);
    assert!(made.status.success(), "{}", text(&made.stderr));
    let refused = run(&["topics", "list"]);
    let told = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(6), "{told}");
    for words in [
        "127.0.0.1:17659, of profile wrong",
        "hulse profile use -",
        "hulse profile edit",
        "--server HOST:PORT",
        "hulse profile delete wrong",
    ] {
        assert!(told.contains(words), "{told}");
    }
    // A server that was named on the command line is nobody's profile.
    let named = run(&["topics", "list", "--server", "127.0.0.1:17659"]);
    assert!(!text(&named.stderr).contains("of profile"));
    // There was none before it, and back again.
    for (prompt, words) in [
        ("", "no profile is in force"),
        ("(hulse:wrong) ", "in force"),
    ] {
        let left = run(&["profile", "use", "-"]);
        assert!(left.status.success(), "{}", text(&left.stderr));
        assert!(text(&left.stderr).contains(words), "{}", text(&left.stderr));
        assert_eq!(text(&run(&["profile", "prompt"]).stdout), prompt);
    }
}

#[test]
fn every_address_that_is_taken_is_told_at_one_start() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data").display().to_string();
    let at = |port: u16| format!("127.0.0.1:{port}");
    let ports = [PORT + 2, PORT + 3, PORT + 4];
    let _taken = ports.map(|port| TcpListener::bind(at(port)).unwrap());
    let [grpc, http, kafka] = ports.map(at);
    let words = [
        "standalone",
        "--data",
        &data,
        "--grpc",
        &grpc,
        "--http",
        &http,
        "--kafka",
        &kafka,
    ];
    let refused = run_within(Duration::from_secs(120), &words);
    let told = text(&refused.stderr);
    assert_eq!(refused.status.code(), Some(5), "{told}");
    for port in ports {
        assert!(told.contains(&format!("{}: ", at(port))), "{told}");
        assert!(told.contains(&at(port + 100)), "{told}");
    }
    assert!(
        told.contains("listen.grpc, listen.http, listen.kafka"),
        "{told}"
    );
}

#[test]
fn peek_tells_a_deleted_key_from_a_missing_one() {
    let server = Server::start(PORT + 6);
    let format = ["produce", "t", "-f", "%k\\t%v{json}\\n"];
    done(&server, &format, "gone\tnull\n");
    done(&server, &["produce", "t"], "no key\n");
    let told = done(&server, &["topics", "peek", "t"], "");
    let rows: Vec<Vec<&str>> = told
        .lines()
        .skip(1)
        .map(|line| line.split_whitespace().skip(3).collect())
        .collect();
    assert_eq!(
        rows,
        [["gone", "(tombstone)"].to_vec(), vec!["-", "no", "key"]],
        "{told}"
    );
}

#[test]
fn delivery_mode_of_a_producer_goes_by_its_name() {
    let server = Server::start(PORT + 8);
    for (mode, words) in [("at_least_once", "stored in"), ("at_most_once", "sent to")] {
        let sent = server.hulse(&["produce", "t", "--delivery", mode], "a\n");
        assert!(sent.status.success(), "{}", text(&sent.stderr));
        assert!(
            text(&sent.stderr).contains(words),
            "{mode}: {}",
            text(&sent.stderr)
        );
    }
    for wrong in [
        &["produce", "t", "--delivery", "exactly_once"][..],
        &[
            "produce",
            "t",
            "--delivery",
            "at_least_once",
            "--acks",
            "none",
        ],
    ] {
        assert_eq!(server.hulse(wrong, "").status.code(), Some(2), "{wrong:?}");
    }
    assert_eq!(
        json(&server, &["topics", "describe", "t"])["partition"][0]["high_watermark"],
        2
    );
}

#[test]
fn hold_of_a_subscription_is_changed_later() {
    let server = Server::start(PORT + 10);
    done(&server, &["topics", "create", "t"], "");
    done(&server, &["subs", "create", "t", "s"], "");
    let hold = || json(&server, &["subs", "describe", "t", "s"])["hold"].clone();
    assert_eq!(hold(), true);
    for (flag, held) in [("--no-hold", false), ("--hold", true)] {
        done(&server, &["subs", "update", "t", "s", flag], "");
        assert_eq!(hold(), held, "{flag}");
    }
    for wrong in [
        &["subs", "update", "t", "s"][..],
        &["subs", "update", "t", "s", "--hold", "--no-hold"],
    ] {
        assert_eq!(server.hulse(wrong, "").status.code(), Some(2), "{wrong:?}");
    }
    let gone = server.hulse(&["subs", "update", "t", "gone", "--hold"], "");
    assert_eq!(gone.status.code(), Some(3), "{}", text(&gone.stderr));
}

#[test]
fn page_of_copy_says_what_its_other_topic_is_for() {
    let page = std::process::Command::new(HULSE)
        .args(["topics", "copy", "--help"])
        .output();
    let page = text(&page.unwrap().stdout);
    assert!(page.contains("hulse topics delete TARGET.copied"), "{page}");
}

/// A transactional producer with librdkafka.
const IN_VAIN: &str = "
import sys, time
from confluent_kafka import KafkaException, Producer
servers = sys.argv[1]
began = time.monotonic()
try:
    Producer({'bootstrap.servers': servers, 'transactional.id': 'till', 'log_level': 0}).init_transactions(60)
except KafkaException as error:
    print(error.args[0].code(), error.args[0].fatal(), time.monotonic() - began < 20)
";

#[test]
fn kafka_clients_that_ask_in_vain_end_at_once_and_stand_in_the_log() {
    let Some(python) = std::env::var_os("HULSE_TEST_PYTHON") else {
        report(
            "NOT RUN: librdkafka's transactions: HULSE_TEST_PYTHON is not set, tests/run sets it",
        );
        return;
    };
    let kafka = format!("127.0.0.1:{}", PORT + 14);
    let server = Server::start_with(PORT + 12, &[("HULSE_LISTEN__KAFKA", &kafka)]);
    done(&server, &["topics", "create", "t"], "");
    let ran = std::process::Command::new(python)
        .args(["-c", IN_VAIN, &kafka])
        .output()
        .unwrap();
    // TRANSACTIONAL_ID_AUTHORIZATION_FAILED, for good.
    assert_eq!(text(&ran.stdout), "53 True True\n", "{}", text(&ran.stderr));
    let log = server.log();
    let told = log
        .lines()
        .find(|line| line.contains("till") && line.contains("transactions are not served yet"));
    assert!(told.is_some(), "{log}");
}
