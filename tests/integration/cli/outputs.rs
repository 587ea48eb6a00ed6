//! Forms of output and exit codes.

use std::collections::BTreeSet;

use super::super::server::{Server, run};
use super::help::pages;
use super::{PORT, alone, done, json, text};

/// An invocation of each command that answers with a result. Text commands stand in [`TEXT`].
const INVOCATIONS: &[&str] = &[
    "topics create made -p 2",
    "topics list",
    "topics describe orders",
    "topics partitions orders 3",
    "topics peek orders -n 2",
    "topics update orders --retention 30d",
    "topics trim orders --before start --yes",
    "topics copy orders copied",
    "produce orders --file lines",
    "consume orders -o start -n 1",
    "ledgers list",
    "bench produce --duration 200ms",
    "bench consume",
    "bench latency --rate 200 --duration 200ms",
    "config show",
    "profile create p",
    "profile use p",
    "profile list",
    "profile show",
    "profile edit",
    "profile prompt",
    "profile delete p",
    "verify orders",
    "doctor",
    "cluster status",
    "cluster health",
    "brokers list",
    "brokers describe node-1",
    "brokers balance --dry-run",
    "brokers undrain node-1",
    "bookies list",
    "bookies describe node-1",
    "bookies recommission node-1",
    "bookies read-only node-1 --dry-run",
    "generate demo-data demo -n 10",
    "topics delete made --yes",
];
/// Commands whose answer is text for a shell or a file, or that are tested elsewhere.
const TEXT: &[&str] = &[
    "standalone",
    "broker",
    "bookie format",
    "config default",
    "config check",
    "completions",
    "ledgers accept-loss",
    "bookie replace",
    "cluster check restart",
    "cluster check scale-in",
    "bookies decommission",
    "bookies lost",
    "brokers drain",
    "drain",
];

#[test]
fn every_command_with_a_result_answers_in_valid_json() {
    let server = Server::start(PORT + 10);
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("lines"), "a\nb\n").unwrap();
    done(&server, &["produce", "orders"], "1\n2\n3\n");
    let variables = [
        ("HULSE_SERVER", server.address()),
        ("EDITOR", "true".to_owned()),
    ];
    let variables: Vec<(&str, &str)> = variables
        .iter()
        .map(|(name, value)| (*name, value.as_str()))
        .collect();
    for line in INVOCATIONS {
        let mut words: Vec<&str> = line.split(' ').collect();
        words.push("-j");
        let output = alone(folder.path(), &words, &variables);
        assert!(output.status.success(), "{line}: {}", text(&output.stderr));
        if line.contains("--dry-run") {
            continue;
        }
        let told: Result<serde_json::Value, _> = serde_json::from_slice(&output.stdout);
        assert!(told.is_ok(), "{line}: {}", text(&output.stdout));
    }
}

#[test]
fn every_leaf_of_the_tree_is_tested_and_lists_its_fields() {
    let leaves: BTreeSet<String> = pages()
        .into_iter()
        .filter(|page| !page.branch)
        .map(|page| page.path.join(" "))
        .collect();
    let tested = |leaf: &String| {
        let begins = |line: &&str| *line == leaf || line.starts_with(&format!("{leaf} "));
        INVOCATIONS.iter().any(begins) || TEXT.contains(&leaf.as_str())
    };
    // Those of subscriptions have tests of their own.
    let untested: Vec<&String> = leaves
        .iter()
        .filter(|leaf| !leaf.starts_with("subscriptions") && !tested(leaf))
        .collect();
    assert!(untested.is_empty(), "{untested:?}");
    for leaf in &leaves {
        let words: Vec<&str> = leaf.split(' ').chain(["--output", "help"]).collect();
        let output = run(&words, "");
        assert!(output.status.success(), "{leaf}");
        assert!(
            text(&output.stdout).starts_with(&format!("hulse {leaf}")),
            "{leaf}"
        );
    }
}

#[test]
fn forms_of_output_hold_the_same_facts() {
    let server = Server::start(PORT + 20);
    done(&server, &["topics", "create", "a", "b"], "");
    let list = |form: &str| done(&server, &["topics", "list", "--output", form], "");
    assert_eq!(list("name"), "public/default/a\npublic/default/b\n");
    let lines: Vec<serde_json::Value> = list("jsonl")
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    let whole: Vec<serde_json::Value> = serde_json::from_str(&list("json")).unwrap();
    assert_eq!(lines, whole);
    assert!(
        list("yaml").contains("topic: public/default/a\n"),
        "{}",
        list("yaml")
    );
    assert!(list("wide").contains("ID"), "{}", list("wide"));
    assert!(!list("table").contains("ID"));
    // Data stand on standard output alone.
    let described = server.hulse(&["topics", "describe", "a", "-j"], "");
    assert!(described.stderr.is_empty(), "{}", text(&described.stderr));
}

#[test]
fn failures_end_with_their_exit_code_in_the_form_that_was_asked_for() {
    let server = Server::start(PORT + 30);
    done(&server, &["topics", "create", "there", "-p", "4"], "");
    let folder = tempfile::tempdir().unwrap();
    for (line, code, number) in [
        ("topics lst", 2, "HULSE-9001"),
        ("consume there --from-beginning", 2, "HULSE-9001"),
        ("produce there --acks all", 2, "HULSE-9001"),
        ("topics delete there", 2, "HULSE-9005"),
        ("topics list --dry-run", 2, "HULSE-9001"),
        ("topics create a/b/c/d", 2, "HULSE-1002"),
        ("topics describe gone", 3, "HULSE-1201"),
        ("topics peek gone", 3, "HULSE-1201"),
        ("--profile gone topics list", 3, "HULSE-9006"),
        ("topics create there", 5, "HULSE-1301"),
        ("topics copy there there", 2, "HULSE-9001"),
        (
            "--server 127.0.0.1:17739 --timeout 1s topics list",
            6,
            "HULSE-9201",
        ),
        (
            "--server 127.0.0.1:17739 --timeout 1s doctor",
            6,
            "HULSE-9201",
        ),
    ] {
        let words: Vec<&str> = line.split(' ').chain(["-j"]).collect();
        let output = alone(
            folder.path(),
            &words,
            &[("HULSE_SERVER", &server.address())],
        );
        let told = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{line}: {told}");
        let last = told.lines().last().unwrap_or_default();
        let error: serde_json::Value = serde_json::from_str(last).unwrap_or_default();
        assert_eq!(error["error"]["code"], number, "{line}: {told}");
        for part in ["what", "why", "object", "next"] {
            let words = error["error"][part].as_str().unwrap_or_default();
            assert!(!words.is_empty(), "{line}: no {part}: {told}");
        }
    }
}

#[test]
fn dry_run_of_a_deletion_deletes_nothing() {
    let server = Server::start(PORT + 40);
    done(&server, &["topics", "create", "kept"], "");
    let output = server.hulse(&["topics", "delete", "kept", "--dry-run", "--yes"], "");
    assert!(output.status.success());
    assert!(
        text(&output.stderr).contains("dry run"),
        "{}",
        text(&output.stderr)
    );
    done(&server, &["topics", "describe", "kept"], "");
}

#[test]
fn demo_data_of_a_seed_is_the_same_in_a_topic_and_in_a_dry_run() {
    let server = Server::start(PORT + 42);
    let words = ["generate", "demo-data", "demo", "-n", "200", "--seed", "7"];
    let dry = done(&server, &[&words[..], &["--dry-run"]].concat(), "");
    assert_eq!(dry.lines().count(), 200);
    let told = json(&server, &words);
    assert_eq!(told["records"], 200);
    let sent = done(&server, &["consume", "demo", "-o", "start", "-e"], "");
    assert_eq!(sent, dry);
    let other = done(
        &server,
        &[
            "generate",
            "demo-data",
            "-n",
            "200",
            "--seed",
            "8",
            "--dry-run",
        ],
        "",
    );
    assert_ne!(other, dry);
}

#[test]
fn peek_shows_the_newest_records_and_those_at_a_position() {
    let server = Server::start(PORT + 44);
    done(&server, &["produce", "t"], "a\nb\nc\n");
    let values = |words: &[&str]| {
        let found = json(&server, &[&["topics", "peek", "t"], words].concat());
        let values = found.as_array().unwrap().iter();
        values
            .map(|record| record["value"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(values(&["-n", "2"]), ["b", "c"]);
    assert_eq!(values(&["-n", "1", "-o", "start"]), ["a"]);
    assert_eq!(values(&["-o", "1"]), ["b", "c"]);
}

#[test]
fn doctor_finds_nothing_on_a_healthy_server_and_tells_a_weak_sync_mode() {
    let server = Server::start(PORT + 46);
    done(&server, &["produce", "t"], "a\n");
    let http = server.http();
    server.wait_well();
    assert_eq!(
        json(&server, &["doctor", "--http", &http]),
        serde_json::json!([])
    );
    let weak = Server::start_with(PORT + 48, &[("HULSE_BOOKIE__SYNC", "interval:1s")]);
    let found = json(&weak, &["doctor", "--http", &weak.http()]);
    assert_eq!(found[0]["code"], "DOCTOR-05", "{found}");
    assert_eq!(found.as_array().unwrap().len(), 1, "{found}");
}
