//! `hulse`: the one binary. It parses, builds, wires and waits; what a thing does lives in its own crate.
//!
//! Reading order: [`arguments`] (the command line), [`config`] (what a node is told), [`roles`] (what runs a server),
//! [`commands`] (what talks to one), [`failure`], [`catalogue`], [`usage`], [`foreign`] and [`output`] (how it ends and what it prints).
//!
//! # Invariants
//! 1. Data go to standard output, words to standard error; a reader that closes our output ends us quietly with 0.
//! 2. Every failure has four parts, a code and an exit code, also one of the command line itself (operations.md B).

#[cfg(test)]
mod advice;
mod arguments;
mod catalogue;
mod commands;
mod config;
mod failure;
mod foreign;
mod format;
mod output;
mod position;
mod retained;
mod roles;
mod usage;

use std::ffi::OsString;
use std::io::Write as _;
use std::process::ExitCode;

use clap::{CommandFactory as _, FromArgMatches as _};

use crate::arguments::{Arguments, Command, Globals};
use crate::commands::session::{self, Session};
use crate::commands::{profile, shapes};
use crate::failure::{Failure, Stop};
use crate::output::{Output, Shape, yaml};

fn main() -> ExitCode {
    let words: Vec<OsString> = std::env::args_os().collect();
    if let Some(page) = shapes::page(&words) {
        // Nobody reads it any more: no failure.
        let _ = std::io::stdout().write_all(page.as_bytes());
        return ExitCode::SUCCESS;
    }
    let plain = Output {
        shape: usage::shape(&words),
        quiet: false,
        colour: output::wants_colour(false),
    };
    let arguments = match parse(&words) {
        Ok(arguments) => arguments,
        Err(end) => return end.code(plain),
    };
    let output = Output::of(&arguments.globals);
    match run(arguments, output) {
        Ok(()) | Err(Stop::PipeClosed) => ExitCode::SUCCESS,
        Err(Stop::Failed(failure)) => end(&failure, output),
    }
}

/// Why there are no arguments to go by.
enum NoArguments {
    /// Help or version was asked for, or nothing at all.
    Page(Box<clap::Error>),
    /// They are wrong.
    Wrong(Box<Failure>),
}

impl NoArguments {
    fn code(self, output: Output) -> ExitCode {
        match self {
            Self::Page(page) => {
                // Help goes to standard output and is no error; a closed output is none either.
                let _ = page.print();
                ExitCode::from(u8::from(page.use_stderr()) * 2)
            }
            Self::Wrong(failure) => end(&failure, output),
        }
    }
}

/// The arguments, with what the profile in force says where neither a flag nor the environment does.
fn parse(words: &[OsString]) -> Result<Arguments, NoArguments> {
    let read = |error: clap::Error| match usage::is_page(&error) {
        true => NoArguments::Page(Box::new(error)),
        false => NoArguments::Wrong(Box::new(usage::failure(&error, words))),
    };
    let matches = Arguments::command()
        .try_get_matches_from(words)
        .map_err(read)?;
    let mut arguments = Arguments::from_arg_matches(&matches).map_err(read)?;
    let settled = settle(&mut arguments, &matches, words);
    settled.map_err(|failure| NoArguments::Wrong(Box::new(failure)))?;
    Ok(arguments)
}

fn settle(
    arguments: &mut Arguments,
    matches: &clap::ArgMatches,
    words: &[OsString],
) -> Result<(), Failure> {
    usage::check_dry_run(&arguments.globals, words)?;
    arguments.globals.note_sources(matches);
    if !arguments.command.talks_to_a_server() {
        return usage::check_timeout(&arguments.globals);
    }
    usage::check_config(&arguments.globals)?;
    usage::check_topics(matches)?;
    match profile::in_force(arguments.globals.profile.as_deref()) {
        Ok(Some(chosen)) => arguments.globals.settle(matches, &chosen),
        Ok(None) => {}
        // Nobody asked for a profile, and the server is named without one.
        Err(failure) if arguments.globals.does_without_a_profile() => {
            let output = Output::of(&arguments.globals);
            output.say(&format!("no profile is heeded: {failure}"));
        }
        Err(failure) => return Err(failure),
    }
    usage::check_timeout(&arguments.globals)?;
    session::check_address(&arguments.globals)
}

/// Tells a failure in the form that was asked for.
fn end(failure: &Failure, output: Output) -> ExitCode {
    match output.shape {
        Shape::Json | Shape::Jsonl => output.tell(&failure.json().to_string()),
        Shape::Yaml => output.tell(yaml(&failure.json()).trim_end()),
        Shape::Table | Shape::Wide | Shape::Name | Shape::Help => {
            output.tell(&format!("{} {failure}", output.red("error:")));
        }
    }
    ExitCode::from(failure.exit() as u8)
}

fn run(arguments: Arguments, output: Output) -> Result<(), Stop> {
    let globals: &Globals = &arguments.globals;
    if !arguments.command.is_a_server() {
        roles::logging::of_client(globals.verbose, output);
    }
    let session = Session { globals, output };
    match &arguments.command {
        Command::Standalone(standalone) => roles::standalone::run(standalone, globals, output),
        Command::Broker(broker) => roles::broker::run(broker, globals, output),
        Command::Bookie(bookie) => roles::bookie::run(bookie, globals, output),
        Command::Config(command) => commands::config::run(command, globals, output),
        Command::Profile(command) => profile::run(session, command),
        Command::Produce(produce) => session::run(commands::produce::run(session, produce)),
        Command::Consume(consume) => session::run(commands::consume::run(session, consume)),
        Command::Topics(command) => session::run(commands::topics::run(session, command)),
        Command::Subscriptions(command) => {
            session::run(commands::subscriptions::run(session, command))
        }
        Command::Cluster(command) => session::run(commands::cluster::run(session, command)),
        Command::Brokers(command) => session::run(commands::cluster::run_brokers(session, command)),
        Command::Bookies(command) => session::run(commands::cluster::run_bookies(session, command)),
        Command::Drain(command) => session::run(commands::cluster::drain(session, command)),
        Command::Ledgers(command) => session::run(commands::ledgers::run(session, command)),
        Command::Verify(verify) => session::run(commands::verify::run(session, verify)),
        Command::Doctor(doctor) => session::run(commands::doctor::run(session, doctor)),
        Command::Generate(command) => session::run(commands::generate::run(session, command)),
        Command::Completions(completions) => commands::completions::run(completions, output),
        Command::Bench(command) => commands::bench::run(session, command),
    }
}
