//! `hulse standalone --bookies N`: a cluster of bookies in one process.

use std::path::Path;

use super::super::server::{HULSE, http_get, run};
use super::processes::Process;

const PORT: u16 = 18_420;
const HTTP: u16 = 18_424;

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
