//! Cases ST-05 and ST-07 on one node: the space of deleted topics comes back while others are read and written, also when the server
//! is killed in the middle of it.

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hulse_sdk::{Client, Error, Producer, Record, Ticket};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::numbers::{Place, check, read_all, send, settle};
use super::report::{report, rounds};
use super::server::{Server, http_get};

const PORT: u16 = 17_660;
/// Length of a log file.
const FILE: u64 = 16 << 20;
/// What the short-lived topic takes.
const GONE_RECORDS: u64 = 2_000;
const GONE_BYTES: usize = 64 << 10;
/// A numbered record of the long-lived one.
const KEPT_BYTES: usize = 1_000;
/// Counts the bytes of log files that were removed.
const FREED: &str = "hulse_bookie_reclaimed_bytes_total";
/// The space is back within this time.
const FREED_WITHIN: Duration = Duration::from_secs(120);

const SETTINGS: [(&str, &str); 4] = [
    ("HULSE_BOOKIE__LOG_FILE_SIZE", "16MiB"),
    ("HULSE_BROKER__LEDGER_ROLL_SIZE", "8MiB"),
    ("HULSE_BOOKIE__DISK_RESERVE", "1MiB"),
    // So slow that kills find it at work.
    ("HULSE_BOOKIE__COMPACTION_RATE", "16MiB"),
];

fn client(server: &Server) -> Client {
    Client::builder(server.address()).build().unwrap()
}

/// Bytes that the folder's files take on the disk.
fn used(folder: &Path) -> u64 {
    let items = std::fs::read_dir(folder).unwrap();
    items
        // A file may go while the folder is read.
        .filter_map(|item| item.unwrap().metadata().ok())
        .map(|metadata| metadata.blocks() * 512)
        .sum()
}

fn bookie(server: &Server) -> std::path::PathBuf {
    server.data().join("bookie")
}

/// A counter or gauge of the server.
fn metric(server: &Server, name: &str) -> u64 {
    let page = http_get(&server.http(), "/metrics").unwrap();
    let line = page.lines().find(|line| {
        line.strip_prefix(name)
            .is_some_and(|rest| rest.starts_with(' '))
    });
    let value = line.and_then(|line| line.rsplit(' ').next());
    value
        .and_then(|value| value.parse::<f64>().ok())
        .unwrap_or_else(|| panic!("no metric {name}")) as u64
}

/// What is sent to the topic that stays.
struct Kept {
    producer: Producer,
    next: u64,
    tickets: Vec<(u64, Ticket)>,
}

impl Kept {
    async fn send(&mut self) {
        let ticket = send(&self.producer, self.next, KEPT_BYTES, None).await;
        self.tickets.push((self.next, ticket.unwrap()));
        self.next += 1;
    }
}

/// Fills both topics, their records side by side in every log file.
async fn fill(client: &Client, kept: &mut Kept, random: &mut ChaCha8Rng) {
    client.admin().create_topic("gone", 2).await.unwrap();
    let producer = client.producer("gone").build().await.unwrap();
    for _ in 0..GONE_RECORDS {
        let mut body = vec![0; GONE_BYTES];
        random.fill(&mut body[..]);
        let _is_acknowledged_at_close =
            producer.send(Record::new(Bytes::from(body))).await.unwrap();
        kept.send().await;
    }
    producer.close().await.unwrap();
    kept.producer.flush().await.unwrap();
}

async fn restart(mut server: Server) -> Server {
    let restarted = tokio::task::spawn_blocking(move || {
        server.kill();
        server.restart();
        server
    });
    restarted.await.unwrap()
}

/// Writes and reads what stays until the folder takes no more than `floor`.
async fn until_freed(server: &Server, kept: &mut Kept, floor: u64) -> Duration {
    let begun = Instant::now();
    while used(&bookie(server)) > floor {
        assert!(
            begun.elapsed() < FREED_WITHIN,
            "{} bytes are still taken, {floor} expected",
            used(&bookie(server))
        );
        kept.send().await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    begun.elapsed()
}

/// What stays, two files that are written, two that are not compacted, and one that a compaction writes.
fn floor(kept: &Kept) -> u64 {
    kept.next * (KEPT_BYTES as u64 + 400) + 6 * FILE
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn space_of_deleted_topics_comes_back_also_through_kills() {
    let mut server = Server::start_with(PORT, &SETTINGS);
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let first = client(&server);
    first.admin().create_topic("kept", 1).await.unwrap();
    let mut kept = Kept {
        producer: first.producer("kept").build().await.unwrap(),
        next: 0,
        tickets: Vec::new(),
    };
    let mut freed = 0;
    let cycles = rounds(2, 16);
    for cycle in 0..cycles {
        fill(&first, &mut kept, &mut random).await;
        let full = used(&bookie(&server));
        assert!(full > GONE_RECORDS * GONE_BYTES as u64, "{full}");
        // A kill in the middle of the deletion leaves it to be resumed.
        let _may_be_cut_off = tokio::time::timeout(
            Duration::from_millis(random.random_range(50..3_000)),
            first.admin().delete_topic("gone"),
        )
        .await;
        for _ in 0..3 {
            freed += metric(&server, FREED);
            server = restart(server).await;
            tokio::time::sleep(Duration::from_millis(random.random_range(50..2_500))).await;
        }
        delete(&first, "gone").await;
        let floor = floor(&kept);
        let took = until_freed(&server, &mut kept, floor).await;
        report(&format!(
            "space: cycle {cycle}, {} MiB fall to {} MiB in {took:?} after the last kill",
            full >> 20,
            used(&bookie(&server)) >> 20
        ));
    }
    assert_eq!(metric(&server, "hulse_bookie_level"), 0);
    assert!(
        freed + metric(&server, FREED) > 0,
        "a killed server counts anew"
    );
    kept.producer.close().await.unwrap();
    let (acknowledged, failed) = settle(std::mem::take(&mut kept.tickets)).await;
    everything_is_there(&first, &acknowledged, &failed).await;
    server = restart(server).await;
    everything_is_there(&client(&server), &acknowledged, &failed).await;
    let amplification = metric(&server, "hulse_bookie_compaction_written_bytes_total");
    report(&format!(
        "space: the last boot's compaction wrote {amplification} bytes"
    ));
}

async fn everything_is_there(
    client: &Client,
    acknowledged: &BTreeMap<u64, Place>,
    failed: &BTreeMap<u64, Error>,
) {
    assert!(failed.is_empty(), "{:?}", failed.first_key_value());
    check(acknowledged, failed, &read_all(client, "kept").await, true);
}

/// Deletes until it is gone: a deletion that a kill cut off goes on by itself, and is no longer there to be asked for.
async fn delete(client: &Client, topic: &str) {
    let begun = Instant::now();
    loop {
        let _gone_or_going = client.admin().delete_topic(topic).await;
        let left = client.admin().list_topics("public/default").await;
        let gone =
            left.is_ok_and(|topics| topics.iter().all(|found| !found.name.ends_with("/gone")));
        if gone {
            return;
        }
        assert!(begun.elapsed() < FREED_WITHIN, "the topic is still there");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}
