//! `verify`: topics with numbers, and directories of stopped nodes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::time::SystemTime;

use serde_json::Value;

use super::super::server::{Server, log_files, run};
use super::{PORT, done, json, text};

const PRODUCER: &str = "0189f7e8-0000-7000-8000-000000000001";

fn answer(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
        panic!(
            "{error}: {}\n{}",
            text(&output.stdout),
            text(&output.stderr)
        )
    })
}

#[test]
fn topic_of_numbered_records_is_verified_and_each_missing_one_is_named() {
    let server = Server::start(PORT + 70);
    done(&server, &["topics", "create", "numbered", "-p", "3"], "");
    let lines: String = (0..500).map(|number| format!("{number}\n")).collect();
    done(&server, &["produce", "numbered", "--number"], &lines);
    let clean = json(&server, &["verify", "numbered"]);
    assert_eq!(
        (clean["clean"].as_bool(), clean["numbered"].as_u64()),
        (Some(true), Some(500))
    );
    // Numbers as a producer stamps them, of which one never arrives and one arrives twice.
    let stamped: String = [0, 1, 3, 4, 4]
        .iter()
        .map(|number| format!("hulse-number={PRODUCER}/0/{number}\tv\n"))
        .collect();
    done(&server, &["produce", "holes", "-f", "%h\\t%v\\n"], &stamped);
    let output = server.hulse(&["verify", "holes", "-j"], "");
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    let told = answer(&output);
    assert_eq!(
        (told["missing"].as_u64(), told["duplicates"].as_u64()),
        (Some(1), Some(1))
    );
    let words = told["finding"].to_string();
    for part in [PRODUCER, "partition 0", "number 2", "1 at", "3 at"] {
        assert!(words.contains(part), "{part}: {words}");
    }
}

#[test]
fn numbers_that_went_with_a_trim_are_named_and_not_missed() {
    let server = Server::start(18_640);
    let lines: String = (0..100).map(|number| format!("{number}\n")).collect();
    done(&server, &["produce", "t", "--number"], &lines);
    let whole = server.hulse(&["verify", "t"], "");
    let told = text(&whole.stderr);
    assert!(
        told.contains("nothing is damaged or missing, from offset 0 up to 99 of partition 0; what came later was not looked at"),
        "{told}"
    );
    done(
        &server,
        &["topics", "trim", "t", "--before", "40", "--yes"],
        "",
    );
    let found = json(&server, &["verify", "t"]);
    assert_eq!(
        (found["clean"].as_bool(), found["missing"].as_u64()),
        (Some(true), Some(0))
    );
    assert_eq!(found["trimmed"][0]["first"], 0, "{found}");
    assert_eq!(found["trimmed"][0]["end"], 40, "{found}");
    let read = serde_json::json!([{"partition": 0, "first_offset": 40, "end_offset": 100}]);
    assert_eq!(found["read"], read);
    let shown = server.hulse(&["verify", "t"], "");
    let (table, told) = (text(&shown.stdout), text(&shown.stderr));
    assert!(
        table.contains("TRIMMED AWAY") && table.contains("0 to 39"),
        "{table}"
    );
    assert!(told.contains("from offset 40 up to 99"), "{told}");
    // An empty topic has nothing to be missing.
    done(&server, &["topics", "create", "empty"], "");
    let empty = text(&server.hulse(&["verify", "empty"], "").stderr);
    assert!(empty.contains("nothing is there"), "{empty}");
}

/// Every file below a folder: its length, time and content.
fn state(folder: &Path) -> BTreeMap<PathBuf, (SystemTime, Vec<u8>)> {
    let mut found = BTreeMap::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        for item in std::fs::read_dir(&folder).unwrap() {
            let path = item.unwrap().path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let time = std::fs::metadata(&path).unwrap().modified().unwrap();
            found.insert(path.clone(), (time, std::fs::read(&path).unwrap()));
        }
    }
    found
}

#[test]
fn directory_of_a_stopped_node_is_verified_without_a_change() {
    let settings = [("HULSE_BOOKIE__LOG_FILE_SIZE", "16MiB")];
    let mut server = Server::start_with(PORT + 72, &settings);
    let lines: String = (0..2_000)
        .map(|number| format!("{number:0>100}\n"))
        .collect();
    done(&server, &["produce", "t"], &lines);
    let data = server.data().display().to_string();
    let running = run(&["verify", &data, "-j"], "");
    assert_eq!(running.status.code(), Some(5), "{}", text(&running.stderr));
    assert!(
        text(&running.stderr).contains("HULSE-9102"),
        "{}",
        text(&running.stderr)
    );
    assert!(server.stop().success());
    let before = state(&server.data());
    let output = run(&["verify", &data, "-j"], "");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let told = answer(&output);
    assert_eq!(told["kind"], "directory");
    assert!(
        told["entries"].as_u64() > Some(0) && told["groups"].as_u64() > Some(0),
        "{told}"
    );
    let last = told["last_file"].as_str().unwrap();
    let spoken = text(&run(&["verify", &data], "").stderr);
    assert!(
        spoken.contains(&format!("of {last}, where the log ends")),
        "{spoken}"
    );
    assert_eq!(state(&server.data()), before);
    // One bit in the middle of the log.
    let file = log_files(&server.data()).remove(0);
    let mut bytes = std::fs::read(&file).unwrap();
    let at = bytes
        .windows(20)
        .position(|window| window == b"00000000000000000777")
        .unwrap();
    bytes[at] ^= 1;
    std::fs::write(&file, bytes).unwrap();
    let output = run(&["verify", &data, "-j"], "");
    assert_eq!(output.status.code(), Some(7), "{}", text(&output.stderr));
    let told = answer(&output);
    assert_eq!(told["finding"][0]["kind"], "damage", "{told}");
    // One bit of the files that say whose directory this is.
    for name in ["identity", "boot"] {
        let file = server.data().join("bookie").join(name);
        let whole = std::fs::read(&file).unwrap();
        let mut bytes = whole.clone();
        bytes[whole.len() / 2] ^= 1;
        std::fs::write(&file, bytes).unwrap();
        let told = answer(&run(&["verify", &data, "-j"], ""));
        let findings = told["finding"].as_array().unwrap();
        let found = findings
            .iter()
            .any(|f| f["object"] == name || f["object"].as_str().unwrap().ends_with(name));
        assert!(found, "{told}");
        std::fs::write(&file, whole).unwrap();
    }
    // A killed node is no damaged one.
    std::fs::remove_dir_all(server.data()).unwrap();
    server.restart();
    done(&server, &["produce", "t"], "a\nb\n");
    server.kill();
    let output = run(&["verify", &data, "-j"], "");
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}\n{}",
        text(&output.stdout),
        text(&output.stderr)
    );
}

#[test]
fn directory_that_is_no_nodes_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let output = run(&["verify", &folder.path().display().to_string()], "");
    assert_eq!(output.status.code(), Some(3), "{}", text(&output.stderr));
}
