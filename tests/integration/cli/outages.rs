//! A server that is gone, a port that is another's, a disk that is full: what a command says while it works or waits.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

use super::super::server::{HULSE, Server};
use super::done;

const PORT: u16 = 17_930;
/// What is told at once may take this long on a busy machine.
const TOLD_WITHIN: Duration = Duration::from_secs(100);

/// A command that works on, and its words.
pub(super) struct Working {
    pub(super) child: Child,
    words: Receiver<String>,
    heard: String,
}

impl Working {
    pub(super) fn start(server: &Server, arguments: &[&str]) -> Self {
        let mut child = Command::new(HULSE)
            .args(["--server", &server.address()])
            .args(arguments)
            .env_remove("HULSE_PROFILE")
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the binary can be started");
        let said = BufReader::new(child.stderr.take().expect("it is a pipe"));
        let (to, words) = channel();
        std::thread::spawn(move || {
            let lines = said.lines().map_while(Result::ok);
            // Nobody listens any more at the end of a test.
            lines.for_each(|line| drop(to.send(line)));
        });
        let heard = String::new();
        Self {
            child,
            words,
            heard,
        }
    }

    /// Waits for a line with all of these words.
    pub(super) fn says(&mut self, words: &[&str]) -> String {
        let until = Instant::now() + TOLD_WITHIN;
        loop {
            let left = until.saturating_duration_since(Instant::now());
            let line = self.words.recv_timeout(left);
            let line = line.unwrap_or_else(|_| panic!("not said: {words:?}:\n{}", self.heard));
            self.heard += &format!("{line}\n");
            if words.iter().all(|word| line.contains(word)) {
                return line;
            }
        }
    }

    /// Its words up to now, when it is ended.
    pub(super) fn killed(&mut self) -> String {
        let _ = self.child.kill();
        let _ = self.child.wait();
        self.heard.extend(self.words.iter().map(|line| line + "\n"));
        self.heard.clone()
    }

    /// The rest of its words, after its end.
    pub(super) fn ends(&mut self) -> String {
        let status = self.child.wait().expect("it ends");
        self.heard.extend(self.words.iter().map(|line| line + "\n"));
        assert!(status.success(), "{status}: {}", self.heard);
        self.heard.clone()
    }
}

impl Drop for Working {
    fn drop(&mut self) {
        // It may have ended.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn count(text: &str, word: &str) -> usize {
    text.lines().filter(|line| line.contains(word)).count()
}

#[test]
fn produce_says_that_its_server_is_gone_and_when_it_goes_on() {
    let mut server = Server::start(PORT);
    done(&server, &["topics", "create", "t"], "");
    let mut producing = Working::start(&server, &["produce", "t", "--timeout", "120s"]);
    let mut input = producing.child.stdin.take().expect("it is a pipe");
    writeln!(input, "first").expect("it reads");
    while server
        .hulse(&["topics", "peek", "t", "--output", "name"], "")
        .stdout
        .is_empty()
    {
        std::thread::sleep(Duration::from_millis(20));
    }
    server.kill();
    for number in 0..10 {
        writeln!(input, "{number}").expect("it reads");
    }
    let began = Instant::now();
    let told = producing.says(&["no server answers at", &server.address(), "since", "wait"]);
    assert!(began.elapsed() < TOLD_WITHIN, "{told}");
    server.restart();
    drop(input);
    producing.says(&[&server.address(), "answers after", "goes on"]);
    let told = producing.ends();
    assert_eq!(count(&told, "no server answers"), 1, "{told}");
    assert_eq!(count(&told, "goes on"), 1, "{told}");
    assert!(told.contains("11 records stored"), "{told}");
}

#[test]
fn consume_says_that_its_server_is_gone_and_when_it_goes_on() {
    let mut server = Server::start(PORT + 2);
    done(&server, &["produce", "t"], "a\n");
    let mut plain = Working::start(&server, &["consume", "t", "-o", "start", "-n", "2"]);
    let mut subscribed = Working::start(
        &server,
        &["consume", "t", "-s", "s", "-o", "start", "-n", "2"],
    );
    subscribed.says(&["subscription s of t is created"]);
    while server
        .hulse(&["subs", "describe", "t", "s", "-j"], "")
        .stdout
        .is_empty()
    {
        std::thread::sleep(Duration::from_millis(20));
    }
    std::thread::sleep(Duration::from_millis(500));
    server.kill();
    for one in [&mut plain, &mut subscribed] {
        one.says(&["no server answers at", &server.address(), "reading goes on"]);
    }
    server.restart();
    for one in [&mut plain, &mut subscribed] {
        one.says(&[&server.address(), "answers after", "goes on"]);
    }
    done(&server, &["produce", "t"], "b\n");
    for one in [&mut plain, &mut subscribed] {
        let told = one.ends();
        assert_eq!(count(&told, "no server answers"), 1, "{told}");
    }
}

#[test]
fn standby_says_who_is_active_and_when_it_is() {
    let server = Server::start(PORT + 4);
    done(&server, &["topics", "create", "t"], "");
    let consume = ["consume", "t", "-s", "s", "--type", "failover", "--name"];
    let mut first = Working::start(&server, &[&consume[..], &["first"]].concat());
    first.says(&["subscription s of t is created"]);
    let mut second = Working::start(&server, &[&consume[..], &["second"]].concat());
    second.says(&["standing by: first is active"]);
    drop(first);
    second.says(&["t, partition 0: active"]);
    assert_eq!(count(&second.heard, "standing by"), 1, "{}", second.heard);
}
