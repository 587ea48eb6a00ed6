//! The command line as a whole.

use clap::CommandFactory;

use clap::Parser as _;

use super::*;
use crate::output::Shape;

fn pages(command: &clap::Command, path: String, out: &mut Vec<(String, String)>) {
    let mut page = command.clone();
    out.push((path.clone(), page.render_long_help().to_string()));
    for inner in command
        .get_subcommands()
        .filter(|inner| inner.get_name() != "help")
    {
        pages(inner, format!("{path} {}", inner.get_name()), out);
    }
}

#[test]
fn command_line_is_consistent() {
    Arguments::command().debug_assert();
}

#[test]
fn every_page_of_help_has_examples() {
    let mut command = Arguments::command();
    command.build();
    let mut found = Vec::new();
    pages(&command, "hulse".to_owned(), &mut found);
    assert!(found.len() > 15, "{}", found.len());
    for (path, page) in found {
        assert!(page.contains("Examples:"), "{path} has no examples");
        assert!(page.contains("hulse "), "{path}");
    }
}

#[test]
fn positions_that_begin_with_a_minus_are_no_flags() {
    let arguments = Arguments::try_parse_from(["hulse", "consume", "t", "-o", "-5", "-e"]);
    let Command::Consume(consume) = arguments.unwrap().command else {
        panic!("not consume");
    };
    assert_eq!(consume.offset, Some("-5".parse().unwrap()));
    assert!(consume.exit);
}

#[test]
fn globals_stand_before_or_after_the_command() {
    for line in [
        "hulse --timeout 5s topics list -j",
        "hulse topics list -j --timeout 5s",
    ] {
        let arguments = Arguments::try_parse_from(line.split(' ')).unwrap();
        assert_eq!(arguments.globals.shape(), Shape::Json);
        assert_eq!(arguments.globals.timeout.to_string(), "5s");
    }
}
