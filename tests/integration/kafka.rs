//! The Kafka wire of a real server, driven by kafka-python and by Hulse's own commands: what one writes the other reads, through a kill.

use std::process::Command;

use serde_json::{Value, json};

use super::report::report;
use super::server::Server;

const PORT: u16 = 17_600;
const CODECS: [&str; 5] = ["None", "gzip", "snappy", "lz4", "zstd"];
const RECORDS: usize = 50;

/// A server with the Kafka wire at `port + 2`.
fn start(port: u16) -> (Server, String) {
    let kafka = format!("127.0.0.1:{}", port + 2);
    let server = Server::start_with(port, &[("HULSE_LISTEN__KAFKA", &kafka)]);
    (server, kafka)
}

/// Runs the script; `None` where there is no kafka-python.
fn kafka_python(kafka: &str, what: &str, topic: &str) -> Option<Value> {
    let Some(python) = std::env::var_os("HULSE_TEST_PYTHON") else {
        report(
            "NOT RUN: kafka-python over the wire: HULSE_TEST_PYTHON is not set, tests/run sets it",
        );
        return None;
    };
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/integration/kafka_python.py"
    );
    let output = Command::new(python)
        .args([script, kafka, what, topic])
        .output()
        .unwrap();
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
    Some(serde_json::from_slice(&output.stdout).unwrap())
}

#[test]
fn hulse_consumes_what_kafka_python_produced_with_every_codec_and_back() {
    let (mut server, kafka) = start(PORT);
    let Some(written) = kafka_python(&kafka, "write", "foreign") else {
        return;
    };
    let count = CODECS.len() * RECORDS;
    let offsets: Vec<usize> = (0..count).collect();
    assert_eq!(written["offsets"], json!(offsets));
    let read = |server: &Server| {
        let limit = count.to_string();
        let arguments = [
            "consume", "foreign", "-o", "start", "-n", &limit, "--output", "json",
        ];
        let output = server.hulse(&arguments, "");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        String::from_utf8(output.stdout).unwrap()
    };
    let seen = read(&server);
    for (number, codec) in CODECS.iter().enumerate() {
        for index in [0, RECORDS - 1] {
            assert!(
                seen.contains(&format!("{codec}-{index}")),
                "{codec} {index}"
            );
            let time = 1_700_000_000_000_u64 + (RECORDS * number + index) as u64;
            assert!(seen.contains(&time.to_string()), "{time}");
        }
    }
    // Kafka's client finds the same again, also after the server died.
    server.kill();
    server.restart();
    assert_eq!(read(&server), seen);
    let found = kafka_python(&kafka, "read", "foreign").unwrap();
    let records = found["records"].as_array().unwrap();
    assert_eq!(records.len(), count);
    for (offset, record) in records.iter().enumerate() {
        let (codec, index) = (CODECS[offset / RECORDS], offset % RECORDS);
        let time = 1_700_000_000_000_u64 + offset as u64;
        let headers = [["trace", "1"], ["trace", "2"]];
        let expected = json!([
            offset,
            time,
            format!("key-{index}"),
            format!("{codec}-{index}"),
            headers
        ]);
        assert_eq!(*record, expected);
    }
    for index in [0, count / 2, count - 1] {
        let place = [index as u64, 1_700_000_000_000 + index as u64];
        assert_eq!(found["times"][index.to_string()], json!(place));
    }
    assert_eq!(found["after"], Value::Null);
    report(&format!("records: {count}"));
}

#[test]
fn kafka_python_consumes_what_hulse_produced() {
    let (server, kafka) = start(PORT + 10);
    let lines: String = (0..500).map(|number| format!("line {number}\n")).collect();
    let output = server.hulse(&["produce", "ours"], &lines);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let Some(found) = kafka_python(&kafka, "read", "ours") else {
        return;
    };
    let values: Vec<&str> = found["records"]
        .as_array()
        .unwrap()
        .iter()
        .map(|record| record[3].as_str().unwrap())
        .collect();
    let sent: Vec<&str> = lines.lines().collect();
    assert_eq!(values, sent);
}
