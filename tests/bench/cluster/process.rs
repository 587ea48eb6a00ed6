//! One process of the cluster: started, killed, started again, and asked what it has used.

use std::fs::OpenOptions;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::Context as _;

use super::super::server::{is_ready, metric, processor_seconds};

/// A process has this long to become ready; one that was killed gets its name back when its lease has ended.
const READY_WITHIN: Duration = Duration::from_secs(40);

/// A bookie or a broker.
pub(crate) struct Process {
    arguments: Vec<String>,
    settings: Vec<(String, String)>,
    log: PathBuf,
    http: String,
    child: Option<Child>,
}

impl Process {
    /// One that is not started yet. Its settings are as the environment has them.
    pub(crate) fn new(
        arguments: Vec<String>,
        settings: &[(String, String)],
        log: PathBuf,
        http: String,
    ) -> Self {
        Self {
            arguments,
            settings: settings.to_vec(),
            log,
            http,
            child: None,
        }
    }

    /// Starts it, and waits until it is ready.
    pub(crate) fn start(&mut self) -> anyhow::Result<()> {
        let log = OpenOptions::new()
            .create(true)
            .append(true)
            .open(&self.log)?;
        let child = self.command(&self.arguments).stderr(log).spawn()?;
        self.child = Some(child);
        let began = Instant::now();
        while !is_ready(&self.http) {
            anyhow::ensure!(
                began.elapsed() < READY_WITHIN,
                "it does not become ready, see {}",
                self.log.display()
            );
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }

    /// Runs the binary with other words and the same settings, to its end.
    pub(crate) fn run(&self, words: &[String]) -> anyhow::Result<()> {
        let status = self.command(words).stderr(Stdio::null()).status()?;
        anyhow::ensure!(status.success(), "`hulse {}` failed", words.join(" "));
        Ok(())
    }

    pub(crate) fn arguments(&self) -> &[String] {
        &self.arguments
    }

    fn command(&self, words: &[String]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_hulse"));
        command
            .args(words)
            .envs(self.settings.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(Stdio::null());
        command
    }

    /// SIGKILL, and when it was sent.
    pub(crate) fn kill(&mut self) -> anyhow::Result<Instant> {
        let mut child = self.child.take().context("it does not run")?;
        let killed = Instant::now();
        child.kill()?;
        child.wait()?;
        Ok(killed)
    }

    /// Processor seconds used since its start.
    pub(crate) fn processor_seconds(&self) -> anyhow::Result<f64> {
        let child = self.child.as_ref().context("it does not run")?;
        processor_seconds(child.id())
    }

    /// A value of its `/metrics`.
    pub(crate) fn metric(&self, name: &str) -> anyhow::Result<f64> {
        metric(&self.http, name)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
    }
}
