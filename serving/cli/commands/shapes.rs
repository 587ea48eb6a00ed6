//! What each command answers with: the one table behind `--output help` and behind the check that `--dry-run` means something.
//!
//! A new leaf of the command tree gets a row here; a test walks the tree and finds the leaves that have none.

use std::ffi::OsString;

use clap::{Command, CommandFactory as _};

use super::{bench, cluster, doctor, generate, ledgers, profile, subscriptions, topics, verify};
use crate::arguments::Arguments;
use crate::format::RECORD_FIELDS;
use crate::output::{Field, Table, View};

/// What comes out.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Answer {
    /// One value.
    One(&'static [Field]),
    /// One value, of the fields that go with these flags.
    OneOf(&'static [(&'static str, &'static [Field])]),
    /// A list of values.
    Many(&'static [Field]),
    /// Values as they come, for as long as they come: one object a line in every form of JSON.
    Stream(&'static [Field]),
    /// Text whose form `--output` does not change.
    Text(&'static str),
    /// The configuration, which has its own reference.
    Config,
}

/// One leaf of the command tree.
pub(crate) struct Row {
    /// The words after `hulse`.
    pub(crate) path: &'static str,
    /// What comes out.
    pub(crate) answer: Answer,
    /// It knows `--dry-run`.
    pub(crate) dry_run: bool,
}

const fn row(path: &'static str, answer: Answer) -> Row {
    Row {
        path,
        answer,
        dry_run: false,
    }
}

const fn dry(path: &'static str, answer: Answer) -> Row {
    Row {
        path,
        answer,
        dry_run: true,
    }
}

/// Every leaf.
pub(crate) const ROWS: &[Row] = &[
    row("standalone", Answer::Text("runs until it is stopped")),
    row("broker", Answer::Text("runs until it is stopped")),
    row(
        "bookie format",
        Answer::Text("nothing; who it is now goes to standard error"),
    ),
    row(
        "bookie replace",
        Answer::Text("nothing; who it is now goes to standard error"),
    ),
    row("produce", Answer::One(super::produce::ProducedView::FIELDS)),
    row("consume", Answer::Stream(RECORD_FIELDS)),
    row("topics list", Answer::Many(topics::TopicRow::FIELDS)),
    row("topics create", Answer::Many(topics::TopicView::FIELDS)),
    row("topics describe", Answer::One(topics::TopicView::FIELDS)),
    dry("topics update", Answer::Many(topics::TopicView::FIELDS)),
    dry("topics trim", Answer::Many(topics::TrimView::FIELDS)),
    dry("topics delete", Answer::Many(topics::NameView::FIELDS)),
    row("topics partitions", Answer::One(topics::TopicView::FIELDS)),
    row("topics peek", Answer::Many(topics::PeekView::FIELDS)),
    dry("topics copy", Answer::One(topics::CopyView::FIELDS)),
    row(
        "subscriptions list",
        Answer::Many(subscriptions::SubscriptionRow::FIELDS),
    ),
    row(
        "subscriptions create",
        Answer::One(subscriptions::SubscriptionRow::FIELDS),
    ),
    dry(
        "subscriptions update",
        Answer::One(subscriptions::SubscriptionRow::FIELDS),
    ),
    row(
        "subscriptions describe",
        Answer::One(subscriptions::SubscriptionView::FIELDS),
    ),
    dry(
        "subscriptions pause",
        Answer::One(subscriptions::SubscriptionRow::FIELDS),
    ),
    row(
        "subscriptions resume",
        Answer::One(subscriptions::SubscriptionRow::FIELDS),
    ),
    dry(
        "subscriptions redrive",
        Answer::Many(subscriptions::RedrivenView::FIELDS),
    ),
    dry(
        "subscriptions seek",
        Answer::Many(subscriptions::MovedView::FIELDS),
    ),
    dry(
        "subscriptions skip",
        Answer::Many(subscriptions::MovedView::FIELDS),
    ),
    dry(
        "subscriptions clear",
        Answer::Many(subscriptions::MovedView::FIELDS),
    ),
    dry(
        "subscriptions delete",
        Answer::One(subscriptions::SubscriptionRow::FIELDS),
    ),
    row("cluster status", Answer::One(cluster::StatusView::FIELDS)),
    row("cluster health", Answer::Many(doctor::Finding::FIELDS)),
    row(
        "cluster check restart",
        Answer::Text("nothing; the exit code tells, and why goes to standard error"),
    ),
    row(
        "cluster check scale-in",
        Answer::Text("nothing; the exit code tells, and why goes to standard error"),
    ),
    row("brokers list", Answer::Many(cluster::BrokerView::FIELDS)),
    row("brokers describe", Answer::One(cluster::BrokerView::FIELDS)),
    dry("brokers drain", Answer::One(cluster::BrokerView::FIELDS)),
    row("brokers undrain", Answer::One(cluster::BrokerView::FIELDS)),
    dry("drain", Answer::One(cluster::BrokerView::FIELDS)),
    dry("brokers balance", Answer::Many(cluster::MoveView::FIELDS)),
    row("bookies list", Answer::Many(cluster::BookieView::FIELDS)),
    row("bookies describe", Answer::One(cluster::BookieView::FIELDS)),
    dry(
        "bookies decommission",
        Answer::One(cluster::BookieView::FIELDS),
    ),
    dry(
        "bookies recommission",
        Answer::One(cluster::BookieView::FIELDS),
    ),
    dry(
        "bookies read-only",
        Answer::One(cluster::BookieView::FIELDS),
    ),
    dry("bookies lost", Answer::One(cluster::BookieView::FIELDS)),
    row("ledgers list", Answer::Many(ledgers::LedgerView::FIELDS)),
    dry(
        "ledgers accept-loss",
        Answer::One(ledgers::LedgerView::FIELDS),
    ),
    row(
        "bench produce",
        Answer::OneOf(&[
            ("", bench::Figures::FIELDS),
            ("--compression all", bench::CodecsView::FIELDS),
        ]),
    ),
    row("bench consume", Answer::One(bench::Figures::FIELDS)),
    row("bench latency", Answer::One(bench::Figures::FIELDS)),
    row("config show", Answer::Config),
    row("profile create", Answer::One(profile::ProfileView::FIELDS)),
    row("profile use", Answer::One(profile::ProfileView::FIELDS)),
    row("profile list", Answer::Many(profile::ProfileView::FIELDS)),
    row("profile show", Answer::One(profile::ProfileView::FIELDS)),
    row("profile edit", Answer::Many(profile::ProfileView::FIELDS)),
    row("profile delete", Answer::One(profile::ProfileView::FIELDS)),
    row("profile prompt", Answer::One(profile::PromptView::FIELDS)),
    row("verify", Answer::One(verify::VerifyView::FIELDS)),
    row("doctor", Answer::Many(doctor::Finding::FIELDS)),
    dry(
        "generate demo-data",
        Answer::One(generate::DemoView::FIELDS),
    ),
    row("completions", Answer::Text("a script of the shell")),
    row("config default", Answer::Text("a configuration file")),
    row("config check", Answer::Text("nothing; the exit code tells")),
];

/// The row of a path.
pub(crate) fn of(path: &str) -> Option<&'static Row> {
    ROWS.iter().find(|row| row.path == path)
}

/// The page of `--output help`, if these words of the command line ask for it; whatever else they lack.
pub(crate) fn page(words: &[OsString]) -> Option<String> {
    // Behind -- nothing is a flag: a line may stand there that is being typed.
    let words: Vec<&str> = words
        .iter()
        .filter_map(|word| word.to_str())
        .take_while(|word| *word != "--")
        .collect();
    let separate = words.windows(2).any(|pair| pair == ["--output", "help"]);
    if !separate && !words.contains(&"--output=help") {
        return None;
    }
    let path = path(&words);
    Some(match of(&path) {
        Some(row) => row.page(),
        None => {
            format!("hulse {path}: name a whole command, such as hulse topics list --output help\n")
        }
    })
}

/// The command that these words name, by the names of its parts rather than their aliases.
pub(crate) fn path(words: &[&str]) -> String {
    let root = Arguments::command();
    let mut at: &Command = &root;
    let mut path: Vec<&str> = Vec::new();
    for word in words.iter().skip(1).take_while(|word| **word != "--") {
        if let Some(inner) = at.find_subcommand(word) {
            path.push(inner.get_name());
            at = inner;
        }
    }
    path.join(" ")
}

impl Row {
    fn page(&self) -> String {
        if let Answer::OneOf(all) = self.answer {
            let pages = all
                .iter()
                .map(|(flags, fields)| self.table(flags, "one object", fields));
            return pages.collect::<Vec<_>>().join("\n");
        }
        let (what, fields) = match self.answer {
            Answer::One(fields) => ("one object", fields),
            Answer::OneOf(_) => ("one object", &[][..]),
            Answer::Many(fields) => ("a list of objects; --output jsonl: one a line", fields),
            Answer::Stream(fields) => ("one object a line", fields),
            Answer::Text(what) => return format!("hulse {}: {what}\n", self.path),
            Answer::Config => {
                return "hulse config show: the keys that `hulse config default` explains\n"
                    .to_owned();
            }
        };
        self.table("", what, fields)
    }

    fn table(&self, flags: &str, what: &str, fields: &[Field]) -> String {
        let mut table = Table::new(&["FIELD", "TYPE", "MEANING"]);
        for field in fields {
            table.row(vec![
                field.path.to_owned(),
                field.kind_words(),
                field.meaning.to_owned(),
            ]);
        }
        let command = format!("hulse {} {flags}", self.path);
        format!("{}: {what}\n\n{}", command.trim_end(), table.render())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn leaves(command: &Command, path: &str, out: &mut BTreeSet<String>) {
        let inner: Vec<&Command> = command
            .get_subcommands()
            .filter(|inner| inner.get_name() != "help" && !inner.is_hide_set())
            .collect();
        if inner.is_empty() {
            out.insert(path.to_owned());
        }
        for inner in inner {
            leaves(inner, format!("{path} {}", inner.get_name()).trim(), out);
        }
    }

    #[test]
    fn every_leaf_of_the_command_tree_has_a_row() {
        let mut root = Arguments::command();
        root.build();
        let mut expected = BTreeSet::new();
        leaves(&root, "", &mut expected);
        let found: BTreeSet<String> = ROWS.iter().map(|row| row.path.to_owned()).collect();
        assert_eq!(found, expected);
        assert_eq!(found.len(), ROWS.len());
    }

    #[test]
    fn help_on_the_output_is_found_without_the_arguments_that_a_command_needs() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        let told = page(&words("hulse -q topic describe --output help")).unwrap();
        assert!(told.contains("hulse topics describe: one object"), "{told}");
        assert!(told.contains("partition[].leader_epoch"), "{told}");
        assert!(
            page(&words("hulse topics --output=help"))
                .unwrap()
                .contains("whole command")
        );
        for line in [
            "hulse topics list --output json",
            "hulse completions bash -- hulse topics list --output help",
        ] {
            assert_eq!(page(&words(line)), None, "{line}");
        }
    }
}
