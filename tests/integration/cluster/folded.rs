//! `hulse standalone --brokers N --bookies N`: a cluster in one process.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::super::server::{HULSE, http_get, run};
use super::owners::{check, client_at, owners, producer, runtime, send, topic};
use super::processes::Process;

const PORT: u16 = 18_420;
const HTTP: u16 = 18_424;
/// Of a server of two brokers: their ports, those of their HTTP, and of their Kafka listeners.
const BROKERS: u16 = 18_900;
const BROKERS_HTTP: u16 = 18_905;
const BROKERS_KAFKA: u16 = 18_920;

/// A server that is not started yet.
fn server(data: &Path, more: &[&str]) -> Process {
    let (grpc, http) = (format!("127.0.0.1:{PORT}"), format!("127.0.0.1:{HTTP}"));
    let data = data.display().to_string();
    let mut arguments = vec!["standalone", "--data", &data];
    arguments.extend(["--grpc", &grpc, "--http", &http, "--kafka", "off"]);
    arguments.extend(more);
    let log = Path::new(&data).with_extension("log");
    let mut server = Process::new(HULSE, &arguments, log, (http.clone(), "/readyz"));
    server.set("HULSE_BOOKIE__LOG_FILE_SIZE", "32MiB");
    server
}

fn hulse(arguments: &[&str], input: &str) -> String {
    let at = format!("127.0.0.1:{PORT}");
    let output = run(&[&["--server", &at], arguments].concat(), input);
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Starts a process that must refuse to, with these words.
fn refused(mut process: Process, words: &str) {
    process.spawn();
    let status = process.ended();
    assert_eq!(status.code(), Some(5), "{}", process.log());
    assert!(process.log().contains(words), "{words}: {}", process.log());
}

#[test]
fn three_bookies_in_one_process_keep_three_copies_over_kills_and_a_lost_disk() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let mut first = server(&data, &["--bookies", "3"]);
    first.start();
    let log = first.log();
    for words in [
        "1 broker, 3 bookies",
        "3 copies of each record, answered when 2",
    ] {
        assert!(log.contains(words), "{log}");
    }
    for bookie in 0..3 {
        let at = format!("127.0.0.1:{}", HTTP + 10 + bookie);
        let ready = http_get(&at, "/readyz").unwrap();
        assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
    }
    let numbers: String = (0..2_000).map(|number| format!("{number}\n")).collect();
    hulse(&["produce", "counted", "--number"], &numbers);
    let ledgers = hulse(&["ledgers", "list", "counted", "-j"], "");
    for bookie in ["bookie-1", "bookie-2", "bookie-3"] {
        assert!(ledgers.contains(bookie), "{ledgers}");
    }
    first.kill();

    // The directory knows how many there are, and keeps to it.
    refused(server(&data, &["--bookies", "2"]), "holds 3 bookies, not 2");
    refused(server(&data, &["--bookies", "1"]), "holds 3 bookies, not 1");
    let mut again = server(&data, &[]);
    again.start();
    assert!(
        again.log().contains("1 broker, 3 bookies"),
        "{}",
        again.log()
    );
    hulse(&["produce", "counted", "--number"], &numbers);
    let verified = hulse(&["verify", "counted", "-j"], "");
    assert!(verified.contains("4000"), "{verified}");
    let stopped = again.stop();
    assert!(stopped.success(), "{stopped} {}", again.log());

    // One more bookie: what is there stays as it was.
    let mut more = server(&data, &["--bookies", "4"]);
    more.start();
    assert!(hulse(&["verify", "counted", "-j"], "").contains("4000"));
    assert!(more.stop().success());

    // A disk that is gone is told, and its bookie is not begun anew in silence.
    std::fs::remove_dir_all(data.join("bookie-2")).unwrap();
    refused(server(&data, &[]), "the disk is lost");
}

#[test]
fn directory_of_one_bookie_is_not_made_one_of_three() {
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let (grpc, http) = (
        format!("127.0.0.1:{}", PORT + 8),
        format!("127.0.0.1:{}", PORT + 9),
    );
    let places = ["--grpc", &grpc, "--http", &http];
    let mut one = Process::new(
        HULSE,
        &[
            &[
                "standalone",
                "--kafka",
                "off",
                "--data",
                &data.display().to_string(),
            ][..],
            &places,
        ]
        .concat(),
        data.with_extension("log"),
        (http.clone(), "/readyz"),
    );
    one.set("HULSE_BOOKIE__LOG_FILE_SIZE", "32MiB");
    one.start();
    assert!(one.stop().success());
    refused(server(&data, &["--bookies", "3"]), "holds 1 bookie, not 3");
}

fn at(port: u16) -> String {
    format!("127.0.0.1:{port}")
}

/// A server of the data directory `data` that is not started yet.
fn brokers(data: &Path, more: &[&str]) -> Process {
    let (grpc, http, kafka) = (at(BROKERS), at(BROKERS_HTTP), at(BROKERS_KAFKA));
    let data_dir = data.display().to_string();
    let mut arguments = vec!["standalone", "--data", &data_dir];
    arguments.extend(["--grpc", &grpc, "--http", &http, "--kafka", &kafka]);
    arguments.extend(more);
    let log = data.with_extension("log");
    let mut server = Process::new(HULSE, &arguments, log, (http.clone(), "/readyz"));
    server.set("HULSE_BOOKIE__LOG_FILE_SIZE", "32MiB");
    server
}

/// Ends it in order, and soon.
fn stop(mut server: Process) {
    let began = Instant::now();
    let status = server.stop();
    assert!(status.success(), "{status} {}", server.log());
    assert!(
        began.elapsed() < Duration::from_secs(10),
        "{}",
        server.log()
    );
}

/// One at a time, for both have the same ports.
static TURN: Mutex<()> = Mutex::new(());

fn turn() -> MutexGuard<'static, ()> {
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

#[test]
fn two_brokers_in_one_process_share_the_partitions_over_kills_and_starts() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let many = ["--brokers", "2", "--bookies", "3"];
    let mut server = brokers(&data, &many);
    server.start();
    let second_at = format!(
        "broker 2 grpc://{}    kafka {}    health http://{}/readyz",
        at(BROKERS + 1),
        at(BROKERS_KAFKA + 1),
        at(BROKERS_HTTP + 1)
    );
    for words in ["2 brokers, 3 bookies", &second_at] {
        assert!(server.log().contains(words), "{}", server.log());
    }
    let ready = http_get(&at(BROKERS_HTTP + 1), "/readyz").unwrap();
    assert!(ready.starts_with("HTTP/1.1 200"), "{ready}");
    // The others of its cell go with it.
    for http in [BROKERS_HTTP, BROKERS_HTTP + 1, BROKERS_HTTP + 10] {
        let stop = http_get(&at(http), "/readyz/stop").unwrap();
        let no = stop.starts_with("HTTP/1.1 503") && stop.contains("in one process");
        assert!(no, "{http}: {stop}");
    }
    let runtime = runtime();
    let (first, second) = (client_at(&at(BROKERS)), client_at(&at(BROKERS + 1)));
    let both = BTreeSet::from([at(BROKERS), at(BROKERS + 1)]);
    let sent = runtime.block_on(async {
        topic(&first, "shared").await;
        let producer = producer(&second, "shared").await;
        send(&producer, 1_200).await;
        check(&first, "shared", 1_200).await;
        assert_eq!(owners(&second, "shared").await, both);
        producer
    });
    let sending = {
        let producer = sent.clone();
        runtime.spawn(async move { send(&producer, 12_000).await })
    };
    std::thread::sleep(Duration::from_millis(50));
    server.kill();
    server.start();
    runtime.block_on(async {
        sending.await.unwrap();
        sent.close().await.unwrap();
        for client in [&first, &second] {
            check(client, "shared", 13_200).await;
        }
        // Nobody was alone for a moment, and took all of them.
        assert_eq!(owners(&first, "shared").await, both);
    });
    stop(server);

    // A broker keeps nothing, so there may be another number of them each time.
    let mut one = brokers(&data, &[]);
    one.start();
    assert!(one.log().contains("1 broker, 3 bookies"), "{}", one.log());
    runtime.block_on(async {
        check(&first, "shared", 13_200).await;
        assert_eq!(
            owners(&first, "shared").await,
            BTreeSet::from([at(BROKERS)])
        );
    });
    stop(one);
}

#[test]
fn directory_of_one_bookie_may_have_several_brokers_for_a_while() {
    let _turn = turn();
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path().join("data");
    let runtime = runtime();
    let client = client_at(&at(BROKERS));
    for (round, more) in [&[][..], &["--brokers", "2"], &[]].into_iter().enumerate() {
        let mut server = brokers(&data, more);
        server.start();
        runtime.block_on(async {
            if round == 0 {
                topic(&client, "kept").await;
            }
            let producer = producer(&client, "kept").await;
            send(&producer, 600).await;
            producer.close().await.unwrap();
            check(&client, "kept", 600 * (round as u64 + 1)).await;
        });
        stop(server);
    }
}
