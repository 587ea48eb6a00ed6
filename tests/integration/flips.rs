//! Flipped bits in every file of a stopped server: a start serves right records or says what is damaged, and with the right file back
//! all is as before.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use hulse_sdk::{Client, Error, Reason, Start};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::numbers::{Counting, Place, all_there};
use super::report::{report, rounds};
use super::server::{Server, replace};

const PORT: u16 = 17_674;
const TOPIC: &str = "flipped";
/// A server that serves right records or says what is damaged does so by then.
const PATIENCE: Duration = Duration::from_secs(120);

/// What a server said to a flip.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Outcome {
    ServedAll,
    ToldOfDamage,
    DidNotStart,
}

/// Every file below a folder that has anything in it.
fn files(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for item in std::fs::read_dir(folder).unwrap() {
            let path = item.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.metadata().unwrap().len() > 0 {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// A stopped server with sealed files, a compacted past, a subscription and a topic that was deleted.
async fn filled() -> (Server, BTreeMap<u64, Place>) {
    let settings = [
        ("HULSE_BOOKIE__LOG_FILE_SIZE", "16MiB"),
        ("HULSE_BOOKIE__DISK_RESERVE", "1MiB"),
        ("HULSE_BROKER__LEDGER_ROLL_SIZE", "4MiB"),
    ];
    let mut server = Server::start_with(PORT, &settings);
    let client = Client::builder(server.address()).build().unwrap();
    let mut kept = Counting::begin(&client, TOPIC).await;
    kept.send_many(200, 64_000).await;
    kept.producer.flush().await.unwrap();
    let consumer = client
        .consumer(TOPIC)
        .subscription("s")
        .start(Start::Earliest);
    let consumer = consumer.build().await.unwrap();
    let record = consumer.receive().await.unwrap().unwrap();
    consumer.ack(&record).await.unwrap();
    let _only_one_was_acknowledged = consumer.close().await.unwrap();
    kept.send_many(100, 64_000).await;
    let acknowledged = kept.finish().await;
    assert!(server.stop().success());
    (server, acknowledged)
}

fn flip(path: &Path, random: &mut ChaCha8Rng) -> String {
    let mut bytes = std::fs::read(path).unwrap();
    // What is zero behind the last written byte is not used yet.
    let used = bytes.iter().rposition(|byte| *byte != 0).unwrap_or(0);
    let at = random.random_range(0..=used);
    let bit = random.random_range(0..8);
    bytes[at] ^= 1 << bit;
    std::fs::write(path, bytes).unwrap();
    format!("{} at {at}, bit {bit}", path.file_name().unwrap().display())
}

/// Starts on what is there. Panics on a wrong record, a hole, a hang, a panic or an end without a word.
async fn judge(
    server: Server,
    what: &str,
    acknowledged: &BTreeMap<u64, Place>,
) -> (Server, Outcome) {
    let started = tokio::task::spawn_blocking(move || {
        let mut server = server;
        server.spawn();
        let ready = server.is_ready_or_ended();
        (server, ready)
    });
    let (mut server, ready) = started.await.unwrap();
    let log = server.log();
    assert!(!log.contains("panicked"), "{what}: {log}");
    if !ready {
        assert!(
            log.contains("HULSE-"),
            "{what}: it ended without a word: {log}"
        );
        server.forget();
        return (server, Outcome::DidNotStart);
    }
    let outcome = match damage(&server, what, acknowledged).await {
        None => Outcome::ServedAll,
        Some(words) => {
            let said = server.doctor();
            assert!(said.contains("DOCTOR-"), "{what}: {words}: {said}");
            Outcome::ToldOfDamage
        }
    };
    assert!(
        !server.log().contains("panicked"),
        "{what}: {}",
        server.log()
    );
    server.kill();
    (server, outcome)
}

/// Reads all; the error's words, if there is one.
async fn damage(
    server: &Server,
    what: &str,
    acknowledged: &BTreeMap<u64, Place>,
) -> Option<String> {
    // A reader that does not get on for so long ends with an error: of damage, or because the machine is busy.
    let begun = Instant::now();
    loop {
        let error = read_on(server, what, acknowledged).await?;
        if error.reason() == Some(Reason::DataDamaged) {
            return Some(error.to_string());
        }
        assert!(begun.elapsed() < PATIENCE, "{what}: {error}");
    }
}

async fn read_on(
    server: &Server,
    what: &str,
    acknowledged: &BTreeMap<u64, Place>,
) -> Option<Error> {
    let client = Client::builder(server.address()).build().unwrap();
    let patience = Duration::from_secs(5);
    let reader = client.reader(TOPIC).start(Start::Earliest).follow(false);
    let mut reader = match reader.retry_timeout(patience).build().await {
        Ok(reader) => reader,
        Err(error) => return Some(error),
    };
    let mut expected = acknowledged.iter();
    loop {
        match reader.next().await {
            Ok(Some(record)) => {
                let text = String::from_utf8(record.value.unwrap().to_vec()).unwrap();
                let (number, place) = expected.next().unwrap();
                let found = (text.parse().unwrap(), (record.partition, record.offset.0));
                assert_eq!(found, (*number, *place), "{what}: a wrong record");
            }
            Ok(None) => {
                assert_eq!(expected.next(), None, "{what}: LOST without a word");
                return None;
            }
            Err(error) => return Some(error),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flipped_bit_in_any_file_is_told_or_harmless_and_goes_with_its_cause() {
    let (mut server, acknowledged) = filled().await;
    let saved = tempfile::tempdir().unwrap();
    super::server::copy(&server.data(), &saved.path().join("data"));
    let mut random = ChaCha8Rng::seed_from_u64(10);
    let mut outcomes = BTreeMap::<Outcome, u64>::new();
    let names = files(&server.data());
    for _ in 0..rounds(1, 40) {
        for path in &names {
            replace(&server.data(), &saved.path().join("data"));
            let what = flip(path, &mut random);
            let outcome;
            (server, outcome) = judge(server, &what, &acknowledged).await;
            println!("{what}: {outcome:?}");
            *outcomes.entry(outcome).or_default() += 1;
        }
    }
    report(&format!("flips in files of a stopped server: {outcomes:?}"));
    replace(&server.data(), &saved.path().join("data"));
    server.restart();
    let client = Client::builder(server.address()).build().unwrap();
    all_there(&client, TOPIC, &acknowledged).await;
    server.wait_well();
}
