//! Case ST-06: a bookie starts by itself after any crash and any tear of its log's end, serves all that was acknowledged and nothing
//! else, and never passes over damage in the middle in silence.

use std::collections::BTreeMap;
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use hulse_sdk::{Client, Error};
use rand::Rng;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::SeedableRng;

use super::numbers::{Counting, Place, all_there, check, read_all, read_until_error, send, settle};
use super::report::{report, rounds};
use super::server::{Server, log_files};

const PORT: u16 = 17_460;
/// What a file that was made in advance holds.
const HEADER_BYTES: u64 = 4096;

fn client(server: &Server) -> Client {
    Client::builder(server.address()).build().unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn server_killed_at_random_moments_under_load_always_starts_and_loses_nothing() {
    let kills = rounds(5, 30);
    let mut server = Server::start(PORT);
    let client = client(&server);
    client.admin().create_topic("load", 2).await.unwrap();
    let producer = client.producer("load").build().await.unwrap();
    let mut random = ChaCha8Rng::seed_from_u64(66);
    let mut tickets = Vec::new();
    let mut number = 0;
    for _ in 0..kills {
        let until = number + random.random_range(500..2_500);
        while number < until {
            tickets.push((number, send(&producer, number, 200, None).await.unwrap()));
            number += 1;
            if number % 20 == 0 {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
        server = tokio::task::spawn_blocking(move || {
            server.kill();
            server.restart();
            server
        })
        .await
        .unwrap();
    }
    producer.close().await.unwrap();
    let (acknowledged, failed) = settle(tickets).await;
    assert!(failed.is_empty(), "{:?}", failed.first_key_value());
    check(
        &acknowledged,
        &failed,
        &read_all(&client, "load").await,
        true,
    );
    report(&format!("kills under load: {kills}"));
}

/// A stopped server with acknowledged records in it.
async fn filled(port: u16) -> (Server, BTreeMap<u64, Place>) {
    let mut server = Server::start_with(port, &[("HULSE_BOOKIE__LOG_FILE_SIZE", "16MiB")]);
    let client = client(&server);
    client.admin().create_topic("torn", 1).await.unwrap();
    let producer = client.producer("torn").build().await.unwrap();
    let mut tickets = Vec::new();
    for number in 0..2_000 {
        tickets.push((number, send(&producer, number, 500, None).await.unwrap()));
        if number % 100 == 0 {
            producer.flush().await.unwrap();
        }
    }
    producer.close().await.unwrap();
    let (acknowledged, failed) = settle(tickets).await;
    assert!(failed.is_empty());
    server.kill();
    (server, acknowledged)
}

fn append(path: &Path, bytes: &[u8]) {
    let mut file = std::fs::OpenOptions::new().append(true).open(path).unwrap();
    file.write_all(bytes).unwrap();
}

/// Where the written part of a preallocated log file ends: its last byte that is not zero.
fn written_end(path: &Path) -> u64 {
    let bytes = std::fs::read(path).unwrap();
    bytes
        .iter()
        .rposition(|byte| *byte != 0)
        .map_or(0, |at| at as u64 + 1)
}

fn overwrite(path: &Path, at: u64, bytes: &[u8]) {
    let mut file = std::fs::OpenOptions::new().write(true).open(path).unwrap();
    file.seek(SeekFrom::Start(at)).unwrap();
    file.write_all(bytes).unwrap();
}

/// Flips a bit of the first byte from `at` on that is not zero: padding between groups is zero, covered by no checksum, and harmless.
fn flip(path: &Path, at: u64) {
    let mut bytes = std::fs::read(path).unwrap();
    let used = bytes[at as usize..]
        .iter()
        .position(|byte| *byte != 0)
        .unwrap();
    bytes[at as usize + used] ^= 0x10;
    std::fs::write(path, bytes).unwrap();
}

/// What follows the last group is junk of every kind; the records are all there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn junk_behind_the_last_group_is_neither_fatal_nor_served() {
    let (mut server, acknowledged) = filled(PORT + 2).await;
    let mut noise = vec![0; 512];
    ChaCha8Rng::seed_from_u64(1).fill(&mut noise[..]);
    let negative = [[0xff; 64], [0x80; 64]].concat();
    let huge = [&noise[..64], &[0xff, 0xff, 0xff, 0x7f], &noise[64..128]].concat();
    for junk in [vec![0; 512], noise.clone(), negative, huge] {
        let last = log_files(&server.data()).pop().unwrap();
        let end = written_end(&last).next_multiple_of(4096);
        overwrite(&last, end, &junk);
        append(&last, &junk);
        server.restart();
        let client = client(&server);
        check(
            &acknowledged,
            &BTreeMap::<u64, Error>::new(),
            &read_all(&client, "torn").await,
            true,
        );
        server.kill();
    }
    report("cases torn by junk: 4");
}

/// The end of the log is gone: what is left is a prefix, and numbers are not used twice.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn log_cut_at_any_length_starts_and_serves_a_prefix() {
    let (mut server, acknowledged) = filled(PORT + 4).await;
    let saved = tempfile::tempdir().unwrap();
    copy(&server.data(), saved.path());
    let mut random = ChaCha8Rng::seed_from_u64(64);
    let cuts = rounds(8, 64);
    for _ in 0..cuts {
        std::fs::remove_dir_all(server.data()).unwrap();
        copy(saved.path(), &server.data());
        let last = log_files(&server.data())
            .into_iter()
            .rfind(|path| written_end(path) > 4096)
            .unwrap();
        let length = random.random_range(4096..written_end(&last));
        std::fs::OpenOptions::new()
            .write(true)
            .open(&last)
            .unwrap()
            .set_len(length)
            .unwrap();
        server.restart();
        let found = read_all(&client(&server), "torn").await;
        for (position, (place, number)) in found.iter().enumerate() {
            assert_eq!(
                *number, position as u64,
                "not a prefix after a cut at {length}"
            );
            assert_eq!(acknowledged.get(number), Some(place));
        }
        server.kill();
    }
    report(&format!("cases torn by a cut: {cuts}"));
}

/// A flipped bit with good groups behind it was durable: it is damage, and it is said.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_in_the_middle_is_reported_and_never_passed_over() {
    let (mut server, acknowledged) = filled(PORT + 6).await;
    let first = log_files(&server.data())
        .into_iter()
        .find(|path| written_end(path) > 100_000)
        .unwrap();
    flip(&first, written_end(&first) / 2);
    server.restart();
    let client = client(&server);
    let outcome = read_until_error(&client, "torn").await;
    let (found, error) = outcome;
    let error = error.unwrap_or_else(|| {
        panic!(
            "{} records were served as if nothing had happened",
            found.len()
        )
    });
    assert!(error.to_string().contains("damage"), "{error}");
    for (place, number) in &found {
        assert_eq!(
            acknowledged.get(number),
            Some(place),
            "a wrong record was served"
        );
    }
    assert!(server.log().contains("damage"), "{}", server.log());
}

/// Footers are hints: cut off, empty, damaged or gone, their file is read instead.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sealed_files_without_their_footers_serve_all_the_same() {
    let settings = [
        ("HULSE_BOOKIE__LOG_FILE_SIZE", "16MiB"),
        ("HULSE_BOOKIE__DISK_RESERVE", "1MiB"),
    ];
    let mut server = Server::start_with(PORT + 8, &settings);
    let client = client(&server);
    let mut sent = Counting::begin(&client, "sealed").await;
    sent.send_many(700, 64_000).await;
    let acknowledged = sent.finish().await;
    assert!(server.stop().success());
    let saved = tempfile::tempdir().unwrap();
    copy(&server.data(), saved.path());
    let mut sealed: Vec<PathBuf> = log_files(&server.data())
        .into_iter()
        .filter(|path| written_end(path) > HEADER_BYTES)
        .collect();
    // The newest was written when the server stopped; it has no footer, and gets its own in place.
    sealed.pop();
    assert!(sealed.len() >= 2, "{sealed:?}");
    for kind in [
        "trailer flipped",
        "footer of zeros",
        "made again, then empty",
        "made again, then gone",
    ] {
        std::fs::remove_dir_all(server.data()).unwrap();
        copy(saved.path(), &server.data());
        for path in &sealed {
            let end = path.metadata().unwrap().len();
            match kind {
                "footer of zeros" => overwrite(path, end - 4096, &[0; 4096]),
                _ => flip(path, written_end(path) - 8),
            }
        }
        server.restart();
        all_there(&client, "sealed", &acknowledged).await;
        if kind.starts_with("made again") {
            // The newest file of an index.
            let aside = sealed.iter().map(|path| path.with_extension("idx"));
            let aside: Vec<PathBuf> = aside.collect();
            let begun = std::time::Instant::now();
            while !aside.iter().all(|path| path.exists()) {
                let waited = begun.elapsed();
                assert!(waited < Duration::from_secs(120), "no footer is made again");
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
            assert!(server.stop().success());
            for path in aside {
                match kind.ends_with("empty") {
                    true => std::fs::write(path, "").unwrap(),
                    false => std::fs::remove_file(path).unwrap(),
                }
            }
            server.restart();
            all_there(&client, "sealed", &acknowledged).await;
        }
        server.kill();
        assert!(!server.log().contains("damage"), "{}", server.log());
    }
    report("cases of lost footers: 4");
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for item in std::fs::read_dir(from).unwrap() {
        let item = item.unwrap();
        let target = to.join(item.file_name());
        if item.file_type().unwrap().is_dir() {
            copy(&item.path(), &target);
        } else {
            std::fs::copy(item.path(), target).unwrap();
        }
    }
}
