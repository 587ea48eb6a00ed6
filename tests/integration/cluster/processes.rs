//! The processes of a cluster, each with its own folder, log and ports.

use std::fs::OpenOptions;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::super::server::{HULSE, http_get};
use super::etcd::Etcd;
use super::link::{Links, Way};

/// A process has this long to become ready: far above what it needs, also after a kill, when its name is free only with its lease.
const READY_WITHIN: Duration = Duration::from_secs(40);

/// One process that is started, killed and started again.
pub(crate) struct Process {
    program: String,
    arguments: Vec<String>,
    settings: Vec<(String, String)>,
    log: PathBuf,
    /// Where it says that it is ready: address and path.
    ready: (String, &'static str),
    child: Option<Child>,
}

impl Process {
    /// One that is not started yet.
    pub(crate) fn new(
        program: &str,
        arguments: &[&str],
        log: PathBuf,
        ready: (String, &'static str),
    ) -> Self {
        Self {
            program: program.to_owned(),
            arguments: arguments.iter().map(|&word| word.to_owned()).collect(),
            settings: Vec::new(),
            log,
            ready,
            child: None,
        }
    }

    /// Gives it a setting, as the environment has it.
    pub(crate) fn set(&mut self, name: &str, value: &str) {
        self.settings.push((name.to_owned(), value.to_owned()));
    }

    /// Gives it other words in place of a flag and its value.
    pub(crate) fn say(&mut self, flag: &str, words: &[&str]) {
        let at = self.arguments.iter().position(|word| word == flag);
        let at = at.expect("the flag was given");
        let words = words.iter().map(|&word| word.to_owned());
        self.arguments.splice(at..at + 2, words);
    }

    /// Gives a broker other ports: this one and the next.
    pub(crate) fn move_to(&mut self, port: u16) {
        for (flag, port) in [("--grpc", port), ("--http", port + 1)] {
            let at = self.arguments.iter().position(|word| word == flag);
            let at = at.expect("a broker has both flags");
            self.arguments[at + 1] = format!("127.0.0.1:{port}");
        }
    }

    /// Runs `hulse bookie WORD` on the directory of a bookie, to its end.
    pub(crate) fn make(&self, word: &str) -> Output {
        let [bookie, flags @ ..] = &self.arguments[..] else {
            panic!("a bookie has arguments");
        };
        let command = Command::new(&self.program)
            .args([bookie, word])
            .args(flags)
            .envs(self.settings.iter().map(|(name, value)| (name, value)))
            .output();
        command.expect("the binary can be started")
    }

    pub(crate) fn spawn(&mut self) {
        let log = OpenOptions::new().create(true).append(true).open(&self.log);
        let log = log.expect("the log can be written");
        let child = Command::new(&self.program)
            .args(&self.arguments)
            .envs(self.settings.iter().map(|(name, value)| (name, value)))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a file handle can be cloned"))
            .stderr(log)
            .spawn();
        self.child = Some(child.expect("the program can be started"));
    }

    pub(crate) fn wait_ready(&mut self) {
        let began = Instant::now();
        loop {
            let answer = http_get(&self.ready.0, self.ready.1);
            if answer.is_some_and(|answer| answer.starts_with("HTTP/1.1 200")) {
                return;
            }
            let child = self.child.as_mut().expect("it was started");
            let ended = child.try_wait().expect("a child can be asked");
            assert!(ended.is_none(), "it ended: {ended:?}\n{}", self.log());
            let waited = began.elapsed();
            assert!(waited < READY_WITHIN, "it is not ready:\n{}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub(crate) fn start(&mut self) {
        self.spawn();
        self.wait_ready();
    }

    /// SIGKILL, and wait until it is gone.
    pub(crate) fn kill(&mut self) {
        let mut child = self.child.take().expect("it runs");
        child.kill().expect("a child can be killed");
        child.wait().expect("a killed child ends");
    }

    /// SIGTERM, and wait for the end.
    pub(crate) fn stop(&mut self) -> ExitStatus {
        self.signal("-TERM");
        let mut child = self.child.take().expect("it runs");
        child.wait().expect("a child ends")
    }

    /// Waits for an end that it comes to by itself.
    pub(crate) fn ended(&mut self) -> ExitStatus {
        let mut child = self.child.take().expect("it runs");
        child.wait().expect("a child ends")
    }

    pub(crate) fn signal(&self, name: &str) {
        let pid = self.child.as_ref().expect("it runs").id().to_string();
        let sent = Command::new("kill").args([name, &pid]).status();
        assert!(sent.expect("kill can be run").success());
    }

    /// Its number, while it runs.
    pub(crate) fn pid(&self) -> Option<u32> {
        self.child.as_ref().map(Child::id)
    }

    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // It may have ended by itself.
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            eprintln!("--- {} ---\n{}", self.log.display(), self.log());
        }
    }
}

/// One process of a cluster, by its number from 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Node {
    Etcd,
    Bookie(usize),
    Broker(usize),
}

/// etcd, bookies and brokers. The bookies are `b1`, `b2`, ..; the brokers `broker-1`, ..
pub(crate) struct Cluster {
    pub(crate) bookies: Vec<Process>,
    pub(crate) brokers: Vec<Process>,
    pub(crate) etcd: Etcd,
    /// Through which they reach each other, where that can be cut.
    links: Option<Links>,
    /// Brokers reach each other, and are reached by clients, through links too.
    brokers_linked: bool,
    /// Of every bookie and broker.
    settings: Vec<(String, String)>,
    folder: TempDir,
    /// The first of forty.
    port: u16,
}

impl Cluster {
    /// Formats and starts so many bookies; `None` without etcd.
    pub(crate) fn start(port: u16, bookies: usize) -> Option<Self> {
        Self::start_with(port, bookies, &[])
    }

    /// The same, every bookie and broker with these settings, as the environment has them.
    pub(crate) fn start_with(port: u16, bookies: usize, settings: &[(&str, &str)]) -> Option<Self> {
        let etcd = Etcd::start(port)?;
        Some(Self::start_over(etcd, (port, bookies), None, settings))
    }

    /// The same, over an etcd of three members; the last of its ports is the fortieth.
    pub(crate) fn start_on_three(
        port: u16,
        bookies: usize,
        settings: &[(&str, &str)],
    ) -> Option<Self> {
        let etcd = Etcd::start_three([port, port + 36, port + 38])?;
        Some(Self::start_over(etcd, (port, bookies), None, settings))
    }

    /// As [`Cluster::start`], with at most four bookies and three brokers, between any two of which the network can be cut. Takes 27
    /// ports.
    pub(crate) fn start_linked(port: u16, bookies: usize) -> Option<Self> {
        Self::start_linked_with(port, bookies, &[])
    }

    /// As [`Cluster::start_linked`], every bookie and broker with these settings, as the environment has them.
    pub(crate) fn start_linked_with(
        port: u16,
        bookies: usize,
        settings: &[(&str, &str)],
    ) -> Option<Self> {
        let (etcd, links) = (Etcd::start(port)?, Some(Links::new()));
        Some(Self::start_over(etcd, (port, bookies), links, settings))
    }

    fn start_over(
        etcd: Etcd,
        (port, bookies): (u16, usize),
        links: Option<Links>,
        settings: &[(&str, &str)],
    ) -> Self {
        let mut cluster = Self {
            bookies: Vec::new(),
            brokers: Vec::new(),
            etcd,
            links,
            brokers_linked: false,
            folder: tempfile::tempdir().expect("a temporary directory can be made"),
            port,
            settings: settings
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
                .collect(),
        };
        for index in 0..bookies {
            let bookie = cluster.bookie(index);
            cluster.bookies.push(bookie);
            let formatted = cluster.format(index);
            assert!(formatted.status.success(), "{formatted:?}");
            cluster.bookies[index].spawn();
        }
        for bookie in &mut cluster.bookies {
            bookie.wait_ready();
        }
        cluster
    }

    /// Formats and starts one more bookie, which was made with the next number.
    pub(crate) fn add_bookie(&mut self, bookie: Process) {
        self.bookies.push(bookie);
        let index = self.bookies.len() - 1;
        let formatted = self.format(index);
        assert!(formatted.status.success(), "{formatted:?}");
        self.bookies[index].start();
    }

    /// From now on brokers that are added advertise links, so that they can be cut from each other. Takes three more ports, of which the
    /// last is the thirty-first.
    pub(crate) fn link_brokers(&mut self) {
        self.brokers_linked = true;
    }

    /// Starts one more broker.
    pub(crate) fn add_broker(&mut self) {
        let mut broker = self.broker(self.brokers.len());
        broker.start();
        self.brokers.push(broker);
    }

    /// A broker that was not started, with the name and the ports of this number.
    pub(crate) fn broker(&self, index: usize) -> Process {
        let http = format!("127.0.0.1:{}", self.broker_port(index) + 1);
        let name = format!("broker-{}", index + 1);
        let log = self.folder.path().join(format!("{name}.log"));
        let metadata = self.metadata_of(Node::Broker(index));
        let arguments = [
            "broker",
            "--name",
            &name,
            "--metadata",
            &metadata,
            "--grpc",
            &self.broker_address(index),
            "--http",
            &http,
            "--kafka",
            "off",
        ];
        let ready = (http.clone(), "/readyz");
        let mut broker = Process::new(HULSE, &arguments, log, ready);
        broker.settings.clone_from(&self.settings);
        if let Some(links) = self.links.as_ref().filter(|_| self.brokers_linked) {
            let link = self.link_to_broker(index);
            links.link(link, self.broker_port(index));
            broker.set("HULSE_LISTEN__ADVERTISE", &format!("127.0.0.1:{link}"));
        }
        broker
    }

    /// `hulse bookie format`, to its end.
    pub(crate) fn format(&self, index: usize) -> Output {
        self.bookies[index].make("format")
    }

    /// `hulse bookie replace`, to its end.
    pub(crate) fn replace(&self, index: usize) -> Output {
        self.bookies[index].make("replace")
    }

    /// A bookie that was not started, with the folder and the ports of this number.
    pub(crate) fn bookie(&self, index: usize) -> Process {
        self.bookie_at(&self.data(index), index, &format!("b{}", index + 1))
    }

    /// A bookie of this name in this folder, with the ports of this number.
    pub(crate) fn bookie_at(&self, data: &Path, index: usize, name: &str) -> Process {
        let port = self.port + 2 + 2 * u16::try_from(index).expect("a small number");
        let (calls, http) = (
            format!("127.0.0.1:{port}"),
            format!("127.0.0.1:{}", port + 1),
        );
        let data = data.display().to_string();
        let metadata = self.metadata_of(Node::Bookie(index));
        let arguments = [
            "bookie",
            "--name",
            name,
            "--data",
            &data,
            "--metadata",
            &metadata,
            "--listen",
            &calls,
            "--http",
            &http,
        ];
        let log = self.folder.path().join(format!("bookie-{index}.log"));
        let ready = (http.clone(), "/readyz");
        let mut bookie = Process::new(HULSE, &arguments, log, ready);
        // Several of them are on one disk.
        bookie.set("HULSE_BOOKIE__LOG_FILE_SIZE", "32MiB");
        for (name, value) in &self.settings {
            bookie.set(name, value);
        }
        if let Some(links) = &self.links {
            let link = self.link_to(index);
            links.link(link, port);
            let advertised = format!("127.0.0.1:{link}");
            bookie.set("HULSE_LISTEN__BOOKIE_ADVERTISE", &advertised);
        }
        bookie
    }

    /// Where a bookie tells metrics and health.
    pub(crate) fn bookie_http(&self, index: usize) -> String {
        let port = self.port + 3 + 2 * u16::try_from(index).expect("a small number");
        format!("127.0.0.1:{port}")
    }

    /// The port through which others reach a bookie.
    fn link_to(&self, bookie: usize) -> u16 {
        self.port + 10 + u16::try_from(bookie).expect("a small number")
    }

    /// The port through which others reach a broker.
    fn link_to_broker(&self, broker: usize) -> u16 {
        self.port + 28 + u16::try_from(broker).expect("a small number")
    }

    /// The port through which a process reaches etcd.
    fn link_to_etcd(&self, of: Node) -> u16 {
        let (first, index) = match of {
            Node::Bookie(index) => (14, index),
            Node::Broker(index) => (18, index),
            Node::Etcd => unreachable!("etcd has no link to itself"),
        };
        self.port + first + u16::try_from(index).expect("a small number")
    }

    /// `--metadata` of a process.
    fn metadata_of(&self, node: Node) -> String {
        let Some(links) = &self.links else {
            return self.etcd.url();
        };
        let port = self.link_to_etcd(node);
        links.link(port, self.etcd.port());
        format!("http://127.0.0.1:{port}")
    }

    pub(crate) fn process(&mut self, node: Node) -> &mut Process {
        match node {
            Node::Etcd => &mut self.etcd.process,
            Node::Bookie(index) => &mut self.bookies[index],
            Node::Broker(index) => &mut self.brokers[index],
        }
    }

    /// Nothing passes any more from `from` to `to`, until [`Cluster::heal`]; of a process that is not running, nothing passes anyway.
    pub(crate) fn cut_one_way(&mut self, from: Node, to: Node) {
        // Who of two dials is cut there, and on the way back: brokers and bookies dial etcd and bookies, brokers each other.
        self.cut_dialled(from, to, Way::There);
        self.cut_dialled(to, from, Way::Back);
    }

    /// Nothing passes any more between two processes, until [`Cluster::heal`].
    pub(crate) fn cut(&mut self, one: Node, other: Node) {
        self.cut_dialled(one, other, Way::Both);
        self.cut_dialled(other, one, Way::Both);
    }

    fn cut_dialled(&mut self, dialler: Node, listener: Node, way: Way) {
        let port = match (dialler, listener) {
            (Node::Broker(_), Node::Broker(index)) if self.brokers_linked => {
                self.link_to_broker(index)
            }
            (Node::Etcd, _) | (_, Node::Broker(_)) => return,
            (_, Node::Etcd) => self.link_to_etcd(dialler),
            (_, Node::Bookie(index)) => self.link_to(index),
        };
        let Some(pid) = self.process(dialler).pid() else {
            return;
        };
        let links = self.links.as_ref().expect("the cluster is linked");
        links.at(port).cut(pid, way);
    }

    /// Everything passes again.
    pub(crate) fn heal(&self) {
        self.links.as_ref().expect("the cluster is linked").heal();
    }

    /// Where its files are.
    pub(crate) fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// The data directory of a bookie.
    pub(crate) fn data(&self, index: usize) -> PathBuf {
        self.folder.path().join(format!("b{}", index + 1))
    }

    fn broker_port(&self, index: usize) -> u16 {
        // Linked clusters have few bookies, and take 27 ports in all.
        let first = if self.links.is_some() { 21 } else { 30 };
        self.port + first + 2 * u16::try_from(index).expect("a small number")
    }

    /// Where clients reach a broker.
    pub(crate) fn broker_address(&self, index: usize) -> String {
        format!("127.0.0.1:{}", self.broker_port(index))
    }

    /// Ends everything in order, and expects that all of it can.
    pub(crate) fn stop(mut self) {
        for process in self.brokers.iter_mut().chain(&mut self.bookies) {
            let status = process.stop();
            assert!(status.success(), "{status}\n{}", process.log());
        }
    }
}
