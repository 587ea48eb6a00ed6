//! Wall clocks that jump by a minute, ahead and back: of a broker, of a bookie, of a client. No lease ends by that, no partition moves,
//! nothing is given up early, and everything goes on.
//!
//! A process is given another wall clock by a library that is loaded before it (`clock.c`); time that passes is not touched, as by a
//! step that an administrator or a clock daemon makes.

use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use hulse_sdk::{Client, Partition};
use tempfile::TempDir;

use super::super::report::{report, rounds};
use super::super::server::{HULSE, run};
use super::load::{Load, runtime};
use super::ports::Ports;
use super::processes::{Cluster, Process};
use super::truth::{Fate, read_all};

const TOPIC: &str = "stepped";
const MINUTE_MS: i64 = 60_000;
/// Longer than a lease.
const HELD: Duration = Duration::from_millis(3_500);
/// What goes by age looks often.
const SETTINGS: [(&str, &str); 4] = [
    ("HULSE_RETENTION__TIME", "5m"),
    ("HULSE_RETENTION__CHECK_INTERVAL", "1s"),
    ("HULSE_BROKER__LEDGER_ROLL_SIZE", "1MiB"),
    ("HULSE_UPKEEP__AUDIT_INTERVAL", "1s"),
];

/// The library.
struct Steppable {
    folder: TempDir,
}

impl Steppable {
    /// `None`, and a word in the report, where there is no C compiler.
    fn build() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let source =
            Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/integration/cluster/clock.c");
        let library = folder.path().join("clock.so");
        let built = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .args([&library, &source])
            .output();
        match built {
            Ok(built) => assert!(built.status.success(), "{built:?}"),
            Err(error) => {
                report(&format!("NOT RUN: clocks that jump: cc: {error}"));
                return None;
            }
        }
        Some(Self { folder })
    }

    fn library(&self) -> PathBuf {
        self.folder.path().join("clock.so")
    }

    /// One more clock, which is right.
    fn clock(&self, name: &str) -> Clock {
        let path = self.folder.path().join(name);
        std::fs::write(&path, 0_i64.to_ne_bytes()).unwrap();
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        Clock { path, file }
    }

    /// Gives a process a clock.
    fn give(&self, process: &mut Process, name: &str) -> Clock {
        let clock = self.clock(name);
        process.set("LD_PRELOAD", &self.library().display().to_string());
        process.set("HULSE_TEST_CLOCK", &clock.path.display().to_string());
        clock
    }
}

/// The wall clock of one process.
struct Clock {
    path: PathBuf,
    file: File,
}

impl Clock {
    /// It is so much ahead of the others from now on.
    fn is_ahead_by(&self, ms: i64) {
        self.file.write_all_at(&ms.to_ne_bytes(), 0).unwrap();
    }
}

/// Owners and their epochs: what a hand-over or a lost lease changes.
async fn owned(client: &Client) -> Vec<(Option<String>, u32)> {
    let described = client.admin().describe_topic(TOPIC).await.unwrap();
    let of = |partition: Partition| (partition.owner, partition.leader_epoch);
    described.partition.into_iter().map(of).collect()
}

/// Whoever reads the clock file sees the shift.
#[test]
fn preloaded_clock_is_as_far_ahead_as_it_is_told() {
    let Some(steppable) = Steppable::build() else {
        return;
    };
    let clock = steppable.clock("own");
    let told = |ahead: i64| -> i64 {
        clock.is_ahead_by(ahead);
        let date = Command::new("date")
            .arg("+%s")
            .env("LD_PRELOAD", steppable.library())
            .env("HULSE_TEST_CLOCK", &clock.path)
            .output()
            .unwrap();
        String::from_utf8(date.stdout)
            .unwrap()
            .trim()
            .parse()
            .unwrap()
    };
    let now = told(0);
    assert!((55..65).contains(&(told(MINUTE_MS) - now)));
    assert!((-65..-55).contains(&(told(-MINUTE_MS) - now)));
}

#[test]
fn clocks_that_jump_by_a_minute_move_no_partition_and_lose_no_record() {
    let Some(steppable) = Steppable::build() else {
        return;
    };
    let ports = Ports::take();
    let Some(mut cluster) = Cluster::start_with(ports.first, 0, &SETTINGS) else {
        return;
    };
    let mut clocks = Vec::new();
    for index in 0..3 {
        let mut bookie = cluster.bookie(index);
        clocks.push(steppable.give(&mut bookie, &format!("bookie-{index}")));
        cluster.add_bookie(bookie);
    }
    for index in 0..2 {
        let mut broker = cluster.broker(index);
        clocks.push(steppable.give(&mut broker, &format!("broker-{index}")));
        broker.start();
        cluster.brokers.push(broker);
    }
    let runtime = runtime();
    let client = Client::builder(cluster.broker_address(0)).build().unwrap();
    let load = runtime.block_on(Load::begin(&client, TOPIC, 4));
    runtime.block_on(load.goes_on("the beginning"));
    let before = runtime.block_on(owned(&client));
    let nodes = [3, 0, 4, 1, 2];
    for node in nodes.iter().take(rounds(2, nodes.len())) {
        // The longest one would cost every record, if retention went by the wall.
        for ahead in [MINUTE_MS, -MINUTE_MS, 10 * MINUTE_MS, 0] {
            clocks[*node].is_ahead_by(ahead);
            std::thread::sleep(HELD / if ahead == 0 { 8 } else { 1 });
            runtime.block_on(load.goes_on(&format!("clock {node} is {ahead} ms ahead")));
        }
    }
    assert_eq!(runtime.block_on(owned(&client)), before);
    of_a_client(&steppable, &cluster.broker_address(0));
    let (truth, followed) = runtime.block_on(load.end());
    let found = runtime.block_on(read_all(&client, TOPIC));
    truth.check(&found, "clocks that jump");
    truth.check(&followed, "what was followed while clocks jumped");
    let not = truth.count(|fate| !matches!(fate, Fate::Acked(_)));
    assert_eq!(not, 0, "no produce fails");
    for process in cluster.brokers.iter().chain(&cluster.bookies) {
        assert!(
            !process.log().contains("lease has ended"),
            "{}",
            process.log()
        );
    }
    cluster.stop();
}

/// A client's clock jumps while it produces: nothing is missing, doubled or out of order, and one in the past reads all of it.
fn of_a_client(steppable: &Steppable, at: &str) {
    const PART: u64 = 500;
    let clock = steppable.clock("client");
    let hulse = |arguments: &[&str]| {
        let mut command = Command::new(HULSE);
        command
            .args(["--server", at])
            .args(arguments)
            .env("LD_PRELOAD", steppable.library())
            .env("HULSE_TEST_CLOCK", &clock.path);
        command
    };
    let mut producing = hulse(&["produce", "counted", "--number"]);
    let mut producing = producing.stdin(Stdio::piped()).spawn().unwrap();
    let mut input = producing.stdin.take().unwrap();
    let steps = [0, MINUTE_MS, -MINUTE_MS, 0];
    for ahead in steps {
        clock.is_ahead_by(ahead);
        for line in 0..PART {
            writeln!(input, "{ahead} {line}").unwrap();
        }
        input.flush().unwrap();
        std::thread::sleep(Duration::from_millis(300));
    }
    drop(input);
    assert!(producing.wait().unwrap().success());
    let all = PART * steps.len() as u64;
    let verified = run(&["--server", at, "verify", "counted", "-j"], "");
    let told = String::from_utf8_lossy(&verified.stdout).into_owned();
    assert!(
        verified.status.success() && told.contains(&all.to_string()),
        "{verified:?}"
    );
    clock.is_ahead_by(-MINUTE_MS);
    let read = hulse(&["consume", "counted", "-o", "start", "-e"])
        .output()
        .unwrap();
    assert!(read.status.success(), "{read:?}");
    let lines = read.stdout.iter().filter(|byte| **byte == b'\n').count();
    assert_eq!(lines as u64, all);
}
