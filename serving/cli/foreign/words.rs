//! Finds the row.

use clap::error::{ContextKind, ErrorKind};

use super::commands::COMMANDS;
use super::flags::{ACKS, CODECS, CONFIG, FLAGS, OF_COMMANDS};
use crate::usage::context;

/// What a word that the command of this path does not know is called here.
pub(crate) fn word(path: &str, error: &clap::Error) -> Option<&'static str> {
    if error.kind() == ErrorKind::InvalidSubcommand {
        let named = context(error, ContextKind::InvalidSubcommand)?;
        let of = |path| {
            let mut commands = COMMANDS.iter();
            commands.find(|(behind, word, _)| *behind == path && *word == named)
        };
        // The path has every word that is known, also those behind a wrong one.
        let found = of(path).or_else(|| of(""));
        return found.map(|(.., here)| *here);
    }
    let argument = context(error, ContextKind::InvalidArg)?;
    if argument.starts_with("--acks") {
        let value = context(error, ContextKind::InvalidValue)?;
        let found = ACKS.iter().find(|(word, _)| *word == value);
        return found.map(|(_, here)| *here);
    }
    if argument.starts_with("--compression")
        && let Some(value) = context(error, ContextKind::InvalidValue)
    {
        let found = CODECS.iter().find(|(word, _)| *word == value);
        return found.map(|(_, here)| *here);
    }
    let flag = argument.split(['=', ' ']).next().unwrap_or(&argument);
    let of_command = OF_COMMANDS
        .iter()
        .find(|(command, word, _)| is_within(path, command) && *word == flag);
    let anywhere = || FLAGS.iter().find(|(word, _)| *word == flag);
    match of_command {
        Some((.., here)) => Some(here),
        None => anywhere().map(|(_, here)| *here),
    }
}

/// The path is that of this command, or of one in its branch.
fn is_within(path: &str, command: &str) -> bool {
    let rest = path.strip_prefix(command);
    rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(' '))
}

/// Schemes that Pulsar's tools put before the name of a topic, and what stands for them here.
const SCHEMES: [(&str, &str); 2] = [
    (
        "persistent://",
        "every topic is persistent here, and its name has no scheme",
    ),
    (
        "non-persistent://",
        "every topic is stored here: there are no others, and a name has no scheme",
    ),
];

/// Why the name of a topic is that of Pulsar's tools, and the name without what only they need.
pub(crate) fn scheme(topic: &str) -> Option<(&'static str, &str)> {
    SCHEMES
        .iter()
        .find_map(|(scheme, why)| Some((*why, topic.strip_prefix(scheme)?)))
}

/// What is meant by a `--config` that names no file but sets something, as Kafka's scripts have it.
pub(crate) fn setting(config: &str) -> Option<&'static str> {
    config.contains('=').then_some(CONFIG)
}
