//! Idempotent producers of Kafka's clients that live as long as a test wants, each in a process of its own.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdout, Command, Stdio};

use super::report::report;

/// Names of the clients, as the script knows them.
const CLIENTS: [&str; 2] = ["kafka-python", "confluent-kafka"];

/// One producer, which writes to a topic of its own.
pub(crate) struct KafkaProducers {
    /// Its topic.
    pub(crate) topic: String,
    child: Child,
    answers: BufReader<ChildStdout>,
}

impl KafkaProducers {
    /// One of each client; none where there is no Python with them.
    pub(crate) fn start(address: &str) -> Vec<Self> {
        let Some(python) = std::env::var_os("HULSE_TEST_PYTHON") else {
            report(
                "NOT RUN: Kafka's producers whose records are trimmed: HULSE_TEST_PYTHON is not set, tests/run sets it",
            );
            return Vec::new();
        };
        let script = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/tests/integration/kafka_producer.py"
        );
        let start = |client: &&str| {
            let mut child = Command::new(&python)
                .args([script, address, client, client])
                .stdin(Stdio::piped())
                .stdout(Stdio::piped())
                .spawn()
                .expect("Python can be started");
            let answers = child.stdout.take().expect("stdout is a pipe");
            Self {
                topic: (*client).to_owned(),
                child,
                answers: BufReader::new(answers),
            }
        };
        CLIENTS.iter().map(start).collect()
    }

    /// Sends so many records, the numbers that come next, and answers their offsets.
    pub(crate) fn send(&mut self, records: u64) -> Vec<u64> {
        let stdin = self.child.stdin.as_mut().expect("stdin is a pipe");
        writeln!(stdin, "{records}").expect("the script reads");
        let mut line = String::new();
        self.answers
            .read_line(&mut line)
            .expect("the script answers");
        serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"))
    }
}

impl Drop for KafkaProducers {
    fn drop(&mut self) {
        // It may have ended by itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
