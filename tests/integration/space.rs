//! Cases ST-05 and ST-07 on one node: the space of deleted topics comes back while others are read and written, also when the server
//! is killed in the middle of it.

use std::time::{Duration, Instant};

use bytes::Bytes;
use hulse_sdk::{Client, Record};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::numbers::{Counting, all_there};
use super::report::{report, rounds};
use super::server::{Server, restarted};
use super::volume::taken;

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
const FREED_WITHIN: Duration = Duration::from_secs(300);

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

fn bookie(server: &Server) -> std::path::PathBuf {
    server.data().join("bookie")
}

/// Fills both topics, their records side by side in every log file.
async fn fill(client: &Client, kept: &mut Counting, random: &mut ChaCha8Rng) {
    client.admin().create_topic("gone", 2).await.unwrap();
    let producer = client.producer("gone").build().await.unwrap();
    for _ in 0..GONE_RECORDS {
        let mut body = vec![0; GONE_BYTES];
        random.fill(&mut body[..]);
        let _is_acknowledged_at_close =
            producer.send(Record::new(Bytes::from(body))).await.unwrap();
        kept.send(KEPT_BYTES).await;
    }
    producer.close().await.unwrap();
    kept.producer.flush().await.unwrap();
}

/// Writes and reads what stays until the folder takes no more than `floor`.
async fn until_freed(server: &Server, kept: &mut Counting, floor: u64) -> Duration {
    let begun = Instant::now();
    while taken(&bookie(server)) > floor {
        assert!(
            begun.elapsed() < FREED_WITHIN,
            "{} bytes are still taken, {floor} expected",
            taken(&bookie(server))
        );
        kept.send(KEPT_BYTES).await;
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    begun.elapsed()
}

/// What stays, two files that are written, two that are not compacted, and one that a compaction writes.
fn floor(kept: &Counting) -> u64 {
    kept.next * (KEPT_BYTES as u64 + 400) + 6 * FILE
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn space_of_deleted_topics_comes_back_also_through_kills() {
    let mut server = Server::start_with(PORT, &SETTINGS);
    let mut random = ChaCha8Rng::seed_from_u64(5);
    let first = client(&server);
    let mut kept = Counting::begin(&first, "kept").await;
    let mut freed = 0;
    let cycles = rounds(2, 16);
    for cycle in 0..cycles {
        fill(&first, &mut kept, &mut random).await;
        let full = taken(&bookie(&server));
        assert!(full > GONE_RECORDS * GONE_BYTES as u64, "{full}");
        // A kill in the middle of the deletion leaves it to be resumed.
        let _may_be_cut_off = tokio::time::timeout(
            Duration::from_millis(random.random_range(50..3_000)),
            first.admin().delete_topic("gone"),
        )
        .await;
        for _ in 0..3 {
            freed += server.metric(FREED);
            server = restarted(server).await;
            tokio::time::sleep(Duration::from_millis(random.random_range(50..2_500))).await;
        }
        delete(&first, "gone").await;
        let floor = floor(&kept);
        let took = until_freed(&server, &mut kept, floor).await;
        report(&format!(
            "space: cycle {cycle}, {} MiB fall to {} MiB in {took:?} after the last kill",
            full >> 20,
            taken(&bookie(&server)) >> 20
        ));
    }
    assert_eq!(server.metric("hulse_bookie_level"), 0);
    assert!(
        freed + server.metric(FREED) > 0,
        "a killed server counts anew"
    );
    let acknowledged = kept.finish().await;
    all_there(&first, "kept", &acknowledged).await;
    server = restarted(server).await;
    all_there(&client(&server), "kept", &acknowledged).await;
    let amplification = server.metric("hulse_bookie_compaction_written_bytes_total");
    report(&format!(
        "space: the last boot's compaction wrote {amplification} bytes"
    ));
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
