//! All departures of New York's airports in 2013, through a server that is killed twenty times.
//!
//! 336,776 records as JSON keyed by tail number, to eight partitions, paced, with one producer id throughout. Every record carries its
//! number; on arrival the numbers are checked: each once, ascending per key, at the acknowledged place, and the totals those of the
//! data set. The stored batches are then decoded by a foreign library.

use std::collections::BTreeMap;
use std::io::Write;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use hulse_sdk::{Client, Producer, Reader, Record, Start};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use serde_json::{Value, json};

use super::report::{input, report};
use super::server::Server;

const PARTITIONS: u32 = 8;
const KILLS: usize = 20;
const RECORDS_PER_SECOND: usize = 8_000;
const PORT: u16 = 17_400;
const SEED: u64 = 2013;

/// One departure.
struct Flight {
    tail: Option<String>,
    json: String,
}

fn load(path: &Path) -> Vec<Flight> {
    let text = std::fs::read_to_string(path).expect("the flights can be read");
    let mut lines = text.lines();
    let names: Vec<&str> = lines
        .next()
        .expect("the first line names the columns")
        .split(',')
        .collect();
    let flights = lines.enumerate().map(|(number, line)| {
        let mut object = serde_json::Map::from_iter([("n".to_owned(), json!(number))]);
        for (name, field) in names.iter().zip(line.split(',')) {
            let value = match field {
                "NA" => Value::Null,
                text => text
                    .parse::<i64>()
                    .map_or_else(|_| json!(text), |number| json!(number)),
            };
            object.insert((*name).to_owned(), value);
        }
        let tail = object["tailnum"].as_str().map(str::to_owned);
        Flight {
            tail,
            json: Value::Object(object).to_string(),
        }
    });
    flights.collect()
}

/// The numbers that the data set is known to have.
#[derive(Debug, Default, PartialEq)]
struct Totals {
    records: usize,
    without_tail: usize,
    cancelled: usize,
    distance: i64,
    delay: i64,
    origins: BTreeMap<String, usize>,
    united: usize,
}

impl Totals {
    fn add(&mut self, flight: &Value) {
        self.records += 1;
        self.without_tail += usize::from(flight["tailnum"].is_null());
        self.cancelled += usize::from(flight["dep_time"].is_null());
        self.distance += flight["distance"].as_i64().unwrap_or(0);
        self.delay += flight["dep_delay"].as_i64().unwrap_or(0);
        *self
            .origins
            .entry(flight["origin"].as_str().unwrap_or("?").to_owned())
            .or_default() += 1;
        self.united += usize::from(flight["carrier"] == "UA");
    }

    fn known() -> Self {
        let origins = [("EWR", 120_835), ("JFK", 111_279), ("LGA", 104_662)];
        Self {
            records: 336_776,
            without_tail: 2_512,
            cancelled: 8_255,
            distance: 350_217_607,
            delay: 4_152_200,
            origins: origins.map(|(name, count)| (name.to_owned(), count)).into(),
            united: 58_665,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flights_survive_twenty_kills_each_once_and_in_order() {
    let Some(path) = input("flights.csv") else {
        report(
            "NOT RUN: flights through twenty kills: flights.csv is missing, tests/run fetches it",
        );
        return;
    };
    let flights = load(&path);
    let server = Server::start(PORT);
    let client = Client::builder(server.address()).build().unwrap();
    client
        .admin()
        .create_topic("flights", PARTITIONS)
        .await
        .unwrap();
    let places = produce(&client, &flights, server).await;
    let (server, places) = places;
    let read = read_back(&client, &flights, &places).await;
    report(&format!("records flights: {}", read.len()));
    decode_with_a_foreign_library(&client, &flights).await;
    drop(server);
}

/// Sends everything and answers where each record was acknowledged.
async fn produce(client: &Client, flights: &[Flight], server: Server) -> (Server, Vec<(u32, u64)>) {
    let producer: Producer = client.producer("flights").build().await.unwrap();
    let mut random = ChaCha8Rng::seed_from_u64(SEED);
    let mut kills: Vec<usize> = (0..KILLS)
        .map(|_| random.random_range(1_000..flights.len() - 1_000))
        .collect();
    kills.sort_unstable();
    let outstanding = Arc::new(AtomicUsize::new(0));
    let mut answers = Vec::with_capacity(flights.len());
    let mut kills = kills.into_iter().peekable();
    let mut killing = tokio::spawn(async { server });
    let mut pace = tokio::time::interval(Duration::from_millis(10));
    for (number, flight) in flights.iter().enumerate() {
        if number % (RECORDS_PER_SECOND / 100) == 0 {
            pace.tick().await;
        }
        let mut record = Record::new(flight.json.clone());
        if let Some(tail) = &flight.tail {
            record = record.key(tail.clone());
        }
        let ticket = producer.send(record).await.unwrap();
        outstanding.fetch_add(1, Ordering::Relaxed);
        let open = outstanding.clone();
        answers.push(tokio::spawn(async move {
            let receipt = ticket.await;
            open.fetch_sub(1, Ordering::Relaxed);
            receipt.map(|receipt| {
                (
                    receipt.partition,
                    receipt.offset.expect("a quorum answers with an offset").0,
                )
            })
        }));
        if kills.next_if(|kill| *kill <= number).is_some() {
            let server = killing.await.unwrap();
            assert!(
                outstanding.load(Ordering::Relaxed) > 0,
                "no batch is in flight at a kill"
            );
            killing = tokio::task::spawn_blocking(move || {
                let mut server = server;
                server.kill();
                server.restart();
                server
            });
        }
    }
    let server = killing.await.unwrap();
    producer.close().await.unwrap();
    let mut places = Vec::with_capacity(answers.len());
    for (number, answer) in answers.into_iter().enumerate() {
        let place = answer.await.unwrap();
        places.push(
            place.unwrap_or_else(|error| panic!("record {number} was not acknowledged: {error}")),
        );
    }
    (server, places)
}

async fn read_back(client: &Client, flights: &[Flight], places: &[(u32, u64)]) -> Vec<bool> {
    let mut reader: Reader = client
        .reader("flights")
        .start(Start::Earliest)
        .follow(false)
        .build()
        .await
        .unwrap();
    let mut seen = vec![false; flights.len()];
    let mut last_of_key: BTreeMap<String, usize> = BTreeMap::new();
    let mut totals = Totals::default();
    while let Some(record) = reader.next().await.unwrap() {
        let flight: Value =
            serde_json::from_slice(record.value.as_deref().unwrap_or_default()).unwrap();
        let number = flight["n"].as_u64().unwrap() as usize;
        assert!(
            !std::mem::replace(&mut seen[number], true),
            "record {number} is stored twice"
        );
        assert_eq!(
            (record.partition, record.offset.0),
            places[number],
            "record {number} is not where it was acknowledged"
        );
        assert_eq!(
            record.key.as_deref(),
            flights[number].tail.as_deref().map(str::as_bytes)
        );
        if let Some(tail) = &flights[number].tail {
            let before = last_of_key.insert(tail.clone(), number);
            assert!(
                before.is_none_or(|before| before < number),
                "{tail}: {number} after {before:?}"
            );
        }
        totals.add(&flight);
    }
    let lost: Vec<usize> = seen
        .iter()
        .enumerate()
        .filter(|(_, seen)| !**seen)
        .map(|(number, _)| number)
        .collect();
    assert!(
        lost.is_empty(),
        "{} acknowledged records are lost, the first: {:?}",
        lost.len(),
        &lost[..lost.len().min(9)]
    );
    assert_eq!(totals, Totals::known());
    seen
}

/// The bytes that Log.Read answers are Kafka's: kafka-python decodes them all and finds the same records.
async fn decode_with_a_foreign_library(client: &Client, flights: &[Flight]) {
    let Some(python) = std::env::var_os("HULSE_TEST_PYTHON") else {
        report(
            "NOT RUN: decoding by kafka-python: HULSE_TEST_PYTHON is not set, tests/run sets it",
        );
        return;
    };
    let mut reader: Reader = client
        .reader("flights")
        .start(Start::Earliest)
        .follow(false)
        .build()
        .await
        .unwrap();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    while let Some(batch) = reader.next_batch().await.unwrap() {
        file.write_all(&batch.bytes).unwrap();
    }
    let script = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/integration/decode_batches.py"
    );
    let output = std::process::Command::new(python)
        .arg(script)
        .arg(file.path())
        .output()
        .unwrap();
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let found: Value = serde_json::from_slice(&output.stdout).unwrap();
    let bytes: usize = flights.iter().map(|flight| flight.json.len()).sum();
    assert_eq!(found["records"], json!(flights.len()));
    assert_eq!(found["null_keys"], json!(Totals::known().without_tail));
    assert_eq!(found["value_bytes"], json!(bytes));
    assert_eq!(found["distance"], json!(Totals::known().distance));
    report(&format!(
        "records decoded by kafka-python: {}",
        found["records"]
    ));
}
