//! What flags and commands of other tools are called here: Kafka's scripts, kcat, rpk, Pulsar's tools.
//!
//! `flags` and `commands` are the tables, `words` finds the row of what the command line does not know. A tip names only commands and
//! flags that exist where it is given; the tests try every row.

mod commands;
mod flags;
#[cfg(test)]
mod tests;
mod words;

pub(crate) use words::{scheme, setting, word};
