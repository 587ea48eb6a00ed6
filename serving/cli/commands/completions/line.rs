//! A line that is being typed: which kind of name could stand at its end, and what was begun of it.
//!
//! The line is read by the tree of commands itself, so a flag or an argument that is new there is known here.

use clap::{Arg, ArgAction, Command, CommandFactory as _};

use crate::arguments::Arguments;

/// A kind of name.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Of topics.
    Topic,
    /// Of subscriptions of this topic.
    Subscription { topic: String },
    /// Of profiles.
    Profile,
}

/// What the end of a line wants.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    pub(super) kind: Kind,
    /// What was typed of the name.
    pub(super) begun: String,
    /// Flags of the line that say which server to ask.
    pub(super) server: Vec<String>,
}

/// Flags that say which server is meant.
const SERVER: [&str; 2] = ["server", "profile"];

/// Reads a line up to the word that is being typed, which is its last and may be empty; `None` where no name is wanted.
pub(super) fn read(line: &[String]) -> Option<Wanted> {
    let (begun, before) = line.split_last()?;
    let mut root = Arguments::command();
    root.build();
    let mut typed = Typed::new(&root);
    for word in before.iter().skip(1) {
        typed.take(word)?;
    }
    typed.wants(begun)
}

/// What was typed so far.
struct Typed<'a> {
    at: &'a Command,
    /// The words of commands.
    path: Vec<&'a str>,
    positionals: Vec<String>,
    /// The flag whose value comes next.
    flag: Option<&'a Arg>,
    /// Nothing is a flag any more.
    bare: bool,
    server: Vec<String>,
}

impl<'a> Typed<'a> {
    fn new(root: &'a Command) -> Self {
        Self {
            at: root,
            path: Vec::new(),
            positionals: Vec::new(),
            flag: None,
            bare: false,
            server: Vec::new(),
        }
    }

    /// Takes a whole word; `None` for a command that does not exist.
    fn take(&mut self, word: &str) -> Option<()> {
        if let Some(flag) = self.flag.take() {
            self.value(flag, word);
        } else if self.bare || !word.starts_with('-') || word == "-" {
            if self.at.has_subcommands() {
                self.at = self.at.find_subcommand(word)?;
                self.path.push(self.at.get_name());
            } else {
                self.positionals.push(word.to_owned());
            }
        } else if word == "--" {
            self.bare = true;
        } else {
            let (name, value) = match word.split_once('=') {
                Some((name, value)) => (name, Some(value)),
                None => (word, None),
            };
            match (self.flag_of(name), value) {
                (Some(flag), Some(value)) => self.value(flag, value),
                (flag, None) => self.flag = flag,
                (None, _) => {}
            }
        }
        Some(())
    }

    /// The flag that takes a value, of `--name`, or of letters whose last one it is.
    fn flag_of(&self, name: &str) -> Option<&'a Arg> {
        let mut all = self.at.get_arguments();
        let flag = match (name.strip_prefix("--"), name.chars().last()) {
            (Some(long), _) => all.find(|flag| flag.get_long() == Some(long)),
            (None, letter) => all.find(|flag| flag.get_short() == letter),
        };
        flag.filter(|flag| flag.get_action().takes_values())
    }

    fn value(&mut self, flag: &Arg, value: &str) {
        if SERVER.contains(&flag.get_id().as_str()) {
            self.server.push(format!("--{}={value}", flag.get_id()));
        }
    }

    /// What could stand where `begun` was begun.
    fn wants(self, begun: &str) -> Option<Wanted> {
        let flag_and_value = begun.split_once('=').filter(|_| begun.starts_with("--"));
        let (argument, begun) = match (self.flag, flag_and_value) {
            (Some(flag), _) => (flag, begun),
            (None, Some((name, value))) => (self.flag_of(name)?, value),
            (None, None) if begun.starts_with('-') && !self.bare => return None,
            (None, None) => (self.positional()?, begun),
        };
        Some(Wanted {
            kind: self.kind(argument)?,
            begun: begun.to_owned(),
            server: self.server,
        })
    }

    /// The argument without a flag that comes next.
    fn positional(&self) -> Option<&'a Arg> {
        let all: Vec<&Arg> = self.at.get_positionals().collect();
        let repeated = || all.last().filter(|last| is_many(last));
        all.get(self.positionals.len()).or_else(repeated).copied()
    }

    fn kind(&self, argument: &Arg) -> Option<Kind> {
        match (self.path.join(" ").as_str(), argument.get_id().as_str()) {
            // These make what is named.
            ("topics create", _) | ("subscriptions create", "subscription") => None,
            (_, "topic" | "topics" | "source" | "target") => Some(Kind::Topic),
            (_, "subscription") => Some(Kind::Subscription {
                topic: self.positionals.first()?.clone(),
            }),
            ("profile use" | "profile show" | "profile delete", "name") | (_, "profile") => {
                Some(Kind::Profile)
            }
            _ => None,
        }
    }
}

fn is_many(argument: &Arg) -> bool {
    matches!(argument.get_action(), ArgAction::Append)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(line: &str) -> Option<Kind> {
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        read(&words).map(|wanted| wanted.kind)
    }

    #[test]
    fn line_wants_the_kind_of_name_that_its_command_takes_there() {
        for line in [
            "hulse consume ",
            "hulse consume -n 3 or",
            "hulse consume orders pay",
            "hulse -j produce --compression lz4 o",
            "hulse topic describe ",
            "hulse topics copy a ",
            "hulse verify --topic o",
            "hulse bench produce --topic b",
            "hulse bench produce --topic=b",
            "hulse subs create ",
            "hulse --server a:1 consume -- ",
        ] {
            assert_eq!(kind(line), Some(Kind::Topic), "{line}");
        }
        for line in [
            "hulse consume orders -s ",
            "hulse consume orders --subscription=b",
            "hulse consume orders -es b",
            "hulse subs describe orders ",
            "hulse subs seek orders b",
        ] {
            let topic = "orders".to_owned();
            assert_eq!(kind(line), Some(Kind::Subscription { topic }), "{line}");
        }
        for line in [
            "hulse profile use ",
            "hulse topics list --profile ",
            "hulse --profile=h",
        ] {
            assert_eq!(kind(line), Some(Kind::Profile), "{line}");
        }
        for line in [
            "hulse",
            "hulse ",
            "hulse con",
            "hulse consume -",
            "hulse consume orders -n ",
            "hulse consume orders -o ",
            "hulse topics ",
            "hulse topics create o",
            "hulse subs create orders b",
            "hulse consume -s ",
            "hulse topics describe orders ",
            "hulse profile create n",
            "hulse nothing ",
        ] {
            assert_eq!(kind(line), None, "{line}");
        }
    }

    #[test]
    fn server_of_the_line_is_the_one_to_ask() {
        let line = ["hulse", "--server", "a:1", "consume", "--profile=p", "or"];
        let wanted = read(&line.map(str::to_owned)).unwrap();
        assert_eq!(wanted.server, ["--server=a:1", "--profile=p"]);
        assert_eq!(wanted.begun, "or");
    }
}
