//! What a text advises people to run must be there: commands of the tree, and flags that they know. For tests only.

use clap::{Command, CommandFactory as _};

use crate::arguments::Arguments;

/// What is advised in `text` and does not exist; flags before the first `hulse` are those of the command of this path.
pub(crate) fn faults(path: &str, text: &str) -> Vec<String> {
    let root = Arguments::command();
    let mut phrases = text.split("hulse ");
    let mut found = Vec::new();
    let of = path
        .split(' ')
        .try_fold(&root, |at, word| at.find_subcommand(word));
    let before = phrases.next().unwrap_or_default();
    flags(&root, of.unwrap_or(&root), before, &mut found);
    for phrase in phrases {
        let phrase = phrase
            .split([';', '`', '\n', '|', '(', ')'])
            .next()
            .unwrap_or_default();
        let mut at = &root;
        for word in phrase.split_whitespace() {
            let word = word.trim_end_matches([',', '.', ':']);
            match at.find_subcommand(word) {
                Some(inner) => at = inner,
                None => {
                    let is_word = word.starts_with(|c: char| c.is_ascii_lowercase());
                    if is_word && at.has_subcommands() {
                        found.push(format!("no command: hulse {phrase}"));
                    }
                    break;
                }
            }
        }
        flags(&root, at, phrase, &mut found);
    }
    found
}

fn flags(root: &Command, at: &Command, text: &str, found: &mut Vec<String>) {
    let separated =
        |c: char| c.is_whitespace() || matches!(c, ',' | ';' | '[' | ']' | '(' | ')' | '`');
    for word in text.split(separated) {
        let word = word
            .split('=')
            .next()
            .unwrap_or_default()
            .trim_end_matches('.');
        let there = match (word.strip_prefix("--"), word.strip_prefix('-')) {
            (Some("" | "help" | "version"), _) => true,
            (Some(long), _) => knows(root, at, |known| known.get_long() == Some(long)),
            (None, Some(short)) => {
                let mut letters = short.chars();
                match (letters.next(), letters.next()) {
                    (Some(letter), None) if letter.is_ascii_alphabetic() => {
                        knows(root, at, |known| known.get_short() == Some(letter))
                    }
                    _ => true,
                }
            }
            (None, None) => true,
        };
        if !there {
            found.push(format!("{} does not know {word}: {text}", at.get_name()));
        }
    }
}

/// The command, or all commands, know such a flag.
fn knows(root: &Command, at: &Command, is_it: impl Fn(&clap::Arg) -> bool) -> bool {
    at.get_arguments().chain(root.get_arguments()).any(is_it)
}

#[test]
fn advice_that_cannot_be_followed_is_found() {
    let good =
        "-n N stops; hulse topics list, hulse consume TOPIC -s NAME; `hulse config default`, --yes";
    assert_eq!(faults("consume", good), Vec::<String>::new());
    for bad in [
        "hulse topics lst",
        "hulse topcs",
        "hulse topics list --force",
        "--frm X",
        "-Z",
        "hulse produce TOPIC -s NAME",
    ] {
        assert_eq!(faults("consume", bad).len(), 1, "{bad}");
    }
}
