//! What a server refuses to start on, and what a person reads then: what, why, and what to do.

use super::server::{Server, log_files, run_within};

const PORT: u16 = 17_480;

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn standalone(data: &std::path::Path, port: u16, more: &[&str]) -> (Option<i32>, String) {
    let grpc = format!("127.0.0.1:{port}");
    let http = format!("127.0.0.1:{}", port + 1);
    let data = data.to_str().unwrap();
    let arguments = [
        &[
            "standalone",
            "--data",
            data,
            "--grpc",
            &grpc,
            "--http",
            &http,
            "--kafka",
            "off",
        ],
        more,
    ]
    .concat();
    let output = run_within(std::time::Duration::from_secs(120), &arguments);
    (output.status.code(), text(&output.stderr))
}

#[test]
fn locked_directory_is_refused_while_the_first_server_lives_on() {
    let server = Server::start(PORT);
    let (code, words) = standalone(&server.data(), PORT + 2, &[]);
    assert_eq!(code, Some(5), "{words}");
    assert!(
        words.contains("HULSE-") && words.contains(server.data().to_str().unwrap()),
        "{words}"
    );
    assert!(server.hulse(&["topics", "list"], "").status.success());
}

#[test]
fn port_in_use_is_refused_with_its_number() {
    let server = Server::start(PORT + 4);
    let other = tempfile::tempdir().unwrap();
    let (code, words) = standalone(&other.path().join("data"), PORT + 4, &[]);
    assert!(code.is_some_and(|code| code != 0), "{words}");
    assert!(words.contains(&server.address()), "{words}");
}

#[test]
fn directory_that_cannot_be_written_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("a-file");
    std::fs::write(&file, "x").unwrap();
    let (code, words) = standalone(&file.join("data"), PORT + 6, &[]);
    assert!(code.is_some_and(|code| code != 0), "{words}");
    assert!(words.contains("a-file"), "{words}");
    // No permission stops root, but nobody makes a folder in /sys.
    let (code, words) = standalone(std::path::Path::new("/sys/hulse-data"), PORT + 6, &[]);
    assert_eq!(code, Some(4), "{words}");
    assert!(
        words.contains("/sys/hulse-data") && words.contains("--data"),
        "{words}"
    );
}

#[test]
fn disk_of_another_cell_is_refused() {
    let mut one = Server::start(PORT + 8);
    let mut two = Server::start(PORT + 10);
    one.kill();
    two.kill();
    std::fs::remove_dir_all(one.data().join("bookie")).unwrap();
    copy(&two.data().join("bookie"), &one.data().join("bookie"));
    let (code, words) = standalone(&one.data(), PORT + 8, &[]);
    assert_eq!(code, Some(5), "{words}");
    assert!(
        words.contains("cell") || words.contains("incarnation"),
        "{words}"
    );
}

#[test]
fn lost_disk_is_refused_and_not_formatted_again() {
    let mut server = Server::start(PORT + 12);
    assert!(server.hulse(&["produce", "lost"], "x\n").status.success());
    server.kill();
    std::fs::remove_dir_all(server.data().join("bookie")).unwrap();
    let (code, words) = standalone(&server.data(), PORT + 12, &[]);
    assert_eq!(code, Some(5), "{words}");
    assert!(words.contains("bookie"), "{words}");
}

#[test]
fn log_file_of_a_newer_version_is_refused() {
    let mut server = Server::start(PORT + 14);
    assert!(
        server
            .hulse(&["produce", "version"], "x\n")
            .status
            .success()
    );
    server.kill();
    let first = log_files(&server.data()).remove(0);
    let mut bytes = std::fs::read(&first).unwrap();
    // The header block: the version at 8, its checksum in the last four bytes.
    bytes[8] = 9;
    let crc = hulse_proto::entry::crc32c(&bytes[..4092]);
    bytes[4092..4096].copy_from_slice(&crc.to_le_bytes());
    std::fs::write(&first, bytes).unwrap();
    let (code, words) = standalone(&server.data(), PORT + 14, &[]);
    assert!(code.is_some_and(|code| code != 0), "{words}");
    assert!(
        words.contains(first.file_name().unwrap().to_str().unwrap()),
        "{words}"
    );
    assert!(words.contains("version"), "{words}");
}

/// A header that is nobody's, or a file cut before its header's end, is damage: the server runs, says so, and serves nothing of it.
#[test]
fn log_file_without_its_header_is_reported_and_not_served() {
    for (port, cut) in [(PORT + 18, false), (PORT + 20, true)] {
        let mut server = Server::start(port);
        assert!(
            server
                .hulse(&["produce", "headless"], "x\n")
                .status
                .success()
        );
        server.kill();
        let first = log_files(&server.data()).remove(0);
        let mut bytes = std::fs::read(&first).unwrap();
        bytes[..512].fill(0xee);
        if cut {
            bytes.clear();
        }
        std::fs::write(&first, bytes).unwrap();
        server.restart();
        assert!(server.log().contains("damage"), "{}", server.log());
        let consumed = server.hulse(
            &[
                "--timeout",
                "3s",
                "consume",
                "headless",
                "-o",
                "start",
                "-e",
            ],
            "",
        );
        assert!(
            !consumed.status.success(),
            "a damaged log was served as an empty one"
        );
        let words = text(&consumed.stderr);
        assert!(words.contains("accept-loss"), "{words}");
    }
}

#[test]
fn unknown_key_is_refused_with_the_nearest_right_one() {
    let folder = tempfile::tempdir().unwrap();
    let config = folder.path().join("hulse.toml");
    std::fs::write(&config, "[bookie]\nsnyc = \"off\"\n").unwrap();
    let (code, words) = standalone(
        &folder.path().join("data"),
        PORT + 16,
        &["--config", config.to_str().unwrap()],
    );
    assert_eq!(code, Some(2), "{words}");
    assert!(
        words.contains("bookie.snyc") && words.contains("bookie.sync"),
        "{words}"
    );
}

fn copy(from: &std::path::Path, to: &std::path::Path) {
    std::fs::create_dir_all(to).unwrap();
    for item in std::fs::read_dir(from).unwrap() {
        let item = item.unwrap();
        if item.file_type().unwrap().is_dir() {
            copy(&item.path(), &to.join(item.file_name()));
        } else {
            std::fs::copy(item.path(), to.join(item.file_name())).unwrap();
        }
    }
}
