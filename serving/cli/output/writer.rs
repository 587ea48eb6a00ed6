//! Where words and data go: data to standard output in the form of `--output`, words to standard error.

use std::io::{self, IsTerminal, Write};

use serde_json::Value;

use super::view::{View, strays};
use super::{Shape, yaml};
use crate::arguments::Globals;
use crate::failure::Stop;

/// How to write, from the globals.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Output {
    /// Of data.
    pub(crate) shape: Shape,
    /// Words are left out.
    pub(crate) quiet: bool,
    /// Words may have colour.
    pub(crate) colour: bool,
}

impl Output {
    /// As the globals say.
    pub(crate) fn of(globals: &Globals) -> Self {
        Self {
            shape: globals.shape(),
            quiet: globals.quiet,
            colour: wants_colour(globals.no_color),
        }
    }

    /// Answers with one value.
    ///
    /// # Errors
    /// The reader is gone, or the output cannot be written.
    pub(crate) fn one<V: View>(&self, value: &V) -> Result<(), Stop> {
        check(value);
        match self.shape {
            Shape::Table | Shape::Help => self.text(&V::text(std::slice::from_ref(value), false)),
            Shape::Wide => self.text(&V::text(std::slice::from_ref(value), true)),
            Shape::Json => self.text(&format!("{}\n", pretty(value))),
            Shape::Jsonl => self.text(&format!("{}\n", json(value))),
            Shape::Yaml => self.text(&yaml::yaml(&json(value))),
            Shape::Name => self.text(&format!("{}\n", value.name())),
        }
    }

    /// Answers with a list.
    ///
    /// # Errors
    /// As [`Output::one`].
    pub(crate) fn list<V: View>(&self, values: &[V]) -> Result<(), Stop> {
        values.iter().for_each(check);
        match self.shape {
            Shape::Table | Shape::Help => self.text(&V::text(values, false)),
            Shape::Wide => self.text(&V::text(values, true)),
            Shape::Json => self.text(&format!("{}\n", pretty(&values))),
            Shape::Jsonl => {
                let lines = values.iter().map(|value| format!("{}\n", json(value)));
                self.text(&lines.collect::<String>())
            }
            Shape::Yaml => self.text(&yaml::yaml(&json(&values))),
            Shape::Name => {
                let lines = values.iter().map(|value| format!("{}\n", value.name()));
                self.text(&lines.collect::<String>())
            }
        }
    }

    /// Answers with one value that a person is told in a sentence.
    ///
    /// # Errors
    /// As [`Output::one`].
    pub(crate) fn done<V: View>(&self, value: &V, words: &str) -> Result<(), Stop> {
        if self.shape.for_people() {
            self.say(words);
            return Ok(());
        }
        self.one(value)
    }

    /// Writes text that is data.
    ///
    /// # Errors
    /// As [`Output::one`].
    pub(crate) fn text(&self, text: &str) -> Result<(), Stop> {
        let mut out = io::stdout().lock();
        out.write_all(text.as_bytes())?;
        out.flush()?;
        Ok(())
    }

    /// Says something to a person, unless they asked for silence.
    pub(crate) fn say(&self, words: &str) {
        if !self.quiet {
            self.tell(words);
        }
    }

    /// Says something that must not be missed. A closed standard error is no reason to fail.
    pub(crate) fn tell(&self, words: &str) {
        let _ = writeln!(io::stderr().lock(), "{words}");
    }

    /// Words in red where colour is wanted.
    pub(crate) fn red(&self, words: &str) -> String {
        match self.colour {
            true => format!("\x1b[1;31m{words}\x1b[0m"),
            false => words.to_owned(),
        }
    }
}

fn json<T: serde::Serialize>(value: &T) -> Value {
    serde_json::to_value(value).expect("our own types have text keys and finite numbers")
}

fn pretty<T: serde::Serialize>(value: &T) -> String {
    serde_json::to_string_pretty(value).expect("our own types have text keys and finite numbers")
}

/// Holds what is written to what `--output help` promises.
fn check<V: View>(value: &V) {
    if cfg!(debug_assertions) {
        let strays = strays(&json(value), V::FIELDS);
        assert!(strays.is_empty(), "fields of an answer: {strays:?}");
    }
}

/// True when standard error is a terminal that wants colour.
pub(crate) fn wants_colour(no_color: bool) -> bool {
    let refused = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    !no_color && !refused && io::stderr().is_terminal()
}
