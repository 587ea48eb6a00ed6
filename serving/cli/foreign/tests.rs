//! Every row of the tables is tried as a user would meet it.

use std::ffi::OsString;

use clap::CommandFactory as _;

use super::commands::COMMANDS;
use super::flags::{ACKS, CODECS, CONFIG, FLAGS, OF_COMMANDS};
use crate::advice;
use crate::arguments::Arguments;
use crate::usage;

/// What is said to a command line that is wrong.
fn told(line: &str) -> String {
    let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
    let refused = Arguments::command().try_get_matches_from(&words);
    let error = refused.err().unwrap_or_else(|| panic!("{line} is fine"));
    usage::failure(&error, &words).to_string()
}

/// A command of a branch, with what it needs.
fn whole(path: &str) -> &str {
    match path {
        "topics" => "topics list",
        "subscriptions" => "subscriptions list",
        "bench" => "bench produce",
        "topics copy" => "topics copy a b",
        "topics partitions" => "topics partitions a 4",
        path => path,
    }
}

#[test]
fn every_flag_of_a_command_gets_its_tip() {
    for (path, flag, tip) in OF_COMMANDS {
        let line = format!("hulse {} {flag} x", whole(path));
        assert!(told(&line).ends_with(tip), "{line}: {}", told(&line));
        assert_eq!(advice::faults(path, tip), Vec::<String>::new(), "{line}");
    }
}

#[test]
fn every_flag_of_other_tools_gets_a_tip_wherever_it_is_not_ours() {
    for (flag, tip) in FLAGS {
        let mut given = 0;
        for path in [
            "produce",
            "consume",
            "topics create",
            "topics list",
            "subscriptions seek",
        ] {
            let line = format!("hulse {path} {flag} x");
            let words = line.split(' ').map(OsString::from);
            if Arguments::command().try_get_matches_from(words).is_err() {
                given += usize::from(told(&line).ends_with(tip));
            }
        }
        assert!(
            given > 0,
            "{flag} is ours, or has a tip of its own everywhere"
        );
        assert_eq!(advice::faults("", tip), Vec::<String>::new(), "{flag}");
    }
    assert_eq!(advice::faults("", CONFIG), Vec::<String>::new());
}

#[test]
fn every_command_of_other_tools_gets_its_tip() {
    for (behind, word, tip) in COMMANDS {
        let line = format!("hulse {behind} {word} x").replace("  ", " ");
        assert!(told(&line).ends_with(tip), "{line}: {}", told(&line));
        assert_eq!(advice::faults("", tip), Vec::<String>::new(), "{line}");
    }
    for (value, tip) in CODECS {
        for path in ["produce orders", "bench latency", "topics copy a b"] {
            let line = format!("hulse {path} --compression {value}");
            assert!(told(&line).ends_with(tip), "{line}: {}", told(&line));
        }
        assert_eq!(advice::faults("produce", tip), Vec::<String>::new());
    }
    for (value, tip) in ACKS {
        let line = format!("hulse produce orders --acks={value}");
        assert!(told(&line).ends_with(tip), "{line}: {}", told(&line));
        assert_eq!(advice::faults("produce", tip), Vec::<String>::new());
    }
}
