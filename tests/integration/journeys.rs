//! What a new user does in the first minutes, command by command.

use super::server::{Server, http_get, run};

const PORT: u16 = 17_410;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn first_two_minutes_print_hello_without_any_preparation() {
    let server = Server::start(PORT);
    let produced = server.hulse(&["produce", "greetings"], "hello\n");
    assert!(produced.status.success(), "{}", text(&produced.stderr));
    let consumed = server.hulse(&["consume", "greetings", "-o", "start", "-n", "1"], "");
    assert_eq!(
        text(&consumed.stdout),
        "hello\n",
        "{}",
        text(&consumed.stderr)
    );
    let listed = server.hulse(&["topics", "list", "--output", "json"], "");
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    assert!(
        listed.to_string().contains("public/default/greetings"),
        "{listed}"
    );
}

#[test]
fn acknowledged_record_is_there_after_sigkill_and_after_a_clean_stop() {
    let mut server = Server::start(PORT + 2);
    assert!(server.hulse(&["produce", "kept"], "one\n").status.success());
    server.kill();
    server.restart();
    assert!(server.hulse(&["produce", "kept"], "two\n").status.success());
    let status = server.stop();
    assert!(
        status.success(),
        "SIGTERM ends with {status}:\n{}",
        server.log()
    );
    server.restart();
    let consumed = server.hulse(
        &["consume", "kept", "-o", "start", "-e", "-f", "%o %v\\n"],
        "",
    );
    assert_eq!(
        text(&consumed.stdout),
        "0 one\n1 two\n",
        "{}",
        text(&consumed.stderr)
    );
}

#[test]
fn deleted_topic_is_gone_and_its_successor_is_empty() {
    let server = Server::start(PORT + 4);
    assert!(
        server
            .hulse(&["produce", "again"], "old\n")
            .status
            .success()
    );
    let deleted = server.hulse(&["--yes", "topics", "delete", "again"], "");
    assert!(deleted.status.success(), "{}", text(&deleted.stderr));
    let described = server.hulse(&["topics", "describe", "again"], "");
    assert_eq!(
        described.status.code(),
        Some(3),
        "{}",
        text(&described.stderr)
    );
    assert!(
        server
            .hulse(&["produce", "again"], "new\n")
            .status
            .success()
    );
    let consumed = server.hulse(
        &["consume", "again", "-o", "start", "-e", "-f", "%o %v\\n"],
        "",
    );
    assert_eq!(text(&consumed.stdout), "0 new\n");
}

#[test]
fn health_and_metrics_answer_on_the_http_port() {
    let server = Server::start(PORT + 6);
    assert!(
        server
            .hulse(&["produce", "measured"], "x\n")
            .status
            .success()
    );
    for path in ["/livez", "/readyz", "/startupz"] {
        assert!(
            http_get(&server.http(), path)
                .unwrap()
                .starts_with("HTTP/1.1 200"),
            "{path}"
        );
    }
    let metrics = http_get(&server.http(), "/metrics").unwrap();
    assert!(metrics.contains("hulse_"), "{metrics}");
}

#[test]
fn fewer_partitions_are_refused_with_the_reason() {
    let server = Server::start(PORT + 8);
    assert!(
        server
            .hulse(&["topics", "create", "parts", "--partitions", "4"], "")
            .status
            .success()
    );
    let grown = server.hulse(&["topics", "partitions", "parts", "6"], "");
    assert!(grown.status.success(), "{}", text(&grown.stderr));
    let shrunk = server.hulse(&["topics", "partitions", "parts", "2"], "");
    assert!(!shrunk.status.success());
    assert!(
        text(&shrunk.stderr).contains("order"),
        "{}",
        text(&shrunk.stderr)
    );
}

#[test]
fn client_without_a_server_says_what_to_do() {
    let output = run(
        &[
            "--server",
            "127.0.0.1:17439",
            "--timeout",
            "1s",
            "topics",
            "list",
        ],
        "",
    );
    assert_eq!(output.status.code(), Some(6), "{}", text(&output.stderr));
    assert!(
        text(&output.stderr).contains("standalone"),
        "{}",
        text(&output.stderr)
    );
}
