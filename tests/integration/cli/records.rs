//! Records as `consume` and `peek` show them, and what both say where there are none to show.

use std::io::Write as _;
use std::time::Duration;

use super::super::server::{Server, run_within};
use super::outages::Working;
use super::{done, text};

const PORT: u16 = 18_610;

#[test]
fn consume_prints_a_table_where_one_is_asked_for_and_values_where_nothing_is() {
    let server = Server::start(PORT);
    let keyed = ["produce", "t", "-f", "%k\\t%v\\n", "-H", "from=here"];
    done(&server, &keyed, "a\tone\nlonger\ttwo\n");
    let consume = |more: &[&str]| {
        let words = ["consume", "t", "-o", "start", "-e"];
        done(&server, &[&words[..], more].concat(), "")
    };
    assert_eq!(consume(&[]), "one\ntwo\n");
    assert_eq!(
        consume(&["--output", "table", "-f", "%k\\n"]),
        "a\nlonger\n"
    );
    let rows = |told: &str| {
        let rows = told.lines().map(|line| line.split_whitespace());
        rows.map(|row| row.map(str::to_owned).collect())
            .collect::<Vec<Vec<String>>>()
    };
    let table = rows(&consume(&["--output", "table"]));
    assert_eq!(table[0], ["PARTITION", "OFFSET", "TIME", "KEY", "VALUE"]);
    assert_eq!(table[1][..2], ["0", "0"]);
    assert_eq!(table[2][table[2].len() - 2..], ["longer", "two"]);
    let wide = rows(&consume(&["--output", "wide"]));
    assert_eq!(wide[0].last().unwrap(), "HEADERS");
    assert_eq!(wide[1].last().unwrap(), "from=here");
    // A table of several topics says which.
    done(&server, &["produce", "u"], "three\n");
    let words = [
        "consume", "t", "u", "-o", "start", "-e", "--output", "table",
    ];
    let both = done(&server, &words, "");
    assert!(both.starts_with("TOPIC "), "{both}");
    assert!(both.contains("public/default/u "), "{both}");
    // A subscription prints the same.
    let words = ["consume", "t", "-s", "s", "-n", "1", "--output", "table"];
    let subscribed = rows(&done(&server, &words, ""));
    assert_eq!(subscribed[1][subscribed[1].len() - 2..], ["a", "one"]);
}

#[test]
fn warnings_of_a_command_are_sentences_and_not_lines_of_a_log() {
    let mut server = Server::start(PORT + 2);
    done(&server, &["topics", "create", "t"], "");
    let words = ["produce", "t", "--rate", "2", "--timeout", "120s"];
    let mut producing = Working::start(&server, &words);
    let mut input = producing.child.stdin.take().expect("it is a pipe");
    write!(input, "{}", "x\n".repeat(8)).expect("it reads");
    drop(input);
    let peek = ["topics", "peek", "t", "--output", "name"];
    while server.hulse(&peek, "").stdout.is_empty() {
        std::thread::sleep(Duration::from_millis(20));
    }
    server.kill();
    producing.says(&["no server answers"]);
    server.restart();
    let told = producing.ends();
    let warning = told.lines().find(|line| line.contains("no server answers"));
    assert!(
        warning.is_some_and(|line| line.starts_with("warning: no server")),
        "{told}"
    );
    for raw in ["WARN", "hulse::", "hulse_sdk"] {
        assert!(!told.contains(raw), "{told}");
    }
}

#[test]
fn position_behind_all_records_is_told_and_not_met_with_silence() {
    let server = Server::start(PORT + 4);
    done(&server, &["produce", "t"], "a\nb\nc\n");
    done(&server, &["topics", "create", "empty"], "");
    // Records of long ago, sent now.
    let demo = [
        "generate",
        "demo-data",
        "old",
        "-n",
        "20",
        "--start",
        "2020-05-05",
    ];
    done(&server, &demo, "");
    for (words, told) in [
        ("consume t -o +99 -e", "partition 0 holds offsets 0 to 2"),
        (
            "consume t -o @2090-01-01 -e",
            "no record of t carries 2090-01-01",
        ),
        (
            "consume t -o @2090-01-01:2091-01-01",
            "no record of t carries 2090-01-01",
        ),
        ("consume t -o 2:1", "nothing of t lies from 2 up to 1"),
        (
            "consume old -o @-15m -e",
            "its last record carries 2020-05-0",
        ),
        (
            "consume empty -o -5 -e",
            "partition 0 of empty holds no records",
        ),
        (
            "topics peek t -o 99",
            "nothing of t stands at 99 or behind it",
        ),
        (
            "topics peek t -o @2090-01-01",
            "no record of t carries 2090-01-01",
        ),
        (
            "topics peek old -o @-15m",
            "its last record carries 2020-05-0",
        ),
        ("topics peek empty", "partition 0 of empty holds no records"),
    ] {
        let line: Vec<&str> = words.split(' ').collect();
        let output = server.hulse(&line, "");
        let said = text(&output.stderr);
        assert!(output.status.success(), "{words}: {said}");
        assert!(said.contains(told), "{words}: {said}");
        assert!(!said.contains("waits for what comes"), "{words}: {said}");
    }
    // One that is met is not talked about.
    for words in [
        "consume t -o +1 -e",
        "consume t -o @-15m -e",
        "consume t -o 1:2",
        "topics peek t -o 1",
    ] {
        let line: Vec<&str> = words.split(' ').collect();
        let output = server.hulse(&line, "");
        assert!(
            output.stderr.is_empty(),
            "{words}: {}",
            text(&output.stderr)
        );
        assert!(!output.stdout.is_empty(), "{words}");
    }
}

#[test]
fn consume_without_acknowledgements_ends_when_nothing_more_comes_and_says_why_once() {
    let server = Server::start(PORT + 6);
    // Batches below the limit of 5,000, at which deliveries stop.
    for batch in 0..7 {
        let lines: String = (0..1_000)
            .map(|n| format!("{}\n", batch * 1_000 + n))
            .collect();
        done(&server, &["produce", "t"], &lines);
    }
    done(
        &server,
        &["subs", "create", "t", "s", "--from", "start"],
        "",
    );
    let words = ["consume", "t", "-s", "s", "-e", "--no-ack"];
    let output = server.hulse(&words, "");
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(5), "{told}");
    assert_eq!(text(&output.stdout).lines().count(), 5_000);
    assert_eq!(
        told.matches("5000 records are delivered and not acked")
            .count(),
        1,
        "{told}"
    );
    for words in ["HULSE-9008", "--no-ack acknowledges none", "next:"] {
        assert!(told.contains(words), "{told}");
    }
    // As many as it may have end well.
    let words = ["consume", "t", "-s", "s", "-n", "4000", "--no-ack"];
    assert_eq!(done(&server, &words, "").lines().count(), 4_000);
}

#[test]
fn subscription_that_is_created_says_where_it_begins_and_what_waits() {
    let server = Server::start(PORT + 8);
    done(&server, &["produce", "t"], "a\nb\nc\n");
    for (name, from, told) in [
        (
            "a",
            "start",
            "it begins at the start: 3 records wait for it",
        ),
        (
            "b",
            "end",
            "it begins at the end: what is stored already is not for it (--from start)",
        ),
        ("c", "2", "it begins at offset 2: 1 record waits for it"),
        (
            "d",
            "@2090-01-01",
            "or at the end where none does: nothing waits for it yet",
        ),
    ] {
        let words = ["subs", "create", "t", name, "--from", from];
        let output = server.hulse(&words, "");
        let said = text(&output.stderr);
        assert!(
            output.status.success() && said.contains(told),
            "{from}: {said}"
        );
    }
}

/// What a command that follows says while nobody sends; it is ended then.
fn said_while_waiting(server: &Server, words: &[&str]) -> String {
    // What says nothing in this time says nothing; what says something is waited for elsewhere.
    let limit = Duration::from_secs(6);
    let address = server.address();
    let words = [&["--server", address.as_str()], words].concat();
    text(&run_within(limit, &words).stderr)
}

#[test]
fn consume_that_waits_says_that_nothing_is_there_yet() {
    let server = Server::start(PORT + 10);
    done(&server, &["produce", "t"], "a\nb\n");
    done(&server, &["subs", "create", "t", "s"], "");
    for (words, told) in [
        (&["consume", "t"][..], "-o start reads what is stored"),
        (
            &["consume", "t", "-o", "end"],
            "no record of t yet; it waits",
        ),
        (&["consume", "t", "-n", "5"], "it waits for 3 more"),
        (
            &["consume", "t", "-s", "s"],
            "no record of s of t yet; it waits",
        ),
    ] {
        let mut waiting = Working::start(&server, words);
        waiting.says(&["^C ends it"]);
        // Once is enough.
        std::thread::sleep(Duration::from_secs(1));
        let said = waiting.killed();
        assert_eq!(said.matches("^C ends it").count(), 1, "{words:?}: {said}");
        assert!(said.contains(told), "{words:?}: {said}");
    }
    for words in [
        &["consume", "t", "-o", "start"][..],
        &["consume", "t", "-q"],
    ] {
        let said = said_while_waiting(&server, words);
        assert_eq!(said, "", "{words:?}");
    }
}
