//! Which server a command talks to, and how long: addresses that are none, or another's, and who named them.

use std::net::TcpListener;
use std::time::{Duration, Instant};

use super::super::server::{Server, run_within};
use super::{alone, text};

const PORT: u16 = 17_940;
/// Nobody listens there.
const NOBODY: &str = "127.0.0.1:17949";
const WITHIN: Duration = Duration::from_secs(60);

#[test]
fn port_of_another_service_is_told_as_such() {
    let server = Server::start(PORT);
    for words in [
        &["topics", "list"][..],
        &["doctor"],
        &["topics", "create", "t"],
        &["consume", "t"],
    ] {
        let output = run_within(WITHIN, &[words, &["--server", &server.http()]].concat());
        let told = text(&output.stdout) + &text(&output.stderr);
        assert_eq!(output.status.code(), Some(6), "{words:?}: {told}");
        assert!(told.contains("not Hulse's gRPC"), "{words:?}: {told}");
        assert!(told.contains("listen.http"), "{words:?}: {told}");
        assert!(!told.contains("no server answers"), "{words:?}: {told}");
    }
}

#[test]
fn address_without_a_port_and_time_of_zero_are_usage_errors_everywhere() {
    for command in [
        &["topics", "list"][..],
        &["doctor"],
        &["produce", "t"],
        &["consume", "t"],
        &["bench", "consume"],
    ] {
        for (flags, rule) in [
            (["--server", "127.0.0.1"], "HOST:PORT"),
            (["--timeout", "0s"], "longer than zero"),
        ] {
            let output = run_within(WITHIN, &[command, &flags].concat());
            let told = text(&output.stderr);
            assert_eq!(output.status.code(), Some(2), "{command:?}: {told}");
            assert!(told.contains(rule), "{command:?}: {told}");
        }
    }
}

#[test]
fn list_of_a_silent_port_takes_its_time_and_applies_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let silent = listener.local_addr().unwrap().to_string();
    let began = Instant::now();
    let words = ["topics", "list", "--server", &silent, "--timeout", "10s"];
    let output = run_within(WITHIN, &words);
    let (took, told) = (began.elapsed(), text(&output.stderr));
    assert_eq!(output.status.code(), Some(6), "{told}");
    assert!(!told.contains("may have been applied"), "{told}");
    // And not twice that; a start of the process on a busy machine is allowed for.
    assert!(took < Duration::from_secs(18), "{took:?}");
}

#[test]
fn who_named_the_server_is_told() {
    let folder = tempfile::tempdir().unwrap();
    let run = |words: &[&str], variables: &[(&str, &str)]| alone(folder.path(), words, variables);
    let variable = [("HULSE_SERVER", NOBODY)];
    let list = ["topics", "list"];
    let flag = run(&["topics", "list", "--server", NOBODY], &variable);
    assert!(text(&flag.stderr).contains("17949, of --server"));
    let told = text(&run(&list, &variable).stderr);
    assert!(told.contains("17949, of HULSE_SERVER"), "{told}");
    assert!(told.contains("unset HULSE_SERVER"), "{told}");
    // A profile that is not in force does not say that it is.
    let made = run(&["profile", "create", "a", "--server", "x:1"], &variable);
    let used = run(&["profile", "use", "a"], &variable);
    for told in [text(&made.stderr), text(&used.stderr)] {
        assert!(
            told.contains("HULSE_SERVER=127.0.0.1:17949 goes before it"),
            "{told}"
        );
        assert!(!told.contains("in force now"), "{told}");
    }
    let free = run(&["profile", "use", "a"], &[]);
    assert!(text(&free.stderr).contains("in force now"));
}
