//! A partition whose newest ledger cannot be recovered: what is below it is read, then everybody hears of the doubt; and a loss that was
//! accepted hides no later damage from an operator.

use std::path::Path;

use serde_json::Value;

use super::server::{Server, log_files};

const PORT: u16 = 19_310;

fn hulse(server: &Server, words: &[&str], input: &str, code: i32) -> (String, String) {
    let output = server.hulse(words, input);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{words:?}: {out}{err}");
    (out, err)
}

fn lines(numbers: std::ops::Range<u32>) -> String {
    numbers.map(|number| format!("{number}\n")).collect()
}

/// Changes a byte of a record wherever the log holds it.
fn damage(data: &Path, record: &str) {
    let mut found = 0;
    for path in log_files(data) {
        let mut bytes = std::fs::read(&path).unwrap();
        let places = bytes.windows(record.len()).enumerate();
        let places: Vec<usize> = places
            .filter(|(_, window)| *window == record.as_bytes())
            .map(|(at, _)| at)
            .collect();
        for at in &places {
            bytes[at + 1] ^= 0x55;
        }
        if !places.is_empty() {
            std::fs::write(&path, bytes).unwrap();
            found += places.len();
        }
    }
    assert!(found > 0, "{record} is nowhere");
}

fn finding(server: &Server, code: &str) -> Option<Value> {
    let mut found = server.findings().into_iter();
    found.find(|finding| finding["code"] == code)
}

#[test]
fn records_below_a_ledger_that_cannot_be_recovered_are_read_and_the_rest_is_said_to_be_in_doubt() {
    let mut server = Server::start(PORT);
    hulse(&server, &["produce", "t"], &lines(0..100), 0);
    assert!(server.stop().success());
    server.restart();
    for number in 100..110 {
        hulse(&server, &["produce", "t"], &lines(number..number + 1), 0);
    }
    hulse(&server, &["produce", "t"], "the-last-one-is-lost\n", 0);
    // What is stored behind it proves that it was stored.
    hulse(&server, &["produce", "u"], "sound\n", 0);
    server.kill();
    damage(&server.data(), "the-last-one-is-lost");
    for _ in 0..2 {
        server.restart();
        let all = ["--timeout", "10s", "consume", "t", "-o", "start", "-e"];
        let (out, err) = hulse(&server, &all, "", 7);
        assert_eq!(out, lines(0..100), "{err}");
        assert!(err.contains("accept-loss"), "{err}");
        for place in ["100", "105", "110", "111"] {
            let words = [
                "--timeout",
                "10s",
                "consume",
                "t",
                "-p",
                "0",
                "-o",
                place,
                "-e",
            ];
            let (out, err) = hulse(&server, &words, "", 7);
            assert_eq!(out, "", "{place}: {err}");
        }
        assert_eq!(
            hulse(&server, &["consume", "u", "-o", "start", "-e"], "", 0).0,
            "sound\n"
        );
        assert!(
            finding(&server, "DOCTOR-10").is_some(),
            "{:?}",
            server.findings()
        );
        server.kill();
    }
    server.restart();
    let (listed, _) = hulse(&server, &["ledgers", "list", "t", "-j"], "", 0);
    let listed: Vec<Value> = serde_json::from_str(&listed).unwrap();
    let stuck = listed.iter().find(|one| one["state"] == "in_recovery");
    let stuck = stuck.unwrap_or_else(|| panic!("{listed:?}"));
    assert!(stuck["damaged"][0].is_string(), "{stuck}");
    let ledger = stuck["ledger"].to_string();
    hulse(
        &server,
        &["ledgers", "accept-loss", &ledger, "--yes"],
        "",
        0,
    );
    let (out, _) = hulse(&server, &["consume", "t", "-o", "start", "-e"], "", 0);
    assert_eq!(out, lines(0..110));
}

#[test]
fn damage_above_an_accepted_loss_is_told() {
    let mut server = Server::start(PORT + 2);
    for number in 0..10 {
        hulse(
            &server,
            &["produce", "t"],
            &format!("record-{number}-of-t\n"),
            0,
        );
    }
    assert!(server.stop().success());
    damage(&server.data(), "record-3-of-t");
    server.restart();
    let all = ["--timeout", "10s", "consume", "t", "-o", "start", "-e"];
    hulse(&server, &all, "", 7);
    let (listed, _) = hulse(&server, &["ledgers", "list", "t", "-j"], "", 0);
    let listed: Vec<Value> = serde_json::from_str(&listed).unwrap();
    let log = listed.iter().find(|one| one["kind"] == "log").unwrap();
    let ledger = log["ledger"].to_string();
    assert_eq!(log["damaged"], serde_json::json!(["entry 3"]));
    hulse(
        &server,
        &["ledgers", "accept-loss", &ledger, "--yes"],
        "",
        0,
    );
    let (out, _) = hulse(&server, &all, "", 0);
    assert_eq!(out.lines().count(), 9);
    // More rots later: readers pass over that, too, and an operator is told so.
    assert!(server.stop().success());
    damage(&server.data(), "record-7-of-t");
    server.restart();
    let (out, _) = hulse(&server, &all, "", 0);
    assert_eq!(out.lines().count(), 8);
    let told = server.findings();
    let told: Vec<String> = told.iter().map(ToString::to_string).collect();
    for words in [
        "entry 7 of ledger",
        "from entry 3 on was accepted",
        "passed over",
        "pass over",
    ] {
        let listed = hulse(&server, &["ledgers", "list", "t"], "", 0).0;
        let all = told.join("\n") + &listed;
        assert!(all.contains(words), "{words}: {all}");
    }
    let (listed, _) = hulse(&server, &["ledgers", "list", "t", "-j"], "", 0);
    let listed: Vec<Value> = serde_json::from_str(&listed).unwrap();
    let log = listed
        .iter()
        .find(|one| one["ledger"].as_u64() == ledger.parse().ok())
        .unwrap();
    let passed = ["entry 3 (passed over)", "entry 7 (passed over)"];
    assert_eq!(
        (&log["loss_from"], &log["damaged"]),
        (&3.into(), &serde_json::json!(passed))
    );
}
