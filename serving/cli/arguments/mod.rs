//! The command line: what clap parses. Every page of help ends with examples, and a test runs them against a server.
//!
//! One file per branch of the tree; [`Arguments`] and [`Command`] are the trunk (`tree`). Globals stand before or after the command.
//! `-o` is a position and `-f` a format, as kcat and rpk taught; the output's shape is `--output` or `-j` (operations.md B).
//! A command that answers with a result has a row in `commands::shapes`, which `--output help` prints.

mod bench;
mod checks;
mod cluster;
mod copies;
mod generate;
mod globals;
mod ledgers;
mod node;
mod profile;
mod records;
mod subscriptions;
#[cfg(test)]
mod tests;
mod topics;
mod tree;

pub(crate) use bench::{Bench, Load, Measured};
pub(crate) use checks::{Completions, Doctor, Shell, Verify};
pub(crate) use cluster::{Bookies, Brokers, CheckCommand, ClusterCommand, Drain};
pub(crate) use generate::{Demo, Generate};
pub(crate) use globals::{Globals, SERVER_VARIABLE, ServerFrom};
pub(crate) use ledgers::Ledgers;
pub(crate) use node::{Bookie, BookieCommand, BookieNode, Broker, ConfigCommand, Role, Standalone};
pub(crate) use profile::ProfileCommand;
pub(crate) use records::{Acks, Compression, Consume, Produce};
pub(crate) use subscriptions::{KeyOrder, OfTopic, SharingArgs, Subscriptions, Type};
pub(crate) use topics::{BacklogFlags, BacklogPolicy, Copy, Peek, RetentionFlags, Topics, Trim};
pub(crate) use tree::{Arguments, Command};
