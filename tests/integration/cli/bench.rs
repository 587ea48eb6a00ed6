//! `bench produce --compression all`: a judgement on the user's own records.

use super::super::server::Server;
use super::{PORT, done, text};

#[test]
fn codecs_are_compared_on_the_users_records() {
    let server = Server::start(PORT + 80);
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("orders.jsonl");
    let orders = done(
        &server,
        &["generate", "demo-data", "-n", "4000", "--dry-run"],
        "",
    );
    std::fs::write(&file, orders).unwrap();
    let file = file.display().to_string();
    let words = [
        "bench",
        "produce",
        "--compression",
        "all",
        &file,
        "--duration",
        "600ms",
        "-j",
    ];
    let told = done(&server, &words, "");
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let codecs = told["codec"].as_array().unwrap();
    let names: Vec<&str> = codecs
        .iter()
        .map(|codec| codec["codec"].as_str().unwrap())
        .collect();
    assert_eq!(names, ["none", "lz4", "zstd", "gzip", "snappy"]);
    for codec in codecs {
        let ratio = codec["ratio"].as_f64().unwrap();
        match codec["codec"].as_str() {
            Some("none") => assert!(ratio < 1.0, "{codec}"),
            _ => assert!(ratio > 2.0, "{codec}"),
        }
        assert!(codec["records_per_second"].as_f64() > Some(0.0), "{codec}");
    }
    // The middle round of each, and the topic that was made for it is gone.
    for codec in codecs {
        assert!(codec["scatter"].as_f64() >= Some(0.0), "{codec}");
    }
    assert_eq!(
        done(&server, &["topics", "list", "--output", "name"], ""),
        ""
    );
    assert_eq!(told["sample_records"], 4000);
    let take = told["take"].as_str().unwrap();
    assert!(["none", "lz4", "zstd"].contains(&take), "{take}");
    let limit = told["limit"].as_str().unwrap();
    assert!(
        ["client", "bytes", "batches", "unknown"].contains(&limit),
        "{limit}"
    );
    let without = server.hulse(&["bench", "produce", "--compression", "all"], "");
    assert_eq!(without.status.code(), Some(2), "{}", text(&without.stderr));
}
