//! `charts/local/up` and `down`, as a newcomer uses them.

use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use super::super::report::report;
use super::super::server::HULSE;

const PORT: &str = "18100";
const SERVER: &str = "127.0.0.1:18100";

fn script(name: &str, data: &Path, more: &[&str]) -> Output {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("charts/local")
        .join(name);
    let output = Command::new(path)
        .arg("--data")
        .arg(data)
        .args(more)
        .env("HULSE", HULSE)
        .stdin(Stdio::null())
        .output();
    let output = output.unwrap();
    assert!(output.status.success(), "{name}: {output:?}");
    output
}

/// Ends what a failed test leaves.
struct Down<'a>(&'a Path);

impl Drop for Down<'_> {
    fn drop(&mut self) {
        script("down", self.0, &[]);
    }
}

#[test]
fn cluster_of_one_command_loses_nothing_when_its_processes_are_killed() {
    let missing = ["etcd", "curl", "ps", "setsid"]
        .into_iter()
        .find(|program| Command::new(program).arg("--version").output().is_err());
    if let Some(missing) = missing {
        report(&format!(
            "NOT RUN: charts/local: {missing} is not on the PATH"
        ));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let data = folder.path();
    let down = Down(data);
    script("up", data, &["--port", PORT]);
    let mut producing = Command::new(HULSE)
        .args(["--server", SERVER, "produce", "counted", "--number"])
        .stdin(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = producing.stdin.take().unwrap();
    let killed = [
        None,
        Some("bookie-2"),
        Some("broker-1"),
        Some("broker-2"),
        None,
    ];
    for (part, killed) in killed.iter().enumerate() {
        for line in 0..2_000 {
            writeln!(input, "part {part} line {line}").unwrap();
        }
        input.flush().unwrap();
        if let Some(name) = killed {
            let pid = std::fs::read_to_string(data.join(format!("{name}.pid"))).unwrap();
            let sent = Command::new("kill").args(["-KILL", pid.trim()]).status();
            assert!(sent.unwrap().success());
            script("up", data, &["--port", PORT]);
        }
    }
    drop(input);
    assert!(producing.wait().unwrap().success());
    let verified = Command::new(HULSE)
        .args(["--server", SERVER, "verify", "counted", "-j"])
        .output()
        .unwrap();
    assert!(verified.status.success(), "{verified:?}");
    let told = String::from_utf8_lossy(&verified.stdout).into_owned();
    let told: serde_json::Value = serde_json::from_str(&told).unwrap();
    let text = told.to_string();
    assert!(text.contains("10000"), "{text}");
    drop(down);
    let pids = std::fs::read_dir(data).unwrap();
    let pids = pids.filter(|item| {
        item.as_ref()
            .unwrap()
            .path()
            .extension()
            .is_some_and(|end| end == "pid")
    });
    assert_eq!(pids.count(), 0);
}
