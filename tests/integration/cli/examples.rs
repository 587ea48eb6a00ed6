//! Every example of every page of help is run against a server, in a folder that holds what the examples name.

use std::fs;
use std::os::unix::process::ExitStatusExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use super::super::cluster::Etcd;
use super::super::server::{HULSE, Server};
use super::help::pages;
use super::{PORT, done, text};

/// An example that answers within this time …
const ENDS_WITHIN: Duration = Duration::from_secs(60);
/// … or goes on by its nature: then it is ended after this long, as a user would with ^C.
const FOLLOWS_FOR: Duration = Duration::from_secs(2);

/// Examples that go on until they are stopped.
const FOLLOW: &[&str] = &[
    "hulse standalone",
    "hulse broker",
    "hulse consume orders -o @-15m",
];
/// Examples whose object is not there in the test, and the exit code that says so.
const EXPECTED: &[(&str, i32)] = &[
    // Formatted in another folder, by the example before it: here its disk is lost.
    (
        "hulse bookie --name bookie-1 --data ./bookie-1 --metadata http://127.0.0.1:2379",
        5,
    ),
    ("hulse ledgers accept-loss 17 --dry-run", 3),
    ("hulse ledgers accept-loss 17 --up-to 4096 --yes", 3),
    ("hulse doctor", 0),
    // A standalone server's own bookie is node-1, and there is no other.
    ("hulse bookies decommission bookie-3 --dry-run", 3),
    ("hulse bookies decommission bookie-3 --yes --wait", 3),
    ("hulse bookies read-only bookie-3 --dry-run", 3),
    ("hulse bookies lost bookie-3 --dry-run", 3),
    ("hulse brokers drain broker-2 --dry-run", 3),
    ("hulse drain broker-2 --dry-run", 3),
    ("hulse drain broker-2 --within 5m", 3),
    // It is the only one.
    ("hulse drain --self --within 60s", 5),
    ("hulse cluster check restart node-1", 5),
];
/// What examples say about places, and where these are in the test.
const PLACES: &[(&str, &str)] = &[
    ("127.0.0.1:7500", "127.0.0.1:18400"),
    ("127.0.0.1:7580", "127.0.0.1:18404"),
    ("--server 127.0.0.1:7400", "--server 127.0.0.1:17700"),
    ("127.0.0.1:2379", "127.0.0.1:17706"),
];
/// The exit code of a doctor that found a problem.
const UNWELL: i32 = 1;
/// What an example printed, in its folder.
const OUT: &str = "..out";
const ERR: &str = "..err";
/// Of the etcd that clusters are made in.
const ETCD_PORT: u16 = PORT + 6;

#[test]
fn every_example_of_every_help_page_does_what_it_says() {
    let mut server = Server::start(PORT);
    let folder = tempfile::tempdir().unwrap();
    let stopped = stopped_directory();
    let etcd = Etcd::start(ETCD_PORT);
    let mut count = 0;
    for page in pages() {
        assert!(!page.examples.is_empty(), "{:?} has no examples", page.path);
        for example in page.examples {
            if etcd.is_none() && example.contains("--metadata") {
                continue;
            }
            prepare(&server, folder.path(), stopped.path());
            run(&server, folder.path(), &example);
            count += 1;
        }
    }
    assert!(count > 60, "{count} examples");
    assert!(server.stop().success());
}

/// A data directory of a node that was stopped.
fn stopped_directory() -> tempfile::TempDir {
    let mut server = Server::start(PORT + 4);
    done(&server, &["produce", "kept"], "a\nb\n");
    assert!(server.stop().success());
    let copy = tempfile::tempdir().unwrap();
    let copied = Command::new("cp")
        .arg("-r")
        .arg(server.data())
        .arg(copy.path().join("data"))
        .status();
    assert!(copied.unwrap().success());
    copy
}

/// The topics and files that examples name, as if nothing had been run before.
fn prepare(server: &Server, folder: &Path, stopped: &Path) {
    let topics = done(server, &["topics", "list", "--output", "name"], "");
    let topics: Vec<&str> = topics.lines().collect();
    if !topics.is_empty() {
        done(
            server,
            &[&["topics", "delete", "--yes"][..], &topics].concat(),
            "",
        );
    }
    done(server, &["topics", "create", "greetings", "bench"], "");
    done(server, &["topics", "create", "orders", "-p", "8"], "");
    done(server, &["produce", "greetings"], "hello\n");
    // Enough keys for a record in every partition.
    let keyed: String = (0..64).map(|key| format!("k{key}\tv\n")).collect();
    done(server, &["produce", "orders", "-f", "%k\\t%v\\n"], &keyed);
    done(
        server,
        &[
            "subscriptions",
            "create",
            "orders",
            "billing",
            "--from",
            "start",
        ],
        "",
    );
    let shared = ["subs", "create", "orders", "jobs", "--type", "queue"];
    done(server, &[&shared[..], &["--from", "start"]].concat(), "");
    done(server, &["produce", "bench"], "x\n");
    for item in fs::read_dir(folder).unwrap() {
        let path = item.unwrap().path();
        let removed = match path.is_dir() {
            true => fs::remove_dir_all(&path),
            false => fs::remove_file(&path),
        };
        removed.unwrap();
    }
    fs::write(folder.join("orders.tsv"), "k1\thello\nk2\tworld\n").unwrap();
    fs::write(folder.join("blobs.txt"), "aGVsbG8=\nd29ybGQ=\n").unwrap();
    let profiles = "current = \"local\"\nprevious = \"slow\"\n[profile.local]\n[profile.slow]\ntimeout = \"2m\"\n";
    fs::write(folder.join("profiles.toml"), profiles).unwrap();
    fs::write(
        folder.join("hulse.toml"),
        "[node]\ndata_dir = \"more-data\"\n",
    )
    .unwrap();
    let copied = Command::new("cp")
        .arg("-r")
        .arg(stopped.join("data"))
        .arg(folder.join("hulse-data"))
        .status();
    assert!(copied.unwrap().success());
}

fn run(server: &Server, folder: &Path, example: &str) {
    let mut line = example.to_owned();
    for (said, there) in PLACES {
        line = line.replace(said, there);
    }
    let mut child = spawn(server, folder, &line);
    let follows =
        FOLLOW.iter().any(|known| example.starts_with(known)) && !example.contains("--help");
    let code = match follows {
        true => interrupted(&mut child, example),
        false => ended(&mut child, example),
    };
    let expected = EXPECTED.iter().find(|(known, _)| *known == example);
    let expected = expected.map_or(0, |(_, code)| *code);
    let said = |name| text(&fs::read(folder.join(name)).unwrap_or_default());
    if example.starts_with("hulse doctor") && code == Some(UNWELL) && only_slow(&said(OUT)) {
        return;
    }
    assert_eq!(
        code,
        Some(expected),
        "{example}\n{}\n{}",
        said(OUT),
        said(ERR)
    );
}

/// True if the doctor has nothing to say but that the disk is slow. The server here has seen enough syncs for that, and on a busy
/// machine it is the truth.
fn only_slow(told: &str) -> bool {
    let mut codes = told
        .split_whitespace()
        .filter(|word| word.contains("DOCTOR-"));
    told.contains("DOCTOR-08") && codes.all(|word| word.contains("DOCTOR-08"))
}

/// Runs a line of a shell that finds `hulse`, and only what belongs to this test.
fn spawn(server: &Server, folder: &Path, line: &str) -> Child {
    let binary = Path::new(HULSE).parent().unwrap().display().to_string();
    let path = std::env::var("PATH").unwrap_or_default();
    // exec, so that a signal reaches the program and not a shell around it.
    let line = match line.starts_with("hulse ") && !line.contains(['|', '&', '>']) {
        true => format!("exec {line}"),
        false => format!("set -o pipefail; {line}"),
    };
    let (out, err) = (folder.join(OUT), folder.join(ERR));
    Command::new("bash")
        .args(["-c", &line])
        .current_dir(folder)
        .env("PATH", format!("{binary}:{path}"))
        .env("HULSE_SERVER", server.address())
        .env("HULSE_PROFILES", folder.join("profiles.toml"))
        .env("HULSE_LISTEN__GRPC", "127.0.0.1:18910")
        .env("HULSE_LISTEN__HTTP", "127.0.0.1:18913")
        .env("HULSE_LISTEN__KAFKA", "off")
        .stdin(Stdio::null())
        .stdout(fs::File::create(out).unwrap())
        .stderr(fs::File::create(err).unwrap())
        .spawn()
        .unwrap()
}

fn ended(child: &mut Child, example: &str) -> Option<i32> {
    let began = Instant::now();
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return status.code();
        }
        if began.elapsed() > ENDS_WITHIN {
            let _ = child.kill();
            panic!("{example} does not end");
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Lets it run for a while, then asks it to end.
fn interrupted(child: &mut Child, example: &str) -> Option<i32> {
    std::thread::sleep(FOLLOWS_FOR);
    if let Some(status) = child.try_wait().unwrap() {
        return status.code();
    }
    let pid = child.id().to_string();
    let sent = Command::new("kill").args(["-INT", &pid]).status().unwrap();
    assert!(sent.success());
    let code = ended(child, example);
    // Ended by the signal itself: that is what was asked for, too.
    code.or_else(|| child.try_wait().unwrap()?.signal().map(|_| 0))
}
