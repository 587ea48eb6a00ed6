//! Disks that are not what they were: an older copy of a whole directory, of the bookie's part or of metadata's part alone; a
//! directory that is copied while its server runs, and both served.
//!
//! What must hold: a server that starts serves right records or says what is missing; nothing is acknowledged and then not there; with
//! the right disk all is as before.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use hulse_sdk::{Client, Offset, Reason, Start};
use tokio::time::timeout;

use super::numbers::{Counting, Place, all_there, check, read_all, read_until_error, send};
use super::report::report;
use super::server::{Server, copy, replace, restarted, run_within};

const PORT: u16 = 17_504;
const PATIENCE: Duration = Duration::from_secs(60);
const RECORDS: u64 = 300;

fn client(address: &str) -> Client {
    Client::builder(address).build().unwrap()
}

fn quick() -> [(&'static str, &'static str); 2] {
    [
        ("HULSE_BOOKIE__LOG_FILE_SIZE", "16MiB"),
        ("HULSE_BOOKIE__DISK_RESERVE", "1MiB"),
    ]
}

/// A server with records, its directory copied, then with more of them.
struct Past {
    server: Server,
    copies: tempfile::TempDir,
    kept: BTreeMap<u64, Place>,
}

impl Past {
    async fn new(port: u16) -> Self {
        let mut server = Server::start_with(port, &quick());
        let mut kept = Counting::begin(&client(&server.address()), "kept").await;
        kept.send_many(RECORDS, 100).await;
        kept.producer.flush().await.unwrap();
        server.kill();
        let copies = tempfile::tempdir().unwrap();
        copy(&server.data(), &copies.path().join("old"));
        server.restart();
        kept.send_many(RECORDS, 100).await;
        let kept = kept.finish().await;
        server.kill();
        copy(&server.data(), &copies.path().join("new"));
        Self {
            server,
            copies,
            kept,
        }
    }

    fn copy_of(&self, which: &str) -> std::path::PathBuf {
        self.copies.path().join(which)
    }

    /// Puts a part of a copy in its place; "": all of it.
    fn put_back(&self, which: &str, part: &str) {
        let (to, from) = (self.server.data(), self.copy_of(which));
        match part {
            "" => replace(&to, &from),
            part => replace(&to.join(part), &from.join(part)),
        }
    }
}

/// Why a server of this directory does not start.
fn refused(server: &Server) -> String {
    let data = server.data().display().to_string();
    let arguments = [
        "standalone",
        "--data",
        &data,
        "--grpc",
        &server.address(),
        "--http",
        &server.http(),
        "--kafka",
        "off",
    ];
    let output = run_within(Duration::from_secs(120), &arguments);
    let words = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(output.status.code(), Some(5), "{words}");
    words
}

/// All of it is old: the server is what it was then, and clients that knew more are told.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directory_put_back_as_a_whole_serves_what_it_was_and_clients_are_told() {
    let mut past = Past::new(PORT).await;
    past.server.restart();
    let client = client(&past.server.address());
    // A producer and a follower that live through it.
    let producer = client.producer("kept").build().await.unwrap();
    let sent = send(&producer, 600, 100, None).await.unwrap();
    assert_eq!(sent.await.unwrap().offset, Some(Offset(600)));
    let mut follower = client
        .reader("kept")
        .start(Start::Offset(Offset(600)))
        .build()
        .await
        .unwrap();
    assert_eq!(follower.next().await.unwrap().unwrap().offset, Offset(600));
    past.server.kill();
    past.put_back("old", "");
    past.server.restart();
    let old: BTreeMap<u64, Place> = past
        .kept
        .range(..RECORDS)
        .map(|(number, place)| (*number, *place))
        .collect();
    all_there(&client, "kept", &old).await;
    let told = timeout(PATIENCE, follower.next())
        .await
        .unwrap()
        .unwrap_err();
    assert_eq!(told.reason(), Some(Reason::OffsetOutOfRange), "{told}");
    // The old producer's record is stored or refused, never acknowledged and lost.
    let mut expected = old.clone();
    let mut failed = BTreeMap::new();
    match timeout(PATIENCE, send(&producer, 601, 100, None).await.unwrap())
        .await
        .unwrap()
    {
        Ok(receipt) => drop(expected.insert(601, (0, receipt.offset.unwrap().0))),
        Err(error) => {
            report(&format!(
                "old directory: the producer of the time after it: {error}"
            ));
            failed.insert(601, error);
        }
    }
    let next = client.producer("kept").build().await.unwrap();
    for number in 1_000..1_100 {
        let receipt = send(&next, number, 100, None).await.unwrap().await.unwrap();
        expected.insert(number, (0, receipt.offset.unwrap().0));
    }
    check(&expected, &failed, &read_all(&client, "kept").await, true);
    past.server.wait_well();
}

/// The log is older than metadata remember: what was open is in limbo, and nothing is taken for it that is not proven.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn older_disk_under_newer_metadata_is_told_and_serves_nothing_wrong() {
    let mut past = Past::new(PORT + 2).await;
    let address = past.server.address();
    past.put_back("old", "bookie");
    past.server.restart();
    let client = client(&address);
    assert!(
        past.server.log().contains("older than metadata remember"),
        "{}",
        past.server.log()
    );
    let (found, error) = read_until_error(&client, "kept").await;
    let error = error.expect("half of the records are missing");
    assert_eq!(error.reason(), Some(Reason::DataDamaged), "{error}");
    assert!(error.to_string().contains("accept-loss"), "{error}");
    for (place, number) in &found {
        assert_eq!(past.kept.get(number), Some(place));
    }
    let said = past.server.doctor();
    assert!(
        said.contains("DOCTOR-11") && said.contains("DOCTOR-13"),
        "{said}"
    );
    // Others are not hindered.
    let mut other = Counting::begin(&client, "other").await;
    other.send_many(50, 100).await;
    let other = other.finish().await;
    all_there(&client, "other", &other).await;
    past.server.kill();
    past.put_back("new", "bookie");
    past.server.restart();
    // Another life of this disk was there in between; only an operator knows which of the two was the right one.
    let (_, error) = read_until_error(&client, "kept").await;
    if let Some(error) = error {
        assert_eq!(error.reason(), Some(Reason::DataDamaged), "{error}");
        accept_losses(&past.server, "kept");
    }
    all_there(&client, "kept", &past.kept).await;
    let (found, error) = read_until_error(&client, "other").await;
    assert!(
        error.is_some() && found.is_empty(),
        "records of the other life cannot be here"
    );
}

/// The operator's word, for each ledger of the topic that is not closed.
fn accept_losses(server: &Server, topic: &str) {
    let listed = server.hulse(&["ledgers", "list", topic, "-j"], "");
    let listed: serde_json::Value = serde_json::from_slice(&listed.stdout).unwrap();
    for ledger in listed.as_array().unwrap() {
        if ledger["state"] == "closed" {
            continue;
        }
        let id = ledger["ledger"].to_string();
        let output = server.hulse(&["ledgers", "accept-loss", &id, "--yes"], "");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// Metadata that are older than the log would give numbers twice: refused, and with the right ones nothing is missing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn older_metadata_under_a_newer_disk_are_refused() {
    let mut past = Past::new(PORT + 4).await;
    past.put_back("old", "metadata");
    let words = refused(&past.server);
    assert!(
        words.contains("metadata are older than this disk"),
        "{words}"
    );
    past.put_back("new", "metadata");
    past.server.restart();
    let client = client(&past.server.address());
    all_there(&client, "kept", &past.kept).await;
    let mut more = Counting::begin(&client, "more").await;
    more.send_many(50, 100).await;
    let more = more.finish().await;
    all_there(&client, "more", &more).await;
}

/// A directory that is copied while its server writes: each of the two servers has a whole history, or says that its has not.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn directory_copied_while_its_server_writes_is_served_rightly_or_not_at_all() {
    let server = Server::start_with(PORT + 6, &quick());
    let client_of_first = client(&server.address());
    let mut kept = Counting::begin(&client_of_first, "kept").await;
    let (mut served, mut told) = (0, 0);
    for round in 0..super::report::rounds(3, 20) {
        kept.send_many(500, 100).await;
        kept.producer.flush().await.unwrap();
        let sure = kept.next;
        let copying = {
            let (from, to) = (server.data(), tempfile::tempdir().unwrap());
            tokio::task::spawn_blocking(move || {
                copy(&from, &to.path().join("data"));
                to
            })
        };
        while !copying.is_finished() {
            kept.send(100).await;
            tokio::time::sleep(Duration::from_micros(200)).await;
        }
        let copied = copying.await.unwrap();
        match second(
            &server,
            &copied.path().join("data"),
            (PORT + 8, round),
            sure,
        )
        .await
        {
            None => served += 1,
            Some(words) => {
                told += 1;
                report(&format!("directory copied while it is written: {words}"));
            }
        }
    }
    report(&format!(
        "directories copied while they are written: {} served: {served}",
        served + told
    ));
    let kept = kept.finish().await;
    all_there(&client_of_first, "kept", &kept).await;
    let server = restarted(server).await;
    all_there(&client(&server.address()), "kept", &kept).await;
}

/// Serves the copy beside the first server. Its words, where it says that something is missing.
async fn second(
    first: &Server,
    data: &Path,
    (port, round): (u16, usize),
    sure: u64,
) -> Option<String> {
    let mut second = Server::stopped_on(data, port, &quick());
    second.spawn();
    let waited = tokio::task::spawn_blocking(move || {
        let ready = second.is_ready_or_ended();
        (second, ready)
    });
    let (second, ready) = waited.await.unwrap();
    if !ready {
        let log = second.log();
        assert!(log.contains("HULSE-"), "it ended without a word: {log}");
        return Some(log);
    }
    let client_of_second = client(&second.address());
    let (found, error) = read_until_error(&client_of_second, "kept").await;
    assert!(
        found
            .iter()
            .map(|(_, number)| *number)
            .eq(0..found.len() as u64),
        "not a prefix"
    );
    if let Some(error) = error {
        assert_eq!(error.reason(), Some(Reason::DataDamaged), "{error}");
        return Some(error.to_string());
    }
    assert!(
        found.len() as u64 >= sure,
        "LOST: {} of {sure}",
        found.len()
    );
    // From here on they are two, and each keeps what it acknowledges.
    let topic = format!("only-{round}");
    let mut own = Counting::begin(&client_of_second, &topic).await;
    own.send_many(100, 100).await;
    let own = own.finish().await;
    all_there(&client_of_second, &topic, &own).await;
    let missing = client(&first.address())
        .admin()
        .describe_topic(&topic)
        .await;
    assert_eq!(missing.unwrap_err().reason(), Some(Reason::TopicNotFound));
    None
}
