//! The real binary, built with this profile.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::slow_disk::SlowDisk;

/// gRPC; HTTP is one above. Below the ephemeral range.
const PORT: u16 = 19_400;

/// A running server on a directory of its own, removed at the end.
pub(crate) struct Server {
    child: Child,
    data: PathBuf,
    /// The data outlive this value.
    kept: bool,
    /// From exec to the first good answer of `/readyz`.
    pub(crate) ready_after: Duration,
}

impl Server {
    pub(crate) fn start(folder: &Path, sync: &str) -> anyhow::Result<Self> {
        Self::run(Command::new(env!("CARGO_BIN_EXE_hulse")), folder, sync)
    }

    /// Starts it in a group of processes whose writes are slowed.
    pub(crate) fn start_on(disk: &SlowDisk, folder: &Path, sync: &str) -> anyhow::Result<Self> {
        let mut command = Command::new("sh");
        command
            .arg("-c")
            .arg("echo $$ > \"$0\" && exec \"$@\"")
            .arg(disk.processes())
            .arg(env!("CARGO_BIN_EXE_hulse"));
        Self::run(command, folder, sync)
    }

    fn run(mut command: Command, folder: &Path, sync: &str) -> anyhow::Result<Self> {
        let data = folder.join("data");
        let began = Instant::now();
        let child = command
            .arg("standalone")
            .arg("--data")
            .arg(&data)
            .args([
                "--grpc",
                &Self::address(),
                "--http",
                &http(),
                "--kafka",
                "off",
                "--sync",
                sync,
            ])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(folder.join("server.log"))?)
            .spawn()?;
        let mut server = Self {
            child,
            data,
            kept: false,
            ready_after: Duration::ZERO,
        };
        while !ready() {
            anyhow::ensure!(
                began.elapsed() < Duration::from_secs(20),
                "server does not become ready"
            );
            std::thread::sleep(Duration::from_millis(1));
        }
        server.ready_after = began.elapsed();
        Ok(server)
    }

    /// SIGKILL. The data stay for a next start in the same folder.
    pub(crate) fn kill_and_keep(mut self) {
        self.kept = true;
    }

    pub(crate) fn address() -> String {
        format!("127.0.0.1:{PORT}")
    }

    /// Resident memory, MB.
    pub(crate) fn resident(&self) -> anyhow::Result<f64> {
        memory(&self.child.id().to_string(), "VmRSS:")
    }

    /// The most that ever was resident, MB.
    pub(crate) fn peak_resident(&self) -> anyhow::Result<f64> {
        memory(&self.child.id().to_string(), "VmHWM:")
    }

    /// Bytes that the process had fetched from storage devices so far.
    pub(crate) fn device_read_bytes(&self) -> anyhow::Result<u64> {
        self.device_bytes("read_bytes:")
    }

    /// Bytes that the process had sent towards storage devices so far.
    pub(crate) fn device_written_bytes(&self) -> anyhow::Result<u64> {
        self.device_bytes("write_bytes:")
    }

    fn device_bytes(&self, name: &str) -> anyhow::Result<u64> {
        let io = std::fs::read_to_string(format!("/proc/{}/io", self.child.id()))?;
        let line = io.lines().find_map(|line| line.strip_prefix(name));
        Ok(line.context("no such line")?.trim().parse()?)
    }

    /// A counter of `/metrics`, by its whole name.
    pub(crate) fn counter(&self, name: &str) -> anyhow::Result<u64> {
        Ok(metric(&http(), name)? as u64)
    }

    /// Processor seconds used so far.
    pub(crate) fn processor_seconds(&self) -> anyhow::Result<f64> {
        processor_seconds(self.child.id())
    }
}

/// Processor seconds that a process has used so far.
pub(crate) fn processor_seconds(process: u32) -> anyhow::Result<f64> {
    let stat = std::fs::read_to_string(format!("/proc/{process}/stat"))?;
    let fields: Vec<&str> = stat
        .rsplit(')')
        .next()
        .unwrap_or_default()
        .split_whitespace()
        .collect();
    let ticks: f64 = fields[11].parse::<f64>()? + fields[12].parse::<f64>()?;
    Ok(ticks / 100.0)
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        if !self.kept {
            let _ = std::fs::remove_dir_all(&self.data);
        }
    }
}

/// A line of a process's status, MB; `self` names this process.
pub(crate) fn memory(process: &str, line: &str) -> anyhow::Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"))?;
    let found = status.lines().find_map(|found| found.strip_prefix(line));
    let kilobytes: f64 = found
        .unwrap_or("0")
        .trim()
        .trim_end_matches(" kB")
        .parse()?;
    Ok(kilobytes * 1024.0 / 1e6)
}

fn http() -> String {
    format!("127.0.0.1:{}", PORT + 1)
}

fn ready() -> bool {
    is_ready(&http())
}

/// Whether `/readyz` of a process says so.
pub(crate) fn is_ready(at: &str) -> bool {
    page(at, "/readyz").is_ok_and(|answer| answer.starts_with("HTTP/1.1 200"))
}

/// A value of a process's `/metrics`, by its whole name.
pub(crate) fn metric(at: &str, name: &str) -> anyhow::Result<f64> {
    let page = page(at, "/metrics")?;
    let found = page.lines().find_map(|line| {
        let (metric, value) = line.rsplit_once(' ')?;
        (metric == name).then_some(value)
    });
    Ok(found
        .with_context(|| format!("no metric {name}"))?
        .parse()?)
}

/// A page of a process's HTTP port, with its head.
fn page(at: &str, path: &str) -> anyhow::Result<String> {
    let mut stream = TcpStream::connect(at)?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"
    )?;
    let mut page = String::new();
    stream.read_to_string(&mut page)?;
    Ok(page)
}
