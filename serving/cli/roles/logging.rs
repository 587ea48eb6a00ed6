//! Log lines: to standard error, at the configured level, as text or as JSON.

use std::io;

use tracing_subscriber::EnvFilter;

use crate::config::Config;
use crate::output::Output;

/// What `-v` means, from once on.
const VERBOSE: [&str; 3] = [
    "info,hulse=debug,serving_broker=debug,bookie_node=debug,bookie_client=debug,bookie_transport=debug,bookie_metadata=debug,hulse_sdk=debug",
    "debug",
    "trace",
];

fn filter(level: &str, verbose: u8) -> EnvFilter {
    let words = match usize::from(verbose) {
        0 => level,
        more => VERBOSE[(more - 1).min(VERBOSE.len() - 1)],
    };
    // Checked with the configuration; what is odd all the same logs as info.
    EnvFilter::try_new(words).unwrap_or_else(|_| EnvFilter::new("info"))
}

/// For a server.
pub(crate) fn of_server(config: &Config, verbose: u8, output: Output) {
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter(&config.log.level, verbose))
        .with_writer(io::stderr)
        .with_ansi(output.colour);
    let begun = match config.log.format.as_str() {
        "json" => lines.json().try_init(),
        _ => lines.try_init(),
    };
    if let Err(error) = begun {
        output.tell(&format!("no log: {error}"));
    }
}

/// For a client command: warnings only, unless more is asked for.
pub(crate) fn of_client(verbose: u8, output: Output) {
    let level = if output.quiet { "error" } else { "warn" };
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter(level, verbose))
        .with_writer(io::stderr)
        .with_ansi(output.colour)
        .without_time();
    if let Err(error) = lines.try_init() {
        output.tell(&format!("no log: {error}"));
    }
}
