//! etcd with a directory of its own on free ports.

use std::io::Write as _;
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tempfile::TempDir;

use crate::etcd::{EtcdOptions, EtcdStore};
use crate::store::MetadataStore;

/// A running etcd, killed at the end.
pub(super) struct Etcd {
    child: Child,
    directory: TempDir,
    ports: (u16, u16),
}

impl Etcd {
    /// Starts one and waits until it answers; `None`, and a line in the report, when it is not installed.
    pub(super) async fn start(quota_bytes: u64) -> Option<Self> {
        if Command::new("etcd").arg("--version").output().is_err() {
            not_run();
            return None;
        }
        let directory = tempfile::tempdir().unwrap();
        let ports = free_ports();
        let child = spawn(&directory, ports, quota_bytes);
        let etcd = Self {
            child,
            directory,
            ports,
        };
        etcd.answers().await;
        Some(etcd)
    }

    /// A store of its own in it.
    pub(super) fn store(&self, prefix: &str) -> EtcdStore {
        let mut options = EtcdOptions::new([self.address()], prefix);
        options.request_timeout = Duration::from_secs(30);
        EtcdStore::new(options).unwrap()
    }

    pub(super) fn address(&self) -> String {
        format!("http://127.0.0.1:{}", self.ports.0)
    }

    /// Stops it (`-STOP`) or lets it go on (`-CONT`).
    pub(super) fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        let sent = Command::new("kill").args([signal, &pid]).status();
        assert!(sent.unwrap().success());
    }

    pub(super) fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Starts a killed one again on its directory and ports.
    pub(super) async fn restart(&mut self, quota_bytes: u64) {
        self.child = spawn(&self.directory, self.ports, quota_bytes);
        self.answers().await;
    }

    async fn answers(&self) {
        let store = self.store("");
        for _ in 0..600 {
            if store.get("any").await.is_ok() {
                return;
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        let log = std::fs::read_to_string(self.directory.path().join("log"));
        panic!("etcd does not answer; it said {log:?}");
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn not_run() {
    println!("NOT RUN: etcd is not installed");
    let Some(report) = std::env::var_os("HULSE_TEST_REPORT") else {
        return;
    };
    let mut report = std::fs::OpenOptions::new()
        .create(true)
        .append(true)
        .open(report)
        .unwrap();
    writeln!(report, "NOT RUN: metadata in etcd: etcd is not on the PATH").unwrap();
}

/// Two ports that nobody uses now.
fn free_ports() -> (u16, u16) {
    let sockets = [(); 2].map(|()| TcpListener::bind("127.0.0.1:0").unwrap());
    let [client, peer] = sockets.map(|socket| socket.local_addr().unwrap().port());
    (client, peer)
}

fn spawn(directory: &TempDir, (client, peer): (u16, u16), quota_bytes: u64) -> Child {
    let client = format!("http://127.0.0.1:{client}");
    let peer = format!("http://127.0.0.1:{peer}");
    let log = std::fs::File::create(directory.path().join("log")).unwrap();
    Command::new("etcd")
        .args(["--name", "one", "--data-dir"])
        .arg(directory.path().join("data"))
        .args(["--listen-client-urls", &client])
        .args(["--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer])
        .args(["--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("one={peer}")])
        .args(["--quota-backend-bytes", &quota_bytes.to_string()])
        .args(["--logger", "zap"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap()
}
