//! `hulse`: the one binary. It parses, builds, wires and waits; what a thing does lives in its own crate.
//!
//! Reading order: [`arguments`] (the command line), [`config`] (what a node is told), [`roles`] (what runs a server),
//! [`commands`] (what talks to one), [`failure`] and [`output`] (how it ends and what it prints).
//!
//! # Invariants
//! 1. Data go to standard output, words to standard error; a reader that closes our output ends us quietly with 0.
//! 2. Every failure has four parts, a code and an exit code (operations.md B).

mod arguments;
mod commands;
mod config;
mod failure;
mod format;
mod output;
mod position;
mod roles;

use std::process::ExitCode;

use clap::Parser;

use crate::arguments::{Arguments, Command};
use crate::commands::session::{self, Session};
use crate::failure::Stop;
use crate::output::{Output, Shape};

fn main() -> ExitCode {
    let arguments = match Arguments::try_parse() {
        Ok(arguments) => arguments,
        Err(error) => {
            // Help goes to standard output and is no error; a closed output is none either.
            let _ = error.print();
            return ExitCode::from(u8::from(error.use_stderr()) * 2);
        }
    };
    let output = Output {
        shape: arguments.globals.shape(),
        quiet: arguments.globals.quiet,
        colour: output::wants_colour(arguments.globals.no_color),
    };
    match run(arguments, output) {
        Ok(()) | Err(Stop::PipeClosed) => ExitCode::SUCCESS,
        Err(Stop::Failed(failure)) => {
            match output.shape {
                Shape::Table => output.tell(&format!("{} {failure}", output.red("error:"))),
                Shape::Json => output.tell(&failure.json().to_string()),
            }
            ExitCode::from(failure.exit() as u8)
        }
    }
}

fn run(arguments: Arguments, output: Output) -> Result<(), Stop> {
    let globals = &arguments.globals;
    if !matches!(arguments.command, Command::Standalone(_)) {
        roles::logging::of_client(globals.verbose, output);
    }
    let session = Session { globals, output };
    match &arguments.command {
        Command::Standalone(standalone) => roles::standalone::run(standalone, globals, output),
        Command::Config(command) => commands::config::run(command, globals, output),
        Command::Produce(produce) => session::run(commands::produce::run(session, produce)),
        Command::Consume(consume) => session::run(commands::consume::run(session, consume)),
        Command::Topics(command) => session::run(commands::topics::run(session, command)),
        Command::Ledgers(command) => session::run(commands::ledgers::run(session, command)),
        Command::Bench(command) => commands::bench::run(session, command),
    }
}
