//! Cases ST-05 and ST-07: a disk that is full. On a volume of its own where one can be mounted; by the configured reserve everywhere.
//!
//! What must hold: records are refused with a word before the disk has no byte left, what was acknowledged stays readable, deleting
//! gives room without a restart, and what producers still hold is stored when there is room again.

use std::path::Path;
use std::time::{Duration, Instant};

use bytes::Bytes;
use hulse_sdk::{Client, Producer, Reason, Record, Start};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;
use tokio::time::timeout;

use super::numbers::{Counting, all_there, read_all};
use super::report::{report, rounds};
use super::server::{Server, restarted};
use super::volume::{Kind, Volume, taken};

const PORT: u16 = 17_566;
/// Length of a log file.
const FILE: u64 = 16 << 20;
const BIG: usize = 64_000;
const SMALL: usize = 1_000;
/// Short-lived topics.
const GONE: usize = 10;
/// Ends a wait for the space of deleted topics, and for records that are taken again, which would not end.
const FREED_WITHIN: Duration = Duration::from_secs(300);
/// The same after a foreign file is gone.
const TAKEN_WITHIN: Duration = Duration::from_secs(300);
const PATIENCE: Duration = Duration::from_secs(300);
const LEVEL: &str = "hulse_bookie_level";
const READ_ONLY: u64 = 2;
/// Stands in a record that is damaged later.
const MARKER: &[u8] = b"0123456789-this-one-is-damaged-9876543210";

const SETTINGS: [(&str, &str); 3] = [
    ("HULSE_BOOKIE__LOG_FILE_SIZE", "16MiB"),
    ("HULSE_BROKER__LEDGER_ROLL_SIZE", "4MiB"),
    ("HULSE_BOOKIE__COMPACTION_RATE", "64MiB"),
];
/// A reserve that no disk has: no records are taken.
const FULL: (&str, &str) = ("HULSE_BOOKIE__DISK_RESERVE", "1000TiB");
const ROOMY: (&str, &str) = ("HULSE_BOOKIE__DISK_RESERVE", "1MiB");

fn client(server: &Server) -> Client {
    Client::builder(server.address()).build().unwrap()
}

/// In memory, and with HULSE_LONG=1 also as disks do it.
fn volumes(what: &str) -> Vec<Volume> {
    let bytes = rounds(384, 512) as u64 * (1 << 20);
    let kinds = [Kind::Memory, Kind::Image];
    let kinds = kinds.into_iter().take(rounds(1, 2));
    kinds
        .filter_map(|kind| Volume::mount(kind, bytes, what))
        .collect()
}

async fn until(what: &str, limit: Duration, mut holds: impl FnMut() -> bool) -> Duration {
    let begun = Instant::now();
    while !holds() {
        assert!(begun.elapsed() < limit, "not within {limit:?}: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    begun.elapsed()
}

/// A command that would store a record is refused in the documented words, and the doctor says why.
fn assert_refused(server: &Server) {
    // It tries as long as it is told to; on a slow machine the first answer may take longer than that.
    let (mut words, mut timeout) = (String::new(), 2);
    while timeout <= FREED_WITHIN.as_secs() && !words.contains("HULSE-1806") {
        let timeout_words = format!("{timeout}s");
        let arguments = ["--timeout", &timeout_words, "produce", "other"];
        let output = server.hulse(&arguments, "never stored\n");
        words = String::from_utf8_lossy(&output.stderr).into_owned();
        let code = output.status.code();
        assert!(
            code == Some(6) || !words.contains("HULSE-1806"),
            "{code:?}: {words}"
        );
        assert!(code != Some(0), "a record is stored");
        timeout *= 2;
    }
    assert!(words.contains("HULSE-1806"), "{words}");
    let said = server.doctor();
    for words in [
        "DOCTOR-07",
        "are free",
        "are to stay free",
        "bookie.disk_reserve",
    ] {
        assert!(said.contains(words), "{words}: {said}");
    }
    let log = server.log();
    let told = log
        .lines()
        .find(|line| line.contains("WARN") && line.contains("are to stay free"));
    assert!(
        told.is_some_and(|line| line.contains("bookie.disk_reserve")),
        "{log}"
    );
}

fn assert_taken(server: &Server) {
    let output = server.hulse(&["produce", "other"], "stored\n");
    let words = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{words}");
}

fn big(random: &mut ChaCha8Rng) -> Record {
    let mut body = vec![0; BIG];
    random.fill(&mut body[..]);
    Record::new(Bytes::from(body))
}

/// Makes the short-lived topics and fills them, the long-lived one's records between theirs, until no more are taken.
async fn fill(server: &Server, kept: &mut Counting, random: &mut ChaCha8Rng) -> Vec<Producer> {
    let client = client(server);
    let mut producers = Vec::new();
    for index in 0..GONE {
        let topic = format!("gone-{index}");
        client.admin().create_topic(&topic, 1).await.unwrap();
        let builder = client.producer(&topic).delivery_timeout(PATIENCE);
        producers.push(builder.build().await.unwrap());
    }
    let begun = Instant::now();
    while server.metric(LEVEL) < READ_ONLY {
        assert!(begun.elapsed() < FREED_WITHIN, "the volume is never full");
        for producer in &producers {
            // Its own records that wait may take all of its memory.
            let _is_lost_with_its_topic =
                timeout(Duration::from_millis(100), producer.send(big(random))).await;
            kept.send(SMALL).await;
        }
    }
    producers
}

/// Deletes the short-lived topics while nothing can be stored.
async fn delete(server: &Server) {
    let admin = client(server).admin();
    for index in 0..GONE {
        let topic = format!("gone-{index}");
        let deleting = admin.delete_topic(&topic);
        timeout(PATIENCE, deleting).await.unwrap().unwrap();
    }
}

/// Most of the volume is free again and records are taken.
async fn freed(server: &Server, volume: &Volume) -> Duration {
    let wanted = volume.bytes() / 100 * 60;
    until("60 % of the volume is free", FREED_WITHIN, || {
        volume.free() >= wanted && server.metric(LEVEL) == 0
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn full_volume_is_freed_by_deleting_topics_also_through_kills_and_a_damaged_entry() {
    for (index, volume) in volumes("case ST-05").into_iter().enumerate() {
        let port = PORT + 2 * index as u16;
        let mut server = Server::start_on(Some(&volume.data()), port, &SETTINGS);
        let mut random = ChaCha8Rng::seed_from_u64(571);
        let first = client(&server);
        first.admin().create_topic("other", 1).await.unwrap();
        let mut kept = Counting::begin(&first, "kept").await;

        let _gone = fill(&server, &mut kept, &mut random).await;
        assert!(
            volume.free() > 0,
            "no records are taken before no byte is left"
        );
        assert_refused(&server);
        let found = read_all(&first, "kept").await;
        assert!(found.len() as u64 + 10_000 > kept.next, "reading goes on");
        delete(&server).await;
        let took = freed(&server, &volume).await;
        report(&format!(
            "full volume: {} MiB free after {took:?}",
            volume.free() >> 20
        ));
        timeout(PATIENCE, kept.producer.flush())
            .await
            .unwrap()
            .unwrap();
        assert_taken(&server);

        bystander(&first).await;
        let _gone = fill(&server, &mut kept, &mut random).await;
        delete(&server).await;
        for kill in 0..3 {
            let pause = Duration::from_millis(random.random_range(20..700));
            tokio::time::sleep(pause).await;
            server = killed(server, kill == 1).await;
        }
        let took = freed(&server, &volume).await;
        report(&format!(
            "full volume: freed {took:?} after the last of three kills"
        ));
        timeout(PATIENCE, kept.producer.flush())
            .await
            .unwrap()
            .unwrap();
        let acknowledged = kept.finish().await;
        all_there(&first, "kept", &acknowledged).await;
        no_second_copies(&server, acknowledged.len() as u64).await;
        damage_is_told(&server, &first).await;
    }
}

/// One record in a topic of its own, which stays.
async fn bystander(client: &Client) {
    client.admin().create_topic("bystander", 1).await.unwrap();
    let producer = client.producer("bystander").build().await.unwrap();
    let record = Record::new(Bytes::from_static(MARKER));
    producer.send(record).await.unwrap().await.unwrap();
    producer.close().await.unwrap();
}

/// SIGKILL, and a bit of the bystander flips before the start.
async fn killed(mut server: Server, flips: bool) -> Server {
    server.kill();
    if flips {
        flip_marker(&server.data().join("bookie"));
    }
    let started = tokio::task::spawn_blocking(move || {
        server.restart();
        server
    });
    started.await.unwrap()
}

fn flip_marker(folder: &Path) {
    let mut flipped = 0;
    for item in std::fs::read_dir(folder).unwrap() {
        let path = item.unwrap().path();
        let mut bytes = std::fs::read(&path).unwrap();
        let places = bytes.windows(MARKER.len());
        let found: Vec<usize> = places
            .enumerate()
            .filter(|(_, window)| *window == MARKER)
            .map(|(at, _)| at)
            .collect();
        for at in &found {
            bytes[at + 5] ^= 1;
        }
        if !found.is_empty() {
            std::fs::write(&path, bytes).unwrap();
            flipped += 1;
        }
    }
    assert!(flipped > 0, "the bystander is nowhere");
}

/// What stays, two files that are written, two that are not compacted, one that a compaction writes and the damaged one.
async fn no_second_copies(server: &Server, kept: u64) {
    let floor = kept * (SMALL as u64 + 400) + 7 * FILE;
    let folder = server.data().join("bookie");
    until(
        "copies of failed compactions are gone",
        FREED_WITHIN,
        || taken(&folder) <= floor,
    )
    .await;
}

async fn damage_is_told(server: &Server, client: &Client) {
    let begun = Instant::now();
    loop {
        let reader = client
            .reader("bystander")
            .start(Start::Earliest)
            .follow(false);
        let reader = reader.retry_timeout(Duration::from_secs(5)).build();
        let said = match reader.await {
            Ok(mut reader) => reader.next().await.map(drop),
            Err(error) => Err(error),
        };
        let error = said.expect_err("a damaged record was read");
        if error.reason() == Some(Reason::DataDamaged) {
            break;
        }
        assert!(begun.elapsed() < PATIENCE, "{error}");
    }
    let said = server.doctor();
    assert!(said.contains("DOCTOR-10"), "{said}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn volume_that_somebody_else_fills_loses_nothing_and_takes_records_again_by_itself() {
    for (index, volume) in volumes("case ST-07").into_iter().enumerate() {
        let port = PORT + 4 + 2 * index as u16;
        let mut server = Server::start_on(Some(&volume.data()), port, &SETTINGS);
        let client = client(&server);
        client.admin().create_topic("other", 1).await.unwrap();
        let mut kept = Counting::begin(&client, "kept").await;
        for cycle in 0..2 {
            kept.send_many(rounds(256, 1_600) as u64 / 2, BIG).await;
            kept.producer.flush().await.unwrap();
            let stored = kept.next;
            let foreign = volume.fill();
            until("the server sees it", PATIENCE, || {
                server.metric(LEVEL) >= READ_ONLY
            })
            .await;
            kept.send_many(100, BIG).await;
            assert_refused(&server);
            readable(&client, stored).await;
            server = restarted(server).await;
            assert_eq!(client.admin().list_topics("").await.unwrap().len(), 2);
            readable(&client, stored).await;
            assert_refused(&server);
            // The store of metadata is on the same volume: it says what it can do, and lives on.
            let made = client
                .admin()
                .create_topic(&format!("made-{cycle}"), 1)
                .await;
            report(&format!(
                "full volume: a topic made meanwhile: {:?}",
                made.map(|_| "made")
            ));
            let _gone_if_it_was_made = client.admin().delete_topic(&format!("made-{cycle}")).await;
            foreign.remove();
            let begun = Instant::now();
            timeout(TAKEN_WITHIN, kept.producer.flush())
                .await
                .unwrap()
                .unwrap();
            report(&format!(
                "full volume: records are taken again after {:?}",
                begun.elapsed()
            ));
            assert_taken(&server);
        }
        let acknowledged = kept.finish().await;
        all_there(&client, "kept", &acknowledged).await;
        let tenth = volume.bytes() / 10;
        until("figures are the disk's", PATIENCE, || {
            server
                .metric("hulse_bookie_disk_free_bytes")
                .abs_diff(volume.free())
                < tenth
        })
        .await;
    }
}

/// The first numbers are all there.
async fn readable(client: &Client, numbers: u64) {
    let found = read_all(client, "kept").await;
    let first = found.iter().map(|(_, number)| *number);
    assert!(
        first.take(numbers as usize).eq(0..numbers),
        "{}",
        found.len()
    );
}

/// What needs no volume of its own: a node that has no room refuses, serves, and lets go; when it has, it goes on.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn node_without_room_refuses_records_and_takes_acknowledgements_and_deletions() {
    let mut server = Server::start_with(PORT + 8, &[&SETTINGS[..], &[ROOMY]].concat());
    let client = client(&server);
    client.admin().create_topic("other", 1).await.unwrap();
    let mut kept = Counting::begin(&client, "kept").await;
    kept.send_many(1_000, SMALL).await;
    client.admin().create_topic("gone", 1).await.unwrap();
    let producer = client.producer("gone").build().await.unwrap();
    let mut random = ChaCha8Rng::seed_from_u64(7);
    for _ in 0..1_000 {
        drop(producer.send(big(&mut random)).await.unwrap());
    }
    producer.close().await.unwrap();
    kept.producer.flush().await.unwrap();
    let before = taken(&server.data().join("bookie"));

    server.set(FULL);
    server = restarted(server).await;
    assert_eq!(server.metric(LEVEL), READ_ONLY);
    kept.send_many(100, SMALL).await;
    assert_refused(&server);
    readable(&client, 1_000).await;
    acknowledges(&client, 0).await;
    let admin = client.admin();
    let deleting = admin.delete_topic("gone");
    timeout(PATIENCE, deleting).await.unwrap().unwrap();
    let folder = server.data().join("bookie");
    until(
        "the space of the deleted topic is back",
        FREED_WITHIN,
        || taken(&folder) + FILE < before,
    )
    .await;

    server.set(ROOMY);
    server = restarted(server).await;
    timeout(TAKEN_WITHIN, kept.producer.flush())
        .await
        .unwrap()
        .unwrap();
    assert_taken(&server);
    acknowledges(&client, 500).await;
    let acknowledged = kept.finish().await;
    assert_eq!(acknowledged.len(), 1_100);
    all_there(&client, "kept", &acknowledged).await;
}

/// A consumer of the topic begins at `from` and acknowledges 500 records, durably.
async fn acknowledges(client: &Client, from: u64) {
    let builder = client.consumer("kept").subscription("s");
    let builder = builder.start(Start::Earliest).build();
    let consumer = timeout(PATIENCE, builder).await.unwrap().unwrap();
    for offset in from..from + 500 {
        let record = timeout(PATIENCE, consumer.receive()).await.unwrap();
        let record = record.unwrap().unwrap();
        assert_eq!(record.offset.0, offset);
        if offset + 1 == from + 500 {
            let acked = consumer.ack_cumulative(&record);
            timeout(PATIENCE, acked).await.unwrap().unwrap();
        }
    }
    assert!(consumer.close().await.unwrap().is_empty());
}
