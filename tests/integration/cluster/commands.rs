//! What an operator asks of a cluster, on one that runs.

use std::time::{Duration, Instant};

use serde_json::Value;

use super::super::server::{http_get, run};
use super::processes::Cluster;

const PORT: u16 = 18_524;

/// Runs a command until it ends so and says this; both end in time, or the last answer is told.
fn until(at: &str, arguments: &[&str], code: i32, words: &str) -> String {
    let began = Instant::now();
    loop {
        let output = run(&[&["--server", at], arguments].concat(), "");
        let told = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        if output.status.code() == Some(code) && told.contains(words) {
            return told;
        }
        let waited = began.elapsed();
        assert!(waited < Duration::from_secs(20), "{arguments:?} {output:?}");
        std::thread::sleep(Duration::from_millis(200));
    }
}

fn json(at: &str, arguments: &[&str]) -> Value {
    let output = run(&[&["--server", at, "-j"], arguments].concat(), "");
    assert!(output.status.success(), "{arguments:?} {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn operator_sees_nodes_and_copies_and_is_told_what_helps() {
    let Some(mut cluster) = Cluster::start_linked(PORT, 3) else {
        return;
    };
    cluster.add_broker();
    let at = &cluster.broker_address(0);
    until(at, &["produce", "greetings"], 0, "");
    until(at, &["cluster", "health"], 0, "the cluster is healthy");
    let status = json(at, &["cluster", "status"]);
    assert_eq!(status["state"], "healthy", "{status}");
    assert_eq!(status["bookies_writable"], 3, "{status}");
    assert_eq!(
        (&status["write_quorum"], &status["ack_quorum"]),
        (&3.into(), &2.into())
    );
    let brokers = json(at, &["brokers", "list"]);
    assert_eq!(brokers[0]["broker"], "broker-1", "{brokers}");
    assert_eq!(brokers[0]["endpoint"], at.as_str(), "{brokers}");
    let bookies = json(at, &["bookies", "list"]);
    assert_eq!(bookies.as_array().unwrap().len(), 3, "{bookies}");
    assert_eq!(bookies[1]["http"], cluster.bookie_http(1), "{bookies}");
    until(at, &["topics", "create", "described"], 0, "");
    let described = &["topics", "describe", "described"];
    until(at, described, 0, "bookies were not asked");
    until(at, &["brokers", "describe", "nobody"], 3, "HULSE-9211");
    until(at, &["bookies", "describe", "nobody"], 3, "HULSE-1205");
    until(at, &["bookies", "lost", "b1", "--yes"], 5, "b1 runs at");
    until(
        at,
        &["bookies", "decommission", "b1", "--yes"],
        5,
        "every ledger needs 3",
    );
    until(at, &["bookies", "read-only", "b1"], 0, "read-only");
    until(at, &["bookies", "recommission", "b1"], 0, "active");
    until(at, &["cluster", "check", "restart", "b1"], 0, "safe: ");
    until(
        at,
        &["cluster", "check", "restart", "broker-1"],
        5,
        "no other broker runs",
    );
    until(
        at,
        &["cluster", "check", "scale-in", "--bookies", "3"],
        0,
        "safe: ",
    );
    restarts(&mut cluster);
    cluster.stop();
}

/// One bookie is away: no other one may go, and everybody says so.
fn restarts(cluster: &mut Cluster) {
    let at = &cluster.broker_address(0);
    let caught_up = http_get(&cluster.bookie_http(0), "/readyz/restart").unwrap();
    assert!(caught_up.starts_with("HTTP/1.1 200"), "{caught_up}");
    cluster.bookies[2].kill();
    until(at, &["cluster", "health"], 1, "DOCTOR-30");
    until(
        at,
        &["cluster", "check", "restart", "b1"],
        5,
        "b3 does not run",
    );
    let status = json(at, &["cluster", "status"]);
    assert_eq!(status["state"], "degraded", "{status}");
    until(at, &["bookies", "list"], 0, "not running");
    let told = until(at, &["doctor"], 1, "DOCTOR-30");
    assert!(told.contains("hulse bookies lost b3"), "{told}");
    cluster.bookies[2].start();
    until(at, &["cluster", "health"], 0, "the cluster is healthy");
    // One that is frozen has a lease for a while, and does not answer.
    cluster.bookies[1].signal("-STOP");
    until(at, &["--timeout", "2s", "doctor"], 1, "bookie b2");
    cluster.bookies[1].signal("-CONT");
    until(at, &["doctor"], 0, "");
}
