//! The names there are, from the server and from the file of profiles. A person waits for them: what is not known soon is not known.

use std::ffi::OsString;
use std::str::FromStr as _;

use hulse_proto::id::TopicName;
use hulse_sdk::{Admin, Error};

use super::line::{Kind, Wanted, read};
use crate::arguments::{Arguments, Command};
use crate::commands::profile;
use crate::commands::session::{self, Session};
use crate::output::{Output, Shape};

/// The namespace whose topics need no more than their name.
const SHORT: &str = "public/default/";
/// How long the server has.
const TIMEOUT: &str = "--timeout=1s";

/// The names that could end this line. Empty where it wants none, and where they cannot be had: a person who types is not told errors.
pub(super) fn at_the_end_of(line: &[String]) -> Vec<String> {
    let Some(wanted) = read(line) else {
        return Vec::new();
    };
    match wanted.kind {
        Kind::Profile => beginning(profile::names(), &wanted.begun),
        Kind::Topic | Kind::Subscription { .. } => asked(&wanted).unwrap_or_default(),
    }
}

/// Asks the server that the line, or else the profile or the environment, names.
fn asked(wanted: &Wanted) -> Option<Vec<String>> {
    let words = ["hulse", "topics", "list", TIMEOUT].map(OsString::from);
    let words: Vec<OsString> = words
        .into_iter()
        .chain(wanted.server.iter().map(OsString::from))
        .collect();
    let Arguments { globals, command } = crate::parse(&words).ok()?;
    debug_assert!(matches!(command, Command::Topics(_)));
    let output = Output {
        shape: Shape::Name,
        quiet: true,
        colour: false,
    };
    let session = Session {
        globals: &globals,
        output,
    };
    let mut found = None;
    let asking = async {
        let client = session.client_that_answers()?;
        found = names(&client.admin(), wanted).await.ok();
        Ok(())
    };
    session::run(asking).ok()?;
    found
}

async fn names(admin: &Admin, wanted: &Wanted) -> Result<Vec<String>, Error> {
    if let Kind::Subscription { topic } = &wanted.kind {
        let all = admin.list_subscriptions("", topic).await?;
        let names = all.into_iter().map(|subscription| last(&subscription.name));
        return Ok(beginning(names, &wanted.begun));
    }
    let topics = admin.list_topics("").await?;
    Ok(of_topics(
        topics.into_iter().map(|topic| topic.name).collect(),
        &wanted.begun,
    ))
}

/// A subscription is found in the namespace of its topic.
fn last(name: &str) -> String {
    name.rsplit('/').next().unwrap_or(name).to_owned()
}

/// Topics as short as they can be named; in full where that is what was begun.
fn of_topics(full: Vec<String>, begun: &str) -> Vec<String> {
    let short = |name: &String| name.strip_prefix(SHORT).unwrap_or(name).to_owned();
    let found = beginning(full.iter().map(short), begun);
    match found.is_empty() || begun.contains('/') {
        true => beginning(full, begun),
        false => found,
    }
}

/// Those that begin so. A shell puts them into its line as they are, so one that is no name, from whatever server, is not offered: it
/// could be a command.
fn beginning(names: impl IntoIterator<Item = String>, begun: &str) -> Vec<String> {
    let names = names.into_iter();
    names
        .filter(|name| name.starts_with(begun) && !name.starts_with('-'))
        .filter(|name| TopicName::from_str(name).is_ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn topics_are_named_as_short_as_they_can_be() {
        let all = ["acme/shop/orders", "public/default/orders", "public/x/o"].map(str::to_owned);
        let found = |begun| of_topics(all.to_vec(), begun);
        assert_eq!(found("o"), ["orders"]);
        assert_eq!(found(""), ["acme/shop/orders", "orders", "public/x/o"]);
        assert_eq!(found("public/d"), ["public/default/orders"]);
        assert_eq!(found("public/"), ["public/default/orders", "public/x/o"]);
        assert_eq!(found("public/default/o"), ["public/default/orders"]);
        assert_eq!(found("x"), Vec::<String>::new());
    }

    /// Who presses Tab runs nothing of what a server says.
    #[test]
    fn words_of_a_server_that_are_no_names_are_not_offered() {
        let all = [
            "o;id",
            "$(id)",
            "o\nid",
            "o\u{1b}[2J",
            "o id",
            "-o",
            "o/p",
            "ok",
        ];
        assert_eq!(beginning(all.map(str::to_owned), ""), ["ok"]);
        assert_eq!(beginning([last("public/default/$(id)")], ""), [""; 0]);
    }
}
