//! What somebody may lose, and is told before: with a subscription that is on several topics, a topic, a ledger; and a copy that loses
//! nothing and says nothing else.

use super::super::server::Server;
use super::{done, json, text};

const PORT: u16 = 17_694;

/// Standard error of a command that must end with this code.
fn told(server: &Server, words: &[&str], code: i32) -> String {
    let output = server.hulse(words, "");
    let told = text(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{words:?}: {told}");
    told
}

#[test]
fn records_of_another_topic_are_not_let_go_without_a_question() {
    let server = Server::start(PORT);
    let hold = || json(&server, &["subs", "describe", "ex", "lazy"])["hold"].clone();
    done(&server, &["topics", "create", "a1", "ex"], "");
    let made = told(&server, &["subs", "create", "ex", "lazy"], 0);
    assert!(made.contains("lazy is created on ex"), "{made}");
    let input: String = (0..1_004).map(|number| format!("{number}\n")).collect();
    done(&server, &["produce", "ex"], &input);
    // It is there, on another topic, and holds: what is asked for would not be so.
    let create = ["subs", "create", "a1", "lazy"];
    let refused = told(&server, &[&create[..], &["--no-hold"]].concat(), 5);
    for words in [
        "exists already",
        "public/default/ex",
        "hulse subs update public/default/ex lazy --no-hold --dry-run",
    ] {
        assert!(refused.contains(words), "{refused}");
    }
    let shared = told(&server, &create, 0);
    for words in ["exists already, on public/default/ex", "on a1 too"] {
        assert!(shared.contains(words), "{shared}");
    }
    let again = told(&server, &create, 0);
    for words in ["exists already", "public/default/a1", "public/default/ex"] {
        assert!(again.contains(words), "{again}");
    }
    let update = ["subs", "update", "a1", "lazy", "--no-hold"];
    let dry = told(&server, &[&update[..], &["--dry-run"]].concat(), 0);
    let asked = told(&server, &update, 2);
    assert!(asked.contains("HULSE-9005"), "{asked}");
    for said in [dry, asked] {
        for words in [
            "public/default/ex 1,004 records",
            "public/default/a1 0 records",
        ] {
            assert!(said.contains(words), "{said}");
        }
    }
    assert_eq!(hold(), true);
    let done_so = told(&server, &[&update[..], &["--yes"]].concat(), 0);
    assert!(done_so.contains("public/default/ex"), "{done_so}");
    assert_eq!(hold(), false);
    // One that is made as if it held is told that it does not.
    let loose = told(&server, &create, 0);
    assert!(loose.contains("subs update a1 lazy --hold"), "{loose}");
    told(&server, &[&create[..], &["--no-hold"]].concat(), 0);
    // What keeps more needs nobody's word.
    let keep = ["subs", "update", "a1", "lazy", "--hold"];
    let dry = told(&server, &[&keep[..], &["--dry-run"]].concat(), 0);
    assert!(dry.contains("public/default/ex"), "{dry}");
    assert_eq!(hold(), false);
    told(&server, &keep, 0);
    assert_eq!(hold(), true);
}

#[test]
fn deletion_says_how_much_goes_and_an_open_ledger_has_nothing_to_give_up() {
    let server = Server::start(PORT + 2);
    done(&server, &["produce", "t"], "a\nb\nc\n");
    done(&server, &["topics", "create", "empty"], "");
    let dry = told(&server, &["topics", "delete", "t", "--dry-run"], 0);
    assert!(dry.contains("with everything in it, 3 records, "), "{dry}");
    let both = ["topics", "delete", "t", "empty", "--dry-run"];
    let dry = told(&server, &both, 0);
    for words in ["t: 3 records, ", "empty: 0 records, "] {
        assert!(dry.contains(words), "{dry}");
    }
    let ledger = json(&server, &["ledgers", "list", "t"])[0]["ledger"].to_string();
    let accept = ["ledgers", "accept-loss", &ledger];
    let dry = told(&server, &[&accept[..], &["--dry-run"]].concat(), 5);
    let real = told(&server, &[&accept[..], &["--yes"]].concat(), 5);
    for said in [dry, real] {
        assert!(said.contains("HULSE-1406"), "{said}");
    }
}

#[test]
fn copy_goes_on_when_what_was_copied_has_left_the_source() {
    let server = Server::start(PORT + 4);
    let lines = |from: u32, to: u32| {
        (from..to)
            .map(|at| format!("k{at}\t{at}\n"))
            .collect::<String>()
    };
    let produce = |from, to| {
        let words = ["produce", "source", "-p", "0", "-f", "%k\\t%v\\n"];
        done(&server, &words, &lines(from, to));
    };
    let trim = |before: &str| {
        let words = ["topics", "trim", "source", "-p", "0", "--yes", "--before"];
        done(&server, &[&words[..], &[before]].concat(), "");
    };
    done(&server, &["topics", "create", "source", "-p", "2"], "");
    produce(0, 100);
    for (target, partitions) in [("same", "2"), ("one", "1"), ("three", "3")] {
        let copy = ["topics", "copy", "source", target, "-p", partitions];
        assert_eq!(json(&server, &copy)["records"], 100);
    }
    produce(100, 120);
    for before in ["60", "100"] {
        trim(before);
        for target in ["same", "one", "three"] {
            let copy = ["topics", "copy", "source", target];
            let dry = ["topics", "copy", "source", target, "--dry-run"];
            // The first time the second part is copied, then there is nothing.
            let due = if before == "60" { 20 } else { 0 };
            assert_eq!(json(&server, &dry)["records"], due, "{target}");
            let copied = json(&server, &copy);
            assert_eq!(copied["records"], due, "{target}");
        }
    }
    for target in ["same", "one", "three"] {
        let found = done(&server, &["consume", target, "-o", "start", "-e"], "");
        let mut found: Vec<u32> = found.lines().map(|line| line.parse().unwrap()).collect();
        found.sort_unstable();
        assert_eq!(found, (0..120).collect::<Vec<u32>>(), "{target}");
    }
    // Of what was not copied it names just that.
    produce(120, 130);
    trim("125");
    let copy = ["topics", "copy", "source", "one"];
    for words in [&copy[..], &[&copy[..], &["--dry-run"]].concat()] {
        let lost = told(&server, words, 7);
        assert!(lost.contains("HULSE-9204"), "{lost}");
        assert!(lost.contains("offsets 120 to 124 of partition 0"), "{lost}");
    }
}
