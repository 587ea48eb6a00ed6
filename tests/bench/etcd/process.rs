//! etcd on a loopback port with a directory of its own, with the settings that a cell is to have.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use bookie_metadata::{EtcdOptions, EtcdStore};
use serde_json::{Value, json};

use super::ask::ask;

/// Clients; peers one above. Below the ephemeral range.
pub(crate) const PORT: u16 = 19_410;
/// History that is kept: the time that a pinned listing or a lagging watch has.
pub(crate) const COMPACTION: &str = "10m";
/// Of every key, as a cell has it by default.
pub(crate) const PREFIX: &str = "hulse/";
/// etcd's own default, written out.
pub(crate) const QUOTA_BYTES: u64 = 2 << 30;

/// A running etcd, removed at the end.
pub(crate) struct Etcd {
    child: Child,
    data: PathBuf,
    port: u16,
    quota: u64,
}

/// Bytes of its file, and of those the ones in use.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Size {
    pub(crate) file: u64,
    pub(crate) used: u64,
}

impl Etcd {
    /// Its version, or `None` when it is not installed.
    pub(crate) fn version() -> Option<String> {
        let output = Command::new("etcd").arg("--version").output().ok()?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        Some(text.lines().next()?.to_owned())
    }

    /// Starts it at a port, peers at the next one, and waits until it answers.
    pub(crate) async fn start(data: PathBuf, port: u16, quota: u64) -> anyhow::Result<Self> {
        let etcd = Self {
            child: spawn(&data, port, quota)?,
            data,
            port,
            quota,
        };
        etcd.ready().await?;
        Ok(etcd)
    }

    /// `host:port` for clients.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// As `--metadata` takes it.
    pub(crate) fn url(&self) -> String {
        format!("http://{}", self.address())
    }

    /// The product's store, with the prefix that a cell has by default.
    pub(crate) fn store(&self) -> anyhow::Result<EtcdStore> {
        store_at(&self.url())
    }

    async fn ready(&self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        loop {
            let some_key = json!({ "key": "YQ==" });
            match self.ask("/v3/kv/range", some_key).await {
                Ok(_) => return Ok(began.elapsed()),
                Err(error) if began.elapsed() > Duration::from_secs(60) => {
                    return Err(error.context("etcd does not become ready"));
                }
                Err(_) => tokio::time::sleep(Duration::from_millis(5)).await,
            }
        }
    }

    /// Kills it and starts it again on the same directory; how long until it answers.
    pub(crate) async fn restart(&mut self) -> anyhow::Result<Duration> {
        self.child.kill()?;
        self.child.wait()?;
        self.child = spawn(&self.data, self.port, self.quota)?;
        self.ready().await
    }

    /// Asks something of the maintenance kind.
    pub(crate) async fn ask(&self, path: &str, body: Value) -> anyhow::Result<Value> {
        ask(&self.address(), path, &body).await
    }

    pub(crate) async fn size(&self) -> anyhow::Result<Size> {
        let answer = self.ask("/v3/maintenance/status", json!({})).await?;
        let number = |name: &str| -> anyhow::Result<u64> {
            let text = answer[name].as_str().context("status has no size")?;
            Ok(text.parse()?)
        };
        Ok(Size {
            file: number("dbSize")?,
            used: number("dbSizeInUse")?,
        })
    }

    /// The newest revision.
    pub(crate) async fn revision(&self) -> anyhow::Result<u64> {
        let answer = self.ask("/v3/maintenance/status", json!({})).await?;
        let text = answer["header"]["revision"].as_str();
        Ok(text.context("status has no revision")?.parse()?)
    }

    /// Forgets all history, and waits until its pages are free.
    pub(crate) async fn compact(&self) -> anyhow::Result<()> {
        let revision = self.revision().await?.to_string();
        let body = json!({ "revision": revision, "physical": true });
        self.ask("/v3/kv/compaction", body).await?;
        Ok(())
    }

    /// Writes its file anew without the free pages; it answers nobody meanwhile.
    pub(crate) async fn defragment(&self) -> anyhow::Result<Duration> {
        let began = Instant::now();
        self.ask("/v3/maintenance/defragment", json!({})).await?;
        Ok(began.elapsed())
    }

    /// Resident memory, MB.
    pub(crate) fn resident(&self) -> anyhow::Result<f64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .context("no VmRSS")?;
        let kilobytes: f64 = line.trim().trim_end_matches(" kB").parse()?;
        Ok(kilobytes * 1024.0 / 1e6)
    }
}

impl Drop for Etcd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = std::fs::remove_dir_all(&self.data);
    }
}

/// The product's store over an etcd at this URL.
pub(crate) fn store_at(url: &str) -> anyhow::Result<EtcdStore> {
    let options = EtcdOptions::new([url.to_owned()], PREFIX);
    Ok(EtcdStore::new(options)?)
}

fn spawn(data: &Path, port: u16, quota: u64) -> anyhow::Result<Child> {
    let client = format!("http://127.0.0.1:{port}");
    let peer = format!("http://127.0.0.1:{}", port + 1);
    let log = data.with_extension("log");
    Ok(Command::new("etcd")
        .args(["--name", "hulse", "--data-dir"])
        .arg(data)
        .args(["--listen-client-urls", &client])
        .args(["--advertise-client-urls", &client])
        .args(["--listen-peer-urls", &peer])
        .args(["--initial-advertise-peer-urls", &peer])
        .args(["--initial-cluster", &format!("hulse={peer}")])
        .args(["--quota-backend-bytes", &quota.to_string()])
        .args(["--auto-compaction-mode", "periodic"])
        .args(["--auto-compaction-retention", COMPACTION])
        .args(["--logger", "zap"])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(std::fs::File::create(log)?)
        .spawn()?)
}
