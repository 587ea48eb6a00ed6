//! One `hulse standalone` as a user starts it: a process, a directory, two ports.

use std::io::Read;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

/// A server has this long to become ready; far above what it needs even on a busy machine.
const READY_WITHIN: Duration = Duration::from_secs(180);
/// And this long to answer; as far above.
const ANSWERS_WITHIN: Duration = Duration::from_secs(60);

/// And this long until nothing is wrong with it any more; as far above.
const WELL_WITHIN: Duration = Duration::from_secs(120);
/// What the doctor says of a disk whose syncs take long.
pub(crate) const SLOW_DISK: &str = "DOCTOR-08";

/// The program under test.
pub(crate) const HULSE: &str = env!("CARGO_BIN_EXE_hulse");

/// A server that is started, killed and started again on one directory.
pub(crate) struct Server {
    folder: TempDir,
    /// Where its data are; `None`: in the folder.
    volume: Option<PathBuf>,
    port: u16,
    child: Option<Child>,
    settings: Vec<(String, String)>,
}

impl Server {
    /// Starts on an empty directory. `port` is below the ephemeral range and belongs to one test; `port + 1` serves HTTP.
    pub(crate) fn start(port: u16) -> Self {
        Self::start_with(port, &[])
    }

    /// As [`Server::start`] with settings as the environment gives them, e.g. `("HULSE_BOOKIE__SYNC", "off")`.
    pub(crate) fn start_with(port: u16, settings: &[(&str, &str)]) -> Self {
        Self::start_on(None, port, settings)
    }

    /// As [`Server::start_with`], its data on a volume of their own.
    pub(crate) fn start_on(volume: Option<&Path>, port: u16, settings: &[(&str, &str)]) -> Self {
        let mut server = Self::stopped(port, settings);
        server.volume = volume.map(Path::to_owned);
        server.restart();
        server
    }

    /// One that is not started yet, on a directory that is there.
    pub(crate) fn stopped_on(data: &Path, port: u16, settings: &[(&str, &str)]) -> Self {
        let mut server = Self::stopped(port, settings);
        server.volume = Some(data.to_owned());
        server
    }

    fn stopped(port: u16, settings: &[(&str, &str)]) -> Self {
        let settings = settings.iter();
        Self {
            folder: tempfile::tempdir().expect("a temporary directory can be made"),
            volume: None,
            port,
            child: None,
            settings: settings
                .map(|(name, value)| (name.to_string(), value.to_string()))
                .collect(),
        }
    }

    /// Starts the process again on the same directory and waits until it is ready.
    pub(crate) fn restart(&mut self) {
        self.spawn();
        self.wait_ready();
    }

    /// Starts the process without waiting.
    pub(crate) fn spawn(&mut self) {
        let log = std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.folder.path().join("log"));
        let log = log.expect("the log can be written");
        let child = Command::new(HULSE)
            .arg("standalone")
            .arg("--data")
            .arg(self.data())
            .args(["--grpc", &self.address(), "--http", &self.http()])
            // One machine has one port 9092; a test that wants the Kafka wire names another.
            .env("HULSE_LISTEN__KAFKA", "off")
            // As tests/run has it for whatever else is started: how full this machine's disk is does not decide whether tests pass.
            .env("HULSE_BOOKIE__DISK_RESERVE", "1MiB")
            .envs(self.settings.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file handle can be cloned"))
            .stderr(log)
            .spawn()
            .expect("the binary can be started");
        self.child = Some(child);
    }

    /// Waits for `/readyz`.
    pub(crate) fn wait_ready(&mut self) {
        let began = Instant::now();
        while !self.is_ready() {
            let ended = self
                .child
                .as_mut()
                .and_then(|child| child.try_wait().expect("a child can be asked"));
            assert!(
                ended.is_none(),
                "server ended with {ended:?}:\n{}",
                self.log()
            );
            assert!(
                began.elapsed() < READY_WITHIN,
                "server is not ready:\n{}",
                self.log()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    fn is_ready(&self) -> bool {
        http_get(&self.http(), "/readyz").is_some_and(|answer| answer.starts_with("HTTP/1.1 200"))
    }

    /// Changes a setting for the next start.
    pub(crate) fn set(&mut self, (name, value): (&str, &str)) {
        self.settings.retain(|(known, _)| known != name);
        self.settings.push((name.to_owned(), value.to_owned()));
    }

    /// A stopped server on a copy of this one's directory.
    pub(crate) fn copied(&self, port: u16) -> Self {
        let copied = Self {
            folder: tempfile::tempdir().expect("a temporary directory can be made"),
            volume: None,
            port,
            child: None,
            settings: self.settings.clone(),
        };
        copy(&self.data(), &copied.data());
        copied
    }

    /// A gauge or counter.
    pub(crate) fn metric(&self, name: &str) -> u64 {
        let page = http_get(&self.http(), "/metrics").expect("a running server tells metrics");
        let value = page.lines().find_map(|line| {
            let rest = line.strip_prefix(name)?.strip_prefix(' ')?;
            rest.trim().parse::<f64>().ok()
        });
        value.unwrap_or_else(|| panic!("no metric {name}")) as u64
    }

    /// What `hulse doctor` says, as one text.
    pub(crate) fn doctor(&self) -> String {
        let output = run(
            &[
                "doctor",
                "--server",
                &self.address(),
                "--http",
                &self.http(),
            ],
            "",
        );
        String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr)
    }

    /// What the doctor finds, but for a slow disk: here it is as slow as the machine is busy.
    pub(crate) fn findings(&self) -> Vec<serde_json::Value> {
        let (server, http) = (self.address(), self.http());
        let words = ["doctor", "--server", &server, "--http", &http, "-j"];
        let found = run(&words, "").stdout;
        let found = serde_json::from_slice::<Vec<serde_json::Value>>(&found);
        let mut found = found.expect("the doctor answers with a list");
        found.retain(|finding| finding["code"] != SLOW_DISK);
        found
    }

    /// Waits until the doctor finds nothing wrong. Notes may stay: after a start no sealed file was checked yet.
    pub(crate) fn wait_well(&self) {
        let began = Instant::now();
        loop {
            let mut found = self.findings();
            found.retain(|finding| finding["weight"] != "note");
            if found.is_empty() {
                return;
            }
            assert!(began.elapsed() < WELL_WITHIN, "{found:?}");
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Waits for `/readyz` (true) or the end of the process.
    pub(crate) fn is_ready_or_ended(&mut self) -> bool {
        let began = Instant::now();
        loop {
            if self.is_ready() {
                return true;
            }
            let child = self.child.as_mut().expect("the server was started");
            if child.try_wait().expect("a child can be asked").is_some() {
                return false;
            }
            assert!(began.elapsed() < READY_WITHIN, "neither:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// It has ended by itself; what it said goes.
    pub(crate) fn forget(&mut self) {
        self.child = None;
        // The next start writes it anew.
        let _ = std::fs::remove_file(self.folder.path().join("log"));
    }

    /// Memory that the process holds, bytes.
    pub(crate) fn resident_bytes(&self) -> u64 {
        let pid = self.child.as_ref().expect("the server runs").id();
        let status = std::fs::read_to_string(format!("/proc/{pid}/statm"));
        let status = status.expect("a running process has a status");
        let pages: u64 = status
            .split(' ')
            .nth(1)
            .and_then(|pages| pages.parse().ok())
            .expect("the second number is of pages");
        pages * 4096
    }

    /// SIGKILL, and wait until the process is gone.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().expect("the server runs");
        child.kill().expect("a child can be killed");
        child.wait().expect("a killed child ends");
    }

    /// SIGTERM, and wait for the end.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("the server runs");
        let pid = child.id().to_string();
        let sent = Command::new("kill")
            .args(["-TERM", &pid])
            .status()
            .expect("kill can be run");
        assert!(sent.success());
        child.wait().expect("a child ends")
    }

    /// "host:port" of gRPC.
    pub(crate) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// "host:port" of HTTP.
    pub(crate) fn http(&self) -> String {
        format!("127.0.0.1:{}", self.port + 1)
    }

    /// Its data directory.
    pub(crate) fn data(&self) -> PathBuf {
        let own = || self.folder.path().join("data");
        self.volume.clone().unwrap_or_else(own)
    }

    /// What it has said.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Runs a client command against it.
    pub(crate) fn hulse(&self, arguments: &[&str], input: &str) -> Output {
        run(&[&["--server", &self.address()], arguments].concat(), input)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            eprintln!("--- server log ---\n{}", self.log());
        }
    }
}

/// Runs the program to its end.
pub(crate) fn run(arguments: &[&str], input: &str) -> Output {
    use std::io::Write;
    let mut child = Command::new(HULSE)
        .args(arguments)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the binary can be started");
    let mut stdin = child.stdin.take().expect("stdin is a pipe");
    // A command that refuses its arguments does not read.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().expect("the command ends")
}

/// As [`run`] without input, but ends a program that does not end by itself: it then has no exit code.
pub(crate) fn run_within(limit: Duration, arguments: &[&str]) -> Output {
    let mut command = Command::new(HULSE);
    command
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("the binary can be started");
    let began = Instant::now();
    while child.try_wait().expect("a child can be asked").is_none() {
        if began.elapsed() > limit {
            child.kill().expect("a child can be killed");
            break;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    child.wait_with_output().expect("the command ends")
}

/// A plain HTTP GET; `None` when nobody answers.
pub(crate) fn http_get(address: &str, path: &str) -> Option<String> {
    use std::io::Write;
    let mut stream = TcpStream::connect(address).ok()?;
    stream.set_read_timeout(Some(ANSWERS_WITHIN)).ok()?;
    write!(
        stream,
        "GET {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n"
    )
    .ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    Some(answer)
}

/// Copies a folder, whose files may grow or go meanwhile.
pub(crate) fn copy(from: &Path, to: &Path) {
    let output = Command::new("cp")
        .args(["-r", "--sparse=always"])
        .args([from, to])
        .output()
        .expect("cp can be run");
    let words = String::from_utf8_lossy(&output.stderr);
    let gone = words.lines().all(|line| line.contains("No such file"));
    assert!(output.status.success() || gone, "{words}");
}

/// Puts a copy in the place of a folder.
pub(crate) fn replace(folder: &Path, by: &Path) {
    std::fs::remove_dir_all(folder).expect("a stopped server's folder can be removed");
    copy(by, folder);
}

/// Restarts without blocking the runtime.
pub(crate) async fn restarted(mut server: Server) -> Server {
    let restarted = tokio::task::spawn_blocking(move || {
        server.kill();
        server.restart();
        server
    });
    restarted.await.expect("the server starts again")
}

/// The log files of the bookie, oldest first.
pub(crate) fn log_files(data: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![data.join("bookie")];
    while let Some(folder) = folders.pop() {
        for item in std::fs::read_dir(&folder).expect("the bookie's folder can be read") {
            let path = item.expect("a folder can be listed").path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "log") {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}
