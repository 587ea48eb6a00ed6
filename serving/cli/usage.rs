//! Wrong command lines as failures of four parts, with a word for those who know other tools ([`foreign`]).

use std::ffi::OsString;

use clap::ArgMatches;
use clap::error::{ContextKind, ContextValue, ErrorKind};

use crate::arguments::Globals;
use crate::commands::shapes;
use crate::failure::{Code, Failure};
use crate::foreign;
use crate::output::Shape;

/// True for help and version, which are no failures, and for a command that is not whole: it shows its help.
pub(crate) fn is_page(error: &clap::Error) -> bool {
    matches!(
        error.kind(),
        ErrorKind::DisplayHelp
            | ErrorKind::DisplayVersion
            | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand
    )
}

/// The form of output that was asked for, as far as it can be told of words that clap refuses.
pub(crate) fn shape(words: &[OsString]) -> Shape {
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    let named = words
        .windows(2)
        .find(|pair| pair[0] == "--output")
        .map(|pair| pair[1])
        .or_else(|| words.iter().find_map(|word| word.strip_prefix("--output=")));
    match named {
        _ if words.contains(&"-j") => Shape::Json,
        Some("json") => Shape::Json,
        Some("jsonl") => Shape::Jsonl,
        Some("yaml") => Shape::Yaml,
        _ => Shape::Table,
    }
}

/// Refuses `--dry-run` where nothing would keep the command from doing its work.
///
/// # Errors
/// The command does not know it.
pub(crate) fn check_dry_run(globals: &Globals, words: &[OsString]) -> Result<(), Failure> {
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    let path = shapes::path(&words);
    if !globals.dry_run || shapes::of(&path).is_none_or(|row| row.dry_run) {
        return Ok(());
    }
    Err(Failure::new(Code::Usage, "this command has no dry run")
        .why("it would do its work all the same")
        .object(format!("hulse {path} --dry-run"))
        .next("leave --dry-run out; commands that destroy or copy something know it"))
}

/// Refuses `--config NAME=VALUE`, which other tools have for what is a flag here; a client reads no configuration.
///
/// # Errors
/// It names no file, but sets something.
pub(crate) fn check_config(globals: &Globals) -> Result<(), Failure> {
    let config = globals.config.as_deref().map(|file| file.to_string_lossy());
    let Some((config, tip)) = config.and_then(|config| {
        let tip = foreign::setting(&config)?;
        Some((config.into_owned(), tip))
    }) else {
        return Ok(());
    };
    Err(
        Failure::new(Code::Usage, "nothing can be set with --config")
            .why("it names the configuration file of a server")
            .object(format!("--config {config}"))
            .next(tip),
    )
}

/// Arguments that are names of topics.
const TOPICS: [&str; 4] = ["topic", "topics", "source", "target"];

/// Refuses names of topics as Pulsar's tools write them.
///
/// # Errors
/// One has a scheme.
pub(crate) fn check_topics(matches: &ArgMatches) -> Result<(), Failure> {
    let mut leaf = matches;
    while let Some((_, inner)) = leaf.subcommand() {
        leaf = inner;
    }
    let named = TOPICS
        .iter()
        .filter_map(|id| leaf.try_get_raw(id).ok().flatten());
    for topic in named.flatten().filter_map(|topic| topic.to_str()) {
        if let Some((why, name)) = foreign::scheme(topic) {
            return Err(Failure::new(Code::Usage, "this is no name of a topic")
                .why(why)
                .object(topic)
                .next(format!("write {name}")));
        }
    }
    Ok(())
}

/// Refuses a time in which nothing can be answered.
///
/// # Errors
/// It is zero.
pub(crate) fn check_timeout(globals: &Globals) -> Result<(), Failure> {
    if !globals.timeout.0.is_zero() {
        return Ok(());
    }
    Err(Failure::new(Code::Usage, "there is no time for an answer")
        .why("a time-out is longer than zero; none at all cannot be had")
        .object(format!("--timeout {}", globals.timeout))
        .next("--timeout 30s, which is what holds where nobody names one; 500ms and 2m can be written too"))
}

/// The failure of a command line that clap refused.
pub(crate) fn failure(error: &clap::Error, words: &[OsString]) -> Failure {
    let words: Vec<&str> = words.iter().filter_map(|word| word.to_str()).collect();
    let what = match error.kind() {
        ErrorKind::UnknownArgument => "there is no such flag or argument",
        ErrorKind::InvalidSubcommand => "there is no such command",
        ErrorKind::MissingRequiredArgument | ErrorKind::MissingSubcommand => {
            "something is missing on the command line"
        }
        ErrorKind::InvalidValue | ErrorKind::ValueValidation | ErrorKind::InvalidUtf8 => {
            "a value cannot be meant"
        }
        ErrorKind::ArgumentConflict => "these flags do not go together",
        _ => "the command line cannot be understood",
    };
    let path = shapes::path(&words);
    let help = match path.as_str() {
        "" => "hulse --help".to_owned(),
        path => format!("hulse {path} --help"),
    };
    let next = foreign::word(&path, error)
        .map(str::to_owned)
        .or_else(|| suggestion(error))
        .unwrap_or_else(|| match looks_like_a_name(error) {
            true => format!(
                "{help}; a name that begins with - stands behind --, and behind the = of a flag"
            ),
            false => help,
        });
    Failure::new(Code::Usage, what)
        .why(why(error))
        .object(format!("hulse {path}").trim_end())
        .next(next)
}

/// The first paragraph of clap's own words, and what values there are.
fn why(error: &clap::Error) -> String {
    let text = error.render().to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let lines = text.lines().take_while(|line| !line.trim().is_empty());
    let lines: Vec<&str> = lines.map(str::trim).collect();
    lines.join("\n")
}

/// A word of the command line, or of those that there are, that clap found fault with.
pub(crate) fn context(error: &clap::Error, kind: ContextKind) -> Option<String> {
    match error.get(kind)? {
        ContextValue::String(text) => Some(text.clone()),
        // The nearest stands last.
        ContextValue::Strings(texts) => texts.last().cloned(),
        _ => None,
    }
}

/// A word that clap took for a flag because of its first letter, where a flag would have two of them.
fn looks_like_a_name(error: &clap::Error) -> bool {
    let argument = context(error, ContextKind::InvalidArg);
    error.kind() == ErrorKind::UnknownArgument
        && argument.is_some_and(|word| word.starts_with('-') && !word.starts_with("--"))
}

/// The nearest right word, as clap finds it.
fn suggestion(error: &clap::Error) -> Option<String> {
    [
        ContextKind::SuggestedSubcommand,
        ContextKind::SuggestedArg,
        ContextKind::SuggestedValue,
    ]
    .into_iter()
    .find_map(|kind| context(error, kind))
    .map(|word| format!("did you mean {word}?"))
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::*;
    use crate::arguments::Arguments;

    fn told(line: &str) -> String {
        let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
        let error = Arguments::command()
            .try_get_matches_from(&words)
            .expect_err("the line is wrong");
        assert!(!is_page(&error), "{line}");
        let failure = failure(&error, &words);
        assert_eq!(failure.exit() as i32, 2, "{line}");
        failure.to_string()
    }

    #[test]
    fn words_of_other_tools_get_the_right_one() {
        for (line, tip) in [
            ("hulse consume orders --from start", "-o start"),
            ("hulse sub seek orders billing --from start", "--to"),
            ("hulse sub create orders -x", "behind --"),
            ("hulse topics create orders --quota 1GiB", "--backlog-size"),
            (
                "hulse topics update orders --backlog-quota 1GiB",
                "--backlog-size",
            ),
            (
                "hulse topics update orders --retention-time 1d",
                "--retention TIME",
            ),
            ("hulse consume orders --from-beginning", "-o start"),
            ("hulse consume --from-beginning --topic orders", "-o start"),
            ("hulse consume --topic orders", "without a flag"),
            ("hulse produce orders --bootstrap-server=a:9092", "--server"),
            ("hulse consume orders --group g", "-s NAME"),
            ("hulse produce orders --acks all", "--acks quorum"),
            ("hulse produce orders --acks 0", "--acks none"),
            ("hulse topics --list", "hulse topics list"),
            ("hulse topics create --topic orders", "without a flag"),
            ("hulse consume orders -g workers", "-s NAME"),
            ("hulse consume orders -G workers", "-s NAME"),
            ("hulse consume orders -c 5", "-n N"),
            ("hulse consume -t orders", "without a flag"),
            ("hulse produce orders -K:", "-f '%k:%v"),
            ("hulse produce orders -b localhost:9092", "--server"),
            ("hulse produce orders --replication-factor 3", "-r N"),
            (
                "hulse topics create orders --topic-config retention.ms=1",
                "--retention",
            ),
            ("hulse topics consume orders", "hulse consume TOPIC"),
            ("hulse topics produce orders", "hulse produce TOPIC"),
            ("hulse groups list", "hulse subscriptions"),
            ("hulse group describe g", "hulse subscriptions"),
            ("hulse consumer-groups", "hulse subscriptions"),
            ("hulse admin topics", "hulse topics list"),
        ] {
            let told = told(line);
            assert!(told.contains(tip), "{line}: {told}");
            assert!(told.contains("HULSE-9001"), "{line}: {told}");
        }
    }

    #[test]
    fn wrong_words_are_told_with_the_nearest_right_ones() {
        for (line, expected) in [
            ("hulse topcs list", "topics"),
            ("hulse topics lst", "list"),
            ("hulse produce orders --compresion lz4", "--compression"),
            ("hulse produce orders --compression lz", "lz4"),
            ("hulse topics describe", "<TOPIC>"),
            ("hulse consume orders -o first", "no position"),
        ] {
            let told = told(line);
            assert!(told.contains(expected), "{line}: {told}");
        }
        assert!(told("hulse topics describe").contains("hulse topics describe --help"));
    }

    #[test]
    fn form_of_output_is_told_of_words_that_are_wrong() {
        let shape = |line: &str| {
            let words: Vec<OsString> = line.split(' ').map(OsString::from).collect();
            shape(&words)
        };
        assert_eq!(shape("hulse nothing -j"), Shape::Json);
        assert_eq!(shape("hulse nothing --output=yaml"), Shape::Yaml);
        assert_eq!(shape("hulse nothing"), Shape::Table);
    }
}
