//! Log lines: to standard error, at the configured level, as text or as JSON; of a client command as sentences.

use std::{fmt, io};

use tracing::field::{Field, Visit};
use tracing::{Event, Level};
use tracing_subscriber::EnvFilter;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::registry::LookupSpan;

use crate::config::Config;
use crate::output::Output;

/// What `-v` means, from once on.
const VERBOSE: [&str; 3] = [
    "info,hulse=debug,serving_broker=debug,bookie_node=debug,bookie_client=debug,bookie_transport=debug,bookie_metadata=debug,hulse_sdk=debug",
    "debug",
    "trace",
];

/// What a client tells unasked: warnings, but for those of which the commands say more themselves.
const SENTENCES: &str = "warn,hulse_sdk::consumer::handle=error,hulse_sdk::reader::fetch=error,hulse_sdk::lane::task=error";

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

/// For a client command: warnings only, as sentences, unless more is asked for.
pub(crate) fn of_client(verbose: u8, output: Output) {
    let level = if output.quiet { "error" } else { SENTENCES };
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter(level, verbose))
        .with_writer(io::stderr)
        .with_ansi(output.colour)
        .without_time();
    let begun = match verbose {
        0 => lines.event_format(Sentence).try_init(),
        _ => lines.try_init(),
    };
    if let Err(error) = begun {
        output.tell(&format!("no log: {error}"));
    }
}

/// A line of the log as a person is told it: what happened, and of what.
struct Sentence;

impl<S, N> FormatEvent<S, N> for Sentence
where
    S: tracing::Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
{
    fn format_event(
        &self,
        _: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        let mut words = Words::default();
        event.record(&mut words);
        let level = match *event.metadata().level() {
            Level::ERROR => "error",
            Level::WARN => "warning",
            _ => "note",
        };
        write!(writer, "{level}: {}", words.message)?;
        match words.fields.as_slice() {
            [] => writeln!(writer),
            fields => writeln!(writer, " ({})", fields.join(", ")),
        }
    }
}

/// What a line of the log says.
#[derive(Default)]
struct Words {
    message: String,
    fields: Vec<String>,
}

impl Visit for Words {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        match field.name() {
            "message" => self.message = format!("{value:?}"),
            "error" => self.fields.push(format!("{value:?}")),
            name => self.fields.push(format!("{name} {value:?}")),
        }
    }

    fn record_str(&mut self, field: &Field, value: &str) {
        self.record_debug(field, &format_args!("{value}"));
    }
}
