//! A full volume whose syncs take 150 ms (cases ST-04 and ST-05 at once): everything takes longer, nothing hangs, nothing is lost.
//!
//! Syncs are slowed by a library that is loaded before the server (`slow_sync.c`).

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hulse_sdk::{Client, Producer, Record};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use tempfile::TempDir;
use tokio::time::timeout;

use super::numbers::{Counting, all_there};
use super::report::report;
use super::server::Server;
use super::volume::{Kind, Volume};

const PORT: u16 = 19_304;
const SYNC_MS: u64 = 150;
/// Holds a few log files and what is kept free.
const VOLUME: u64 = 160 << 20;
const BIG: usize = 64_000;
/// Ends a wait that would not end; far above what any takes on a slow machine.
const PATIENCE: Duration = Duration::from_secs(200);
const LEVEL: &str = "hulse_bookie_level";
const READ_ONLY: u64 = 2;
/// Ledgers roll all the time, so some are being closed and made whenever the volume is full.
const SETTINGS: [(&str, &str); 3] = [
    ("HULSE_BOOKIE__LOG_FILE_SIZE", "16MiB"),
    ("HULSE_BROKER__LEDGER_ROLL_SIZE", "1MiB"),
    ("HULSE_BOOKIE__COMPACTION_RATE", "64MiB"),
];
const GONE: [&str; 2] = ["gone-1", "gone-2"];

/// The library; `None`, and a word in the report, where there is no C compiler.
fn slow_syncs() -> Option<(TempDir, String)> {
    let folder = tempfile::tempdir().unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/integration/slow_sync.c");
    let library = folder.path().join("slow_sync.so");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .args([&library, &source])
        .output();
    match built {
        Ok(built) => assert!(built.status.success(), "{built:?}"),
        Err(error) => {
            report(&format!(
                "NOT RUN: a full volume with slow syncs: cc: {error}"
            ));
            return None;
        }
    }
    let library = library.display().to_string();
    Some((folder, library))
}

fn big(random: &mut ChaCha8Rng) -> Record {
    let mut body = vec![0; BIG];
    random.fill(&mut body[..]);
    Record::new(Bytes::from(body))
}

/// Fills the short-lived topics, and a few records of the long-lived one between theirs, until no more are taken.
async fn fill(
    server: &Server,
    client: &Client,
    kept: &mut Counting,
    random: &mut ChaCha8Rng,
) -> Vec<Producer> {
    let mut producers = Vec::new();
    for topic in GONE {
        client.admin().create_topic(topic, 1).await.unwrap();
        let producer = client.producer(topic).delivery_timeout(PATIENCE);
        producers.push(producer.build().await.unwrap());
    }
    let begun = Instant::now();
    while server.metric(LEVEL) < READ_ONLY {
        assert!(begun.elapsed() < PATIENCE, "the volume is never full");
        for producer in &producers {
            for _ in 0..8 {
                // Its own records that wait may take all of its memory.
                let sent = producer.send(big(random));
                let _is_lost_with_its_topic = timeout(Duration::from_millis(100), sent).await;
            }
            kept.send(1_000).await;
        }
    }
    producers
}

/// After an orderly stop.
async fn started_again(mut server: Server) -> Server {
    let started = tokio::task::spawn_blocking(move || {
        assert!(server.stop().success());
        server.restart();
        server
    });
    started.await.unwrap()
}

async fn in_time<T>(what: &str, done: impl Future<Output = T>) -> T {
    let done = timeout(PATIENCE, done).await;
    done.unwrap_or_else(|_| panic!("not within {PATIENCE:?}: {what}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_volume_with_slow_syncs_hangs_nothing_and_loses_nothing() {
    let Some((_folder, library)) = slow_syncs() else {
        return;
    };
    let what = "a full volume with slow syncs";
    let Some(volume) = Volume::mount(Kind::Memory, VOLUME, what) else {
        return;
    };
    let sync_ms = SYNC_MS.to_string();
    let slow = [("LD_PRELOAD", &*library), ("HULSE_TEST_SYNC_MS", &*sync_ms)];
    let settings = [&SETTINGS[..], &slow].concat();
    let mut server = Server::start_on(Some(&volume.data()), PORT, &settings);
    let client = Client::builder(server.address()).build().unwrap();
    let mut random = ChaCha8Rng::seed_from_u64(150);
    let mut kept = Counting::begin(&client, "kept").await;
    let begun = Instant::now();
    for round in 0..2 {
        let gone = fill(&server, &client, &mut kept, &mut random).await;
        assert!(volume.free() > 0, "refused before no byte is left");
        if round == 1 {
            // A stop in the middle of it: what was being rolled is not waited for without end.
            server = in_time("a stop and a start while it is full", started_again(server)).await;
        }
        for topic in GONE {
            let deleted = in_time("a deletion", client.admin().delete_topic(topic)).await;
            deleted.unwrap();
        }
        drop(gone);
        in_time("what waited is stored", kept.producer.flush())
            .await
            .unwrap();
    }
    report(&format!(
        "full volume with syncs of {SYNC_MS} ms: two rounds and a restart in {:?}",
        begun.elapsed()
    ));
    let acknowledged = in_time("the last records", kept.finish()).await;
    all_there(&client, "kept", &acknowledged).await;
}
