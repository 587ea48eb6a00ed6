//! An etcd of one member or three, each a process.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::Duration;

use tempfile::TempDir;

use super::super::report::report;
use super::processes::Process;

/// A member that does not say in time who leads is not asked on.
const SAYS_WITHIN: Duration = Duration::from_secs(2);

/// An etcd.
pub(crate) struct Etcd {
    /// The only member, or the first.
    pub(crate) process: Process,
    others: Vec<Process>,
    /// Where clients reach each member.
    ports: Vec<u16>,
    _folder: TempDir,
}

impl Etcd {
    /// One member. Takes `port` and the next one. `None`, and a line in the report, when it is not installed.
    pub(crate) fn start(port: u16) -> Option<Self> {
        Self::of_members(&[port])
    }

    /// Three members; each takes one of these ports and the next one. Otherwise as [`Etcd::start`].
    pub(crate) fn start_three(ports: [u16; 3]) -> Option<Self> {
        Self::of_members(&ports)
    }

    fn of_members(ports: &[u16]) -> Option<Self> {
        if Command::new("etcd").arg("--version").output().is_err() {
            report("NOT RUN: clusters of processes: etcd is not on the PATH");
            return None;
        }
        let folder = tempfile::tempdir().expect("a temporary directory can be made");
        let peers: Vec<String> = ports
            .iter()
            .map(|port| format!("m{port}=http://127.0.0.1:{}", port + 1))
            .collect();
        let mut members: Vec<Process> = ports
            .iter()
            .map(|port| member(*port, &peers.join(","), &folder))
            .collect();
        for member in &mut members {
            member.spawn();
        }
        // None is healthy before there is a leader.
        for member in &mut members {
            member.wait_ready();
        }
        let process = members.remove(0);
        Some(Self {
            process,
            others: members,
            ports: ports.to_vec(),
            _folder: folder,
        })
    }

    /// As `--metadata` takes it.
    pub(crate) fn url(&self) -> String {
        let each = self.ports.iter();
        let each: Vec<_> = each
            .map(|port| format!("http://127.0.0.1:{port}"))
            .collect();
        each.join(",")
    }

    /// Where clients reach the first member.
    pub(crate) fn port(&self) -> u16 {
        self.ports[0]
    }

    /// A member by its number from 0.
    pub(crate) fn member(&mut self, index: usize) -> &mut Process {
        match index.checked_sub(1) {
            None => &mut self.process,
            Some(other) => &mut self.others[other],
        }
    }

    /// The member that leads, as it says itself.
    pub(crate) fn leader(&self) -> Option<usize> {
        (0..self.ports.len()).find(|index| leads(self.ports[*index]).unwrap_or(false))
    }
}

fn member(port: u16, peers: &str, folder: &TempDir) -> Process {
    let name = format!("m{port}");
    let client = format!("http://127.0.0.1:{port}");
    let peer = format!("http://127.0.0.1:{}", port + 1);
    let data = folder.path().join(&name).display().to_string();
    let arguments = [
        ["--name", &name],
        ["--data-dir", &data],
        ["--listen-client-urls", &client],
        ["--advertise-client-urls", &client],
        ["--listen-peer-urls", &peer],
        ["--initial-advertise-peer-urls", &peer],
        ["--initial-cluster", peers],
        ["--auto-compaction-mode", "periodic"],
        ["--auto-compaction-retention", "10m"],
        ["--logger", "zap"],
    ];
    let log = folder.path().join(format!("{name}.log"));
    let ready = (format!("127.0.0.1:{port}"), "/health");
    Process::new("etcd", &arguments.concat(), log, ready)
}

/// Whether the member at this port leads.
fn leads(port: u16) -> Option<bool> {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).ok()?;
    stream.set_read_timeout(Some(SAYS_WITHIN)).ok()?;
    stream
        .write_all(
            b"POST /v3/maintenance/status HTTP/1.0\r\nHost: etcd\r\nContent-Length: 2\r\n\r\n{}",
        )
        .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    let status: serde_json::Value = serde_json::from_str(answer.split("\r\n\r\n").nth(1)?).ok()?;
    Some(status["leader"] == status["header"]["member_id"])
}
